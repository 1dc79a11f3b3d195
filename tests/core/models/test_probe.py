"""A fixed text tells whether a model is what it was."""

import math

import pytest
import torch

from core.errors import BackendError
from core.models.probe import Probe, check_return, check_teacher, probe
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer

SIZE = ToyConfig(hidden_size=16, num_layers=1, num_heads=2, intermediate_size=16)


@pytest.fixture
def backend():
    return ToyBackend(SIZE, 1, ToyTokenizer())


def test_the_same_weights_say_the_same_bits(backend):
    first, second = probe(backend), probe(backend)
    assert torch.equal(first.logits_TV, second.logits_TV)
    assert first.logits_TV.shape[1] == backend.vocab_size
    check_return("teacher", first, second)


def test_the_entropy_is_a_share_of_the_uniform_one():
    assert Probe(torch.zeros(2, 10)).entropy_share == pytest.approx(1.0)
    half = torch.full((1, 4), -100.0)
    half[0, :2] = 0.0
    assert Probe(half).entropy_share == pytest.approx(math.log(2) / math.log(4))


def test_one_changed_weight_is_noticed(backend):
    """C61: weights that came back as something else must not teach."""
    before = probe(backend)
    with torch.no_grad():
        backend.parameters["norm"][0] += 1.0
    with pytest.raises(BackendError, match="the teacher came back from the host"):
        check_return("teacher", before, probe(backend))


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_teacher_that_says_nothing_is_refused(backend, value):
    """C61: of all-zero weights every log-probability is -ln V."""
    with torch.no_grad():
        backend.parameters["embedding"].fill_(value)
    with pytest.raises(BackendError, match="the teacher says nothing"):
        check_teacher(probe(backend))


def test_a_nearly_uniform_teacher_is_a_warning(backend, caplog):
    with torch.no_grad():
        backend.parameters["embedding"] *= 1e-3
    check_teacher(probe(backend))
    assert "nearly uniform" in caplog.text

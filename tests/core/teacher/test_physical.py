import pytest
import torch

from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.runtime import Runtime
from core.teacher.physical import Asked, ScoringShape, plan


@pytest.fixture(scope="module")
def backend():
    def build(hidden=16):
        config = ToyConfig(hidden, 1, 2, 32, 2048)
        return ToyBackend(config, 0, ToyTokenizer())

    return build


@pytest.mark.parametrize(
    ("tokens", "width"),
    [(1, 64), (64, 64), (65, 128), (129, 192), (512, 512), (513, 640), (1025, 1280), (2048, 2048)],
)
def test_the_width_follows_from_the_length_alone(backend, tokens, width):
    assert ScoringShape.of(backend(), Runtime(), tokens).width == width


def test_the_rows_follow_from_backend_and_runtime(backend):
    def rows(model, tokens=60, **runtime):
        return ScoringShape.of(model, Runtime(**runtime), tokens).rows

    assert rows(backend()) == 8
    assert rows(backend(), trajectory_batch_size=3) == 3
    assert rows(backend(), max_update_padded_tokens=200) == 3
    assert rows(backend(), max_update_padded_tokens=1) == 1
    # A pass of some hundred tokens keeps a CPU busy; more rows would often be dummies.
    assert [rows(backend(), tokens) for tokens in (100, 200, 2000)] == [4, 2, 1]
    assert rows(backend(256)) == 1


def test_a_batch_has_one_shape_and_no_more_than_its_rows(backend):
    lengths = [10, 100, 20, 30, 110, 40]
    model, runtime = backend(), Runtime(trajectory_batch_size=3)
    asked = [Asked([1] * n, [0], [1], ScoringShape.of(model, runtime, n)) for n in lengths]
    assert list(plan(asked, range(6))) == [[0, 2, 3], [5], [1, 4]]
    assert list(plan(asked, [4, 0])) == [[0], [4]]
    assert not list(plan(asked, []))
    assert torch.is_grad_enabled()

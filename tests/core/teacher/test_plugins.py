"""A teacher of one's own says logits, and nothing else is taken for an opinion."""

import pytest
import torch

from core.environments.plugin_code import file_code
from core.errors import PluginError
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.plugin_specs import NamedPluginSpec
from core.teacher.plugins import asked, find_teacher, open_teacher

PROMPT = [("system", 3), ("user", 4), ("assistant_final", 4)]
POSITIONS = [7, 9]
SOURCE = """
import torch
from core.teacher.plugins import PluginTeacher

class Own(PluginTeacher):
    name = "own"

    def __init__(self, codec, bias=0.0):
        super().__init__(codec)
        self.bias = bias

    def logits(self, trajectory, positions):
        shape = (len(positions), self.codec.vocab_size)
        return BODY
"""


@pytest.fixture
def teacher(tmp_path):
    def make(body="torch.full(shape, self.bias)", **params):
        path = tmp_path / "own.py"
        path.write_text(SOURCE.replace("BODY", body))
        spec = NamedPluginSpec(
            name="own",
            params=params,
            sha256=file_code(path).sha256,
            distribution=None,
            version=None,
        )
        return open_teacher(spec, ToyTokenizer(), path)

    return make


def test_a_teacher_is_made_with_its_parameters_and_gives_float32(teacher, write_episode):
    own = teacher("torch.full(shape, self.bias, dtype=torch.float64)", bias=2.5)
    logits_PV = asked(own, write_episode(PROMPT), POSITIONS)
    assert logits_PV.dtype == torch.float32
    assert logits_PV.shape == (2, own.codec.vocab_size)
    assert float(logits_PV.min()) == 2.5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[[0.0]]", "returns a list, not a tensor"),
        ("torch.zeros(shape).T", r"not floating point of shape \(2, "),
        ("torch.zeros(shape[0] + 1, shape[1])", r"of shape \(3, "),
        ("torch.zeros(shape, dtype=torch.int64)", "int64"),
        ("torch.full(shape, float('nan'))", "a value that is not finite"),
        ("torch.full(shape, float('-inf'))", "a value that is not finite"),
        ("torch.full(shape, -1e300, dtype=torch.float64)", "a value that is not finite in float32"),
        ("torch.full(shape, -1e30)", "a value beyond 1e\\+25"),
        ("1 / 0", "raises on .*ZeroDivisionError"),
    ],
)
def test_what_is_no_opinion_is_refused(teacher, write_episode, body, message):
    with pytest.raises(PluginError, match=message):
        asked(teacher(body), write_episode(PROMPT), POSITIONS)


def test_a_teacher_is_not_asked_about_no_position(teacher, write_episode):
    own = teacher("torch.stack([torch.zeros(shape[1]) for _ in positions])")
    assert asked(own, write_episode(PROMPT), []).shape == (0, own.codec.vocab_size)
    assert asked(own, write_episode(PROMPT), POSITIONS).shape == (2, own.codec.vocab_size)


def test_parameters_that_it_does_not_take_are_refused(teacher):
    with pytest.raises(PluginError, match="teacher own cannot be made with"):
        teacher(colour="red")


def test_an_unfinished_teacher_is_refused(tmp_path):
    path = tmp_path / "half.py"
    path.write_text(SOURCE.replace("def logits", "def logit").replace("BODY", "0"))
    code = file_code(path).sha256
    spec = NamedPluginSpec(name="own", params={}, sha256=code, distribution=None, version=None)
    with pytest.raises(PluginError, match="cannot be made"):
        open_teacher(spec, ToyTokenizer(), path)
    with pytest.raises(PluginError, match="defines no teacher 'other'"):
        find_teacher(spec.model_copy(update={"name": "other"}), path)

import pytest

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.errors import AlignmentError
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.oracle import oracle_trajectory
from core.teacher.views import privileged_views

CODEC = ToyTokenizer()
WORLD = make_environment("calculator", prompt_style="compact")
TASKS = make_splits(WORLD, {"train": 3, "eval": 1, "test": 0}, 7, "easy")
TRACES = [oracle_trajectory(WORLD, task, CODEC) for task in TASKS["train"]]


def test_each_view_holds_the_hint_of_its_own_task():
    views = privileged_views(TRACES[::-1], TASKS["train"], WORLD, CODEC)
    for view, task in zip(views, TASKS["train"][::-1], strict=True):
        [hint] = [span.text for span in view.spans if span.segment_key == "privileged"]
        assert WORLD.privileged_context(task) in hint


def test_a_view_adds_one_segment_and_moves_the_rest():
    [view] = privileged_views(TRACES[:1], TASKS["train"], WORLD, CODEC)
    trace = TRACES[0]
    added = len(view.token_ids) - len(trace.token_ids)
    [hint] = [span for span in view.spans if span.segment_key == "privileged"]
    assert hint.end - hint.start == added > 0
    assert view.token_ids[: hint.start] + view.token_ids[hint.end :] == trace.token_ids


def test_a_task_that_is_not_there_is_refused():
    with pytest.raises(AlignmentError, match="has no hint in environment calculator"):
        privileged_views(TRACES, TASKS["eval"], WORLD, CODEC)


def test_a_world_without_hints_is_refused(monkeypatch):
    monkeypatch.setattr(type(WORLD), "privileged_context", lambda self, task: None)
    with pytest.raises(AlignmentError, match="has no hint"):
        privileged_views(TRACES, TASKS["train"], WORLD, CODEC)

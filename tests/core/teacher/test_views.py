import pytest

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.errors import AlignmentError, ChatTemplateError
from core.models.framing import frame_template
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.oracle import oracle_branches, oracle_trajectory
from core.teacher.views import privileged_views
from core.trajectory.alignment import align
from core.trajectory.view import teacher_view

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


@pytest.mark.parametrize("name", ["plain", "tools", "thinking"])
def test_hints_are_written_by_the_tokenizers_template(templated, name):
    """All other segments are byte for byte the student's, and alignment finds them by key."""
    codec = templated(name)
    frames = frame_template(codec, WORLD, "tokenizer")
    trace = oracle_trajectory(WORLD, TASKS["train"][0], codec, template=frames)
    [view] = privileged_views([trace], TASKS["train"], WORLD, codec, "tokenizer")
    hint = next(span for span in view.spans if span.segment_key == "privileged")
    assert hint.text.startswith("<|im_start|>system\n")
    assert hint.text.endswith("<|im_end|>\n")
    kept = [span.text for span in view.spans if span is not hint]
    assert kept == [span.text for span in trace.spans]
    targets = trace.target_positions()
    aligned = align(trace, targets, [1.0] * len(targets), view)
    shift = hint.end - hint.start
    assert aligned.teacher_prediction_positions == [j - 1 + shift for j in targets]


def test_a_hint_follows_the_system_message_of_a_branch_too(templated):
    codec = templated("injecting")
    frames = frame_template(codec, WORLD, "tokenizer_branching")
    rows = oracle_branches(WORLD, TASKS["train"][0], codec, template=frames)
    assert len(rows) == 2
    views = privileged_views(rows, TASKS["train"], WORLD, codec, "tokenizer_branching")
    for row, view in zip(rows, views, strict=True):
        targets = row.target_positions()
        aligned = align(row, targets, [1.0] * len(targets), view)
        assert aligned.target_token_ids == [row.token_ids[j] for j in targets]


def test_a_template_without_a_place_for_a_hint_is_refused(templated):
    codec = templated("single_system")
    frames = frame_template(codec, WORLD, "tokenizer")
    trace = oracle_trajectory(WORLD, TASKS["train"][0], codec, template=frames)
    with pytest.raises(ChatTemplateError, match="one system message"):
        privileged_views([trace], TASKS["train"], WORLD, codec, "tokenizer")


def test_a_hint_is_never_cut_to_the_students_budget(templated):
    """C26: the view is longer than any limit of the student's episodes, and whole."""
    codec = templated("plain")
    frames = frame_template(codec, WORLD, "tokenizer")
    trace = oracle_trajectory(WORLD, TASKS["train"][0], codec, template=frames)
    view = teacher_view(trace, "The answer is long. " * 200, codec, frames)
    hint = next(span for span in view.spans if span.segment_key == "privileged")
    assert codec.decode(view.token_ids[hint.start : hint.end]).count("long") == 200
    assert len(view.token_ids) == len(trace.token_ids) + hint.end - hint.start


def test_a_view_in_another_template_is_refused(templated):
    trace = TRACES[0]
    codec = templated("tools")
    with pytest.raises(ChatTemplateError, match="not the template's: at byte"):
        privileged_views([trace], TASKS["train"], WORLD, codec, "tokenizer")


def test_a_task_that_is_not_there_is_refused():
    with pytest.raises(AlignmentError, match="has no hint in environment calculator"):
        privileged_views(TRACES, TASKS["eval"], WORLD, CODEC)


def test_a_world_without_hints_is_refused(monkeypatch):
    monkeypatch.setattr(type(WORLD), "privileged_context", lambda self, task: None)
    with pytest.raises(AlignmentError, match="has no hint"):
        privileged_views(TRACES, TASKS["train"], WORLD, CODEC)

import json

import pytest

from core.artifacts.contents import hash_file
from core.errors import InputError
from core.runs.comparison import compare_runs
from core.runs.manifest import load_manifest, write_manifest
from core.runs.reading import open_run


def _change(directory, name, edit, roles=()):
    """Rewrite a JSONL file of a run, as another computation would have left it."""
    path = directory / name
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    edit(rows)
    path.unlink()
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    manifest = load_manifest(directory)
    files = {**manifest.files, name: hash_file(path)}
    artifacts = dict(manifest.artifacts)
    for role in roles:
        ref = artifacts[role].ref.model_copy(update={"digest": "f" * 64})
        artifacts[role] = artifacts[role].model_copy(update={"ref": ref})
    write_manifest(directory, manifest.model_copy(update={"files": files, "artifacts": artifacts}))


def test_a_run_equals_its_copy(tiny, copy):
    found = compare_runs(open_run(tiny.directory), open_run(copy))
    assert found.is_equal
    assert (found.recipe, found.environment, found.metrics, found.success) == ((), (), (), ())
    assert found.equal_steps == len(load_manifest(copy).artifacts) + len(load_manifest(copy).inputs)


def test_one_sampled_token_is_named_with_step_and_episode(tiny, copy):
    """The acceptance case: two runs that differ in one sampled token."""
    places = []

    def edit(rows):
        row = rows[1]
        span = next(span for span in row["spans"] if span["span_type"].startswith("assistant"))
        place = span["start"] + 1 if span["end"] - span["start"] > 1 else span["start"]
        row["token_ids"][place] += 1
        places.append((row["trajectory_id"], place, row["token_ids"][place]))

    _change(copy, "trajectories.jsonl", edit, roles=("rollouts_0000", "student_0000"))
    found = compare_runs(open_run(tiny.directory), open_run(copy))
    episode, place, token = places[0]
    first = found.steps[0]
    assert (first.role, first.task, first.same_request) == (
        "rollouts_0000",
        "sample_rollouts",
        True,
    )
    assert first.details[0].startswith(f"episode {episode} (")
    assert f"token {place}, id {token - 1} (assistant" in first.details[0]
    assert f"here and id {token} (assistant" in first.details[0]
    assert [step.role for step in found.steps] == ["rollouts_0000", "student_0000"]


def test_a_number_that_differs_is_named_where_tokens_agree(tiny, copy):
    def edit(rows):
        rows[0]["logprobs"][0] -= 0.25

    _change(copy, "trajectories.jsonl", edit, roles=("rollouts_0000",))
    (step,) = compare_runs(open_run(tiny.directory), open_run(copy)).steps
    assert "log-probability of token" in step.details[0]


def test_the_first_row_of_metrics_that_differs_is_shown(tiny, copy):
    def edit(rows):
        rows[1]["loss"] = 123.0

    _change(copy, "metrics.jsonl", edit)
    found = compare_runs(open_run(tiny.directory), open_run(copy))
    assert [one.field for one in found.metrics] == ["row", "loss"]
    assert found.metrics[0].here == 2
    assert found.metrics[1].there == 123.0


def test_a_field_that_one_run_lacks_is_said_to_be_nothing(tiny, copy):
    _change(copy, "metrics.jsonl", lambda rows: rows[1].pop("loss"))
    found = compare_runs(open_run(tiny.directory), open_run(copy)).metrics[1]
    assert (found.field, found.there) == ("loss", "(nothing)")


def test_seconds_are_no_difference(tiny, copy):
    def edit(rows):
        for row in rows:
            row["seconds"] = 99.0

    _change(copy, "metrics.jsonl", edit)
    assert compare_runs(open_run(tiny.directory), open_run(copy)).metrics == ()


def test_what_is_no_run_cannot_be_compared(tiny, tmp_path):
    with pytest.raises(InputError, match="no run directory"):
        compare_runs(open_run(tiny.directory), open_run(tmp_path))

import json

import pytest

from core.artifacts.record import FileEntry
from core.runs.journal import Journal, step_events


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_that_a_kill_cut_off_is_dropped_and_the_next_stands_alone(tmp_path):
    journal = Journal(tmp_path)
    journal.write("run_start")
    with journal.path.open("ab") as stream:
        stream.write(b'{"event":"ev')
    journal.mend()
    journal.write("resumed", after="interrupted")
    assert [row["event"] for row in rows(journal.path)] == ["run_start", "resumed"]


def test_no_secret_is_written(tmp_path):
    journal = Journal(tmp_path)
    journal.write("run_end", message="token=abc in /home/ann/x", api_key="k")
    text = journal.path.read_text()
    assert "abc" not in text
    assert "ann" not in text


@pytest.fixture
def record(tiny):
    return lambda role: tiny.store.record(tiny.run.parts[role])


@pytest.mark.parametrize(
    ("task", "role", "events"),
    [
        ("sample_rollouts", "rollouts_0000", ["rollouts_collected"]),
        ("score_rollouts", "targets_0000", []),
        ("update_student", "student_0000", ["token_analysis_written", "checkpoint_saved"]),
        ("cold_start", "cold_start", ["sft_warmup_cycle", "checkpoint_saved"]),
        ("evaluate_student", "evaluation_0000", ["eval"]),
    ],
)
def test_a_step_has_the_events_of_the_seeds(record, task, role, events):
    found = list(step_events(task, record(role), cached=True))
    assert [name for name, _ in found] == events
    assert all(facts["cached"] for _, facts in found)


def test_a_data_set_that_was_adopted_is_said_to_be_attached(record):
    """No run of ``tiny`` has one; what is said depends on the task and its metrics alone."""
    adopted = record("rollouts_0000").model_copy(update={"metrics": {"adopted_from": "a-0"}})
    ((name, facts),) = step_events("adopt_dataset", adopted, cached=False)
    assert (name, facts["adopted_from"]) == ("persisted_offline_dataset_attached", "a-0")


def test_a_cycle_without_a_selected_token_and_a_smaller_chunk_are_said(record):
    empty = record("targets_0000").model_copy(update={"metrics": {"selected_model_tokens": 0}})
    ((name, _),) = step_events("score_rollouts", empty, cached=False)
    assert name == "cycle_skipped_no_selected_positions"
    state = record("student_0000")
    halved = state.model_copy(
        update={
            "metrics": {"projection_chunk_size": 128},
            "files": {"x": FileEntry(sha256="0" * 64, size=0)},
        }
    )
    names = [name for name, _ in step_events("update_student", halved, cached=False)]
    assert names == ["oom_chunk_retry", "checkpoint_saved"]

import json

import pytest

from core.errors import CacheCorruptionError, InputError
from core.runs.inspection import episode_ids, episode_view, provenance_table
from core.runs.reading import open_run


def test_the_table_counts_every_token_and_only_the_student_s_can_be_selected(tiny):
    run = open_run(tiny.directory)
    table = provenance_table(run)
    total = sum(len(one.token_ids) for one in run.trajectories())
    assert sum(row.tokens for row in table) == total
    assert all(row.selected == 0 for row in table if not row.trained)
    selected = sum(row["selected_positions"] for row in run.metrics() if row["phase"] == "opd")
    assert sum(row.selected for row in table) == selected


def test_an_episode_has_one_row_per_token_with_its_mask_and_log_probability(tiny):
    run = open_run(tiny.directory)
    one = next(iter(run.trajectories()))
    view = episode_view(run, one.trajectory_id)
    assert [row.token_id for row in view.tokens] == one.token_ids
    assert [row.model for row in view.tokens] == [bool(bit) for bit in one.model_mask]
    assert [row.logprob for row in view.tokens if row.model] == one.logprobs
    asked = [row for row in view.tokens if row.weight is not None]
    assert asked
    assert all(row.model and row.teacher_entropy is not None for row in asked)


def test_an_analysed_episode_says_what_was_diverged_from_and_the_text(tiny):
    run = open_run(tiny.directory)
    rows = run.token_rows()
    view = episode_view(run, rows[0]["trajectory_id"])
    by_position = {row.position: row for row in view.tokens}
    for note in rows:
        if note["trajectory_id"] != view.trajectory_id:
            continue
        row = by_position[note["target_position"]]
        assert (row.divergence, row.piece) == (note["divergence"], note["token_piece"])
        if note["teacher_sampled_token_log_prob"] is not None:
            expected = note["teacher_sampled_token_log_prob"]
            assert row.teacher_logprob == pytest.approx(expected, abs=1e-6)


def test_evaluation_episodes_can_be_looked_at_too(tiny):
    run = open_run(tiny.directory)
    last = episode_ids(run)[-1][0]
    assert ":eval:" in last
    assert all(row.weight is None for row in episode_view(run, last).tokens)


def test_an_unknown_episode_is_refused(tiny):
    with pytest.raises(InputError, match="has no episode 'nobody'"):
        episode_view(open_run(tiny.directory), "nobody")


def test_targets_of_other_tokens_and_damaged_shards_are_refused(copy):
    run = open_run(copy)
    first = next(iter(run.trajectories())).trajectory_id
    shard = copy / "teacher-cache" / "shard-00000.safetensors"
    data = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(data[:-5])
    with pytest.raises(CacheCorruptionError, match="cut off"):
        episode_view(run, first)
    shard.write_bytes(b"\xff" * len(data))
    with pytest.raises(CacheCorruptionError, match="no safetensors file"):
        episode_view(run, first)
    index = copy / "teacher-cache" / "index.json"
    described = json.loads(index.read_text())
    described["shards"][0]["entries"][0]["tokens_digest"] = "0" * 64
    index.write_text(json.dumps(described))
    with pytest.raises(CacheCorruptionError, match="other tokens"):
        episode_view(run, first)

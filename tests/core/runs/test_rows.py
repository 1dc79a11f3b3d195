import json

from core.report.data import read_rows
from core.runs.reading import open_run


def test_rows_stand_in_the_order_of_the_run_and_name_their_artifact(tiny):
    rows = open_run(tiny.directory).metrics()
    assert [row["phase"] for row in rows] == [
        "eval",
        "sft",
        "sft",
        "sft",
        "eval",
        "opd",
        "opd_cycle",
        "opd",
        "opd_cycle",
        "eval",
    ]
    manifest = open_run(tiny.directory).manifest
    assert {row["artifact"] for row in rows} <= set(manifest.artifacts)


def test_every_row_is_that_of_its_artifact(tiny):
    for row in open_run(tiny.directory).metrics():
        place = tiny.store.path(tiny.run.parts[row["artifact"]])
        if "step" in row:
            own = {name: value for name, value in row.items() if name != "artifact"}
            assert own in read_rows(place / "metrics.jsonl")
        elif row["phase"] == "eval":
            stats = json.loads((place / "eval.json").read_text())["stats"]
            assert row["success_rate"] == stats["success_rate"]


def test_seconds_are_in_the_rows_and_in_no_artifact_s_content(tiny):
    rows = open_run(tiny.directory).metrics()
    cycles = [row for row in rows if row["phase"] == "opd_cycle"]
    assert all(set(row["seconds"]) == {"sample", "score", "update"} for row in cycles)
    for ref in tiny.run.parts.values():
        for name in tiny.store.record(ref).files:
            if name.endswith((".json", ".jsonl")):
                text = (tiny.store.path(ref) / name).read_text()
                assert '"seconds"' not in text


def test_the_joined_files_hold_every_episode_once_in_order(tiny):
    run = open_run(tiny.directory)
    ids = [one.trajectory_id for one in run.trajectories()]
    assert len(ids) == len(set(ids)) == 8
    assert [name.split(":")[1] for name in ids] == ["c0"] * 4 + ["c1"] * 4
    success = json.loads((tiny.directory / "eval.json").read_text())["success"]
    assert list(success) == ["before cold start", "after cold start", "after OPD"]

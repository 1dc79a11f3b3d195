import json
from collections import Counter

import pytest

from core.artifacts.store import Store
from core.recipe.loading import load

pytestmark = pytest.mark.server


@pytest.fixture
def run(prefect_server, recipe_file, overrides):
    """Run the tiny recipe with some changes; returns its summary."""
    from flows.opd_cycle import opd_cycle

    def call(*changes):
        loaded = load(recipe_file, [*overrides, *changes])
        return opd_cycle(recipe=loaded.recipe, runtime=loaded.runtime)

    return call


def computed_tasks(store, before):
    """How many artifacts of each task were built since ``before``."""
    kinds = (
        "splits",
        "traces",
        "teacher",
        "student",
        "rollouts",
        "targets",
        "evaluation",
        "report",
    )
    records = [record for kind in kinds for record in store.siblings(kind)]
    return Counter(r.task for r in records if r.key not in before), {r.key for r in records}


def test_a_run_ends_with_three_numbers_and_a_page(run, tmp_path):
    summary = run()
    assert set(summary["success"]) == {
        "before cold start",
        "after cold start",
        "after OPD",
    }
    assert all(0.0 <= rate <= 1.0 for rate in summary["success"].values())
    page = (tmp_path / "runs" / "tiny-seed3" / "report.html").read_text()
    assert "after OPD" in page
    manifest = json.loads((tmp_path / "runs/tiny-seed3/manifest.json").read_text())
    assert (manifest["status"], manifest["policy_version"]) == ("completed", 5)


def test_a_second_run_computes_nothing_and_ends_in_the_same_bytes(run):
    first, second = run(), run()
    assert (first["computed"], first["cached"]) == (16, 0)
    assert (second["computed"], second["cached"]) == (0, 16)
    assert second["student"] == first["student"]


def test_two_stores_hold_the_same_bytes(run, tmp_path):
    first = run()
    second = run(f"runtime.store={tmp_path / 'other'}", "runtime.slots=2")
    assert second["computed"] == 16
    assert second["student"] == first["student"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("eval.tasks=4", {"evaluate_student": 3, "write_report": 1}),
        (
            "loss.divergence=forward_kl",
            {
                "update_student": 2,
                "sample_rollouts": 1,
                "score_rollouts": 1,
                "evaluate_student": 1,
                "write_report": 1,
            },
        ),
        ("report.max_trajectories=1", {"write_report": 1}),
        ("runtime.threads=2", {}),
        ("runtime.device=cpu", {}),
        ("run.notes=hello", {}),
    ],
)
def test_an_edit_reruns_exactly_what_it_must(run, tmp_path, change, expected):
    run()
    store = Store(tmp_path / "store")
    _, before = computed_tasks(store, set())
    run(change)
    rebuilt, _ = computed_tasks(store, before)
    assert rebuilt == expected


def test_an_altered_artifact_is_rebuilt_and_never_served(run, tmp_path):
    first = run()
    store = Store(tmp_path / "store")
    victim = store.siblings("rollouts")[0]
    path = store.path(victim.ref) / "trajectories.jsonl"
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"policy", b"oracle", 1))
    second = run()
    assert second["computed"] == 1
    assert second["student"] == first["student"]
    assert path.read_bytes() == sound


def test_seeds_are_identity(run):
    assert run()["student"]["digest"] != run("run.seed=4")["student"]["digest"]


def latest_name():
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        return client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)[0].name


def test_a_flow_run_is_called_like_its_directory(run, recipe_file, overrides):
    from flows.opd_cycle import opd_cycle

    run("run.name=mine")
    assert latest_name() == "mine-seed3"
    run("run.run_id=exactly-this")
    assert latest_name() == "exactly-this"
    opd_cycle(recipe_path=str(recipe_file), overrides=overrides)
    assert latest_name() == str(recipe_file)

import time

import pytest

from core.artifacts.locking import locked
from core.artifacts.record import RECORD_NAME
from core.artifacts.retention import KeptRun, apply_retention, plan_retention
from core.artifacts.verification import verify_store

DAY_S = 86_400.0


@pytest.fixture
def publish(store, make_request):
    """Publish an artifact of two files, one of them tensors."""

    def make(kind: str, number: int, task: str = "update_student", budget=None, **parents):
        def build(out):
            (out / "numbers.json").write_text(f"{number}\n")
            (out / "weights.safetensors").write_bytes(bytes([number]) * 1000)

        spec = {"number": number, **({"budget": budget} if budget else {})}
        request = make_request(kind=kind, task=task, spec=spec, parents=parents)
        return store.publish(request, build)

    return make


@pytest.fixture
def run(publish):
    """A cold start and five cycles, of which the second is evaluated."""
    states = [publish("student", 0, task="cold_start")]
    shown = []
    for cycle in range(1, 6):
        rollouts = publish("rollouts", cycle, student=states[-1])
        states.append(publish("student", cycle, student=states[-1], rollouts=rollouts))
        shown += [rollouts, states[-1]]
        if cycle == 2:
            shown.append(publish("evaluation", cycle, student=states[-1]))
    return states, KeptRun("toy", tuple(shown), states[-1])


def _plan(store, *runs, now_s=None, min_age_s=DAY_S):
    return plan_retention(store.root, runs, min_age_s=min_age_s, now_s=now_s)


def test_a_kept_run_keeps_cold_start_evaluated_and_the_last_two_states(store, run):
    states, kept = run
    plan = _plan(store, kept)
    assert [(one.action, one.ref) for one in plan.removals] == [
        ("shed", state) for state in sorted((states[1], states[3]), key=lambda ref: ref.address)
    ]
    assert plan.kept == 12
    assert plan.freed() == 2000


def test_shed_states_keep_their_numbers_and_answer_for_their_key(store, run):
    states, kept = run
    assert apply_retention(store.root, _plan(store, kept)) == 2000
    shed = states[3]
    assert sorted(p.name for p in store.path(shed).iterdir()) == ["numbers.json", RECORD_NAME]
    assert store.find(shed.key) is None
    assert store.recall(shed.key) == shed
    assert store.verify(shed) == [f"{shed.address}/weights.safetensors: shed to save space"]
    assert verify_store(store.root).findings == []
    assert _plan(store, kept).removals == []


def test_a_damaged_rest_is_not_recalled(store, run):
    states, kept = run
    apply_retention(store.root, _plan(store, kept))
    (store.path(states[3]) / "numbers.json").write_text("9\n")
    assert store.recall(states[3].key) is None


def test_what_no_run_needs_goes_when_it_is_old(store, run, publish):
    _, kept = run
    lost = publish("rollouts", 99)
    assert _plan(store, kept).young == 1
    later = _plan(store, kept, now_s=time.time() + 2 * DAY_S)
    assert [one.ref for one in later.removals if one.action == "prune"] == [lost]
    apply_retention(store.root, later)
    assert store.is_pruned(lost)
    assert store.record(lost).digest == lost.digest
    assert store.recall(lost.key) is None


def test_what_a_kept_run_was_computed_from_never_goes(store, run, publish):
    states, _ = run
    everything = _plan(store, now_s=time.time() + 2 * DAY_S)
    assert len([one for one in everything.removals if one.action == "prune"]) == 12
    only_report = KeptRun("report", (publish("report", 7, student=states[-1]),), None)
    kept_by_report = _plan(store, only_report, now_s=time.time() + 2 * DAY_S)
    # The report's state hangs on all states and rollouts; only the evaluation is nobody's parent.
    assert [one.ref.kind for one in kept_by_report.removals if one.action == "prune"] == [
        "evaluation"
    ]


def test_what_an_unfinished_run_may_have_made_stays(store, run, publish):
    _, kept = run
    began = time.time() - 1.0
    publish("rollouts", 99)
    unfinished = KeptRun("cut", (), None, unfinished_since_s=began)
    plan = _plan(store, kept, unfinished, now_s=time.time() + 9 * DAY_S)
    assert (plan.young, [one for one in plan.removals if one.action == "prune"]) == (1, [])


def test_quarantined_artifacts_are_swept(store, run):
    _, kept = run
    aside = store.root / ".quarantine" / "rollouts-old"
    aside.mkdir()
    (aside / "x").write_bytes(b"12345")
    plan = _plan(store, kept)
    assert plan.freed("sweep") == 5
    apply_retention(store.root, plan)
    assert not aside.exists()


def test_an_abandoned_fit_goes_when_it_is_old_and_nobody_is_at_it(store, run):
    _, kept = run
    place = store.progress("student", "0" * 16)
    (place / "7").mkdir(parents=True)
    (place / "7" / "rows.jsonl").write_bytes(b"12345")
    assert _plan(store, kept).freed("sweep") == 0
    late = _plan(store, kept, now_s=time.time() + 2 * DAY_S)
    assert [one.where for one in late.removals if one.action == "sweep"] == [
        f".progress/student-{'0' * 16}"
    ]
    with locked(store.root / ".locks" / f"student-{'0' * 16}.lock", "a test"):
        apply_retention(store.root, late)
    assert place.exists()
    apply_retention(store.root, late)
    assert not place.exists()


def test_an_interrupted_clean_up_goes_on_where_it_was_cut(store, run, fail):
    states, kept = run
    plan = _plan(store, kept)
    with fail("remove_file", 5), pytest.raises(Exception, match="cannot remove file"):
        apply_retention(store.root, plan)
    assert store.recall(states[1].key) is not None or store.find(states[1].key) is not None
    apply_retention(store.root, _plan(store, kept))
    assert verify_store(store.root).findings == []
    assert _plan(store, kept).removals == []


def test_a_state_of_another_run_and_one_that_holds_seconds_are_never_shed(store, publish):
    """The first may outlive what it was copied from, and seconds never come out the same again."""
    states = [publish("student", 0, task="adopt_student")]
    for cycle in range(1, 5):
        budget = {"axis": "wall_time", "limit": 9.0} if cycle == 1 else None
        states.append(publish("student", cycle, student=states[-1], budget=budget))
    plan = _plan(store, KeptRun("fork", tuple(states[1:]), states[-1]))
    assert [one.ref for one in plan.removals] == [states[2]]


def test_planning_changes_nothing(store, run):
    _, kept = run
    before = sorted((p, p.stat().st_mtime_ns) for p in store.root.rglob("*") if p.is_file())
    _plan(store, kept)
    assert before == sorted((p, p.stat().st_mtime_ns) for p in store.root.rglob("*") if p.is_file())

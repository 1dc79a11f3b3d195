"""Every recipe in recipes/objectives and recipes/worlds runs from end to end, without Prefect."""

import json
import math
from pathlib import Path
from typing import get_args

import pytest

from core.artifacts.store import Store
from core.environments.registry import BUILT_IN
from core.recipe.loading import load
from core.recipe.objective import objective_name
from core.recipe.schema.loss import LossMode, ObjectiveName
from core.training.collapse import StopReason
from core.trajectory.io import read_trajectories
from flows.graphs.run import num_steps, run_graph, stop_reason
from flows.runs.plan import plan_recipe
from tasks.caching import StepCall

RECIPES = sorted(Path("recipes/objectives").glob("*.yaml"))
WORLDS = sorted(Path("recipes/worlds").glob("*.yaml"))
TINY = (
    *("models.teacher.toy_pretrain_steps=2", "models.teacher.toy_pretrain_batch_size=4"),
    *("environment.train_tasks=12", "environment.eval_tasks=4", "environment.test_tasks=4"),
    *("cold_start.demonstrations=8", "cold_start.cycles=2", "cold_start.rollouts_per_cycle=4"),
    *("train.rollouts_per_cycle=4", "train.gradient_accumulation_steps=4"),
    *("train.cycles=1", "train.warmup_steps=0", "eval.baseline_enabled=false"),
)
"""What leaves nothing of a recipe but its world, its limits and its sizes."""
DIAGNOSTICS = {
    "exact_full_vocab": set(),
    "bucketed_topk_tail": {"student_mass", "teacher_mass"},
    "union_topk": {"student_mass", "teacher_mass"},
    "shared_vocab": {"student_mass", "teacher_mass"},
    "forward_kl_topk": {
        "student_mass",
        "teacher_mass",
        "overlap_count",
        "overlap_token_advantage",
        "clamped",
    },
    "verl_pg_k1": {"is_clipped", "is_clipped_below", "approx_kl", "k1"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One store: the teacher, the traces and the cold start are made once for all of them."""
    return tmp_path_factory.mktemp("objectives") / "store"


@pytest.fixture
def run(store):
    """Run a recipe's steps; returns what it left, and its recipe."""

    def call_graph(path, *changes):
        loaded = load(path, [f"runtime.store={store}", *changes])

        def call(step, spec, *, name, **parents):
            prepared: StepCall = step.prepare(spec, runtime=loaded.runtime, name=name, **parents)
            return prepared.run()

        opened = Store(loaded.runtime.store)
        done = run_graph(loaded.recipe, call, lambda student: stop_reason(student, opened))
        return done, loaded.recipe

    return call_graph


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_objective_and_every_support_has_a_recipe():
    losses = [load(path).recipe.loss for path in RECIPES]
    assert {loss.mode for loss in losses} == set(get_args(LossMode))
    mirrored = {"skew_forward_kl"}  # the other direction of skew_reverse_kl
    assert {objective_name(loss) for loss in losses} == set(get_args(ObjectiveName)) - mirrored


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_of_each_family_trains_a_student(run, store, path):
    done, recipe = run(path)
    opened = Store(store)
    first = opened.path(done.parts["student_0000"])
    rows = lines(first / "metrics.jsonl") + lines(
        opened.path(done.parts["student_0001"]) / "metrics.jsonl"
    )
    assert len(rows) == 2
    for row in rows:
        assert math.isfinite(row["loss"])
        assert row["grad_norm"] > 0.0
        expected = DIAGNOSTICS[recipe.loss.mode]
        assert set(row["objective_diagnostics"]) - {"undecided"} == expected
        assert all(math.isfinite(value) for value in row["objective_diagnostics"].values())
        assert row["sampling_temperature"] == recipe.rollout.temperature
        assert row["loss_temperature"] == recipe.loss.temperature
        assert row["teacher_temperature"] == (recipe.loss.teacher_temperature or 1.0)
    canaries = json.loads((first / "canaries.json").read_text())
    assert canaries["loss"] != canaries["loss_with_another_teacher"]
    assert canaries["divergence_from_itself"] <= 1e-5
    assert canaries["gradient_norm"] > 0.0
    digests = {done.parts[name].digest for name in ("cold_start", "student_0000", "student_0001")}
    assert len(digests) == 3


def test_a_gated_run_trains_on_typed_blocks_of_qualified_episodes_alone(run, tmp_path):
    done, _ = run(Path("recipes/verifier_gated.yaml"), f"runtime.store={tmp_path}")
    opened = Store(tmp_path)
    episodes = lines(opened.path(done.parts["rollouts_0000"]) / "trajectories.jsonl")
    qualified = {
        row["trajectory_id"] for row in episodes if row["metadata"]["policy_gate_qualified"]
    }
    assert 0 < len(qualified) < len(episodes)
    targets = opened.path(done.parts["targets_0000"])
    found = json.loads((targets / "selection.json").read_text())
    assert found["gate_qualified_trajectories"] == len(qualified)
    assert found["selected_model_tokens"] == found["selected_critical_tokens"] > 0
    rows = lines(opened.path(done.parts["student_0000"]) / "token_analysis.jsonl")
    assert {row["trajectory_id"] for row in rows} <= qualified
    assert {row["span_type"] for row in rows} <= {"assistant_final", "assistant_tool_call"}


STOPPING = ("train.cycles=4", "train.stop_below_success=0.9", "train.stop_after_cycles=2")


def test_a_collapsed_run_is_evaluated_and_reported_and_ends(run, tmp_path):
    """C53: a student that solves nothing for two cycles ends a run of four; said in the files."""
    path = next(path for path in RECIPES if path.stem == "reverse_kl")
    store = f"runtime.store={tmp_path}"
    done, _ = run(path, store, *STOPPING)
    assert done.stopped is StopReason.SUCCESS_RATE
    assert [role for role in done.parts if role.startswith("student_")] == [
        "student_0000",
        "student_0001",
    ]
    opened = Store(tmp_path)
    assert opened.record(done.parts["evaluation_0003"]).name == "after-OPD"
    assert opened.record(done.student).metrics["stopped"] == "success_rate"
    seen = json.loads((opened.path(done.student) / "watch.json").read_text())
    assert (seen["cycles_below_success"], seen["stopped"]) == (2, "success_rate")
    page = json.loads((opened.path(done.report) / "report.json").read_text())
    assert page["watch"] == seen
    assert run(path, store, *STOPPING)[0] == done
    planned = plan_recipe(path, [store, *STOPPING])
    assert planned.count("hit") == len(planned.steps)


def test_bounds_that_hold_change_no_other_step(run, tmp_path):
    path = next(path for path in RECIPES if path.stem == "reverse_kl")
    store = f"runtime.store={tmp_path}"
    free, _ = run(path, store)
    bounded, _ = run(path, store, "train.stop_below_entropy=0.001")
    assert bounded.stopped is None
    opened = Store(tmp_path)
    digests = [
        json.loads((opened.path(done.student) / "state.json").read_text())["digest"]
        for done in (free, bounded)
    ]
    assert digests[0] == digests[1]
    assert (bounded.teacher, bounded.traces) == (free.teacher, free.traces)


def test_every_world_has_a_recipe():
    """The calculator's is recipes/toy.yaml."""
    worlds = {load(path).recipe.environment.name for path in WORLDS}
    assert worlds | {load("recipes/toy.yaml").recipe.environment.name} == set(BUILT_IN)
    assert [path.stem for path in WORLDS] == sorted(worlds)


@pytest.mark.parametrize("path", WORLDS, ids=lambda path: path.stem)
def test_a_recipe_of_each_world_samples_scores_and_trains(run, store, path):
    recipe = load(path).recipe
    done, _ = run(path, *TINY)
    opened = Store(store)
    traces = read_trajectories(opened.path(done.traces) / "trajectories.jsonl")
    longest = max(len(trace.token_ids) for trace in traces)
    assert longest <= recipe.rollout.max_total_tokens
    assert all(trace.solved for trace in traces)
    [row] = lines(opened.path(done.parts["student_0000"]) / "metrics.jsonl")
    assert math.isfinite(row["loss"])
    assert row["grad_norm"] > 0.0
    episodes = read_trajectories(opened.path(done.parts["rollouts_0000"]) / "trajectories.jsonl")
    assert {episode.task_id for episode in episodes} <= {trace.task_id for trace in traces}
    report = json.loads((opened.path(done.report) / "report.json").read_text())
    assert report["title"] == f"opd on {path.stem} {recipe.environment.difficulty}"


def test_chunks_of_equal_bytes_of_one_tokenizer_train_like_its_tokens(run, store):
    """The key allows another tokenizer; where there is none it changes rounding alone."""
    path = next(path for path in RECIPES if path.stem == "verl_policy_gradient")
    opened, rows = Store(store), []
    for changes in ((), ("loss.cross_tokenizer=true",)):
        done, _ = run(path, *changes)
        rows.append(lines(opened.path(done.parts["student_0000"]) / "metrics.jsonl")[0])
    found = json.loads((opened.path(done.parts["targets_0000"]) / "selection.json").read_text())
    assert 0 <= found["unaligned_bytes"] < found["model_bytes"]
    kept = rows[1]["selected_positions"] / rows[0]["selected_positions"]
    assert 0.3 < kept <= 1.0  # a student of four steps writes bytes that are no text
    assert math.isfinite(rows[1]["loss"])
    if found["unaligned_bytes"] == 0:
        assert rows[1]["loss"] == pytest.approx(rows[0]["loss"], rel=1e-3)


def test_a_teacher_with_another_tokenizer_is_compared_where_both_stand_at_one_byte(run, store):
    path = next(path for path in RECIPES if path.stem == "cross_tokenizer")
    opened, (done, _) = Store(store), run(path)
    found = json.loads((opened.path(done.parts["targets_0000"]) / "selection.json").read_text())
    row = lines(opened.path(done.parts["student_0000"]) / "metrics.jsonl")[0]
    assert 0 < found["unaligned_bytes"] < found["model_bytes"]
    assert (
        0
        < found["unaligned_positions"]
        == (found["selected_model_tokens"] - row["selected_positions"])
    )
    assert 0 < found["shared_tokens"] < found["student_vocabulary"]
    assert found["student_vocabulary"] != found["teacher_vocabulary"]
    masses = row["objective_diagnostics"]
    assert all(0.0 < masses[f"{side}_mass"] < 1.0 for side in ("student", "teacher"))


def test_the_same_teacher_gives_sums_over_texts_too(run, store):
    path = next(path for path in RECIPES if path.stem == "cross_tokenizer")
    changes = ("loss.mode=verl_pg_k1", "loss.aggregation=token-mean")
    done, _ = run(path, *changes)
    row = lines(Store(store).path(done.parts["student_0000"]) / "metrics.jsonl")[0]
    assert math.isfinite(row["loss"])
    assert row["grad_norm"] > 0.0


def test_recipes_of_all_families_share_everything_before_the_first_scoring(run):
    steps = [num_steps(load(path).recipe) for path in RECIPES]
    done = [run(path)[0] for path in RECIPES]
    assert len({ref.key for each in done for ref in (each.tasks, each.held_out)}) == 2
    assert len({each.teacher.key for each in done}) == 2  # one reads another tokenizer
    aggregations = {load(path).recipe.loss.aggregation for path in RECIPES}
    cold = {each.parts["cold_start"].key for each in done}
    assert len(cold) == len(aggregations) == 2  # it averages as the loss does
    assert set(steps) == {16, 17}  # its teacher is fitted on the traces in its own tokens


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (
            ["train.cycles=3", "train.eval_every_cycles=1"],
            [
                "before-cold-start",
                "after-cold-start",
                "after-cycle-1",
                "after-cycle-2",
                "after-OPD",
            ],
        ),
        (["run.mode=sft", "cold_start=null"], ["before-training", "after-SFT"]),
    ],
)
def test_evaluations_are_called_what_the_report_calls_them(changes, names):
    called = []

    def note(step, spec, *, name, **parents):
        if step.name == "evaluate_student":
            called.append(name)

    run_graph(load("recipes/toy.yaml", changes).recipe, note)
    assert called == names

"""The flow ``compare-teacher``: is it worth distilling from this teacher into this student?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from core.artifacts.codec import read_json
from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.errors import InputError
from core.evaluation.preflight import Comparison, Preflight, Success, judge
from core.recipe import model_steps, steps, teacher_steps
from core.recipe.loading import load
from core.recipe.recipe import Recipe
from core.recipe.sources import split_size
from core.trajectory.io import read_trajectories
from core.trajectory.trajectory import Trajectory
from flows.graphs.refs import Call, Ref, RunRefs
from flows.graphs.run import prepare_teacher_and_tasks
from flows.opd_cycle import DEFAULT_RECIPE, StepCaller
from flows.runs.comparison_lines import comparison_lines
from flows.runs.sources import locate, open_plugins
from tasks.adopt_student import adopt_student
from tasks.caching import open_store
from tasks.cold_start import cold_start
from tasks.compare_teacher import compare_teacher as compare
from tasks.continue_episodes import continue_episodes
from tasks.evaluate_student import evaluate_student
from tasks.initialize_student import initialize_student
from tasks.qualify_teacher import qualify_teacher
from tasks.sample_rollouts import sample_rollouts

STEPS = 11
"""Two splits, traces, teacher, student, cold start, episodes, and four that measure."""
EPISODES, TASKS = 8, 16
"""Sampled episodes and held-out tasks where the caller names no other: minutes, not hours."""


@flow(name="compare-teacher", flow_run_name="{recipe_path}")
def compare_teacher(
    recipe_path: str = DEFAULT_RECIPE,
    overrides: list[str] | None = None,
    episodes: int = EPISODES,
    tasks: int = TASKS,
) -> dict[str, Any]:
    """Hold the teacher of a recipe against its student as it stands before the first cycle.

    Args:
        recipe_path: A YAML file, relative to the directory of the deployment.
        overrides: ``key=value`` changes to that file.
        episodes: Episodes of the student whose states are looked at.
        tasks: Held-out tasks that both solve.

    Returns:
        What was measured, the verdict, and the keys of the artifacts behind it.
    """
    loaded = load(Path(recipe_path), overrides or [])
    open_plugins(loaded.recipe, loaded.runtime)
    recipe, runtime = locate(loaded.recipe, loaded.runtime)
    if recipe.models.teacher.plugin is not None:
        raise InputError(
            "models.teacher.plugin is code that gives targets, and cannot act by itself",
            "Compare with a model.",
        )
    caller = StepCaller(runtime, total=STEPS)
    parts = walk(shortened(recipe, tasks), caller, episodes)
    caller.finish()
    found = gather(open_store(runtime.store), parts, cross_tokenizer=recipe.loss.cross_tokenizer)
    document = {
        **found.model_dump(mode="json"),
        "verdict": judge(found).model_dump(mode="json"),
        "artifacts": {role: ref.key for role, ref in parts.items()},
    }
    shown = "\n".join(["```", *comparison_lines(document), "```"])
    create_markdown_artifact(shown, key="opd-comparison", description="Teacher against student")
    return document


def shortened(recipe: Recipe, tasks: int) -> Recipe:
    """Return a recipe whose evaluation is greedy, of each task once, and of few tasks."""
    evaluation = recipe.eval
    size = split_size(recipe, evaluation.split)
    few = tasks if size is None else min(tasks, size - evaluation.task_offset)
    changes = {"enabled": True, "tasks": few, "temperature": 0.0, "samples_per_task": 1}
    teacher = recipe.models.teacher.model_copy(update={"qualification": None})
    return recipe.model_copy(
        update={
            "eval": evaluation.model_copy(update=changes),
            "models": recipe.models.model_copy(update={"teacher": teacher}),
        }
    )


def walk(recipe: Recipe, call: Call, episodes: int) -> dict[str, Ref]:
    """Run the steps of a comparison; those that a run has too are shared with it."""
    run, seed = RunRefs(), f"seed-{recipe.run.seed}"
    prepare_teacher_and_tasks(recipe, call, run)
    adopted = model_steps.adoption_spec(recipe)
    if adopted is not None:
        student = call(adopt_student, adopted, name=seed)
    else:
        student = call(initialize_student, model_steps.student_spec(recipe), name=seed)
    cold = steps.cold_start_spec(recipe)
    if cold is not None:
        student = call(cold_start, cold, name=seed, student=student, traces=run.traces)
    rollout = steps.rollout_spec(recipe, 0)
    few = rollout.model_copy(update={"rollouts": min(episodes, rollout.rollouts)})
    sampled = call(sample_rollouts, few, name="preflight", student=student, tasks=run.tasks)
    seen = {"teacher": run.teacher, "rollouts": sampled}
    return _measure(recipe, call, run, student, seen)


def _measure(
    recipe: Recipe, call: Call, run: RunRefs, student: Ref, seen: dict[str, Ref]
) -> dict[str, Ref]:
    """Run the four steps that measure, by role."""
    comparison, name = teacher_steps.comparison_spec(recipe), "preflight"
    hints = {"tasks": run.tasks} if comparison.environment is not None else {}
    evaluation = steps.evaluation_spec(recipe)
    assert evaluation is not None, "it was switched on"
    qualification = teacher_steps.qualification_spec(recipe)
    continuation = teacher_steps.continuation_spec(recipe)
    held_out = {"tasks": run.held_out}
    return {
        "comparison": call(compare, comparison, name=name, student=student, **seen, **hints),
        "student": call(evaluate_student, evaluation, name=name, student=student, **held_out),
        "teacher": call(qualify_teacher, qualification, name=name, **held_out, teacher=run.teacher),
        "continuations": call(continue_episodes, continuation, name=name, **seen, tasks=run.tasks),
    }


def gather(store: Store, parts: Mapping[str, ArtifactRef], *, cross_tokenizer: bool) -> Preflight:
    """Read what the steps of a comparison found.

    Args:
        store: Holds their artifacts.
        parts: By role, as ``walk`` returns them.
        cross_tokenizer: Whether the objective compares models of different tokenizers.
    """
    rows = read_json(store.path(parts["student"]) / "eval.json")["outcomes"]
    student = {row["task_id"]: row["solved"] for row in rows}
    teacher = {one.task_id: one.solved for one in _episodes(store, parts["teacher"])}
    continued = [one.solved for one in _episodes(store, parts["continuations"])]
    failed = [solved for task, solved in teacher.items() if not student[task]]
    comparison = read_json(store.path(parts["comparison"]) / "comparison.json")
    return Preflight(
        comparison=Comparison.model_validate(comparison),
        student=Success.of(student.values()),
        teacher=Success.of(teacher.values()),
        student_fails=Success.of(failed),
        continued=Success.of(continued),
        cross_tokenizer=cross_tokenizer,
    )


def _episodes(store: Store, ref: ArtifactRef) -> list[Trajectory]:
    rows = read_trajectories(store.path(ref) / "trajectories.jsonl")
    return [one for one in rows if one.is_whole]

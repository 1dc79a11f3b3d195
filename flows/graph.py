"""The graph of one run, as plain calls. Running and planning differ only in what ``call`` does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.environments.base import Split
from core.models.adapter_directory import Evidence
from core.recipe import model_steps, sources, steps, teacher_steps
from core.recipe.recipe import Recipe
from core.recipe.schedule import num_cycles
from core.report.assembly import stage_name
from core.training.budget import read_spent
from core.training.collapse import read_watch
from core.training.stopping import StopReason
from tasks.adopt_qualification import adopt_qualification
from tasks.caching import Step
from tasks.cold_start import cold_start
from tasks.collect_oracle_traces import collect_oracle_traces
from tasks.evaluate_student import evaluate_student
from tasks.initialize_student import initialize_student
from tasks.prepare_prompts import prepare_prompts
from tasks.prepare_splits import prepare_splits
from tasks.prepare_teacher import prepare_teacher
from tasks.qualify_teacher import qualify_teacher
from tasks.sample_rollouts import sample_rollouts
from tasks.score_rollouts import score_rollouts
from tasks.update_student import update_student
from tasks.write_report import write_report

Ref = Any
"""An ``ArtifactRef`` where steps run; while planning, also a step whose bytes are not known."""


class Call(Protocol):
    """Run one step, or say what running it would do."""

    def __call__(self, step: Step, spec: BaseModel, *, name: str, **parents: Ref) -> Ref:
        """Return the step's artifact."""
        ...


@dataclass
class RunRefs:
    """What a run leaves behind."""

    tasks: Ref = None
    """The train split."""
    held_out: Ref = None
    """The split that is evaluated."""
    traces: Ref = None
    teacher: Ref = None
    student: Ref = None
    """The newest state."""
    parts: dict[str, Ref] = field(default_factory=dict)
    """Parents of the report, by role: ``evaluation_…``, ``rollouts_…``, ``qualification``, …"""
    report: Ref = None
    stopped: StopReason | None = None
    """Why it ended before its last cycle, or inside a supervised run."""


def nobody_judges(qualification: Ref) -> None:
    """Let any teacher teach."""
    del qualification


@dataclass(frozen=True)
class Gate:
    """What stands between a teacher and the students, where the recipe asks for a gate."""

    evidence: Evidence | None = None
    """Rates in the manifest of the teacher's adapter that answer for it; null: it is measured."""
    judge: Callable[[Ref], None] = nobody_judges
    """Refuses a qualification."""


def never_stopped(student: Ref) -> StopReason | None:
    """Say that a run goes on."""
    del student
    return None


def run_graph(
    recipe: Recipe,
    call: Call,
    stopped: Callable[[Ref], StopReason | None] = never_stopped,
    gate: Gate = Gate(),
) -> RunRefs:
    """Walk one run: splits, traces, teacher and its gate, cold start, cycles, evaluations, report.

    Args:
        recipe: What to compute.
        call: Runs or plans one step.
        stopped: Says of a student after a cycle whether the run ends with it.
        gate: What is known of the teacher, and who judges it.
    """
    run = RunRefs()
    prepare_teacher_and_tasks(recipe, call, run)
    _pass_gate(recipe, call, run, gate)
    _start(recipe, call, run, stopped)
    for cycle in range(num_cycles(recipe)):
        _cycle(recipe, call, run, cycle, stopped)
        if run.stopped is not None:
            break
    report = steps.report_spec(recipe)
    if report is not None:
        run.report = call(write_report, report, name=recipe.run.mode, **run.parts)
    return run


def num_steps(recipe: Recipe) -> int:
    """Return how many steps ``run_graph`` calls."""
    count = 0

    def tally(step: Step, spec: BaseModel, *, name: str, **parents: Ref) -> None:
        nonlocal count
        count += 1

    run_graph(recipe, tally)
    return count


def prepare_teacher_and_tasks(recipe: Recipe, call: Call, run: RunRefs) -> None:
    """Walk what comes before any student: splits, the oracle's traces, the teacher."""
    world = sources.world_name(recipe)
    run.tasks = run.held_out = _split(recipe, call, "train")
    if _holds_out(recipe):
        run.held_out = _split(recipe, call, recipe.eval.split, train=run.tasks)
    if sources.has_demonstrations(recipe):
        spec = steps.traces_spec(recipe)
        run.traces = call(collect_oracle_traces, spec, name=world, tasks=run.tasks)
    teacher = model_steps.teacher_spec(recipe)
    fitted = _teacher_traces(recipe, call, run) if teacher.fit is not None else {}
    name = recipe.models.backend if teacher.plugin is None else teacher.plugin.name
    run.teacher = call(prepare_teacher, teacher, name=name, **fitted)


def _holds_out(recipe: Recipe) -> bool:
    """Return whether the tasks that are evaluated have a split of their own."""
    return recipe.eval.split != "train" and (recipe.eval.enabled or bool(recipe.environment))


def _pass_gate(recipe: Recipe, call: Call, run: RunRefs, gate: Gate) -> None:
    """Walk what a teacher must show before there is a student, and have it judged."""
    teacher = recipe.models.teacher
    if teacher.qualification is None:
        return
    if gate.evidence is not None:
        shown = teacher_steps.evidence_spec(recipe, gate.evidence.model_dump(mode="json"))
        done = call(adopt_qualification, shown, name="manifest")
    else:
        done = call(
            qualify_teacher,
            teacher_steps.qualification_spec(recipe),
            name=teacher.mode,
            teacher=run.teacher,
            tasks=qualification_tasks(recipe, call, run),
        )
    run.parts["qualification"] = done
    gate.judge(done)


def qualification_tasks(recipe: Recipe, call: Call, run: RunRefs) -> Ref:
    """Return the split that a teacher is measured on, walking it where the run has it not yet."""
    split = teacher_steps.qualification_split(recipe)
    if split == "train":
        return run.tasks
    if split == recipe.eval.split and _holds_out(recipe):
        return run.held_out
    return _split(recipe, call, split, train=run.tasks)


def _split(recipe: Recipe, call: Call, split: Split, train: Ref = None) -> Ref:
    """Return the tasks of one split: a world's own, or those of files, apart from ``train``."""
    name = f"{sources.world_name(recipe)}-{split}"
    source = sources.prompt_source(recipe)
    if source is None:
        return call(prepare_splits, steps.split_spec(recipe, split), name=name)
    tokenizer = model_steps.tokenizer_spec(recipe, recipe.models.student)
    template = recipe.rollout.own_template
    spec = sources.prompt_split_spec(source, split, tokenizer, template)
    return call(prepare_prompts, spec, name=name, **({"train": train} if train else {}))


def _teacher_traces(recipe: Recipe, call: Call, run: RunRefs) -> dict[str, Ref]:
    """Return what a toy teacher is fitted on: the student's traces, or its own tokens' ones."""
    spec = steps.traces_spec(recipe, recipe.models.teacher)
    if spec == steps.traces_spec(recipe):
        return {"traces": run.traces}
    name = f"{sources.world_name(recipe)}-teacher"
    return {"traces": call(collect_oracle_traces, spec, name=name, tasks=run.tasks)}


def _start(
    recipe: Recipe, call: Call, run: RunRefs, stopped: Callable[[Ref], StopReason | None]
) -> None:
    seed = f"seed-{recipe.run.seed}"
    run.student = call(initialize_student, model_steps.student_spec(recipe), name=seed)
    if recipe.eval.baseline_enabled:
        _evaluate(recipe, call, run, -1)
    cold = steps.cold_start_spec(recipe)
    if cold is not None:
        run.student = call(cold_start, cold, name=seed, student=run.student, traces=run.traces)
        run.parts["cold_start"] = run.student
        if num_cycles(recipe) == 0:
            run.stopped = stopped(run.student)
        if recipe.eval.baseline_enabled or num_cycles(recipe) == 0:
            _evaluate(recipe, call, run, 0)


def stop_reason(student: Ref, store: Store) -> StopReason | None:
    """Return why a run ends with a student, or None where it goes on or the student is not there.

    Raises:
        StoreError: What the artifact says about it is damaged.
    """
    if not isinstance(student, ArtifactRef):
        return None
    directory = store.path(student)
    collapsed = read_watch(directory).stopped
    spent = read_spent(directory)
    return collapsed or (spent.stopped if spent is not None else None)


def _cycle(
    recipe: Recipe,
    call: Call,
    run: RunRefs,
    cycle: int,
    stopped: Callable[[Ref], StopReason | None],
) -> None:
    name = f"cycle-{cycle + 1:03d}"
    rollouts = call(
        sample_rollouts,
        steps.rollout_spec(recipe, cycle),
        name=name,
        student=run.student,
        tasks=run.tasks,
    )
    score = steps.score_spec(recipe)
    hints = {"tasks": run.tasks} if score.teacher_mode == "privileged_context" else {}
    targets = call(
        score_rollouts, score, name=name, rollouts=rollouts, teacher=run.teacher, **hints
    )
    run.student = call(
        update_student,
        steps.update_spec(recipe, cycle),
        name=name,
        student=run.student,
        rollouts=rollouts,
        targets=targets,
        teacher=run.teacher,
    )
    run.parts |= {
        f"rollouts_{cycle:04d}": rollouts,
        f"targets_{cycle:04d}": targets,
        f"student_{cycle:04d}": run.student,
    }
    done, every = cycle + 1, recipe.train.eval_every_cycles
    if done < num_cycles(recipe):
        run.stopped = stopped(run.student)
    is_last = done == num_cycles(recipe) or run.stopped is not None
    if is_last or (every and done % every == 0):
        _evaluate(recipe, call, run, done, done if is_last else num_cycles(recipe))


def _evaluate(recipe: Recipe, call: Call, run: RunRefs, done: int, last: int | None = None) -> None:
    spec = steps.evaluation_spec(recipe)
    if spec is not None:
        stage = stage_name(done, num_cycles(recipe) if last is None else last, recipe.run.mode)
        run.parts[f"evaluation_{done + 1:04d}"] = call(
            evaluate_student,
            spec,
            name=stage.replace(" ", "-"),
            student=run.student,
            tasks=run.held_out,
        )

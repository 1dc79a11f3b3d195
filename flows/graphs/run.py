"""The graph of one run, as plain calls. Running and planning differ only in what ``call`` does."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from core.artifacts.record import ArtifactRef
from core.artifacts.store import Store
from core.environments.base import Split
from core.models.adapter_directory import Evidence
from core.recipe import model_steps, sources, steps, teacher_steps
from core.recipe.offline import adopted_dataset_spec, is_persisted
from core.recipe.recipe import Recipe
from core.recipe.schedule import num_cycles
from core.training.budget import read_spent
from core.training.collapse import read_watch
from core.training.stopping import StopReason
from flows.graphs.refs import Call, Ref, RunRefs
from flows.graphs.student import continue_supervised, cycle, start
from tasks.adopt_dataset import adopt_dataset
from tasks.adopt_qualification import adopt_qualification
from tasks.caching import Step
from tasks.collect_oracle_traces import collect_oracle_traces
from tasks.prepare_prompts import prepare_prompts
from tasks.prepare_splits import prepare_splits
from tasks.prepare_teacher import prepare_teacher
from tasks.qualify_teacher import qualify_teacher
from tasks.write_report import write_report


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
    run: RunRefs | None = None,
    cold: Recipe | None = None,
) -> RunRefs:
    """Walk one run: splits, traces, teacher and its gate, cold start, cycles, evaluations, report.

    Args:
        recipe: What to compute.
        call: Runs or plans one step.
        stopped: Says of a student after a cycle whether the run ends with it.
        gate: What is known of the teacher, and who judges it.
        run: Filled as the run goes on, for a caller who wants to know how far it came.
        cold: Recipe whose cold start it begins from; None for its own.
    """
    run = prepare_run(recipe, call, gate, run)
    start(recipe, call, run, stopped, cold)
    continue_supervised(recipe, call, run, stopped)
    for number in range(num_cycles(recipe)):
        cycle(recipe, call, run, number, stopped)
        if run.stopped is not None:
            break
    report = steps.report_spec(recipe)
    if report is not None:
        run.report = call(write_report, report, name=recipe.run.mode, **run.parts)
    return run


def prepare_run(recipe: Recipe, call: Call, gate: Gate, run: RunRefs | None = None) -> RunRefs:
    """Walk what comes before any student, and have the teacher judged."""
    run = RunRefs() if run is None else run
    _prepare_tasks(recipe, call, run)
    if is_persisted(recipe) and num_cycles(recipe) > 0:
        # Before the teacher: what does not fit is refused before any model is opened.
        spec = adopted_dataset_spec(recipe)
        run.dataset = call(adopt_dataset, spec, name="persisted", tasks=run.tasks)
        run.parts["dataset"] = run.dataset
    _prepare_teacher(recipe, call, run)
    _pass_gate(recipe, call, run, gate)
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
    _prepare_tasks(recipe, call, run)
    _prepare_teacher(recipe, call, run)


def _prepare_tasks(recipe: Recipe, call: Call, run: RunRefs) -> None:
    """Walk the splits and the oracle's traces."""
    world = sources.world_name(recipe)
    run.tasks = run.held_out = _split(recipe, call, "train")
    if _holds_out(recipe):
        run.held_out = _split(recipe, call, recipe.eval.split, train=run.tasks)
    if sources.has_demonstrations(recipe):
        spec = steps.traces_spec(recipe)
        run.traces = call(collect_oracle_traces, spec, name=world, tasks=run.tasks)


def _prepare_teacher(recipe: Recipe, call: Call, run: RunRefs) -> None:
    """Walk the teacher, which may be fitted on traces."""
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

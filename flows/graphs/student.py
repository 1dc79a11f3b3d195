"""The part of a run's graph that makes students: cold start, cycles, evaluations."""

from collections.abc import Callable

from core.recipe import model_steps, steps
from core.recipe.objective import run_kind
from core.recipe.offline import dataset_spec, is_persisted
from core.recipe.recipe import Recipe
from core.recipe.schedule import num_cycles
from core.runs.stages import stage_name
from core.training.stopping import StopReason
from flows.graphs.refs import Call, Ref, RunRefs
from tasks.adopt_student import adopt_student
from tasks.cold_start import cold_start
from tasks.evaluate_student import evaluate_student
from tasks.freeze_dataset import freeze_dataset
from tasks.initialize_student import initialize_student
from tasks.sample_rollouts import sample_rollouts
from tasks.score_rollouts import score_rollouts
from tasks.update_student import update_student


def start(
    recipe: Recipe,
    call: Call,
    run: RunRefs,
    stopped: Callable[[Ref], StopReason | None],
    cold_recipe: Recipe | None = None,
) -> None:
    """Walk from the untrained student to the one that every arm of a seed starts from.

    Args:
        recipe: What is computed.
        call: Runs or plans one step.
        run: Has tasks, traces and teacher already.
        stopped: Says of a student whether the run ends with it.
        cold_recipe: Recipe whose cold start it is; None for the same.
    """
    seed = f"seed-{recipe.run.seed}"
    adopted = model_steps.adoption_spec(recipe)
    if adopted is not None:
        run.student = call(adopt_student, adopted, name=seed)
    else:
        run.student = call(initialize_student, model_steps.student_spec(recipe), name=seed)
    if recipe.eval.baseline_enabled:
        _evaluate(recipe, call, run, -1)
    cold = steps.cold_start_spec(cold_recipe or recipe)
    if cold is not None:
        run.student = call(cold_start, cold, name=seed, student=run.student, traces=run.traces)
        run.parts["cold_start"] = run.student
        goes_on = num_cycles(recipe) > 0 or steps.continued_spec(recipe) is not None
        if not goes_on:
            run.stopped = stopped(run.student)
        if recipe.eval.baseline_enabled or not goes_on:
            _evaluate(recipe, call, run, 0)
    collects = recipe.run.mode == "offline_kd" and not is_persisted(recipe)
    if collects and num_cycles(recipe) > 0:
        _freeze(recipe, call, run)


def _freeze(recipe: Recipe, call: Call, run: RunRefs) -> None:
    """Collect and score the episodes that every cycle of offline distillation replays."""
    spec = dataset_spec(recipe)
    of_oracle = spec.source == "oracle"
    origin = {"traces": run.traces} if of_oracle else {"student": run.student}
    name = f"{spec.source.replace('_', '-')}-seed-{recipe.run.seed}"
    run.dataset = call(
        freeze_dataset, spec, name=name, teacher=run.teacher, tasks=run.tasks, **origin
    )
    run.parts["dataset"] = run.dataset


def continue_supervised(
    recipe: Recipe, call: Call, run: RunRefs, stopped: Callable[[Ref], StopReason | None]
) -> None:
    """Walk the supervised cycles after a cold start of its own, which are one step."""
    spec = steps.continued_spec(recipe)
    if spec is not None:
        name = f"sft-{spec.cycles:03d}"
        run.student = call(cold_start, spec, name=name, student=run.student, traces=run.traces)
        run.parts["student_0000"] = run.student
        run.stopped = stopped(run.student)
        _evaluate(recipe, call, run, 1, 1)


def cycle(
    recipe: Recipe,
    call: Call,
    run: RunRefs,
    number: int,
    stopped: Callable[[Ref], StopReason | None],
) -> None:
    """Walk one cycle (0, 1, …): episodes, targets, update, and an evaluation where one is due."""
    name = f"cycle-{number + 1:03d}"
    if recipe.run.mode == "offline_kd":
        rollouts = targets = run.dataset
    else:
        rollouts, targets = _experience(recipe, call, run, number)
        run.parts |= {f"rollouts_{number:04d}": rollouts, f"targets_{number:04d}": targets}
    run.student = call(
        update_student,
        steps.update_spec(recipe, number),
        name=name,
        student=run.student,
        rollouts=rollouts,
        targets=targets,
        teacher=run.teacher,
    )
    run.parts[f"student_{number:04d}"] = run.student
    done, every = number + 1, recipe.train.eval_every_cycles
    if done < num_cycles(recipe):
        run.stopped = stopped(run.student)
    is_last = done == num_cycles(recipe) or run.stopped is not None
    if is_last or (every and done % every == 0):
        _evaluate(recipe, call, run, done, done if is_last else num_cycles(recipe))


def _experience(recipe: Recipe, call: Call, run: RunRefs, cycle: int) -> tuple[Ref, Ref]:
    """Sample a cycle's episodes with the newest student and let the teacher score them."""
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
    return rollouts, targets


def _evaluate(recipe: Recipe, call: Call, run: RunRefs, done: int, last: int | None = None) -> None:
    spec = steps.evaluation_spec(recipe)
    if spec is not None:
        if last is None:
            last = int(steps.continued_spec(recipe) is not None) or num_cycles(recipe)
        stage = stage_name(done, last, run_kind(recipe))
        run.parts[f"evaluation_{done + 1:04d}"] = call(
            evaluate_student,
            spec,
            name=stage.replace(" ", "-"),
            student=run.student,
            tasks=run.held_out,
        )

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.errors import InputError, NumericsError
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.runtime import Runtime
from core.recipe.specs import SelectionSpec, ToyFitSpec
from core.recipe.training_specs import BudgetSpec, OptimizerSpec, ScheduleSpec
from core.rollout.oracle import oracle_trajectory
from core.training.budget import Meter
from core.training.state import StudentState, load_state
from core.training.supervised import (
    SupervisedPlan,
    examples_of,
    fit,
    groups,
    task_order,
    toy_fit_plan,
    weights_only,
)

ADAMW = OptimizerSpec(
    name="adamw", weight_decay=0.0, betas=(0.9, 0.95), eps=1e-8, max_grad_norm=1.0
)
PLAN = SupervisedPlan(
    cycles=6,
    rollouts_per_cycle=5,
    group_size=3,
    order_seed=11,
    optimizer=ADAMW,
    schedule=ScheduleSpec(base=5e-3, kind="cosine", warmup_steps=2, total_steps=12, first_step=0),
    aggregation="native_per_trajectory",
)
CRITICAL = SelectionSpec(
    selector="tool_and_final",
    ratio=0.35,
    max_positions_per_trajectory=None,
    critical_weight=3.0,
    other_weight=1.0,
)
RUNTIME = Runtime(trajectory_batch_size=3)


@pytest.fixture(scope="module")
def traces():
    world = make_environment("calculator", prompt_style="compact")
    tasks = make_splits(world, {"train": 12, "eval": 0, "test": 0}, 7, "easy")["train"]
    return [oracle_trajectory(world, task, ToyTokenizer()) for task in tasks]


# ---------------------------------------------------------------- golden


@pytest.mark.parametrize(
    ("seed", "count", "expected"),
    [
        (11, 12, [5, 10, 1, 3, 4, 8, 7, 0, 11, 6, 2, 9]),
        (0, 10, [0, 1, 8, 9, 5, 7, 4, 3, 6, 2]),
        (20260727, 8, [1, 7, 5, 2, 0, 4, 3, 6]),
    ],
)
def test_the_task_order_is_that_of_the_seeds(seed, count, expected):
    assert list(itertools.islice(task_order(count, seed), count)) == expected
    again = itertools.islice(task_order(count, seed, cursor=count + 2), 3)
    assert list(again) == expected[2:5]


def test_few_demonstrations_are_the_first_of_the_order():
    found = list(itertools.islice(task_order(12, 11, 0, 3), 7))
    assert found == [5, 10, 1, 5, 10, 1, 5]


def test_a_cycle_is_cut_into_groups():
    found = list(groups(task_order(12, 11), replace(PLAN, cycles=2)))
    assert found == [(0, [5, 10, 1]), (0, [3, 4]), (1, [8, 7, 0]), (1, [11, 6])]


def test_a_toy_teacher_warms_up_for_a_twentieth():
    spec = ToyFitSpec(seed=99, steps=400, learning_rate=3e-3, batch_size=8, betas=(0.9, 0.95))
    plan = toy_fit_plan(spec)
    assert (plan.schedule.warmup_steps, plan.schedule.total_steps) == (20, 400)
    assert (plan.schedule.kind, plan.optimizer.max_grad_norm) == ("cosine", 1.0)
    assert (plan.group_size, plan.order_seed) == (8, 99)


def test_every_token_of_the_oracle_is_trained_with_weight_one(traces):
    (example,) = examples_of(traces[:1])
    positions = traces[0].target_positions()
    assert example.prediction_positions == [j - 1 for j in positions]
    assert example.target_ids == [traces[0].token_ids[j] for j in positions]
    assert example.weights == [1.0] * len(positions)


def test_a_selection_weighs_the_oracle_s_tokens(traces):
    (example,) = examples_of(traces[:1], CRITICAL, 0)
    assert set(example.weights) == {3.0}
    assert set(example.span_types) == {"assistant_tool_call", "assistant_final"}


def test_a_group_without_a_weighted_position_takes_no_step(
    small_toy, traces, state_of, write_episode
):
    """With no gradient the optimizer's memory would still move the weights, at a loss of 0."""
    empty = examples_of([write_episode([("system", 3), ("user", 4)])])
    backend = small_toy(1)
    plan = replace(PLAN, cycles=1, rollouts_per_cycle=6, group_size=1)
    done = fit(backend, state_of(backend), [*examples_of(traces[:2]), *empty], plan, RUNTIME)
    assert len(done.rows) == 4
    assert min(row["selected_positions"] for row in done.rows) > 0
    assert done.state.counters.parameter_version == 4


# ---------------------------------------------------------------- properties


@given(st.integers(1, 40), st.integers(0, 99), st.integers(0, 99))
def test_every_task_comes_up_once_per_pass(count, seed, cursor):
    found = itertools.islice(task_order(count, seed, cursor), count)
    assert sorted(found) == list(range(count))


@pytest.mark.parametrize("demonstrations", [None, 2])
def test_the_branches_of_a_demonstration_are_drawn_together(
    small_toy, traces, state_of, demonstrations
):
    """C23: a trace whose history was rewritten is several trajectories, and one demonstration."""
    place = {"parent_id": "t", "branches": 3}
    branches = [
        trace.model_copy(update={**place, "branch_index": index})
        for trace in traces[:4]
        for index in range(3)
    ]
    plan = replace(PLAN, cycles=1, rollouts_per_cycle=4, group_size=2)
    plan = replace(plan, demonstrations=demonstrations)
    backend = small_toy(1)
    done = fit(backend, state_of(backend), examples_of(branches), plan, RUNTIME)
    assert [row["trajectories_in_step"] for row in done.rows] == [6, 6]
    assert done.state.counters.task_cursor == 4


def test_training_lowers_the_loss_and_counts_what_it_did(small_toy, traces, state_of):
    backend = small_toy(1)
    start = state_of(backend)
    done = fit(backend, start, examples_of(traces), PLAN, RUNTIME)
    assert done.rows[-1]["loss"] < 0.8 * done.rows[0]["loss"]
    assert [row["step"] for row in done.rows] == list(range(12))
    assert done.rows[0]["oracle_ce_loss"] == done.rows[0]["loss"]
    counters = done.state.counters
    assert (counters.parameter_version, counters.optimizer_step) == (12, 12)
    assert (counters.task_cursor, counters.cycle) == (30, 6)


def test_training_again_gives_the_same_bits(small_toy, traces, state_of):
    examples = examples_of(traces)
    runs = [fit(b := small_toy(1), state_of(b), examples, PLAN, RUNTIME) for _ in range(2)]
    assert runs[0].state.digest() == runs[1].state.digest()
    assert runs[0].rows == runs[1].rows


def test_what_goes_in_is_not_changed(small_toy, traces, state_of):
    backend = small_toy(1)
    start = state_of(backend)
    before = start.digest()
    fit(backend, start, examples_of(traces), PLAN, RUNTIME)
    assert start.digest() == before


def test_physical_batches_change_rounding_alone(small_toy, traces, state_of):
    examples = examples_of(traces)
    plan = replace(PLAN, cycles=2)
    single, padded = (
        fit(b := small_toy(1), state_of(b), examples, plan, Runtime(trajectory_batch_size=rows))
        for rows in (1, 4)
    )
    for name, tensor in single.state.tensors.items():
        torch.testing.assert_close(tensor, padded.state.tensors[name], atol=2e-5, rtol=1e-4)


def test_a_saved_state_continues_bit_by_bit(small_toy, traces, state_of, tmp_path):
    examples = examples_of(traces)
    backend = small_toy(1)
    whole = fit(backend, state_of(backend), examples, PLAN, RUNTIME)

    first_half = replace(PLAN, cycles=3)
    backend = small_toy(1)
    fit(backend, state_of(backend), examples, first_half, RUNTIME).state.save(tmp_path)
    rest = replace(first_half, schedule=PLAN.schedule.model_copy(update={"first_step": 6}))
    resumed = fit(small_toy(2), load_state(tmp_path), examples, rest, RUNTIME)
    assert resumed.state.digest() == whole.state.digest()
    assert resumed.state.counters == whole.state.counters
    assert resumed.rows == [{**row, "cycle": row["cycle"] - 3} for row in whole.rows[6:]]


def test_a_budget_ends_a_fit_inside_a_cycle_at_its_last_position(small_toy, traces, state_of):
    student, examples = small_toy(1), examples_of(traces)
    whole = fit(student, state_of(student), examples, PLAN, RUNTIME)
    limit = sum(row["selected_positions"] for row in whole.rows[:3]) - 1
    meter = Meter(BudgetSpec(axis="selected_training_tokens", limit=limit))
    done = fit(student, state_of(small_toy(1)), examples, PLAN, RUNTIME, meter)
    assert done.rows[:2] == whole.rows[:2]
    assert sum(row["selected_positions"] for row in done.rows) == limit
    assert (done.state.counters.task_cursor, done.state.counters.cycle) == (8, 1)
    assert meter.reading().overshoot == 0


def test_weights_only_forgets_the_optimizer_and_the_order(small_toy, traces, state_of):
    backend = small_toy(1)
    done = fit(backend, state_of(backend), examples_of(traces), PLAN, RUNTIME)
    handed = weights_only(done.state)
    assert handed.digest() == done.state.digest()
    assert handed.moments.step == 0
    assert (handed.counters.optimizer_step, handed.counters.task_cursor) == (0, 0)
    assert handed.counters.parameter_version == 12


# ---------------------------------------------------------------- refusals


def test_no_traces_are_refused(small_toy, state_of):
    backend = small_toy(1)
    with pytest.raises(InputError, match="none of 0 oracle traces"):
        fit(backend, state_of(backend), [], PLAN, RUNTIME)


def test_traces_without_a_token_of_the_student_are_refused(small_toy, state_of, write_episode):
    """C15: rows of prompts alone would train to a loss of exactly zero in silence."""
    backend = small_toy(1)
    prompts = examples_of([write_episode([("system", 3), ("user", 4)])] * 2)
    with pytest.raises(InputError, match="none of 2 oracle traces has a position to train"):
        fit(backend, state_of(backend), prompts, PLAN, RUNTIME)


def test_a_step_that_is_refused_leaves_the_old_weights(small_toy, traces, state_of):
    backend = small_toy(1)
    start = state_of(backend)
    broken = {**start.tensors, "norm": torch.full_like(start.tensors["norm"], torch.nan)}
    with pytest.raises(NumericsError, match="optimizer step 0"):
        fit(backend, StudentState(broken), examples_of(traces), PLAN, RUNTIME)
    assert bool(backend.trainable()["norm"].isnan().all())
    assert torch.equal(backend.trainable()["embedding"], start.tensors["embedding"])


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), KeyboardInterrupt()])
def test_a_fit_that_was_cut_leaves_nothing_for_the_next_one(
    small_toy, traces, state_of, monkeypatch, error
):
    examples, plan = examples_of(traces), replace(PLAN, cycles=1)
    backend = small_toy(1)
    start = state_of(backend)
    undisturbed = fit(small_toy(1), start, examples, plan, RUNTIME)

    def full(*_arguments, **_options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", full)
        with pytest.raises(type(error)):
            fit(backend, start, examples, plan, RUNTIME)
    assert all(parameter.grad is None for parameter in backend.trainable().values())
    again = fit(backend, start, examples, plan, RUNTIME)
    assert again.state.digest() == undisturbed.state.digest()
    assert again.rows == undisturbed.rows

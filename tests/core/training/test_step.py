from dataclasses import replace

import pytest
import torch

from core.errors import NumericsError
from core.recipe.runtime import Runtime
from core.recipe.training_specs import OptimizerSpec, ScheduleSpec
from core.training.group import Example, Objective
from core.training.optimizer import NO_MOMENTS, Optimizer
from core.training.state import copy_trainable
from core.training.step import Stepper, loss_by_span_type

ADAMW = OptimizerSpec(
    name="adamw", weight_decay=0.0, betas=(0.9, 0.95), eps=1e-8, max_grad_norm=1.0
)
LINEAR = ScheduleSpec(base=0.1, kind="linear", warmup_steps=0, total_steps=10, first_step=4)


def example(name="t", weights=(1.0, 1.0, 2.0), tokens=6):
    """The last three of ``tokens`` are trained."""
    ids = [10 + n for n in range(tokens)]
    return Example(
        trajectory_id=name,
        token_ids=ids,
        prediction_positions=[tokens - 4, tokens - 3, tokens - 2],
        target_ids=ids[-3:],
        weights=list(weights),
        span_types=["assistant_text", "assistant_final", "assistant_final"],
    )


def stepper(backend, aggregation="native_per_trajectory", **runtime):
    optimizer = Optimizer(backend.trainable(), ADAMW, NO_MOMENTS)
    return Stepper(backend, optimizer, LINEAR, Objective(aggregation), Runtime(**runtime))


def cross_entropy(_):
    return None


# ---------------------------------------------------------------- golden


def test_each_trajectory_or_each_token_weighs_alike(small_toy):
    examples = [example("a"), example("b", weights=(1.0, 1.0, 0.0))]
    for aggregation in ("native_per_trajectory", "token-mean"):
        group, row = stepper(small_toy(1), aggregation).step(examples, cross_entropy)
        a, b = (own.objective.tolist() for own in group.terms)
        sums = (a[0] + a[1] + 2 * a[2], b[0] + b[1])
        by_hand = (sums[0] / 4 + sums[1] / 2) / 2 if "native" in aggregation else sum(sums) / 6
        assert row["loss"] == pytest.approx(by_hand, rel=1e-6)
        assert row["sampled_token_nll_loss"] == pytest.approx(by_hand, rel=1e-6)


def test_the_loss_of_a_span_type_is_its_own_weighted_mean(small_toy):
    examples = [example("a"), example("b", weights=(0.0, 1.0, 1.0))]
    group, row = stepper(small_toy(1), "token-mean").step(examples, cross_entropy)
    a, b = (own.objective.tolist() for own in group.terms)
    assert row["loss_by_span_type"] == {
        "assistant_final": pytest.approx((a[1] + 2 * a[2] + b[1] + b[2]) / 5, rel=1e-6),
        "assistant_text": pytest.approx(a[0], rel=1e-6),
    }
    assert loss_by_span_type(examples, group) == row["loss_by_span_type"]


def test_the_row_says_what_happened(small_toy):
    examples = [example(f"t{tokens}", tokens=tokens) for tokens in (6, 9, 7)]
    moving = stepper(small_toy(1), trajectory_batch_size=2, chunk_size=64)
    _, row = moving.step(examples, cross_entropy)
    facts = {
        "step": 4,
        "selected_positions": 9,
        "trajectories_in_step": 3,
        "divergence_loss": None,
        "teacher_entropy_mean": None,
    }
    assert {name: row[name] for name in facts} == facts
    assert row["lr"] == pytest.approx(0.1 * (1 - 0.4))
    assert row["grad_norm"] > 0.0


def test_physical_sizes_are_beside_the_row_and_not_in_it(small_toy):
    examples = [example(f"t{tokens}", tokens=tokens) for tokens in (6, 9, 7)]
    moving = stepper(small_toy(1), trajectory_batch_size=2, chunk_size=64)
    _, row = moving.step(examples, cross_entropy)
    assert moving.physical == {
        "physical_trajectory_batches": 2,
        "padded_trajectory_batch_size": 2,
        "projection_chunk_size": 64,
    }
    assert not set(moving.physical) & set(row)


# ---------------------------------------------------------------- properties


def test_the_schedule_advances_with_every_step(small_toy):
    moving = stepper(small_toy(1))
    rates = [moving.step([example()], cross_entropy)[1]["lr"] for _ in range(3)]
    assert rates == pytest.approx([0.06, 0.05, 0.04])


def test_steps_reduce_the_loss(small_toy):
    moving = stepper(small_toy(1))
    losses = [moving.step([example()], cross_entropy)[1]["loss"] for _ in range(5)]
    assert losses[-1] < losses[0]


def test_a_position_of_weight_zero_is_as_if_it_were_not_there(small_toy):
    whole = example(weights=(1.0, 1.0, 0.0))
    cut = replace(
        whole,
        **{
            name: list(getattr(whole, name))[:2]
            for name in ("prediction_positions", "target_ids", "weights", "span_types")
        },
    )
    rows = [stepper(small_toy(1)).step([one], cross_entropy)[1] for one in (whole, cut)]
    assert rows[0]["loss"] == pytest.approx(rows[1]["loss"], rel=1e-6)
    assert rows[0]["grad_norm"] == pytest.approx(rows[1]["grad_norm"], rel=1e-5)


# ---------------------------------------------------------------- refusals


def test_a_loss_that_is_not_finite_moves_nothing_and_names_its_place(small_toy):
    backend = small_toy(1)
    row = 10 + 4  # id of token 4: the target at prediction position 3
    with torch.no_grad():
        backend.trainable()["embedding"][row] = torch.inf
    before = copy_trainable(backend)
    with pytest.raises(NumericsError, match=r"optimizer step 4: .* of broken") as caught:
        stepper(backend).step([example("broken")], cross_entropy)
    assert "assistant_" in caught.value.message
    assert all(torch.equal(before[name], p) for name, p in backend.trainable().items())
    assert all(p.grad is None for p in backend.trainable().values())


def test_memory_that_runs_out_halves_the_chunk_and_keeps_the_loss(small_toy, monkeypatch):
    _, whole = stepper(small_toy(1), chunk_size=64).step([example()], cross_entropy)
    backend = small_toy(1)
    project = backend.project

    def small_device(hidden_NH):
        if hidden_NH.shape[0] > 1:
            raise torch.OutOfMemoryError("full")
        return project(hidden_NH)

    monkeypatch.setattr(backend, "project", small_device)
    moving = stepper(backend, chunk_size=8, min_chunk_size=1)
    _, split = moving.step([example()], cross_entropy)
    assert split["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert split["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-5)
    assert (moving.physical["projection_chunk_size"], moving.chunk.history) == (1, [8, 4, 2])

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.losses.chunked import selected_position_loss
from core.losses.reduction import (
    normalize_trajectory_weights,
    reduce_group,
    safe_denominator,
    weighted_mean,
)
from core.losses.targets import LogitTargets


@pytest.mark.parametrize(
    ("values", "weights", "expected"),
    [
        ([1.0, 2.0, 3.0], [1.0, 1.0, 2.0], 2.25),
        ([0, 0, 0, 0, 1.0], [0, 0, 0, 0, 2.22e-16], 1.0),
        ([1.5], [1.4e-45], 1.5),
        ([1.0, 2.0], [0.0, 0.0], 0.0),
        ([1.0, 5.0], [0.0, 3.0], 5.0),
    ],
)
def test_weighted_mean_has_its_published_values(values, weights, expected):
    mean = weighted_mean(torch.tensor(values), torch.tensor(weights))
    assert mean.dtype == torch.float32
    assert float(mean) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_trajectory_weights_sum_to_one_and_empty_ones_stay_empty():
    rows = normalize_trajectory_weights([[1, 3], [2, 1, 4], [0, 0]])
    assert rows == [[0.25, 0.75], [2 / 7, 1 / 7, 4 / 7], [0.0, 0.0]]


def test_one_token_does_not_weigh_as_much_as_three_under_token_mean():
    """C02: micro A has one token of KL 1, micro B three of KL 3: 2.5, not the mean of means 2.0."""
    group = reduce_group([[1.0], [1.0, 1.0, 1.0]], "token-mean")
    values = [torch.tensor([1.0]), torch.tensor([3.0, 3.0, 3.0])]
    parts = [
        weighted_mean(value, torch.tensor(row), group.denominator)
        for value, row in zip(values, group.weights, strict=True)
    ]
    assert float(sum(parts)) == pytest.approx(2.5, rel=1e-7)
    assert group.denominator == 4.0


def test_the_mean_is_over_rows_and_not_over_rows_times_vocabulary():
    """C03: "batchmean" over [rows, vocabulary] would divide by seven times too much."""
    generator = torch.Generator().manual_seed(3)
    teacher_NV = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    student_NV = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    output = selected_position_loss(
        student_NV, lambda h: h, LogitTargets(teacher_NV), torch.ones(5), chunk_size=2,
        divergence="forward_kl",
    )  # fmt: skip
    p_NV, q_NV = teacher_NV.softmax(-1), student_NV.softmax(-1)
    by_hand = float((p_NV * (p_NV / q_NV).log()).sum()) / 5
    assert float(output.loss) == pytest.approx(by_hand, rel=1e-12)


def test_per_trajectory_mean_counts_each_trajectory_once():
    group = reduce_group([[1.0], [1.0, 1.0, 1.0], []], "native_per_trajectory")
    assert group.denominator == 2.0
    assert [sum(row) for row in group.weights] == pytest.approx([1.0, 1.0, 0.0])


rows_of_weights = st.lists(
    st.lists(st.floats(0.0, 100.0), min_size=0, max_size=6), min_size=1, max_size=6
)


@given(rows_of_weights, st.sampled_from(["native_per_trajectory", "token-mean"]))
def test_a_constant_loss_reduces_to_itself(rows, aggregation):
    group = reduce_group(rows, aggregation)
    total = math.fsum(weight for row in group.weights for weight in row)
    expected = 1.0 if total > 0 else 0.0
    assert total / safe_denominator(group.denominator) == pytest.approx(expected, rel=1e-9)


@given(rows_of_weights, st.sampled_from(["native_per_trajectory", "token-mean"]), st.integers(0, 6))
def test_any_split_into_micro_batches_gives_the_same_loss(rows, aggregation, cut):
    group = reduce_group(rows, aggregation)
    values = [torch.arange(len(row), dtype=torch.float64) + index for index, row in enumerate(rows)]
    weights = [torch.tensor(row, dtype=torch.float64) for row in group.weights]
    whole = weighted_mean(torch.cat(values), torch.cat(weights), group.denominator)
    parts = [
        weighted_mean(torch.cat(values[part]), torch.cat(weights[part]), group.denominator)
        for part in (slice(0, cut), slice(cut, None))
        if values[part]
    ]
    assert float(sum(parts)) == pytest.approx(float(whole), rel=1e-9, abs=1e-9)


def test_a_non_finite_value_at_weight_zero_does_not_enter():
    values_N = torch.tensor([math.nan, 2.0, math.inf], requires_grad=True)
    mean = weighted_mean(values_N, torch.tensor([0.0, 1.0, 0.0]))
    (grad_N,) = torch.autograd.grad(mean, values_N)
    assert float(mean.detach()) == 2.0
    assert grad_N.tolist() == [0.0, 1.0, 0.0]


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="values but"):
        weighted_mean(torch.zeros(2), torch.zeros(3))


@pytest.mark.parametrize("denominator", [-1.0, math.nan, math.inf])
def test_a_denominator_must_be_a_count(denominator):
    with pytest.raises(ValueError, match="denominator"):
        safe_denominator(denominator)


@pytest.mark.parametrize("weight", [-1.0, math.nan])
def test_a_weight_must_be_non_negative(weight):
    with pytest.raises(ValueError, match="trajectory 1"):
        reduce_group([[1.0], [weight]], "token-mean")


def test_an_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match="seq-mean"):
        reduce_group([[1.0]], "seq-mean")

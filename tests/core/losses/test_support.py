import math

import pytest
import torch

from core.losses.support import join_tail, smoothed_pair, split_support


def test_support_and_tail_hold_all_the_mass():
    generator = torch.Generator().manual_seed(1)
    logits_NV = torch.randn(4, 9, generator=generator, dtype=torch.float64)
    ids_NK = logits_NV.topk(3).indices
    support_NK, tail_N = split_support(logits_NV, ids_NK, 1.5)
    total_N = support_NK.exp().sum(-1) + tail_N.exp()
    torch.testing.assert_close(total_N, torch.ones(4, dtype=torch.float64), rtol=1e-14, atol=0)
    expected_N = (logits_NV / 1.5).softmax(-1).scatter(-1, ids_NK, 0.0).sum(-1).log()
    torch.testing.assert_close(tail_N, expected_N, rtol=1e-12, atol=0)


def test_a_tail_far_below_rounding_is_exact_in_float32():
    logits_NV = torch.tensor([[0.0, -100.0, -101.0]])
    _, tail_N = split_support(logits_NV, torch.tensor([[0]]), 1.0)
    assert float(tail_N) == pytest.approx(-100 + math.log1p(math.exp(-1)), rel=1e-6)


def test_an_empty_tail_is_minus_infinity_with_a_finite_gradient():
    logits_NV = torch.tensor([[0.3, -0.2]], requires_grad=True)
    support_NK, tail_N = split_support(logits_NV, torch.tensor([[1, 0]]), 1.0)
    (grad_NV,) = torch.autograd.grad(support_NK.sum(), logits_NV)
    assert tail_N.tolist() == [-math.inf]
    assert bool(grad_NV.isfinite().all())


def test_a_tail_is_raised_to_its_floor_unless_both_are_empty():
    lone_NC = torch.tensor([[0.0, -math.inf], [0.0, -math.inf]], dtype=torch.float64)
    other_NC = torch.tensor([[0.0, -math.inf], [math.log(0.5), math.log(0.5)]], dtype=torch.float64)
    first_NC, second_NC = smoothed_pair(lone_NC, other_NC, 1e-3)
    assert first_NC.exp().tolist()[0] == [1.0, 0.0]
    assert first_NC.exp()[1].tolist() == pytest.approx([1 / 1.001, 0.001 / 1.001], rel=1e-12)
    assert second_NC.exp()[1].tolist() == pytest.approx([0.5, 0.5], rel=1e-12)
    assert bool(first_NC.isfinite().all())


def test_the_tail_is_the_last_category():
    joined_NC = join_tail(torch.tensor([[1.0, 2.0]]), torch.tensor([3.0]))
    assert joined_NC.tolist() == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize("epsilon", [0.0, 1.0, math.nan])
def test_the_floor_must_be_a_probability(epsilon):
    row_NC = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="tail_epsilon"):
        smoothed_pair(row_NC, row_NC, epsilon)

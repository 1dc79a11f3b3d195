import math

import pytest
import torch

from core.losses.divergence import kl_from_log_probs
from core.losses.mixing import (
    adaptive_kl,
    entropy_aware_kl,
    rescaled_jensen_shannon,
    skew_forward_kl,
    skew_reverse_kl,
)


def log_probs(*probabilities):
    return torch.tensor([probabilities], dtype=torch.float64).log()


P_NC, Q_NC = log_probs(0.6, 0.3, 0.1), log_probs(0.2, 0.3, 0.5)
FORWARD = 0.6 * math.log(3) + 0.1 * math.log(0.2)
REVERSE = 0.2 * math.log(1 / 3) + 0.5 * math.log(5)


def test_rescaled_jsd_keeps_its_scale_toward_both_ends():
    """C39: at weight 0.001 the plain JSD is a thousand times smaller than the KL it stands for."""
    near_forward = float(rescaled_jensen_shannon(P_NC, Q_NC, 0.001))
    near_reverse = float(rescaled_jensen_shannon(P_NC, Q_NC, 0.999))
    assert near_forward == pytest.approx(FORWARD, rel=2e-3)
    assert near_reverse == pytest.approx(REVERSE, rel=2e-3)
    halfway = float(rescaled_jensen_shannon(P_NC, Q_NC, 0.5))
    m = (0.4, 0.3, 0.3)
    expected = 2 * sum(
        p * math.log(p / c) + q * math.log(q / c)
        for p, q, c in zip((0.6, 0.3, 0.1), (0.2, 0.3, 0.5), m, strict=True)
    )
    assert halfway == pytest.approx(expected, rel=1e-12)


def test_skewed_kls_by_hand():
    forward = 0.6 * math.log(0.6 / 0.24) + 0.1 * math.log(0.1 / 0.46)
    reverse = 0.2 * math.log(0.2 / 0.56) + 0.5 * math.log(0.5 / 0.14)
    assert float(skew_forward_kl(P_NC, Q_NC, 0.1)) == pytest.approx(forward, rel=1e-12)
    assert float(skew_reverse_kl(P_NC, Q_NC, 0.1)) == pytest.approx(reverse, rel=1e-12)


def test_skewed_kls_stay_bounded_where_the_kl_explodes():
    p_NC = torch.tensor([[0.0, -2e4]], dtype=torch.float64)
    for skewed in (skew_forward_kl, skew_reverse_kl):
        assert float(skewed(p_NC, p_NC.flip(-1), 0.1)) == pytest.approx(math.log(10), rel=1e-9)


def test_the_gradient_of_a_skewed_kl_is_right_at_a_tie():
    """Where one column agrees exactly, a clamp's slope at zero must not count twice."""
    student_NV = torch.tensor([[1.0, 0.5, -1.0, 0.0]], dtype=torch.float64)
    for skewed in (skew_forward_kl, skew_reverse_kl):
        teacher_NC = student_NV.roll(1, -1).log_softmax(-1)
        leaf_NC = student_NV.log_softmax(-1).clone()
        leaf_NC[0, 2] = teacher_NC[0, 2]
        leaf_NC.requires_grad_()
        (grad_NC,) = torch.autograd.grad(skewed(teacher_NC, leaf_NC, 0.3).sum(), leaf_NC)
        step_NC = torch.zeros_like(leaf_NC)
        step_NC[0, 2] = 1e-6
        with torch.no_grad():
            up = skewed(teacher_NC, leaf_NC + step_NC, 0.3)
            down = skewed(teacher_NC, leaf_NC - step_NC, 0.3)
        slope = float((up - down) / 2e-6)
        assert float(grad_NC[0, 2]) == pytest.approx(slope, rel=1e-6)


def test_adaptive_kl_weighs_each_direction_by_where_the_gap_is():
    # Head at mass 0.5 is the first token: gap 0.4 of 0.8.
    expected = 0.5 * FORWARD + 0.5 * REVERSE
    assert float(adaptive_kl(P_NC, Q_NC, 0.5)) == pytest.approx(expected, rel=1e-12)
    # At 0.7 the second token belongs to it too; it has no gap.
    assert float(adaptive_kl(P_NC, Q_NC, 0.7)) == pytest.approx(expected, rel=1e-12)
    # At 0.95 everything is head.
    assert float(adaptive_kl(P_NC, Q_NC, 0.95)) == pytest.approx(FORWARD, rel=1e-12)


def test_the_token_that_reaches_the_head_s_mass_belongs_to_the_head():
    """Else a head of 0.5 could hold 0.4; the paper's code leaves the token out."""
    teacher_NC = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).log()
    student_NC = torch.tensor([[0.4, 0.1, 0.2, 0.3]], dtype=torch.float64).log()
    forward = float(kl_from_log_probs(teacher_NC, student_NC))
    reverse = float(kl_from_log_probs(student_NC, teacher_NC))
    # The gap is 0.2 at the second token and 0.2 at the last.
    expected = 0.5 * forward + 0.5 * reverse
    assert float(adaptive_kl(teacher_NC, student_NC, 0.5)) == pytest.approx(expected, rel=1e-12)
    assert float(adaptive_kl(teacher_NC, student_NC, 0.4)) == pytest.approx(reverse, rel=1e-12)


def test_adaptive_kl_is_zero_and_not_nan_where_student_equals_teacher():
    """C35: 0/0."""
    leaf_NC = P_NC.clone().requires_grad_()
    value_N = adaptive_kl(P_NC, leaf_NC, 0.5)
    value_N.sum().backward()
    assert value_N.tolist() == [0.0]
    assert bool(leaf_NC.grad.isfinite().all())


def test_adaptive_kl_s_weight_is_a_constant_for_the_gradient():
    leaf_NC, twin_NC = Q_NC.clone().requires_grad_(), Q_NC.clone().requires_grad_()
    adaptive_kl(P_NC, leaf_NC, 0.5).sum().backward()
    forward_N, reverse_N = kl_from_log_probs(P_NC, twin_NC), kl_from_log_probs(twin_NC, P_NC)
    (0.5 * forward_N + 0.5 * reverse_N).sum().backward()
    torch.testing.assert_close(leaf_NC.grad, twin_NC.grad, rtol=1e-12, atol=0)


def test_forward_kl_is_added_where_the_teacher_is_undecided():
    teacher_NC, student_NC = P_NC.expand(3, 3), Q_NC.expand(3, 3)
    entropy_N = torch.tensor([0.5, 0.8, 0.81], dtype=torch.float64)
    value_N = entropy_aware_kl(teacher_NC, student_NC, entropy_N, 0.8)
    assert value_N.tolist() == pytest.approx([REVERSE, REVERSE, REVERSE + FORWARD], rel=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, math.nan])
def test_parameters_outside_the_unit_interval_are_refused(value):
    for objective, name in [
        (rescaled_jensen_shannon, "teacher_weight"),
        (skew_forward_kl, "skew"),
        (skew_reverse_kl, "skew"),
        (adaptive_kl, "head_mass"),
    ]:
        with pytest.raises(ValueError, match=name):
            objective(P_NC, Q_NC, value)


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_a_negative_entropy_threshold_is_refused(threshold):
    with pytest.raises(ValueError, match="entropy_threshold"):
        entropy_aware_kl(P_NC, Q_NC, torch.zeros(1), threshold)

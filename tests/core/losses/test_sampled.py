import pytest
import torch

from core.losses.chunked import selected_position_loss
from core.losses.divergence import reverse_kl
from core.losses.sampled import clipped_surrogate, distillation_advantage, sampled_log_probs
from core.losses.targets import SampledTargets

CURRENT = [-0.5, -1.0, -2.0, -0.1, -3.0]
ROLLOUT = [-0.7, -1.0, -1.5, -0.6, -3.0]
TEACHER = [-0.2, -1.5, -9.0, -0.65, -0.5]


def targets_of(teacher=TEACHER, rollout=ROLLOUT):
    return SampledTargets(torch.zeros(len(teacher)), torch.tensor(teacher), torch.tensor(rollout))


def test_the_clipped_surrogate_has_its_published_values():
    current_N = torch.tensor(CURRENT, requires_grad=True)
    loss_N, diagnostics = clipped_surrogate(current_N, targets_of(), loss_max_clamp=1.0)
    mask_N = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])

    def mean(values_N):
        return float((values_N.detach().float() * mask_N).sum() / mask_N.sum())

    assert loss_N.tolist() == pytest.approx([-0.6, 0.5, 0.8, 0.0824359804, -1.0], rel=1e-6)
    assert mean(loss_N) == pytest.approx(0.0941453204, rel=1e-6)
    assert mean(diagnostics.is_clipped_N) == pytest.approx(0.6666666865, rel=1e-6)
    assert mean(diagnostics.approx_kl_N) == pytest.approx(-0.0666666627, rel=1e-6)
    assert mean(diagnostics.is_clipped_below_N) == 0.0
    assert mean(diagnostics.k1_N.abs()) == pytest.approx(0.5166666508, rel=1e-6)
    (grad_N,) = torch.autograd.grad((loss_N * mask_N).sum() / mask_N.sum(), current_N)
    assert grad_N.tolist() == pytest.approx([0.0, 0.0, 0.0, 0.0274786614, 0.0], rel=1e-6)


def test_a_disliked_token_with_a_large_ratio_meets_the_dual_clip():
    targets = targets_of(teacher=[-2.0, 0.0], rollout=[-1.0, -1.0])
    loss_N, diagnostics = clipped_surrogate(torch.tensor([2.0, -1.0]), targets)
    assert loss_N.tolist() == pytest.approx([3.0, -1.0])
    assert diagnostics.is_clipped_below_N.tolist() == [True, False]


def test_sampled_k1_has_the_exact_reverse_kl_gradient_in_expectation():
    """C45: a top-k KL of the state as advantage has expected gradient 0 instead.

    By enumeration: every token of a vocabulary of six, weighted with its own probability.
    """
    generator = torch.Generator().manual_seed(8)
    teacher_V = torch.randn(6, generator=generator, dtype=torch.float64)
    student_V = torch.randn(6, generator=generator, dtype=torch.float64)
    exact_V = student_V.clone().requires_grad_()
    reverse_kl(teacher_V[None], exact_V[None]).sum().backward()

    leaf_V = student_V.clone().requires_grad_()
    rows_VV, ids_V = leaf_V.expand(6, 6), torch.arange(6)
    log_probs_V = student_V.log_softmax(-1)
    targets = SampledTargets(ids_V, teacher_V.log_softmax(-1), log_probs_V)
    loss_V, _ = clipped_surrogate(sampled_log_probs(rows_VV, ids_V), targets)
    (loss_V * log_probs_V.exp()).sum().backward()
    torch.testing.assert_close(leaf_V.grad, exact_V.grad, rtol=1e-12, atol=1e-14)

    # The faulty estimator: one advantage for the whole state is a baseline, and cancels.
    faulty_V = student_V.clone().requires_grad_()
    state_kl = reverse_kl(teacher_V[None], student_V[None]).sum()
    ratio_V = (sampled_log_probs(faulty_V.expand(6, 6), ids_V) - log_probs_V).exp()
    (state_kl * ratio_V * log_probs_V.exp()).sum().backward()
    assert float(faulty_V.grad.abs().max()) < 1e-12
    assert float(exact_V.grad.abs().max()) > 0.05


def test_the_difference_of_log_probs_as_a_loss_would_not_contain_the_teacher():
    """C44: identical gradients for a teacher at −0.1 and at −9; with an advantage they differ."""
    gradients = []
    for teacher in (-0.1, -9.0):
        logits_NV = torch.tensor([[0.3, -0.2, 0.1]], dtype=torch.float64, requires_grad=True)
        ids_N = torch.tensor([1])
        (sampled_log_probs(logits_NV, ids_N) - teacher).sum().backward()
        naive = logits_NV.grad.clone()
        logits_NV.grad = None
        rollout_N = sampled_log_probs(logits_NV, ids_N).detach()
        targets = SampledTargets(ids_N, torch.tensor([teacher], dtype=torch.float64), rollout_N)
        clipped_surrogate(sampled_log_probs(logits_NV, ids_N), targets)[0].sum().backward()
        gradients.append((naive, logits_NV.grad))
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert float((gradients[0][1] - gradients[1][1]).abs().max()) > 1.0


def test_the_advantage_is_detached_by_construction():
    """C46."""
    teacher_N = torch.tensor([-1.0], requires_grad=True)
    rollout_N = torch.tensor([-2.0], requires_grad=True)
    targets = SampledTargets(torch.zeros(1), teacher_N, rollout_N)
    advantage_N = distillation_advantage(targets, None)
    assert not advantage_N.requires_grad
    assert advantage_N.tolist() == [1.0]
    loss_N, _ = clipped_surrogate(torch.tensor([-2.0], requires_grad=True), targets)
    loss_N.sum().backward()
    assert teacher_N.grad is None
    assert rollout_N.grad is None


def test_a_ratio_of_any_size_stays_finite():
    targets = targets_of(teacher=[-1.0, -1.0], rollout=[-1e10, -1e-3])
    loss_N, _ = clipped_surrogate(torch.tensor([-1e-3, -1e10]), targets, loss_max_clamp=10.0)
    assert bool(loss_N.isfinite().all())


def test_a_ratio_without_bound_at_a_pad_leaves_the_gradient_finite():
    """C33: masked after the exponential, inf · 0 would be NaN."""
    hidden_NV = torch.tensor([[0.3, -0.2], [0.1, 0.4]], dtype=torch.float64, requires_grad=True)
    rollout_N = torch.tensor([-0.7, -1e10], dtype=torch.float64)
    targets = SampledTargets(torch.tensor([0, 1]), rollout_N - 0.5, rollout_N)
    output = selected_position_loss(
        hidden_NV, lambda h: h, targets, torch.tensor([1.0, 0.0]), chunk_size=2,
        divergence="verl_pg_k1", backward=True,
    )  # fmt: skip
    assert bool(output.loss.isfinite())
    assert bool(hidden_NV.grad.isfinite().all())
    assert hidden_NV.grad[1].tolist() == [0.0, 0.0]


def test_log_probs_are_taken_in_float32_at_least():
    logits_NV = torch.tensor([[1.0, 2.0, 3.0]])
    assert sampled_log_probs(logits_NV.bfloat16(), torch.tensor([2])).dtype == torch.float32
    expected = logits_NV.log_softmax(-1)[:, 2]
    torch.testing.assert_close(sampled_log_probs(logits_NV, torch.tensor([2])), expected)


@pytest.mark.parametrize(
    "clips",
    [{"clip_low": -0.1}, {"clip_low": 1.0}, {"clip_high": -0.1}, {"dual_clip": 1.0}],
)
def test_a_clip_outside_its_range_is_refused(clips):
    with pytest.raises(ValueError, match="clips"):
        clipped_surrogate(torch.tensor(CURRENT), targets_of(), **clips)


def test_a_bound_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="loss_max_clamp"):
        clipped_surrogate(torch.tensor(CURRENT), targets_of(), loss_max_clamp=0.0)

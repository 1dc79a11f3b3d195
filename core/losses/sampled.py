"""Objectives that read the sampled token alone.

The derivative of log Q(y) − log P(y) for a sampled y does not contain the teacher: minimising that
difference directly ("k1 as a loss") is refused by name in the registry. As an *advantage* of a
policy gradient its expectation is the exact reverse-KL gradient, token by token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.losses.targets import SampledTargets

MAX_LOG_RATIO = 20.0
"""Bound of |log ratio| before the exponential."""


@dataclass(frozen=True)
class SurrogateDiagnostics:
    """Per position, detached."""

    is_clipped_N: Tensor
    """The clipped branch won."""
    is_clipped_below_N: Tensor
    """The dual clip won: a negative advantage with a large ratio."""
    approx_kl_N: Tensor
    """rollout − current log-probability of the token, the estimator that PPO calls ``ppo_kl``."""
    k1_N: Tensor
    """rollout − teacher log-probability after clamping: minus the advantage."""


def sampled_log_probs(logits_NV: Tensor, token_ids_N: Tensor) -> Tensor:
    """Return log softmax(logits)[token], untempered, in at least float32.

    Args:
        logits_NV: Raw logits.
        token_ids_N: One id per row.

    Returns:
        ``[N]`` nats.
    """
    wide_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    return wide_NV.log_softmax(-1).gather(-1, token_ids_N.long().unsqueeze(-1)).squeeze(-1)


def distillation_advantage(targets: SampledTargets, loss_max_clamp: float | None) -> Tensor:
    """Return −k1 = teacher − rollout log-probability, clamped and detached.

    k1 is Schulman's name (2020, "Approximating KL divergence") for the one-sample estimate of
    reverse KL.

    Args:
        targets: Sampled tokens.
        loss_max_clamp: Bound of |k1| in nats, or None.

    Returns:
        ``[N]`` nats; positive where the teacher likes the token better than its sampler did.

    Raises:
        ValueError: A bound that is not positive.
    """
    if loss_max_clamp is not None and loss_max_clamp <= 0:
        raise ValueError(f"loss_max_clamp must be positive, got {loss_max_clamp}")
    k1_N = (targets.rollout_logprobs_N - targets.teacher_logprobs_N).detach()
    return -k1_N if loss_max_clamp is None else -k1_N.clamp(-loss_max_clamp, loss_max_clamp)


def clipped_surrogate(
    current_logprobs_N: Tensor,
    targets: SampledTargets,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float = 3.0,
    loss_max_clamp: float | None = None,
) -> tuple[Tensor, SurrogateDiagnostics]:
    """Return the PPO loss of the distillation advantage.

    ρ = exp(current − rollout); ℓ = max(−Aρ, −A·clip(ρ, 1−low, 1+high)), and for A < 0 at most
    −A·c. Schulman et al. 2017 (arXiv 1707.06347), equation 7; dual clip of Ye et al. 2020 (arXiv
    1912.09729).

    Args:
        current_logprobs_N: Of the sampled tokens under the student being trained.
        targets: Their log-probabilities under teacher and sampler.
        clip_low: Lower clip range, in [0, 1).
        clip_high: Upper clip range, ≥ 0.
        dual_clip: c > 1.
        loss_max_clamp: Bound of the advantage in nats, or None.

    Returns:
        ``[N]`` losses, and diagnostics. Teacher and sampler receive no gradient.

    Raises:
        ValueError: A clip outside its range.
    """
    if not (0.0 <= clip_low < 1.0 and clip_high >= 0.0 and dual_clip > 1.0):
        raise ValueError(
            f"clips must satisfy 0 <= low < 1, high >= 0, dual > 1; got {clip_low}, {clip_high}, "
            f"{dual_clip}"
        )
    advantage_N = distillation_advantage(targets, loss_max_clamp)
    log_ratio_N = current_logprobs_N - targets.rollout_logprobs_N.detach()
    ratio_N = log_ratio_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    plain_N = -advantage_N * ratio_N
    clipped_N = -advantage_N * ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high)
    worse_N = torch.maximum(plain_N, clipped_N)
    bound_N = -advantage_N * dual_clip
    is_negative_N = advantage_N < 0
    loss_N = torch.where(is_negative_N, torch.minimum(worse_N, bound_N), worse_N)
    return loss_N, SurrogateDiagnostics(
        is_clipped_N=(clipped_N > plain_N).detach(),
        is_clipped_below_N=(is_negative_N & (worse_N > bound_N)).detach(),
        approx_kl_N=-log_ratio_N.detach(),
        k1_N=-advantage_N,
    )

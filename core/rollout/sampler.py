"""Drawing one token per row, with the log-probability it was drawn with."""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.rollout.limits import SamplingSpec


@dataclass(frozen=True)
class Draw:
    """One sampled token per row, on the device of the logits.

    Attributes:
        token_ids_S: int64.
        logprobs_S: float64, nats, under the distribution the token was drawn from: after
            temperature and truncation. Greedy draws carry the model's own (temperature 1)
            log-probability, since the distribution they come from is a point.
        kept_mass_S: float64, probability that truncation kept; None where nothing is truncated.
    """

    token_ids_S: Tensor
    logprobs_S: Tensor
    kept_mass_S: Tensor | None


def sample(logits_SV: Tensor, spec: SamplingSpec, uniforms_S: Tensor) -> Draw:
    """Draw one token per row by inverting the cumulative distribution in vocabulary order.

    Arithmetic is float64 whatever the logits are, so that one uniform number means one token unless
    two models disagree about it. Logits that are not numbers give a log-probability that is not
    one either; the caller sees it with the tokens.

    Args:
        logits_SV: Logits of the next token.
        spec: Temperature and truncation: top-k first (ties at the k-th stay), then top-p of
            what is left.
        uniforms_S: float64 in (0, 1), at most 1 - 2⁻⁵²; not read when greedy.

    Returns:
        Tokens, log-probabilities and kept mass.
    """
    if spec.is_greedy:
        logprobs_SV = logits_SV.to(torch.float64).log_softmax(-1)
        best_S1 = logprobs_SV.argmax(-1, keepdim=True)
        return Draw(best_S1[:, 0], logprobs_SV.gather(1, best_S1)[:, 0], None)
    scaled_SV = logits_SV.to(torch.float64)
    if spec.temperature != 1.0:
        scaled_SV = scaled_SV / spec.temperature
    weights_SV = (scaled_SV - scaled_SV.amax(-1, keepdim=True)).exp()
    kept_mass_S = None
    if spec.is_truncated:
        kept_SV = weights_SV * support(weights_SV, spec)
        kept_mass_S = kept_SV.sum(-1) / weights_SV.sum(-1)
        weights_SV = kept_SV
    token_ids_S1, probability_S1 = _invert(weights_SV, uniforms_S)
    return Draw(token_ids_S1[:, 0], probability_S1.log()[:, 0], kept_mass_S)


def support(weights_SV: Tensor, spec: SamplingSpec) -> Tensor:
    """Return which tokens truncation keeps, ``[S, V]`` bool; the most likely one always.

    Args:
        weights_SV: Probabilities up to a factor per row.
        spec: Top-k and top-p (Holtzman et al. 2020, https://arxiv.org/abs/1904.09751): a token
            stays while the tokens before it hold less than ``top_p``.
    """
    keep_SV = torch.ones_like(weights_SV, dtype=torch.bool)
    if 0 < spec.top_k < weights_SV.shape[-1]:
        least_S1 = weights_SV.topk(spec.top_k, dim=-1).values[:, -1:]
        keep_SV = weights_SV >= least_S1
    if spec.top_p < 1.0:
        sorted_SV, order_SV = (weights_SV * keep_SV).sort(dim=-1, descending=True, stable=True)
        before_SV = sorted_SV.cumsum(-1) - sorted_SV
        nucleus_SV = before_SV < spec.top_p * sorted_SV.sum(-1, keepdim=True)
        keep_SV = keep_SV & torch.zeros_like(keep_SV).scatter(1, order_SV, nucleus_SV)
    return keep_SV


def _invert(weights_SV: Tensor, uniforms_S: Tensor) -> tuple[Tensor, Tensor]:
    """Return the token whose interval holds the uniform, and its probability, ``[S, 1]`` each."""
    cumulative_SV = weights_SV.cumsum(-1)
    total_S1 = cumulative_SV[:, -1:]
    target_S1 = uniforms_S[:, None] * total_S1
    found_S1 = torch.searchsorted(cumulative_SV, target_S1, right=True)
    # Only a total that is not a number can exceed the vocabulary; the index must stay legal.
    token_ids_S1 = found_S1.clamp_(max=weights_SV.shape[-1] - 1)
    return token_ids_S1, weights_SV.gather(1, token_ids_S1) / total_S1

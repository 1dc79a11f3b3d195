"""What a model says about a fixed text: compared before and after its weights moved.

After a trip to the host and back a model can be garbage without an error, and then every token is
equally likely: each log-probability is -ln V, a Jensen-Shannon divergence is near ln 2, and a
student would be driven to the uniform distribution.
"""

import logging
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import BackendError
from core.models.backend import Backend

PROBE_TOKENS = 8
"""Tokens of the fixed text, spread over the vocabulary."""

NEARLY_UNIFORM = 0.999
"""Share of ln V from which an entropy is worth a warning. An untrained model has it too, so it is
no refusal; logits that are all equal are."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Probe:
    """What a model said.

    Attributes:
        logits_TV: On the host, float32, one row per token of the fixed text.
    """

    logits_TV: Tensor

    @property
    def entropy_share(self) -> float:
        """Mean entropy of a next token over the ln V of a uniform one; NaN where logits are."""
        logprobs_TV = self.logits_TV.double().log_softmax(-1)
        entropy = float(-(logprobs_TV.exp() * logprobs_TV).sum(-1).mean())
        return entropy / math.log(self.logits_TV.shape[-1])

    @property
    def says_nothing(self) -> bool:
        """Whether some logit is not finite, or every token is equally likely everywhere."""
        spread_T = self.logits_TV.amax(-1) - self.logits_TV.amin(-1)
        return not bool(self.logits_TV.isfinite().all()) or float(spread_T.max()) == 0.0


@torch.no_grad()
def probe(backend: Backend) -> Probe:
    """Ask a model about the fixed text."""
    step = max(1, backend.vocab_size // PROBE_TOKENS)
    ids_1T = torch.arange(0, backend.vocab_size, step, device=backend.device)[None]
    lengths_1 = torch.tensor([ids_1T.shape[1]], device=backend.device)
    hidden_1TH = backend.hidden_states(ids_1T, lengths_1)
    return Probe(backend.project(hidden_1TH[0]).float().cpu())


def check_teacher(found: Probe) -> None:
    """Refuse a teacher that says nothing, and warn of one that hardly says anything.

    Raises:
        BackendError: Its logits are all equal or not finite.
    """
    if found.says_nothing:
        raise BackendError(
            "the teacher says nothing: its logits are all equal or not finite",
            "Its weights are damaged or empty; copy or train them again.",
        )
    if found.entropy_share > NEARLY_UNIFORM:
        logger.warning(
            "the teacher's next token is nearly uniform: its entropy is %.4f of ln V",
            found.entropy_share,
        )


def check_return(role: str, before: Probe, after: Probe) -> None:
    """Refuse a model that came back to the device with other logits, be it by one bit.

    Raises:
        BackendError: They differ.
    """
    if torch.equal(before.logits_TV, after.logits_TV):
        return
    difference = float((before.logits_TV - after.logits_TV).abs().max())
    raise BackendError(
        f"the {role} came back from the host with other weights: a logit differs by "
        f"{difference:.3g}",
        "Run again, and it is loaded anew; set runtime.memory_strategy=resident if it happens "
        "again.",
    )

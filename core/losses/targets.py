"""What the teacher says at N positions, in the five shapes that objectives read.

Each has a length and a ``slice``, so that a long selection can be evaluated piece by piece.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

Project = Callable[[Tensor], Tensor]
"""A language-model head: ``[n, H]`` hidden states to ``[n, V]`` logits, soft cap and scale
included."""


class Targets(Protocol):
    """N positions of supervision."""

    def __len__(self) -> int:
        """Return N."""
        ...

    def slice(self, start: int, stop: int) -> Self:
        """Return positions ``[start, stop)``, sharing storage."""
        ...


@dataclass(frozen=True)
class LogitTargets:
    """The teacher's logits over the whole vocabulary."""

    teacher_logits_NV: Tensor

    def __len__(self) -> int:
        return self.teacher_logits_NV.shape[0]

    def slice(self, start: int, stop: int) -> "LogitTargets":
        """Return positions ``[start, stop)``, sharing storage.

        Args:
            start: First position.
            stop: One past the last.

        Returns:
            Targets of ``stop − start`` positions.
        """
        return LogitTargets(self.teacher_logits_NV[start:stop])


@dataclass(frozen=True)
class TokenPairs:
    """Ids of the S tokens that two vocabularies share."""

    student_ids_S: Tensor
    teacher_ids_S: Tensor

    def to(self, device: torch.device) -> "TokenPairs":
        """Return the pairs on a device.

        Args:
            device: Where the loss is computed.

        Returns:
            Pairs; the tensors themselves where they lie there already.
        """
        return TokenPairs(self.student_ids_S.to(device), self.teacher_ids_S.to(device))


@dataclass(frozen=True)
class SharedTargets:
    """The teacher's logits over its own vocabulary, of which the student has some tokens."""

    teacher_logits_NU: Tensor
    pairs: TokenPairs

    def __len__(self) -> int:
        return self.teacher_logits_NU.shape[0]

    def slice(self, start: int, stop: int) -> "SharedTargets":
        """Return positions ``[start, stop)``, sharing storage.

        Args:
            start: First position.
            stop: One past the last.

        Returns:
            Targets of ``stop − start`` positions.
        """
        return SharedTargets(self.teacher_logits_NU[start:stop], self.pairs)


@dataclass(frozen=True)
class ExactTargets:
    """The teacher's hidden states and its head: H numbers per position instead of V."""

    teacher_hidden_NH: Tensor
    teacher_project: Project
    pairs: TokenPairs | None = None
    """Shared tokens where the teacher has another vocabulary; None where there is one."""

    @property
    def read_as(self) -> type["LogitTargets | SharedTargets"]:
        """What objectives get to see."""
        return LogitTargets if self.pairs is None else SharedTargets

    @torch.no_grad()
    def read(self) -> "LogitTargets | SharedTargets":
        """Apply the head.

        Returns:
            The teacher's logits at these positions.
        """
        logits = self.teacher_project(self.teacher_hidden_NH)
        return LogitTargets(logits) if self.pairs is None else SharedTargets(logits, self.pairs)

    def __len__(self) -> int:
        return self.teacher_hidden_NH.shape[0]

    def slice(self, start: int, stop: int) -> "ExactTargets":
        """Return positions ``[start, stop)``, sharing storage.

        Args:
            start: First position.
            stop: One past the last.

        Returns:
            Targets of ``stop − start`` positions.
        """
        return replace(self, teacher_hidden_NH=self.teacher_hidden_NH[start:stop])


@dataclass(frozen=True)
class BucketTargets:
    """The teacher's probabilities of k tokens and the mass of all others: k + 1 categories."""

    support_ids_NK: Tensor
    """Token ids; distinct within a row."""
    support_logprobs_NK: Tensor
    """Log-probabilities over the *whole* vocabulary at ``temperature``: they do not sum to one."""
    tail_logprob_N: Tensor
    """Log of the mass outside the support; −inf where nothing is outside."""
    entropy_N: Tensor | None = None
    """Entropy of the whole distribution, nats."""
    temperature: float = 1.0
    """τ that the log-probabilities were taken at."""

    def __len__(self) -> int:
        return self.support_ids_NK.shape[0]

    def slice(self, start: int, stop: int) -> "BucketTargets":
        """Return positions ``[start, stop)``, sharing storage.

        Args:
            start: First position.
            stop: One past the last.

        Returns:
            Targets of ``stop − start`` positions.
        """
        return replace(
            self,
            support_ids_NK=self.support_ids_NK[start:stop],
            support_logprobs_NK=self.support_logprobs_NK[start:stop],
            tail_logprob_N=self.tail_logprob_N[start:stop],
            entropy_N=None if self.entropy_N is None else self.entropy_N[start:stop],
        )


@dataclass(frozen=True)
class SampledTargets:
    """Log-probabilities of the sampled tokens alone, under the teacher and under the sampler."""

    sampled_ids_N: Tensor
    teacher_logprobs_N: Tensor
    rollout_logprobs_N: Tensor
    """Recorded while sampling; the denominator of the importance ratio."""

    def __len__(self) -> int:
        return self.sampled_ids_N.shape[0]

    def slice(self, start: int, stop: int) -> "SampledTargets":
        """Return positions ``[start, stop)``, sharing storage.

        Args:
            start: First position.
            stop: One past the last.

        Returns:
            Targets of ``stop − start`` positions.
        """
        return SampledTargets(
            self.sampled_ids_N[start:stop],
            self.teacher_logprobs_N[start:stop],
            self.rollout_logprobs_N[start:stop],
        )

"""What the teacher said about the episodes of one cycle: one list of positions for all of them.

Bucketed targets hold k log-probabilities and a tail per position; exact targets hold the teacher's
hidden states, H numbers where the distribution has V, and need the teacher's head to be read, and
the ids that both sides share where the teacher has another vocabulary; sampled targets hold the
log-probability of the sampled token under teacher and sampler.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from core.errors import AlignmentError, BackendError
from core.losses.targets import (
    BucketTargets,
    ExactTargets,
    Project,
    SampledTargets,
    TokenPairs,
)
from core.models.tensor_files import damaged, load_described, load_description, save_described
from core.recipe.schema.loss import LossMode
from core.recipe.specs import ScoreSpec
from core.trajectory.spans import SpanType

KIND = "scored_targets"
SCHEMA_VERSION = 2
TENSORS, DESCRIPTION = "targets.safetensors", "targets.json"
SPAN_TYPES = tuple(str(kind) for kind in SpanType)


@dataclass(frozen=True)
class Provenance:
    """Whose opinion this is, about which student, in which arithmetic."""

    mode: LossMode
    """What was handed over, by the ``loss.mode`` that is named after it."""
    top_k: int | None
    """Log-probabilities per position; None where there is no support."""
    temperature: float | None
    """τ that the teacher's log-probabilities were taken at; None for exact targets."""
    teacher_digest: str
    """Content digest of the teacher's weights."""
    teacher_mode: Literal["standard", "privileged_context"]
    """Whether the teacher read a hint."""
    tokenizer_digest: str
    """Content digest of the tokenizer of the episodes; the teacher's is the same unless
    ``loss.cross_tokenizer``."""
    policy_version: int
    """Parameter version of the student that sampled the episodes."""

    @classmethod
    def of(
        cls, spec: ScoreSpec, teacher_digest: str, tokenizer_digest: str, policy_version: int
    ) -> "Provenance":
        """Return the provenance of targets that were asked for by ``spec``."""
        return cls(
            mode=spec.loss_mode,
            top_k=spec.top_k,
            temperature=spec.temperature,
            teacher_digest=teacher_digest,
            teacher_mode=spec.teacher_mode,
            tokenizer_digest=tokenizer_digest,
            policy_version=policy_version,
        )


@dataclass(frozen=True)
class Selected:
    """Selected positions of one trajectory, as slices of the whole."""

    trajectory_id: str
    tokens_digest: str
    """SHA-256 of the trajectory's tokens."""
    prediction_positions: list[int]
    """Positions in the student's tokens whose logits predict the targets, ascending."""
    target_ids: list[int]
    """The target tokens."""
    weights: list[float]
    """Selection weights."""
    span_types: list[str]
    """Span of each target token."""


@dataclass(frozen=True)
class ScoredTargets:
    """Targets of all selected positions, trajectory by trajectory."""

    provenance: Provenance
    selected: tuple[Selected, ...]
    """One entry per trajectory, in the order of the tensors."""
    values: BucketTargets | SampledTargets | Tensor
    """Buckets, sampled tokens, or ``teacher_hidden_NH`` for exact targets."""
    pairs: TokenPairs | None = None
    """Tokens that student and teacher share, where hidden states are of another vocabulary."""

    def __post_init__(self) -> None:
        if len(self.values) != self.offsets[-1]:
            raise AlignmentError(
                f"{self.offsets[-1]} positions are selected but {len(self.values)} were scored",
                "Score the trajectories again.",
            )

    @property
    def offsets(self) -> tuple[int, ...]:
        """Trajectory ``i`` owns positions ``[offsets[i], offsets[i + 1])``."""
        offsets = [0]
        for entry in self.selected:
            offsets.append(offsets[-1] + len(entry.prediction_positions))
        return tuple(offsets)

    def gather(
        self, indices: Sequence[int], device: torch.device, project: Project | None
    ) -> BucketTargets | ExactTargets | SampledTargets:
        """Return the targets of some trajectories, in the given order, on ``device``.

        Args:
            indices: Indices into ``selected``.
            device: Where the loss is computed.
            project: The teacher's head; exact targets cannot be read without it.

        Raises:
            BackendError: Exact targets and no head.
        """
        offsets = self.offsets
        pieces = [slice(offsets[i], offsets[i + 1]) for i in indices]

        def select(tensor: Tensor) -> Tensor:
            return torch.cat([tensor[piece] for piece in pieces]).to(device)

        if isinstance(self.values, BucketTargets):
            buckets = {name: select(tensor) for name, tensor in _bucket_tensors(self.values)}
            return BucketTargets(**buckets, temperature=self.values.temperature)
        if isinstance(self.values, SampledTargets):
            values = self.values
            return SampledTargets(
                select(values.sampled_ids_N),
                select(values.teacher_logprobs_N),
                select(values.rollout_logprobs_N),
            )
        if project is None:
            raise BackendError(
                "exact targets are the teacher's hidden states, and its head is not loaded",
                "Give the update the teacher that scored them.",
            )
        pairs = None if self.pairs is None else self.pairs.to(device)
        return ExactTargets(select(self.values), project, pairs)

    def save(self, directory: Path) -> None:
        """Write tensors and description into an existing directory.

        Raises:
            StoreError: A file cannot be written.
        """
        document = {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "provenance": asdict(self.provenance),
            "trajectories": [
                {
                    "trajectory_id": entry.trajectory_id,
                    "tokens_digest": entry.tokens_digest,
                    "positions": len(entry.prediction_positions),
                }
                for entry in self.selected
            ],
        }
        save_described(directory, DESCRIPTION, document, {TENSORS: self._tensors()})

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {
            "prediction_positions_N": torch.tensor(
                self._column("prediction_positions"), dtype=torch.int32
            ),
            "target_ids_N": torch.tensor(self._column("target_ids"), dtype=torch.int32),
            "weights_N": torch.tensor(self._column("weights"), dtype=torch.float64),
            "span_types_N": torch.tensor(
                [SPAN_TYPES.index(kind) for kind in self._column("span_types")], dtype=torch.uint8
            ),
        }
        if isinstance(self.values, BucketTargets):
            return tensors | dict(_bucket_tensors(self.values))
        if isinstance(self.values, SampledTargets):
            return tensors | {
                "teacher_logprobs_N": self.values.teacher_logprobs_N,
                "rollout_logprobs_N": self.values.rollout_logprobs_N,
            }
        shared = {} if self.pairs is None else vars(self.pairs)
        return tensors | {"teacher_hidden_NH": self.values} | dict(shared)

    def _column(self, name: str) -> list[Any]:
        return [value for entry in self.selected for value in getattr(entry, name)]


def load_targets(directory: Path) -> ScoredTargets:
    """Read what ``ScoredTargets.save`` wrote.

    Raises:
        StoreSchemaError: Another version of this system wrote it.
        StoreError: A file is missing, cut off, altered, or holds something else.
    """
    path = directory / DESCRIPTION
    document = load_description(path, KIND, SCHEMA_VERSION, {"provenance", "trajectories"})
    if set(document["provenance"]) != {field.name for field in fields(Provenance)}:
        raise damaged(path, "a field of its provenance is missing or unknown")
    provenance = Provenance(**document["provenance"])
    tensors = load_described(directory / TENSORS, document)
    selected = _split(document["trajectories"], tensors)
    pairs = None
    if "student_ids_S" in tensors:
        pairs = TokenPairs(tensors["student_ids_S"], tensors["teacher_ids_S"])
    return ScoredTargets(provenance, selected, _values(tensors, provenance), pairs)


def _values(
    tensors: Mapping[str, Tensor], provenance: Provenance
) -> BucketTargets | SampledTargets | Tensor:
    if "teacher_hidden_NH" in tensors:
        return tensors["teacher_hidden_NH"]
    if "teacher_logprobs_N" in tensors:
        return SampledTargets(
            sampled_ids_N=tensors["target_ids_N"].long(),
            teacher_logprobs_N=tensors["teacher_logprobs_N"],
            rollout_logprobs_N=tensors["rollout_logprobs_N"],
        )
    return BucketTargets(
        support_ids_NK=tensors["support_ids_NK"],
        support_logprobs_NK=tensors["support_logprobs_NK"],
        tail_logprob_N=tensors["tail_logprob_N"],
        entropy_N=tensors["entropy_N"],
        temperature=provenance.temperature or 1.0,
    )


def _split(
    trajectories: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]
) -> tuple[Selected, ...]:
    columns = {
        name: tensors[name].tolist()
        for name in ("prediction_positions_N", "target_ids_N", "weights_N", "span_types_N")
    }
    selected, start = [], 0
    for entry in trajectories:
        own = slice(start, start + entry["positions"])
        selected.append(
            Selected(
                trajectory_id=entry["trajectory_id"],
                tokens_digest=entry["tokens_digest"],
                prediction_positions=columns["prediction_positions_N"][own],
                target_ids=columns["target_ids_N"][own],
                weights=columns["weights_N"][own],
                span_types=[SPAN_TYPES[code] for code in columns["span_types_N"][own]],
            )
        )
        start = own.stop
    return tuple(selected)


def tokens_digest(token_ids: Sequence[int]) -> str:
    """Return the SHA-256 of token ids, as little-endian 64-bit integers."""
    return hashlib.sha256(torch.tensor(list(token_ids)).numpy().astype("<i8").tobytes()).hexdigest()


def _bucket_tensors(targets: BucketTargets) -> list[tuple[str, Tensor]]:
    if targets.entropy_N is None:
        raise BackendError("the targets have no teacher entropy", "Score with top_k_targets.")
    return [
        ("support_ids_NK", targets.support_ids_NK),
        ("support_logprobs_NK", targets.support_logprobs_NK),
        ("tail_logprob_N", targets.tail_logprob_N),
        ("entropy_N", targets.entropy_N),
    ]

"""Predicted peak bytes of each phase of a run, before anything is loaded. No torch is imported.

A phase is the weights that must be there, what it keeps for its whole time, and the most that a
pass holds at one moment. The counts per token were measured on Llama decoders with torch's own
profiler, and ``tests/core/training/test_memory_plan.py`` compares them again. Episodes are taken to
be as long as the recipe lets them be: shorter ones stay below the plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from core.models.shape import ModelShape
from core.recipe.schema.adapters import Lora

CHUNK_COPIES = 3
"""Logits of a chunk that are alive together: the student's, their gradient, the teacher's or a
temporary."""
SAMPLED_BYTES = 28
"""Bytes per logit while sampling: float32, and float64 three times (sorted, summed, shifted)."""


@dataclass(frozen=True)
class Sizes:
    """Physical sizes of a run."""

    slots: int
    """Rows of the engine."""
    rows: int
    """Trajectories of one pass of scoring and updating."""
    tokens: int
    """Longest episode."""
    chunk: int
    """Positions whose logits exist at the same time."""
    checkpointing: bool = False
    """Whether layers are run again in the backward pass."""
    eight_bit_moments: bool = False


@dataclass(frozen=True)
class PhasePlan:
    """One phase: bytes by what they are for."""

    name: str
    parts: Mapping[str, int]
    resting: int
    """Weights of the role that only waits; on the host under ``swap``."""

    @property
    def resident_bytes(self) -> int:
        """Peak with every model on the device."""
        return sum(self.parts.values()) + self.resting

    @property
    def swapped_bytes(self) -> int:
        """Peak with the waiting role on the host."""
        return sum(self.parts.values())


def forward_bytes(shape: ModelShape, rows: int, tokens: int, *, adapted: bool = False) -> int:
    """Return the most that a forward pass without gradients holds, one block at a time.

    Args:
        shape: The model.
        rows: Trajectories of the pass.
        tokens: Tokens of each.
        adapted: Whether float32 adapters compute beside the weights.
    """
    feed_forward = 3 * shape.inner + 4 * shape.hidden
    attention = 8 * max(shape.hidden, shape.heads * shape.head_width)
    own = max(feed_forward, attention) * shape.number_bytes
    beside = 0
    if adapted:  # what a half-precision state becomes for them, their product, and it scaled
        beside = shape.inner * 4 * (1 if shape.number_bytes == 4 else 3)
    return rows * tokens * (own + beside)


def saved_bytes(
    shape: ModelShape, rows: int, tokens: int, *, rank: int, checkpointing: bool = False
) -> int:
    """Return what a forward pass keeps for its backward pass, and what that pass adds.

    Args:
        shape: The student.
        rows: Trajectories of the pass.
        tokens: Tokens of each.
        rank: Numbers per token between the two matrices of a block's adapters, all together.
        checkpointing: Keep each block's input alone and run one block again at a time.
    """
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    block = 4 * shape.inner + 4 * shape.hidden + 2 * queries + 2 * keys
    per_block = block * shape.number_bytes + rank * 4
    if shape.number_bytes < 4:
        # Both norms compute in float32 and keep that, and so do adapters with their inputs.
        per_block += 4 * 4 * shape.hidden + (4 * shape.inner if rank else 0)
    moving = (2 * shape.inner + 4 * shape.hidden) * shape.number_bytes
    if checkpointing:
        blocks = shape.layers * shape.hidden * shape.number_bytes + per_block
    else:
        blocks = shape.layers * per_block
    return rows * tokens * (blocks + moving)


def plan_phases(
    student: ModelShape,
    teacher: ModelShape | None,
    lora: Lora | None,
    sizes: Sizes,
    *,
    teacher_lora: Lora | None = None,
    reference_lora: Lora | None = None,
    shared: bool = False,
) -> list[PhasePlan]:
    """Predict every phase.

    Args:
        student: The model that is trained.
        teacher: The model that scores; None for a plug-in.
        lora: The student's adapter; None trains every weight.
        sizes: Physical sizes.
        teacher_lora: The teacher's adapter.
        reference_lora: The adapter of a reference, which only waits: what it computes in an update
            is over before the backward pass, which holds more.
        shared: Whether all are adapters on one base.
    """
    adapter = student.adapter_weights(lora) if lora else 0
    trained = adapter or student.linear_weights + student.other_weights
    taught = teacher.adapter_weights(teacher_lora) * 4 if teacher and teacher_lora else 0
    own = student.weight_bytes + adapter * 4
    other = 0 if teacher is None else taught + (0 if shared else teacher.weight_bytes)
    waits = student.adapter_weights(reference_lora) * 4 if reference_lora else 0
    rank = lora.r * len(lora.target_modules) if lora else 0
    logits = CHUNK_COPIES * 4 * sizes.chunk
    return [
        PhasePlan("load", {"student": own}, other + waits),
        PhasePlan(
            "rollout",
            {
                "student": own,
                "keys and values": student.cache_bytes(sizes.slots, sizes.tokens),
                "sampling": sizes.slots * student.rows * SAMPLED_BYTES,
            },
            other + waits,
        ),
        PhasePlan(
            "score",
            {
                "teacher": other + (student.weight_bytes if shared else 0),
                "forward pass": forward_bytes(
                    teacher or student,
                    sizes.rows,
                    sizes.tokens,
                    adapted=teacher_lora is not None,
                ),
                "logits": logits * (teacher or student).rows,
            },
            (adapter * 4 if shared else own) + waits,
        ),
        PhasePlan(
            "update",
            {
                "student": own,
                "gradients": trained * 4,
                "moments": trained * (2 if sizes.eight_bit_moments else 8),
                "backward pass": saved_bytes(
                    student,
                    sizes.rows,
                    sizes.tokens,
                    rank=rank,
                    checkpointing=sizes.checkpointing,
                ),
                "logits": logits * student.rows,
            },
            other + waits,
        ),
    ]

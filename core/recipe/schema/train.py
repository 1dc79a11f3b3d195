"""Section ``train``: how many cycles, how much per cycle, and the optimizer."""

from typing import Literal

from pydantic import Field

from core.recipe.schema.section import Section

Schedule = Literal["constant", "linear", "cosine"]


class Train(Section):
    """Cycles of sampling, scoring and updating, and the optimizer that updates."""

    cycles: int = Field(default=4, ge=0, le=100_000)
    """Times that episodes are sampled, scored and trained on; 0 evaluates only."""
    rollouts_per_cycle: int = Field(default=8, ge=1, le=8192)
    """Episodes per cycle."""
    gradient_accumulation_steps: int = Field(default=8, ge=1, le=1024)
    """Episodes per optimizer step."""
    first_task: int | None = Field(default=None, ge=1, le=1_000_000)
    """Tasks of the seed's order that sampling and frozen data sets pass over at first; null passes
    over none. In a world, the cold start takes its demonstrations from the same order, so as many
    as ``cold_start.demonstrations`` let practice begin behind them."""
    opd_freshness: Literal["strict", "replay"] = "strict"
    """``strict``: one step per fresh batch; ``replay``: several steps on one batch."""
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    """Peak learning rate."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay per step, times the learning rate."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Longer gradients are scaled to this Euclidean norm."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps of linear warm-up."""
    lr_schedule: Schedule = "constant"
    """Shape of the learning rate after the warm-up."""
    optimizer: Literal["adamw", "adamw8bit"] = "adamw"
    """AdamW, or AdamW with 8-bit moments."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment."""
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    """Decay of the second moment."""
    adam_eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the second moment."""
    eval_every_cycles: int = Field(default=0, ge=0)
    """Evaluate after every this many cycles; 0 evaluates at the end only."""
    sft_warmup_cycles: int = Field(default=0, ge=0, le=100_000)
    """Supervised cycles before the first on-policy one, on the same schedule and optimizer."""
    stop_below_entropy: float | None = Field(default=None, gt=0)
    """Stop when the student's entropy on its own episodes, in nats per sampled token, lies below
    this for ``train.stop_after_cycles`` cycles; null never stops."""
    stop_below_success: float | None = Field(default=None, gt=0, le=1)
    """Stop when the share of episodes that it solves lies below this for as many cycles; null never
    stops."""
    stop_after_cycles: int = Field(default=3, ge=1)
    """Cycles in a row that end the run."""
    max_selected_training_tokens: int | None = Field(default=None, ge=1)
    """Stop when this many selected tokens were trained on; the last step is cut to fit."""
    max_generated_tokens: int | None = Field(default=None, ge=1)
    """Stop when this many of the student's own tokens were used; what it sampled beyond them is not
    trained on."""
    max_wall_seconds: float | None = Field(default=None, gt=0)
    """Stop after the step in which sampling, scoring and training have taken this many seconds;
    evaluations are not counted, and no two such runs need be equal."""

"""The smallest description of the steps that train: cold start and update."""

from typing import Literal

from core.recipe.dataset_spec import WindowSpec
from core.recipe.schema.loss import Aggregation, LossMode, ObjectiveName
from core.recipe.schema.train import Schedule
from core.recipe.specs import ModelSpec, SelectionSpec, Spec


class OptimizerSpec(Spec):
    """AdamW and the limit on the gradient."""

    name: Literal["adamw", "adamw8bit"]
    """Implementation of the moments."""
    weight_decay: float
    """Decoupled weight decay per step, times the learning rate."""
    betas: tuple[float, float]
    """Decays of the two moments."""
    eps: float
    """Added to the root of the second moment."""
    max_grad_norm: float
    """Longer gradients are scaled to this Euclidean norm."""


class ScheduleSpec(Spec):
    """Learning rate of the steps that one Prefect task takes."""

    base: float
    """Peak learning rate."""
    kind: Schedule
    """Shape after the warm-up."""
    warmup_steps: int
    """Optimizer steps of linear warm-up."""
    total_steps: int
    """Optimizer steps at which the shape ends."""
    first_step: int
    """Index on the schedule of the first step taken here."""


BudgetAxis = Literal["selected_training_tokens", "generated_tokens", "wall_time"]
"""What a budget counts."""


class BudgetSpec(Spec):
    """What ends a run before its last cycle once it is spent."""

    axis: BudgetAxis
    """What is counted."""
    limit: int | float
    """Tokens, or seconds."""


class ColdStartSpec(Spec):
    """Supervised training on oracle traces: all its cycles at once."""

    cycles: int
    """Supervised cycles."""
    rollouts_per_cycle: int
    """Oracle traces per cycle."""
    gradient_accumulation_steps: int
    """Oracle traces per optimizer step."""
    optimizer: OptimizerSpec
    """Optimizer."""
    schedule: ScheduleSpec
    """Learning rate."""
    selection: SelectionSpec
    """Which tokens of a trace count."""
    aggregation: Aggregation
    """How tokens and traces are averaged."""
    demonstrations: int | None = None
    """Different oracle traces; null takes all."""
    carries_optimizer: bool
    """The first on-policy cycle continues the moments and the schedule, not the weights alone."""
    seed: int
    """Run seed: order of the tasks, selection, dropout."""
    budget: BudgetSpec | None = None
    """Of a supervised run; what comes before on-policy cycles has none."""


class StopSpec(Spec):
    """When a student counts as collapsed."""

    min_entropy: float | None
    """Least entropy of the student on its own episodes, nats per sampled token; null is any."""
    min_success: float | None
    """Least share of solved episodes; null is any."""
    after_cycles: int
    """Cycles in a row below a bound that end the run."""


class UpdateSpec(Spec):
    """Train the student on the scored episodes of one cycle."""

    loss_mode: LossMode
    """Which tokens are compared."""
    divergence: ObjectiveName
    """Registered objective."""
    temperature: float
    """Divides the student's logits, and the teacher's unless it has its own."""
    teacher_temperature: float | None = None
    """Divides the teacher's logits; null where both have one."""
    scale_by_temperature_squared: bool
    """Multiply the divergence by temperature²."""
    teacher_weight: float | None = None
    """Weight of the teacher in a Jensen-Shannon mixture; null, like each of the following numbers,
    for an objective that does not read it."""
    tail_epsilon: float | None = None
    """Least probability of the rest bucket."""
    union_top_k: int | None = None
    """Tokens that either side contributes to a union support."""
    skew: float | None = None
    """Share of the first distribution in the second one of a skewed KL."""
    head_mass: float | None = None
    """Probability of the teacher's head in adaptive KL."""
    entropy_threshold: float | None = None
    """Teacher entropy above which forward KL is added, nats."""
    log_prob_min_clamp: float | None = None
    """Lower limit of log-probabilities, nats."""
    loss_max_clamp: float | None = None
    """Upper limit of a position's loss or advantage, nats."""
    clip_ratio_low: float | None = None
    """Lower half width of the clipping interval."""
    clip_ratio_high: float | None = None
    """Upper half width of the clipping interval."""
    clip_ratio_c: float | None = None
    """Dual clip."""
    nll_weight: float
    """Share of the sampled token's negative log-likelihood."""
    aggregation: Aggregation
    """How tokens and episodes are averaged."""
    optimizer: OptimizerSpec
    """Optimizer."""
    schedule: ScheduleSpec
    """Learning rate."""
    gradient_accumulation_steps: int
    """Episodes per optimizer step."""
    freshness: Literal["strict", "replay", "frozen"]
    """One step per fresh batch, several on one batch, or any number on a data set that no student
    adds to."""
    cycle: int
    """Index of the cycle."""
    run_seed: int
    """Seed of dropout."""
    stop: StopSpec | None = None
    """When the run ends early; null is never."""
    budget: BudgetSpec | None = None
    """What the cycles may spend; null is anything."""
    window: WindowSpec | None = None
    """Which episodes of a frozen data set; null is all that were sampled for this cycle."""
    reference: ModelSpec | None = None
    """Frozen model whose divergence from the student is recorded; null records none."""

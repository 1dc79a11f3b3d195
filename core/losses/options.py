"""Numbers that objectives read."""

from dataclasses import dataclass

from core.losses.buckets import TAIL_EPSILON


@dataclass(frozen=True)
class ObjectiveOptions:
    """Numbers of every objective; each reads its own and ignores the others."""

    temperature: float = 1.0
    """Loss temperature τ: divides the student's logits, and the teacher's unless it has its own.
    Not the sampling temperature."""
    teacher_temperature: float | None = None
    """Divides the teacher's logits; None for the loss temperature."""
    scale_by_temperature_squared: bool = True
    """Multiply a divergence by the square of the loss temperature."""
    teacher_weight: float = 0.5
    """w of the Jensen–Shannon mixture M = w·teacher + (1−w)·student."""
    tail_epsilon: float = TAIL_EPSILON
    """Smallest probability of a tail bucket."""
    union_top_k: int | None = None
    """Reduce full logits to the union of both sides' k most probable tokens, plus a tail."""
    skew: float = 0.1
    """α of the skewed KLs."""
    head_mass: float = 0.5
    """μ of adaptive KL."""
    entropy_threshold: float = 0.8
    """Nats of teacher entropy above which entropy-aware KL adds the forward direction."""
    log_prob_min_clamp: float | None = None
    """verl: floor of log-probabilities in ``forward_kl_topk``."""
    loss_max_clamp: float | None = None
    """verl: ceiling of ``forward_kl_topk``, bound of the advantage in ``verl_pg_k1``."""
    clip_ratio_low: float = 0.2
    """Lower PPO clip."""
    clip_ratio_high: float = 0.2
    """Upper PPO clip."""
    clip_ratio_c: float = 3.0
    """Dual clip."""

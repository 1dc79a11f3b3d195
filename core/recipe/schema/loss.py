"""Section ``loss``: what is minimised at a selected position, in nats."""

from typing import Any, Literal

from pydantic import Field, model_validator

from core.recipe.schema.section import Section

LossMode = Literal[
    "exact_full_vocab",
    "bucketed_topk_tail",
    "union_topk",
    "shared_vocab",
    "forward_kl_topk",
    "verl_pg_k1",
]
Divergence = Literal[
    "forward_kl",
    "reverse_kl",
    "jsd",
    "rescaled_jsd",
    "skew_forward_kl",
    "skew_reverse_kl",
    "adaptive_kl",
    "entropy_aware_kl",
]
ObjectiveName = Literal[Divergence, "forward_kl_topk", "verl_pg_k1"]
Aggregation = Literal["native_per_trajectory", "token-mean"]


class Loss(Section):
    """The divergence between student and teacher, and how positions are averaged."""

    mode: LossMode = "bucketed_topk_tail"
    """Which tokens are compared: the whole vocabulary; the teacher's ``top_k`` and one bucket for
    the rest; the ``top_k`` of teacher and student together and one bucket for the rest; the tokens
    that two vocabularies share and one bucket for the rest; the teacher's ``top_k`` without a rest
    as in verl; or the sampled token as in verl."""
    aggregation: Aggregation = "native_per_trajectory"
    """Mean over episodes of the mean over tokens, or one mean over all tokens of the step."""
    divergence: Divergence = "reverse_kl"
    """``forward_kl`` = KL(teacher‖student), ``reverse_kl`` = KL(student‖teacher), ``jsd`` of a
    mixture of both, and their relatives; ``docs/objectives.md`` has the equations."""
    temperature: float = Field(default=1.0, gt=0, le=20)
    """Divides the student's logits inside the divergence, and the teacher's unless it has its own;
    ``rollout.temperature`` is a third number."""
    teacher_temperature: float | None = Field(default=None, gt=0, le=20)
    """Divides the teacher's logits inside the divergence; null for ``temperature``."""
    scale_by_temperature_squared: bool = True
    """Multiply the divergence by temperature² so that gradients keep their size."""
    top_k: int = Field(default=64, ge=1, le=262_144)
    """Tokens kept per position, of either side where ``mode`` is ``union_topk``;
    ``exact_full_vocab`` keeps all and says 1."""
    jsd_beta: float = Field(default=0.5, ge=0, le=1)
    """Weight of the teacher in the Jensen-Shannon mixture, rescaled or not; inside (0, 1)."""
    skew: float = Field(default=0.1, gt=0, lt=1)
    """Share of the first distribution that a skewed KL mixes into its second."""
    head_mass: float = Field(default=0.5, gt=0, lt=1)
    """Probability of the teacher's head, where ``adaptive_kl`` measures the gap apart."""
    entropy_threshold: float = Field(default=0.8, ge=0)
    """Teacher entropy above which ``entropy_aware_kl`` adds the forward direction, nats."""
    tail_epsilon: float = Field(default=1e-9, gt=0, lt=1e-2)
    """Least probability of the rest bucket."""
    log_prob_min_clamp: float | None = Field(default=None, le=0)
    """Lower limit of log-probabilities, nats; ``forward_kl_topk`` only."""
    loss_max_clamp: float | None = Field(default=None, gt=0)
    """Upper limit of one position's loss, or of the advantage's size, nats; verl modes only."""
    sampled_token_nll_weight: float = Field(default=0.0, ge=0, le=1)
    """Share c of the sampled token's negative log-likelihood: (1-c)·divergence + c·NLL."""
    policy_loss_mode: Literal["vanilla"] = "vanilla"
    """Clipped surrogate; ``verl_pg_k1`` only."""
    clip_ratio: float = Field(default=0.2, ge=0, lt=1)
    """Half width of the clipping interval; the lower and upper one have keys of their own."""
    clip_ratio_low: float = Field(default=0.2, ge=0, lt=1)
    """Lower half width; ``verl_pg_k1`` only."""
    clip_ratio_high: float = Field(default=0.2, ge=0, lt=1)
    """Upper half width; ``verl_pg_k1`` only."""
    clip_ratio_c: float = Field(default=3.0, gt=1)
    """Limit of the dual clip for negative advantages; ``verl_pg_k1`` only."""
    cross_tokenizer: bool = False
    """Let the teacher have another tokenizer, and compare at the same bytes: ``shared_vocab`` the
    tokens that both have, ``verl_pg_k1`` sums over texts. Where it is false, other tokenizers are
    refused."""
    estimator_implementation_version: int | None = Field(default=None, ge=1)
    """Version of the policy-gradient estimator; ``verl_pg_k1`` only."""

    @model_validator(mode="before")
    @classmethod
    def _exact_mode_keeps_no_support(cls, given: Any) -> Any:
        """An omitted ``top_k`` means 1 where the whole distribution is used."""
        if isinstance(given, dict) and given.get("mode") == "exact_full_vocab":
            return {"top_k": 1, **given}
        return given

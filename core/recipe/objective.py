"""What section ``loss`` asks for: one registered objective, and the numbers that it reads.

The objectives themselves are ``core.losses``, which needs torch; a recipe is read without it.
"""

from typing import Any, Literal

from core.recipe.recipe import Recipe
from core.recipe.schema.loss import Loss, LossMode, ObjectiveName

HANDED_OVER: dict[LossMode, LossMode] = {
    "exact_full_vocab": "exact_full_vocab",
    "union_topk": "exact_full_vocab",
    "shared_vocab": "shared_vocab",
    "bucketed_topk_tail": "bucketed_topk_tail",
    "forward_kl_topk": "bucketed_topk_tail",
    "verl_pg_k1": "verl_pg_k1",
}
"""What the teacher says per position: its hidden states, its top-k and their tail, or the sampled
token's log-probability. Modes that are told the same share one set of targets. The student's half
of a union support is known at the update alone, so the teacher hands over everything; so it does,
at the bytes where both tokenizers meet, of the tokens that two vocabularies share."""

HIDDEN_STATES: tuple[LossMode, ...] = ("exact_full_vocab", "shared_vocab")
"""What is handed over as the teacher's hidden states, to be read with its head at the update."""

TAIL_MODES: tuple[LossMode, ...] = ("bucketed_topk_tail", "union_topk", "shared_vocab")
CROSS_TOKENIZER_MODES: tuple[LossMode, ...] = ("shared_vocab", "verl_pg_k1")
"""Modes that can compare two tokenizers."""

READERS: dict[str, tuple[ObjectiveName, ...]] = {
    "jsd_beta": ("jsd", "rescaled_jsd"),
    "skew": ("skew_forward_kl", "skew_reverse_kl"),
    "head_mass": ("adaptive_kl",),
    "entropy_threshold": ("entropy_aware_kl",),
    "log_prob_min_clamp": ("forward_kl_topk",),
    "loss_max_clamp": ("forward_kl_topk", "verl_pg_k1"),
    "clip_ratio_low": ("verl_pg_k1",),
    "clip_ratio_high": ("verl_pg_k1",),
    "clip_ratio_c": ("verl_pg_k1",),
}
"""Key of section ``loss`` -> the objectives that read it; any other ignores it."""

RENAMED = {"jsd_beta": "teacher_weight"}
"""Keys that an update knows by another name."""


RunKind = Literal["sft", "offline_kd", "opd", "online_distillation_with_replay"]
"""``run.mode``, where a batch that is trained on more than once is not called on-policy."""

METHODS: dict[RunKind, str] = {
    "sft": "sft_cross_entropy",
    "offline_kd": "offline_knowledge_distillation",
    "opd": "on_policy_distillation",
    "online_distillation_with_replay": "online_distillation_with_replay",
}
"""What a run does, in the words of the system that recipes come from."""


def run_kind(recipe: Recipe) -> RunKind:
    """Return what kind of run a recipe describes."""
    if recipe.run.mode == "opd" and recipe.train.opd_freshness == "replay":
        return "online_distillation_with_replay"
    return recipe.run.mode


def objective_name(loss: Loss) -> ObjectiveName:
    """Return the registered objective: a mode of verl's is one by itself."""
    if loss.mode in ("forward_kl_topk", "verl_pg_k1"):
        return loss.mode
    return loss.divergence


def teacher_temperature(loss: Loss) -> float:
    """Return what divides the teacher's logits: its own temperature, or the loss's."""
    return loss.temperature if loss.teacher_temperature is None else loss.teacher_temperature


def numbers(loss: Loss) -> dict[str, Any]:
    """Return the numbers of an update that its objective reads, under the update's names."""
    name, own = objective_name(loss), teacher_temperature(loss)
    read = {
        RENAMED.get(key, key): getattr(loss, key)
        for key, readers in READERS.items()
        if name in readers
    }
    return {
        "teacher_temperature": None if own == loss.temperature else own,
        "union_top_k": loss.top_k if loss.mode == "union_topk" else None,
        "tail_epsilon": loss.tail_epsilon if loss.mode in TAIL_MODES else None,
        **read,
    }


def phrase(loss: Loss) -> str:
    """Say what is minimised over which tokens."""
    supports = {
        "bucketed_topk_tail": f"top-{loss.top_k} + tail",
        "union_topk": f"top-{loss.top_k} of either side + tail",
        "exact_full_vocab": "exact full vocab",
        "shared_vocab": "the tokens that both vocabularies share + rest",
        "forward_kl_topk": f"top-{loss.top_k} without a tail",
        "verl_pg_k1": "the sampled tokens",
    }
    return f"{objective_name(loss)} over {supports[loss.mode]}"


def objective_words(recipe: Recipe) -> str:
    """Say what is minimised on whose states; ``replay`` is never called on-policy."""
    if recipe.run.mode == "sft":
        return "supervised fine-tuning: cross-entropy on oracle traces"
    if recipe.run.mode == "offline_kd":
        kind = "offline distillation"
    elif recipe.train.opd_freshness == "replay":
        kind = "online distillation with replay"
    else:
        kind = "strict on-policy distillation"
    return f"{kind}: {phrase(recipe.loss)}"


def trained_states(recipe: Recipe) -> str:
    """Say on whose states a run trains after its cold start: ``none`` where it does not."""
    if not recipe.train.cycles:
        return "none"
    if recipe.run.mode == "sft" or (
        recipe.run.mode == "offline_kd" and recipe.offline_kd.trajectory_source == "oracle"
    ):
        return "oracle"
    if recipe.run.mode == "offline_kd":
        frozen = recipe.offline_kd.trajectory_source == "frozen_student"
        return "frozen student" if frozen else "persisted"
    return "replayed" if recipe.train.opd_freshness == "replay" else "fresh"

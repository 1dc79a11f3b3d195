"""Rules about the divergence, its compatibility modes and the gate."""

from collections.abc import Iterator

from core.recipe.objective import CROSS_TOKENIZER_MODES, HANDED_OVER, HIDDEN_STATES, READERS
from core.recipe.problems import Problem, problem
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime


def jensen_shannon_mixes_both(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """8: at 0 or 1 the mixture is one of the two models and the divergence is 0."""
    divergence = recipe.loss.divergence
    if divergence in READERS["jsd_beta"] and recipe.loss.jsd_beta in (0, 1):
        yield problem(
            "loss.jsd_beta",
            f"must lie strictly between 0 and 1 where loss.divergence is {divergence}",
            "Use 0.5, or loss.divergence: forward_kl or reverse_kl.",
        )


def exact_has_no_support(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """8: the whole vocabulary leaves nothing for top-k to choose."""
    if recipe.loss.mode == "exact_full_vocab" and recipe.loss.top_k != 1:
        yield problem(
            "loss.top_k",
            "has no meaning where loss.mode is exact_full_vocab",
            "Leave loss.top_k out.",
        )


def exact_is_not_rounded(recipe: Recipe, runtime: Runtime) -> Iterator[Problem]:
    """8: exact targets are not stored in half precision."""
    half = runtime.inherited.cache_dtype == "float16"
    if HANDED_OVER[recipe.loss.mode] in HIDDEN_STATES and half:
        yield problem(
            "runtime.inherited.cache_dtype",
            f"float16 targets are not exact, and loss.mode is {recipe.loss.mode}",
            "Set cache.dtype: float32.",
        )


def supervised_loss_is_nll(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """9: a supervised run has no divergence to mix with."""
    if recipe.run.mode == "sft" and recipe.loss.sampled_token_nll_weight not in (0, 1):
        yield problem(
            "loss.sampled_token_nll_weight",
            "is a mixture, and run.mode sft has no divergence to mix with",
            "Use 0 or 1; both mean cross-entropy here.",
        )


def distillation_has_a_divergence(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """9: at weight 1 the student would imitate its own samples, and the teacher nobody."""
    if recipe.run.mode != "sft" and recipe.loss.sampled_token_nll_weight == 1:
        yield problem(
            "loss.sampled_token_nll_weight",
            f"leaves the divergence no weight, and run.mode {recipe.run.mode} trains on it",
            "Use less than 1, or run.mode: sft for cross-entropy on oracle traces.",
        )


def top_k_forward_kl_is_verls(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """10: ``forward_kl_topk`` reproduces one objective of verl and nothing beside it."""
    if recipe.loss.mode != "forward_kl_topk":
        return
    needed = {
        "loss.divergence": (recipe.loss.divergence, "forward_kl"),
        "loss.scale_by_temperature_squared": (recipe.loss.scale_by_temperature_squared, False),
        **_needed_by_both(recipe),
    }
    yield from _unmet(needed, "loss.mode", "forward_kl_topk")


def policy_gradient_is_verls(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """10: ``verl_pg_k1`` weighs every sampled token by 1, and its ratio is to the whole student.

    Every trajectory keeps its sampler's log-probabilities, so ``rollout.record_logprobs`` need not
    be asked for. Tempered or truncated sampling would make the ratio one between two different
    families of distributions.
    """
    if recipe.loss.mode != "verl_pg_k1":
        return
    selection, rollout = recipe.selection, recipe.rollout
    needed = {
        "run.mode": (recipe.run.mode, "opd"),
        "selection.selector": (selection.selector, "all_model_tokens"),
        "selection.max_positions_per_trajectory": (selection.max_positions_per_trajectory, None),
        "selection.critical_weight": (selection.critical_weight, 1),
        "selection.other_weight": (selection.other_weight, 1),
        "selection.skip_first_tokens": (selection.skip_first_tokens, 0),
        "rollout.temperature": (rollout.temperature, 1),
        "rollout.top_p": (rollout.top_p, 1),
        "rollout.top_k": (rollout.top_k, 0),
        **_needed_by_both(recipe),
    }
    yield from _unmet(needed, "loss.mode", "verl_pg_k1")


def other_tokenizers_share_bytes(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """Two vocabularies have no common distribution; a hint has no place in the byte alignment."""
    mode = recipe.loss.mode
    if recipe.loss.cross_tokenizer and mode not in CROSS_TOKENIZER_MODES:
        yield problem(
            "loss.mode",
            f"{mode} compares tokens of one vocabulary, and loss.cross_tokenizer is true",
            f"Use {' or '.join(CROSS_TOKENIZER_MODES)}.",
        )
    if recipe.loss.cross_tokenizer:
        needed: dict[str, tuple[object, object]] = {
            "models.teacher.mode": (recipe.models.teacher.mode, "standard")
        }
        yield from _unmet(needed, "loss.cross_tokenizer", "true")


def other_tokenizers_are_asked_for(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """What compares two tokenizers says so, and so does a toy pair that has two."""
    causes = {
        "loss.mode is shared_vocab": recipe.loss.mode == "shared_vocab",
        "models.teacher.toy_vocabulary is second": recipe.run.mode != "sft"
        and recipe.models.backend == "toy"
        and recipe.models.teacher.toy_vocabulary != "first",
    }
    for cause, holds in causes.items():
        if holds and not recipe.loss.cross_tokenizer:
            yield problem("loss.cross_tokenizer", f"must be true where {cause}", "Set it to true.")


def _needed_by_both(recipe: Recipe) -> dict[str, tuple[object, object]]:
    loss = recipe.loss
    return {
        "loss.aggregation": (loss.aggregation, "token-mean"),
        "loss.temperature": (loss.temperature, 1),
        "loss.teacher_temperature": (
            1 if loss.teacher_temperature is None else loss.teacher_temperature,
            1,
        ),
        "loss.sampled_token_nll_weight": (loss.sampled_token_nll_weight, 0),
    }


def _unmet(needed: dict[str, tuple[object, object]], cause: str, is_: str) -> Iterator[Problem]:
    for key, (value, wanted) in needed.items():
        if value != wanted:
            words = {None: "null", True: "true", False: "false"}.get(wanted, wanted)
            yield problem(key, f"must be {words} where {cause} is {is_}", f"Set it to {words}.")


def gate_belongs_to_its_selector(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """15: the gated selector has a gate, and no other selector does."""
    gated = recipe.selection.selector == "verifier_gated"
    if gated != (recipe.selection.gate is not None):
        yield problem(
            "selection.gate",
            "belongs to selection.selector: verifier_gated, and only to it",
            "Give both or neither.",
        )


def rule_belongs_to_its_selector(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """A selector of one's own has code, and no other selector does."""
    if (recipe.selection.selector == "plugin") != (recipe.selection.plugin is not None):
        yield problem(
            "selection.plugin",
            "belongs to selection.selector: plugin, and only to it",
            "Give both or neither.",
        )


def teacher_of_ones_own_gives_logits(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """A plug-in has no head that an update could read, no place for a hint and no tokenizer."""
    if recipe.models.teacher.plugin is None:
        return
    if HANDED_OVER[recipe.loss.mode] == "exact_full_vocab":
        yield problem(
            "loss.mode",
            "hands over the hidden states of a model, and models.teacher.plugin has none",
            "Use bucketed_topk_tail; where loss.top_k is the vocabulary it is exact.",
        )
    needed: dict[str, tuple[object, object]] = {
        "models.teacher.mode": (recipe.models.teacher.mode, "standard"),
        "loss.cross_tokenizer": (recipe.loss.cross_tokenizer, False),
    }
    yield from _unmet(needed, "models.teacher.plugin", "given")


def gate_was_frozen(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """15: a gate that may still move after the test was seen measures nothing."""
    gate = recipe.selection.gate
    if gate is not None and not gate.frozen_before_test:
        yield problem(
            "selection.gate.frozen_before_test",
            "must be true",
            "Calibrate on train or eval, freeze the gate, then test.",
        )

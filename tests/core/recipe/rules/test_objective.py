import pytest

from core.recipe.rules import objective

TOP_K = (
    "loss.mode=forward_kl_topk",
    "loss.divergence=forward_kl",
    "loss.aggregation=token-mean",
    "loss.scale_by_temperature_squared=false",
)
PG = ("loss.mode=verl_pg_k1", "loss.aggregation=token-mean")


def keys(problems) -> list[str]:
    return [".".join(each.path) for each in problems]


@pytest.mark.parametrize(("beta", "count"), [(0, 1), (1, 1), (0.001, 0), (0.999, 0)])
def test_jensen_shannon_weight_is_inside_the_interval(judged, beta, count):
    rule, given = objective.jensen_shannon_mixes_both, f"loss.jsd_beta={beta}"
    for divergence in ("jsd", "rescaled_jsd"):
        found = judged(rule, given, f"loss.divergence={divergence}")
        assert keys(found) == ["loss.jsd_beta"] * count
    assert judged(rule, given) == []


@pytest.mark.parametrize(("top_k", "count"), [(2, 1), (64, 1), (1, 0)])
def test_exact_mode_refuses_a_written_top_k(judged, top_k, count):
    found = judged(
        objective.exact_has_no_support, "loss.mode=exact_full_vocab", f"loss.top_k={top_k}"
    )
    assert keys(found) == ["loss.top_k"] * count


def test_exact_mode_refuses_half_precision_targets(judged):
    rule, half = objective.exact_is_not_rounded, "cache.dtype=float16"
    for mode in ("exact_full_vocab", "union_topk", "shared_vocab"):
        found = judged(rule, f"loss.mode={mode}", half)
        assert keys(found) == ["runtime.inherited.cache_dtype"]
    assert judged(rule, half) == []


@pytest.mark.parametrize(("weight", "count"), [(0, 0), (1, 0), (0.5, 1)])
def test_supervised_run_has_no_mixture(judged, weight, count):
    rule, given = objective.supervised_loss_is_nll, f"loss.sampled_token_nll_weight={weight}"
    assert keys(judged(rule, given, "run.mode=sft")) == ["loss.sampled_token_nll_weight"] * count
    assert judged(rule, given) == []


@pytest.mark.parametrize(("weight", "count"), [(0, 0), (0.99, 0), (1, 1)])
def test_distillation_keeps_some_of_its_divergence(judged, weight, count):
    rule = objective.distillation_has_a_divergence
    given = f"loss.sampled_token_nll_weight={weight}"
    found = judged(rule, given)
    assert keys(found) == ["loss.sampled_token_nll_weight"] * count
    assert all("run.mode: sft" in each.hint for each in found)
    assert judged(rule, given, "run.mode=sft") == []


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("loss.divergence=reverse_kl", "loss.divergence"),
        ("loss.aggregation=native_per_trajectory", "loss.aggregation"),
        ("loss.temperature=2", "loss.temperature"),
        ("loss.teacher_temperature=2", "loss.teacher_temperature"),
        ("loss.scale_by_temperature_squared=true", "loss.scale_by_temperature_squared"),
        ("loss.sampled_token_nll_weight=0.1", "loss.sampled_token_nll_weight"),
    ],
)
def test_verls_top_k_mode_is_that_objective_alone(judged, override, key):
    rule = objective.top_k_forward_kl_is_verls
    assert judged(rule, *TOP_K) == []
    assert keys(judged(rule, *TOP_K, override)) == [key]
    assert judged(rule, override) == []


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("run.mode=sft", "run.mode"),
        ("selection.selector=hybrid", "selection.selector"),
        (
            "selection.max_positions_per_trajectory=9",
            "selection.max_positions_per_trajectory",
        ),
        ("selection.critical_weight=2", "selection.critical_weight"),
        ("selection.other_weight=2", "selection.other_weight"),
        ("selection.skip_first_tokens=1", "selection.skip_first_tokens"),
        ("rollout.temperature=0.7", "rollout.temperature"),
        ("rollout.top_p=0.9", "rollout.top_p"),
        ("rollout.top_k=20", "rollout.top_k"),
        ("loss.teacher_temperature=0.5", "loss.teacher_temperature"),
        ("loss.aggregation=native_per_trajectory", "loss.aggregation"),
        ("loss.temperature=2", "loss.temperature"),
        ("loss.sampled_token_nll_weight=0.1", "loss.sampled_token_nll_weight"),
    ],
)
def test_verls_policy_gradient_needs_every_token_at_weight_one(judged, override, key):
    rule = objective.policy_gradient_is_verls
    assert judged(rule, *PG) == []
    assert keys(judged(rule, *PG, override)) == [key]


@pytest.mark.parametrize("base", [TOP_K, PG])
def test_verls_modes_are_accepted_without_asking_for_log_probs(accepted, base):
    """Every trajectory keeps them."""
    assert accepted(*base).notes == []


@pytest.mark.parametrize("base", [PG, ("loss.mode=shared_vocab",)])
@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("loss.mode=bucketed_topk_tail", "loss.mode"),
        ("loss.mode=exact_full_vocab", "loss.mode"),
        ("models.teacher.mode=privileged_context", "models.teacher.mode"),
    ],
)
def test_another_tokenizer_is_for_modes_that_compare_bytes(judged, base, override, key):
    rule, given = objective.other_tokenizers_share_bytes, "loss.cross_tokenizer=true"
    assert judged(rule, *base, given) == []
    assert keys(judged(rule, *base, given, override)) == [key]
    assert judged(rule, override) == []


@pytest.mark.parametrize(
    "override", ["loss.mode=shared_vocab", "models.teacher.toy_vocabulary=second"]
)
def test_another_tokenizer_is_off_until_it_is_asked_for(judged, override):
    """C67: a teacher that would be fed with the student's ids is refused before anything runs."""
    rule, given = objective.other_tokenizers_are_asked_for, "loss.cross_tokenizer=true"
    assert keys(judged(rule, override)) == ["loss.cross_tokenizer"]
    assert judged(rule, override, given) == []
    assert judged(rule) == []


def test_gate_and_gated_selector_come_together(judged):
    rule, selector = objective.gate_belongs_to_its_selector, "selection.selector=verifier_gated"
    gate = "selection.gate.version=v1"
    assert keys(judged(rule, selector)) == ["selection.gate"]
    assert keys(judged(rule, gate)) == ["selection.gate"]
    assert judged(rule, selector, gate) == []


def test_gate_that_is_not_frozen(judged):
    rule, gate = objective.gate_was_frozen, "selection.gate.version=v1"
    found = judged(rule, gate, "selection.gate.frozen_before_test=false")
    assert keys(found) == ["selection.gate.frozen_before_test"]
    assert judged(rule, gate) == []

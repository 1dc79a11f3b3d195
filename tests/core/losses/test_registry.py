import pytest
import torch

from core.losses import buckets, divergence
from core.losses.options import ObjectiveOptions
from core.losses.registry import OBJECTIVES, objective_for
from core.losses.targets import BucketTargets, LogitTargets, SampledTargets

GENERATOR = torch.Generator().manual_seed(2)
T_NV = torch.randn(4, 7, generator=GENERATOR, dtype=torch.float64)
S_NV = torch.randn(4, 7, generator=GENERATOR, dtype=torch.float64)
PAIRS = [("forward_kl", "forward_kl"), ("reverse_kl", "reverse_kl"), ("jsd", "jensen_shannon")]


@pytest.mark.parametrize(("name", "function"), PAIRS)
def test_a_registered_objective_is_the_public_function_of_its_name(name, function):
    options = ObjectiveOptions(temperature=2.0)
    exact_N = objective_for(name, LogitTargets).evaluate(LogitTargets(T_NV), S_NV, options)
    assert torch.equal(exact_N, getattr(divergence, function)(T_NV, S_NV, temperature=2.0))
    targets = buckets.top_k_targets(T_NV, 2, 2.0)
    bucketed_N = objective_for(name, BucketTargets).evaluate(targets, S_NV, options)
    assert torch.equal(bucketed_N, getattr(buckets, function)(targets, S_NV))


def test_the_registry_holds_the_family():
    assert sorted(OBJECTIVES) == [
        "adaptive_kl", "entropy_aware_kl", "forward_kl", "forward_kl_topk", "jsd", "rescaled_jsd",
        "reverse_kl", "skew_forward_kl", "skew_reverse_kl", "verl_pg_k1",
    ]  # fmt: skip


def test_an_unknown_objective_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="known: adaptive_kl, entropy_aware_kl"):
        objective_for("wasserstein", LogitTargets)


def test_an_objective_is_refused_for_targets_that_it_does_not_read():
    with pytest.raises(ValueError, match="known: verl_pg_k1"):
        objective_for("reverse_kl", SampledTargets)


def test_k1_as_a_loss_is_refused_by_name():
    """C44."""
    with pytest.raises(ValueError, match="does not contain the teacher"):
        objective_for("k1", SampledTargets)

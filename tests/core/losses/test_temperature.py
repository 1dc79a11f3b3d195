import math

import pytest
import torch

from core.losses.buckets import top_k_targets
from core.losses.chunked import selected_position_loss
from core.losses.registry import OBJECTIVES
from core.losses.targets import BucketTargets, LogitTargets
from core.losses.temperature import at_temperature, gain, of_teacher

GENERATOR = torch.Generator().manual_seed(41)
T_NV = torch.randn(6, 9, generator=GENERATOR, dtype=torch.float64) * 2
S_NV = torch.randn(6, 9, generator=GENERATOR, dtype=torch.float64) * 2
MIXED = [entry for entry in OBJECTIVES.values() if LogitTargets in entry.reads]


def evaluate(name, kind, teacher_NV, **options):
    tau = options.get("teacher_temperature") or options["temperature"]
    targets = top_k_targets(teacher_NV, 3, tau) if kind == "top-k" else LogitTargets(teacher_NV)
    output = selected_position_loss(
        S_NV, lambda h: h, targets, torch.ones(6), chunk_size=4, divergence=name, backward=True,
        union_top_k=3 if kind == "union" else None, **options,
    )  # fmt: skip
    return output.objective_N, output.grad_hidden_NH, output.teacher_entropy_N


def test_temperature_divides_logits_and_its_square_scales_the_result():
    assert at_temperature(torch.tensor([[2.0, -4.0]]), 2.0).tolist() == [[1.0, -2.0]]
    assert (gain(2.0, True), gain(2.0, False)) == (4.0, 1.0)
    assert (of_teacher(None, 2.0), of_teacher(0.5, 2.0)) == (2.0, 0.5)


@pytest.mark.parametrize("kind", ["exact", "union", "top-k"])
@pytest.mark.parametrize("objective", MIXED, ids=lambda entry: entry.name)
def test_the_teacher_s_temperature_divides_the_teacher_alone(objective, kind):
    """A teacher at τ of its own is the same teacher with logits scaled beforehand."""
    own = evaluate(objective.name, kind, T_NV, temperature=2.0, teacher_temperature=0.5)
    scaled = evaluate(objective.name, kind, T_NV * 4.0, temperature=2.0)
    for ours, expected in zip(own, scaled, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", ["exact", "union", "top-k"])
def test_an_equal_temperature_of_the_teacher_s_own_changes_nothing(kind):
    shared = evaluate("reverse_kl", kind, T_NV, temperature=2.0)
    own = evaluate("reverse_kl", kind, T_NV, temperature=2.0, teacher_temperature=2.0)
    assert all(torch.equal(a, b) for a, b in zip(shared, own, strict=True))


def test_buckets_taken_at_another_temperature_than_the_teacher_s_are_refused():
    targets = top_k_targets(T_NV, 3, 1.0)
    with pytest.raises(ValueError, match=r"temperature 0\.5 differs from 1\.0"):
        selected_position_loss(
            S_NV, lambda h: h, targets, torch.ones(6), chunk_size=4, teacher_temperature=0.5
        )
    assert isinstance(targets, BucketTargets)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_teacher_s_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature"):
        selected_position_loss(
            S_NV, lambda h: h, LogitTargets(T_NV), torch.ones(6), chunk_size=4,
            teacher_temperature=temperature,
        )  # fmt: skip

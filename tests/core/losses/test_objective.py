import pytest
import torch

from core.losses.buckets import top_k_targets
from core.losses.chunked import selected_position_loss
from core.losses.options import ObjectiveOptions
from core.losses.registry import OBJECTIVES
from core.losses.targets import BucketTargets, LogitTargets, SampledTargets

KINDS = {"exact": LogitTargets, "union": LogitTargets, "top-k": BucketTargets}
T_NV = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 3.0, 0.0]], dtype=torch.float64)
S_NV = torch.tensor([[0.0, 1.0, 2.0, -1.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)


def targets_of(kind):
    return top_k_targets(T_NV, 1) if kind == "top-k" else LogitTargets(T_NV)


def diagnostics(name, targets, logits_NV=S_NV, **options):
    output = selected_position_loss(
        logits_NV, lambda h: h, targets, torch.ones(len(targets)), chunk_size=1,
        divergence=name, **options,
    )  # fmt: skip
    return {key: column.tolist() for key, column in output.diagnostics.items()}


def test_the_masses_on_the_teacher_s_support_are_reported():
    found = diagnostics("reverse_kl", targets_of("top-k"))
    p, q = T_NV.softmax(-1), S_NV.softmax(-1)
    assert found["teacher_mass"] == pytest.approx([float(p[0, 0]), float(p[1, 2])], rel=1e-9)
    assert found["student_mass"] == pytest.approx([float(q[0, 0]), float(q[1, 2])], rel=1e-9)


def test_a_student_that_left_the_support_is_charged_and_its_mass_there_is_reported():
    """C29: renormalised inside the top-k, this student would have KL 0 and gradient 0."""
    teacher_NV = torch.tensor([[4.0, 3.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    student_NV = torch.tensor([[4.0, 3.0, 9.0, 0.0, 0.0]], dtype=torch.float64)
    targets = top_k_targets(teacher_NV, 2)
    leaf_NV = student_NV.clone().requires_grad_()
    output = selected_position_loss(
        leaf_NV, lambda h: h, targets, torch.ones(1), chunk_size=1, divergence="forward_kl",
        backward=True,
    )  # fmt: skip
    inside = student_NV.gather(-1, targets.support_ids_NK).log_softmax(-1)
    kept = teacher_NV.gather(-1, targets.support_ids_NK).log_softmax(-1)
    assert float((kept.exp() * (kept - inside)).sum()) == 0.0
    assert float(output.diagnostics["student_mass"]) == pytest.approx(0.0091303, abs=1e-7)
    assert float(output.diagnostics["teacher_mass"]) == pytest.approx(0.9613819, abs=1e-7)
    assert float(output.loss) == pytest.approx(4.3516, abs=1e-4)
    assert float(leaf_NV.grad.abs().max()) > 0.9


def test_the_share_of_undecided_positions_is_reported():
    found = diagnostics("entropy_aware_kl", targets_of("exact"), entropy_threshold=0.9)
    assert found == {"undecided": [1.0, 0.0]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=lambda entry: entry.name)
def test_what_is_measured_is_what_was_announced(objective, kind):
    if KINDS[kind] not in objective.reads:
        return
    options = ObjectiveOptions(union_top_k=1 if kind == "union" else None)
    targets = targets_of(kind)
    _, found = objective.measure(targets, S_NV.clone().requires_grad_(), options)
    assert tuple(found) == objective.reported(type(targets), options)
    assert all(column.shape == (2,) and not column.requires_grad for column in found.values())


def test_the_surrogate_reports_its_clips():
    ids_N = torch.tensor([0, 2])
    log_probs_N = S_NV.log_softmax(-1).gather(-1, ids_N[:, None]).squeeze(-1)
    targets = SampledTargets(ids_N, log_probs_N - 1.0, log_probs_N - 2.0)
    found = diagnostics("verl_pg_k1", targets)
    assert set(found) == {"is_clipped", "is_clipped_below", "approx_kl", "k1"}
    assert found["approx_kl"] == pytest.approx([-2.0, -2.0])
    assert found["k1"] == pytest.approx([-1.0, -1.0])
    assert found["is_clipped"] == [1.0, 1.0]


def test_an_empty_selection_reports_nothing_per_position():
    targets = top_k_targets(torch.zeros(0, 4), 2)
    found = diagnostics("reverse_kl", targets, torch.zeros(0, 4))
    assert found == {"student_mass": [], "teacher_mass": []}

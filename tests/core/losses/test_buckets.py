"""Published rows that keep a weakness are superseded; here with the right value and the reason.

* bucketed entropy at k = V: 1.20648922814 for 1.20648920762. An absent tail was still raised to
  1e-9; a tail that holds nothing is now no category.
* tail of the two-hot teacher: −15.94 (float32) and −36.04 (float64) for ln 254 − 120 − ln 2 =
  −115.156. The tail was one minus the kept mass, whose floor is eps; it is now summed directly.
* float32 reverse KL of that teacher at epsilon 1e-9 and 1e-12: 15.77 for 20.5157 and 27.3695, the
  float64 values. The floor hid epsilon.
* log1mexp in float32, float64, float16 and bfloat16, and its clamp: there is no such function here.
  It made the tail of the kept mass; its place is taken by the three tests of tails below.
* float32 seed-0 table at k = 256: 6.1714 for 6.171466, the float64 value; the same subtraction.
"""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.losses import divergence
from core.losses.buckets import (
    BucketTargets,
    bucket_entropy,
    forward_kl,
    jensen_shannon,
    reverse_kl,
    support_targets,
    top_k_targets,
)
from core.losses.support import split_support

T_NV = torch.tensor(
    [[2.0, 1.0, 0.0, -1.0, 0.5], [0.0] * 5, [5.0, -5.0, 1.0, 1.0, -2.0]], dtype=torch.float64
)
S_NV = torch.tensor(
    [[0.0, 1.0, 2.0, -1.0, 0.25], [1.0, 2.0, 3.0, 4.0, 5.0], [-1.0, 3.0, 0.0, 0.5, 0.0]],
    dtype=torch.float64,
)
DIVERGENCES = [forward_kl, reverse_kl, jensen_shannon]
EXACT = {function.__name__: getattr(divergence, function.__name__) for function in DIVERGENCES}
INF = math.inf

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/bucketed_losses.json").read_text())[
    "cases"
]


def close(tensor, expected, rel=1e-9):
    torch.testing.assert_close(
        tensor, torch.tensor(expected, dtype=tensor.dtype), rtol=rel, atol=1e-12
    )


@pytest.mark.parametrize("k", GOLDEN)
def test_top_k_targets_have_their_published_values(k):
    golden, targets = GOLDEN[k], top_k_targets(T_NV, int(k))
    close(targets.support_logprobs_NK, golden["support_logprobs"])
    close(targets.tail_logprob_N, [-INF if x is None else x for x in golden["tail"]])
    student_NK, tail_N = split_support(S_NV, torch.tensor(golden["support_ids"]), 1.0)
    close(student_NK, golden["student_logprobs"])
    close(tail_N, [-INF if x is None else x for x in golden["student_tail"]])


@pytest.mark.parametrize("k", GOLDEN)
def test_bucketed_divergences_have_their_published_values(k):
    targets = support_targets(T_NV, torch.tensor(GOLDEN[k]["support_ids"]))
    for bucketed in DIVERGENCES:
        close(bucketed(targets, S_NV), GOLDEN[k][bucketed.__name__])
    close(bucket_entropy(targets), GOLDEN[k]["entropy"])


def test_a_support_larger_than_the_vocabulary_is_the_vocabulary():
    targets = top_k_targets(T_NV, 9)
    assert targets.support_ids_NK.shape == (3, 5)
    close(reverse_kl(targets, S_NV), GOLDEN["5"]["reverse_kl"])


def test_temperature_two_has_its_published_values():
    targets = support_targets(T_NV, torch.tensor([[0, 1], [2, 4], [0, 3]]), 2.0)
    close(
        targets.support_logprobs_NK,
        [
            [-0.9820435705946774, -1.4820435705946773],
            [-1.6094379124341003, -1.6094379124341003],
            [-0.26819790556609285, -2.268197905566093],
        ],
    )
    close(targets.tail_logprob_N, [-0.920594673000164, -0.5108256237659907, -2.0268866089089363])
    close(forward_kl(targets, S_NV), [0.723936247374, 0.472839344509, 6.1132125369])
    close(
        reverse_kl(targets, S_NV, temperature=2.0), [0.608259181647, 0.541847387653, 5.04250394473]
    )
    close(jensen_shannon(targets, S_NV), [0.161719298503, 0.124574712728, 1.18186401797])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("epsilon", "forward", "reverse", "jsd"),
    [
        (1e-3, 4.83929056142, 6.80909955212, 0.66632959658),
        (1e-6, 4.85201060424, 13.6618894927, 0.670265068198),
        (1e-9, 4.85203023735, 20.5156769345, 0.670272457281),
        (1e-12, 4.85203026389, 27.3694653744, 0.67027246812),
    ],
)
def test_the_tail_of_a_two_hot_teacher_is_exact_in_both_precisions(
    dtype, epsilon, forward, reverse, jsd
):
    """C40: subtraction gives −15.94 in float32, so no epsilon below 1e-7 had any effect."""
    teacher_NV = torch.full((1, 256), -80.0, dtype=dtype)
    teacher_NV[0, :2] = 40.0
    student_NV = torch.zeros(1, 256, dtype=dtype)
    targets = top_k_targets(teacher_NV, 2)
    rel = 1e-9 if dtype == torch.float64 else 1e-6
    close(targets.tail_logprob_N, [math.log(254) - 120 - math.log(2)], rel)
    close(forward_kl(targets, student_NV, tail_epsilon=epsilon), [forward], rel)
    close(reverse_kl(targets, student_NV, tail_epsilon=epsilon), [reverse], rel)
    close(jensen_shannon(targets, student_NV, tail_epsilon=epsilon), [jsd], rel)


def test_a_tail_of_a_few_parts_in_a_billion_survives_float32():
    """C40: logits 20, 5, −5 × 200: the kept mass rounds to one, the tail is 2.8e-9."""
    logits_NV = torch.tensor([[20.0, 5.0] + [-5.0] * 200])
    tail_N = top_k_targets(logits_NV, 2).tail_logprob_N
    assert float(tail_N.exp()) == pytest.approx(200 * math.exp(-25) / (1 + math.exp(-15)), rel=1e-6)


def test_monotone_table_of_seed_zero():
    generator = torch.Generator().manual_seed(0)
    teacher_NV = torch.randn(4, 512, generator=generator) * 3.0
    student_NV = torch.randn(4, 512, generator=generator) * 3.0
    for k, expected in [
        (1, 0.6266), (4, 1.7172), (16, 2.5005), (64, 3.8186), (256, 6.171466), (512, 8.0730)
    ]:  # fmt: skip
        value = float(reverse_kl(top_k_targets(teacher_NV, k), student_NV).mean())
        assert value == pytest.approx(expected, abs=5.1e-5)


def test_truncation_that_goes_negative_is_a_proper_divergence_with_its_tail():
    """C28: the truncated sum is −0.14 and is clamped to a zero gradient; the truth is 0.257."""
    teacher_NV = torch.tensor([[2.0, 1.0, 0.0, -1.0, -1.0, -1.0]], dtype=torch.float64)
    student_NV = torch.tensor([[3.0, 2.0, -2.0, -2.0, -2.0, -2.0]], dtype=torch.float64)
    student_NV.requires_grad_()
    value_N = forward_kl(top_k_targets(teacher_NV, 2), student_NV)
    (grad_NV,) = torch.autograd.grad(value_N.sum(), student_NV)
    assert float(divergence.forward_kl(teacher_NV, student_NV).detach()) == pytest.approx(
        0.257, abs=5e-4
    )
    assert float(value_N.detach()) == pytest.approx(0.237, abs=5e-4)
    assert float(grad_NV.abs().max()) > 0.05


def test_mass_that_leaves_the_support_is_charged():
    """C29: renormalising inside the support gives 0 with 0.9 % of the student's mass in it."""
    teacher_NV = torch.tensor([[2.0, 1.0, -9.0, -9.0]], dtype=torch.float64)
    student_NV = torch.tensor([[2.0, 1.0, 7.0, -9.0]], dtype=torch.float64, requires_grad=True)
    for bucketed in (forward_kl, reverse_kl):
        value_N = bucketed(top_k_targets(teacher_NV, 2), student_NV)
        (grad_NV,) = torch.autograd.grad(value_N.sum(), student_NV)
        assert float(value_N.detach()) > 4.0
        assert float(grad_NV[0, 2]) > 0.01


def test_reverse_kl_rises_as_mass_leaves_the_support():
    """C30: truncated reverse KL falls there, so minimising it pushes mass out."""
    teacher_NV = torch.tensor([[2.0, 1.0, 0.0, -1.0, -1.0]], dtype=torch.float64)
    values = []
    for shift in (0.0, 2.0, 5.0, 10.0):
        student_NV = teacher_NV.clone()
        student_NV[:, 2:] += shift
        values.append(float(reverse_kl(top_k_targets(teacher_NV, 2), student_NV)))
    assert values == sorted(values)
    assert values[0] == pytest.approx(0.0, abs=1e-12)
    assert values[-1] > 1.0


row = st.lists(st.floats(-12.0, 12.0), min_size=6, max_size=6)


@settings(deadline=None)
@given(row, row)
def test_buckets_bound_the_exact_value_and_grow_with_the_support(teacher, student):
    teacher_NV = torch.tensor([teacher], dtype=torch.float64)
    student_NV = torch.tensor([student], dtype=torch.float64)
    for bucketed in DIVERGENCES:
        exact = float(EXACT[bucketed.__name__](teacher_NV, student_NV))
        values = [
            float(bucketed(top_k_targets(teacher_NV, k), student_NV, tail_epsilon=1e-300))
            for k in range(1, 7)
        ]
        assert all(low <= high + 1e-9 for low, high in pairwise(values))
        assert values[-1] == pytest.approx(exact, rel=1e-9, abs=1e-12)
        assert values[-2] == pytest.approx(exact, rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(row, row, st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_a_teacher_without_a_tail_charges_at_most_the_log_of_its_floor(teacher, student, epsilon):
    """The student may put all its mass where the teacher has none at all."""
    teacher_NV = torch.tensor([teacher], dtype=torch.float64)
    teacher_NV[0, 2:] = -1e4
    student_NV = torch.tensor([student], dtype=torch.float64)
    value = float(reverse_kl(top_k_targets(teacher_NV, 2), student_NV, tail_epsilon=epsilon))
    within = float(divergence.reverse_kl(teacher_NV[:, :2], student_NV[:, :2]))
    assert value <= math.log((1 + epsilon) / epsilon) + within + 1e-6


@settings(deadline=None)
@given(row)
def test_bucketed_divergence_of_a_distribution_from_itself_is_zero(teacher):
    teacher_NV = torch.tensor([teacher], dtype=torch.float64)
    for bucketed in DIVERGENCES:
        for k in (1, 3, 6):
            value = float(bucketed(top_k_targets(teacher_NV, k), teacher_NV))
            assert value == pytest.approx(0.0, abs=1e-14)


def test_excluded_columns_do_not_enter_the_tail_and_keep_gradients_finite():
    gone_N2 = torch.full((3, 2), -INF, dtype=torch.float64)
    untied_NV = T_NV + torch.arange(5) * 0.01  # which of tied tokens top-k keeps depends on V
    teacher_NV = torch.cat([untied_NV, gone_N2], dim=-1)
    for k in (2, 5, 6, 7):
        for bucketed in DIVERGENCES:
            student_NV = torch.cat([S_NV, gone_N2], dim=-1).requires_grad_()
            value_N = bucketed(top_k_targets(teacher_NV, k), student_NV)
            (grad_NV,) = torch.autograd.grad(value_N.sum(), student_NV)
            plain_N = bucketed(top_k_targets(untied_NV, k), S_NV)
            torch.testing.assert_close(value_N, plain_N, rtol=1e-9, atol=1e-12)
            assert bool(grad_NV.isfinite().all())


def test_a_slice_is_the_same_rows():
    targets = top_k_targets(T_NV, 2)
    assert len(targets) == 3
    part = targets.slice(1, 3)
    assert len(part) == 2
    torch.testing.assert_close(reverse_kl(part, S_NV[1:]), reverse_kl(targets, S_NV)[1:])
    torch.testing.assert_close(part.entropy_N, divergence.entropy(T_NV)[1:])


@pytest.mark.parametrize("k", [1, 2, 4, 5])
@pytest.mark.parametrize("bucketed", DIVERGENCES)
def test_gradient_agrees_with_finite_differences(bucketed, k):
    targets = top_k_targets(T_NV, k, 2.0)
    assert torch.autograd.gradcheck(
        lambda s: bucketed(targets, s), (S_NV.clone().requires_grad_(),)
    )


def test_targets_carry_no_gradient_into_the_teacher():
    targets = top_k_targets(T_NV.clone().requires_grad_(), 2)
    assert not targets.support_logprobs_NK.requires_grad
    assert not targets.tail_logprob_N.requires_grad


def test_top_k_below_one_is_refused():
    with pytest.raises(ValueError, match="top_k"):
        top_k_targets(T_NV, 0)


def test_another_temperature_than_the_targets_is_refused():
    with pytest.raises(ValueError, match="temperature"):
        forward_kl(top_k_targets(T_NV, 2, 2.0), S_NV, temperature=1.0)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -1.0])
def test_tail_epsilon_must_be_a_probability(epsilon):
    with pytest.raises(ValueError, match="tail_epsilon"):
        forward_kl(top_k_targets(T_NV, 2), S_NV, tail_epsilon=epsilon)


def test_row_counts_must_agree():
    with pytest.raises(ValueError, match="student rows"):
        reverse_kl(top_k_targets(T_NV, 2), S_NV[:2])


def test_a_supported_token_that_the_student_excludes_is_refused():
    student_NV = S_NV.clone()
    student_NV[0, 0] = -INF
    with pytest.raises(ValueError, match="one side only"):
        forward_kl(top_k_targets(T_NV, 2), student_NV)


def test_the_ends_of_the_mixture_are_refused():
    with pytest.raises(ValueError, match="teacher_weight"):
        jensen_shannon(top_k_targets(T_NV, 2), S_NV, teacher_weight=1.0)


def test_targets_can_be_built_from_stored_tensors():
    stored = top_k_targets(T_NV, 2)
    again = BucketTargets(
        support_ids_NK=stored.support_ids_NK.int(),
        support_logprobs_NK=stored.support_logprobs_NK,
        tail_logprob_N=stored.tail_logprob_N,
    )
    torch.testing.assert_close(reverse_kl(again, S_NV), reverse_kl(stored, S_NV))

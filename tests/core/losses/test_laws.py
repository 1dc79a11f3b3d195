"""Every registered objective, on every kind of target that it reads, keeps every law it declares.

The brute force stands in ``conftest.py``.
"""

import math

import pytest
import torch

from core.losses.buckets import top_k_targets
from core.losses.chunked import selected_position_loss
from core.losses.options import ObjectiveOptions
from core.losses.reduction import AGGREGATIONS, reduce_group
from core.losses.registry import OBJECTIVES
from core.losses.targets import (
    BucketTargets,
    LogitTargets,
    SampledTargets,
    SharedTargets,
    TokenPairs,
)

TOP_K = 3
KINDS = {
    "exact": LogitTargets,
    "union": LogitTargets,
    "top-k": BucketTargets,
    "shared": SharedTargets,
    "sampled": SampledTargets,
}
CASES = [
    pytest.param(objective, kind, id=f"{objective.name}-{kind}")
    for objective in OBJECTIVES.values()
    for kind, reads in KINDS.items()
    if reads in objective.reads
]
pytestmark = pytest.mark.parametrize(("objective", "kind"), CASES)


def logits(rows, vocabulary, seed, scale=2.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64) * scale).to(
        dtype
    )


def options_for(objective, kind, temperature=1.0):
    if objective.name in ("forward_kl_topk", "verl_pg_k1"):
        temperature = 1.0  # defined there only
    return ObjectiveOptions(
        temperature=temperature,
        union_top_k=TOP_K if kind == "union" else None,
        teacher_weight=0.3,
        tail_epsilon=1e-9,
    )


def sampled_ids(teacher_NV):
    """Walk through the columns that can be sampled, row by row."""
    rows = teacher_NV.tolist()
    possible = [[i for i, x in enumerate(row) if x > -math.inf] for row in rows]
    return torch.tensor([ids[n % len(ids)] for n, ids in enumerate(possible)], dtype=torch.long)


def targets_for(kind, teacher_NV, temperature=1.0, sampler_NV=None):
    if kind == "shared":  # its tokens are numbered backwards, and the first third are its own
        last = teacher_NV.shape[-1] - 1
        ids_S = torch.arange((last + 1) // 3, last + 1)
        return SharedTargets(teacher_NV.flip(-1), TokenPairs(ids_S, last - ids_S))
    if kind == "top-k":
        return top_k_targets(teacher_NV, TOP_K, temperature)
    if kind == "sampled":
        ids_N = sampled_ids(teacher_NV)
        sampler_NV = teacher_NV if sampler_NV is None else sampler_NV
        picked = [
            side.double().log_softmax(-1).gather(-1, ids_N[:, None]).squeeze(-1)
            for side in (teacher_NV, sampler_NV)
        ]
        return SampledTargets(ids_N, *picked)
    return LogitTargets(teacher_NV)


def value_and_gradient(objective, kind, teacher_NV, student_NV, temperature=1.0):
    options = options_for(objective, kind, temperature)
    targets = targets_for(kind, teacher_NV, options.temperature, student_NV * 0.9)
    leaf_NV = student_NV.detach().clone().requires_grad_()
    value_N = objective.evaluate(targets, leaf_NV, options)
    (grad_NV,) = torch.autograd.grad(value_N.sum(), leaf_NV)
    return value_N.detach(), grad_NV


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_values_agree_with_a_brute_force(objective, kind, temperature, brute_force):
    teacher_NV, student_NV = logits(12, 9, 1), logits(12, 9, 2)
    value_N, _ = value_and_gradient(objective, kind, teacher_NV, student_NV, temperature)
    options = options_for(objective, kind, temperature)
    if kind == "sampled":
        targets = targets_for(kind, teacher_NV, 1.0, student_NV * 0.9)
        sides = (student_NV, student_NV * 0.9, teacher_NV)
        picked = [side.log_softmax(-1).gather(-1, targets.sampled_ids_N[:, None]) for side in sides]
        rows = torch.cat(picked, dim=-1).tolist()
    else:
        rows = zip(teacher_NV.tolist(), student_NV.tolist(), strict=True)
    expected = [brute_force(objective.name, kind, TOP_K, options, *row) for row in rows]
    assert value_N.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nothing_is_lost_where_student_equals_teacher(objective, kind, temperature, dtype):
    same_NV = logits(6, 9, 3, dtype=dtype)
    options = options_for(objective, kind, temperature)
    student_NV = same_NV.clone().requires_grad_()
    value_N = objective.evaluate(
        targets_for(kind, same_NV, options.temperature), student_NV, options
    )
    (grad_NV,) = torch.autograd.grad(value_N.sum(), student_NV)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    assert objective.laws.zero_at_identity
    assert float(value_N.detach().abs().max()) <= tolerance
    if objective.laws.flat_at_identity:
        assert float(grad_NV.abs().max()) <= tolerance
    else:
        # Declared: the truncated sum pulls mass into the support even here.
        p_NV = same_NV.softmax(-1)
        inside_NV = torch.zeros_like(p_NV).scatter(-1, same_NV.topk(TOP_K).indices, 1.0)
        mass_N1 = (p_NV * inside_NV).sum(-1, keepdim=True)
        torch.testing.assert_close(
            grad_NV, mass_N1 * p_NV - p_NV * inside_NV, rtol=1e-5, atol=tolerance
        )


def test_the_nll_mix_leaves_its_own_share_where_student_equals_teacher(objective, kind):
    same_NV, ids_N = logits(6, 9, 3), torch.arange(6)
    nll = torch.nn.functional.cross_entropy(same_NV, ids_N)
    output = selected_position_loss(
        same_NV, lambda h: h, targets_for(kind, same_NV), torch.ones(6), chunk_size=4,
        divergence=objective.name, nll_weight=0.25, target_ids_N=ids_N,
        union_top_k=options_for(objective, kind).union_top_k,
    )  # fmt: skip
    torch.testing.assert_close(output.loss, 0.25 * nll, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 2.0, 30.0])
def test_values_keep_their_sign_and_bound(objective, kind, scale):
    teacher_NV, student_NV = logits(64, 9, 4, scale), logits(64, 9, 5, scale)
    value_N, _ = value_and_gradient(objective, kind, teacher_NV, student_NV)
    if objective.laws.non_negative:
        assert float(value_N.min()) >= -1e-12
    if objective.laws.upper_bound is not None:
        bound = objective.laws.upper_bound(options_for(objective, kind))
        assert float(value_N.max()) <= bound + 1e-9


def test_a_constant_added_to_the_student_s_logits_changes_nothing(objective, kind):
    teacher_NV, student_NV = logits(6, 9, 1), logits(6, 9, 2)
    options = options_for(objective, kind)
    targets = targets_for(kind, teacher_NV)
    plain_N = objective.evaluate(targets, student_NV, options)
    shifted_N = objective.evaluate(targets, student_NV + 37.5, options)
    torch.testing.assert_close(shifted_N, plain_N, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_gradient_agrees_with_finite_differences(objective, kind, temperature):
    if not objective.laws.gradient_is_of_the_value:
        return
    teacher_NV, student_NV = logits(4, 7, 6), logits(4, 7, 8)
    options = options_for(objective, kind, temperature)
    targets = targets_for(kind, teacher_NV, options.temperature, student_NV * 0.9)
    leaf_NV = student_NV.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: objective.evaluate(targets, s, options), (leaf_NV,))


def test_no_gradient_reaches_the_teacher(objective, kind):
    teacher_NV = logits(4, 7, 6).requires_grad_()
    student_NV = logits(4, 7, 8).requires_grad_()
    selected_position_loss(
        student_NV, lambda h: h, targets_for(kind, teacher_NV), torch.ones(4), chunk_size=2,
        divergence=objective.name, union_top_k=options_for(objective, kind).union_top_k,
        backward=True,
    )  # fmt: skip
    assert teacher_NV.grad is None
    assert student_NV.grad is not None


def test_rows_do_not_see_each_other(objective, kind):
    teacher_NV, student_NV = logits(5, 9, 1), logits(5, 9, 2)
    whole = value_and_gradient(objective, kind, teacher_NV, student_NV)
    order = [3, 1, 4, 0, 2]
    if kind == "sampled":  # its ids follow the row number, so rows keep their place
        other_NV = torch.cat([student_NV[:4], logits(1, 9, 77)])
        part = value_and_gradient(objective, kind, teacher_NV, other_NV)
        torch.testing.assert_close(part[0][:4], whole[0][:4], rtol=1e-13, atol=1e-14)
        return
    moved = value_and_gradient(objective, kind, teacher_NV[order], student_NV[order])
    torch.testing.assert_close(moved[0], whole[0][order], rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(moved[1], whole[1][order], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_no_split_of_a_group_changes_loss_or_gradient(objective, kind, aggregation):
    teacher_NV, student_NV = logits(11, 9, 1), logits(11, 9, 2)
    targets = targets_for(kind, teacher_NV)
    group = reduce_group([[1.0] * 4, [0.5, 2.0], [1.0] * 5], aggregation)
    weights_N = torch.tensor([w for row in group.weights for w in row], dtype=torch.float64)

    def evaluate(cuts, chunk_size):
        loss, gradients = 0.0, []
        for start, stop in zip([0, *cuts], [*cuts, 11], strict=True):
            output = selected_position_loss(
                student_NV[start:stop], lambda h: h, targets.slice(start, stop),
                weights_N[start:stop], chunk_size=chunk_size, divergence=objective.name,
                union_top_k=options_for(objective, kind).union_top_k,
                denominator=group.denominator, backward=True,
            )  # fmt: skip
            loss += float(output.loss)
            gradients.append(output.grad_hidden_NH)
        return loss, torch.cat(gradients)

    whole = evaluate([], 100)
    for cuts, chunk_size in (([4], 3), ([4, 6], 1), ([1, 2, 10], 100)):
        loss, gradient_NH = evaluate(cuts, chunk_size)
        assert loss == pytest.approx(whole[0], rel=1e-12, abs=1e-14)
        torch.testing.assert_close(gradient_NH, whole[1], rtol=1e-11, atol=1e-14)


def test_rows_without_weight_change_nothing_and_get_no_gradient(objective, kind):
    """Pads, prompts and tool results are not selected; a pad row inside one has weight zero."""
    teacher_NV, student_NV = logits(6, 9, 1), logits(6, 9, 2)
    weights_N = torch.tensor([1.0, 0.0, 2.0, 0.0, 1.0, 1.0])
    targets = targets_for(kind, teacher_NV)
    results = []
    for seed in (20, 21):
        other_NV = torch.where(weights_N[:, None] > 0, student_NV, logits(6, 9, seed, 50.0))
        output = selected_position_loss(
            other_NV, lambda h: h, targets, weights_N, chunk_size=4, divergence=objective.name,
            union_top_k=options_for(objective, kind).union_top_k, backward=True,
        )  # fmt: skip
        results.append(output)
    assert float(results[0].loss) == float(results[1].loss)
    assert torch.equal(results[0].grad_hidden_NH, results[1].grad_hidden_NH)
    assert float(results[0].grad_hidden_NH[[1, 3]].abs().max()) == 0.0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_an_empty_selection_is_a_no_op(objective, kind, aggregation):
    group = reduce_group([[], []], aggregation)
    output = selected_position_loss(
        torch.zeros(0, 9), lambda h: h, targets_for(kind, torch.zeros(0, 9)), torch.zeros(0),
        chunk_size=4, divergence=objective.name, denominator=group.denominator, backward=True,
    )  # fmt: skip
    assert float(output.loss) == 0.0
    assert output.num_positions == 0


EXTREME = torch.tensor(
    [
        [1e4, -1e4, 0.0, 0.0, 3.0],
        [-1e4, 1e4, 0.0, 0.0, 3.0],
        [1e4, 1e4, 1e4, 1e4, 1e4],
        [-1e4, -1e4, -1e4, -1e4, -1e4],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [1e-4, -1e-4, 0.0, 0.0, 1e4],
    ]
)


def hostile_grid():
    every = torch.arange(6)
    first, second = torch.meshgrid(every, every, indexing="ij")
    pairs = EXTREME[first.reshape(-1)], EXTREME[second.reshape(-1)]
    gone = torch.full((36, 2), -math.inf)
    yield "extremes", *pairs
    yield "excluded columns", *(torch.cat([gone, side], dim=-1) for side in pairs)
    yield "few columns left", *(torch.cat([side[:, :2], gone], dim=-1) for side in pairs)
    yield "bfloat16", *(side.bfloat16() for side in pairs)
    yield "one token", torch.zeros(3, 1), torch.full((3, 1), 1e4)
    large = [logits(2, 151_936, seed, 4.0, torch.float32) for seed in (1, 2)]
    yield "large vocabulary", *large
    yield "student is teacher", EXTREME, EXTREME


@pytest.mark.parametrize("case", list(hostile_grid()), ids=lambda case: case[0])
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_values_and_gradients_stay_finite_on_a_hostile_grid(objective, kind, case, temperature):
    _, teacher_NV, student_NV = case
    value_N, grad_NV = value_and_gradient(objective, kind, teacher_NV, student_NV, temperature)
    assert value_N.dtype in (torch.float32, torch.float64)
    assert bool(value_N.isfinite().all())
    assert bool(grad_NV.isfinite().all())
    assert grad_NV.dtype == student_NV.dtype
    if objective.laws.non_negative:
        assert float(value_N.min()) >= -1e-5
    if objective.laws.upper_bound is not None:
        scale = options_for(objective, kind, temperature).temperature ** 2
        bound = objective.laws.upper_bound(options_for(objective, kind)) * scale
        assert float(value_N.max()) <= bound * (1 + 1e-5)

"""Two vocabularies of unequal size: the tokens that both have, and one bucket for the rest."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.losses import divergence
from core.losses.chunked import selected_position_loss
from core.losses.options import ObjectiveOptions
from core.losses.registry import OBJECTIVES
from core.losses.shared import paired_shared_categories
from core.losses.targets import ExactTargets, LogitTargets, SharedTargets, TokenPairs

# The student has a, b, ab, c; the teacher c, x, a, y, b: a, b and c are shared.
S_NV = torch.tensor([[1.0, 0.5, 2.0, -1.0]], dtype=torch.float64)
T_NU = torch.tensor([[-0.5, 1.0, 1.5, 0.0, -2.0]], dtype=torch.float64)
PAIRS = TokenPairs(torch.tensor([0, 1, 3]), torch.tensor([2, 4, 0]))
TARGETS = SharedTargets(T_NU, PAIRS)
DISTRIBUTIONS = sorted(name for name, o in OBJECTIVES.items() if SharedTargets in o.reads)
GOLDEN = {
    "forward_kl": 0.265554568814,
    "reverse_kl": 0.326795457203,
    "jsd": 0.067780863112,
}
"""From the equations in plain Python, by hand-written merges of two softmaxes."""


def softmax(row, tau=1.0):
    weights = [math.exp(x / tau) for x in row]
    return [weight / math.fsum(weights) for weight in weights]


def merged(probs, ids):
    return [probs[i] for i in ids] + [math.fsum(p for i, p in enumerate(probs) if i not in ids)]


def evaluate(name, targets, logits_NV, **options):
    return OBJECTIVES[name].evaluate(targets, logits_NV, ObjectiveOptions(**options))


def test_categories_are_the_shared_tokens_and_the_rest_of_either_whole_softmax():
    teacher_NC, student_NC = paired_shared_categories(TARGETS, S_NV, 1.0, 1e-9)
    expected = [merged(softmax(T_NU[0].tolist()), [2, 4, 0])]
    torch.testing.assert_close(teacher_NC.exp(), torch.tensor(expected, dtype=torch.float64))
    expected = [merged(softmax(S_NV[0].tolist()), [0, 1, 3])]
    torch.testing.assert_close(student_NC.exp(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values(name):
    assert float(evaluate(name, TARGETS, S_NV)) == pytest.approx(GOLDEN[name], abs=1e-11)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize(("tau", "teacher_tau"), [(1.0, None), (2.0, None), (2.0, 0.5)])
def test_vocabularies_of_unequal_size_agree_with_a_brute_force(name, tau, teacher_tau, brute_force):
    """The brute force gets the logarithm of merged probabilities, as one common vocabulary."""
    p = merged(softmax(T_NU[0].tolist(), teacher_tau or tau), [2, 4, 0])
    q = merged(softmax(S_NV[0].tolist(), tau), [0, 1, 3])
    options = ObjectiveOptions(entropy_threshold=0.0)
    rows = [[math.log(x) for x in side] for side in (p, q)]
    expected = brute_force(name, "exact", 0, options, *rows) * tau**2
    found = evaluate(
        name, TARGETS, S_NV, temperature=tau, teacher_temperature=teacher_tau, entropy_threshold=0.0
    )
    assert float(found) == pytest.approx(expected, rel=1e-9)


row = st.lists(st.floats(-9.0, 9.0), min_size=6, max_size=6)


@settings(deadline=None)
@given(row, row, st.sets(st.integers(0, 5), min_size=1), st.permutations(range(6)))
def test_one_vocabulary_renumbered_is_bounded_by_the_exact_divergence(
    teacher, student, shared, order
):
    """The log-sum inequality; with every token shared it is an equality."""
    teacher_NV = torch.tensor([teacher], dtype=torch.float64)
    student_NV = torch.tensor([student], dtype=torch.float64)
    theirs = torch.tensor(order).argsort()
    for ids in (torch.tensor(sorted(shared)), torch.arange(6)):
        targets = SharedTargets(teacher_NV[:, order], TokenPairs(ids, theirs[ids]))
        for name in ("forward_kl", "reverse_kl"):
            exact = float(getattr(divergence, name)(teacher_NV, student_NV))
            found = float(evaluate(name, targets, student_NV, tail_epsilon=1e-300))
            assert -1e-12 <= found <= exact + 1e-9
    assert found == pytest.approx(exact, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_equal_mapped_distributions_have_no_divergence_and_no_gradient(name):
    """The teacher spreads the student's rest over two tokens, and nothing else differs."""
    half = S_NV[:, 2:3] - math.log(2.0)
    teacher_NU = torch.cat([S_NV[:, 3:], half, S_NV[:, :1], half, S_NV[:, 1:2]], dim=-1)
    student_NV = S_NV.clone().requires_grad_()
    value = evaluate(name, SharedTargets(teacher_NU, PAIRS), student_NV)
    value.sum().backward()
    assert float(value.detach()) == pytest.approx(0.0, abs=1e-12)
    assert float(student_NV.grad.abs().max()) <= 1e-12


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_what_only_one_side_has_stays_finite(name):
    """All tokens of the student are shared: its rest is empty and the teacher's is not."""
    targets = SharedTargets(T_NU.repeat(2, 1), TokenPairs(torch.arange(2), torch.tensor([2, 4])))
    student_NV = torch.tensor([[1.0, 2.0], [1e4, -1e4]], dtype=torch.float64, requires_grad=True)
    value_N = evaluate(name, targets, student_NV)
    value_N.sum().backward()
    assert bool(value_N.isfinite().all())
    assert bool(student_NV.grad.isfinite().all())


@pytest.mark.parametrize("name", sorted(set(DISTRIBUTIONS) - {"adaptive_kl"}))
def test_gradient_agrees_with_finite_differences_where_widths_differ(name):
    leaf = S_NV.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: evaluate(name, TARGETS, s), (leaf,))


def test_the_head_is_applied_chunk_by_chunk_and_both_masses_are_reported():
    generator = torch.Generator().manual_seed(5)
    hidden_NH = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    heads = [torch.randn(3, width, generator=generator, dtype=torch.float64) for width in (4, 5)]
    exact = ExactTargets(hidden_NH * 0.5, lambda h: h @ heads[1], PAIRS)
    logits = SharedTargets(hidden_NH * 0.5 @ heads[1], PAIRS)
    outputs = [
        selected_position_loss(
            hidden_NH, lambda h: h @ heads[0], targets, torch.ones(7), chunk_size=size,
            backward=True,
        )
        for targets, size in ((exact, 3), (logits, 100))
    ]  # fmt: skip
    torch.testing.assert_close(outputs[0].loss, outputs[1].loss, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(outputs[0].grad_hidden_NH, outputs[1].grad_hidden_NH)
    p_NU = logits.teacher_logits_NU.softmax(-1)
    q_NV = (hidden_NH @ heads[0]).softmax(-1)
    found = outputs[0].diagnostics
    torch.testing.assert_close(found["teacher_mass"], p_NU[:, PAIRS.teacher_ids_S].sum(-1))
    torch.testing.assert_close(found["student_mass"], q_NV[:, PAIRS.student_ids_S].sum(-1))
    entropy_N = -(p_NU * p_NU.log()).sum(-1)
    torch.testing.assert_close(outputs[0].teacher_entropy_N, entropy_N)


def test_counts_of_rows_must_agree():
    with pytest.raises(ValueError, match="1 targets but 2 student rows"):
        evaluate("reverse_kl", TARGETS, S_NV.repeat(2, 1))


def test_an_id_outside_its_vocabulary_is_refused():
    """C66: nothing is cut to the shorter side."""
    with pytest.raises(ValueError, match="the teacher's logits have 4 columns but a shared token"):
        evaluate("reverse_kl", SharedTargets(T_NU[:, :4], PAIRS), S_NV)
    with pytest.raises(ValueError, match="the student's logits have 3 columns"):
        evaluate("reverse_kl", TARGETS, S_NV[:, :3])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_unequal_widths_without_pairs_are_refused_and_never_cut(name):
    """C66: KDFlow takes the shorter of two vocabularies in silence."""
    with pytest.raises(ValueError, match="shape"):
        evaluate(name, LogitTargets(T_NU), S_NV)

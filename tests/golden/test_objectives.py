"""What docs/objectives.md says, computed: each gradient, and each number of its last table."""

import math
import re
from pathlib import Path

import pytest
import torch

from core.losses import buckets, divergence
from core.losses.mixing import adaptive_kl
from core.losses.options import ObjectiveOptions
from core.losses.registry import OBJECTIVES
from core.losses.sampled import clipped_surrogate, sampled_log_probs
from core.losses.targets import LogitTargets, SampledTargets, SharedTargets, TokenPairs
from core.recipe.loading import load
from core.recipe.objective import objective_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/objectives.md").read_text(encoding="utf-8")
GENERATOR = torch.Generator().manual_seed(12)
T_NV = torch.randn(8, 6, generator=GENERATOR, dtype=torch.float64) * 1.5
S_NV = torch.randn(8, 6, generator=GENERATOR, dtype=torch.float64) * 1.5
P, Q = T_NV.softmax(-1), S_NV.softmax(-1)
OPTIONS = ObjectiveOptions(teacher_weight=0.3, skew=0.1, head_mass=0.5, entropy_threshold=1.2)
W, ALPHA = OPTIONS.teacher_weight, OPTIONS.skew
TOP_K = 2


def total(values_NV):
    return values_NV.sum(-1, keepdim=True)


def reverse(q, p):
    log_ratio = (q / p).log()
    return q * (log_ratio - total(q * log_ratio))


def jsd():
    m = W * P + (1 - W) * Q
    return (1 - W) * reverse(Q, m)


def skew_forward():
    r = P / (ALPHA * P + (1 - ALPHA) * Q)
    return (1 - ALPHA) * Q * (total(Q * r) - r)


def skew_reverse():
    m = (1 - ALPHA) * P + ALPHA * Q
    h = (Q / m).log() - ALPHA * Q / m
    return Q * (h - total(Q * h))


def adaptive():
    probs, order = P.sort(-1, descending=True)
    gap = (P - Q).abs().gather(-1, order)
    head = probs.cumsum(-1) - probs < OPTIONS.head_mass
    g = total(gap * head) / total(gap)
    return g * (Q - P) + (1 - g) * reverse(Q, P)


def entropy_aware():
    undecided = total(-P * P.log()) > OPTIONS.entropy_threshold
    assert 0 < int(undecided.sum()) < len(undecided)
    return reverse(Q, P) + undecided * (Q - P)


GRADIENTS = {
    "forward_kl": lambda: Q - P,
    "reverse_kl": lambda: reverse(Q, P),
    "jsd": jsd,
    "rescaled_jsd": lambda: jsd() / (W * (1 - W)),
    "skew_forward_kl": skew_forward,
    "skew_reverse_kl": skew_reverse,
    "adaptive_kl": adaptive,
    "entropy_aware_kl": entropy_aware,
}


def measured(name, targets):
    leaf = S_NV.clone().requires_grad_()
    value_N = OBJECTIVES[name].evaluate(targets, leaf, OPTIONS)
    (found,) = torch.autograd.grad(value_N.sum(), leaf)
    return found


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_gradient_on_the_page_is_the_gradient_of_the_code(name):
    expected = GRADIENTS[name]()
    torch.testing.assert_close(measured(name, LogitTargets(T_NV)), expected, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_a_bucket_is_shared_by_its_tokens():
    targets = buckets.top_k_targets(T_NV, TOP_K)
    inside = torch.zeros_like(P).scatter(-1, targets.support_ids_NK, 1.0)
    tails = [total(side * (1 - inside)) for side in (P, Q)]
    expected = inside * (Q - P) + (1 - inside) * Q * (1 - tails[0] / tails[1])
    torch.testing.assert_close(measured("forward_kl", targets), expected, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_the_rest_of_two_vocabularies_is_shared_by_its_tokens():
    """The teacher has the student's first four tokens, in another order, and three of its own."""
    generator = torch.Generator().manual_seed(13)
    teacher_NU = torch.randn(8, 7, generator=generator, dtype=torch.float64)
    own, theirs = torch.arange(4), torch.tensor([6, 2, 0, 3])
    p = teacher_NU.softmax(-1)[:, theirs]
    rests = 1 - total(p), 1 - total(Q[:, own])
    expected = torch.cat([Q[:, own] - p, Q[:, 4:] * (1 - rests[0] / rests[1])], dim=-1)
    found = measured("forward_kl", SharedTargets(teacher_NU, TokenPairs(own, theirs)))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_verl_s_top_k_is_that_of_the_page():
    targets = buckets.top_k_targets(T_NV, TOP_K)
    inside = torch.zeros_like(P).scatter(-1, targets.support_ids_NK, 1.0)
    is_positive = total(inside * P * (P / Q).log()) > 0
    expected = is_positive * (Q * total(inside * P) - inside * P)
    assert 0 < int(is_positive.sum()) < len(is_positive)
    found = measured("forward_kl_topk", targets)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_the_surrogate_is_that_of_the_page():
    ids = torch.arange(8) % 6
    own = sampled_log_probs(S_NV, ids)
    rollout, teacher = own + 0.1, sampled_log_probs(T_NV, ids)
    advantage, ratio = teacher - rollout, (own - rollout).exp()
    expected = -(advantage * ratio)[:, None] * (torch.nn.functional.one_hot(ids, 6) - Q)
    found = measured("verl_pg_k1", SampledTargets(ids, teacher, rollout))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def section(name):
    """Return what stands under the heading that names an objective."""
    found = re.search(rf"^### .*`{name}`.*\n(?s:(.*?))(?=^##)", PAGE, re.M)
    assert found, f"docs/objectives.md has no section on {name}"
    return found[1]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_has_an_equation_a_gradient_a_source_advice_and_a_recipe(name):
    text = section(name)
    equation, *rest = text.strip().split("\n\n")
    assert re.search(r"KL\(|JSD|Σ|ℓ =", equation)
    assert re.search("Gradients?: ", equation)
    assert re.search(r"arXiv \d{4}\.\d{5}|verl's|that of `jsd`", text)
    assert any(len(paragraph) > 150 for paragraph in rest), "says nothing on when to use it"
    [recipe] = re.findall(r"`(recipes/objectives/\w+\.yaml)`", text)
    run = objective_name(load(ROOT / recipe).recipe.loss)
    assert run == name or {run, name} == {"skew_forward_kl", "skew_reverse_kl"}


def test_every_recipe_of_the_family_is_on_the_page():
    recipes = ROOT.glob("recipes/objectives/*.yaml")
    unnamed = {path.name for path in recipes if f"`recipes/objectives/{path.name}`" not in PAGE}
    assert unnamed == {"temperatures.yaml"}


# ---------------------------------------------------------------- the last table


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def gradient_size(value_N, leaf):
    (found,) = torch.autograd.grad(value_N.sum(), leaf)
    return float(found.abs().max())


def truncated_forward():
    teacher, student = row(2, 1, 0, -1, -1, -1), row(3, 2, -2, -2, -2, -2).requires_grad_()
    p, q = teacher.softmax(-1), student.softmax(-1)
    truncated = (p * (p / q).log())[:, :2].sum(-1)
    ours = buckets.forward_kl(buckets.top_k_targets(teacher, 2), student)
    lost = gradient_size(truncated.clamp(min=0.0), student)
    exact = float(divergence.forward_kl(teacher, student.detach()))
    return [
        f"{float(truncated.detach()):.3f}, gradient {lost}",
        f"{float(ours.detach()):.3f} of {exact:.3f}, gradient {gradient_size(ours, student):.3f}",
    ]


def renormalised():
    teacher, student = row(4, 3, 0, 0, 0), row(4, 3, 9, 0, 0).requires_grad_()
    p, q = teacher[:, :2].softmax(-1), student[:, :2].softmax(-1)
    theirs = (p * (p / q).log()).sum(-1)
    mass = float(student.detach().softmax(-1)[:, :2].sum())
    ours = buckets.forward_kl(buckets.top_k_targets(teacher, 2), student)
    exact = float(divergence.forward_kl(teacher, student.detach()))
    return [
        f"{abs(round(float(theirs.detach()), 12))} and gradient "
        f"{round(gradient_size(theirs, student), 12)} at {mass:.2%}".replace("%", " %"),
        f"{float(ours.detach()):.3f} of {exact:.3f}, gradient {gradient_size(ours, student):.3f}",
    ]


def truncated_reverse():
    teacher = row(2, 1, 0, -1, -1)
    theirs, ours = [], []
    for shift in (0, 2, 5, 10):
        student = teacher + torch.tensor([0, 0, shift, shift, shift])
        p, q = teacher.softmax(-1), student.softmax(-1)
        theirs.append(float((q * (q / p).log())[:, :2].sum()))
        ours.append(float(buckets.reverse_kl(buckets.top_k_targets(teacher, 2), student)))
    return [", ".join(f"{abs(v) if v == 0 else v:.3f}" for v in side) for side in (theirs, ours)]


def identity():
    same = row(1, 0, -1).requires_grad_()
    q, p = same.softmax(-1), same.detach().softmax(-1)
    gap = (p - q).abs()
    assert math.isnan(float((gap[:, :1].sum() / gap.sum()).detach()))
    ours = adaptive_kl(same.detach().log_softmax(-1), same.log_softmax(-1), 0.5)
    return ["NaN", f"{float(ours.detach())}, gradient {gradient_size(ours, same)}"]


def log_ratio_as_a_loss():
    naive, ours = [], []
    for teacher in (-0.1, -9.0):
        logits, ids = row(0.3, -0.2, 0.1).requires_grad_(), torch.tensor([1])
        own = sampled_log_probs(logits, ids)
        naive += torch.autograd.grad((own - teacher).sum(), logits, retain_graph=True)
        targets = SampledTargets(ids, torch.tensor([teacher]).double(), own.detach())
        ours += torch.autograd.grad(clipped_surrogate(own, targets)[0].sum(), logits)
    gaps = [float((one - other).abs().max()) for one, other in (naive, ours)]
    return [f"{gaps[0]} between", f"{gaps[1]:.3f}"]


def discounted():
    kl, mask, discount = [0.2, 0.1, 0, 0, 0, 1, 2], [1, 1, 0, 0, 0, 1, 1], 0.5
    total_, advantages = 0.0, []
    for value in reversed(kl):
        total_ = -value + discount * total_
        advantages.insert(0, total_)
    filled = [value for value, own in zip(advantages, mask, strict=True) if not own]
    return [", ".join(f"−{-value}" for value in filled), "gradient 0.0 there"]


NUMBERS = {
    "C25": discounted,
    "C28": truncated_forward,
    "C29": renormalised,
    "C30": truncated_reverse,
    "C35": identity,
    "C44": log_ratio_as_a_loss,
}


@pytest.mark.parametrize("case", NUMBERS)
def test_the_numbers_of_a_reported_fault_are_computed(case):
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {case} |"))
    _, theirs, ours, _ = [cell.strip() for cell in line.strip("| ").split(" | ")][1:]
    expected = [text.replace("-", "−") for text in NUMBERS[case]()]
    assert theirs.startswith(expected[0]) or expected[0] in theirs
    assert ours == expected[1]

"""Brute-force references: plain Python on probabilities, from the equations, not the code."""

import math

import pytest


def softmax(row, temperature):
    weights = [math.exp((x - max(row)) / temperature) for x in row]
    return [weight / math.fsum(weights) for weight in weights]


def kl(p, q):
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def mix(p, q, w):
    return [w * a + (1 - w) * b for a, b in zip(p, q, strict=True)]


def jsd(p, q, w):
    m = mix(p, q, w)
    return w * kl(p, m) + (1 - w) * kl(q, m)


def adaptive(p, q, mu):
    order = sorted(range(len(p)), key=lambda i: -p[i])
    gaps, head, mass = [abs(p[i] - q[i]) for i in order], 0.0, 0.0
    for i, gap in zip(order, gaps, strict=True):
        head += gap if mass < mu else 0.0
        mass += p[i]
    share = head / math.fsum(gaps)
    return share * kl(p, q) + (1 - share) * kl(q, p)


def entropy(p):
    return -math.fsum(a * math.log(a) for a in p if a > 0)


def entropy_aware(p, q, whole_entropy, threshold):
    return kl(q, p) + (kl(p, q) if whole_entropy > threshold else 0.0)


REFERENCES = {
    "forward_kl": lambda p, q, h, o: kl(p, q),
    "reverse_kl": lambda p, q, h, o: kl(q, p),
    "jsd": lambda p, q, h, o: jsd(p, q, o.teacher_weight),
    "rescaled_jsd": lambda p, q, h, o: (
        jsd(p, q, o.teacher_weight) / (o.teacher_weight * (1 - o.teacher_weight))
    ),
    "skew_forward_kl": lambda p, q, h, o: kl(p, mix(p, q, o.skew)),
    "skew_reverse_kl": lambda p, q, h, o: kl(q, mix(p, q, 1 - o.skew)),
    "adaptive_kl": lambda p, q, h, o: adaptive(p, q, o.head_mass),
    "entropy_aware_kl": lambda p, q, h, o: entropy_aware(p, q, h, o.entropy_threshold),
}


def top(row, k):
    return set(sorted(range(len(row)), key=lambda i: -row[i])[:k])


def merge(p, chosen):
    kept = [p[i] for i in sorted(chosen)]
    rest = [p[i] for i in range(len(p)) if i not in chosen]
    return [*kept, math.fsum(rest)] if rest else kept


def surrogate(current, rollout, teacher, options):
    advantage, ratio = teacher - rollout, math.exp(current - rollout)
    clipped = min(max(ratio, 1 - options.clip_ratio_low), 1 + options.clip_ratio_high)
    worse = max(-advantage * ratio, -advantage * clipped)
    return min(worse, -advantage * options.clip_ratio_c) if advantage < 0 else worse


@pytest.fixture(scope="session")
def brute_force():
    """Return f(name, kind, k, options, *row): row is two rows of logits, or three log-probs."""

    def reference(name, kind, k, options, *row):
        if kind == "sampled":
            return surrogate(*row, options)
        teacher, student = row
        tau = options.temperature
        p, q = softmax(teacher, tau), softmax(student, tau)
        if name == "forward_kl_topk":
            return max(0.0, math.fsum(p[i] * math.log(p[i] / q[i]) for i in top(teacher, k)))
        whole_entropy = entropy(p)
        if kind != "exact":
            chosen = top(teacher, k) | (top(student, k) if kind == "union" else set())
            chosen = set(range(len(p) // 3, len(p))) if kind == "shared" else chosen
            p, q = merge(p, chosen), merge(q, chosen)
        return REFERENCES[name](p, q, whole_entropy, options) * tau**2

    return reference

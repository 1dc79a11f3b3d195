"""Memory and time of exact reverse KL at a real vocabulary; run with ``-s`` to see the figures.

The bound is 1.3 × (2·chunk·V + 3·N·H) floats: teacher's and student's logits of one chunk, and the
hidden states with their gradient. Allocations are counted by torch's own profiler, so neither the
C library's heap nor the weights (shared by both sides here) enter.
"""

import time

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from core.losses.chunked import selected_position_loss
from core.losses.divergence import reverse_kl
from core.losses.targets import ExactTargets

VOCABULARY, HIDDEN = 151_936, 1024
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def head():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(VOCABULARY, HIDDEN, generator=generator).mul_(0.02)


def hidden(rows, seed):
    return torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(seed))


def chunked(student_NH, teacher_NH, head_VH, chunk_size):
    def project(hidden_NH):
        return hidden_NH @ head_VH.T

    return selected_position_loss(
        student_NH, project, ExactTargets(teacher_NH, project), torch.ones(len(student_NH)),
        chunk_size=chunk_size, backward=True,
    )  # fmt: skip


def peak_floats(function):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    held = peak = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak / 4


@pytest.mark.parametrize(("rows", "chunk_size"), [(2048, 256), (512, 64)])
def test_exact_reverse_kl_stays_within_its_memory_bound(head, rows, chunk_size):
    student_NH, teacher_NH = hidden(rows, 1).requires_grad_(), hidden(rows, 2)
    peak = peak_floats(lambda: chunked(student_NH, teacher_NH, head, chunk_size))
    # The two sets of hidden states were allocated before; they are part of the bound's 3·N·H.
    peak += 2 * rows * HIDDEN
    bound = 2 * chunk_size * VOCABULARY + 3 * rows * HIDDEN
    print(f"\nN={rows} chunk={chunk_size}: {peak / bound:.3f} of 2·chunk·V + 3·N·H")
    assert peak <= 1.3 * bound


def test_selected_positions_cost_about_what_full_logits_cost(head):
    """CPU seconds against one graph over all logits, whose memory is what chunks avoid."""
    rows = 128
    student_NH, teacher_NH = hidden(rows, 1).requires_grad_(), hidden(rows, 2)

    def full():
        teacher_NV = teacher_NH @ head.T
        reverse_kl(teacher_NV, student_NH @ head.T).mean().backward()

    seconds = {}
    for name, function in {
        "chunked": lambda: chunked(student_NH, teacher_NH, head, 64),
        "full": full,
    }.items():
        start = time.process_time()
        function()
        seconds[name] = time.process_time() - start
    ratio = seconds["chunked"] / seconds["full"]
    print(f"\nchunked {seconds['chunked']:.2f} s, full {seconds['full']:.2f} s: {ratio:.2f}")
    assert ratio < 2.0

"""What an optimizer group trains on, and what it never does."""

import random
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.losses.registry import OBJECTIVES
from core.recipe.schema.loss import Divergence
from core.selection.selectors import SELECTORS
from core.training.group import accumulate
from core.training.memory import ChunkSize
from core.training.update import group_targets, objective_of, paired_examples
from core.trajectory.masks import model_mask
from core.trajectory.view import teacher_view

PROMPT = [("system", 3), ("user", 4)]
TWO_TURNS = [*PROMPT, ("assistant_tool_call", 2), ("tool_result", 3), ("assistant_final", 2)]
TOKEN_MEAN = "loss.aggregation=token-mean"
TOP_K = ("loss.divergence=forward_kl", "loss.scale_by_temperature_squared=false", TOKEN_MEAN)
VERL = {"forward_kl_topk": TOP_K, "verl_pg_k1": (TOKEN_MEAN,)}
GATED = ("environment.name=tool_policy", "selection.gate.version=v1")
PRIVILEGED, HINT = "models.teacher.mode=privileged_context", "7"


def seen_by(view):
    """Return a teacher's view with the mask of the student's tokens in it."""
    spans = [(span.span_type.value, span.start, span.end) for span in view.spans]
    return SimpleNamespace(
        token_ids=view.token_ids, model_mask=model_mask(spans, len(view.token_ids))
    )


class Probed:
    """A model whose hidden states are garbage wherever no token of the student is predicted.

    What the loss reads there would show in its value; what it sends back shows in ``gradients``.
    """

    def __init__(self, backend, episodes, seed):
        self.backend = backend
        self.episodes = episodes
        self.generator = torch.Generator().manual_seed(seed)
        self.probes = []

    def __getattr__(self, name):
        return getattr(self.backend, name)

    def hidden_states(self, token_ids_BT, lengths_B):
        hidden_BTH = self.backend.hidden_states(token_ids_BT, lengths_B)
        predicts_BT1 = self._predicts(token_ids_BT, lengths_B).unsqueeze(-1)
        garbage_BTH = torch.randn(hidden_BTH.shape, generator=self.generator) * 1e6
        garbage_BTH[torch.rand(garbage_BTH.shape, generator=self.generator) < 0.1] = torch.nan
        probe_BTH = torch.zeros_like(hidden_BTH, requires_grad=True)
        self.probes.append((probe_BTH, predicts_BT1))
        return torch.where(predicts_BT1, hidden_BTH, garbage_BTH) + probe_BTH

    def gradients(self):
        """Gradient norms per position: where the student's tokens are predicted, and elsewhere."""
        norms = [
            (
                torch.zeros_like(p[..., 0]) if p.grad is None else p.grad.norm(dim=-1),
                mask.squeeze(-1),
            )
            for p, mask in self.probes
        ]
        return [n[m] for n, m in norms], [n[~m] for n, m in norms]

    def _predicts(self, token_ids_BT, lengths_B):
        predicts_BT = torch.zeros_like(token_ids_BT, dtype=torch.bool)
        for row, length in enumerate(lengths_B.tolist()):
            ids = token_ids_BT[row, :length].tolist()
            own = next((one for one in self.episodes if one.token_ids[:length] == ids), None)
            if own is None:  # a dummy row of scoring: nothing is predicted there
                continue
            written = torch.tensor([*own.model_mask[1:], False])
            predicts_BT[row, :length] = written[:length]
        return predicts_BT


def gradient(backend, teacher, episodes, asked):
    """Loss of a group and the gradient of every parameter."""
    scored, spec, runtime = asked
    examples = paired_examples(episodes, scored)
    gather = group_targets(backend, scored, range(len(examples)), teacher)
    chunk = ChunkSize(runtime.chunk_size, runtime.oom_retries, runtime.min_chunk_size)
    group = accumulate(backend, examples, gather, objective_of(spec), runtime, chunk)
    found = {  # a group without a selected position leaves no gradient at all
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in backend.trainable().items()
    }
    for parameter in backend.trainable().values():
        parameter.grad = None
    return group, found


@pytest.fixture
def train(small_toy, scored_by):
    """Loss and gradients of a toy on episodes, for overrides of the recipe."""

    def run(episodes, *overrides, student=None, **sizes):
        backend, teacher = student or small_toy(1), small_toy(2)
        return gradient(
            backend, teacher, episodes, scored_by(teacher, episodes, *overrides, **sizes)
        )

    return run


# ---------------------------------------------------------------- properties


@st.composite
def parts(draw):
    """Prompt, some turns with prose, calls and results, and perhaps an answer."""
    turns = []
    for _ in range(draw(st.integers(1, 3))):
        prose = draw(st.integers(0, 3))
        turns += [("assistant_text", prose)] if prose else []
        turns += [("assistant_tool_call", draw(st.integers(1, 3)))]
        turns += [("tool_result", draw(st.integers(1, 4)))]
    turns += draw(st.sampled_from([[], [("assistant_final", 2)], [("assistant_text", 1)]]))
    return [("system", draw(st.integers(1, 3))), ("user", draw(st.integers(1, 4))), *turns]


@st.composite
def options(draw):
    """Overrides of section ``loss`` that a recipe may combine."""
    mode = draw(st.sampled_from(["exact_full_vocab", "bucketed_topk_tail", "union_topk", *VERL]))
    given_mode = [f"loss.mode={mode}", *VERL.get(mode, ())]
    given_mode += draw(st.sampled_from([[], [PRIVILEGED]]))
    if mode != "exact_full_vocab":
        given_mode.append(f"loss.top_k={draw(st.integers(1, 12))}")
    if mode in VERL:
        return given_mode
    selector = draw(st.sampled_from(list(SELECTORS)))
    return [
        *given_mode,
        *(GATED if selector == "verifier_gated" else ()),
        f"loss.divergence={draw(st.sampled_from(get_args(Divergence)))}",
        f"loss.aggregation={draw(st.sampled_from(['native_per_trajectory', 'token-mean']))}",
        f"loss.temperature={draw(st.sampled_from([0.5, 1.0, 2.0]))}",
        f"loss.teacher_temperature={draw(st.sampled_from(['null', 0.5, 1.5]))}",
        f"loss.sampled_token_nll_weight={draw(st.sampled_from([0.0, 0.3, 0.9]))}",
        f"selection.selector={selector}",
        f"selection.skip_first_tokens={draw(st.integers(0, 2))}",
        f"selection.max_positions_per_trajectory={draw(st.sampled_from(['null', 3]))}",
        f"selection.critical_weight={draw(st.sampled_from([1.0, 3.0]))}",
    ]


@settings(max_examples=20, deadline=None)
@given(
    layouts=st.lists(st.tuples(parts(), st.booleans()), min_size=1, max_size=4),
    overrides=options(),
    sizes=st.fixed_dictionaries(
        {"chunk_size": st.integers(1, 20), "batch_size": st.integers(1, 4)}
    ),
    seed=st.integers(0, 1000),
)
def test_no_token_that_the_student_did_not_write_has_a_gradient(
    write_episode, small_toy, scored_by, layouts, overrides, sizes, seed
):
    """C05: logits of prompts, tools, hints and pads may be anything at all, on both sides.

    Over every divergence, mode, selector, reduction, batch size, and teachers with and without a
    hint: what an objective or a selector adds to its registry is drawn here too.
    """
    episodes = [
        write_episode(
            layout, seed + n, trajectory_id=f"t{n}", sampler=small_toy(1),
            metadata={"temperature": 1.0, "policy_gate_qualified": qualified},
        )
        for n, (layout, qualified) in enumerate(layouts)
    ]  # fmt: skip
    privileged = PRIVILEGED in overrides
    views = [teacher_view(one, HINT, small_toy(2).tokenizer) for one in episodes]
    read = [seen_by(view) for view in views] if privileged else episodes
    results = []
    for noise in (1, 2):
        teacher = Probed(small_toy(2), read, noise)
        asked = scored_by(
            teacher, episodes, *overrides, **sizes, views=views if privileged else None
        )
        student = Probed(small_toy(1), episodes, noise)
        group, found = gradient(student, teacher, episodes, asked)
        inside, outside = student.gradients()
        assert all(float(norms.max()) == 0.0 for norms in outside if norms.numel())
        if group.loss != 0.0:
            assert max(float(norms.max()) for norms in inside if norms.numel()) > 0.0
        results.append((group.loss, found))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(results[0][1][name], results[1][1][name]) for name in results[0][1])


def test_what_is_drawn_above_is_all_that_is_registered():
    assert {*get_args(Divergence), *VERL} == set(OBJECTIVES)


@pytest.mark.parametrize("aggregation", ["native_per_trajectory", "token-mean"])
def test_no_split_into_physical_batches_changes_the_gradient(train, write_episode, aggregation):
    """C02: a mean of batch means would weigh a short reply like a long one."""
    rng = random.Random(5)
    episodes = [
        write_episode([*PROMPT, ("assistant_text", rng.randint(1, 30))], n, trajectory_id=f"t{n}")
        for n in range(6)
    ]
    whole, expected = train(episodes, f"loss.aggregation={aggregation}", batch_size=6)
    for batch_size in (1, 2, 4):
        split, found = train(episodes, f"loss.aggregation={aggregation}", batch_size=batch_size)
        assert split.loss == pytest.approx(whole.loss, rel=1e-5)
        for name, ours in found.items():
            torch.testing.assert_close(ours, expected[name], rtol=1e-4, atol=1e-7)


# ---------------------------------------------------------------- cases


def test_a_reply_of_one_token_is_trained(train, write_episode):
    """C06: a slice that starts at the prompt's length would leave it out."""
    group, found = train([write_episode([*PROMPT, ("assistant_text", 1)])])
    assert group.selected_positions == 1
    assert max(float(g.abs().max()) for g in found.values()) > 0.0


def test_an_end_of_turn_that_is_also_the_pad_is_trained_and_read(
    train, write_episode, small_toy, scored_by
):
    """C12: masks come from lengths; an id says nothing about whether a token counts."""
    pad = small_toy(1).tokenizer.pad_id
    ids = [20, 21, 22, 23, 24, 25, 26, 30, pad, 27, 28, 31, pad]
    layout = [*PROMPT, ("assistant_tool_call", 2), ("tool_result", 2), ("assistant_final", 2)]
    short = write_episode(layout, token_ids=ids)
    long = write_episode([*PROMPT, ("assistant_text", 20)], 1, trajectory_id="t1")
    alone, _ = train([short])
    beside, _ = train([short, long])
    assert alone.selected_positions == 4
    torch.testing.assert_close(
        beside.terms[0].objective, alone.terms[0].objective, rtol=1e-5, atol=1e-7
    )
    other = write_episode(layout, token_ids=[*ids[:8], 40, *ids[9:]])
    changed, _ = train([other])
    assert abs(float(changed.terms[0].objective[2] - alone.terms[0].objective[2])) > 1e-6


@pytest.mark.parametrize("mode", ["exact_full_vocab", "bucketed_topk_tail", "union_topk", *VERL])
def test_a_tool_result_between_two_turns_is_in_no_loss_path(
    write_episode, small_toy, scored_by, mode
):
    """C19, C20, C25: every path reads one list of positions, made from who wrote what."""
    episodes = [write_episode(TWO_TURNS, sampler=small_toy(1))]
    top_k = () if mode == "exact_full_vocab" else ("loss.top_k=5",)
    teacher, student = small_toy(2), Probed(small_toy(1), episodes, 0)
    asked = scored_by(teacher, episodes, f"loss.mode={mode}", *VERL.get(mode, ()), *top_k)
    gradient(student, teacher, episodes, asked)
    [(probe, _)] = student.probes
    trained = [n + 1 for n, norm in enumerate(probe.grad[0].norm(dim=-1).tolist()) if norm > 0.0]
    assert trained == [7, 8, 12, 13]


@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl", "jsd"])
def test_every_path_computes_the_same_loss_and_gradient(train, write_episode, divergence):
    """C37: the whole vocabulary, the top-V with an empty tail, and the union of two of them."""
    episodes = [write_episode(TWO_TURNS), write_episode(TWO_TURNS, 4, trajectory_id="t1")]
    name = f"loss.divergence={divergence}"
    exact, expected = train(episodes, "loss.mode=exact_full_vocab", name)
    for mode in ("bucketed_topk_tail", "union_topk"):
        group, found = train(episodes, f"loss.mode={mode}", name, "loss.top_k=400")
        assert group.loss == pytest.approx(exact.loss, rel=1e-6)
        for key, ours in found.items():
            torch.testing.assert_close(ours, expected[key], rtol=1e-4, atol=1e-8)

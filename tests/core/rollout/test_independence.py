import logging

import pytest
import torch

from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.independence import independence_fingerprint, measured_independence
from core.rollout.limits import EpisodeLimits
from core.rollout.shape import EngineShape

LIMITS = EpisodeLimits(2, 20, 160)
SMALL = ToyConfig(
    hidden_size=32, num_layers=1, num_heads=2, intermediate_size=48, max_position_embeddings=256
)


class Fitted(ToyBackend):
    """A toy model whose bits depend on something they should not depend on."""

    def __init__(self, disturb) -> None:
        super().__init__(SMALL, 0, ToyTokenizer())
        self.disturb = disturb

    def step(self, token_ids_SQ, positions_SQ, cache):
        hidden = super().step(token_ids_SQ, positions_SQ, cache)
        return hidden * (1 + 1e-6 * self.disturb(token_ids_SQ, hidden, cache))


def findings(disturb):
    backend = Fitted(disturb)
    return independence_fingerprint(backend, EngineShape.of(backend, LIMITS))


@pytest.fixture(scope="module")
def undisturbed():
    """What this machine allows: fewer rows or slots may cost bits on another."""
    return findings(lambda ids, hidden, cache: 0)


def test_on_this_machine_the_toy_model_is_independent(undisturbed):
    assert undisturbed.rows_are_independent
    assert set(undisturbed.row_counts) <= {8, 16, 24}
    assert {*undisturbed.decode_widths, *undisturbed.prefill_widths} <= {64, 128}
    assert len(undisturbed.digest) == 64


def test_the_digest_repeats_and_follows_the_weights():
    shape = EngineShape.of(ToyBackend(SMALL, 0, ToyTokenizer()), LIMITS)
    digests = [
        independence_fingerprint(ToyBackend(SMALL, seed, ToyTokenizer()), shape).digest
        for seed in (0, 0, 1)
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "disturb",
    [
        lambda ids, hidden, cache: hidden.mean(),
        lambda ids, hidden, cache: torch.arange(len(ids))[:, None, None],
        lambda ids, hidden, cache: ids[:, -1:, None] if ids.shape[1] > 1 else 0,
        lambda ids, hidden, cache: hidden.roll(1, 0) if ids.shape[1] == 1 else 0,
    ],
    ids=["the batch", "the row's number", "the padding", "the neighbour"],
)
def test_dependence_on_company_is_found_and_said(disturb, caplog):
    with caplog.at_level(logging.WARNING):
        found = findings(disturb)
    assert not found.rows_are_independent
    assert found.row_counts == found.decode_widths == found.prefill_widths == ()
    assert "depend on its batch" in caplog.text


def test_dependence_on_the_number_of_rows_forbids_smaller_steps(undisturbed):
    found = findings(lambda ids, hidden, cache: float(ids.shape[1] == 1 and len(ids) < 20))
    assert found.rows_are_independent
    assert found.row_counts == tuple(n for n in undisturbed.row_counts if n >= 20)
    assert found.decode_widths == undisturbed.decode_widths


@pytest.mark.parametrize(("query", "field"), [(1, "decode_widths"), (32, "prefill_widths")])
def test_dependence_on_the_width_forbids_narrower_steps_of_that_kind(undisturbed, query, field):
    found = findings(lambda ids, hidden, cache: float(cache.width == 64 and ids.shape[1] == query))
    expected = {name: getattr(undisturbed, name) for name in ("decode_widths", "prefill_widths")}
    expected[field] = tuple(width for width in expected[field] if width != 64)
    assert found.row_counts == undisturbed.row_counts
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_sum_that_is_cut_where_its_width_says_is_found_at_long_cursors():
    class Halved(ToyBackend):
        """Adds the slots of each half first, as some kernels do."""

        def _attend(self, q, keys, values, bias):
            scores = bias + q.flatten(0, 1) @ keys.flatten(0, 1).transpose(1, 2)
            weights, half = scores.softmax(-1), keys.shape[2] // 2
            parts = zip(weights.split(half, -1), values.flatten(0, 1).split(half, 1), strict=True)
            return sum(torch.bmm(w, v) for w, v in parts).view(q.shape)

    backend = Halved(SMALL, 0, ToyTokenizer())
    found = independence_fingerprint(backend, EngineShape.of(backend, LIMITS))
    assert found.rows_are_independent
    assert (found.decode_widths, found.prefill_widths) == ((), ())


def test_the_check_runs_once_per_model_and_shape():
    calls = []
    backend = Fitted(lambda ids, hidden, cache: calls.append(1) or 0)
    shape = EngineShape.of(backend, LIMITS)
    first, steps = measured_independence(backend, shape), len(calls)
    assert measured_independence(backend, shape) is first
    assert len(calls) == steps > 0
    other = EngineShape.of(backend, EpisodeLimits(2, 20, 90))
    measured_independence(backend, other)
    assert len(calls) > steps


def test_padding_may_lie_past_the_context(undisturbed):
    backend = ToyBackend(SMALL, 0, ToyTokenizer())
    shape = EngineShape.of(backend, EpisodeLimits(2, 20, 256))
    assert (shape.block, shape.width) == (32, 320)
    assert independence_fingerprint(backend, shape).rows_are_independent


def test_a_model_without_room_for_padding_is_prefilled_in_smaller_blocks():
    backend = ToyBackend(SMALL, 0, ToyTokenizer())
    backend.step_positions = backend.max_positions
    shape = EngineShape.of(backend, EpisodeLimits(2, 20, 256))
    assert shape.block == 1
    assert independence_fingerprint(backend, shape).rows_are_independent

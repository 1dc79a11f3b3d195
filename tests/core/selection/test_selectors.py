"""Published rows that keep a weakness are superseded; here with the right value and the reason.

* all tokens, cap 7: [20 … 26], the first seven. The cap dropped every tool call and the final
  answer while it kept prose; critical tokens are now the last to go: [30 … 36].
* hybrid, cap 12: [21, 24, 27, 28, 30 … 37] with 8 critical. Same reason: [30 … 39, 50, 51], all 12.
"""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import RecipeError
from core.recipe.schema.selection import SelectionSection
from core.selection.selectors import SELECTORS, aggregate_stats, select_positions
from core.trajectory.masks import MODEL_SPAN_TYPES, critical_mask, model_mask, target_positions

LAYOUT = [
    ("system", 0, 10), ("user", 10, 20), ("assistant_text", 20, 30),
    ("assistant_tool_call", 30, 40), ("tool_result", 40, 50), ("assistant_final", 50, 60),
]  # fmt: skip


@dataclass
class Episode:
    trajectory_id: str = "t0"
    spans: list = field(default_factory=lambda: LAYOUT)
    metadata: dict = field(default_factory=dict)

    @property
    def num_tokens(self):
        return self.spans[-1][2]

    @property
    def critical_mask(self):
        return critical_mask(self.spans, self.num_tokens)

    @property
    def span_types(self):
        return [kind for kind, start, end in self.spans for _ in range(start, end)]

    @property
    def model_mask(self):
        return model_mask(self.spans, self.num_tokens)

    def target_positions(self):
        return target_positions(self.model_mask)


def select(selector, seed=0, trajectory_id="t0", metadata=None, **numbers):
    spec = SelectionSection(selector=selector, **numbers)
    return select_positions(Episode(trajectory_id, metadata=metadata or {}), spec, seed)


@pytest.mark.parametrize(
    ("selector", "ratio", "seed", "trajectory_id", "positions", "query_ratio", "critical"),
    [
        ("uniform_ratio", 0.1, 7, "t0", [28, 31, 59], 0.1, 2),
        ("uniform_ratio", 0.35, 0, "t0",
         [22, 23, 28, 29, 36, 39, 51, 52, 53, 54, 56], 0.366667, 7),
        ("uniform_ratio", 0.4, 7, "t0",
         [20, 21, 24, 27, 28, 29, 31, 34, 50, 52, 56, 59], 0.4, 6),
        ("uniform_ratio", 0.4, 8, "t0",
         [21, 22, 26, 27, 28, 30, 32, 33, 35, 50, 53, 59], 0.4, 7),
        ("uniform_ratio", 0.4, 1, "alpha",
         [22, 25, 28, 29, 31, 33, 34, 35, 39, 52, 56, 57], 0.4, 8),
        ("uniform_ratio", 0.4, 1, "beta",
         [21, 22, 28, 29, 30, 37, 38, 39, 50, 51, 53, 54], 0.4, 8),
        ("uniform_budget", 0.49, 7, "t0",
         [20, 21, 24, 27, 28, 29, 31, 34, 39, 50, 51, 52, 56, 59], 0.466667, 8),
        ("uniform_budget", 0.03, 0, "t0", [], 0.0, 0),
        ("hybrid", 0.8, 1234, "t0",
         [20, 22, 23, 26, *range(30, 40), *range(50, 60)], 0.8, 20),
        ("hybrid", 0.1, 0, "t0", [*range(30, 40), *range(50, 60)], 0.666667, 20),
        ("all_model_tokens", 0.35, 0, "t0", [*range(20, 40), *range(50, 60)], 1.0, 20),
        ("tool_and_final", 0.35, 0, "t0", [*range(30, 40), *range(50, 60)], 0.666667, 20),
    ],
)  # fmt: skip
def test_selections_have_their_published_positions(
    selector, ratio, seed, trajectory_id, positions, query_ratio, critical
):
    selection = select(selector, seed, trajectory_id, ratio=ratio)
    assert selection.positions == positions
    assert selection.stats.query_ratio == pytest.approx(query_ratio, abs=5e-7)
    assert selection.stats.selected_critical_tokens == critical


def test_a_cap_keeps_critical_tokens_first():
    selection = select(
        "all_model_tokens", max_positions_per_trajectory=7, critical_weight=2.0, other_weight=0.5
    )
    assert selection.positions == list(range(30, 37))
    assert selection.weights == [2.0] * 7


def test_a_cap_on_hybrid_never_drops_a_critical_token_before_another():
    selection = select("hybrid", 1234, ratio=0.8, max_positions_per_trajectory=12)
    assert selection.positions == [*range(30, 40), 50, 51]
    wider = select("hybrid", 1234, ratio=0.8, max_positions_per_trajectory=22)
    assert wider.positions == [20, 22, *range(30, 40), *range(50, 60)]


def test_weights_follow_the_typed_blocks():
    selection = select("all_model_tokens", critical_weight=3.0, other_weight=0.5)
    assert selection.weights == [0.5] * 10 + [3.0] * 20


def test_the_first_token_is_never_selected():
    episode = Episode(spans=[("assistant_text", 0, 4)])
    assert select_positions(episode, SelectionSection(), 0).positions == [1, 2, 3]


@pytest.mark.parametrize(
    ("metadata", "count"),
    [({}, 0), ({"policy_sensitive": True}, 20), ({"policy_gate_qualified": False}, 0),
     ({"policy_gate_qualified": True}, 20)],
)  # fmt: skip
def test_the_gate_lets_critical_tokens_through_or_nothing(metadata, count):
    selection = select("verifier_gated", metadata=metadata)
    assert len(selection.positions) == count
    assert selection.stats.gate_qualified is (count > 0)


def test_a_gate_counts_the_trajectories_that_it_lets_through():
    rows = [
        select("verifier_gated", metadata={"policy_gate_qualified": on}).stats
        for on in (True, False)
    ]
    assert aggregate_stats(rows)["gate_qualified_trajectories"] == 1


@pytest.mark.parametrize(
    ("skipped", "positions"),
    [(0, 30), (1, 28), (10, 10), (20, 0)],
)
def test_the_first_tokens_of_each_turn_can_be_left_out(skipped, positions):
    """C24: a teacher that thinks first, and a student that does not, differ most at the first."""
    selection = select("all_model_tokens", skip_first_tokens=skipped)
    assert len(selection.positions) == positions
    assert selection.stats.total_model_tokens == 30
    left_out = {*range(20, min(20 + skipped, 40)), *range(50, min(50 + skipped, 60))}
    assert not left_out & set(selection.positions)


def test_aggregated_counts_speak_of_queried_positions():
    rows = [select("tool_and_final").stats, select("uniform_budget", ratio=0.03).stats]
    assert aggregate_stats(rows) == {
        "trajectories": 2,
        "total_model_tokens": 60,
        "selected_model_tokens": 20,
        "total_critical_tokens": 40,
        "selected_critical_tokens": 20,
        "teacher_queried_position_ratio": 20 / 60,
        "selected_by_span_type": {"assistant_final": 10, "assistant_tool_call": 10},
    }
    assert aggregate_stats([])["teacher_queried_position_ratio"] == 0.0


kinds = [
    "system",
    "user",
    "assistant_text",
    "assistant_tool_call",
    "tool_result",
    "assistant_final",
]


@given(
    st.lists(st.tuples(st.sampled_from(kinds), st.integers(1, 9)), min_size=1, max_size=8),
    st.sampled_from(list(SELECTORS)),
    st.floats(0.01, 1.0),
    st.one_of(st.none(), st.integers(1, 20)),
    st.integers(0, 2**31),
    st.integers(0, 4),
)
def test_every_selection_holds_the_student_s_tokens_only(
    parts, selector, ratio, cap, seed, skipped
):
    spans, cursor = [], 0
    for kind, length in parts:
        spans.append((kind, cursor, cursor + length))
        cursor += length
    episode = Episode(spans=spans, metadata={"policy_sensitive": True})
    spec = SelectionSection(
        selector=selector, ratio=ratio, max_positions_per_trajectory=cap, skip_first_tokens=skipped
    )
    selection = select_positions(episode, spec, seed)
    starts = [
        (start, end)
        for kind, start, end in spans
        if kind in MODEL_SPAN_TYPES and (start == 0 or not episode.model_mask[start - 1])
    ]
    skip = {j for start, _ in starts for j in range(start, start + skipped)}
    candidates = [j for j in episode.target_positions() if j not in skip]
    chosen = set(selection.positions)
    assert selection.positions == sorted(chosen)
    assert chosen <= set(candidates)
    assert len(selection.weights) == len(chosen) <= (cap or cursor)
    assert selection == select_positions(episode, spec, seed)
    critical = {j for j in candidates if episode.critical_mask[j]}
    if selector in ("hybrid", "all_model_tokens", "tool_and_final"):
        assert len(chosen & critical) == min(len(critical), cap or cursor)
    if selector == "uniform_budget":
        assert len(chosen) <= math.floor(ratio * len(candidates))


def test_an_unknown_selector_is_refused():
    spec = SelectionSection.model_construct(
        selector="first", ratio=1.0, max_positions_per_trajectory=None
    )
    with pytest.raises(RecipeError, match="selector 'first'"):
        select_positions(Episode(), spec, 0)

"""Limits, and whole episodes of hostile text that keep to them in every world."""

import json
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.environments.hostile import ANSWERS, VALUES
from core.environments.registry import BUILT_IN, make_environment
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.episode import Episode
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.turns import GeneratedTurn
from core.trajectory.io import read_trajectories, write_trajectories
from core.trajectory.trajectory import TerminationReason


def test_limits_are_read_from_any_spec_with_these_fields():
    spec = SimpleNamespace(
        max_turns=3,
        max_new_tokens_per_turn=40,
        max_total_tokens=512,
        max_parse_errors=0,
        max_repeated_calls=1,
        cycle=7,
    )
    assert EpisodeLimits.of(spec) == EpisodeLimits(3, 40, 512, 0, 1)


def test_settings_are_read_from_any_spec_with_these_fields():
    spec = SimpleNamespace(temperature=0.7, top_p=0.9, top_k=5)
    assert SamplingSpec.of(spec) == SamplingSpec(0.7, 0.9, 5)


@pytest.mark.parametrize(
    ("spec", "greedy", "truncated"),
    [
        (SamplingSpec(), False, False),
        (SamplingSpec(0.0), True, False),
        (SamplingSpec(0.0, 0.5, 3), True, False),
        (SamplingSpec(0.7), False, False),
        (SamplingSpec(1.0, 0.9), False, True),
        (SamplingSpec(1.0, 1.0, 4), False, True),
    ],
)
def test_settings_know_what_they_do(spec: SamplingSpec, greedy: bool, truncated: bool):
    assert (spec.is_greedy, spec.is_truncated) == (greedy, truncated)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((0, 1, 1, 1, 1), "max_turns"),
        ((1, 0, 1, 1, 1), "max_new_tokens_per_turn"),
        ((1, 1, 0, 1, 1), "max_total_tokens"),
        ((1, 1, 1, -1, 1), "max_parse_errors"),
        ((1, 1, 1, 1, 0), "max_repeated_calls"),
    ],
)
def test_a_limit_below_its_least_is_refused(values: tuple[int, ...], field: str):
    with pytest.raises(ValueError, match=field):
        EpisodeLimits(*values)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(spec: dict[str, float], field: str):
    with pytest.raises(ValueError, match=field):
        SamplingSpec(**spec)


CODEC = ToyTokenizer()
PROTOCOLS = [
    {"protocol_version": "v1"},
    {"protocol_version": "v2"},
    {"protocol_version": "v3"},
    {"protocol_version": "v3", "max_calls_per_turn": 3},
]
NAMES = ["calculator", "convert", "get", "keys", "find", "schema", "query", "sandbox_action",
         "", " ", "nope", "__class__", "x" * 999]  # fmt: skip
KEYS = ["expression", "value", "from_unit", "to_unit", "path", "key", "sql", "action", "secret",
        "confirmation", "attempt", "", "x"]  # fmt: skip
TEXTS = st.text(max_size=60) | st.sampled_from(
    ["9**9**9", "(" * 199, "1e308*1e308", "km", "a[99999999999]", "[0]" * 40, "config", "SELECT 1",
     "SELECT * FROM orders, customers", "WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "read"]
)  # fmt: skip
PLAIN_VALUES = [value for value in VALUES if value != "\ud800"]
LEAVES = TEXTS | st.sampled_from(PLAIN_VALUES) | st.integers() | st.floats(-1e300, 1e300)
PAYLOADS = st.fixed_dictionaries(
    {"name": st.sampled_from(NAMES)},
    optional={
        "arguments": st.none() | st.dictionaries(st.sampled_from(KEYS), LEAVES, max_size=4),
        "extra": LEAVES,
    },
)
CALLS = PAYLOADS.map(lambda payload: f"<tool_call>{json.dumps(payload)}</tool_call>")
SCRAPS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<final>", "</final>", "<tool_result>", "<|im_end|>",
     "<|im_start|>user\n", "{", "[" * 5000, '{"a":' * 900, "9" * 5000, "\x00", "\u2028"]
)  # fmt: skip
FINALS = (st.sampled_from([a for a in ANSWERS if "\ud800" not in a]) | st.text()).map(
    lambda answer: f"<final>{answer}</final>"
)
TURNS = st.lists(CALLS | CALLS | FINALS | SCRAPS | TEXTS, min_size=1, max_size=4).map("".join)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(BUILT_IN)),
    protocol=st.sampled_from(PROTOCOLS),
    index=st.integers(0, 11),
    turns=st.lists(st.tuples(TURNS, st.booleans()), min_size=1, max_size=6),
    limits=st.builds(
        EpisodeLimits,
        max_turns=st.integers(1, 6),
        max_new_tokens_per_turn=st.just(10**6),
        max_total_tokens=st.integers(1, 20_000),
        max_parse_errors=st.integers(0, 4),
        max_repeated_calls=st.integers(1, 3),
    ),
)
def test_hostile_text_always_ends_an_episode_for_one_reason(
    tmp_path_factory, name, protocol, index, turns, limits
):
    world = make_environment(name, **protocol)
    task = world.generate_task(index, seed=3, difficulty="hard", split="train")
    started = time.process_time()
    episode = Episode(world, task, CODEC, limits)
    episode.begin()
    for text, closed in turns * limits.max_turns:
        if episode.reason is not None:
            break
        token_ids = [*CODEC.encode(text), *([CODEC.eos_ids[0]] if closed else [])]
        token_ids = token_ids[: episode.budget] or [CODEC.eos_ids[0]]
        stop = "eos" if token_ids[-1] == CODEC.eos_ids[0] else "stop"
        episode.take(GeneratedTurn(0, token_ids, [-1.0] * len(token_ids), None, stop))
    assert isinstance(episode.reason, TerminationReason)
    # Nothing that a model can write breaks a world.
    assert episode.reason is not TerminationReason.ENVIRONMENT_ERROR
    row = episode.build({}, trajectory_id="e")
    assert time.process_time() - started < 10
    assert row.counters.assistant_turns == len(row.turns) <= limits.max_turns
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    write_trajectories(path, [row])
    assert read_trajectories(path) == [row]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(BUILT_IN)), st.sampled_from(PROTOCOLS), st.integers(0, 11), st.text())
def test_verifiers_are_total(name, protocol, index, text):
    world = make_environment(name, **protocol)
    world.reset(world.generate_task(index, seed=3, difficulty="hard", split="train"))
    for answer in (text, *ANSWERS[:: 1 + index]):
        verdict = world.verify(answer)
        assert verdict.reward == float(verdict.solved)

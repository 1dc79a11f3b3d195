import logging

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.recipe.runtime import Runtime
from core.selection.selectors import select_positions
from core.teacher import independence
from core.teacher.independence import Finding
from core.teacher.reuse import Tally
from core.teacher.scorer import score
from core.teacher.target_cache import TargetCache
from core.trajectory.view import teacher_view

PROMPT = [("system", 3), ("user", 4)]
MODES = ("bucketed_topk_tail", "exact_full_vocab", "verl_pg_k1", "union_topk")


@pytest.fixture(scope="module")
def teacher(small_toy):
    return small_toy(2)


@pytest.fixture(scope="module")
def ask(teacher, specs_of):
    """Return f(episodes, cache): the tensors that would be written, and the tally."""

    def scored(episodes, cache=None, *overrides, digest="t", views=None, **sizes):
        spec, _ = specs_of("loss.aggregation=token-mean", *overrides)
        chosen = [select_positions(one, spec.selection, 0) for one in episodes]
        tally = Tally()
        found = score(
            teacher, episodes, chosen, spec, Runtime(**sizes), teacher_digest=digest,
            teacher_views=views, cache=cache, tally=tally,
        )  # fmt: skip
        return found._tensors(), tally

    return scored


def same_bits(left, right):
    assert left.keys() == right.keys()
    assert all(torch.equal(tensor, right[name]) for name, tensor in left.items())


def write_some(write_episode, lengths):
    return [
        write_episode([*PROMPT, ("assistant_text", length)], n, trajectory_id=f"t{n}")
        for n, length in enumerate(lengths)
    ]


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("mode", MODES)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lengths=st.lists(st.integers(1, 80), min_size=1, max_size=6),
    known=st.integers(0, 6),
    rows=st.sampled_from([1, 3, 8]),
)
def test_what_the_cache_holds_reaches_no_bit(
    ask, write_episode, tmp_path_factory, mode, lengths, known, rows
):
    """Without a cache, cold, half warm and warm."""
    cache = TargetCache(tmp_path_factory.mktemp("cache"))
    episodes = write_some(write_episode, lengths)
    setting, sizes = f"loss.mode={mode}", {"trajectory_batch_size": rows}
    alone, _ = ask(episodes, None, setting, **sizes)
    if episodes[:known]:
        ask(episodes[:known], cache, setting, **sizes)
    half, tally = ask(episodes, cache, setting, **sizes)
    warm, after = ask(episodes, cache, setting, **sizes)
    same_bits(half, alone)
    same_bits(warm, alone)
    assert tally.reused_positions == sum(lengths[:known])
    assert (
        tally.reused_positions + tally.computed_positions == after.reused_positions == sum(lengths)
    )
    assert (after.computed_positions, after.forwarded_trajectories) == (0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_the_episodes_reaches_no_bit(ask, write_episode, tmp_path, mode):
    """C73: nobody's targets depend on who was scored before or beside."""
    episodes = write_some(write_episode, [5, 70, 9, 12, 66, 3, 8, 20, 31])
    cache, setting = TargetCache(tmp_path), f"loss.mode={mode}"
    forwards, _ = ask(episodes, cache, setting, trajectory_batch_size=4)
    for source in (cache, None):
        backwards, _ = ask(episodes[::-1], source, setting, trajectory_batch_size=4)
        counts = forwards["prediction_positions_N"].new_tensor([5, 70, 9, 12, 66, 3, 8, 20, 31])
        for name, tensor in backwards.items():
            parts = tensor.split(counts.flip(0).tolist())
            assert torch.equal(torch.cat(parts[::-1]), forwards[name])


# ---------------------------------------------------------------- what is shared


def test_fewer_positions_of_known_tokens_are_all_known(ask, write_episode, tmp_path):
    """An arm that selects less reads what one that selects more has left."""
    cache, episodes = TargetCache(tmp_path), write_some(write_episode, [40, 30])
    ask(episodes, cache)
    some = ("selection.selector=uniform_ratio", "selection.ratio=0.3")
    expected, _ = ask(episodes, None, *some)
    found, tally = ask(episodes, cache, *some)
    same_bits(found, expected)
    assert (tally.reused_positions, tally.forwarded_trajectories) == (12 + 9, 0)


def test_what_follows_a_position_is_no_part_of_its_address(ask, write_episode, tmp_path):
    """A longer episode of one width leaves the targets of its own beginning."""
    cache = TargetCache(tmp_path)
    long = write_episode([*PROMPT, ("assistant_text", 30)])
    short = write_episode(
        [*PROMPT, ("assistant_text", 12)], token_ids=long.token_ids[:19], trajectory_id="other",
        policy_version=7,
    )  # fmt: skip
    ask([long], cache)
    found, tally = ask([short], cache)
    assert (tally.reused_positions, tally.computed_positions) == (12, 0)
    same_bits(found, ask([short])[0])


def test_a_sampled_target_is_part_of_its_address(ask, write_episode, tmp_path):
    cache, episode = TargetCache(tmp_path), write_episode([*PROMPT, ("assistant_text", 3)])
    other_ids = [*episode.token_ids[:-1], episode.token_ids[-1] - 1]
    other = write_episode([*PROMPT, ("assistant_text", 3)], token_ids=other_ids)
    k1 = "loss.mode=verl_pg_k1"
    ask([episode], cache, k1)
    found, tally = ask([other], cache, k1)
    assert (tally.reused_positions, tally.computed_positions) == (0, 3)
    same_bits(found, ask([other], None, k1)[0])
    ask([episode], cache)
    assert ask([other], cache)[1].reused_positions == 3


@pytest.mark.parametrize(
    ("digest", "overrides", "sizes"),
    [
        ("another teacher", (), {}),
        ("t", ("loss.top_k=4",), {}),
        ("t", ("loss.teacher_temperature=2",), {}),
        ("t", ("loss.mode=exact_full_vocab",), {}),
        ("t", (), {"trajectory_batch_size": 4}),
        ("t", (), {"chunk_size": 16}),
    ],
)
def test_what_changes_a_bit_changes_the_address(
    ask, write_episode, tmp_path, digest, overrides, sizes
):
    cache, episodes = TargetCache(tmp_path), write_some(write_episode, [6])
    ask(episodes, cache)
    assert ask(episodes, cache, *overrides, digest=digest, **sizes)[1].reused_positions == 0


def test_a_hint_is_part_of_the_tokens(ask, teacher, write_episode, tmp_path):
    cache, episode = TargetCache(tmp_path), write_episode([*PROMPT, ("assistant_text", 6)])
    hinted = "models.teacher.mode=privileged_context"
    views = [teacher_view(episode, f"It is {n}.", teacher.tokenizer) for n in (4, 5)]
    ask([episode], cache)
    for view in views:
        assert ask([episode], cache, hinted, views=[view])[1].reused_positions == 0
    found, tally = ask([episode], cache, hinted, views=views[:1])
    assert tally.reused_positions == 6
    same_bits(found, ask([episode], None, hinted, views=views[:1])[0])


# ---------------------------------------------------------------- refusals


def test_nothing_is_kept_where_bits_depend_on_company(ask, write_episode, tmp_path, monkeypatch):
    monkeypatch.setattr(independence, "_check", lambda *_: Finding(False, ""))
    monkeypatch.setattr(independence, "_known", {})
    cache, episodes = TargetCache(tmp_path), write_some(write_episode, [6])
    ask(episodes, cache)
    assert ask(episodes, cache)[1].reused_positions == 0
    assert not list(tmp_path.glob("targets-*"))


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "index", "empty index"])
def test_damage_is_reported_computed_again_and_mended(ask, write_episode, tmp_path, caplog, damage):
    episodes = write_some(write_episode, [6, 9])
    expected, _ = ask(episodes, TargetCache(tmp_path))
    (shard,) = tmp_path.glob("targets-*")
    blob, index = bytearray(shard.read_bytes()), tmp_path / "index.json"
    blob[-1] ^= 1
    {
        "flip": lambda: shard.write_bytes(blob),
        "cut": lambda: shard.write_bytes(blob[:-1]),
        "remove": shard.unlink,
        "index": lambda: index.write_text(index.read_text()[:-20]),
        "empty index": lambda: index.write_bytes(b""),
    }[damage]()
    with caplog.at_level(logging.WARNING):
        found, tally = ask(episodes, TargetCache(tmp_path))
    named = shard.name if damage in ("flip", "cut", "remove") else "index.json"
    assert named in caplog.text
    assert (tally.reused_positions, tally.computed_positions) == (0, 15)
    same_bits(found, expected)
    again, tally = ask(episodes, TargetCache(tmp_path))
    assert tally.reused_positions == 15
    same_bits(again, expected)


def test_a_file_damaged_after_it_was_first_read_is_not_served(ask, write_episode, tmp_path):
    cache, episodes = TargetCache(tmp_path), write_some(write_episode, [6])
    expected, _ = ask(episodes, cache)
    assert ask(episodes, cache)[1].reused_positions == 6
    (shard,) = tmp_path.glob("targets-*")
    shard.write_bytes(b"x" * shard.stat().st_size)
    found, tally = ask(episodes, cache)
    assert tally.reused_positions == 0
    same_bits(found, expected)


def test_a_directory_of_something_else_is_left_alone(ask, write_episode, tmp_path, caplog):
    (tmp_path / "index.json").write_text('{"kind": "photos"}')
    episodes = write_some(write_episode, [6])
    with caplog.at_level(logging.WARNING):
        found, _ = ask(episodes, TargetCache(tmp_path))
    same_bits(found, ask(episodes)[0])
    assert "no index of teacher targets" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import NumericsError
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.rollout import decoder as engine
from core.rollout.decoder import Decoder
from core.rollout.independence import Independence
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.shape import EngineShape

LIMITS = EpisodeLimits(4, 20, 160)
GREEDY = SamplingSpec(0.0)


def decoder(backend, sampling=GREEDY, slots=8, stops=("</final>",)) -> Decoder:
    shape = EngineShape.of(backend, LIMITS)
    return Decoder(backend, shape, sampling, slots=slots, stop_texts=stops, max_new_tokens=20)


def drain(engine: Decoder):
    turns = []
    while finished := engine.advance():
        turns += finished
    return turns


def fed_ids(backend, slot: int, count: int) -> list[int]:
    """What the engine's cache (the second that was made) holds for a slot."""
    return [int(x) for x in backend.caches[1].keys[0][slot, 0, :count, 0]]


def test_a_turn_ends_by_length_stop_text_or_end_of_turn(scripted):
    codec = ToyTokenizer()
    final = codec.encode("<final>7</final>")
    for script, budget, expected in [
        ([50], 5, ([50] * 5, "length")),
        ([*final, 50, 50], 20, (None, "stop")),
        ([50, 51, 52, 2], 20, (None, "eos")),
    ]:
        backend = scripted(script)
        run = decoder(backend)
        run.admit(0, [10, 11, 12, 13], prefix=2, budget=budget, stream=0)
        (turn,) = drain(run)
        ids = [script[(4 + i) % len(script)] for i in range(len(turn.token_ids))]
        assert (turn.slot, turn.token_ids, turn.stop) == (0, ids, expected[1])
        assert expected[0] in (None, turn.token_ids)
        assert len(turn.token_ids) <= budget
        assert turn.kept_mass is None


def test_greedy_logprobs_are_the_models_own(scripted):
    backend = scripted([50, 51])
    run = decoder(backend)
    run.admit(0, [10, 11], prefix=0, budget=3, stream=0)
    (turn,) = drain(run)
    expected = -math.log1p((backend.vocab_size - 1) * math.exp(-30))
    assert turn.logprobs == pytest.approx([expected] * 3, abs=1e-13)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), slots=st.integers(1, 8), prefix=st.integers(0, 40))
def test_every_token_is_fed_once_at_its_own_position(scripted, data, slots, prefix):
    backend = scripted([50 + i for i in range(37)])
    run = decoder(backend, slots=slots)
    ids = st.lists(st.integers(9, 300), min_size=1, max_size=40)
    transcripts = [data.draw(ids) for _ in range(slots)]
    for slot, prompt in enumerate(transcripts):
        run.admit(slot, prompt, prefix=prefix, budget=data.draw(st.integers(1, 20)), stream=slot)
    turns = drain(run)
    assert sorted(turn.slot for turn in turns) == list(range(slots))
    for turn in turns:
        transcripts[turn.slot] += turn.token_ids
        observation = data.draw(st.lists(st.integers(9, 300), max_size=30))
        transcripts[turn.slot] += observation
        run.resume(turn.slot, observation, budget=data.draw(st.integers(1, 20)), stream=9)
    for turn in drain(run):
        transcripts[turn.slot] += turn.token_ids
    for slot, transcript in enumerate(transcripts):
        # The last sampled token is never fed: nothing comes after it.
        assert fed_ids(backend, slot, len(transcript) - 1) == transcript[:-1]


def play(backend, sampling, order, slots=8):
    """Three turns of each of 20 episodes; the slots take them in ``order``."""
    run, queue, live, said = decoder(backend, sampling, slots), list(order), {}, {}
    system = list(range(40, 62))

    def admit(slot: int) -> None:
        episode = queue.pop(0)
        live[slot], said[episode] = episode, []
        prompt = [*system, *range(70 + episode, 76 + 2 * episode)]
        run.admit(slot, prompt, prefix=22, budget=3 + episode % 7, stream=episode)

    for slot in range(slots):
        admit(slot)
    while live:
        for turn in run.advance():
            episode = live[turn.slot]
            said[episode].append((turn.token_ids, turn.logprobs, turn.kept_mass, turn.stop))
            if len(said[episode]) < 3:
                observation = list(range(90, 95 + (episode * 7) % 30))
                key = 1000 * len(said[episode]) + episode
                run.resume(turn.slot, observation, budget=4 + episode % 5, stream=key)
                continue
            del live[turn.slot]
            run.release(turn.slot)
            if queue:
                admit(turn.slot)
    return said


@pytest.mark.parametrize("sampling", [SamplingSpec(), SamplingSpec(0.7, 0.9, 50), GREEDY])
def test_bits_depend_on_the_episode_alone(toy, sampling):
    alone = play(toy, sampling, range(20), slots=1)
    assert play(toy, sampling, range(20), slots=8) == alone
    assert play(toy, sampling, reversed(range(20)), slots=7) == alone
    assert play(toy, sampling, [*range(13, 20), *range(13)], slots=20) == alone


@pytest.mark.parametrize("patience", [0, 5, 10**9])
def test_the_schedule_of_prefill_reaches_no_bit(toy, monkeypatch, patience):
    usual = play(toy, SamplingSpec(), range(20))
    monkeypatch.setattr(engine, "PATIENCE", patience)
    assert play(toy, SamplingSpec(), range(20)) == usual


def test_steps_that_leave_out_empty_rows_and_slots_have_the_bits_of_full_ones(toy, monkeypatch):
    narrow = play(toy, SamplingSpec(), range(20))
    full = Independence(rows_are_independent=True)
    monkeypatch.setattr(engine, "measured_independence", lambda backend, shape: full)
    assert play(toy, SamplingSpec(), range(20)) == narrow


def test_steps_are_as_small_as_the_check_allows(scripted):
    backend = scripted([50], rows=32)
    run = decoder(backend, slots=9)
    checked = len(backend.steps)
    for slot in range(9):
        run.admit(slot, list(range(10, 40)), prefix=20, budget=3, stream=slot)
    drain(run)
    # One block for the prefix, one per row for the rest, then one step per token.
    assert backend.steps[checked:] == [(1, 32)] * 10 + [(16, 1)] * 3
    assert backend.caches[1].rows == 16


def test_the_last_episodes_move_together_and_go_on_as_they_were(scripted):
    script = [50, 51, 52, 53, 54, 55, 56]
    backend = scripted(script, rows=32)
    run = decoder(backend, slots=20)
    for slot in range(20):
        budget = 9 if slot >= 17 else 2
        run.admit(slot, [10, 11, 12 + slot], prefix=0, budget=budget, stream=slot)
    for turn in run.advance():
        run.release(turn.slot)
    before = len(backend.steps)
    turns = drain(run)
    assert sorted(turn.slot for turn in turns) == [17, 18, 19]
    assert set(backend.steps[before:]) == {(8, 1)}
    for turn in turns:
        assert turn.token_ids == [script[(3 + i) % 7] for i in range(9)]
    # A turn more: the row that moved still holds what it has read.
    run.resume(18, [60, 61], budget=2, stream=99)
    (turn,) = drain(run)
    assert (turn.slot, turn.token_ids) == (18, [script[(14 + i) % 7] for i in range(2)])


def test_a_model_that_gives_no_numbers_is_reported_with_the_position():
    backend = ToyBackend(ToyConfig(32, 1, 2, 48, 256), 0, ToyTokenizer())
    run = decoder(backend)
    with torch.no_grad():
        backend.parameters["norm"].fill_(math.nan)
    run.admit(0, [10, 11, 12], prefix=0, budget=3, stream=0)
    with pytest.raises(NumericsError, match="not finite at position 2"):
        run.advance()


def test_an_idle_decoder_has_nothing_to_say(scripted):
    assert decoder(scripted([50])).advance() == []

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.models.toy_tokenizer import ToyTokenizer
from core.rollout.stops import StopScanner

CODEC = ToyTokenizer()
STOPS = ("</tool_call>", "</final>")


def first_end(token_ids: list[int], stops: tuple[str, ...], budget: int):
    scanner = StopScanner(CODEC, stops)
    for length in range(1, len(token_ids) + 1):
        reason = scanner.reason(token_ids[:length], budget)
        if reason:
            return reason, length
    return None, len(token_ids)


def naive_end(token_ids: list[int], stops: tuple[str, ...], budget: int):
    for length in range(1, len(token_ids) + 1):
        if token_ids[length - 1] in CODEC.eos_ids:
            return "eos", length
        if any(stop in CODEC.decode(token_ids[:length]) for stop in stops):
            return "stop", length
        if length >= budget:
            return "length", length
    return None, len(token_ids)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<final>4</final>", ("stop", 3)),  # tags are one token each
        ("4</final> more", ("stop", 2)),
        ("<|im_end|>", ("eos", 1)),
        ("12345678", ("length", 6)),
        ("12", (None, 2)),
    ],
)
def test_a_turn_ends_where_it_should(text: str, expected: tuple[str | None, int]):
    assert first_end(CODEC.encode(text), STOPS, 6) == expected


def test_a_stop_text_is_found_across_single_characters():
    token_ids = [CODEC.encode(character)[0] for character in "x</final>y"]
    assert first_end(token_ids, STOPS, 99) == ("stop", 9)


def test_a_character_split_over_tokens_completes_a_stop_text():
    token_ids = CODEC.encode("a⇥b")
    assert first_end(token_ids, ("⇥",), 99) == ("stop", len(token_ids) - 1)


def test_end_of_turn_wins_over_the_budget():
    assert first_end([*CODEC.encode("12"), 2], STOPS, 3) == ("eos", 3)


def test_a_stop_text_wins_over_the_budget():
    assert first_end(CODEC.encode("1</final>"), STOPS, 2) == ("stop", 2)


def test_a_text_may_have_to_be_complete_several_times():
    times = {"</tool_call>": 3, "</final>": 1}
    call = CODEC.encode("<tool_call>x</tool_call>")
    assert first_end(call * 2, times, 99) == (None, 2 * len(call))
    assert first_end(call * 4, times, 99) == ("stop", 3 * len(call))
    assert first_end([*call, *CODEC.encode("<final>4</final>"), *call], times, 99)[0] == "stop"
    assert first_end([*call, 2], times, 99) == ("eos", len(call) + 1)
    letters = [CODEC.encode(character)[0] for character in "</tool_call>" * 3 + ">"]
    assert first_end(letters, times, 99) == ("stop", 36)


@given(
    st.lists(st.integers(0, CODEC.vocab_size - 1), min_size=1, max_size=60),
    st.lists(st.text("<>/fi⇥", min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(1, 60),
)
def test_the_bounded_suffix_finds_what_the_whole_text_holds(
    token_ids: list[int], stops: list[str], budget: int
):
    texts = tuple(stops)
    assert first_end(token_ids, texts, budget) == naive_end(token_ids, texts, budget)


@given(st.text("<>/final", max_size=30), st.integers(1, 40))
def test_near_misses_are_read_like_the_whole_text(text: str, budget: int):
    token_ids = CODEC.encode(text)
    assert first_end(token_ids, STOPS, budget) == naive_end(token_ids, STOPS, budget)


def test_only_a_bounded_suffix_is_ever_decoded():
    class Watched(ToyTokenizer):
        longest = 0

        def decode(self, token_ids):
            self.longest = max(self.longest, len(token_ids))
            return super().decode(token_ids)

    codec = Watched()
    scanner = StopScanner(codec, STOPS)
    ids = codec.encode(">" * 300)
    assert {scanner.reason(ids[:length], 999) for length in range(1, 301)} == {None}
    assert codec.longest == len("</tool_call>") + 4

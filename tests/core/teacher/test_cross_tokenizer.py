from types import SimpleNamespace

import pytest
import torch

from core.errors import AlignmentError, TokenizerMismatchError
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.runtime import Runtime
from core.selection.selectors import select_positions
from core.teacher.cross_tokenizer import score_across
from core.trajectory.byte_alignment import align_bytes

CODEC = ToyTokenizer()
PROMPT = [("system", 3), ("user", 4)]
TWO_TURNS = [*PROMPT, ("assistant_tool_call", 4), ("tool_result", 3), ("assistant_final", 3)]
PG = ("loss.mode=verl_pg_k1", "loss.aggregation=token-mean")
SIZE = ToyConfig(
    hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32, max_position_embeddings=256
)


class Bytes:
    """One token per byte."""

    vocab_size, pad_id, eos_ids, digest = 256, 0, (), "bytes"

    def encode(self, text):
        return list(text.encode())

    def decode(self, token_ids):
        return bytes(token_ids).decode("utf-8", "replace")


@pytest.fixture
def episodes(write_episode):
    """Episodes of readable tokens: each id is a character or a fragment of ASCII."""
    ids = CODEC.encode("abc 12345 answer 678 tool and the unit, 90 xyz ")
    return [
        write_episode(TWO_TURNS, n, trajectory_id=f"t{n}", token_ids=ids[n : n + 17])
        for n in range(3)
    ]


@pytest.fixture
def across(specs_of):
    """Return f(teacher, episodes): what a teacher says across tokenizers."""

    def ask(teacher, episodes, *overrides, **sizes):
        spec, _ = specs_of(*(overrides or PG))
        chosen = [select_positions(one, spec.selection, 0) for one in episodes]
        runtime = Runtime(**sizes)
        return score_across(teacher, CODEC, episodes, chosen, spec, runtime, teacher_digest="t")

    return ask


@torch.no_grad()
def log_prob_of(backend, token_ids, start, stop):
    """The chain rule, token by token."""
    ids_BT = torch.tensor([token_ids])
    hidden_BTH = backend.hidden_states(ids_BT, torch.tensor([len(token_ids)]))
    logits_TV = backend.project(hidden_BTH[0])
    return sum(float(logits_TV[k - 1].log_softmax(-1)[token_ids[k]]) for k in range(start, stop))


def test_a_chunk_s_difference_is_that_of_two_chain_rules(across, episodes):
    teacher = ToyBackend(SIZE, 5, Bytes())
    values = across(teacher, episodes).targets.values
    differences, expected = values.rollout_logprobs_N - values.teacher_logprobs_N, []
    for episode in episodes:
        recorded = dict(zip(episode.target_positions(), episode.logprobs, strict=True))
        aligned = align_bytes(episode, CODEC, Bytes())
        for chunk in aligned.chunks:
            tokens = range(chunk.student_start, chunk.student_stop)
            theirs = log_prob_of(
                teacher, aligned.teacher_ids, chunk.teacher_start, chunk.teacher_stop
            )
            expected += [sum(recorded[j] for j in tokens) - theirs] * len(tokens)
    assert any(chunk.teacher_stop - chunk.teacher_start > 1 for chunk in aligned.chunks)
    assert differences.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_one_tokenizer_on_both_sides_gives_the_plain_targets(
    across, episodes, small_toy, scored_by
):
    found = across(small_toy(2), episodes)
    plain, _, _ = scored_by(small_toy(2), episodes, *PG)
    assert found.targets.selected == plain.selected
    torch.testing.assert_close(
        found.targets.values.teacher_logprobs_N, plain.values.teacher_logprobs_N,
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip
    assert found.unaligned_bytes == 0
    assert found.model_bytes > 0


@pytest.mark.parametrize("sizes", [{"chunk_size": 3}, {"trajectory_batch_size": 1}])
def test_physical_sizes_change_no_target(across, episodes, sizes):
    teacher = ToyBackend(SIZE, 5, Bytes())
    whole, split = across(teacher, episodes), across(teacher, episodes, **sizes)
    torch.testing.assert_close(
        split.targets.values.teacher_logprobs_N, whole.targets.values.teacher_logprobs_N,
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_a_chunk_with_a_token_that_is_not_selected_is_left_out_and_counted(specs_of, episodes):
    spec, episode = specs_of(*PG)[0], episodes[0]
    first, *others = episode.target_positions()
    chosen = SimpleNamespace(positions=others, weights=[1.0] * len(others))
    teacher = ToyBackend(SIZE, 5, Bytes())
    found = score_across(teacher, CODEC, [episode], [chosen], spec, Runtime(), teacher_digest="t")
    assert found.unaligned_bytes == len(CODEC.decode([episode.token_ids[first]]))
    assert found.targets.selected[0].prediction_positions == [j - 1 for j in others]


def test_tokens_that_form_no_character_are_in_no_target(across, episodes):
    broken = CODEC.encode("é")[0]
    silent = episodes[0].model_copy(update={"token_ids": [broken] * 17})
    found = across(ToyBackend(SIZE, 5, Bytes()), [silent])
    assert found.unaligned_bytes == found.model_bytes > 0
    assert len(found.targets.values) == 0


def test_without_the_key_another_tokenizer_is_refused(episodes, scored_by):
    """C65: permuted, larger or merely different: the content decides, never the size."""
    with pytest.raises(TokenizerMismatchError, match="another tokenizer"):
        scored_by(ToyBackend(SIZE, 5, Bytes()), episodes, *PG)


def test_a_loss_over_one_vocabulary_is_refused(across, episodes):
    with pytest.raises(AlignmentError, match="does not compare sums over texts"):
        across(ToyBackend(SIZE, 5, Bytes()), episodes, "loss.mode=exact_full_vocab")


def test_an_episode_too_long_in_the_teacher_s_tokens_is_refused(across, episodes, small_toy):
    short = ToyBackend(
        ToyConfig(hidden_size=16, num_layers=1, num_heads=2, intermediate_size=32,
                  max_position_embeddings=8), 5, Bytes(),
    )  # fmt: skip
    with pytest.raises(AlignmentError, match="tokens for the teacher, which reads 8"):
        across(short, episodes)

import math
from dataclasses import replace

import pytest
import torch

from core.training.token_analysis import analysed_rows, favourites
from core.training.update import group_targets, paired_examples, update

EPISODE = [
    ("system", 3), ("user", 4), ("assistant_tool_call", 2), ("tool_result", 3),
    ("assistant_final", 2),
]  # fmt: skip


@pytest.fixture
def asked(small_toy, scored_by, write_episode):
    """Return f(overrides): what both models favour in two episodes, and the models' own logits."""

    def ask(*overrides, chunk_size=256):
        student, teacher = small_toy(1), small_toy(2)
        episodes = [write_episode(EPISODE, n, trajectory_id=f"t{n}") for n in range(2)]
        scored, spec, _ = scored_by(teacher, episodes, *overrides)
        examples = paired_examples(episodes, scored)
        targets = group_targets(student, scored, range(2), teacher)(range(2))
        found = favourites(student, examples, targets, chunk_size, spec.temperature)
        return found, examples, [logits(model, examples) for model in (student, teacher)]

    return ask


@torch.no_grad()
def logits(model, examples):
    rows = []
    for example in examples:
        ids_1T = torch.tensor([example.token_ids])
        hidden_TH = model.hidden_states(ids_1T, torch.tensor([ids_1T.shape[1]]))[0]
        rows.append(model.project(hidden_TH[list(example.prediction_positions)]))
    return torch.cat(rows)


@pytest.mark.parametrize("mode", ["bucketed_topk_tail", "exact_full_vocab"])
def test_favourites_are_the_most_probable_tokens(asked, mode):
    found, _, (student_NV, teacher_NV) = asked(f"loss.mode={mode}")
    assert found.student_N == student_NV.argmax(-1).tolist()
    assert found.teacher_N == teacher_NV.argmax(-1).tolist()


def test_the_whole_distribution_knows_every_sampled_token(asked):
    found, examples, (_, teacher_NV) = asked("loss.mode=exact_full_vocab", "loss.temperature=2")
    ids = [token for example in examples for token in example.target_ids]
    expected = (teacher_NV / 2).log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]
    assert found.teacher_logprobs_N == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_token_outside_the_teacher_s_top_k_has_no_log_probability(asked):
    found, examples, (_, teacher_NV) = asked("loss.top_k=40")
    ids = [token for example in examples for token in example.target_ids]
    kept_NK = teacher_NV.topk(40).indices.tolist()
    inside = [token in kept for token, kept in zip(ids, kept_NK, strict=True)]
    assert [value is not None for value in found.teacher_logprobs_N] == inside
    own = teacher_NV.log_softmax(-1)
    for n, value in enumerate(found.teacher_logprobs_N):
        assert value is None or value == pytest.approx(float(own[n, ids[n]]), abs=1e-5)


def test_chunks_change_nothing(asked):
    chunked, whole = asked(chunk_size=3)[0], asked()[0]
    assert chunked.student_logprobs_N == pytest.approx(whole.student_logprobs_N, abs=1e-5)
    assert replace(chunked, student_logprobs_N=[]) == replace(whole, student_logprobs_N=[])


def test_rows_name_tokens_and_carry_the_loss(small_toy, scored_by, write_episode, state_of):
    student, teacher = small_toy(1), small_toy(2)
    episodes = [write_episode(EPISODE, n, trajectory_id=f"t{n}") for n in range(10)]
    scored, spec, runtime = scored_by(
        teacher, episodes, "train.rollouts_per_cycle=10", "train.gradient_accumulation_steps=10"
    )
    done = update(student, state_of(student), episodes, scored, spec, runtime)
    rows = done.token_rows
    assert {row["trajectory_id"] for row in rows} == {f"t{n}" for n in range(8)}
    first = rows[0]
    assert (first["target_position"], first["prediction_position"]) == (7, 6)
    assert first["token_id"] == episodes[0].token_ids[7]
    assert first["token_piece"] == student.tokenizer.decode([first["token_id"]])
    assert first["token_loss"] == first["divergence"] > 0.0
    assert math.isfinite(first["teacher_entropy"])
    assert first["span_type"] == "assistant_tool_call"


def test_nothing_to_look_at_is_no_row(small_toy):
    student = small_toy(1)
    assert analysed_rows(student, [], [], None) == []

import weakref

import pytest
import torch

from core.errors import AlignmentError, StalePolicyError, TokenizerMismatchError
from core.losses.buckets import top_k_targets
from core.recipe.runtime import Runtime
from core.selection.selectors import select_positions
from core.teacher.scorer import score
from core.training.group import accumulate
from core.training.memory import ChunkSize
from core.training.update import group_targets, objective_of, paired_examples
from core.trajectory.view import teacher_view

PROMPT = [("system", 3), ("user", 4)]
TWO_TURNS = [*PROMPT, ("assistant_tool_call", 2), ("tool_result", 3), ("assistant_final", 2)]
TARGETS = [7, 8, 12, 13]
HINT = "The answer is 4."


@torch.no_grad()
def logits_at(backend, token_ids, positions):
    ids_BT = torch.tensor([list(token_ids)])
    hidden_BTH = backend.hidden_states(ids_BT, torch.tensor([ids_BT.shape[1]]))
    return backend.project(hidden_BTH[0, positions])


def divergences(backend, episodes, scored, spec):
    """What the update would minimise, position by position."""
    examples = paired_examples(episodes, scored)
    gather = group_targets(backend, scored, range(len(examples)), backend)
    group = accumulate(
        backend, examples, gather, objective_of(spec), Runtime(), ChunkSize(256, 0, 8)
    )
    return torch.cat([terms.divergence for terms in group.terms])


@pytest.mark.parametrize("mode", ["exact_full_vocab", "bucketed_topk_tail", "union_topk"])
def test_a_teacher_that_is_the_student_diverges_nowhere(small_toy, write_episode, scored_by, mode):
    """C08: scores at token positions, not prediction positions, would be shifted by one."""
    episodes = [write_episode(TWO_TURNS), write_episode([*PROMPT, ("assistant_text", 1)], 1)]
    scored, spec, _ = scored_by(small_toy(1), episodes, f"loss.mode={mode}")
    same_N = divergences(small_toy(1), episodes, scored, spec)
    assert same_N.shape == (5,)
    assert float(same_N.abs().max()) < 1e-5
    other_N = divergences(small_toy(2), episodes, scored, spec)
    assert float(other_N.min()) > 1e-3


def test_targets_shifted_by_one_position_would_diverge(small_toy, write_episode, scored_by):
    """C08: the identity above is not a property of the model."""
    episode = write_episode([*PROMPT, ("assistant_text", 6)])
    scored, _, _ = scored_by(small_toy(1), [episode], "loss.top_k=5")
    right_NV = logits_at(small_toy(1), episode.token_ids, list(range(6, 12)))
    wrong_NV = logits_at(small_toy(1), episode.token_ids, list(range(7, 13)))
    right, wrong = top_k_targets(right_NV, 5), top_k_targets(wrong_NV, 5)
    torch.testing.assert_close(
        scored.values.support_logprobs_NK, right.support_logprobs_NK, rtol=1e-5, atol=1e-6
    )
    gap = (scored.values.support_logprobs_NK - wrong.support_logprobs_NK).abs().max()
    assert float(gap) > 1e-3


def test_a_hint_moves_where_the_teacher_predicts_and_not_what_is_predicted(
    small_toy, write_episode, specs_of
):
    """C09: the teacher's prompt is longer, and its scores still belong to the student's tokens."""
    teacher, episode = small_toy(2), write_episode(TWO_TURNS)
    view = teacher_view(episode, HINT, teacher.tokenizer)
    shift = len(view.token_ids) - len(episode.token_ids)
    assert shift > 4
    asked, _ = specs_of("models.teacher.mode=privileged_context", "loss.top_k=5")
    chosen = [select_positions(episode, asked.selection, 0)]
    scored = score(
        teacher, [episode], chosen, asked, Runtime(), teacher_digest="t", teacher_views=[view]
    )
    assert scored.selected[0].prediction_positions == [j - 1 for j in TARGETS]
    seen = logits_at(teacher, view.token_ids, [j - 1 + shift for j in TARGETS])
    expected = top_k_targets(seen, 5).support_logprobs_NK
    torch.testing.assert_close(scored.values.support_logprobs_NK, expected, rtol=1e-5, atol=1e-6)


def test_sampled_log_probs_stay_on_the_trajectory_s_own_index(small_toy, write_episode, scored_by):
    """C11: prompts of different lengths, and batches in an order of their own."""
    layouts = [TWO_TURNS, [("system", 1), ("user", 1), ("assistant_text", 3)], TWO_TURNS]
    episodes = [write_episode(parts, n, trajectory_id=f"t{n}") for n, parts in enumerate(layouts)]
    scored, _, _ = scored_by(
        small_toy(2), episodes, "loss.mode=verl_pg_k1", "loss.aggregation=token-mean"
    )
    recorded = [value for episode in episodes for value in episode.logprobs]
    torch.testing.assert_close(scored.values.rollout_logprobs_N, torch.tensor(recorded))
    expected = [
        float(logits_at(small_toy(2), one.token_ids, [j - 1]).log_softmax(-1)[0, one.token_ids[j]])
        for one in episodes
        for j in one.target_positions()
    ]
    assert scored.values.teacher_logprobs_N.tolist() == pytest.approx(expected, rel=1e-5)
    targets = scored.gather([2, 1], torch.device("cpu"), None)
    offsets = scored.offsets
    ours = [*range(offsets[2], offsets[3]), *range(offsets[1], offsets[2])]
    torch.testing.assert_close(targets.teacher_logprobs_N, scored.values.teacher_logprobs_N[ours])


@pytest.mark.parametrize("mode", ["exact_full_vocab", "bucketed_topk_tail", "verl_pg_k1"])
def test_physical_sizes_change_no_target(small_toy, write_episode, scored_by, mode):
    episodes = [
        write_episode([*PROMPT, ("assistant_text", 2 + 3 * n)], n, trajectory_id=f"t{n}")
        for n in range(4)
    ]
    extra = ("loss.aggregation=token-mean",)
    one, _, _ = scored_by(
        small_toy(2), episodes, f"loss.mode={mode}", *extra, chunk_size=1, batch_size=1
    )
    all_, _, _ = scored_by(small_toy(2), episodes, f"loss.mode={mode}", *extra, batch_size=4)
    assert one.selected == all_.selected
    for name, tensor in one._tensors().items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, all_._tensors()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_targets_are_taken_at_the_teacher_s_own_temperature(
    small_toy, write_episode, scored_by, tau
):
    """C49: not at the loss temperature, and never at that of the sampling."""
    episode = write_episode(TWO_TURNS)
    scored, _, _ = scored_by(
        small_toy(2), [episode], "rollout.temperature=0.7", f"loss.teacher_temperature={tau}",
        "loss.top_k=5",
    )  # fmt: skip
    seen = logits_at(small_toy(2), episode.token_ids, [j - 1 for j in TARGETS])
    expected = top_k_targets(seen / tau, 5).support_logprobs_NK
    assert scored.provenance.temperature == scored.values.temperature == tau
    torch.testing.assert_close(scored.values.support_logprobs_NK, expected, rtol=1e-4, atol=1e-5)


def test_a_hint_that_does_not_fit_is_refused_and_never_cut(small_toy, write_episode, specs_of):
    """C26: the teacher's prompt has the teacher's budget, not the student's."""
    teacher, episode = small_toy(2), write_episode(TWO_TURNS)
    asked, _ = specs_of("models.teacher.mode=privileged_context")
    chosen = [select_positions(episode, asked.selection, 0)]
    view = teacher_view(episode, HINT * 40, teacher.tokenizer)
    with pytest.raises(AlignmentError, match=f"tokens for the teacher, which reads {96}"):
        score(teacher, [episode], chosen, asked, Runtime(), teacher_digest="t",
              teacher_views=[view])  # fmt: skip


def test_an_episode_that_nobody_sampled_has_no_importance_ratio(
    small_toy, write_episode, scored_by
):
    episode = write_episode(TWO_TURNS, logprobs=[])
    with pytest.raises(AlignmentError, match="nobody sampled it"):
        scored_by(small_toy(2), [episode], "loss.mode=verl_pg_k1", "loss.aggregation=token-mean")


def test_another_tokenizer_or_version_is_refused(small_toy, write_episode, scored_by):
    with pytest.raises(TokenizerMismatchError, match="another tokenizer"):
        scored_by(small_toy(2), [write_episode(TWO_TURNS, tokenizer_digest="other")])
    with pytest.raises(StalePolicyError, match=r"versions \[0, 3\]"):
        scored_by(
            small_toy(2), [write_episode(TWO_TURNS), write_episode(TWO_TURNS, policy_version=3)]
        )


def test_no_trajectory_and_a_missing_view_are_refused(small_toy, write_episode, specs_of):
    asked, _ = specs_of()
    with pytest.raises(AlignmentError, match="0 trajectories"):
        score(small_toy(2), [], [], asked, Runtime(), teacher_digest="t")
    hinted, _ = specs_of("models.teacher.mode=privileged_context")
    episode = write_episode(TWO_TURNS)
    chosen = [select_positions(episode, hinted.selection, 0)]
    with pytest.raises(AlignmentError, match="views were not given"):
        score(small_toy(2), [episode], chosen, hinted, Runtime(), teacher_digest="t")


def test_one_batch_of_teacher_outputs_is_alive_at_a_time(small_toy, write_episode, scored_by):
    """C77: what a batch leaves behind is its targets, not its hidden states or logits."""
    teacher = small_toy(2)
    hidden_states, alive, most = teacher.hidden_states, weakref.WeakSet(), []

    def counted(token_ids_BT, lengths_B):
        most.append(len(alive))
        hidden_BTH = hidden_states(token_ids_BT, lengths_B)
        alive.add(hidden_BTH)
        return hidden_BTH

    teacher.hidden_states = counted
    episodes = [write_episode(TWO_TURNS, n, trajectory_id=f"t{n}") for n in range(8)]
    scored_by(teacher, episodes, batch_size=1)
    assert len(most) == 8
    assert max(most) <= 1

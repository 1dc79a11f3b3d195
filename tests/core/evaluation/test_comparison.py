"""Teacher and student at the tokens that the student wrote."""

import math

import pytest
import torch

from core.environments.base import make_splits
from core.environments.registry import make_environment
from core.evaluation.comparison import compare
from core.rollout.episodes import run_episodes
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.trajectory.masks import target_positions

LIMITS = EpisodeLimits(1, 12, 96)


def world():
    return make_environment("calculator", prompt_style="compact")


@pytest.fixture(scope="module")
def episodes(small_toy):
    tasks = make_splits(world(), {"eval": 3}, 7, "easy")["eval"]
    return run_episodes(
        small_toy(1), world, tasks, LIMITS, SamplingSpec(), seed=3, slots=4, policy_version=5,
        model_digest="d", trajectory_ids=[task.task_id for task in tasks],
    )  # fmt: skip


def brute_force(student, teacher, episodes):
    """KL(student‖teacher) at every sampled token, in float64, one episode at a time."""
    values = []
    for one in episodes:
        places = [target - 1 for target in target_positions(one.model_mask)]
        ids_1T = torch.tensor([one.token_ids[: places[-1] + 1]])
        lengths_1 = torch.tensor([ids_1T.shape[1]])
        own_NV, theirs_NV = (
            model.project(model.hidden_states(ids_1T, lengths_1)[0, places]).double()
            .log_softmax(-1) for model in (student, teacher)
        )  # fmt: skip
        values += (own_NV.exp() * (own_NV - theirs_NV)).sum(-1).tolist()
    return values


def test_a_student_that_is_its_own_teacher_shows_nothing_above_its_noise(small_toy, episodes):
    """C75: one model through one engine; what is left is the noise of scoring, and it is named."""
    student = small_toy(1)
    found = compare(student, student, episodes, top_k=8, temperature=1.0).tokens
    assert found is not None
    assert found.divergence == found.disagreeing == found.above_noise == 0.0
    assert found.overlap == 1.0
    assert found.student_noise == found.teacher_noise
    assert found.student_noise.largest < 1e-9
    assert found.sampler_gap is not None
    assert found.sampler_gap < 1e-5


def test_divergence_is_that_of_the_whole_distributions(small_toy, episodes):
    student, teacher = small_toy(1), small_toy(2)
    found = compare(student, teacher, episodes, top_k=8, temperature=1.0).tokens
    assert found is not None
    expected = brute_force(student, teacher, episodes)
    assert found.tokens == len(expected) == sum(sum(one.model_mask) for one in episodes)
    assert math.isclose(found.divergence, sum(expected) / len(expected), rel_tol=1e-4)
    assert found.above_noise == 1.0
    assert sum(span.tokens for span in found.spans.values()) == found.tokens
    weighted = sum(span.tokens * span.divergence for span in found.spans.values())
    assert math.isclose(weighted / found.tokens, found.divergence)
    assert 0.0 <= found.overlap < 1.0


def test_a_support_of_all_tokens_overlaps_and_holds_everything(small_toy, episodes):
    found = compare(
        small_toy(1), small_toy(2), episodes, top_k=10**6, temperature=None
    ).tokens  # fmt: skip
    assert found is not None
    assert found.top_k == small_toy(1).vocab_size
    assert found.overlap == 1.0
    assert found.student_mass == pytest.approx(1.0, abs=1e-5)
    assert found.sampler_gap is None


def test_a_teacher_whose_replicas_disagree_shows_it_as_noise(small_toy, episodes, monkeypatch):
    """C76: scored twice, such a teacher differs from itself by more than from the student."""
    teacher, calls = small_toy(2), []
    plain = teacher.project

    def jitter(hidden_NH):
        calls.append(1)
        logits_NV = plain(hidden_NH)
        noise_NV = torch.randn(logits_NV.shape, generator=torch.Generator().manual_seed(len(calls)))
        return logits_NV + noise_NV

    monkeypatch.setattr(teacher, "project", jitter)
    found = compare(small_toy(1), teacher, episodes, top_k=8, temperature=1.0).tokens
    assert found is not None
    assert found.teacher_noise.mean > 0.1
    assert found.student_noise.mean < 1e-9

import pytest

from core.errors import StalePolicyError
from core.training.update import update

TWO_TURNS = [
    *(("system", 3), ("user", 4), ("assistant_tool_call", 2)),
    *(("tool_result", 3), ("assistant_final", 2)),
]


def test_a_strict_batch_takes_one_step(small_toy, scored_by, write_episode, state_of):
    student = small_toy(1)
    episodes = [write_episode(TWO_TURNS, n, trajectory_id=f"t{n}") for n in range(3)]
    scored, spec, runtime = scored_by(small_toy(2), episodes)
    spec = spec.model_copy(update={"gradient_accumulation_steps": 2})
    with pytest.raises(StalePolicyError, match="3 trajectories would take 2 steps of 2"):
        update(student, state_of(student), episodes, scored, spec, runtime)


def test_episodes_of_another_student_at_the_same_version_are_refused(
    small_toy, scored_by, write_episode, state_of
):
    student, other = small_toy(1), state_of(small_toy(3)).digest()
    episodes = [write_episode(TWO_TURNS, model_digest=other)]
    scored, spec, runtime = scored_by(small_toy(2), episodes)
    with pytest.raises(StalePolicyError, match="by another student that is at version 0 too"):
        update(student, state_of(student), episodes, scored, spec, runtime)
    frozen = spec.model_copy(update={"freshness": "frozen"})
    [row] = update(student, state_of(student), episodes, scored, frozen, runtime).rows
    assert row["phase"] == "offline_kd"

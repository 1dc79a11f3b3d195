"""Across an update frozen weights stay and trained ones move, or the step is refused."""

import pytest
import torch

from core.errors import BackendError, CanaryError
from core.recipe.training_specs import OptimizerSpec
from core.training.guards import check_update
from core.training.optimizer import NO_MOMENTS, Optimizer
from core.training.update import update

PARTS = [("system", 3), ("user", 4), ("assistant_final", 4)]
SPEC = OptimizerSpec(
    name="adamw", weight_decay=0.0, betas=(0.9, 0.999), eps=1e-8, max_grad_norm=1.0
)


@pytest.fixture
def step(small_toy, scored_by, state_of, write_episode):
    """Return f(student, overrides): an update of a student, and the state before it."""

    def run(student, *overrides):
        episodes = [write_episode(PARTS, n, trajectory_id=f"t{n}") for n in range(3)]
        teacher, before = small_toy(2), state_of(student)
        scored, spec, runtime = scored_by(teacher, episodes, *overrides)
        return update(student, before, episodes, scored, spec, runtime, teacher=teacher), before

    return run


def test_the_first_step_moves_weights(step, small_toy):
    """C58: a step that trains nothing would look like one that trains."""
    done, before = step(small_toy(1))
    assert any(not torch.equal(t, before.tensors[name]) for name, t in done.state.tensors.items())


def test_a_student_without_trainable_parameters_is_refused(step, small_toy):
    """C58: peft loads an adapter frozen unless told otherwise; an empty optimizer would succeed."""
    student = small_toy(1)
    student.freeze()
    with pytest.raises(BackendError, match="the model has 0 trainable parameters"):
        step(student)
    with pytest.raises(BackendError, match="the model has 0 trainable parameters"):
        Optimizer({}, SPEC, NO_MOMENTS)


def test_steps_that_move_nothing_are_refused(step, small_toy, monkeypatch):
    """C58: with a gradient and a learning rate, standing still is an error."""
    student = small_toy(1)
    monkeypatch.setattr(Optimizer, "step", lambda self, rate: self.clear() or 0.5)
    with pytest.raises(CanaryError, match="changed no trained weight"):
        step(student, "train.warmup_steps=0")


def test_a_frozen_weight_that_changes_is_refused_and_the_old_weights_come_back(
    step, small_toy, monkeypatch
):
    """C57: the digest of what is frozen is held against itself in every update."""
    student = small_toy(1)
    digests = iter(["before", "after"])
    monkeypatch.setattr(student, "frozen_digest", lambda: next(digests))
    held = {name: p.detach().clone() for name, p in student.trainable().items()}
    with pytest.raises(CanaryError, match="changed weights that are frozen"):
        step(student)
    assert all(torch.equal(p, held[name]) for name, p in student.trainable().items())


def test_a_step_at_rate_zero_may_stand_still(small_toy):
    student = small_toy(1)
    before = {name: p.detach().clone() for name, p in student.trainable().items()}
    digest = student.frozen_digest()
    for row in ({"lr": 0.0, "grad_norm": 1.0}, {"lr": 1.0, "grad_norm": 0.0}):
        check_update(student, before, digest, [row])
    check_update(student, before, digest, [])

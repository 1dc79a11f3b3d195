"""What makes an update on-policy: one step, on episodes that this very student sampled."""

from collections.abc import Sequence

from core.errors import InputError, StalePolicyError
from core.recipe.training_specs import UpdateSpec
from core.teacher.targets import ScoredTargets
from core.training.state import StudentState
from core.trajectory.trajectory import Trajectory

PHASES = {
    "strict": "opd",
    "replay": "online_distillation_with_replay",
    "frozen": "offline_kd",
}
"""What a step is called in its row: only a step on a batch that is its own is on-policy."""


def check_freshness(
    state: StudentState,
    trajectories: Sequence[Trajectory],
    scored: ScoredTargets,
    spec: UpdateSpec,
    steps: int,
) -> None:
    """Refuse a strict update of anything but one batch that this very student sampled.

    Raises:
        InputError: There are no episodes.
        StalePolicyError: Episodes or targets are of another student or another version of it, or
            the batch would take more than one step.
    """
    if not trajectories:
        raise InputError("there are no trajectories to train on", "Sample some first.")
    if spec.freshness != "strict":
        return
    if steps != 1:
        raise StalePolicyError(
            f"{len(trajectories)} trajectories would take {steps} steps of "
            f"{spec.gradient_accumulation_steps}; the second would be off-policy",
            "Set train.gradient_accumulation_steps to train.rollouts_per_cycle, or "
            "train.opd_freshness to replay.",
        )
    versions = {trajectory.policy_version for trajectory in trajectories}
    versions.add(scored.provenance.policy_version)
    present = state.counters.parameter_version
    if versions != {present}:
        raise StalePolicyError(
            f"the student is at version {present}, but episodes or targets are "
            f"of version {', '.join(map(str, sorted(versions)))}",
            "Sample and score with the present student, or set train.opd_freshness to replay.",
        )
    samplers = {one.model_digest for one in trajectories if one.model_digest is not None}
    if samplers - {state.digest()}:
        raise StalePolicyError(
            f"the episodes were sampled by another student that is at version {present} too",
            "Sample and score with the present student, or set train.opd_freshness to replay.",
        )

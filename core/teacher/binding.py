"""Whose targets these are: the contract between a cycle's episodes and what was scored of them."""

from collections.abc import Sequence

from core.errors import AlignmentError, StaleCacheError
from core.teacher.targets import ScoredTargets, Selected, tokens_digest
from core.trajectory.trajectory import Trajectory

REMEDY = "Score these trajectories."


def check_binding(scored: ScoredTargets, trajectories: Sequence[Trajectory]) -> None:
    """Refuse targets that were scored for anything else than exactly these trajectories.

    Raises:
        StaleCacheError: A trajectory is of another policy version than the targets.
        AlignmentError: Another number of trajectories, or one with another id, tokenizer or token.
    """
    if len(trajectories) != len(scored.selected):
        raise AlignmentError(
            f"{len(trajectories)} trajectories but targets for {len(scored.selected)}", REMEDY
        )
    provenance = scored.provenance
    for trajectory, selected in zip(trajectories, scored.selected, strict=True):
        name = trajectory.trajectory_id
        if trajectory.policy_version != provenance.policy_version:
            raise StaleCacheError(
                f"{name}: policy_version is {trajectory.policy_version}, but the targets were "
                f"scored for version {provenance.policy_version}",
                "Score the episodes of the present student.",
            )
        difference = _difference(trajectory, selected, provenance.tokenizer_digest)
        if difference is not None:
            raise AlignmentError(
                f"the targets of {selected.trajectory_id} do not fit {name}: {difference}", REMEDY
            )


def check_teacher(scored: ScoredTargets, digest: str) -> None:
    """Refuse targets of another teacher than a run's: one frozen elsewhere may have had its own.

    Args:
        scored: What some teacher said.
        digest: Content digest of the run's teacher.

    Raises:
        AlignmentError: They are not of the same content.
    """
    theirs = scored.provenance.teacher_digest
    if theirs != digest:
        raise AlignmentError(
            f"the targets are of the teacher {theirs[:16]}…, and the run's is {digest[:16]}…",
            "Write models.teacher as the recipe that made the targets has it.",
        )


def _difference(trajectory: Trajectory, selected: Selected, tokenizer_digest: str) -> str | None:
    """Name the first field that differs."""
    if selected.trajectory_id != trajectory.trajectory_id:
        return "trajectory_id differs"
    if trajectory.tokenizer_digest != tokenizer_digest:
        return "tokenizer_digest differs"
    if selected.tokens_digest != tokens_digest(trajectory.token_ids):
        return "token_ids differ"
    following = trajectory.token_ids[1:]
    pairs = zip(selected.prediction_positions, selected.target_ids, strict=True)
    if any(p >= len(following) or following[p] != token for p, token in pairs):
        return "target_ids differ"
    return None

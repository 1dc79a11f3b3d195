"""Ask a teacher plug-in about the selected positions; what is kept is as for a model."""

from collections.abc import Sequence

import torch

from core.recipe.specs import ScoreSpec
from core.teacher.physical import kept
from core.teacher.plugins import PluginTeacher, asked
from core.teacher.scorer import SelectedPositions, check_request, selected_of, values_of
from core.teacher.targets import Provenance, ScoredTargets
from core.trajectory.alignment import align
from core.trajectory.trajectory import Trajectory


@torch.no_grad()
def score_by_plugin(
    teacher: PluginTeacher,
    trajectories: Sequence[Trajectory],
    selections: Sequence[SelectedPositions],
    spec: ScoreSpec,
    *,
    teacher_digest: str,
) -> ScoredTargets:
    """Score the selected positions of trajectories.

    Args:
        teacher: The plug-in.
        trajectories: What the student did, all at one policy version.
        selections: Positions and weights, one entry per trajectory.
        spec: What is kept per position; hidden states there are none.
        teacher_digest: Content digest of the artifact that names the plug-in.

    Raises:
        PluginError: The teacher raises, or returns anything but finite logits.
        TokenizerMismatchError: The trajectories were made by another tokenizer.
        StalePolicyError: They were sampled at different policy versions.
        AlignmentError: Counts differ, or the sampler's log-probabilities are wanted and were not
            recorded.
    """
    check_request(teacher.codec.digest, trajectories, selections, spec)
    maps = [
        align(trajectory, list(chosen.positions), list(chosen.weights))
        for trajectory, chosen in zip(trajectories, selections, strict=True)
    ]
    parts = []
    for trajectory, entry in zip(trajectories, maps, strict=True):
        positions = [position + 1 for position in entry.student_prediction_positions]
        logits_PV = asked(teacher, trajectory, positions)
        parts.append(kept(logits_PV, entry.target_token_ids, spec))
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    provenance = Provenance.of(
        spec, teacher_digest, teacher.codec.digest, trajectories[0].policy_version
    )
    selected = map(selected_of, maps, trajectories)
    values = values_of(columns, spec, maps, trajectories)
    return ScoredTargets(provenance, tuple(selected), values)

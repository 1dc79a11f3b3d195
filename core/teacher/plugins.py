"""Teachers that are no model of ours: a class with one method, from trajectories to logits.

It may be a rule, a table, a program, or a model that it loads itself. It reads the student's tokens
and is asked about the student's vocabulary; where it is sure, it says so with a large logit.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from core.environments.plugin_code import load_plugin
from core.errors import PluginError
from core.recipe.plugin_specs import NamedPluginSpec
from core.selection.plugins import NamedIdentity
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory

if TYPE_CHECKING:
    from torch import Tensor


LARGEST = 1e25
"""Largest size of a logit: far beyond it, log-probabilities would stand for excluded tokens."""


class PluginTeacher(ABC):
    """What a teacher plug-in is.

    Args:
        codec: The student's tokenizer; ``codec.vocab_size`` is V.
    """

    name: ClassVar[str]
    """What ``models.teacher.plugin.name`` calls it."""

    def __init__(self, codec: TokenCodec) -> None:
        self.codec = codec

    @abstractmethod
    def logits(self, trajectory: Trajectory, positions: Sequence[int]) -> "Tensor":
        """Return what the teacher would write at some positions, had it come that far.

        Row p belongs to the token at ``positions[p]``. An honest teacher looks at the tokens before
        that one alone; nobody can check this for it.

        Args:
            trajectory: An episode of the student: tokens, spans, verdict.
            positions: P ascending positions of the student's tokens, each at least 1.

        Returns:
            ``logits_PV``, floating point and finite: log-probabilities up to a constant per row.
        """


def open_teacher(
    spec: NamedPluginSpec, codec: TokenCodec, path: Path | None = None
) -> PluginTeacher:
    """Return the teacher of a plug-in.

    Args:
        spec: Name, parameters and digest.
        codec: The student's tokenizer.
        path: Where the plug-in's file lies.

    Raises:
        PluginError: The code is missing, is other code than was listed, defines no such teacher, or
            does not take these parameters.
    """
    kind = find_teacher(spec, path)
    try:
        return kind(codec, **spec.params)
    except Exception as error:
        raise PluginError(
            f"teacher {spec.name} cannot be made with {spec.params}: {error}",
            "See models.teacher.plugin.params in the recipe.",
        ) from error


def find_teacher(spec: NamedIdentity, path: Path | None = None) -> type[PluginTeacher]:
    """Return the class of a teacher plug-in.

    Raises:
        PluginError: The code is missing, is other code than was listed, or defines no such teacher.
    """
    return load_plugin("teacher", spec.name, spec, path, teacher_name)


def teacher_name(value: object) -> str | None:
    """Return the name of a teacher class; None for anything else."""
    if not inspect.isclass(value) or not issubclass(value, PluginTeacher):
        return None
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else None


def asked(teacher: PluginTeacher, trajectory: Trajectory, positions: Sequence[int]) -> "Tensor":
    """Return ``logits_PV`` in float32, after checking the contract; of no position, no row.

    Raises:
        PluginError: The teacher raises, or returns anything else.
    """
    import torch

    wanted = (len(positions), teacher.codec.vocab_size)
    if not positions:
        return torch.empty(wanted)
    try:
        logits_PV: Any = teacher.logits(trajectory, positions)
    except Exception as error:
        raise PluginError(
            f"teacher {teacher.name} raises on {trajectory.trajectory_id}: "
            f"{type(error).__name__}: {error}",
            "Mend it; a teacher must have an opinion at every position.",
        ) from error
    if not isinstance(logits_PV, torch.Tensor):
        _refuse(teacher, trajectory, f"a {type(logits_PV).__name__}, not a tensor")
    if tuple(logits_PV.shape) != wanted or not logits_PV.is_floating_point():
        found = f"{logits_PV.dtype} of shape {tuple(logits_PV.shape)}"
        _refuse(teacher, trajectory, f"{found}, not floating point of shape {wanted}")
    values_PV: Tensor = logits_PV.detach().float().cpu()
    if not bool(torch.isfinite(values_PV).all()):
        _refuse(teacher, trajectory, "a value that is not finite in float32")
    if bool((values_PV.abs() > LARGEST).any()):
        _refuse(teacher, trajectory, f"a value beyond {LARGEST:g}")
    return values_PV


def _refuse(teacher: PluginTeacher, trajectory: Trajectory, what: str) -> NoReturn:
    raise PluginError(
        f"teacher {teacher.name} returns {what} ({trajectory.trajectory_id})",
        "Return finite logits of every token at every position that is asked for.",
    )

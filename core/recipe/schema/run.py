"""Section ``run``: what kind of experiment, and its seed."""

from typing import Literal

from pydantic import Field

from core.recipe.schema.section import Section


class Run(Section):
    """What kind of experiment this is."""

    mode: Literal["sft", "offline_kd", "opd"] = "opd"
    """``opd`` trains on the student's own episodes, ``offline_kd`` on a fixed data set that a
    teacher scored, ``sft`` on oracle traces alone."""
    seed: int = Field(default=1234, ge=0)
    """Seed of everything that this run draws: initial weights, task order, sampling, selection."""
    start: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Content digest of a student of another run, which this one goes on from in place of a fresh
    student and a cold start: weights, optimizer and version, with cycles and budgets from 0. ``opd
    run --from RUN@CYCLE`` fills it in."""
    deterministic: bool = True
    """Deterministic kernels. False is accepted and changes nothing: the CPU kernels used here are
    deterministic, and on CUDA torch is asked for such kernels and warns where it has none."""

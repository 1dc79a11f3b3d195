"""Section ``selection``: which sampled tokens the teacher is asked about."""

from typing import Literal

from pydantic import Field

from core.recipe.schema.plugin import NamedPlugin
from core.recipe.schema.section import Section

SelectorName = Literal[
    "all_model_tokens",
    "tool_and_final",
    "uniform_ratio",
    "uniform_budget",
    "hybrid",
    "verifier_gated",
    "plugin",
]


class Gate(Section):
    """Calibration of the ``verifier_gated`` selector."""

    version: str
    """Name of the calibration."""
    signal: Literal["policy_critical_span"] = "policy_critical_span"
    """What the gate looks at."""
    decision_scope: Literal["span"] = "span"
    """Unit of one decision."""
    threshold: float = 1.0
    """Not used by any gate."""
    calibrated_on: Literal["train", "eval"] = "eval"
    """Split that the gate was calibrated on."""
    frozen_before_test: bool = True
    """The gate was fixed before the test split was looked at; must be true."""


class SelectionSection(Section):
    """Which of the student's tokens are scored, and with what weight."""

    selector: SelectorName = "all_model_tokens"
    """Rule that picks positions: all of them, the tool calls and answers (critical tokens), a
    uniform sample of a share (rounded up, or down as a budget), all critical plus a sample, the
    critical tokens of episodes that the environment's verdict lets through, or your own rule."""
    ratio: float = Field(default=0.35, gt=0, le=1)
    """Share of the student's tokens; read by ``uniform_ratio``, ``uniform_budget``, ``hybrid``."""
    max_positions_per_trajectory: int | None = Field(default=None, ge=1)
    """Upper limit of selected tokens per episode; null is none."""
    critical_weight: float = Field(default=1.0, gt=0, le=100)
    """Weight of a token in a tool call or a final answer."""
    other_weight: float = Field(default=1.0, gt=0, le=100)
    """Weight of any other token."""
    skip_first_tokens: int = Field(default=0, ge=0)
    """Tokens at the start of each of the student's turns that the teacher is not asked about,
    because it begins its own in another way; the cold start trains on them."""
    plugin: NamedPlugin | None = None
    """Code of your own rule; ``plugin`` only."""
    gate: Gate | None = None
    """Calibration; ``verifier_gated`` only."""

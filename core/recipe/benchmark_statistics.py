"""How a benchmark is judged, and what others published on the same question."""

from typing import Literal, Self

from pydantic import Field, model_validator

from core.recipe.schema.section import Section


class Statistics(Section):
    """How arms are compared."""

    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Chance of any false decision over all comparisons and looks."""
    looks: int = Field(default=1, ge=1, le=100)
    """How often the results are looked at in all before the experiment ends; each look spends
    ``alpha / looks``."""


class PublishedArm(Section):
    """What was published of one arm."""

    arm: str
    """Arm of this benchmark that does the same."""
    success: float | None = Field(default=None, ge=0, le=1)
    """Share solved."""
    recovery: float | None = Field(default=None, ge=0, le=1)
    """Share recovered after an error, as they count it."""
    seconds: float | None = Field(default=None, ge=0)
    """Wall seconds of the continuation on their machine."""


class PublishedDifference(Section):
    """What was published of one comparison."""

    arm: str
    """Arm of this benchmark that does the same."""
    against: str
    """Arm that it was compared with."""
    measure: Literal["success", "recovery"] = "success"
    """What was compared."""
    effect: float = Field(ge=-1, le=1)
    """Difference of the rates."""
    lower: float = Field(ge=-1, le=1)
    """Lower end of the interval."""
    upper: float = Field(ge=-1, le=1)
    """Upper end of the interval."""

    @model_validator(mode="after")
    def _is_an_interval(self) -> Self:
        if not self.lower <= self.effect <= self.upper:
            raise ValueError(f"{self.effect} is not between {self.lower} and {self.upper}")
        return self


class Published(Section):
    """Numbers of others, shown beside ours and labelled as theirs."""

    source: str
    """Who published them, and where."""
    setting: str = ""
    """Models, machine, tasks and seeds they are from."""
    arms: tuple[PublishedArm, ...] = Field(default=(), strict=False)
    """Rates."""
    comparisons: tuple[PublishedDifference, ...] = Field(default=(), strict=False)
    """Differences."""

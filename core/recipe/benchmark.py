"""A benchmark: arms that differ in declared keys, on several seeds from one cold start each."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from core.recipe.benchmark_statistics import Published, Statistics
from core.recipe.schema.section import Section

ARM_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.+=-]{0,79}$"

Pair = Annotated[tuple[str, str], Field(strict=False)]
"""An arm, and the arm that it is compared with."""

Seed = Annotated[int, Field(ge=0)]
"""Of a run."""

Overrides = dict[str, JsonValue]
"""Dotted keys of a recipe, or sections of them, with their values."""


class Arm(Section):
    """One way to continue from the cold start."""

    name: str = Field(pattern=ARM_NAME)
    """Label; it is in no key, so renaming an arm computes nothing."""
    description: str = ""
    """What the arm is there for."""
    overrides: Overrides = Field(default_factory=dict)
    """Keys of the recipe in which it differs from the common recipe."""


class BudgetView(Section):
    """What the arms have in common, so that a comparison is fair in it."""

    axis: Literal[
        "optimizer_steps", "selected_training_tokens", "generated_tokens", "wall_time"
    ] = "optimizer_steps"
    """Equal updates, checked before anything runs, or a budget that ends arms inside a cycle."""
    limit: float | None = Field(default=None, gt=0)
    """Tokens or seconds of each arm and seed after the cold start; none for ``optimizer_steps``."""


class Benchmark(Section):
    """Base recipe, what all arms share, arms, seeds, and which differences are meant."""

    schema_version: Literal[2, 3] = 2
    """Version of these keys."""
    name: str = Field(pattern=ARM_NAME)
    """Label of the benchmark, its run directory and its flow run."""
    description: str = ""
    """What is asked."""
    base: str | dict[str, JsonValue]
    """Recipe file, relative to the benchmark's, or a recipe written out."""
    common_overrides: Overrides = Field(default_factory=dict)
    """Changes to the base that all arms share."""
    cold_start: Overrides = Field(default_factory=dict)
    """Keys of section ``cold_start`` of the common recipe: the one cold start of each seed."""
    seeds: tuple[Seed, ...] = Field(strict=False, min_length=1)
    """Run seeds; each arm runs once on each."""
    arms: tuple[Arm, ...] = Field(default=(), strict=False)
    """What is compared."""
    sweep: dict[str, list[JsonValue]] = Field(default_factory=dict)
    """Dotted key -> values: an arm more for every combination."""
    baseline: str | None = None
    """Arm that the others are compared with; null is the first."""
    comparisons: tuple[Pair, ...] = Field(default=(), strict=False)
    """Arm, and arm it is compared with; empty is every arm against the baseline."""
    statistics: Statistics = Statistics()
    """How they are compared."""
    published: Published | None = None
    """What others published on the same question; null shows nothing."""
    allowed_differences: tuple[str, ...] = Field(default=(), strict=False)
    """Dotted keys in which arms may differ; ``loss.*`` is a whole section."""
    budget: BudgetView = BudgetView()
    """What is equal in all arms."""
    eval_split: Literal["train", "eval", "test"] = "test"
    """Tasks on which the arms are compared."""

"""The smallest description of the steps that freeze or adopt a data set of scored episodes."""

from typing import Literal

from core.recipe.specs import RolloutSpec, ScoreSpec, Spec, TokenizerSpec


class DatasetSpec(Spec):
    """Collect episodes once and let the teacher score them once."""

    source: Literal["oracle", "frozen_student"]
    """Whose episodes: the oracle's, or those of the student before its first cycle."""
    episodes: int
    """How many; the tasks follow each other in the run's order, which starts over when it ends."""
    order_seed: int
    """Run seed: the order of the tasks."""
    first_task: int | None = None
    """How many of that order are passed over at first; null passes over none."""
    rollout: RolloutSpec | None
    """How the student samples; null for the oracle."""
    score: ScoreSpec
    """What the teacher says about them."""


class AdoptedDatasetSpec(Spec):
    """A data set that was frozen elsewhere."""

    digest: str
    """Content digest of the artifact."""
    tokenizer: TokenizerSpec
    """Whose tokens its episodes must be."""
    score: ScoreSpec
    """What its teacher must have been asked; the seed of the selection is its own, and 0 here."""


class WindowSpec(Spec):
    """Which episodes of a data set one cycle trains on."""

    first: int
    """Place in the data set of the first, counted without wrapping."""
    episodes: int
    """How many; after the last of the set comes the first again."""

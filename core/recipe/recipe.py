"""The recipe: everything that decides a number, and nothing that does not.

Its keys are those of miniVERL's ``RunConfig`` less the keys of ``core.recipe.execution``, plus
``cold_start``. Recipes come from ``core.recipe.loading``, which also refuses combinations.
"""

from typing import Literal

from pydantic import JsonValue

from core.recipe.schema.cold_start import ColdStart
from core.recipe.schema.environment import EnvironmentSection
from core.recipe.schema.evaluation import Evaluation
from core.recipe.schema.loss import Loss
from core.recipe.schema.models import Models
from core.recipe.schema.offline_kd import OfflineKd
from core.recipe.schema.report import Report
from core.recipe.schema.rollout import Rollout
from core.recipe.schema.run import Run
from core.recipe.schema.section import Section
from core.recipe.schema.selection import SelectionSection
from core.recipe.schema.source import EnvironmentSource, Source
from core.recipe.schema.train import Train


class Recipe(Section):
    """One experiment: one seed of one arm."""

    schema_version: Literal[1] = 1
    """Version of these keys."""
    run: Run = Run()
    """What kind of experiment, and its seed."""
    models: Models
    """Student and teacher."""
    source: Source = EnvironmentSource()
    """Where prompts come from."""
    environment: EnvironmentSection | None = None
    """The world and its splits; required unless prompts come from files."""
    rollout: Rollout = Rollout()
    """Limits and sampling of an episode."""
    selection: SelectionSection = SelectionSection()
    """Which sampled tokens are trained on."""
    loss: Loss = Loss()
    """What is minimised."""
    cold_start: ColdStart | None = None
    """Supervised training before the first cycle, on its own schedule; null: none of its own."""
    train: Train = Train()
    """Cycles and optimizer."""
    offline_kd: OfflineKd = OfflineKd()
    """The fixed data set of offline distillation."""
    eval: Evaluation = Evaluation()
    """How success is measured."""
    report: Report = Report()
    """What the report shows."""
    alignment: dict[str, JsonValue] | None = None
    """The policy-alignment laboratory of the seeds."""

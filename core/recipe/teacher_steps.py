"""What the steps that judge a teacher need to know of a recipe."""

from typing import Any

from core.environments.base import Split
from core.recipe.recipe import Recipe
from core.recipe.sources import environment_spec
from core.recipe.steps import evaluation_spec, limits_spec
from core.recipe.teacher_specs import (
    ComparisonSpec,
    ContinuationSpec,
    EvidenceSpec,
    QualificationSpec,
)


def qualification_split(recipe: Recipe) -> Split:
    """Return the split whose tasks a teacher has to solve."""
    gate = recipe.models.teacher.qualification
    return gate.split if gate is not None else recipe.eval.split


def qualification_spec(recipe: Recipe) -> QualificationSpec:
    """Return what a teacher's qualification depends on: the measurement that students get.

    Section ``models.teacher.qualification`` chooses other tasks than section ``eval`` does.
    """
    gate = recipe.models.teacher.qualification
    changes = {"enabled": True}
    if gate is not None:
        changes |= {"split": gate.split, "tasks": gate.tasks, "task_offset": gate.task_offset}
    evaluation = recipe.eval.model_copy(update=changes)
    measured = evaluation_spec(recipe.model_copy(update={"eval": evaluation}))
    assert measured is not None, "it was switched on"
    hinted = recipe.models.teacher.mode == "privileged_context"
    return QualificationSpec(**measured.model_dump(), hinted=hinted or None)


def evidence_spec(recipe: Recipe, evidence: dict[str, Any]) -> EvidenceSpec:
    """Return what taking over the rates of the teacher's adapter depends on: those rates."""
    adapter = recipe.models.teacher.adapter
    assert adapter is not None, "evidence is read from an adapter's manifest"
    return EvidenceSpec(adapter=adapter.path, evidence=evidence)


def comparison_spec(recipe: Recipe) -> ComparisonSpec:
    """Return what a comparison of both models depends on, besides them and the episodes."""
    rollout, hinted = recipe.rollout, recipe.models.teacher.mode == "privileged_context"
    whole = rollout.temperature > 0 and rollout.top_p == 1.0 and rollout.top_k == 0
    return ComparisonSpec(
        environment=environment_spec(recipe) if hinted else None,
        top_k=recipe.loss.top_k,
        temperature=rollout.temperature if whole else None,
        template=rollout.own_template if hinted else None,
    )


def continuation_spec(recipe: Recipe) -> ContinuationSpec:
    """Return what the teacher's continuations depend on, besides it, the episodes and the tasks."""
    return ContinuationSpec(
        environment=environment_spec(recipe),
        limits=limits_spec(recipe),
        hinted=recipe.models.teacher.mode == "privileged_context" or None,
        template=recipe.rollout.own_template,
    )

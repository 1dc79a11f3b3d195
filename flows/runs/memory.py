"""``opd plan RECIPE --memory``: what each phase of a run is predicted to take."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.models.adapter_directory import open_adapter
from core.models.building import Placement
from core.models.shape import ModelShape, shape_of
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.loading import load
from core.recipe.model_steps import model_spec
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schema.adapters import Lora
from core.recipe.schema.models import Reference, Student, Teacher
from core.recipe.steps import limits_spec
from core.recipe.validation import check
from core.training.memory_plan import PhasePlan, Sizes, plan_phases
from flows.runs.sources import locate

ENGINE_ROWS = {"toy": 32, "hf": 16}
"""Rows of every engine step, by backend."""
AUTO_PADDED_TOKENS = 16_384
"""Tokens of a pass where ``trajectory_batch_size`` is ``auto``."""
MIB = 2**20


def plan_memory(path: Path, overrides: Sequence[str] = ()) -> list[PhasePlan]:
    """Predict the peak of every phase of a recipe's run.

    Args:
        path: A YAML file.
        overrides: ``key=value`` changes to it.

    Raises:
        RecipeError: The recipe is refused.
        ModelSourceError: A model is not at hand.
    """
    loaded = load(path, overrides)
    check(loaded.recipe, loaded.runtime)
    recipe, runtime = locate(loaded.recipe, loaded.runtime)
    placement = Placement(paths=runtime.model_paths)
    models = recipe.models
    lora = models.student.lora if models.backend == "hf" and models.student.lora.enabled else None
    return plan_phases(
        _shape(recipe, models.student, placement),
        None if models.teacher.plugin else _shape(recipe, models.teacher, placement),
        lora,
        _sizes(recipe, runtime),
        teacher_lora=_frozen_lora(models.teacher, placement),
        reference_lora=_frozen_lora(models.reference, placement),
        shared=runtime.models_runtime == "shared_backbone",
    )


def _shape(recipe: Recipe, model: Student | Teacher, placement: Placement) -> ModelShape:
    spec = model_spec(recipe, model)
    directory = placement.directory(spec.model_id) if spec.model_id else None
    return shape_of(
        spec, directory, ToyTokenizer(spec.tokenizer.vocabulary or "calculator").vocab_size
    )


def _frozen_lora(model: Teacher | Reference | None, placement: Placement) -> Lora | None:
    if model is None or model.adapter is None:
        return None
    return open_adapter(placement.directory(model.adapter.path)).lora


def _sizes(recipe: Recipe, runtime: Runtime) -> Sizes:
    tokens = limits_spec(recipe).max_total_tokens
    group = min(recipe.train.gradient_accumulation_steps, recipe.train.rollouts_per_cycle)
    rows, limit = runtime.trajectory_batch_size, runtime.max_update_padded_tokens
    if rows == "auto":
        rows, limit = group, limit or AUTO_PADDED_TOKENS
    if limit is not None:
        rows = max(1, min(rows, limit // tokens))
    rows = min(rows, group)
    return Sizes(
        slots=ENGINE_ROWS[recipe.models.backend],
        rows=rows,
        tokens=tokens,
        chunk=min(runtime.chunk_size, rows * tokens),
        checkpointing=runtime.gradient_checkpointing,
        eight_bit_moments=recipe.train.optimizer == "adamw8bit",
    )


def memory_text(path: Path, overrides: Sequence[str], *, as_json: bool) -> str:
    """Return what ``opd plan --memory`` prints: lines, or one JSON document."""
    phases = plan_memory(path, overrides)
    if as_json:
        return json.dumps(memory_document(phases), indent=2, sort_keys=True)
    return "\n".join(memory_lines(phases))


def memory_document(phases: Sequence[PhasePlan]) -> dict[str, Any]:
    """Return a plan as JSON values, bytes."""
    return {
        "phases": [
            {
                "phase": phase.name,
                "parts": dict(phase.parts),
                "waiting_role": phase.resting,
                "resident_bytes": phase.resident_bytes,
                "swapped_bytes": phase.swapped_bytes,
            }
            for phase in phases
        ],
        "resident_peak_bytes": max(phase.resident_bytes for phase in phases),
        "swapped_peak_bytes": max(phase.swapped_bytes for phase in phases),
    }


def memory_lines(phases: Sequence[PhasePlan]) -> list[str]:
    """Return a line per phase in MiB, what it is made of, and the two peaks."""
    lines = [f"{'phase':<10} {'resident':>10} {'swap':>10}  MiB, of which"]
    for phase in phases:
        parts = ", ".join(f"{name} {size / MIB:.1f}" for name, size in phase.parts.items())
        lines.append(
            f"{phase.name:<10} {phase.resident_bytes / MIB:>10.1f} "
            f"{phase.swapped_bytes / MIB:>10.1f}  {parts}; waiting {phase.resting / MIB:.1f}"
        )
    peaks = memory_document(phases)
    resident, swapped = peaks["resident_peak_bytes"] / MIB, peaks["swapped_peak_bytes"] / MIB
    return [
        *lines,
        f"peak: {resident:.1f} MiB with memory.strategy resident, {swapped:.1f} MiB with swap",
    ]

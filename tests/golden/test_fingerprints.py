"""What the steps of the shipped recipes are, as the texts that their keys are hashed from.

A text that changes forks the key of everything that was computed under it. Where that is meant,
``python tests/golden/test_fingerprints.py`` writes the file anew.
"""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from core.artifacts.key import canonical_json
from core.recipe import model_steps, steps
from core.recipe.keys import sections_of
from core.recipe.loading import load_recipe
from core.recipe.specs import LoraSpec, Spec, ToySizeSpec

REPO = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("fingerprints.json")
RECIPES = ("recipes/toy.yaml", "recipes/toy_exact.yaml", "recipes/smollm2.yaml")
CYCLE = 1


def fingerprints(path: str) -> dict[str, str]:
    """Canonical text of every step of a recipe, of its second cycle where there are several."""
    recipe = load_recipe(REPO / path)
    specs = {
        "prepare_splits train": steps.split_spec(recipe, "train"),
        "prepare_splits eval": steps.split_spec(recipe, "eval"),
        "prepare_splits test": steps.split_spec(recipe, "test"),
        "collect_oracle_traces": steps.traces_spec(recipe),
        "prepare_teacher": model_steps.teacher_spec(recipe),
        "initialize_student": model_steps.student_spec(recipe),
        "cold_start": steps.cold_start_spec(recipe),
        "sample_rollouts": steps.rollout_spec(recipe, CYCLE),
        "score_rollouts": steps.score_spec(recipe),
        "update_student": steps.update_spec(recipe, CYCLE),
        "evaluate_student": steps.evaluation_spec(recipe),
        "write_report": steps.report_spec(recipe),
    }
    return {step: canonical_json(spec) for step, spec in specs.items()}


def parts_of_keys() -> set[type[BaseModel]]:
    """Every class of which an instance may be inside a spec."""
    found: set[type[BaseModel]] = set()
    waiting = [each for each in Spec.__subclasses__() if each.__module__.startswith("core.")]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting += [s for f in part.model_fields.values() for s in sections_of(f.annotation)]
    return found


@pytest.mark.parametrize("path", RECIPES)
def test_the_steps_of_a_shipped_recipe_have_the_texts_of_the_golden_file(path):
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))[path]
    assert fingerprints(path) == expected


def test_the_golden_file_holds_the_shipped_recipes_and_no_others():
    assert set(json.loads(GOLDEN.read_text(encoding="utf-8"))) == set(RECIPES)


def test_no_default_but_null_is_left_out_of_a_key():
    """Else a new default would keep the key of what was computed under the old one."""
    found = parts_of_keys()
    assert {"LoraSpec", "ToySizeSpec", "UpdateSpec"} <= {part.__name__ for part in found}
    hidden = [
        f"{part.__name__}.{name}"
        for part in found
        for name, field in part.model_fields.items()
        if not field.is_required() and field.get_default(call_default_factory=True) is not None
    ]
    assert hidden == []


def test_sizes_and_adapters_are_written_out_in_full():
    toy = json.loads(fingerprints("recipes/toy.yaml")["initialize_student"])["model"]["toy"]
    assert set(toy) == set(ToySizeSpec.model_fields)
    lora = json.loads(fingerprints("recipes/smollm2.yaml")["initialize_student"])["lora"]
    assert set(lora) == set(LoraSpec.model_fields)


if __name__ == "__main__":
    texts = {path: fingerprints(path) for path in RECIPES}
    GOLDEN.write_text(json.dumps(texts, indent=1, sort_keys=True) + "\n", encoding="utf-8")

"""A plug-in's digest is identity, its place is not, and what is not listed is not run."""

from pathlib import Path

import pytest

from core.environments import starter
from core.environments.plugin_code import file_code
from core.errors import PluginError, RecipeError
from core.recipe import model_steps, steps
from core.recipe.loading import from_yaml, load, to_yaml
from core.recipe.plugin_keys import plugin_sources
from core.recipe.runtime import PluginFiles
from core.recipe.validation import check

SOURCE = Path(starter.__file__).read_text(encoding="utf-8")
RULES = "def every_third(trajectory, spec, seed):\n    return trajectory.target_positions()[::3]\n"
RECIPE = """\
models:
  student: {model_id: toy-student}
  teacher: {model_id: toy-teacher, plugin: {name: own, path: rules.py, sha256: RULES}}
environment: {name: starter, plugin: {path: worlds/shop.py, sha256: WORLD}}
selection:
  selector: plugin
  plugin: {name: every_third, path: rules.py, sha256: RULES, params: {step: 2}}
"""


@pytest.fixture
def recipe(tmp_path):
    """A recipe with three plug-ins in two files; returns its path."""
    (tmp_path / "worlds").mkdir()
    (tmp_path / "worlds" / "shop.py").write_text(SOURCE)
    (tmp_path / "rules.py").write_text(RULES)
    world = file_code(tmp_path / "worlds" / "shop.py").sha256
    text = RECIPE.replace("WORLD", world)
    path = tmp_path / "own.yaml"
    path.write_text(text.replace("RULES", file_code(tmp_path / "rules.py").sha256))
    return path


def specs(recipe):
    return {
        "splits": steps.split_spec(recipe, "train"),
        "traces": steps.traces_spec(recipe),
        "teacher": model_steps.teacher_spec(recipe),
        "rollout": steps.rollout_spec(recipe, 0),
        "score": steps.score_spec(recipe),
        "evaluation": steps.evaluation_spec(recipe),
    }


def test_paths_are_relative_to_the_recipe_and_no_part_of_it(recipe, monkeypatch):
    monkeypatch.chdir("/")
    loaded = load(recipe)
    assert loaded.runtime.plugins == PluginFiles(
        environment=recipe.parent / "worlds" / "shop.py",
        teacher=recipe.parent / "rules.py",
        selector=recipe.parent / "rules.py",
    )
    assert ".py" not in to_yaml(loaded.recipe)
    check(loaded.recipe, loaded.runtime)


def test_moving_a_file_changes_no_step(recipe):
    before = specs(load(recipe).recipe)
    (recipe.parent / "worlds" / "shop.py").rename(recipe.parent / "moved.py")
    assert specs(load(recipe, ["environment.plugin.path=moved.py"]).recipe) == before


def test_a_changed_file_is_another_identity_once_it_is_listed(recipe):
    before = specs(load(recipe).recipe)
    path = recipe.parent / "worlds" / "shop.py"
    path.write_text(SOURCE + "# changed\n")
    with pytest.raises(
        RecipeError, match=r"own\.yaml:4: environment\.plugin\.sha256 .*another"
    ) as refusal:
        load(recipe)
    new = file_code(path).sha256
    assert refusal.value.hint == f"If you changed it on purpose, write sha256: {new}"
    after = specs(load(recipe, [f"environment.plugin.sha256={new}"]).recipe)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"splits", "traces", "rollout", "evaluation"}


def test_each_changed_file_is_named_with_its_own_key(recipe):
    (recipe.parent / "rules.py").write_text(RULES + "# changed\n")
    with pytest.raises(RecipeError) as refusal:
        load(recipe)
    assert "selection.plugin.sha256" in refusal.value.message
    assert "models.teacher.plugin.sha256" in refusal.value.message


@pytest.mark.parametrize(
    ("override", "steps_changed"),
    [
        ("selection.plugin.params.step=3", {"score"}),
        ("selection.plugin.name=other", {"score"}),
        ("models.teacher.plugin.params.bias=1", {"teacher", "score"}),
        ("models.teacher.plugin.name=other", {"teacher", "score"}),
    ],
)
def test_what_a_plug_in_is_belongs_to_the_steps_that_run_it(recipe, override, steps_changed):
    before, after = specs(load(recipe).recipe), specs(load(recipe, [override]).recipe)
    assert {name for name in before if before[name] != after[name]} == steps_changed


def test_a_file_without_its_digest_is_refused_with_it_and_not_run(recipe):
    path = recipe.parent / "bare.py"
    path.write_text("raise AssertionError('unlisted code ran')\n")
    recipe.write_text(
        "models: {student: {model_id: a}, teacher: {model_id: b}}\n"
        "environment: {name: bare, plugin: {path: bare.py}}\n"
    )
    with pytest.raises(RecipeError, match=r"yaml:2: environment\.plugin\.sha256: .*missing") as no:
        load(recipe)
    assert no.value.hint.endswith(f"write sha256: {file_code(path).sha256}")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("environment.plugin.path=nowhere.py", "nowhere.py cannot be read"),
        ("environment.name=other", "defines no environment 'other'"),
        ("environment.params.colour=red", "cannot be made with"),
        ("environment.plugin.sha256=abc", "environment.plugin.sha256"),
        ("environment.plugin.distribution=nobody", "'nobody' is not installed"),
        ("selection.selector=hybrid", "belongs to selection.selector: plugin"),
        ("loss.mode=exact_full_vocab", "hands over the hidden states of a model"),
        ("models.teacher.mode=privileged_context", "must be standard"),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_key(recipe, override, message):
    with pytest.raises(RecipeError, match=message):
        load(recipe, [override])


def test_a_distribution_without_its_digest_must_be_there(recipe):
    recipe.write_text(
        "models: {student: {model_id: a}, teacher: {model_id: b}}\n"
        "environment: {name: shop, plugin: {distribution: nobody}}\n"
    )
    with pytest.raises(RecipeError, match="'nobody' is not installed"):
        load(recipe)


def test_a_recipe_is_read_without_its_code_but_no_step_of_it_is_run(recipe):
    loaded = load(recipe)
    again = from_yaml(to_yaml(loaded.recipe))
    assert again == loaded.recipe
    with pytest.raises(PluginError, match="is not at hand"):
        plugin_sources(steps.split_spec(again, "train"), PluginFiles())


def test_a_step_knows_the_sources_of_its_own_plug_ins(recipe):
    loaded = load(recipe)
    found = {
        name: set(plugin_sources(spec, loaded.runtime.plugins))
        for name, spec in specs(loaded.recipe).items()
    }
    assert found == {
        "splits": {"plugin.environment"},
        "traces": {"plugin.environment"},
        "teacher": {"plugin.teacher"},
        "rollout": {"plugin.environment"},
        "score": {"plugin.teacher", "plugin.selector"},
        "evaluation": {"plugin.environment"},
    }

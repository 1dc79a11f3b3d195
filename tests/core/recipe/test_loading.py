from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import RecipeError
from core.recipe.loading import from_yaml, load, load_recipe, load_text, to_yaml
from core.recipe.model_steps import teacher_spec
from core.recipe.steps import cold_start_spec

RECIPES = sorted(
    path for path in Path("recipes").rglob("*.yaml") if path.parent.name != "benchmarks"
)

MINIVERL_TOY_CPU = """\
schema_version: 1
run: {name: toy-cpu, mode: opd, seed: 1234, output_dir: runs}
models:
  backend: toy
  device: cpu
  student:
    model_id: toy-student
    toy: {hidden_size: 96, num_layers: 3, num_heads: 4, intermediate_size: 192}
  teacher:
    model_id: toy-teacher
    toy: {hidden_size: 160, num_layers: 4, num_heads: 4, intermediate_size: 320}
    toy_pretrain_steps: 800
    toy_pretrain_lr: 3e-3
environment:
  name: calculator
  params: {prompt_style: compact, protocol_version: v1}
  difficulty: easy
  train_tasks: 256
  eval_tasks: 24
  test_tasks: 24
  split_seed: 7
rollout:
  max_turns: 3
  max_new_tokens_per_turn: 40
  max_total_tokens: 512
  temperature: 1.0
  top_p: 1.0
  max_parse_errors: 2
  max_repeated_calls: 2
selection: {selector: all_model_tokens}
loss: {mode: bucketed_topk_tail, divergence: reverse_kl, top_k: 16, chunk_size: 128}
train:
  cycles: 40
  rollouts_per_cycle: 8
  gradient_accumulation_steps: 8
  opd_freshness: strict
  learning_rate: 3e-3
  lr_schedule: cosine
  optimizer: adamw
  sft_warmup_cycles: 600
  eval_every_cycles: 20
memory: {strategy: resident}
cache: {entries_per_shard: 16, keep_cycles: 2}
"""


# ---------------------------------------------------------------- golden


def test_toy_recipe_of_miniverl_loads_unchanged():
    recipe = load_text(MINIVERL_TOY_CPU).recipe
    student, teacher = recipe.models.student, recipe.models.teacher
    assert (recipe.run.seed, recipe.train.cycles, recipe.loss.top_k) == (1234, 40, 16)
    assert (student.toy.hidden_size, student.toy.num_layers) == (96, 3)
    assert (teacher.toy.hidden_size, teacher.toy.intermediate_size) == (160, 320)
    assert (recipe.environment.train_tasks, recipe.environment.eval_tasks) == (256, 24)
    assert recipe.environment.params == {"prompt_style": "compact", "protocol_version": "v1"}
    assert (recipe.train.learning_rate, recipe.train.lr_schedule) == (3e-3, "cosine")
    assert recipe.cold_start is None


def test_toy_recipe_of_miniverl_keeps_its_cold_start_on_the_shared_schedule():
    cold = cold_start_spec(load_text(MINIVERL_TOY_CPU).recipe)
    assert cold is not None
    assert (cold.cycles, cold.rollouts_per_cycle, cold.gradient_accumulation_steps) == (600, 8, 8)
    assert (cold.schedule.base, cold.schedule.kind) == (3e-3, "cosine")
    assert (cold.schedule.warmup_steps, cold.schedule.total_steps) == (0, 640)
    assert cold.carries_optimizer


def test_toy_teacher_of_miniverl_is_fitted_as_there():
    fit = teacher_spec(load_text(MINIVERL_TOY_CPU).recipe).fit
    assert fit is not None
    assert (fit.seed, fit.steps, fit.learning_rate) == (99, 800, 3e-3)
    assert (fit.batch_size, fit.betas) == (8, (0.9, 0.95))


def test_toy_recipe_of_miniverl_has_its_execution_keys_in_the_runtime():
    loaded = load_text(MINIVERL_TOY_CPU)
    runtime = loaded.runtime
    assert (runtime.run_name, runtime.device, runtime.chunk_size) == ("toy-cpu", "cpu", 128)
    assert (runtime.memory_strategy, runtime.runs) == ("resident", Path("runs"))
    assert (runtime.cache_entries_per_shard, runtime.inherited.cache_keep_cycles) == (16, 2)
    assert loaded.notes == [
        "execution settings, no part of identity: "
        "models.device, loss.chunk_size, memory.strategy, cache.entries_per_shard",
        "accepted, without effect here: cache.keep_cycles",
    ]


@pytest.mark.parametrize("path", RECIPES, ids=str)
def test_shipped_recipe_is_accepted_without_a_note(path):
    loaded = load(path)
    noted = ["on the student's own samples"] if path.stem == "nll_mix" else []
    assert len(loaded.notes) == len(noted)
    assert all(words in note for words, note in zip(noted, loaded.notes, strict=True))
    assert from_yaml(to_yaml(loaded.recipe)) == loaded.recipe


def test_source_is_the_file_byte_for_byte(minimal, tmp_path):
    path = tmp_path / "one.yaml"
    written = b"\xef\xbb\xbf# caf\xc3\xa9\r\n" + minimal.encode()
    path.write_bytes(written)
    loaded = load(path, ["run.seed=3"])
    assert loaded.source == written
    assert (loaded.recipe.run.seed, loaded.runtime.run_name) == (3, "one")
    assert load_recipe(path, ["run.seed=3"]) == loaded.recipe


# ---------------------------------------------------------------- properties


@settings(max_examples=80, deadline=None)
@given(
    rate=st.floats(1e-12, 1, exclude_min=True),
    seed=st.integers(0, 2**63),
    notes=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    params=st.dictionaries(st.sampled_from(["prompt_style"]), st.sampled_from(["full", "compact"])),
    limit=st.none() | st.integers(1, 10**6),
)
def test_written_recipe_reads_back_equal(minimal, rate, seed, notes, params, limit):
    recipe = load_text(minimal).recipe
    document = recipe.model_dump()
    document["run"]["seed"] = seed
    document["train"]["learning_rate"] = rate
    document["models"]["student"]["model_id"] = notes or "x"
    document["environment"]["params"] = params
    document["selection"]["max_positions_per_trajectory"] = limit
    changed = type(recipe).model_validate(document)
    assert from_yaml(to_yaml(changed)) == changed


# ---------------------------------------------------------------- refusals


def test_error_is_what_and_what_to_do(minimal, tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text(minimal + "train:\n  lerning_rate: 3\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert str(caught.value).splitlines() == [
        f"{path}:6: train.lerning_rate = 3: there is no such key",
        "Did you mean train.learning_rate?",
    ]
    assert caught.value.exit_code == 2


def test_missing_file_offers_a_near_name(tmp_path):
    (tmp_path / "toy_exact.yaml").write_text("")
    with pytest.raises(RecipeError, match="no such recipe") as caught:
        load_recipe(tmp_path / "toy_exakt.yml")
    assert caught.value.hint == f"Did you mean {tmp_path / 'toy_exact.yaml'}?"


def test_missing_file_without_a_near_name(tmp_path):
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "zzzzzzzz.yaml")
    assert "opd recipes" in caught.value.hint


def test_directory_offers_its_recipes(tmp_path):
    (tmp_path / "a.yaml").write_text("")
    with pytest.raises(RecipeError, match="is a directory") as caught:
        load_recipe(tmp_path)
    assert str(tmp_path / "a.yaml") in caught.value.hint


def test_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("")
    with pytest.raises(RecipeError, match="Not a directory"):
        load_recipe(tmp_path / "a.yaml" / "b.yaml")


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_bytes(b"run:\n  name: \xff\n")
    with pytest.raises(RecipeError, match=r"one.yaml:2: not UTF-8"):
        load_recipe(path)


@pytest.mark.parametrize("section", ["models", "environment"])
def test_required_section_is_named(minimal, section):
    lines = minimal.splitlines()
    kept = lines[:3] if section == "environment" else lines[3:]
    with pytest.raises(RecipeError, match=f"^<text>: {section}: is required and missing"):
        load_text("\n".join(kept))


def test_prompts_from_files_are_not_asked_for_an_environment(minimal):
    text = "\n".join(minimal.splitlines()[:3])
    files = ["source.kind=verl_parquet", "source.train_files=[a]", "source.val_files=[b]"]
    assert load_text(text, [*files, "models.backend=hf"]).recipe.environment is None


def test_run_without_a_name_is_called_after_its_file(minimal, tmp_path):
    path = tmp_path / ("x" * 130 + ".yaml")
    path.write_text(minimal)
    assert load(path).runtime.run_name == "x" * 120
    assert load_text(minimal).runtime.run_name == "opd"

import pytest

from core.errors import RecipeError
from core.recipe.loading import load_text
from core.recipe.rules import prompts

PARQUET = ("source.kind=verl_parquet", "source.train_files=[a.parquet]")
FILES = """\
models:
  backend: hf
  student: {model_id: somewhere}
  teacher: {model_id: somewhere}
source: {kind: verl_parquet, train_files: [a.parquet], val_files: [b.parquet]}
"""
COLD = ("cold_start.cycles=1", "cold_start.learning_rate=0.1")


def keys(problems) -> list[str]:
    return [".".join(each.path) for each in problems]


@pytest.mark.parametrize(
    ("override", "key"),
    [("run.mode=offline_kd", "run.mode"), ("source.use_task_rewards=true", None)],
)
def test_prompts_from_files_exclude_what_needs_a_world(judged, override, key):
    rule = prompts.parquet_is_single_turn_opd
    assert judged(rule) == []
    assert keys(judged(rule, *PARQUET)) == ["environment"]
    assert keys(judged(rule, *PARQUET, override)) == ["environment", key or override.split("=")[0]]


@pytest.mark.parametrize("override", ["run.mode=sft", "train.sft_warmup_cycles=1", COLD[0]])
def test_supervision_needs_a_column_of_demonstrations(judged, override):
    rule, key = prompts.supervision_needs_demonstrations, override.split("=")[0]
    given = [*PARQUET, "models.backend=hf", override, *(COLD[1:] if key in COLD[0] else ())]
    assert keys(judged(rule, *given)) == [key.replace("cold_start.cycles", "cold_start")]
    assert judged(rule, *given, "source.demonstration_key=answer") == []


def test_a_toy_teacher_is_fitted_on_demonstrations(judged):
    rule = prompts.supervision_needs_demonstrations
    assert judged(rule) == judged(rule, *PARQUET, "models.backend=hf") == []
    assert keys(judged(rule, *PARQUET)) == ["models.backend"]


def test_a_privileged_teacher_needs_a_column_of_hints(judged):
    rule, mode = prompts.hints_need_a_column, "models.teacher.mode=privileged_context"
    assert judged(rule, mode) == judged(rule, *PARQUET) == []
    assert keys(judged(rule, *PARQUET, mode)) == ["models.teacher.mode"]
    assert judged(rule, *PARQUET, mode, "source.privileged_key=answer") == []


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["source.val_files=[]"], "source.val_files"),
        (["eval.split=test"], "eval.split"),
        (["source.answer_key=null"], "source.answer_key"),
    ],
)
def test_what_is_measured_needs_held_out_files_and_answers(overrides, key):
    with pytest.raises(RecipeError, match=key):
        load_text(FILES, overrides)
    assert load_text(FILES, [*overrides, "eval.enabled=false"])


def test_a_recipe_of_the_seeds_loads_unchanged():
    """Every key of the seeds' source section, and none of ours."""
    text = FILES.replace(
        "val_files: [b.parquet]}",
        "val_files: [b.parquet], prompt_key: prompt, allow_plain_string_prompts: false,\n"
        "  use_task_rewards: false, max_prompt_length: 512, max_response_length: 256,\n"
        "  truncation: error, shuffle: true, seed: 0, row_batch_size: 128}",
    )
    loaded = load_text(text)
    assert loaded.recipe == load_text(FILES).recipe
    assert loaded.runtime.row_batch_size == 128


def test_training_may_be_evaluated_on_itself():
    assert load_text(FILES, ["source.val_files=[]", "eval.split=train"]).notes

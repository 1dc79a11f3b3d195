import pytest


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("train.cycels=1", "train.cycels = 1: there is no such key", "Did you mean train.cycles?"),
        ("trian.cycles=1", "trian: there is no such key", "Did you mean train?"),
        ("cache.dtpe=1", "cache.dtpe = 1: there is no such key", "Did you mean cache.dtype?"),
        ("cache=3", "cache = 3: must be a mapping of keys", "Indent"),
        ("models.student=3", "models.student = 3: must be a mapping", "The model that is trained"),
        ("run.seed=-1", "run.seed = -1: must be at least 0", "≥ 0"),
        ("run.seed='3'", 'run.seed = "3": must be a whole number', "without quotes"),
        ("run.seed=true", "run.seed = true: must be a whole number", "without quotes"),
        ("run.seed=1.0", "run.seed = 1.0: must be a whole number", "decimal point"),
        ("run.name=7", "run.name = 7: must be text", "quotes"),
        ("train.learning_rate=0", "train.learning_rate = 0: must be greater than 0", "≤ 1"),
        ("train.learning_rate=.nan", "must be a number", "without quotes"),
        ("rollout.top_p=1.5", "rollout.top_p = 1.5: must be at most 1", "> 0"),
        ("train.adam_beta1=1", "train.adam_beta1 = 1: must be less than 1", "Decay"),
        ("run.deterministic=yes", 'run.deterministic = "yes": must be true or false', "true or"),
        ("run.mode=odp", 'run.mode = "odp": is not one', "Did you mean opd? Choose one of sft, "),
        ("source.kind=file", 'source.kind = "file": is not one', "environment, verl_parquet"),
        ("schema_version=2", "schema_version = 2: is not one of", "Choose one of 1."),
        (
            "models.student.lora.target_modules=q_proj",
            'models.student.lora.target_modules = "q_proj": must be a list',
            "[a, b]",
        ),
        (
            "models.student.lora.target_modules=[1]",
            "models.student.lora.target_modules = [1]: must be text",
            "",
        ),
        ("environment.name=Two Words", "environment.name = ", "Name in the registry"),
        ("runtime.device=tpu", 'runtime.device = "tpu": is not one of', "auto, cpu, cuda"),
        ("models.device=tpu", 'models.device = "tpu": is not one of', "auto, cpu, cuda"),
        ("models.student=null", "models.student = null: must be a mapping", "Indent"),
    ],
)
def test_each_mistake_names_place_key_value_and_remedy(refused, override, message, hint):
    error = refused(override)
    assert message in error.message
    assert hint in error.hint
    assert "\n" not in error.message


def test_missing_key_is_reported_at_its_section(refused):
    error = refused("cold_start.cycles=3")
    assert error.message == "minimal.yaml: cold_start.learning_rate: is required and missing"
    assert error.hint == "Add it. Peak learning rate (> 0, ≤ 1)."


def test_several_mistakes_are_reported_together(refused):
    error = refused("run.seed=-1", "train.cycels=1", "loss.mode=exact", "cache.dtype=float8")
    assert error.message.count("\n") == 3
    for key in ("run.seed", "train.cycels", "loss.mode", "cache.dtype"):
        assert f": {key} = " in error.message


def test_union_reports_one_problem_per_key(refused):
    error = refused("train.trajectory_batch_size=many")
    assert error.message.count("train.trajectory_batch_size =") == 1
    assert "or ``auto``" in error.hint

from pathlib import Path

import pytest

from core.recipe.runtime import Runtime


def test_defaults():
    runtime = Runtime()
    assert (runtime.device, runtime.threads, runtime.slots) == ("auto", None, 32)
    assert (runtime.trajectory_batch_size, runtime.chunk_size) == (8, 256)
    assert (runtime.oom_retries, runtime.min_chunk_size) == (3, 8)
    assert (runtime.store, runtime.runs) == (Path(".opd/store"), Path("runs"))


@pytest.mark.parametrize(
    ("submitted", "field", "value"),
    [
        ("run.output_dir=out", "runs", Path("out")),
        ("run.name=label", "run_name", "label"),
        ("run.tags=[a, b]", "tags", ("a", "b")),
        ("models.device=cpu", "device", "cpu"),
        ("loss.chunk_size=9", "chunk_size", 9),
        ("train.trajectory_batch_size=auto", "trajectory_batch_size", "auto"),
        ("runtime.store=elsewhere", "store", Path("elsewhere")),
        ("runtime.threads=2", "threads", 2),
    ],
)
def test_setting_arrives(accepted, submitted, field, value):
    assert getattr(accepted(submitted).runtime, field) == value


def test_inert_setting_arrives_beside_the_others(accepted):
    assert accepted("cache.keep_cycles=2").runtime.inherited.cache_keep_cycles == 2


def test_runtime_survives_strict_json(accepted):
    runtime = accepted("run.tags=[a]", "cache.keep_cycles=2", "runtime.model_paths.x=dir").runtime
    assert runtime.model_paths == {"x": Path("dir")}
    assert Runtime.model_validate(runtime.model_dump(mode="json")) == runtime

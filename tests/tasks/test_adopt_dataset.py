"""Offline distillation on a data set that another run froze, by content."""

import shutil
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from core.artifacts.store import Store
from core.errors import AlignmentError, InputError, StoreError, TokenizerMismatchError
from core.recipe.loading import load
from flows.graphs.run import num_steps, run_graph
from flows.runs.plan import plan_recipe
from flows.runs.sources import locate

OFFLINE = (
    *("run.mode=offline_kd", "cache.reuse_across_policy_versions=true"),
    *("eval.baseline_enabled=false", "report.enabled=false"),
)
FROZEN = (*OFFLINE, "offline_kd.trajectory_source=frozen_student", "offline_kd.collection_tasks=8")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    place = Path(__file__).resolve().parents[1] / "flows" / "conftest.py"
    spec = spec_from_file_location("flows_conftest", place)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(module.TINY)
    return path


def walk(recipe_path, store, *changes):
    """Run the steps of the tiny recipe in a store."""
    loaded = load(recipe_path, [f"runtime.store={store}", *changes])
    recipe, runtime = locate(loaded.recipe, loaded.runtime)

    def call(step, spec, *, name, **parents):
        return step.prepare(spec, runtime=runtime, name=name, **parents).run()

    return run_graph(recipe, call)


@pytest.fixture(scope="module")
def frozen(tiny, tmp_path_factory):
    """A run that froze its data set, and the directory of that."""
    store = tmp_path_factory.mktemp("there") / "store"
    done = walk(tiny, store, *FROZEN)
    return done, Store(store).path(done.dataset)


@pytest.fixture
def moved(frozen, tmp_path):
    """A copy of the data set under another name."""
    return Path(shutil.copytree(frozen[1], tmp_path / "handed over"))


@pytest.fixture
def no_model(monkeypatch):
    monkeypatch.setattr(
        "core.models.building.build_model", lambda *_, **__: pytest.fail("a model was touched")
    )


def persisted(directory):
    return (
        *OFFLINE,
        "offline_kd.trajectory_source=persisted",
        f"offline_kd.dataset_path={directory}",
    )


def test_a_run_on_an_adopted_set_ends_with_the_student_of_the_run_that_froze_it(
    tiny, frozen, moved, tmp_path
):
    there, _ = frozen
    store = tmp_path / "store"
    here = walk(tiny, store, *persisted(moved))
    assert here.student == there.student
    assert here.dataset.digest == there.dataset.digest
    assert here.dataset.key != there.dataset.key
    opened = Store(store)
    record = opened.record(here.dataset)
    assert (record.kind, record.task) == ("dataset", "adopt_dataset")
    assert record.metrics["adopted_from"] == f"{there.dataset.name}-{there.dataset.key}"
    assert str(moved) not in (opened.path(here.dataset) / "record.json").read_text()
    assert not [one for one in opened.siblings("dataset") if one.task == "freeze_dataset"]
    again = walk(tiny, tmp_path / "third", *persisted(opened.path(here.dataset)))
    assert (again.student, again.dataset) == (here.student, here.dataset)


def test_a_moved_directory_changes_no_key_and_the_plan_shows_it(tiny, frozen, moved, tmp_path):
    store = f"runtime.store={tmp_path / 'store'}"
    plans = [plan_recipe(tiny, [store, *persisted(place)]) for place in (frozen[1], moved)]
    steps = [{one.step: one for one in plan.steps}["adopt_dataset"] for plan in plans]
    assert steps[0].status == "unknown"
    walk(tiny, tmp_path / "store", *persisted(moved))
    known = [plan_recipe(tiny, [store, *persisted(place)]) for place in (frozen[1], moved)]
    assert [plan.count("hit") for plan in known] == [len(known[0].steps)] * 2
    assert known[0].as_document() == known[1].as_document()
    loaded = load(tiny, persisted(moved))
    assert num_steps(locate(loaded.recipe, loaded.runtime)[0]) == len(known[0].steps)


# ---------------------------------------------------------------- refusals


def refusal(error):
    text = str(error.value)
    assert len(text.splitlines()) == 2
    return text


@pytest.mark.parametrize("name", ["trajectories.jsonl", "targets.safetensors", "manifest.json"])
def test_an_altered_byte_is_refused_before_a_model_is_built(tiny, moved, tmp_path, no_model, name):
    path = moved / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"{name}: content was altered") as error:
        walk(tiny, tmp_path / "store", *persisted(moved))
    refusal(error)


def test_a_missing_file_and_a_link_are_refused(tiny, moved, tmp_path, no_model):
    kept = (moved / "targets.json").rename(tmp_path / "targets.json")
    with pytest.raises(StoreError, match=r"targets\.json: missing"):
        walk(tiny, tmp_path / "store", *persisted(moved))
    (moved / "targets.json").symlink_to(kept)
    with pytest.raises(StoreError, match="is not a plain file"):
        walk(tiny, tmp_path / "store", *persisted(moved))


def test_an_altered_record_another_kind_and_no_record_are_refused_by_the_plan(
    tiny, frozen, moved, tmp_path
):
    there, directory = frozen
    teacher = Store(directory.parents[1]).path(there.teacher)
    with pytest.raises(InputError, match="is of kind teacher, not dataset"):
        plan_recipe(tiny, persisted(teacher))
    record = moved / "record.json"
    record.write_text(record.read_text().replace('"success_rate": 0.0', '"success_rate": 1.0'))
    with pytest.raises(InputError, match="its seal does not fit") as error:
        plan_recipe(tiny, persisted(moved))
    assert "offline_kd.dataset_path" in refusal(error)
    with pytest.raises(InputError, match="does not exist") as error:
        plan_recipe(tiny, persisted(tmp_path / "nowhere"))
    refusal(error)


@pytest.mark.parametrize(
    ("change", "kind", "what"),
    [
        ("models.toy_vocabulary=worlds", TokenizerMismatchError, "is of another tokenizer"),
        ("loss.top_k=4", AlignmentError, "top_k is 8 there, 4 here"),
        ("loss.temperature=2.0", AlignmentError, "temperature is 1.0 there, 2.0 here"),
        ("loss.mode=exact_full_vocab", AlignmentError, "loss_mode is bucketed_topk_tail there"),
        ("environment.split_seed=99", InputError, "are of other tasks"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_model_is_built(
    tiny, moved, tmp_path, no_model, change, kind, what
):
    extra = ("loss.top_k=1",) if "exact" in change else ()
    with pytest.raises(kind, match=what) as error:
        walk(tiny, tmp_path / "store", *persisted(moved), change, *extra)
    refusal(error)


def test_targets_of_another_teacher_are_refused_by_the_update(tiny, moved, tmp_path):
    other = "models.teacher.toy_teacher_seed=5"
    with pytest.raises(AlignmentError, match="the targets are of the teacher") as error:
        walk(tiny, tmp_path / "store", *persisted(moved), other)
    refusal(error)


def test_a_set_that_is_no_longer_where_it_was_is_refused(tiny, frozen, moved, tmp_path):
    digest = f"sha256:{frozen[0].dataset.digest}"
    with pytest.raises(InputError, match="is not at hand") as error:
        walk(tiny, tmp_path / "store", *persisted(digest))
    refusal(error)

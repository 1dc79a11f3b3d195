"""Prompts from files through every step, without Prefect."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.artifacts.store import Store
from core.environments.task_file import read_tasks
from core.errors import PromptFileError
from core.recipe.loading import load
from core.recipe.prompt_specs import PromptSplitSpec
from core.trajectory.io import read_trajectories
from flows.graphs.run import run_graph
from flows.runs.sources import locate

RECIPE = "recipes/prompts_toy.yaml"
TINY = (
    "models.teacher.toy_pretrain_steps=2",
    "cold_start.cycles=2",
    "train.cycles=2",
    "train.rollouts_per_cycle=4",
    "train.gradient_accumulation_steps=4",
    "train.eval_every_cycles=0",
    "eval.tasks=3",
)


@pytest.fixture
def run(tmp_path):
    """Return f(overrides): what a tiny run leaves, its store and its located recipe."""

    def start(*overrides, store="store"):
        loaded = load(RECIPE, [*TINY, f"runtime.store={tmp_path / store}", *overrides])
        recipe, runtime = locate(loaded.recipe, loaded.runtime)

        def call(step, spec, *, name, **parents):
            return step.prepare(spec, runtime=runtime, name=name, **parents).run()

        return run_graph(recipe, call), Store(runtime.store), recipe

    return start


def test_a_response_is_one_turn_judged_by_its_number(run):
    done, store, recipe = run()
    rows = read_trajectories(store.path(done.parts["rollouts_0001"]) / "trajectories.jsonl")
    assert len(rows) == 4
    for row in rows:
        assert row.environment == "prompts"
        assert [turn.is_final for turn in row.turns] == [True]
        assert row.termination_reason in ("final_answer", "max_tokens")
        assert 0 < sum(row.model_mask) == len(row.logprobs) <= 24
        assert not {"demonstration", "system"} & set(row.metadata)
    assert store.record(done.tasks).metrics["tasks"] == 384
    assert store.record(done.held_out).metrics["dropped_overlap"] == 0
    assert all(name.startswith("sha256:") for name in recipe.source.train_files)


def test_cycles_walk_through_an_epoch_in_the_order_of_the_sources_seed(run):
    done, store, _ = run()
    orders = {}
    for seed in (0, 5):
        done, store, _ = run(f"source.seed={seed}")
        paths = [store.path(done.parts[f"rollouts_000{n}"]) / "trajectories.jsonl" for n in (0, 1)]
        orders[seed] = [row.task_id for path in paths for row in read_trajectories(path)]
        assert len(set(orders[seed])) == 8
    assert orders[0] != orders[5]


def test_content_is_identity_and_neither_place_nor_batch_size_is(run, tmp_path):
    first, _, _ = run()
    moved = tmp_path / "elsewhere.txt"
    shutil.copy("recipes/data/word_problems_train.jsonl", moved)
    again, _, _ = run(f"source.train_files=[{moved}]", "source.row_batch_size=7")
    assert again.tasks == first.tasks
    assert again.student == first.student
    lines = moved.read_text().splitlines()
    moved.write_text("\n".join(lines[1:]) + "\n")
    changed, _, _ = run(f"source.train_files=[{moved}]")
    assert changed.tasks.key != first.tasks.key


def test_parquet_and_json_lines_are_the_same_tasks(run, tmp_path):
    jsonl, parquet = tmp_path / "rows", tmp_path / "columns"
    shutil.copy("recipes/data/word_problems_train.jsonl", jsonl)
    rows = [json.loads(line) for line in jsonl.read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), parquet, row_group_size=50)
    first, store, _ = run(f"source.train_files=[{jsonl}]")
    second, _, _ = run(f"source.train_files=[{parquet}]", "source.row_batch_size=9")
    tasks = [read_tasks(store.path(done.tasks) / "tasks.jsonl") for done in (first, second)]
    assert tasks[0] == tasks[1]
    assert second.student.digest == first.student.digest


def test_a_store_that_lost_its_last_steps_ends_in_the_same_bytes(run):
    whole, store, _ = run()
    shutil.rmtree(store.path(whole.parts["student_0001"]))
    shutil.rmtree(store.path(whole.parts["rollouts_0001"]))
    resumed, _, _ = run()
    assert resumed.student.digest == whole.student.digest


def test_a_teacher_may_read_a_column(run):
    overrides = ("models.teacher.mode=privileged_context", "source.privileged_key=answer")
    done, store, _ = run(*overrides)
    assert store.record(done.parts["targets_0000"]).metrics["selected_model_tokens"] > 0


def test_demonstrations_alone_may_be_learnt_from(run):
    done, store, _ = run("run.mode=sft", "cold_start=null")
    assert "rollouts_0000" not in done.parts
    assert store.record(done.student).metrics["optimizer_steps"] == 2


def test_a_prompt_in_both_splits_stops_the_run_with_its_row(run):
    with pytest.raises(PromptFileError, match="row 1: the train split has this prompt too"):
        run("source.val_files=[recipes/data/word_problems_train.jsonl]")


def test_prompts_are_measured_in_the_frames_of_their_episodes():
    models = [f"models.{role}.model_id=some/model" for role in ("student", "teacher")]
    words = ["models.backend=hf", "rollout.template=tokenizer", *models]
    specs = []
    run_graph(load(RECIPE, words).recipe, lambda step, spec, **rest: specs.append(spec))
    splits = [spec for spec in specs if isinstance(spec, PromptSplitSpec)]
    assert [spec.template for spec in splits] == ["tokenizer", "tokenizer"]

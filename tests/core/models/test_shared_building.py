"""A whole run on one base has the keys and the bytes of a run on two models."""

import pytest
import torch

from core.artifacts.store import Store
from core.models.adapter_export import export_adapter
from core.models.building import Placement, build_model
from core.models.roles import RESIDENTS
from core.recipe import model_steps
from core.recipe.loading import load_text
from core.training.opening import open_model
from flows.graph import run_graph
from flows.sources import locate

RECIPE = """\
run: {{seed: 3}}
models:
  backend: hf
  runtime: {runtime}
  student: {{model_id: {base}, lora: {{r: 4, alpha: 8, target_modules: [q_proj, down_proj]}}}}
  teacher: {{model_id: {base}, adapter: {{path: {adapter}}}}}
environment: {{name: calculator, params: {{prompt_style: compact}}, train_tasks: 4, eval_tasks: 2,
              test_tasks: 0}}
rollout: {{max_turns: 2, max_new_tokens_per_turn: 6, max_total_tokens: 1500}}
loss: {{mode: {mode}}}
train: {{cycles: 2, rollouts_per_cycle: 2, gradient_accumulation_steps: 2, learning_rate: 0.01}}
eval: {{baseline_enabled: false}}
report: {{enabled: false}}
"""


@pytest.fixture(autouse=True)
def _no_resident_stays():
    RESIDENTS.evict()
    yield
    RESIDENTS.evict()


@pytest.fixture
def base(tmp_path, save_tiny_model):
    return save_tiny_model(tmp_path / "base", max_position_embeddings=2048)


@pytest.fixture
def adapter(tmp_path, base):
    text = RECIPE.format(runtime="dual_model", base=base, adapter="a", mode="bucketed_topk_tail")
    spec = model_steps.student_spec(load_text(text).recipe)
    lora = spec.lora.model_copy(update={"target_modules": ("v_proj", "down_proj")})
    spec = spec.model_copy(update={"lora": lora})
    backend = build_model(spec.model, Placement(threads=1), seed=1, lora=spec.lora)
    generator = torch.Generator().manual_seed(5)
    tensors = {
        name: 0.3 * torch.randn(p.shape, generator=generator)
        for name, p in backend.trainable().items()
    }
    out = tmp_path / "adapter"
    export_adapter(
        spec, tensors, out, Placement(threads=1),
        origin={"artifact": "0" * 16}, base_name=str(base),
    )  # fmt: skip
    return out


@pytest.fixture
def run(tmp_path, base, adapter):
    def whole(runtime, mode):
        text = RECIPE.format(runtime=runtime, base=base, adapter=adapter, mode=mode)
        loaded = load_text(text, [f"runtime.store={tmp_path / runtime}", "runtime.threads=1"])
        recipe, placed = locate(loaded.recipe, loaded.runtime)

        def call(step, spec, *, name, **parents):
            return step.prepare(spec, runtime=placed, name=name, **parents).run()

        return run_graph(recipe, call), Store(placed.store)

    return whole


@pytest.mark.parametrize("mode", ["bucketed_topk_tail", "exact_full_vocab"])
def test_one_base_gives_the_keys_and_bytes_of_two_models(run, mode):
    dual, _ = run("dual_model", mode)
    shared, store = run("shared_backbone", mode)
    assert shared.parts == dual.parts
    assert shared.student == dual.student
    metrics = store.record(shared.student).metrics
    assert metrics["memory_reason"] == "one base holds every role"
    assert metrics["loss"] > 0


def test_the_base_is_in_memory_once(base, adapter):
    text = RECIPE.format(
        runtime="shared_backbone", base=base, adapter=adapter, mode="bucketed_topk_tail"
    )
    recipe = load_text(text).recipe
    shared = Placement(threads=1, shared=True)
    student = open_model("student", model_steps.student_spec(recipe), shared)
    described = model_steps.student_spec(recipe).model_copy(
        update={"model": model_steps.teacher_spec(recipe).model, "lora": None}
    )
    teacher = open_model("teacher", described, shared)
    assert open_model("student", model_steps.student_spec(recipe), shared) is student
    assert student.backend.model is teacher.backend.model
    alone = open_model("student", model_steps.student_spec(recipe), Placement(threads=1))
    assert alone.backend.model is not teacher.backend.model


def test_a_fresh_student_has_its_initial_values_again(base, adapter):
    text = RECIPE.format(
        runtime="shared_backbone", base=base, adapter=adapter, mode="bucketed_topk_tail"
    )
    spec = model_steps.student_spec(load_text(text).recipe)
    shared = Placement(threads=1, shared=True)
    student = open_model("student", spec, shared).backend
    before = {name: p.clone() for name, p in student.trainable().items()}
    student.load_trainable({name: p + 1 for name, p in before.items()})
    again = open_model("student", spec, shared, fresh=True).backend
    assert all(torch.equal(p, before[name]) for name, p in again.trainable().items())

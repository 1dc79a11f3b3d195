"""A whole run on one base has the keys and the bytes of a run on two models."""

import json

import pytest
import torch

from core.artifacts.store import Store
from core.errors import ModelSourceError
from core.models.adapter_directory import MANIFEST
from core.models.adapter_export import export_adapter
from core.models.adapter_weights import load_adapter_tensors
from core.models.building import Placement, build_model
from core.models.hf import HFBackend
from core.models.roles import RESIDENTS
from core.recipe import model_steps
from core.recipe.loading import load_text
from core.recipe.specs import ModelSpec
from core.teacher.targets import load_targets
from core.training.opening import open_model, open_reference, open_weights
from core.training.reference import COLUMN
from core.trajectory.io import read_trajectories
from flows.graphs.run import run_graph
from flows.runs.sources import locate

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


TOP_K = "bucketed_topk_tail"


@pytest.fixture(autouse=True)
def _no_resident_stays():
    RESIDENTS.evict()
    yield
    RESIDENTS.evict()


@pytest.fixture
def base(tmp_path, save_tiny_model):
    return save_tiny_model(tmp_path / "base", max_position_embeddings=2048)


@pytest.fixture
def write_adapter(tmp_path, base):
    def write(seed):
        text = RECIPE.format(runtime="dual_model", base=base, adapter="a", mode=TOP_K)
        spec = model_steps.student_spec(load_text(text).recipe)
        lora = spec.lora.model_copy(update={"target_modules": ("v_proj", "down_proj")})
        spec = spec.model_copy(update={"lora": lora})
        backend = build_model(spec.model, Placement(threads=1), seed=1, lora=spec.lora)
        generator = torch.Generator().manual_seed(seed)
        tensors = {
            name: 0.3 * torch.randn(p.shape, generator=generator)
            for name, p in backend.trainable().items()
        }
        out = tmp_path / f"adapter-{seed}"
        export_adapter(
            spec, tensors, out, Placement(threads=1),
            origin={"artifact": "0" * 16}, base_name=str(base),
        )  # fmt: skip
        return out

    return write


@pytest.fixture
def adapter(write_adapter):
    return write_adapter(5)


@pytest.fixture
def run(tmp_path, base, adapter):
    def whole(runtime, mode, *changes):
        text = RECIPE.format(runtime=runtime, base=base, adapter=adapter, mode=mode)
        placing = [f"runtime.store={tmp_path / runtime}", "runtime.threads=1"]
        loaded = load_text(text, [*changes, *placing])
        recipe, placed = locate(loaded.recipe, loaded.runtime)

        def call(step, spec, *, name, **parents):
            return step.prepare(spec, runtime=placed, name=name, **parents).run()

        return run_graph(recipe, call), Store(placed.store), placed

    return whole


@pytest.mark.parametrize("mode", [TOP_K, "exact_full_vocab"])
def test_one_base_gives_the_keys_and_bytes_of_two_models(run, mode):
    dual, *_ = run("dual_model", mode)
    shared, store, _ = run("shared_backbone", mode)
    assert shared.parts == dual.parts
    assert shared.student == dual.student
    metrics = store.record(shared.student).metrics
    assert metrics["memory_reason"] == "one base holds every role"
    assert metrics["loss"] > 0


def test_the_base_is_in_memory_once(base, adapter):
    text = RECIPE.format(runtime="shared_backbone", base=base, adapter=adapter, mode=TOP_K)
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
    text = RECIPE.format(runtime="shared_backbone", base=base, adapter=adapter, mode=TOP_K)
    spec = model_steps.student_spec(load_text(text).recipe)
    shared = Placement(threads=1, shared=True)
    student = open_model("student", spec, shared).backend
    before = {name: p.clone() for name, p in student.trainable().items()}
    student.load_trainable({name: p + 1 for name, p in before.items()})
    again = open_model("student", spec, shared, fresh=True).backend
    assert all(torch.equal(p, before[name]) for name, p in again.trainable().items())


# ---------------------------------------------------------------- the reference


@pytest.fixture
def named():
    """Return f(role, adapter): overrides that give a role that adapter."""

    def given(role, adapter):
        manifest = json.loads((adapter / MANIFEST).read_text())
        key = f"models.{role}.adapter"
        return (
            f"{key}.path={adapter}",
            f"{key}.base_model_revision={manifest['base_digest']}",
            f"{key}.tokenizer_fingerprint={manifest['tokenizer_digest']}",
        )

    return given


@torch.no_grad()
def brute_force(store, parts, cycle, reference, placement):
    """Mean KL(student ‖ reference) at the selected positions of a cycle, from whole logits."""
    origin = store.path(parts[f"student_{cycle - 1:04d}"])
    student = open_weights("student", origin, placement).backend
    episodes = store.path(parts[f"rollouts_{cycle:04d}"]) / "trajectories.jsonl"
    targets = load_targets(store.path(parts[f"targets_{cycle:04d}"]))
    terms = []
    for episode, chosen in zip(read_trajectories(episodes), targets.selected, strict=True):
        ids_1T = torch.tensor([episode.token_ids])
        q_TV, p_TV = (
            model.model(input_ids=ids_1T).logits[0, :, : model.vocab_size].double().log_softmax(-1)
            for model in (student, reference)
        )
        terms += [float((q_TV[j].exp() * (q_TV[j] - p_TV[j])).sum())
                  for j in chosen.prediction_positions]  # fmt: skip
    return sum(terms) / len(terms)


def columns(store, parts):
    """Return the rows of both updates without the divergence, and the divergences."""
    rows = [
        json.loads(line)
        for cycle in (0, 1)
        for line in (store.path(parts[f"student_{cycle:04d}"]) / "metrics.jsonl").open()
    ]
    return rows, [row.pop(COLUMN, None) for row in rows]


def other_files(store, parts):
    """Return the digest of every file of both states but the metrics: weights, moments, tokens."""
    return [
        {name: entry for name, entry in store.record(parts[f"student_{cycle:04d}"]).files.items()
         if name != "metrics.jsonl"} for cycle in (0, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("mode", [TOP_K, "exact_full_vocab"])
def test_a_run_with_a_reference_trains_the_bits_of_one_without(run, base, mode):
    """A fresh adapter is the base, so the divergence begins at zero."""
    plain, store, _ = run("shared_backbone", mode)
    compared, _, placed = run("shared_backbone", mode, f"models.reference.model_id={base}")
    assert len(other_files(store, plain.parts)[0]) > 3
    assert other_files(store, compared.parts) == other_files(store, plain.parts)
    rows, (first, second) = columns(store, compared.parts)
    assert (rows, [None, None]) == columns(store, plain.parts)
    assert plain.parts["rollouts_0001"].digest == compared.parts["rollouts_0001"].digest
    assert first == 0.0
    alone = Placement(threads=1, paths=placed.model_paths)
    expected = brute_force(store, compared.parts, 1, HFBackend(base), alone)
    assert second == pytest.approx(expected, rel=1e-4)
    assert second > 1e-4


def test_the_reference_of_a_warm_student_is_the_adapter_that_it_started_from(
    run, base, named, write_adapter
):
    """C55: with the adapter switched off the divergence would not begin at zero."""
    start = write_adapter(6)
    warm = (*named("student", start), "models.student.lora.target_modules=[v_proj, down_proj]")
    third = (f"models.reference.model_id={base}", *named("reference", start))
    done, store, placed = run("shared_backbone", TOP_K, *warm, *third)
    _, (first, second) = columns(store, done.parts)
    assert first == 0.0
    alone = Placement(threads=1, paths=placed.model_paths)
    spec = store.record(done.parts["student_0001"]).payload["spec"]["reference"]
    assert spec["adapter"].startswith("sha256:")
    snapshot = open_reference(ModelSpec.model_validate(spec), alone)
    expected = brute_force(store, done.parts, 1, snapshot, alone)
    assert second == pytest.approx(expected, rel=1e-4)
    bare = brute_force(store, done.parts, 1, HFBackend(base), alone)
    assert bare > 2 * second > 0.0


def test_an_update_leaves_no_gradient_in_the_reference(run, base, adapter, named):
    third = (f"models.reference.model_id={base}", *named("reference", adapter))
    done, store, placed = run("shared_backbone", TOP_K, *third)
    _, values = columns(store, done.parts)
    assert min(values) > 1e-3
    shared = Placement(threads=1, paths=placed.model_paths, shared=True)
    spec = store.record(done.parts["student_0001"]).payload["spec"]["reference"]
    reference = open_reference(ModelSpec.model_validate(spec), shared)
    expected = load_adapter_tensors(adapter)
    assert {name: p.tolist() for name, p in reference.own.items()} == {
        name: p.tolist() for name, p in expected.items()
    }
    assert all(p.grad is None and not p.requires_grad for p in reference.own.values())


def test_a_reference_of_another_base_is_refused(run, base, adapter, named):
    key = "models.reference.adapter.base_model_revision"
    third = (f"models.reference.model_id={base}", *named("reference", adapter), f"{key}=other")
    with pytest.raises(ModelSourceError, match=rf"{key} = other is not the base"):
        run("shared_backbone", TOP_K, *third)

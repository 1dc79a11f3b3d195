"""An export is what PEFT loads, what our teacher reads, and what a student goes on from."""

import json

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from core.errors import BackendError, InputError, ModelSourceError, TokenizerMismatchError
from core.models import adapter_export
from core.models.adapter_directory import CONFIG, MANIFEST, WEIGHTS, open_adapter
from core.models.adapter_export import export_adapter
from core.models.building import Placement, build_model
from core.recipe.specs import LoraSpec, ModelSpec, StudentSpec, TokenizerSpec

IDS_BT = torch.arange(3, 27).reshape(2, 12)
LENGTHS_B = torch.tensor([12, 12])
TARGETS = ("q_proj", "v_proj", "down_proj")


def student_spec(path, *, bias="none", targets=TARGETS, r=4, **model):
    tokenizer = TokenizerSpec(backend="hf", tokenizer_id=str(path), revision=None)
    settings = {"dtype": "float32", "attn_implementation": "sdpa", **model}
    return StudentSpec(
        model=ModelSpec(
            backend="hf", toy=None, model_id=str(path), revision=None, tokenizer=tokenizer,
            **settings,
        ),
        lora=LoraSpec(enabled=True, r=r, alpha=8, dropout=0.0, target_modules=targets, bias=bias),
        seed=3,
    )  # fmt: skip


def trained_tensors(spec):
    """What a training might leave: every adapted parameter away from where it started."""
    backend = build_model(spec.model, Placement(threads=1), seed=spec.seed, lora=spec.lora)
    generator = torch.Generator().manual_seed(5)
    return {
        name: parameter.detach() + 0.1 * torch.randn(parameter.shape, generator=generator)
        for name, parameter in backend.trainable().items()
    }


def logits(backend):
    hidden_BTH = backend.hidden_states(IDS_BT, LENGTHS_B)
    return backend.project(hidden_BTH.flatten(0, 1)).detach()


@pytest.fixture
def exported(tiny_llama, tmp_path):
    """Return (spec, tensors, directory) of an export."""
    spec = student_spec(tiny_llama)
    tensors = trained_tensors(spec)
    export_adapter(
        spec, tensors, tmp_path / "adapter", Placement(threads=1),
        origin={"artifact": "0" * 16}, base_name=str(tiny_llama),
    )  # fmt: skip
    return spec, tensors, tmp_path / "adapter"


@pytest.mark.parametrize("bias", ["none", "all", "lora_only"])
def test_peft_loads_it_as_it_is(tmp_path, save_tiny_model, bias):
    base = save_tiny_model(tmp_path / "base", "qwen2")
    spec = student_spec(base, bias=bias)
    tensors = trained_tensors(spec)
    done = export_adapter(
        spec, tensors, tmp_path / "adapter", Placement(threads=1), origin={}, base_name=str(base)
    )
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(model, tmp_path / "adapter")(IDS_BT).logits.flatten(0, 1)
    ours = build_model(spec.model, Placement(threads=1), seed=spec.seed, lora=spec.lora)
    ours.load_trainable(tensors)
    torch.testing.assert_close(theirs.detach()[:, : ours.vocab_size], logits(ours))
    assert done.largest_difference < 1e-5
    assert done.parameters == sum(tensor.numel() for tensor in tensors.values())


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_an_adapter_of_a_quantised_base_is_exported_too(tiny_llama, tmp_path, kind):
    spec = student_spec(tiny_llama, quantization=kind, prepare_kbit_training=True)
    done = export_adapter(
        spec, trained_tensors(spec), tmp_path / "adapter", Placement(threads=1),
        origin={}, base_name="base",
    )  # fmt: skip
    assert done.largest_difference < 1e-4


def test_a_teacher_with_the_adapter_is_the_student_that_was_exported(exported):
    spec, tensors, path = exported
    student = build_model(spec.model, Placement(threads=1), seed=spec.seed, lora=spec.lora)
    student.load_trainable(tensors)
    placement = Placement(threads=1, paths={"a": path})
    adapted = spec.model.model_copy(update={"adapter": "sha256:a"})
    teacher = build_model(adapted, placement, seed=0)
    assert torch.equal(logits(teacher), logits(student))
    assert teacher.trainable() == {}


def test_a_student_starts_from_the_adapter(exported):
    spec, tensors, path = exported
    adapted = spec.model.model_copy(update={"adapter": str(path)})
    student = build_model(adapted, Placement(threads=1), seed=99, lora=spec.lora)
    assert student.trainable().keys() == tensors.keys()
    assert all(torch.equal(student.trainable()[name], tensor) for name, tensor in tensors.items())


def test_the_digest_is_of_configuration_and_weights_alone(exported):
    _, _, path = exported
    before = open_adapter(path)
    (path / "README.md").write_text("notes")
    document = json.loads((path / MANIFEST).read_text())
    document["origin"] = {"artifact": "1" * 16}
    (path / MANIFEST).write_text(json.dumps(document))
    assert open_adapter(path).digest == before.digest
    assert before.lora.target_modules == tuple(sorted(TARGETS))
    assert (before.lora.r, before.lora.alpha) == (4, 8)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_an_altered_file_is_refused(exported, name):
    _, _, path = exported
    data = bytearray((path / name).read_bytes())
    data[-2] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(ModelSourceError, match=name):
        open_adapter(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("peft_type", "IA3"),
        ("use_dora", True),
        ("alora_invocation_tokens", [7]),
        ("init_lora_weights", "pissa_niter_4"),
        ("use_rslora", True),
        ("rank_pattern", {"q_proj": 8}),
        ("modules_to_save", ["lm_head"]),
        ("target_modules", "all-linear"),
        ("r", 0),
    ],
)
def test_an_adapter_that_does_not_run_here_is_refused_by_its_key(exported, key, value):
    _, _, path = exported
    (path / MANIFEST).unlink()
    document = json.loads((path / CONFIG).read_text())
    document[key] = value
    (path / CONFIG).write_text(json.dumps(document))
    with pytest.raises(ModelSourceError, match=rf"{CONFIG}.*"):
        open_adapter(path)


def test_a_damaged_manifest_is_refused(exported):
    _, _, path = exported
    (path / MANIFEST).write_text('{"schema_version": 1}')
    with pytest.raises(ModelSourceError, match="base_digest"):
        open_adapter(path)


def test_going_on_under_other_settings_is_refused(exported):
    spec, _, path = exported
    adapted = spec.model.model_copy(update={"adapter": str(path)})
    for changed, named in (({"r": 8}, "lora.r"), ({"target_modules": ("q_proj",)}, "target_mod")):
        lora = spec.lora.model_copy(update=changed)
        with pytest.raises(BackendError, match=named):
            build_model(adapted, Placement(threads=1), seed=0, lora=lora)


def test_an_adapter_of_another_tokenizer_is_refused(exported, tiny_tokenizer, save_tokenizer):
    spec, _, path = exported
    document = json.loads((path / MANIFEST).read_text())
    document["tokenizer_digest"] = "0" * 64
    (path / MANIFEST).write_text(json.dumps(document))
    adapted = spec.model.model_copy(update={"adapter": str(path)})
    with pytest.raises(TokenizerMismatchError, match="another tokenizer"):
        build_model(adapted, Placement(threads=1), seed=0)


def test_an_export_that_peft_reads_otherwise_leaves_nothing(tiny_llama, tmp_path, monkeypatch):
    spec = student_spec(tiny_llama)
    tensors = trained_tensors(spec)
    right = adapter_export.to_peft
    doubled = lambda found, targets: {n: 2 * t for n, t in right(found, targets).items()}  # noqa: E731
    monkeypatch.setattr(adapter_export, "to_peft", doubled)
    with pytest.raises(BackendError, match="was not exported"):
        export_adapter(
            spec, tensors, tmp_path / "adapter", Placement(threads=1), origin={}, base_name="b"
        )
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_and_a_student_without_adapter_are_refused(exported, tmp_path):
    spec, tensors, path = exported
    with pytest.raises(InputError, match="exists already"):
        export_adapter(spec, tensors, path, Placement(), origin={}, base_name="b")
    inside = path / "adapter_config.json" / "x"
    with pytest.raises(InputError, match="cannot be made"):
        export_adapter(spec, tensors, inside, Placement(), origin={}, base_name="b")
    full = spec.model_copy(update={"lora": spec.lora.model_copy(update={"enabled": False})})
    with pytest.raises(InputError, match="has no adapter"):
        export_adapter(full, tensors, tmp_path / "x", Placement(), origin={}, base_name="b")

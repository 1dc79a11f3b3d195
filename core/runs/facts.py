"""What a manifest says of models, objective, roles, memory and measurements."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.artifacts.codec import read_json
from core.artifacts.record import Record
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.model_steps import student_spec, tokenizer_spec
from core.recipe.objective import METHODS, READERS, objective_name, objective_words, run_kind
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schema.models import Model
from core.recipe.sources import prompt_source, split_size, world_name
from core.recipe.steps import selection_spec
from core.runs.configs import decided_chunk, decided_device
from core.runs.parts import Parts

Json = dict[str, Any]


def is_on_policy(recipe: Recipe) -> bool:
    """Tell whether every update is on episodes of the present student; replay is not."""
    return run_kind(recipe) == "opd"


def objective_facts(recipe: Recipe) -> Json:
    """Return what is minimised, under the seeds' names."""
    loss, selection = recipe.loss, recipe.selection
    exact = loss.mode == "exact_full_vocab"
    return {
        "name": METHODS[run_kind(recipe)],
        "words": objective_words(recipe),
        "loss_mode": loss.mode,
        "divergence": objective_name(loss),
        "temperature": loss.temperature,
        "scale_by_temperature_squared": loss.scale_by_temperature_squared,
        "top_k": None if exact else loss.top_k,
        "jsd_beta": loss.jsd_beta if objective_name(loss) in READERS["jsd_beta"] else None,
        "sampled_token_nll_weight": loss.sampled_token_nll_weight,
        "aggregation": loss.aggregation,
        "selector": selection.selector,
        "selection_ratio": selection_spec(recipe).ratio,
        "freshness": recipe.train.opd_freshness,
    }


def environment_facts(recipe: Recipe, sizes: Mapping[str, int]) -> Json:
    """Return the world and its splits.

    Args:
        recipe: What was run.
        sizes: Tasks of the splits that were drawn.
    """
    section = recipe.environment
    asked = {split: split_size(recipe, split) for split in ("train", "eval", "test")}
    return {
        "name": world_name(recipe),
        "params": section.params if section else {},
        "difficulty": section.difficulty if section else None,
        "split_seed": section.split_seed if section else None,
        "split_sizes": {name: size for name, size in asked.items() if size is not None}
        | dict(sizes),
    }


def source_facts(recipe: Recipe) -> Json:
    """Return where prompts come from."""
    source = prompt_source(recipe)
    return {"kind": "environment"} if source is None else source.model_dump(mode="json")


def model_facts(recipe: Recipe, runtime: Runtime, parts: Parts, records: Sequence[Record]) -> Json:
    """Return both models, and the device and tokenizer that the run's own files tell of."""
    student, teacher = recipe.models.student, recipe.models.teacher
    lora = student_spec(recipe).lora
    return {
        "backend": recipe.models.backend,
        "runtime": runtime.models_runtime,
        "device": decided_device(records),
        "student": {
            **_model(recipe, student),
            "lora": lora and lora.model_dump(mode="json"),
            "adapter": student.adapter and student.adapter.model_dump(mode="json"),
        },
        "teacher": {
            **_model(recipe, teacher),
            "mode": teacher.mode,
            "plugin": teacher.plugin and teacher.plugin.model_dump(mode="json"),
            "adapter": teacher.adapter and teacher.adapter.model_dump(mode="json"),
        },
        **_reference(recipe),
        **_tokenizer(parts),
        "tokenizer_vocab_size": _vocabulary(recipe, runtime),
    }


def _reference(recipe: Recipe) -> Json:
    """Return the frozen model that the student is compared with; nothing where there is none."""
    reference = recipe.models.reference
    if reference is None:
        return {}
    adapter = reference.adapter and reference.adapter.model_dump(mode="json")
    return {"reference": {**_model(recipe, reference), "adapter": adapter}}


def _model(recipe: Recipe, model: Model) -> Json:
    toy = recipe.models.backend == "toy"
    return {
        "model_id": model.model_id,
        "revision": model.revision,
        "tokenizer_id": model.tokenizer_id,
        "tokenizer_revision": model.tokenizer_revision,
        "quantization": model.quantization,
        "precision": model.dtype,
        "attention": None if toy else model.attn_implementation,
        "capabilities": {
            "exact_hidden_states": True,
            "movable_between_devices": model.quantization == "none",
        },
        "size": model.toy.model_dump() if toy else None,
    }


def _tokenizer(parts: Parts) -> Json:
    """Return the tokenizer's fingerprint, from the first targets; None before there are any."""
    for _, role in parts.numbered("targets"):
        found = read_json(parts.path(role) / "targets.json")["provenance"]
        return {
            "tokenizer_fingerprint": found["tokenizer_digest"],
            "teacher_fingerprint": found["teacher_digest"],
        }
    return {"tokenizer_fingerprint": None, "teacher_fingerprint": None}


def _vocabulary(recipe: Recipe, runtime: Runtime) -> int | None:
    """Return the tokens of the student's tokenizer, read without its library; None if unknown."""
    spec = tokenizer_spec(recipe, recipe.models.student)
    if spec.backend == "toy":
        return ToyTokenizer(spec.vocabulary or "calculator").vocab_size
    place = runtime.model_paths.get((spec.tokenizer_id or "").removeprefix("sha256:"))
    if place is None or not (place / "tokenizer.json").is_file():
        return None
    found = json.loads((place / "tokenizer.json").read_bytes())
    listed = found["model"]["vocab"]
    known = set(listed) if isinstance(listed, dict) else {piece for piece, _ in listed}
    return len(known | {token["content"] for token in found.get("added_tokens", [])})


def role_facts(recipe: Recipe) -> Json:
    """Return who does what, by the seeds' names of roles."""
    trained = recipe.run.mode == "sft"
    unread = trained or recipe.models.reference is None
    compared = None if unread else "reference, its KL recorded, never trained on"
    return {
        "actor_policy": "student",
        "rollout_runtime": None if trained else "student, all episodes together",
        "teacher_policy": None if trained else f"teacher, {recipe.models.teacher.mode}",
        "reference_policy": compared,
        "reward_or_verifier": f"{world_name(recipe)}, exact; reported, never optimised",
        "target_builder": None if trained else recipe.loss.mode,
        "update_runtime": f"{recipe.train.optimizer} on the student's trainable tensors",
        "evaluation_runtime": f"{recipe.eval.split} split" if recipe.eval.enabled else None,
    }


def memory_facts(runtime: Runtime, records: Sequence[Record]) -> Json:
    """Return how memory was used, and why so."""
    chunks = [r.metrics.get("projection_chunk_size") for r in records]
    history = [chunk for chunk in chunks if chunk is not None]
    smallest = min(history, default=runtime.chunk_size)

    peaks = [p for r in records if type(p := r.metrics.get("peak_memory_bytes")) is int]

    def newest(name: str) -> Any:
        found = [record.metrics[name] for record in records if name in record.metrics]
        return found[-1] if found else None

    return {
        "strategy": newest("memory_strategy") or runtime.memory_strategy,
        "reason": newest("memory_reason"),
        "peak_memory_bytes": max(peaks, default="not measured"),
        "projection_chunk_size": decided_chunk(records) or runtime.chunk_size,
        "chunk_size_history": sorted(set(history), reverse=True),
        "oom_retries_used": max((runtime.chunk_size // max(smallest, 1)).bit_length() - 1, 0),
    }


def measurement_facts(device: str | None, gpu: Mapping[str, Any]) -> Json:
    """Return what was measured: a GPU that a machine has and a run did not use measures nothing.

    Args:
        device: What computed the run; None before anything was.
        gpu: What the machine has.
    """
    if device is not None and device.startswith("cuda"):
        cuda = "measured"
    else:
        cuda = "not_measured_run_used_cpu" if gpu.get("available") else "not_run_no_cuda"
    return {
        "cpu_metrics": "measured" if device == "cpu" else "not_measured",
        "cuda_metrics": cuda,
        "simulated_results": "none",
    }


def provenance_facts(records: Sequence[Record]) -> Json:
    """Return commit, Python, packages and hardware behind the newest part."""
    if not records:
        return {}
    origin = records[-1].provenance
    return origin.model_dump(
        mode="json", include={"commit", "dirty", "python", "packages", "hardware", "arithmetic"}
    )

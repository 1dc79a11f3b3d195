"""A trained adapter as a PEFT directory that transformers and peft load as it is, proven by logits.

The directory is built beside its place and renamed into it when the check has passed, so what has
the name is whole. Weights are written in float32, as they were trained.
"""

import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from core.artifacts.codec import write_json
from core.artifacts.contents import hash_file
from core.errors import BackendError, InputError
from core.models.adapter_directory import CONTENT, MANIFEST, WEIGHTS, AdapterManifest, Evidence
from core.models.adapter_weights import to_peft
from core.models.bitsandbytes_library import quieten_bitsandbytes
from core.models.building import Placement, build_model, use_threads
from core.models.identity import model_digest
from core.models.loading import DTYPES, quiet_transformers
from core.recipe.schema.adapters import Lora
from core.recipe.specs import StudentSpec

PROBE_TOKENS = 16
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.25, "float16": 0.05}
"""Largest difference of a logit, relative to the largest logit times the arithmetic's rounding."""


@dataclass(frozen=True)
class Export:
    """What was written, and how near PEFT's logits are to ours."""

    path: Path
    tensors: int
    parameters: int
    largest_difference: float
    """Nats between a logit of PEFT's model and of ours, at most."""


def export_adapter(
    spec: StudentSpec,
    tensors: Mapping[str, Tensor],
    out: Path,
    placement: Placement,
    *,
    origin: Mapping[str, Any],
    base_name: str,
    evidence: Evidence | None = None,
) -> Export:
    """Write the adapter of a student.

    Args:
        spec: Its model.
        tensors: Its trained parameters.
        out: Directory to make.
        placement: Where the base lies and runs.
        origin: What trained it, for the manifest.
        base_name: What PEFT's configuration calls the base: a Hub id or a directory.
        evidence: A qualification of this very student.

    Raises:
        InputError: ``out`` exists or cannot be made, or the student has no adapter.
        BackendError: PEFT's model does not give the logits of ours.
    """
    if spec.lora is None or not spec.lora.enabled or spec.model.model_id is None:
        raise InputError(
            "this student has no adapter: all its weights are trained",
            "Export a run with models.backend: hf and models.student.lora.enabled: true.",
        )
    if out.exists():
        raise InputError(f"{out} exists already", "Name a new directory with --out.")
    staging = _staging(out)
    try:
        use_threads(placement, spec.model.backend)
        backend = build_model(spec.model, placement, seed=spec.seed, lora=spec.lora)
        backend.load_trainable(tensors)
        write_peft(staging, tensors, spec.lora, base_name)
        manifest = AdapterManifest(
            base_digest=model_digest(
                placement.directory(spec.model.model_id), trust_remote_code=_trusts(spec)
            ),
            tokenizer_digest=backend.tokenizer.digest,
            origin=dict(origin),
            files={name: hash_file(staging / name) for name in CONTENT},
            evidence=evidence,
        )
        write_json(staging / MANIFEST, manifest.model_dump(mode="json"))
        difference = _compare(backend, staging, spec, placement)
        staging.chmod(0o755)
        staging.rename(out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    size = sum(tensor.numel() for tensor in tensors.values())
    return Export(out, len(tensors), size, difference)


def _trusts(spec: StudentSpec) -> bool:
    return bool(spec.model.tokenizer.trust_remote_code)


def _staging(out: Path) -> Path:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise InputError(
            f"{out} cannot be made: {error.strerror}", "Name another directory with --out."
        ) from error


def write_peft(directory: Path, tensors: Mapping[str, Tensor], lora: Lora, base_name: str) -> None:
    """Write configuration and weights as PEFT's ``save_pretrained`` does."""
    quieten_bitsandbytes()
    import peft

    config = peft.LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        target_modules=list(lora.target_modules),
        bias=lora.bias,
        base_model_name_or_path=base_name,
        task_type=peft.TaskType.CAUSAL_LM,
        inference_mode=True,
    )
    config.save_pretrained(str(directory))
    save_file(to_peft(tensors, lora.target_modules), directory / WEIGHTS)


@torch.no_grad()
def _compare(backend: Any, directory: Path, spec: StudentSpec, placement: Placement) -> float:
    """Return how far PEFT's logits on a probe are from ours, at most.

    Raises:
        BackendError: Further than rounding explains.
    """
    import peft

    step = max(1, backend.vocab_size // PROBE_TOKENS)
    probe_1T = torch.arange(0, backend.vocab_size, step, device=backend.device)[None]
    lengths_1 = torch.tensor([probe_1T.shape[1]], device=backend.device)
    ours_TV = backend.project(backend.hidden_states(probe_1T, lengths_1))[0].float()
    theirs_TV = _peft_logits(peft, directory, spec, placement, probe_1T)[:, : backend.vocab_size]
    difference = float((ours_TV - theirs_TV).abs().max())
    allowed = TOLERANCE[spec.model.dtype] * max(1.0, float(ours_TV.abs().max()))
    if not difference <= allowed:
        raise BackendError(
            f"PEFT's model gives logits that differ by {difference:.3g} from those of the run",
            "The adapter was not exported. Try other versions of peft and transformers.",
        )
    return difference


def _peft_logits(
    peft: Any, directory: Path, spec: StudentSpec, placement: Placement, probe_1T: Tensor
) -> Tensor:
    """Load base and adapter as any user of PEFT would, and return its logits on a probe."""
    from core.models.quantization import loading_arguments, settle

    assert spec.model.model_id is not None, "checked by the caller"
    dtype, device = DTYPES[spec.model.dtype], torch.device(placement.device)
    kind = spec.model.quantization
    quantised = loading_arguments(kind, dtype, device) if kind is not None else {}
    with quiet_transformers() as transformers:
        base = transformers.AutoModelForCausalLM.from_pretrained(
            str(placement.directory(spec.model.model_id)),
            dtype=dtype,
            attn_implementation=spec.model.attn_implementation,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=_trusts(spec),
            **quantised,
        )
        if kind is not None:
            settle(base, prepare=bool(spec.model.prepare_kbit_training))
        # peft asks transformers for properties by older names, which is nothing to a user.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            model = peft.PeftModel.from_pretrained(base, str(directory)).to(device).eval()
        if kind is not None:
            settle(model, prepare=False)
    return model(input_ids=probe_1T, use_cache=False).logits[0].float()

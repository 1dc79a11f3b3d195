"""From a spec to a model or tokenizer in memory. Importing this needs no torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import BackendError, ModelSourceError, TokenizerMismatchError
from core.models.adapter_directory import AdapterDirectory, open_adapter
from core.models.device_memory import GIB
from core.models.hub import stay_offline
from core.models.swap import MemoryRules
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.runtime import Runtime
from core.recipe.schema.adapters import Lora
from core.recipe.specs import ModelSpec, TokenizerSpec
from core.trajectory.tokens import TokenCodec

if TYPE_CHECKING:
    from core.models.backend import Backend

DIGEST_PREFIX = "sha256:"
"""Starts a model id that names bytes; the runtime knows where they lie."""


@dataclass(frozen=True)
class Placement:
    """Where models run and lie; never identity.

    Attributes:
        device: ``cpu`` or ``cuda``.
        paths: Directory of each content digest.
        threads: CPU threads of one operation; None is 1 for a toy, whose operations are too small
            to share, and all cores otherwise.
        gradient_checkpointing: Recompute layers of the student in its backward pass.
        memory: Whether a model at rest leaves the device.
        shared: Whether roles are adapters on one base.
    """

    device: str = "cpu"
    paths: Mapping[str, Path] = field(default_factory=dict)
    threads: int | None = None
    gradient_checkpointing: bool = False
    memory: MemoryRules = field(default_factory=MemoryRules)
    shared: bool = False

    def directory(self, model_id: str) -> Path:
        """Return the directory that ``model_id`` names by digest or by path.

        Raises:
            ModelSourceError: A digest is not among ``paths``.
        """
        if not model_id.startswith(DIGEST_PREFIX):
            return Path(model_id)
        digest = model_id.removeprefix(DIGEST_PREFIX)
        if digest not in self.paths:
            raise ModelSourceError(
                f"the model with digest {digest[:16]}… is not at hand",
                "Run the recipe that names its directory, so that it can be found again.",
            )
        return self.paths[digest]


def place(runtime: Runtime) -> Placement:
    """Return where a runtime wants models; ``auto`` takes CUDA where there is one.

    The CPU kernels used here are deterministic. On CUDA torch is told, for the whole process, to
    take deterministic kernels and to warn where it has none. ``offline`` too holds for the process.

    Raises:
        BackendError: CUDA is asked for and absent.
    """
    if runtime.offline:
        stay_offline()
    device = runtime.device
    if device != "cpu":
        import torch

        present = torch.cuda.is_available()
        if device == "cuda" and not present:
            raise BackendError(
                "runtime.device=cuda, but torch finds no CUDA device",
                "Set runtime.device=auto or cpu, or install the CUDA build of torch.",
            )
        device = "cuda" if present else "cpu"
        if present:
            # cuBLAS reads this before its first product; without it, sums may change order.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True, warn_only=True)
            # Products in float32 mean float32, and the kernel for a size is always the same one.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    headroom = int(runtime.memory_auto_swap_vram_headroom_gb * GIB)
    rules = MemoryRules(runtime.memory_strategy, headroom)
    return Placement(
        device,
        runtime.model_paths,
        runtime.threads,
        gradient_checkpointing=runtime.gradient_checkpointing,
        memory=rules,
        shared=runtime.models_runtime == "shared_backbone",
    )


def use_threads(placement: Placement, backend: str) -> None:
    """Give torch the threads that a placement means for a kind of backend."""
    import torch

    default = 1 if backend == "toy" else (os.cpu_count() or 1)
    wanted = placement.threads or default
    if torch.get_num_threads() != wanted:
        torch.set_num_threads(wanted)


def build_tokenizer(spec: TokenizerSpec, placement: Placement) -> TokenCodec:
    """Return the tokenizer of a spec.

    Raises:
        ModelSourceError: Its files are missing or unusable.
    """
    if spec.backend == "toy":
        return _toy_tokenizer(spec)
    from core.models.tokenizer import load_tokenizer

    assert spec.tokenizer_id is not None, "a Hugging Face tokenizer has an id"
    return load_tokenizer(
        placement.directory(spec.tokenizer_id), trust_remote_code=bool(spec.trust_remote_code)
    )


def build_model(
    spec: ModelSpec, placement: Placement, *, seed: int, lora: Lora | None = None
) -> "Backend":
    """Return the model of a spec with its untrained or pretrained weights.

    Args:
        spec: Architecture or pretrained weights, and arithmetic.
        placement: Device and directories.
        seed: Of weights that are not pretrained: a toy's all, an adapter's matrices.
        lora: Adapter to train; a disabled one trains every pretrained weight, None freezes them.

    Raises:
        ModelSourceError: Its files are missing or unusable.
        BackendError: Device, dtype or adapter do not fit.
        TokenizerMismatchError: The adapter was trained with another tokenizer.
    """
    if spec.backend == "toy":
        return _build_toy(spec, placement, seed)
    from core.models.hf import HFBackend

    assert spec.model_id is not None, "a Hugging Face model has an id"
    adapter = open_adapter(placement.directory(spec.adapter)) if spec.adapter else None
    if adapter is not None:
        _check_settings(adapter, lora)
    backend = HFBackend(
        placement.directory(spec.model_id),
        tokenizer_path=placement.directory(spec.tokenizer.tokenizer_id or spec.model_id),
        dtype=spec.dtype,
        attn_implementation=spec.attn_implementation or "sdpa",
        quantization=spec.quantization or "none",
        prepare_kbit_training=bool(spec.prepare_kbit_training),
        device=placement.device,
        lora=adapter_settings(adapter, lora),
        seed=seed,
        adapter=adapter.path if adapter is not None else None,
        trust_remote_code=bool(spec.tokenizer.trust_remote_code),
        gradient_checkpointing=placement.gradient_checkpointing
        and (lora is not None or placement.shared),
    )
    if adapter is not None:
        _check_tokenizer(adapter, backend.tokenizer)
    if lora is None:
        backend.freeze()
    return backend


def adapter_settings(adapter: AdapterDirectory | None, lora: Lora | None) -> Lora | None:
    """Return what is trained: an adapter's own settings, with the dropout of this recipe."""
    if adapter is None:
        return lora
    return adapter.lora.model_copy(update={"dropout": lora.dropout if lora else 0.0})


def check_adapter(adapter: AdapterDirectory, lora: Lora | None, tokenizer: TokenCodec) -> None:
    """Refuse an adapter of another tokenizer, or one to go on training under other settings.

    Raises:
        BackendError: The settings differ.
        TokenizerMismatchError: The tokenizer does.
    """
    _check_settings(adapter, lora)
    _check_tokenizer(adapter, tokenizer)


def _check_settings(adapter: AdapterDirectory, lora: Lora | None) -> None:
    """Refuse to go on training an adapter under other settings than its own."""
    if lora is None:
        return
    for name in ("enabled", "r", "alpha", "bias"):
        asked, own = getattr(lora, name), getattr(adapter.lora, name)
        if asked != own:
            raise BackendError(
                f"models.student.lora.{name} is {asked}, but the adapter in {adapter.path} has "
                f"{own}",
                f"Set models.student.lora.{name}: {own}.",
            )
    if set(lora.target_modules) != set(adapter.lora.target_modules):
        raise BackendError(
            f"models.student.lora.target_modules are not those of the adapter in {adapter.path}",
            f"Set models.student.lora.target_modules: {list(adapter.lora.target_modules)}.",
        )


def _check_tokenizer(adapter: AdapterDirectory, tokenizer: TokenCodec) -> None:
    if adapter.manifest is not None and adapter.manifest.tokenizer_digest != tokenizer.digest:
        raise TokenizerMismatchError(
            f"the adapter in {adapter.path} was trained with another tokenizer",
            "Use the base model and the tokenizer that it was trained on.",
        )


def _build_toy(spec: ModelSpec, placement: Placement, seed: int) -> "Backend":
    from core.models.toy import ToyBackend, ToyConfig

    assert spec.toy is not None, "a toy model has a size"
    config, tokenizer = ToyConfig(**spec.toy.model_dump()), _toy_tokenizer(spec.tokenizer)
    return ToyBackend(config, seed, tokenizer, device=placement.device)


def _toy_tokenizer(spec: TokenizerSpec) -> ToyTokenizer:
    return ToyTokenizer(spec.vocabulary or "calculator")

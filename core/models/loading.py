"""``from_pretrained``, made strict, quiet and offline: a whole decoder or a typed error."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from core.errors import BackendError, MissingDependencyError, ModelSourceError
from core.models.hub import without_network
from core.models.quantization import loading_arguments
from core.models.source import (
    FAMILIES,
    inspect_source,
    read_config,
    refuse_kernel,
    ships_code,
)

logger = logging.getLogger(__name__)

SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the arithmetic that ``name`` means on a device.

    Args:
        name: ``float32``, ``bfloat16``, ``float16``, or ``auto``: float32 on a CPU; on CUDA
            bfloat16, or float16 where it has no bfloat16. Recipes never say ``auto`` here: theirs
            is made concrete without looking at a device.
        device: Where the weights will live.

    Raises:
        BackendError: Unknown, or nothing that the device can compute.
    """
    cuda = device.type == "cuda"
    bfloat16 = not cuda or torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "auto":
        halved = torch.bfloat16 if bfloat16 else torch.float16
        return halved if cuda else torch.float32
    if name not in DTYPES:
        raise BackendError(
            f"dtype {name!r} is unknown", f"Choose one of auto, {', '.join(DTYPES)}."
        )
    if name == "bfloat16" and not bfloat16:
        raise BackendError(
            "dtype bfloat16 has no kernels on this CUDA device", "Choose float32 or float16."
        )
    if name == "float16" and not cuda:
        raise BackendError(
            "dtype float16 has no usable kernels on a CPU", "Choose float32 or bfloat16."
        )
    return DTYPES[name]


def load_decoder(
    path: Path,
    *,
    dtype: torch.dtype,
    attn_implementation: str = "sdpa",
    quantization: str = "none",
    device: torch.device | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Load a causal decoder from a local directory, in eval mode.

    Args:
        path: A model directory; nothing else is read.
        dtype: Arithmetic of the weights.
        attn_implementation: ``sdpa`` or ``eager``.
        quantization: ``none``, ``nf4`` or ``int8``.
        device: Where quantised weights are made; others are loaded on the CPU.
        trust_remote_code: Whether Python code in it may run.

    Returns:
        The transformers model. Its type is one of ``source.FAMILIES``, or that of its own code.

    Raises:
        ModelSourceError: The directory is not a whole model of a family that runs here.
        MissingDependencyError: transformers, or bitsandbytes where it is needed, is not installed.
    """
    inspect_source(path, trust_remote_code=trust_remote_code)
    refuse_kernel(path, attn_implementation)
    quantised = (
        loading_arguments(quantization, dtype, device or torch.device("cpu"))
        if quantization != "none"
        else {}
    )
    with quiet_transformers() as transformers:
        try:
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                str(path),
                dtype=dtype,
                attn_implementation=attn_implementation,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                **quantised,
            )
        # Its loaders raise whatever the file at fault makes them raise.
        except Exception as error:
            raise ModelSourceError(
                f"{path} cannot be loaded: {first_line(error)}",
                "Copy or download the model again; config.json must belong to these weights.",
            ) from error
    _refuse_partial(path, report)
    if ships_code(read_config(path / "config.json")):
        _refuse_unlike(path, model)
    else:
        refuse_foreign(path, model)
    declared = model.generation_config
    # Sampling defaults and forced tokens of the directory belong to nobody's recipe.
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=declared.eos_token_id,
        pad_token_id=declared.pad_token_id,
        bos_token_id=declared.bos_token_id,
    )
    return model.eval()


def refuse_foreign(path: Path, model: Any) -> None:
    """Refuse a class whose head or trunk was not checked here.

    Raises:
        ModelSourceError: ``model`` is of another class than its family's.
    """
    if type(model).__name__ not in FAMILIES.values():
        raise ModelSourceError(
            f"{path} is of architecture {type(model).__name__}, which does not run here",
            f"Use a decoder of one of these: {', '.join(FAMILIES.values())}.",
        )


def _refuse_unlike(path: Path, model: Any) -> None:
    """Refuse a model of its own code that does not tell the sizes that engine steps need."""
    missing = [name for name in SIZES if not isinstance(getattr(model.config, name, None), int)]
    if missing or not hasattr(model, "get_decoder"):
        raise ModelSourceError(
            f"{path}: its own code gives no {(missing or ['get_decoder'])[0]}",
            "Use a model whose configuration has the names of Llama's.",
        )


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type if it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


@contextlib.contextmanager
def quiet_transformers() -> Iterator[Any]:
    """Give transformers without its progress bars, warnings and questions to the Hub.

    All that it is used for lies on the disk already; bars and warnings come back afterwards.

    Raises:
        MissingDependencyError: transformers is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError(
            "models of this backend need transformers, which is not installed",
            "Run `pip install 'opdflow[train]'`.",
        ) from error
    messages = transformers.utils.logging
    verbosity, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    try:
        with without_network():
            yield transformers
    finally:
        messages.set_verbosity(verbosity)
        if bars:
            messages.enable_progress_bar()


def _refuse_partial(path: Path, report: dict[str, Any]) -> None:
    """Refuse weights that would have been drawn at random in place of missing ones."""
    for kind in ("missing_keys", "mismatched_keys"):
        if report.get(kind):
            name = sorted(map(str, report[kind]))[0]
            raise ModelSourceError(
                f"the weights in {path} are not those of its config.json: "
                f"{kind.removesuffix('_keys')} {name}",
                "Copy or download the model again, all shards of it.",
            )
    if report.get("unexpected_keys"):
        logger.info("%s holds tensors that its decoder does not use", path)

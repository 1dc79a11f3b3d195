"""Tensors in safetensors files, without torch and with reproducible bytes.

The official writer takes metadata in the order of a randomised hash map, so equal tensors give
unequal files; this one sorts. Format: header length (8 bytes, little-endian), a JSON header
``{name: {dtype, shape, data_offsets}}`` and the data, tiled without holes
(https://github.com/huggingface/safetensors#format, 2023).

NumPy has no bfloat16: such tensors travel as the ``uint16`` of their bits and are listed by name.
In torch, ``tensor.view(torch.uint16).numpy()`` and back with ``.view(torch.bfloat16)``.
"""

import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.artifacts import filesystem
from core.errors import StoreError

Array: TypeAlias = "NDArray[Any]"

MAX_HEADER_BYTES = 100_000_000
"""Limit of the official reader; a longer one is damage or an attack."""

_CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}
_BF16 = "BF16"
_DTYPES[_BF16] = np.dtype("<u2")


@dataclass(frozen=True)
class TensorFile:
    """Content of a safetensors file."""

    arrays: dict[str, Array]
    """By name; writable, in host memory."""
    metadata: dict[str, str] = field(default_factory=dict)
    bfloat16: frozenset[str] = frozenset()
    """Names whose ``uint16`` values are the bits of bfloat16 numbers."""


def write_tensors(
    path: Path,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str] | None = None,
    *,
    bfloat16: Collection[str] = (),
    durable: bool = False,
) -> None:
    """Write tensors; equal content gives equal bytes.

    Args:
        path: The file; its directory exists.
        arrays: By name, of any shape; wider types come first so that each is aligned.
        metadata: Text only.
        bfloat16: Names of ``uint16`` arrays that hold the bits of bfloat16 numbers.
        durable: Wait for the disk; not needed for a file of an artifact that is being built.

    Raises:
        StoreError: A type has no code in the format, or the file cannot be written.
    """
    codes = {name: _code(path, name, arrays[name], bfloat16) for name in arrays}
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    cursor = 0
    for name in order:
        array = arrays[name]
        end = cursor + array.nbytes
        header[name] = {
            "dtype": codes[name],
            "shape": list(array.shape),
            "data_offsets": [cursor, end],
        }
        cursor = end
    filesystem.replace_file(path, _chunks(header, [arrays[n] for n in order]), durable=durable)


def read_tensors(path: Path) -> TensorFile:
    """Read all tensors of a file.

    Raises:
        StoreError: It is missing, cut off, or its header does not describe its data.
    """
    buffer = filesystem.read_buffer(path)
    header, start = _header(path, memoryview(buffer))
    metadata = _metadata(path, header.pop("__metadata__", {}))
    raw = np.frombuffer(buffer, dtype=np.uint8)[start:]
    spans = _spans(path, header, raw.size)
    arrays = {
        name: raw[begin:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, (entry, begin, end) in spans.items()
    }
    marked = frozenset(name for name, entry in header.items() if entry["dtype"] == _BF16)
    return TensorFile(arrays, metadata, marked)


def _code(path: Path, name: str, array: Array, bfloat16: Collection[str]) -> str:
    code = _CODES.get(array.dtype.name)
    if name in bfloat16 and code == "U16":
        return _BF16
    if code is None or name in bfloat16 or name == "__metadata__":
        raise StoreError(
            f"{path}: tensor {name!r} of type {array.dtype} cannot be stored",
            "Use float16/32/64, an integer type or bool; bfloat16 travels as uint16.",
        )
    return code


def _chunks(header: Mapping[str, Any], arrays: list[Array]) -> Iterator[filesystem.Chunk]:
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for array in arrays:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        yield little.reshape(-1).view(np.uint8).data


def _header(path: Path, data: memoryview) -> tuple[dict[str, Any], int]:
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else len(data)
    if length > min(len(data) - 8, MAX_HEADER_BYTES):
        raise _damaged(path, "the header is cut off")
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "the header is not JSON") from error
    if not isinstance(header, dict):
        raise _damaged(path, "the header is not a JSON object")
    return header, 8 + length


def _metadata(path: Path, found: object) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise _damaged(path, "the metadata is not text by name")
    return found


def _size(entry: dict[str, Any]) -> int:
    shape, itemsize = entry["shape"], _DTYPES[entry["dtype"]].itemsize
    if not all(type(length) is int and length >= 0 for length in [*shape, *entry["data_offsets"]]):
        raise ValueError("a length or offset is not a natural number")
    return math.prod(shape) * itemsize


def _spans(path: Path, header: dict[str, Any], size: int) -> dict[str, tuple[Any, int, int]]:
    """Check that the tensors tile the data exactly, as the official reader does."""
    spans: dict[str, tuple[Any, int, int]] = {}
    try:
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            if end - begin != _size(entry):
                raise _damaged(path, f"tensor {name!r} does not fill its place")
            spans[name] = (entry, begin, end)
        cursor = 0
        for name, (_, begin, end) in sorted(spans.items(), key=lambda item: item[1][1:]):
            if begin != cursor:
                raise _damaged(path, f"tensor {name!r} starts at {begin} instead of {cursor}")
            cursor = end
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"the header is not valid: {error}") from error
    if cursor != size:
        raise _damaged(path, f"holds {size} bytes of data instead of {cursor}")
    return spans


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path}: not a safetensors file: {what}",
        "Restore the file, or remove its artifact and run again.",
    )

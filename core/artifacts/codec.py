"""Files that cannot execute code: strict JSON, JSON lines and Parquet.

Equal values give equal bytes: keys sorted, line feeds, no NaN. Readers name the file and the row
that they refuse. Tensors need torch here: :mod:`core.models.tensor_files`.
"""

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from core.artifacts import filesystem
from core.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd

_SAFE = {int, str, bool, type(None)}
_REBUILD = "Restore the file, or remove its artifact and run again."


def write_json(path: Path, value: Any, *, durable: bool = False) -> None:
    """Write one JSON document, indented.

    Args:
        path: The file; its directory exists.
        value: Plain data: None, bool, int, finite float, str, list, tuple, string-keyed dict.
        durable: Wait for the disk; not needed for a file of an artifact that is being built.

    Raises:
        StoreError: ``value`` is not plain and finite, or the file cannot be written.
    """
    text = _dumps(value, path, indent=1) + "\n"
    filesystem.replace_file(path, [text.encode()], durable=durable)


def read_json(path: Path) -> Any:
    """Read one JSON document.

    Raises:
        StoreError: It is missing, not UTF-8, not JSON, repeats a key or holds NaN.
    """
    return _loads(_decode(filesystem.read_file(path), path), str(path))


def write_jsonl(path: Path, rows: Iterable[Any], *, durable: bool = False) -> int:
    """Write one JSON document per line.

    Args:
        path: The file; its directory exists.
        rows: Plain data each, as for :func:`write_json`.
        durable: Wait for the disk; not needed for a file of an artifact that is being built.

    Returns:
        Number of rows.

    Raises:
        StoreError: A row is not plain and finite (its number is named), or the disk refused.
    """
    lines = [_dumps(row, path, row=number) + "\n" for number, row in enumerate(rows, start=1)]
    filesystem.replace_file(path, (line.encode() for line in lines), durable=durable)
    return len(lines)


def read_jsonl(path: Path) -> list[Any]:
    """Read one JSON document per line.

    Raises:
        StoreError: The file is missing, or a row is empty, cut off, not JSON, repeats a key or
            holds NaN; names the row.
    """
    return list(iterate_jsonl(path))


def iterate_jsonl(path: Path) -> Iterator[Any]:
    """Read one JSON document per line, decoding each as it is asked for.

    Raises:
        StoreError: As :func:`read_jsonl`, when the row is reached.
    """
    lines = _decode(filesystem.read_file(path), path).split("\n")
    if lines.pop():
        raise StoreError(f"{path}: row {len(lines) + 1} is cut off", _REBUILD)
    for number, line in enumerate(lines, start=1):
        yield _loads(line, f"{path}: row {number}")


def write_parquet(path: Path, frame: "pd.DataFrame", *, durable: bool = False) -> None:
    """Write a table; its index is not stored.

    Raises:
        StoreError: A column cannot be stored, or the file cannot be written.
    """
    buffer = io.BytesIO()
    try:
        frame.to_parquet(buffer, index=False)
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{path}: the table cannot be stored: {error}",
            "Give each column a string name and values of one plain type.",
        ) from error
    filesystem.replace_file(path, [buffer.getvalue()], durable=durable)


def read_parquet(path: Path) -> "pd.DataFrame":
    """Read a table.

    Raises:
        StoreError: The file is missing or not Parquet.
    """
    import pandas as pd
    import pyarrow as pa

    data = filesystem.read_file(path)
    try:
        return pd.read_parquet(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path}: not a Parquet file", _REBUILD) from error


def _dumps(value: Any, path: Path, *, indent: int | None = None, row: int | None = None) -> str:
    fault = _fault(value, "")
    if fault is not None:
        where = f"{path}: row {row}" if row else str(path)
        raise StoreError(
            f"{where}: {fault}", "Write plain, finite values; None where nothing is meant."
        )
    separators = (",", ": ") if indent else (",", ":")
    # ASCII only: a model may write half of a surrogate pair, which UTF-8 has no bytes for.
    return json.dumps(value, sort_keys=True, indent=indent, separators=separators)


def _fault(value: Any, name: str) -> str | None:
    """Name the first thing that JSON has no text for, or would silently change."""
    if value is None or isinstance(value, bool | int | str):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{name or 'value'} is {value}"
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            return f"{name or 'value'} has the key {odd[0]!r}, which is no string"
        inner = ((f"{name}.{key}" if name else key, item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        if {type(item) for item in value} <= _SAFE:  # long rows of tokens, at the speed of C
            return None
        inner = ((f"{name}[{i}]", item) for i, item in enumerate(value))
    else:
        return f"{name or 'value'} is a {type(value).__name__}"
    return next((fault for where, v in inner if (fault := _fault(v, where))), None)


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: byte {error.start} is not UTF-8", _REBUILD) from error


def _loads(text: str, where: str) -> Any:
    try:
        return parse_strict(text)
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise StoreError(f"{where}: not strict JSON: {what}", _REBUILD) from error


def parse_strict(text: str) -> Any:
    """Parse JSON without NaN, infinities and keys that appear twice.

    Raises:
        ValueError: It is no such JSON.
        RecursionError: It is nested too deeply.
    """
    return json.loads(text, parse_constant=_constant, object_pairs_hook=_unique)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated!r} appears twice")
    return found

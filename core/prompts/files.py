"""Rows of Parquet and JSON-lines files, a bounded number at a time.

Which of the two a file is shows in its first bytes, not in its name: a name is only a place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.artifacts.codec import parse_strict
from core.errors import PromptFileError

PARQUET_MAGIC = b"PAR1"
MAX_LINE_BYTES = 16 * 2**20
"""Longest row of a JSON-lines file: one row may not fill the memory that batches are to save."""


@dataclass(frozen=True)
class RawRow:
    """One row as it stands in a file.

    Attributes:
        place: File and row number, for errors.
        number: Row of the file, from 1.
        values: Column to value.
    """

    place: str
    number: int
    values: dict[str, Any]


def read_rows(
    path: Path, columns: Sequence[str], batch_size: int, optional: Sequence[str] = ()
) -> Iterator[RawRow]:
    """Yield the rows of a file in order.

    Args:
        path: Parquet, or one JSON object per line; empty lines are no rows.
        columns: Dotted names of the columns that are needed; others are not read from Parquet.
        batch_size: Rows of a Parquet file in memory at a time.
        optional: Columns that are read too where a file has them.

    Raises:
        PromptFileError: The file or a row of it cannot be read; names both.
    """
    if is_parquet(path):
        yield from _parquet_rows(path, columns, batch_size, optional)
    else:
        yield from _json_rows(path)


def is_parquet(path: Path) -> bool:
    """Return whether a file starts like a Parquet file.

    Raises:
        PromptFileError: It cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> PromptFileError:
    return PromptFileError(
        f"{path} cannot be read: {error.strerror or error}",
        "Check source.train_files and source.val_files.",
    )


def _parquet_rows(
    path: Path, columns: Sequence[str], batch_size: int, optional: Sequence[str]
) -> Iterator[RawRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            present = file.schema_arrow.names
            heads = {_head(name, present) for name in columns}
            wanted = [name for name in present if name in heads or name in optional]
            _check_columns(path, columns, present)
            for batch in file.iter_batches(batch_size=batch_size, columns=wanted):
                for values in batch.to_pylist():
                    number += 1
                    yield RawRow(f"{path} row {number}", number, values)
    except (pa.ArrowException, OSError) as error:
        raise PromptFileError(
            f"{path} is no sound Parquet file after row {number}: {str(error).splitlines()[0]}",
            "Write the file anew.",
        ) from error


def _head(name: str, present: Sequence[str]) -> str:
    """Return the column that holds a dotted name: one spelt like it, or the one before the dot."""
    return name if name in present else name.partition(".")[0]


def _check_columns(path: Path, columns: Sequence[str], present: Sequence[str]) -> None:
    for name in columns:
        if _head(name, present) not in present:
            raise PromptFileError(
                f"{path} has no column {name!r}",
                f"Its columns are {', '.join(present) or 'none'}; name the one that is meant.",
            )


def _json_rows(path: Path) -> Iterator[RawRow]:
    try:
        with path.open("rb") as stream:
            number = 0
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                place = f"{path} row {number}"
                if len(line) > MAX_LINE_BYTES:
                    raise PromptFileError(
                        f"{place} has more than {MAX_LINE_BYTES} bytes", "Split or shorten the row."
                    )
                if line.strip():
                    yield RawRow(place, number, _object(line, place))
    except OSError as error:
        raise _unreadable(path, error) from error


def _object(line: bytes, place: str) -> dict[str, Any]:
    try:
        value = parse_strict(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise PromptFileError(
            f"{place} is no JSON object: {str(error).splitlines()[0]}",
            "Write Parquet, or one JSON object per line in UTF-8.",
        ) from error
    if not isinstance(value, dict):
        raise PromptFileError(
            f"{place} is a JSON {type(value).__name__}, no object",
            "Write each row as an object with a key per column.",
        )
    return value

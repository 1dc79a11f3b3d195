"""Trajectories as JSON lines: what is derived is not stored, and every row is checked both ways."""

import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.errors import TrajectoryError
from core.trajectory.trajectory import SCHEMA_VERSION, Trajectory


def read_trajectories(path: str | PathLike[str]) -> list[Trajectory]:
    """Return the trajectories of a file.

    Raises:
        TrajectoryError: The file cannot be read, a row has another schema version, or a row
            disagrees with itself; the message names file, row (from 1) and field.
    """
    try:
        # Only "\n" ends a row: text may hold the other line separators of Unicode.
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise TrajectoryError(f"{path}: {error.strerror}", "Name a JSONL file.") from error
    if lines[-1] == b"":
        lines.pop()
    return [parse_trajectory(line, f"{path}, row {row}") for row, line in enumerate(lines, start=1)]


def write_trajectories(path: str | PathLike[str], rows: Iterable[Trajectory]) -> None:
    """Write trajectories, one per line, without defaults. Equal rows give equal bytes.

    Each row is read back before anything is written, so a file that this function leaves can be
    read.

    Raises:
        TrajectoryError: A row disagrees with itself or has a value that JSON does not have.
        OSError: The file cannot be written.
    """
    lines: list[bytes] = []
    for row, trajectory in enumerate(rows, start=1):
        line = _dump_row(trajectory, f"{path}, row {row}")
        parse_trajectory(line, f"{path}, row {row}")
        lines.append(line + b"\n")
    Path(path).write_bytes(b"".join(lines))


def _dump_row(trajectory: Trajectory, place: str) -> bytes:
    stored = trajectory.model_dump(exclude_defaults=True)
    stored.pop("schema_version", None)
    row = {"schema_version": SCHEMA_VERSION, **stored}
    try:
        text = json.dumps(row, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise TrajectoryError(
            f"{place}: {error}", "Rows hold finite numbers, strings, lists and objects only."
        ) from error


def parse_trajectory(line: bytes, place: str) -> Trajectory:
    """Return the trajectory of one row.

    Args:
        line: The row, without its line end.
        place: File and row, for messages.

    Raises:
        TrajectoryError: It has another schema version, or disagrees with itself.
    """
    _check_version(_parse_json(line, place), place)
    try:
        # Strict: a number in quotes or a 1.0 among the ids is a damaged row.
        return Trajectory.model_validate_json(line, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "row"
        raise TrajectoryError(
            f"{place}, {field}: {first['msg']}",
            "The row was damaged or written by something else; make it again.",
        ) from error


def _parse_json(line: bytes, place: str) -> Any:
    try:
        return json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise TrajectoryError(
            f"{place}: no JSON object ({error})", "Each line holds one row."
        ) from error


def _no_constant(literal: str) -> None:
    raise ValueError(f"{literal} is not a finite number")


def _check_version(row: Any, place: str) -> None:
    version = row.get("schema_version") if isinstance(row, dict) else None
    if version != SCHEMA_VERSION:
        raise TrajectoryError(
            f"{place}, schema_version: {version!r}, this version reads {SCHEMA_VERSION}",
            "Read it with the version that wrote it.",
        )

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.artifacts import filesystem
from core.artifacts.request import PublishRequest
from core.artifacts.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def make_request():
    """A request for a small artifact; keyword arguments replace fields."""

    def make(**changes: Any) -> PublishRequest:
        fields = {"kind": "rollouts", "name": "toy", "task": "sample", "version": "1", "spec": {}}
        return PublishRequest(**{**fields, **changes})

    return make


@pytest.fixture
def build():
    """Write two files, one in a directory of its own."""

    def write(directory: Path) -> dict[str, Any]:
        (directory / "rows.jsonl").write_text('{"a":1}\n')
        (directory / "inner").mkdir()
        (directory / "inner" / "weights.bin").write_bytes(bytes(range(64)))
        return {"rows": 1}

    return write


@pytest.fixture
def age():
    """Put a file's modification time into the past, so that its next stamp is kept."""

    def make_older(path: Path, seconds: float = 60.0) -> None:
        for file in [path, *path.rglob("*")]:
            past = file.stat().st_mtime - seconds
            os.utime(file, (past, past))

    return make_older


@pytest.fixture
def watch(monkeypatch):
    """Call a function before every operation on the disk."""

    def install(observer: Callable[[str, Path], None]) -> None:
        monkeypatch.setattr(filesystem, "announce", observer)

    return install


@pytest.fixture
def fail(watch):
    """Raise an operating system error at each operation of one name; healed by leaving."""

    @contextmanager
    def failing(operation: str, number: int) -> Iterator[None]:
        def observer(name: str, path: Path) -> None:
            if name == operation:
                raise OSError(number, os.strerror(number), str(path))

        watch(observer)
        yield
        watch(lambda name, path: None)

    return failing

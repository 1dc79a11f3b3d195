"""Damage to the files of a store, as a failing disk or a careless hand does it."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path


def damage(store: Path, rng: random.Random) -> str:
    """Alter, cut, lengthen or delete one file or artifact of a store, chosen at random.

    Args:
        store: Its root.
        rng: Chooses the place and what is done to it.

    Returns:
        What was done and where; empty where there is nothing to damage.
    """
    files = sorted(
        path for path in store.glob("**/*") if path.is_file() and ".locks" not in path.parts
    )
    if not files:
        return ""
    place = rng.choice(files)
    name, act = rng.choice(sorted(WAYS.items()))
    act(place, rng)
    return f"{name} {_shown(place, store)}"


def _shown(place: Path, store: Path) -> str:
    parts = place.relative_to(store).parts
    return f"{parts[0]}/…/{parts[-1]}" if len(parts) > 2 else "/".join(parts)


def _alter(place: Path, rng: random.Random) -> None:
    blob = bytearray(place.read_bytes() or b"\0")
    blob[rng.randrange(len(blob))] ^= rng.randint(1, 255)
    place.write_bytes(blob)


def _cut(place: Path, rng: random.Random) -> None:
    os.truncate(place, rng.randint(0, max(0, place.stat().st_size - 1)))


def _lengthen(place: Path, rng: random.Random) -> None:
    with place.open("ab") as stream:
        stream.write(rng.randbytes(7))


def _delete(place: Path, rng: random.Random) -> None:
    del rng
    place.unlink()


def _delete_directory(place: Path, rng: random.Random) -> None:
    del rng
    shutil.rmtree(place.parent)


WAYS: dict[str, Callable[[Path, random.Random], None]] = {
    "altered": _alter,
    "cut": _cut,
    "lengthened": _lengthen,
    "deleted": _delete,
    "deleted all beside": _delete_directory,
}
"""What is done, by the words that say so."""

"""``opd chaos``: kill a run anywhere, damage its files, fill its disk, and compare the bytes.

An undisturbed run comes first. Then attempts at the same run are disturbed, in a store of their
own, until enough of them were; whenever an attempt gets to its end, every artifact must have the
content digest of the undisturbed run. Between attempts files are damaged. The runs are processes,
so what happens to them happens to a user's.
"""

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.artifacts.catalogue import Catalogue
from core.artifacts.store import Store
from core.errors import ChaosError, RecipeError
from core.recipe.loading import load
from core.seeding import derive_seed
from flows.chaos.attempt import (
    DISK_FAULTS,
    FAULTS,
    SIGNALS,
    Attempt,
    Scene,
    cause,
    ending,
    step_of,
    watch,
)
from flows.chaos.damage import damage

VIEWS = ("report",)
"""Kinds whose bytes quote wall seconds."""
DAMAGED_SHARE = 0.6
"""Chance that a file is damaged after an attempt."""


@dataclass
class Chaos:
    """What came of all attempts."""

    recipe: str
    seed: int
    artifacts: int
    """Artifacts that are compared."""
    operations: int
    """Operations on the disk of the undisturbed run."""
    attempts: list[Attempt] = field(default_factory=list)
    comparisons: int = 0
    """Times that a run got to its end with the bytes of the undisturbed one."""

    @property
    def failures(self) -> list[Attempt]:
        """Attempts that ended in something that must not be."""
        return [a for a in self.attempts if a.ended in ("hung", "crashed", "other bytes")]

    def as_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "failures": len(self.failures)}


def chaos(
    recipe: Path, overrides: Sequence[str], *, kills: int, seed: int = 0, direct: bool = False
) -> Chaos:
    """Disturb a recipe's run and compare what it ends in.

    Args:
        recipe: A YAML file; a small one.
        overrides: ``key=value`` changes to it.
        kills: Attempts that are disturbed.
        seed: Chooses the disturbances; what they meet depends on the machine's speed too.
        direct: Run the steps without Prefect.

    Raises:
        RecipeError: The recipe is refused, or has a budget of seconds and so no bytes to compare.
        ChaosError: The undisturbed run does not end.
    """
    if load(recipe, overrides).recipe.train.max_wall_seconds is not None:
        raise RecipeError(
            "train.max_wall_seconds ends runs at different steps, so their bytes differ",
            "Set train.max_wall_seconds=null.",
        )
    with _scratch() as scratch:
        scene = Scene(recipe, (*overrides, "runtime.progress_seconds=0.3"), scratch, direct)
        wanted, found, seconds = _undisturbed(scene, recipe, seed)
        rng = random.Random(derive_seed(seed, "chaos"))
        while len(found.attempts) < kills:
            found.attempts.append(_attempt(scene, rng, found, seconds, wanted))
        _finish(scene, found, seconds, wanted)
    return found


@contextmanager
def _scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="opd-chaos-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _undisturbed(scene: Scene, recipe: Path, seed: int) -> tuple[dict[str, str], Chaos, float]:
    started = time.monotonic()
    process = scene.start("undisturbed", {"kind": "none", "at": 0, "seed": 0})
    _, errors = process.communicate()
    if process.returncode != 0:
        lines = errors.strip().splitlines() or ["it said nothing"]
        raise ChaosError(
            f"the undisturbed run of {recipe} ended with {process.returncode}: {cause(lines)}",
            f"Make `opd run {recipe}` work first.",
        )
    wanted = _digests(scene.scratch / "undisturbed")
    operations = int((scene.scratch / "operations").read_text())
    found = Chaos(str(recipe), seed, len(wanted), operations)
    return wanted, found, time.monotonic() - started


def _attempt(
    scene: Scene, rng: random.Random, found: Chaos, seconds: float, wanted: dict[str, str]
) -> Attempt:
    number = len(found.attempts) + 1
    started = time.monotonic()
    kind = rng.choice([*SIGNALS, *FAULTS])
    fault = {"kind": "none", "at": 0, "seed": 0}
    if kind in SIGNALS:
        delay = rng.uniform(0.0, seconds)
        disturbance = f"{kind} after {delay:.2f} s"
    else:
        delay = None
        fault = {"kind": kind, "at": rng.randint(1, found.operations), "seed": number}
        disturbance = f"{kind} at operation {fault['at']}"
    process = scene.start("disturbed", fault)
    hung, errors = watch(process, delay, kind, seconds)
    step = step_of(scene.scratch / "disturbed")
    ended, detail = ("hung", "") if hung else ending(process.returncode, errors, kind, scene)
    done = ""
    if ended == "finished":
        detail = _compare(scene.scratch / "disturbed", wanted)
        ended = "other bytes" if detail else ended
        found.comparisons += not detail
        done = _start_over(scene.scratch / "disturbed", rng)
    elif ended == "refused" and kind not in DISK_FAULTS:
        # A record that claims to be of a newer version is not thrown away by itself.
        shutil.rmtree(scene.scratch / "disturbed")
        done = "new store"
    elif rng.random() < DAMAGED_SHARE:
        done = damage(scene.scratch / "disturbed", rng)
    took = time.monotonic() - started
    return Attempt(number, disturbance, step, ended, done, detail, round(took, 2))


def _digests(root: Path) -> dict[str, str]:
    """Return the content digest of every artifact whose bytes must repeat, by kind and key."""
    store = Store(root)
    return {
        f"{kind}/{record.key}": record.digest
        for kind in Catalogue(root).kinds()
        if kind not in VIEWS
        for record in store.siblings(kind)
        if not record.pruned
    }


def _compare(root: Path, wanted: dict[str, str]) -> str:
    """Return how a finished run's artifacts differ; empty where all have the wanted bytes."""
    store, found = Store(root), _digests(root)
    different = sorted(key for key in wanted if found.get(key) != wanted[key])
    if different:
        return f"{len(different)} of {len(wanted)} artifacts differ: {', '.join(different[:3])}"
    for kind in Catalogue(root).kinds():
        for record in store.siblings(kind):
            problems = store.verify(record.ref, deep=True)
            if problems:
                return problems[0]
    return ""


def _start_over(store: Path, rng: random.Random) -> str:
    """Give the next attempts something to do: remove all, or only some of the artifacts."""
    if rng.random() < 0.5:
        shutil.rmtree(store)
        return "new store"
    places = sorted(path for path in store.glob("[a-z]*/*") if path.is_dir())
    chosen = rng.sample(places, max(1, len(places) // 2))
    for place in chosen:
        shutil.rmtree(place)
    return f"{len(chosen)} artifacts removed"


def _finish(scene: Scene, found: Chaos, seconds: float, wanted: dict[str, str]) -> None:
    """Let what the last attempt left be completed undisturbed, and compare it."""
    store = scene.scratch / "disturbed"
    for _ in range(2):
        started = time.monotonic()
        process = scene.start("disturbed", {"kind": "none", "at": 0, "seed": 0})
        hung, errors = watch(process, None, "", seconds)
        ended, detail = ("hung", "") if hung else ending(process.returncode, errors, "", scene)
        if ended == "finished":
            detail = _compare(store, wanted)
            ended = "other bytes" if detail else ended
            found.comparisons += not detail
        took = round(time.monotonic() - started, 2)
        number = len(found.attempts) + 1
        found.attempts.append(Attempt(number, "none", "", ended, "", detail, took))
        if ended != "refused":
            return
        shutil.rmtree(store)


def lines(found: Chaos) -> list[str]:
    """Return a table of what was done and how it ended, and the sum of it."""
    table = [
        f"{a.number:>4}  {a.disturbance:<30} {a.step or '–':<11} {a.ended:<12} "
        f"{a.damage or '–':<34} {a.detail}".rstrip()
        for a in found.attempts
    ]
    head = f"{'':>4}  {'disturbance':<30} {'in step':<11} {'ended':<12} {'then':<34}".rstrip()
    ends = Counter(a.ended for a in found.attempts)
    words = ", ".join(f"{count} {ended}" for ended, count in sorted(ends.items()))
    return [
        head,
        *table,
        f"{len(found.attempts)} attempts: {words}",
        f"{found.comparisons} times the run got to its end, and all {found.artifacts} artifacts "
        "had the bytes of the undisturbed run",
    ]


def check(found: Chaos) -> None:
    """Refuse a run that did not end in the wanted bytes.

    Raises:
        ChaosError: An attempt hung, crashed without naming a file, or ended in other bytes; or none
            got to its end.
    """
    if not found.failures and not found.comparisons:
        raise ChaosError(
            "no attempt got to its end, so no bytes were compared",
            "Look at how the last one ended, and report it: this must not be.",
        )
    if not found.failures:
        return
    worst = found.failures[0]
    raise ChaosError(
        f"attempt {worst.number} ({worst.disturbance}): {worst.ended}: {worst.detail}",
        f"Repeat it with --seed {found.seed}, and report it: this must not be.",
    )

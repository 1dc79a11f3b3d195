"""``opd run RECIPE --from RUN@CYCLE``: which student a run goes on from, as overrides."""

import json
from pathlib import Path

from core.errors import InputError
from core.runs.local import read_local
from core.runs.manifest import load_manifest

USAGE = "Write e.g. --from runs/toy-seed1234@3; cycle 0 is the student after the cold start."


def fork_overrides(origin: str) -> list[str]:
    """Return the overrides that make a recipe go on from a student of another run.

    Args:
        origin: ``RUN@CYCLE``: a run directory, and how many cycles its student had done.

    Raises:
        InputError: There is no such run, or no such cycle in it.
    """
    directory, at, cycle = origin.rpartition("@")
    if not at or not cycle.isdecimal():
        raise InputError(f"--from {origin} is not RUN@CYCLE", USAGE)
    run = Path(directory)
    students = {
        role: entry.ref
        for role, entry in load_manifest(run).artifacts.items()
        if entry.ref.kind == "student"
    }
    role = "cold_start" if int(cycle) == 0 else f"student_{int(cycle) - 1:04d}"
    if role not in students:
        raise InputError(
            f"--from {origin}: that run has {len(students.keys() - {'cold_start'})} cycles"
            f"{'' if 'cold_start' in students else ' and no cold start'}",
            USAGE,
        )
    local = read_local(run)
    return [
        f"run.start={students[role].digest}",
        "cold_start=null",
        "train.sft_warmup_cycles=0",
        # In the directory of the run that it leaves, the same command would find another student.
        f"run.name={json.dumps(f'{run.absolute().name}-from-{int(cycle)}')}",
        *([f"runtime.store={local.store}"] if local is not None else []),
    ]

"""Names of the files of a run directory, and of the directory itself. Nothing else spells them."""

import re

from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime

MANIFEST = "manifest.json"
SUBMITTED, VALIDATED, RESOLVED = (
    "config.submitted.yaml",
    "config.validated.yaml",
    "config.resolved.yaml",
)
ENVIRONMENT = "environment.json"
METRICS, EVENTS = "metrics.jsonl", "events.jsonl"
TRAJECTORIES, EVAL_TRAJECTORIES = "trajectories.jsonl", "eval_trajectories.jsonl"
TOKEN_ANALYSIS = "token_analysis.jsonl"
EVALUATIONS = "eval.json"
REPORT, SUMMARY = "report.html", "summary.md"
TARGETS = "teacher-cache"
TARGETS_INDEX = f"{TARGETS}/index.json"
CHECKPOINTS = "checkpoints"
CHECKPOINT = "checkpoint.json"
FINAL = "final"
LOCAL = "local.json"
"""Where things lie on the machine that computed the run. It is never shared."""

STATE_FILES = ("model.json", "state.json", "trainable.safetensors", "optimizer.safetensors")
"""Files of a student that make a checkpoint."""

_UNPLAIN = re.compile(r"[^A-Za-z0-9_.+=-]+")


def directory_name(recipe: Recipe, runtime: Runtime) -> str:
    """Return what the directory of a run is called: its id, or its label and seed.

    A label may hold any character; those that a directory's name should not become ``-``.
    """
    if runtime.run_id is not None:
        return runtime.run_id
    label = _UNPLAIN.sub("-", runtime.run_name).strip(".-") or "run"
    return f"{label}-seed{recipe.run.seed}"


def checkpoint_name(cycle: int) -> str:
    """Return the directory of the state after so many cycles."""
    return f"cycle-{cycle:06d}"


def shard_name(place: int) -> str:
    """Return the file of the targets of the first, second, … set of episodes."""
    return f"shard-{place:05d}.safetensors"

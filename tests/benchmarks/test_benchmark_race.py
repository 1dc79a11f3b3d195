"""CPU seconds per arm-update of a whole benchmark, side by side with miniVERL's `benchmark`.

    OPD_PEER_PYTHON=PATH OPD_RACE=3 python -m pytest -s tests/benchmarks/test_benchmark_race.py

By hand, for half an hour: it is skipped unless ``OPD_PEER_PYTHON`` names an interpreter that
imports miniverl; ``OPD_RACE`` is the number of rounds. Both sides are their command line, from
nothing to the tables: imports, the fit of the teacher, a cold start per seed, five arms on each
seed, the evaluation of each. They take turns, on one thread, each in a process of its own with a
new directory; user and system seconds of the process and of all its children are counted, the
Prefect server included. Nets, tasks, episodes per update, updates, limits and loss are equal.
Episodes differ in length, as prompts and tokenizers do.

miniVERL keeps no fitted teacher: every arm but the supervised one fits it again. That is most of
its time where the fit is as long as that of ``recipes/toy.yaml``, so ``OPD_RACE_FIT`` sets another
number of steps; 0 leaves the fit out on both sides, and nothing is demanded of the ratio then.
``OPD_RACE_SEEDS`` is the number of seeds.

An arm-update is one optimizer step of an arm after its cold start; the arm that is nothing but its
cold start takes none.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEER = os.environ.get("OPD_PEER_PYTHON", "")
ROUNDS = int(os.environ.get("OPD_RACE", "3"))
FIT = int(os.environ.get("OPD_RACE_FIT", "350"))
SEEDS = list(range(1, 1 + int(os.environ.get("OPD_RACE_SEEDS", "3"))))
UPDATES, EPISODES = 8, 16
SIZE = {
    "hidden_size": 64,
    "num_layers": 2,
    "num_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 512,
}
COLD = {"rollouts_per_cycle": EPISODES, "learning_rate": 5.0e-3}
COLD_CYCLES = 60
WANTED = 1 / 3

pytestmark = pytest.mark.skipif(
    not PEER, reason="by hand: OPD_PEER_PYTHON names no interpreter that imports miniverl"
)


def base() -> dict[str, Any]:
    """The experiment, in the keys that both sides read."""
    model = {"model_id": "toy", "toy": SIZE}
    return {
        "schema_version": 1,
        "run": {"name": "race", "mode": "opd", "seed": 1},
        "models": {
            "backend": "toy",
            "device": "cpu",
            "student": {**model, "lora": {"enabled": False}},
            "teacher": {**model, "toy_pretrain_steps": FIT, "toy_pretrain_lr": 5.0e-3},
        },
        "environment": {
            "name": "calculator",
            "difficulty": "easy",
            "params": {"prompt_style": "compact"},
            "train_tasks": 128,
            "eval_tasks": 4,
            "test_tasks": 32,
            "split_seed": 7,
        },
        "rollout": {
            "max_turns": 3,
            "max_new_tokens_per_turn": 24,
            "max_total_tokens": 256,
            "temperature": 1.0,
        },
        "selection": {"selector": "all_model_tokens"},
        "loss": {"mode": "bucketed_topk_tail", "divergence": "reverse_kl", "top_k": 16},
        "train": {
            "cycles": UPDATES,
            "rollouts_per_cycle": EPISODES,
            "gradient_accumulation_steps": EPISODES,
            "learning_rate": 5.0e-4,
        },
        "eval": {"baseline_enabled": False},
        "report": {"enabled": False},
    }


def benchmark() -> dict[str, Any]:
    """The comparison, in the keys that both sides read."""
    offline = {
        "run": {"mode": "offline_kd"},
        "cache": {"reuse_across_policy_versions": True},
        "offline_kd": {"collection_tasks": 64},
    }
    return {
        "name": "race",
        "base": base(),
        "seeds": SEEDS,
        "eval_split": "test",
        "allowed_differences": [
            "run.mode",
            "train.cycles",
            "offline_kd.*",
            "cache.*",
            "selection.*",
        ],
        "arms": [
            {"name": "cold-start-only", "overrides": {"train": {"cycles": 0}}},
            {"name": "sft-continued", "overrides": {"run": {"mode": "sft"}}},
            {"name": "offline-kd-oracle", "overrides": offline},
            {"name": "strict-opd", "overrides": {}},
            {
                "name": "strict-opd-budget50",
                "overrides": {"selection": {"selector": "uniform_budget", "ratio": 0.5}},
            },
        ],
    }


def ours(directory: Path) -> tuple[list[str], Path]:
    """Return the command of our side, and the file that it leaves."""
    document = benchmark()
    document["allowed_differences"].append("runtime.inherited.*")
    document["cold_start"] = {**COLD, "cycles": COLD_CYCLES}
    document["common_overrides"] = {
        "runtime.store": str(directory / "store"),
        "run.output_dir": str(directory / "runs"),
    }
    path = directory / "benchmark.yaml"
    path.write_text(json.dumps(document))
    command = [sys.executable, "-c", "from flows.cli import main; main()", "benchmark", str(path)]
    return command, directory / "runs" / "benchmark-race" / "results.json"


def peers(directory: Path) -> tuple[list[str], Path]:
    """Return the command of the other side, and the file that it leaves."""
    document = benchmark()
    document["cold_start_cycles"] = COLD_CYCLES
    document["cold_start_overrides"] = {"train": {**COLD, "lr_schedule": "cosine"}}
    path = directory / "benchmark.yaml"
    path.write_text(json.dumps(document))
    command = [str(Path(PEER).with_name("miniverl")), "benchmark", str(path)]
    return [*command, "--output", str(directory / "out")], directory / "out" / "race.json"


def measured(command: list[str], directory: Path) -> float:
    """Return user and system seconds of a command and its children."""
    environment = {name: value for name, value in os.environ.items() if name != "OPD_HOME"}
    environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment |= {"OPD_HOME": str(directory / "home"), "DO_NOT_TRACK": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def steps_of(document: dict[str, Any]) -> int:
    """Return the optimizer steps of all arms after their cold starts, of either side."""
    rows = document.get("results") or document["arms"]
    return sum(row["optimizer_steps"] for row in rows)


@pytest.mark.timeout(0)
def test_an_update_of_an_arm_takes_at_most_a_third_of_the_cpu_seconds(tmp_path):
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    for number in range(ROUNDS):
        for name, side in (("ours", ours), ("theirs", peers)):
            directory = tmp_path / f"{name}-{number}"
            directory.mkdir()
            command, left = side(directory)
            seconds = measured(command, directory)
            steps = steps_of(json.loads(left.read_text()))
            assert steps == 4 * UPDATES * len(SEEDS)
            found[name].append(seconds / steps)
            print(f"{name}: {seconds:.1f} CPU s, {seconds / steps:.3f} per arm-update", flush=True)
    ratio = statistics.median(found["ours"]) / statistics.median(found["theirs"])
    print(f"fit of {FIT} steps, ratio of medians {ratio:.3f}")
    assert ratio <= WANTED or not FIT

"""Tokens per CPU second of a whole on-policy cycle on sqlite_recovery, side by side with miniVERL.

    OMP_NUM_THREADS=1 python tests/benchmarks/cycle_speed.py PEER_PYTHON

PEER_PYTHON is an interpreter that imports miniverl. A cycle is sample, score and update: 32
episodes of the student, the teacher's top 16 of every sampled token, one AdamW step. Each side runs
in processes of its own, alternating, on one thread, and writes to disk what it always writes: ours
its artifacts, the peer its trajectories and its teacher cache. Two things are counted over the
timed cycles: ``tokens``, which the student samples and of which all are scored and trained on, and
``read``, all tokens of those transcripts. A first cycle warms up (canaries and the engine's check
on our side).

Nets (hidden 96, 3 layers, 4 heads, MLP 192 for both roles), tasks per cycle, turns, tokens per turn
and per episode are equal; prompts, tool texts and tokenizers are each side's own, and so the
lengths of episodes are not quite the same. Two races:

* ``oracle``: in place of the sampled token each side takes the next one of its own oracle's trace,
  after computing what it always computes. So both play the same episodes: schema, queries, errors,
  another schema, answer.
* ``untrained``: random weights and no script. Episodes are turns of up to 64 unreadable tokens,
  each answered by an error message, until the model closes one or five have gone by.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RACES = ("oracle", "untrained")
EPISODES, WARM, TIMED = 32, 1, 1
SIZE = {
    "hidden_size": 96,
    "num_layers": 3,
    "num_heads": 4,
    "intermediate_size": 192,
    "max_position_embeddings": 3072,
}


def recipe(race: str) -> dict[str, Any]:
    """The experiment, in the keys that both sides read."""
    model = {"model_id": "toy", "toy": SIZE}
    limits = {
        "max_turns": 5,
        "max_new_tokens_per_turn": 64 if race == "untrained" else 384,
        "max_total_tokens": 1024 if race == "untrained" else 2560,
        "max_parse_errors": 5,
    }
    return {
        "schema_version": 1,
        "run": {"name": "cycle-speed", "mode": "opd", "seed": 1},
        "models": {
            "backend": "toy",
            "device": "cpu",
            "student": {**model, "lora": {"enabled": False}},
            "teacher": {**model, "toy_pretrain_steps": 0},
        },
        "environment": {
            "name": "sqlite_recovery",
            "difficulty": "hard",
            "params": {"prompt_style": "compact"},
            "train_tasks": 128,
            "eval_tasks": 4,
            "test_tasks": 4,
            "split_seed": 7,
        },
        "rollout": {**limits, "temperature": 1.0},
        "selection": {"selector": "all_model_tokens"},
        "loss": {"mode": "bucketed_topk_tail", "divergence": "reverse_kl", "top_k": 16},
        "train": {
            "cycles": WARM + TIMED,
            "rollouts_per_cycle": EPISODES,
            "gradient_accumulation_steps": EPISODES,
            "learning_rate": 1e-4,
        },
        "eval": {"enabled": False, "baseline_enabled": False},
        "report": {"enabled": False},
    }


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# ---------------------------------------------------------------- ours


def ours(race: str, directory: Path) -> dict[str, float]:
    from core.artifacts.store import Store
    from core.recipe.loading import load
    from flows.graphs.run import run_graph
    from tasks.caching import Step, StepCall

    path = directory / "recipe.yaml"
    path.write_text(json.dumps(recipe(race)))
    loaded = load(path, [f"runtime.store={directory / 'store'}", f"runtime.slots={EPISODES}"])
    if race == "oracle":
        follow_our_oracle(loaded.recipe)
    found = {"seconds": 0.0, "tokens": 0, "read": 0}
    phases: dict[str, float] = {}
    cycles = 0

    def call(step: Step, spec: Any, *, name: str, **parents: Any) -> Any:
        nonlocal cycles
        start = cpu_seconds()
        prepared: StepCall = step.prepare(spec, runtime=loaded.runtime, name=name, **parents)
        ref = prepared.run()
        seconds = cpu_seconds() - start
        cycles += step.name == "sample_rollouts"
        if cycles > WARM:
            phases[step.name] = phases.get(step.name, 0.0) + seconds
            found["seconds"] += seconds
            if step.name == "sample_rollouts":
                rows = (Store(loaded.runtime.store).path(ref) / "trajectories.jsonl").read_text()
                episodes = [json.loads(row) for row in rows.splitlines()]
                found["tokens"] += sum(len(each["logprobs"]) for each in episodes)
                found["read"] += sum(len(each["token_ids"]) for each in episodes)
        return ref

    run_graph(loaded.recipe, call)
    return found | phases


def follow_our_oracle(recipe: Any) -> None:
    """Make the engine draw the oracle's tokens: a token's noise tells whose it is."""
    import torch

    from core.environments.base import make_splits
    from core.environments.registry import make_environment
    from core.models.toy_tokenizer import ToyTokenizer
    from core.rollout import decoder, episodes
    from core.rollout.noise import uniforms
    from core.rollout.oracle import oracle_trajectory

    section = recipe.environment
    world = make_environment(section.name, **section.params)
    counts = {"train": section.train_tasks}
    tasks = make_splits(world, counts, section.split_seed, section.difficulty)["train"]
    traces = {}
    for task in tasks:
        trace = oracle_trajectory(world, task, ToyTokenizer(), max_turns=recipe.rollout.max_turns)
        own = [span for span in trace.spans if span.segment_key.startswith("gen:")]
        traces[task.task_id] = [trace.token_ids[span.start : span.end] for span in own]
    script: dict[float, int] = {}
    key_of, draw = episodes.stream_key, decoder.sample

    def stream_key(seed: int, trajectory_id: str, turn: int) -> int:
        key = key_of(seed, trajectory_id, turn)
        tokens = traces[trajectory_id.rsplit(":", 2)[0]][turn]
        noise = uniforms(torch.tensor([key]), len(tokens))[0].tolist()
        script.update(zip(noise, tokens, strict=True))
        return key

    def sample(logits_SV: Any, spec: Any, uniforms_S: Any) -> Any:
        drawn = draw(logits_SV, spec, uniforms_S)
        pairs = zip(uniforms_S.tolist(), drawn.token_ids_S.tolist(), strict=True)
        token_ids = [script.get(noise, token) for noise, token in pairs]
        return decoder.Draw(torch.tensor(token_ids), drawn.logprobs_S, drawn.kept_mass_S)

    episodes.stream_key, decoder.sample = stream_key, sample


# ---------------------------------------------------------------- the peer


def peer(race: str, directory: Path) -> dict[str, float]:
    from miniverl.config.models import RunConfig
    from miniverl.training.trainer import OPDTrainer

    config = RunConfig.model_validate(recipe(race))
    trainer = OPDTrainer.from_config(config, output_dir=directory)
    lengths: list[int] = []
    watch_peer(trainer, lengths, scripted=race == "oracle")
    found = {"seconds": 0.0, "tokens": 0, "read": 0}
    for cycle in range(WARM + TIMED):
        trainer.cycle = cycle
        lengths.clear()
        start = cpu_seconds()
        trainer._run_cycle()
        if cycle >= WARM:
            found["seconds"] += cpu_seconds() - start
            found["tokens"] += trainer._last_cycle_metrics["rollouts"]["generated_tokens"]
            found["read"] += sum(lengths)
    trainer.close()
    return found


def watch_peer(trainer: Any, lengths: list[int], *, scripted: bool) -> None:
    """Note the length of each episode, and let it follow the oracle where that is wanted."""
    from miniverl.models import sampling

    runner, draw = trainer.runner, sampling.sample_from_logits
    play = runner.rollout
    traces = {
        task.task_id: runner.oracle_rollout(task) if scripted else None
        for task in trainer.splits["train"]
    }
    script: list[int] = []

    def rollout(task: Any, *arguments: Any, **options: Any) -> Any:
        trace = traces[task.task_id]
        if trace is not None:
            pairs = zip(trace.token_ids, trace.model_generated_mask, strict=True)
            script[:] = [token for token, own in pairs if own]
        episode = play(task, *arguments, **options)
        lengths.append(len(episode.token_ids))
        return episode

    def sample(logits: Any, **options: Any) -> int:
        drawn = draw(logits, **options)
        return script.pop(0) if script else drawn

    runner.rollout = rollout
    sampling.sample_from_logits = sample


# ---------------------------------------------------------------- the race


def worker(side: str, race: str) -> None:
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        found = {"ours": ours, "peer": peer}[side](race, Path(directory))
    print(json.dumps(found))


def measure(python: str, side: str, race: str) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [python, __file__, "--worker", side, "--race", race]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{side} {race} failed:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])


def speeds(rows: list[dict[str, float]], name: str) -> list[int]:
    return [round(row[name] / row["seconds"]) for row in rows]


def run_race(peer_python: str, race: str, rounds: int) -> dict[str, Any]:
    results: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    for _ in range(rounds):
        results["ours"].append(measure(sys.executable, "ours", race))
        results["peer"].append(measure(peer_python, "peer", race))
    answer: dict[str, Any] = {"race": race, "episodes": EPISODES * TIMED}
    for name in ("tokens", "read"):
        found = {side: speeds(rows, name) for side, rows in results.items()}
        medians = {side: statistics.median(each) for side, each in found.items()}
        answer[f"{name}_per_cpu_second"] = found
        answer[f"{name}_ratio"] = round(medians["ours"] / medians["peer"], 2)
    answer |= {side: rows[0] for side, rows in results.items()}
    return answer


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("peer_python", nargs="?", help="interpreter that imports miniverl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--race", choices=RACES)
    parser.add_argument("--worker", choices=("ours", "peer"))
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.race)
        return
    if not arguments.peer_python:
        parser.error("name an interpreter that imports miniverl")
    for race in RACES if arguments.race is None else (arguments.race,):
        print(json.dumps(run_race(arguments.peer_python, race, arguments.rounds)))


if __name__ == "__main__":
    main()

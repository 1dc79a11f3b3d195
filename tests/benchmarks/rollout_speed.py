"""Sampled tokens per CPU second, side by side with miniVERL's toy backend.

    OMP_NUM_THREADS=1 python tests/benchmarks/rollout_speed.py PEER_PYTHON

PEER_PYTHON is an interpreter that imports miniverl and torch. Each side runs in processes of its
own, alternating, on one thread. Two races:

* ``engine``: episodes of equal shape for both. System prompt 97 tokens (shared by all), task 37, a
  turn of 35 sampled tokens, an observation of 32, a turn of 5: the lengths of the peer's own
  reference episode. Nothing stops early. The peer is called as its rollout loop calls it: once per
  turn with the whole transcript. Prefill counts.
* ``episodes``: each side's own rollout loop on its own calculator tasks, prompts and tokenizer,
  with random weights, so episodes consist of full-length unreadable turns.

The nets have equal trunks (hidden 96, 3 layers, 4 heads, MLP 192); our vocabulary is the larger.
The start-up check of the engine is done once per process and reported on its own.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

SYSTEM, USER, OBSERVATION, TURNS = 97, 37, 32, (35, 5)
EPISODES = 64
SIZES = {"hidden_size": 96, "num_layers": 3, "num_heads": 4, "intermediate_size": 192}
# As many and as long as the real ones, but they cannot occur.
STOP_TEXTS = ("</tool-call>", "</f1nal>")


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(run: Callable[[], int]) -> dict[str, float]:
    start = cpu_seconds()
    tokens = run()
    seconds = cpu_seconds() - start
    return {"tokens": tokens, "cpu_seconds": seconds, "tokens_per_cpu_second": tokens / seconds}


@cache
def prompt_ids(episode: int, low: int, high: int) -> tuple[list[int], list[int], list[int]]:
    """System, user and observation ids of an episode: ordinary tokens, no control tags."""
    shared, own = Random("system"), Random(f"episode {episode}")
    return (
        [shared.randrange(low, high) for _ in range(SYSTEM)],
        [own.randrange(low, high) for _ in range(USER)],
        [own.randrange(low, high) for _ in range(OBSERVATION)],
    )


# ---------------------------------------------------------------- ours


def our_backend() -> Any:
    from core.models.toy import ToyBackend, ToyConfig
    from core.models.toy_tokenizer import ToyTokenizer

    return ToyBackend(ToyConfig(**SIZES, max_position_embeddings=1024), 0, ToyTokenizer())


class Endless:
    """Our codec without an end of turn."""

    def __init__(self, codec: Any) -> None:
        self.decode = codec.decode
        self.eos_ids = ()


def our_engine(slots: int) -> Callable[[], int]:
    from core.rollout.decoder import Decoder
    from core.rollout.limits import EpisodeLimits, SamplingSpec
    from core.rollout.shape import EngineShape

    backend = our_backend()
    low, high = 9, backend.vocab_size
    backend.tokenizer = Endless(backend.tokenizer)
    shape = EngineShape.of(backend, EpisodeLimits(3, 40, 512))

    def run() -> int:
        decoder = Decoder(
            backend, shape, SamplingSpec(), slots=slots, stop_texts=STOP_TEXTS, max_new_tokens=40
        )
        turns: dict[int, tuple[int, int]] = {}
        waiting, tokens = list(range(EPISODES)), 0

        def admit(slot: int) -> None:
            episode = waiting.pop(0)
            turns[slot] = episode, 0
            system, user, _ = prompt_ids(episode, low, high)
            decoder.admit(slot, system + user, prefix=SYSTEM, budget=TURNS[0], stream=episode)

        for slot in range(slots):
            admit(slot)
        while turns:
            for turn in decoder.advance():
                tokens += len(turn.token_ids)
                episode, done = turns.pop(turn.slot)
                if done + 1 < len(TURNS):
                    turns[turn.slot] = episode, done + 1
                    observation = prompt_ids(episode, low, high)[2]
                    decoder.resume(
                        turn.slot, observation, budget=TURNS[done + 1], stream=episode + 1000
                    )
                    continue
                decoder.release(turn.slot)
                if waiting:
                    admit(turn.slot)
        return tokens

    return run


def our_episodes(slots: int) -> Callable[[], int]:
    from core.environments.registry import make_environment
    from core.rollout.episodes import run_episodes
    from core.rollout.limits import EpisodeLimits, SamplingSpec

    def environment() -> Any:
        return make_environment("calculator", prompt_style="compact")

    backend = our_backend()
    tasks = [
        environment().generate_task(index, seed=7, difficulty="easy", split="train")
        for index in range(EPISODES)
    ]

    def run() -> int:
        trajectories = run_episodes(
            backend,
            environment,
            tasks,
            EpisodeLimits(3, 40, 512),
            SamplingSpec(),
            seed=1,
            trajectory_ids=[task.task_id for task in tasks],
            policy_version=0,
            model_digest=None,
            slots=slots,
        )
        return sum(len(trajectory.logprobs) for trajectory in trajectories)

    return run


def our_check() -> float:
    from core.rollout.independence import independence_fingerprint
    from core.rollout.limits import EpisodeLimits
    from core.rollout.shape import EngineShape

    backend, start = our_backend(), cpu_seconds()
    independence_fingerprint(backend, EngineShape.of(backend, EpisodeLimits(3, 40, 512)))
    return cpu_seconds() - start


# ---------------------------------------------------------------- the peer


def peer_backend() -> Any:
    from miniverl.models.tokenizers import ToyTokenizer
    from miniverl.models.toy import ToyBackend

    return ToyBackend(tokenizer=ToyTokenizer(), model_id="toy", **SIZES)


def peer_engine() -> Callable[[], int]:
    backend = peer_backend()
    low, high = 9, backend.tokenizer.vocab_size

    class Endless:
        def __init__(self, codec: Any) -> None:
            self.decode = codec.decode
            self.eos_token_id = -1

    backend.tokenizer = Endless(backend.tokenizer)

    def run() -> int:
        tokens = 0
        for episode in range(EPISODES):
            system, user, observation = prompt_ids(episode, low, high)
            transcript = system + user
            for turn, budget in enumerate(TURNS):
                generation = backend.generate(
                    transcript,
                    max_new_tokens=budget,
                    stop_sequences=STOP_TEXTS,
                    temperature=1.0,
                    seed=episode * 1000 + turn,
                    record_logprobs=True,
                )
                tokens += len(generation.token_ids)
                transcript = transcript + generation.token_ids + observation
        return tokens

    return run


def peer_episodes() -> Callable[[], int]:
    from miniverl.agent.loop import RolloutRunner
    from miniverl.config.models import RolloutConfig
    from miniverl.environments import make_environment

    environment = make_environment("calculator", prompt_style="compact")
    config = RolloutConfig(
        max_turns=3, max_new_tokens_per_turn=40, max_total_tokens=512, record_logprobs=True
    )
    runner = RolloutRunner(backend=peer_backend(), environment=environment, config=config)
    tasks = [
        environment.generate_task(index, seed=7, difficulty="easy", split="train")
        for index in range(EPISODES)
    ]

    def run() -> int:
        return sum(
            runner.rollout(task, policy_version=0, seed=index).generated_token_count
            for index, task in enumerate(tasks)
        )

    return run


# ---------------------------------------------------------------- the race

RACES = ("engine", "episodes")


def worker(side: str, race: str, slots: int) -> None:
    import torch

    torch.set_num_threads(1)
    factory = {
        ("ours", "engine"): lambda: our_engine(slots),
        ("ours", "episodes"): lambda: our_episodes(slots),
        ("peer", "engine"): peer_engine,
        ("peer", "episodes"): peer_episodes,
    }[side, race]
    run = factory()
    check = our_check() if side == "ours" else 0.0
    run()
    print(json.dumps({**timed(run), "check_cpu_seconds": check}))


def measure(python: str, side: str, race: str, slots: int) -> dict[str, float]:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    command = [python, __file__, "--worker", side, "--race", race, "--slots", str(slots)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{side} {race} failed:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])


def race(peer_python: str, name: str, slots: int, rounds: int) -> dict[str, Any]:
    results: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    for _ in range(rounds):
        results["ours"].append(measure(sys.executable, "ours", name, slots))
        results["peer"].append(measure(peer_python, "peer", name, slots))
    speeds = {
        side: statistics.median(row["tokens_per_cpu_second"] for row in rows)
        for side, rows in results.items()
    }
    return {
        "race": name,
        "slots": slots,
        "tokens": {side: rows[0]["tokens"] for side, rows in results.items()},
        "tokens_per_cpu_second": {side: round(speed) for side, speed in speeds.items()},
        "ratio": round(speeds["ours"] / speeds["peer"], 2),
        "check_cpu_seconds": round(results["ours"][0]["check_cpu_seconds"], 3),
    }


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("peer_python", nargs="?", help="interpreter that imports miniverl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--race", choices=RACES)
    parser.add_argument("--worker", choices=("ours", "peer"))
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.race, arguments.slots)
        return
    if not arguments.peer_python:
        parser.error("name an interpreter that imports miniverl")
    for name in RACES if arguments.race is None else (arguments.race,):
        print(json.dumps(race(arguments.peer_python, name, arguments.slots, arguments.rounds)))


if __name__ == "__main__":
    main()

"""Tokens per CPU second of sixteen slots against one-at-a-time ``generate`` of transformers.

    OMP_NUM_THREADS=1 OPD_RACE=3 python -m pytest -s tests/benchmarks/test_rollout_race.py

By hand, for minutes: it is skipped unless ``OPD_RACE`` is set, to the number of rounds. SmolLM2,
sixteen prompts of 128 tokens whose first 96 are the same, 64 new tokens, greedy, nothing stops
early. Both sides hold the same weights in one process, on one thread, and take turns, so that what
else the machine does reaches both; user and system CPU seconds are counted, prompts included. The
engine's start-up check happens once per process and is printed apart.
"""

import os
import resource
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from core.models.hf import HFBackend
from core.rollout.decoder import Decoder
from core.rollout.independence import independence_fingerprint
from core.rollout.limits import EpisodeLimits, SamplingSpec
from core.rollout.shape import EngineShape

REPO = Path(__file__).resolve().parents[2]
MODEL = Path(os.environ.get("OPD_SMOLLM2", REPO / "models" / "smollm2-135m-instruct"))
PROMPTS, SHARED, PROMPT, NEW, SLOTS = 16, 96, 128, 64, 16
ROUNDS = int(os.environ.get("OPD_RACE", "0"))
LIMITS = EpisodeLimits(1, NEW, PROMPT + NEW)
NEAR_TIE = 1e-4
WANTED = 6.0

SYSTEM = """<|im_start|>system
You are a careful assistant with one tool, a calculator. To use it, write one JSON object with the
keys name and arguments, for example a call of add with the numbers 12 and 30, and wait for the
result before you go on. Use the tool for every operation, one after the other, and never guess a
number. When you know the answer, write it alone in the last line of your reply, without units and
without any other word beside it.<|im_end|>
"""
QUESTIONS = "{}. A train has {} wagons of {} seats, and {} seats are taken. How many are free? {}"

pytestmark = pytest.mark.skipif(
    not ROUNDS or not MODEL.is_dir(),
    reason=f"by hand: set OPD_RACE, with a model at {MODEL}",
)


def prompts(codec: Any) -> list[list[int]]:
    """Return ids of equal length that begin alike."""
    system = (codec.encode(SYSTEM) * 2)[:SHARED]
    own = [
        codec.encode(QUESTIONS.format(i, 3 + i, 40 + 7 * i, 11 * i, "Think step by step. " * 9))
        for i in range(PROMPTS)
    ]
    return [system + ids[: PROMPT - SHARED] for ids in own]


def cpu_seconds() -> float:
    """Return user and system seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(play: Callable[[], list[list[int]]]) -> tuple[list[list[int]], float]:
    """Return what was written, and tokens per CPU second."""
    start = cpu_seconds()
    written = play()
    return written, sum(map(len, written)) / (cpu_seconds() - start)


def ours(backend: HFBackend, asked: list[list[int]]) -> list[list[int]]:
    """Decode all prompts together."""
    shape = EngineShape.of(backend, LIMITS)
    engine = Decoder(
        backend, shape, SamplingSpec(0.0), slots=SLOTS, stop_texts=(), max_new_tokens=NEW
    )
    for slot, token_ids in enumerate(asked):
        engine.admit(slot, token_ids, prefix=SHARED, budget=NEW, stream=slot)
    written: dict[int, list[int]] = {}
    while turns := engine.advance():
        written |= {turn.slot: list(turn.token_ids) for turn in turns}
    return [written[slot] for slot in range(len(asked))]


@torch.inference_mode()
def theirs(model: Any, asked: list[list[int]]) -> list[list[int]]:
    """Call ``generate`` once per prompt."""
    written = []
    for token_ids in asked:
        ids_1T = torch.tensor([token_ids])
        out_1T = model.generate(
            ids_1T,
            attention_mask=torch.ones_like(ids_1T),
            do_sample=False,
            max_new_tokens=NEW,
            eos_token_id=None,
            pad_token_id=2,
        )
        written.append(out_1T[0, len(token_ids) :].tolist())
    return written


@torch.inference_mode()
def gap(model: Any, context: list[int], one: int, other: int) -> float:
    """Return by how much the model prefers a token to another after a context."""
    logits_V = model(torch.tensor([context])).logits[0, -1].float()
    return abs(float(logits_V[one] - logits_V[other]))


def partings(model: Any, asked: Any, left: Any, right: Any) -> list[float]:
    """Return the preference at the first place where two sides part, for each prompt that does."""
    gaps = []
    for token_ids, one, other in zip(asked, left, right, strict=True):
        where = next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)
        if where is not None:
            gaps.append(gap(model, token_ids + one[:where], one[where], other[where]))
    return gaps


@pytest.mark.timeout(0)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_sixteen_slots_against_one_at_a_time(dtype):
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=getattr(torch, dtype)).eval()
    backend = HFBackend(MODEL, dtype=dtype)
    asked = prompts(backend.tokenizer)
    backend.tokenizer.eos_ids = ()
    start = cpu_seconds()
    independence_fingerprint(backend, EngineShape.of(backend, LIMITS))
    print(f"\n{dtype}: start-up check {cpu_seconds() - start:.2f} CPU s")
    left, right = ours(backend, asked), theirs(model, asked[:1])
    speeds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(ROUNDS):
        left, speed = timed(lambda: ours(backend, asked))
        speeds["ours"].append(speed)
        right, speed = timed(lambda: theirs(model, asked))
        speeds["theirs"].append(speed)
        both = {side: round(found[-1], 1) for side, found in speeds.items()}
        print(f"{dtype}: tokens per CPU second {both}", flush=True)
    ratio = statistics.median(speeds["ours"]) / statistics.median(speeds["theirs"])
    gaps = partings(model, asked, left, right)
    print(f"{dtype}: ratio of medians {ratio:.2f}; {len(gaps)} of {PROMPTS} part, gaps {gaps}")
    if dtype == "float32":
        assert all(one < NEAR_TIE for one in gaps)
    else:
        assert ratio >= WANTED

"""Checks on what an environment says without being played: tools, prompts, tasks, hints."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

import core
from core.environments.base import Task, make_splits
from core.environments.conformance_subject import Subject

COUNTS = {"train": 24, "eval": 12, "test": 12}
"""Tasks of the splits that are compared."""
TIMEOUT_S = 120.0
LEAK_RATE, LEAK_EXCESS = 0.5, 0.25
"""Share of prompts that hold their own answer, and how much it exceeds that of others' answers."""

_ANSWER = "from core.environments.conformance_subject import main; main()"


def tool_specs(subject: Subject) -> Iterator[str]:
    """Each tool has a name of its own, a description, and a valid JSON schema of an object."""
    specs = subject.make().tool_specs()
    names = [spec.get("name") for spec in specs]
    if not specs:
        yield "there is no tool; an episode would be a single answer"
    if len(set(names)) < len(names):
        yield f"two tools share a name: {names}"
    for spec in specs:
        yield from _spec_problems(spec)


def _spec_problems(spec: dict[str, Any]) -> Iterator[str]:
    label = f"tool {spec.get('name')!r}"
    for key in ("name", "description"):
        if not isinstance(spec.get(key), str) or not spec[key].strip():
            yield f"{label} has no {key}"
    schema = spec.get("parameters")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield f"{label}: 'parameters' must be a JSON schema of type object"
        return
    try:
        Draft202012Validator.check_schema(schema)
        json.dumps(schema, allow_nan=False)
    except (SchemaError, TypeError, ValueError) as error:
        yield f"{label}: 'parameters' is no valid JSON schema: {str(error).splitlines()[0]}"
        return
    yield from _argument_problems(label, schema)


def _argument_problems(label: str, schema: dict[str, Any]) -> Iterator[str]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    for name in required:
        if name not in properties:
            yield f"{label} requires {name!r}, which is none of its properties"
        elif not properties[name].get("examples"):
            yield f"{label}: required argument {name!r} has no examples, which prompts show"
    for name, each in properties.items():
        if not each.get("type") or not each.get("description"):
            yield f"{label}: argument {name!r} has no type or no description, which prompts show"


def prompts(subject: Subject) -> Iterator[str]:
    """System prompt, task prompts and answers are text that a model can be shown."""
    environment = subject.make()
    texts = {"system_prompt": environment.system_prompt()}
    texts["final_answer_example"] = environment.final_answer_example()
    for key, task in subject.tasks.items():
        texts[f"prompt of {key}"] = task.prompt
        texts[f"answer of {key}"] = task.answer
        texts[f"first observation of {key}"] = environment.reset(task).text
    for label, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            yield f"{label} is blank: {text!r}"


def determinism(subject: Subject) -> Iterator[str]:
    """A task is a function of index, seed, difficulty and split, and survives its file."""
    again = subject.make()
    for key, task in reversed(subject.tasks.items()):
        difficulty, split, place = key.split("/")
        repeated = subject.task(again, difficulty, split, int(place))  # pyright: ignore[reportArgumentType]
        if repeated != task:
            yield f"task {key} differs when it is generated again"
        if (task.difficulty, task.split) != (difficulty, split):
            yield f"task {key} says {task.difficulty}/{task.split}"
        if Task(**json.loads(json.dumps(asdict(task)))) != task:
            yield f"task {key} changes when written as JSON; use lists, not tuples, in metadata"
    ids = [task.task_id for key, task in subject.tasks.items() if key.startswith(_first(subject))]
    if len(set(ids)) < len(ids):
        yield f"two tasks share an id: {sorted(ids)[:4]} …"
    first, second = subject.prints(), subject.prints()
    for key in first:
        if first[key] != second[key]:
            yield f"the oracle's episode of {key} differs when it is played again"


def _first(subject: Subject) -> str:
    return f"{subject.difficulties[0]}/"


def other_process(subject: Subject) -> Iterator[str]:
    """Another process with another order of hashes makes the same tasks and episodes."""
    here, hash_seed = subject.prints(), "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    place = str(Path(core.__file__).parents[1])
    paths = [place, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    done = subprocess.run(
        [sys.executable, "-c", _ANSWER],
        input=subject.request(),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield f"another process cannot make it: {last}"
        return
    there = json.loads(done.stdout)
    for key in here:
        if here[key] != there.get(key):
            yield (
                f"{key} is another episode in a process with PYTHONHASHSEED={hash_seed}; "
                "draw from random.Random(text), and never from hash() or the order of a set"
            )


def splits(subject: Subject) -> Iterator[str]:
    """No split holds a prompt or a first observation of another, and there are enough of them."""
    for difficulty in subject.difficulties:
        environment = subject.make()
        made = make_splits(environment, COUNTS, subject.seed, difficulty)
        owner: dict[str, str] = {}
        for split, tasks in made.items():
            for text in {environment.reset(task).text for task in tasks}:
                other = owner.setdefault(text, split)
                if other != split:
                    yield f"{difficulty}: {other} and {split} share the prompt {text[:80]!r}"


def answer_hidden(subject: Subject) -> Iterator[str]:
    """Prompts do not hold their own answers more often than they hold those of other tasks."""
    tasks = list(subject.tasks.values())
    others = [*tasks[1:], *tasks[:1]]
    own = sum(_holds(task.prompt, task.answer) for task in tasks) / len(tasks)
    chance = sum(
        _holds(task.prompt, other.answer) for task, other in zip(tasks, others, strict=True)
    ) / len(tasks)
    if own >= LEAK_RATE and own - chance >= LEAK_EXCESS:
        yield f"{own:.0%} of the prompts hold their own answer, {chance:.0%} that of another task"


def _holds(prompt: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", prompt) is not None


def privileged_context(subject: Subject) -> Iterator[str]:
    """A hint is text of its own, the same each time, and no part of what a student reads."""
    environment = subject.make()
    for key, task in subject.tasks.items():
        hint = environment.privileged_context(task)
        if hint is None:
            continue
        if not isinstance(hint, str) or not hint.strip():
            yield f"the hint of {key} is blank: {hint!r}; return None where there is none"
        elif hint != subject.make().privileged_context(task):
            yield f"the hint of {key} differs when it is asked for again"
        elif hint in environment.system_prompt() + "\n" + environment.reset(task).text:
            yield f"the student reads the hint of {key} too"

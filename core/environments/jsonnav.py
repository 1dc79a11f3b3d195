"""Finding a value in a JSON document by paths, keys and a pointer."""

import json
from collections.abc import Mapping
from itertools import islice
from random import Random
from typing import Any

from core.environments.base import (
    Difficulty,
    FailureCategory,
    OracleAction,
    OracleFinal,
    Split,
    Task,
    ToolCall,
)
from core.environments.jsonnav_documents import (
    Document,
    build_document,
    key_paths,
    read_path,
    render_value,
)
from core.environments.registry import register
from core.environments.tool_world import Tool, ToolWorld
from core.errors import ToolEnvironmentError

MAX_FOUND = 10


@register
class JsonNavigation(ToolWorld):
    """Tasks: a value at a given path (easy), at a path to be found (medium), or behind a pointer.

    Args:
        params: See ``Environment``.
    """

    name = "jsonnav"
    state_prefix = "json"

    _document: Document

    def generate_task(self, index: int, *, seed: int, difficulty: Difficulty, split: Split) -> Task:
        """Return task ``index`` of ``seed`` and ``difficulty``; the split only names it."""
        document_seed = seed * 7919 + index
        document = build_document(document_seed)
        rng = Random(f"jsonnav-task:{seed}:{difficulty}:{index}")
        pointer = document["meta"]["pointer"]
        kind, path, question = _draw(rng, difficulty, document["config"], pointer)
        facts = {"kind": kind, "document_seed": document_seed, "path": path, "pointer": pointer}
        answer = render_value(read_path(document, path))
        prompt = f"Document {document_seed}: {question}"
        return Task(f"json-{split}-{index}", prompt, answer, difficulty, split, facts)

    def tool_specs(self) -> list[dict[str, Any]]:
        """Return the specs of ``get``, ``keys`` and ``find``."""
        return [
            _spec("get", "Reads the value at a path.", "path", "config.alpha.label", False),
            _spec("keys", "Lists the keys at a path.", "path", "config", False),
            _spec("find", "Lists up to ten paths that end in a key.", "key", "threshold", True),
        ]

    def begin(self, task: Task) -> None:
        """Build the task's document."""
        self._document = build_document(task.metadata["document_seed"])

    def tools(self) -> Mapping[str, Tool]:
        """Return the three tools."""
        return {"get": self._get, "keys": self._keys, "find": self._find}

    def _get(self, arguments: Mapping[str, Any]) -> str:
        return render_value(read_path(self._document, _path(arguments)))

    def _keys(self, arguments: Mapping[str, Any]) -> str:
        value = read_path(self._document, _path(arguments))
        if isinstance(value, list):
            return json.dumps([f"[{index}]" for index in range(len(value))])
        if isinstance(value, dict):
            return json.dumps(sorted(value))
        raise ToolEnvironmentError("that value has no keys", "Read it with get.")

    def _find(self, arguments: Mapping[str, Any]) -> str:
        key = arguments.get("key")
        if not isinstance(key, str) or not key:
            raise ToolEnvironmentError("'key' must be a name", "Write it in quotes.")
        return json.dumps(list(islice(key_paths(self._document, key), MAX_FOUND)))

    def judge(self, task: Task, answer: str) -> tuple[FailureCategory, str]:
        """Compare an answer with the expected text; double quotes around it do not count."""
        predicted = answer.strip().strip('"')
        right = predicted == task.answer
        return FailureCategory.SOLVED if right else FailureCategory.WRONG_ANSWER, predicted

    def oracle_actions(self, task: Task) -> list[OracleAction]:
        """Return what finds the path, if it is not given, then ``get`` and the answer."""
        before: dict[str, list[OracleAction]] = {
            "direct": [],
            "find": [ToolCall("find", {"key": "threshold"})],
            "pointer": [ToolCall("get", {"path": "meta.pointer"})],
        }
        read = ToolCall("get", {"path": task.metadata["path"]})
        return [*before[task.metadata["kind"]], read, OracleFinal(task.answer)]

    def privileged_context(self, task: Task) -> str:
        """Return the path and the reference answer."""
        return f"The value is at {task.metadata['path']}. The right answer is {task.answer}."

    def final_answer_example(self) -> str:
        """Return a label."""
        return "alpha-123"


def _draw(
    rng: Random, difficulty: Difficulty, sections: Document, pointer: str
) -> tuple[str, str, str]:
    if difficulty == "easy":
        path = f"config.{rng.choice(sorted(sections))}.label"
        return "direct", path, f"what is {path}?"
    if difficulty == "medium":
        return "find", f"config.{pointer}.threshold", "what is the only threshold?"
    wanted = "label" if rng.random() < 0.5 else "region"
    question = f"what is the {wanted} of the section that meta.pointer names?"
    return "pointer", f"config.{pointer}.{wanted}", question


def _path(arguments: Mapping[str, Any]) -> str:
    path = arguments.get("path", "")
    if not isinstance(path, str):
        raise ToolEnvironmentError("'path' must be a string", "Write it in quotes.")
    return path


def _spec(name: str, description: str, key: str, example: str, required: bool) -> dict[str, Any]:
    meaning = "a path such as records[0].id" if key == "path" else "the last key of the paths"
    properties = {key: {"type": "string", "description": meaning, "examples": [example]}}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [key] if required else [],
    }
    return {"name": name, "description": description, "parameters": parameters}

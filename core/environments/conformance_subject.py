"""The environment under test: fresh instances, a sample of its tasks, and its prints."""

import hashlib
import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from core.environments.base import (
    SPLIT_OFFSETS,
    Difficulty,
    Environment,
    Split,
    Task,
)
from core.environments.plugin_code import PluginCode
from core.environments.plugins import EnvironmentChoice
from core.environments.scripted import play_oracle
from core.errors import ConformanceError, InputError

SAMPLE: dict[Split, int] = {"train": 6, "eval": 3, "test": 3}
"""Tasks of each split and difficulty that are looked at."""


@dataclass(frozen=True)
class Subject:
    """What is checked."""

    choice: EnvironmentChoice
    seed: int

    def make(self) -> Environment:
        """Return a new instance."""
        return self.choice.make()

    @cached_property
    def difficulties(self) -> tuple[Difficulty, ...]:
        """Return those that the environment does not refuse.

        Raises:
            InputError: It refuses all of them.
            ConformanceError: It raises something that is no refusal.
        """
        refusals: dict[Difficulty, InputError] = {}
        for difficulty in get_args(Difficulty):
            try:
                self.task(self.make(), difficulty, "train", 0)
            except InputError as error:
                refusals[difficulty] = error
            except Exception as error:
                raise ConformanceError(
                    f"generate_task of {self.choice.name!r} raises {type(error).__name__}: {error}",
                    "Mend it; it may refuse a difficulty by InputError, and raises nothing else.",
                ) from error
        kept = tuple(each for each in get_args(Difficulty) if each not in refusals)
        if not kept:
            raise next(iter(refusals.values()))
        return kept

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """Return the sample by ``difficulty/split/place``."""
        environment = self.make()
        return {
            f"{difficulty}/{split}/{place}": self.task(environment, difficulty, split, place)
            for difficulty in self.difficulties
            for split, count in SAMPLE.items()
            for place in range(count)
        }

    @property
    def few(self) -> dict[str, Task]:
        """Return two tasks of each difficulty, for what takes long."""
        return {key: task for key, task in self.tasks.items() if "/train/" in key and key[-1] < "2"}

    def task(
        self, environment: Environment, difficulty: Difficulty, split: Split, place: int
    ) -> Task:
        """Return a task of a split by its place in it."""
        index = SPLIT_OFFSETS[split] + place
        return environment.generate_task(index, seed=self.seed, difficulty=difficulty, split=split)

    def prints(self) -> dict[str, str]:
        """Return a digest per task of all that an episode consists of when the oracle plays it."""
        return {key: self._print(task) for key, task in self.tasks.items()}

    def _print(self, task: Task) -> str:
        environment = self.make()
        document = {
            "task": asdict(task),
            "system": environment.system_prompt(),
            "privileged": environment.privileged_context(task),
            "metadata": environment.trajectory_metadata(task),
            "episode": play_oracle(environment, task).document(),
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def request(self) -> str:
        """Return what ``answer_request`` needs to make the same prints in another process."""
        choice = self.choice
        document = {
            "name": choice.name,
            "params": dict(choice.params),
            "plugin": None if choice.plugin is None else asdict(choice.plugin),
            "path": None if choice.path is None else str(choice.path),
            "seed": self.seed,
        }
        return json.dumps(document)


def answer_request(text: str) -> dict[str, str]:
    """Return the prints that a request asks for."""
    asked: dict[str, Any] = json.loads(text)
    plugin = None if asked["plugin"] is None else PluginCode(**asked["plugin"])
    path = None if asked["path"] is None else Path(asked["path"])
    choice = EnvironmentChoice(asked["name"], asked["params"], plugin, path)
    return Subject(choice, asked["seed"]).prints()


def main() -> None:
    """Answer the request on standard input, on standard output."""
    with redirect_stdout(sys.stderr):  # an environment may print
        prints = answer_request(sys.stdin.read())
    json.dump(prints, sys.stdout)

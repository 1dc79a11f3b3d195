"""Does an environment keep its contract: the checks of ``opd env check``, each with its reasons.

The checks themselves are in ``conformance_tasks`` and ``conformance_episodes``. They ask what a run
relies on: that an episode is a function of its task and its calls, whoever else is playing, in
whatever process; that the oracle solves what it is asked; that nothing a model writes raises.
"""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import core
from core.environments import conformance_episodes as episodes
from core.environments import conformance_tasks as tasks
from core.environments.conformance_subject import Subject
from core.environments.plugins import EnvironmentChoice

Check = Callable[[Subject], Iterator[str]]
"""Yields the reasons to fail; none is a pass."""

CHECKS: dict[str, Check] = {
    "tool_specs": tasks.tool_specs,
    "prompts": tasks.prompts,
    "determinism": tasks.determinism,
    "other_process": tasks.other_process,
    "splits": tasks.splits,
    "answer_hidden": tasks.answer_hidden,
    "privileged_context": tasks.privileged_context,
    "oracle": episodes.oracle,
    "verifier": episodes.verifier,
    "reset": episodes.reset,
    "isolation": episodes.isolation,
    "refusals": episodes.refusals,
    "state_ids": episodes.state_ids,
}
"""In the order in which they are made; what the first ones find explains the later."""

WARNINGS = ("answer_hidden",)
"""Checks that find what may be meant."""

MAX_REASONS = 3

_OWN = str(Path(core.__file__).parent)


@dataclass(frozen=True)
class Finding:
    """Outcome of one check."""

    check: str
    """Name of the check."""
    passed: bool
    """Nothing was found."""
    reasons: tuple[str, ...]
    """The first things that were."""
    warning: bool
    """What was found may be meant, and fails nothing."""


@dataclass(frozen=True)
class Conformance:
    """Outcome of all checks on one environment."""

    environment: str
    """Its name."""
    difficulties: tuple[str, ...]
    """Difficulties that it has tasks of."""
    findings: tuple[Finding, ...]
    """One per check."""

    @property
    def passed(self) -> bool:
        """Whether every check passed that is not a mere warning."""
        return all(finding.passed or finding.warning for finding in self.findings)

    def as_document(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        findings = [asdict(finding) for finding in self.findings]
        return {
            "environment": self.environment,
            "passed": self.passed,
            "difficulties": list(self.difficulties),
            "checks": [{**each, "reasons": list(each["reasons"])} for each in findings],
        }


def check_environment(choice: EnvironmentChoice, *, seed: int = 7) -> Conformance:
    """Make every check on an environment.

    Args:
        choice: Which environment.
        seed: Of the tasks.

    Raises:
        InputError: It cannot be made, or has no task of any difficulty.
    """
    subject = Subject(choice, seed)
    difficulties = subject.difficulties
    found = tuple(_finding(name, check, subject) for name, check in CHECKS.items())
    return Conformance(choice.name, difficulties, found)


def _finding(name: str, check: Check, subject: Subject) -> Finding:
    reasons: list[str] = []
    try:
        reasons += islice(check(subject), MAX_REASONS)
    except Exception as error:
        # Whatever an environment raises where nothing may be raised is the finding.
        reasons.append(_raised(error))
    return Finding(name, not reasons, tuple(reasons), name in WARNINGS)


def _raised(error: Exception) -> str:
    """Say what was raised, and on which line of the environment's own file."""
    frames = traceback.extract_tb(error.__traceback__)
    checks = [n for n, frame in enumerate(frames) if "conformance_" in frame.filename]
    below = frames[checks[-1] + 1 :] if checks else frames
    outside = [f for f in below if not f.filename.startswith(_OWN)] or list(below) or list(frames)
    place = f" at {Path(outside[-1].filename).name}:{outside[-1].lineno}" if outside else ""
    words = str(error).splitlines() or [""]
    return f"raised {type(error).__name__}: {words[0][:200]}{place}"

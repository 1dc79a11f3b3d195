"""A verdict that a person can read, and that a script can rely on."""

import pytest
from typer.testing import CliRunner

from core.errors import QualificationError
from flows.cli import app
from flows.commands import qualification
from flows.commands.qualification import verdict_lines

RATES = {
    "strict_success": {"successes": 7, "total": 10, "estimate": 0.7, "lower": 0.4, "upper": 0.9},
    "recovery_after_error": {
        "successes": 0, "total": 0, "estimate": None, "lower": None, "upper": None,
    },
}  # fmt: skip
VERDICT = {
    "evidence": {
        "environment": "calculator", "difficulty": "easy", "split": "eval", "tasks": 10,
        "params": {}, "rates": RATES,
    },
    "minima": {"strict_success": 0.8},
    "shortfalls": [],
    "artifact": "0" * 16,
}  # fmt: skip


def test_a_line_per_rate_with_counts_interval_and_minimum():
    assert [*verdict_lines({**VERDICT, "written": "a/manifest"})] == [
        "10 easy tasks of calculator, split eval",
        "strict_success             70.0%  (7 of 10, 95 % interval 40.0% to 90.0%, at least 0.80 "
        "wanted)",
        "recovery_after_error     nothing to count",
        "noted in a/manifest",
    ]


@pytest.mark.parametrize("lacking", [[], ["strict_success is 0.700"]])
def test_the_command_fails_where_something_is_lacking(monkeypatch, lacking):
    verdict = {**VERDICT, "shortfalls": lacking}
    monkeypatch.setattr(qualification, "judge", lambda *args, **kwargs: verdict)
    done = CliRunner().invoke(app, ["qualify-teacher", "recipe.yaml"])
    assert "7 of 10" in done.output
    assert (done.exit_code == 0) == (not lacking)
    if lacking:
        assert isinstance(done.exception, QualificationError)
        assert done.exception.exit_code == 2
        assert "strict_success is 0.700" in done.exception.message

"""The command prints lines, or one document."""

import json

from typer.testing import CliRunner

from flows.cli import app
from flows.commands import comparison

FOUND = {
    "comparison": {
        "tokenizers": {"same": True, "shared": 1.0, "replies_begin_alike": True},
        "episodes": 8, "tokens": None,
    },
    "student": {"solved": 2, "total": 16}, "teacher": {"solved": 12, "total": 16},
    "student_fails": {"solved": 10, "total": 14}, "continued": {"solved": 5, "total": 6},
    "cross_tokenizer": False,
    "verdict": {"answer": "go", "reasons": ["because"]}, "artifacts": {},
}  # fmt: skip


def test_the_command_prints_lines_or_one_document(monkeypatch):
    monkeypatch.setattr(comparison, "hold", lambda *args, **kwargs: FOUND)
    done = CliRunner().invoke(app, ["compare-teacher", "recipe.yaml"])
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == "verdict: go: because"
    done = CliRunner().invoke(app, ["compare-teacher", "recipe.yaml", "--json"])
    assert json.loads(done.output) == FOUND

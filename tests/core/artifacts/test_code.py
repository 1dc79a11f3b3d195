import ast
import hashlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.artifacts.code import ROOT, changed_functions, code_digest
from core.errors import StoreError

TASK = '''
"""A task."""
from core.losses import reduction
import core.rates as rates

VERSION = "1"


def update(x: int, *, scale: float = 1.0) -> float:
    """Docstring."""
    # A comment.
    from core.lazy import late

    return reduction.mean([x, late(x)]) * scale * rates.RATE
'''

SOURCES = {
    "core/__init__.py": "",
    "core/losses/__init__.py": "",
    "core/losses/reduction.py": '''
from core.helper import total


def mean(values):
    return total(values) / len(values)


class Meter:
    """Counts."""

    limit: int = 3
    """How far."""

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, new):
        self._value = new

    def reset(self):
        self._value = 0
''',
    "core/helper.py": "def total(values):\n    return sum(values)\n",
    "core/rates.py": "RATE = 2\n",
    "core/lazy.py": "def late(x):\n    return x\n",
    "core/unrelated.py": "def never():\n    return 1\n",
    "tasks/__init__.py": "",
    "tasks/update.py": TASK,
}


@pytest.fixture
def tree(tmp_path):
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def edit(tree):
    """Replace text in a source, and name what changed in the digest of the task."""
    before = code_digest("tasks.update", tree)

    def change(name, old, new):
        path = tree / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        after = code_digest("tasks.update", tree)
        names = changed_functions(before.functions, after.functions)
        assert (after.digest == before.digest) == (names == [])
        return names

    return change


def test_what_a_task_reaches_is_digested_and_nothing_else(tree):
    assert list(code_digest("tasks.update", tree).functions) == [
        "core",
        "core.helper",
        "core.helper.total",
        "core.lazy",
        "core.lazy.late",
        "core.losses",
        "core.losses.reduction",
        "core.losses.reduction.Meter",
        "core.losses.reduction.Meter.reset",
        "core.losses.reduction.Meter.value",
        "core.losses.reduction.mean",
        "core.rates",
        "tasks.update",
        "tasks.update.update",
    ]


def test_the_digest_is_the_hash_of_its_lines(tree):
    found = code_digest("tasks.update", tree)
    lines = "\n".join(f"{name} {digest}" for name, digest in sorted(found.functions.items()))
    assert found.digest == hashlib.sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tasks/update.py", "# A comment.", "# Another\n    # comment."),
        ("tasks/update.py", '"""Docstring."""', '"""Changed\n\n    at length."""'),
        ("tasks/update.py", '"""A task."""', ""),
        ("tasks/update.py", "x: int, *, scale: float = 1.0", "\n    x:int, *, scale:float=1.0,\n"),
        ("tasks/update.py", '"1"', "'1'"),
        ("core/losses/reduction.py", '    """How far."""\n', ""),
        ("core/losses/reduction.py", '"""Counts."""', '"""Counts things."""'),
        ("core/rates.py", "2", "0x2"),
        ("core/helper.py", "def total", "\n\n\ndef total"),
        ("core/unrelated.py", "return 1", "return 2"),
    ],
)
def test_comments_docstrings_and_formatting_change_nothing(name, old, new, edit):
    assert edit(name, old, new) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "changed"),
    [
        ("core/helper.py", "sum(values)", "sum(values) + 1", ["core.helper.total"]),
        ("core/lazy.py", "return x", "return -x", ["core.lazy.late"]),
        ("core/rates.py", "2", "3", ["core.rates"]),
        ("tasks/update.py", "scale: float = 1.0", "scale: float = 2.0", ["tasks.update.update"]),
        (
            "core/losses/reduction.py",
            "limit: int = 3",
            "limit: int = 4",
            ["core.losses.reduction.Meter"],
        ),
        (
            "core/losses/reduction.py",
            "return self._value",
            "return 2 * self._value",
            ["core.losses.reduction.Meter.value"],
        ),
        (
            "core/losses/reduction.py",
            "self._value = new",
            "self._value = -new",
            ["core.losses.reduction.Meter.value"],
        ),
        (
            "core/losses/reduction.py",
            "class Meter:",
            "class Meter(dict):",
            ["core.losses.reduction.Meter"],
        ),
        (
            "core/helper.py",
            "def total",
            "def extra():\n    return 0\n\n\ndef total",
            ["core.helper.extra"],
        ),
        (
            "core/losses/reduction.py",
            "    def reset(self):\n        self._value = 0\n",
            "",
            ["core.losses.reduction.Meter.reset"],
        ),
    ],
)
def test_an_edit_is_named(name, old, new, changed, edit):
    assert edit(name, old, new) == changed


def test_the_order_of_definitions_does_not_count(tree):
    path = tree / "core" / "two.py"
    (tree / "tasks" / "update.py").write_text("import core.two\n")
    one, two = "def a():\n    return 1\n", "def b():\n    return 2\n"
    path.write_text(one + two)
    before = code_digest("tasks.update", tree)
    path.write_text(two + one + "\n")
    assert code_digest("tasks.update", tree) == before


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("from core import helper", True),
        ("import core.helper", True),
        ("from core.helper import total", True),
        ("from core.helper import *", True),
        ("def f():\n    import core.helper", True),
        ("try:\n    import core.helper\nexcept ImportError:\n    pass", True),
        ("NAMES = {'helper': 'core.helper:total'}", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import core.helper", False),
        ("import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    import core.helper", True),
        ("import helper", False),
        ("import core.unknown", False),
        ("TEXT = 'core.unknown and core.helper'", False),
    ],
)
def test_which_imports_are_followed(text, reached, tree):
    (tree / "tasks" / "update.py").write_text(text)
    assert ("core.helper.total" in code_digest("tasks.update", tree).functions) == reached


def test_a_relative_import_and_a_cycle_are_followed(tree):
    (tree / "core" / "losses" / "__init__.py").write_text("from .reduction import mean\n")
    (tree / "core" / "helper.py").write_text("from .losses import mean\n")
    (tree / "tasks" / "update.py").write_text("import core.helper\n")
    assert "core.losses.reduction.mean" in code_digest("tasks.update", tree).functions
    (tree / "core" / "losses" / "reduction.py").write_text("from ..lazy import late\n")
    assert "core.lazy.late" in code_digest("tasks.update", tree).functions


def test_names_of_two_digests_are_compared_sorted():
    assert changed_functions({"b": "1", "a": "1", "c": "1"}, {"b": "2", "c": "1", "d": "1"}) == [
        "a",
        "b",
        "d",
    ]
    assert changed_functions({}, {}) == []


def test_sources_are_read_without_importing_them():
    command = (
        "import sys; from core.artifacts.code import code_digest; "
        "found = code_digest('core.models.backend'); "
        "assert 'core.models.backend.Backend' in found.functions, found; "
        "print('torch' in sys.modules, 'core.models' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_reading_all_of_core_takes_less_than_half_a_second_per_hundred_modules(tree):
    modules = sorted((ROOT / "core").rglob("*.py"))
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in modules]
    text = "\n".join(f"import {name}" for name in names)
    # A copy, since this process may have read the originals before.
    for path in modules:
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    (tree / "tasks" / "update.py").write_text(text)
    begun = time.process_time()
    found = code_digest("tasks.update", tree)
    assert time.process_time() - begun < max(1.0, 0.01 * len(modules))
    assert len(found.functions) > 50
    begun = time.process_time()
    assert code_digest("tasks.update", tree) == found
    assert time.process_time() - begun < 0.1


def test_a_module_that_does_not_exist_is_refused(tree):
    with pytest.raises(StoreError, match=r"tasks\.missing: no such module"):
        code_digest("tasks.missing", tree)


def test_a_source_that_does_not_parse_is_named_with_its_line(tree):
    (tree / "core" / "helper.py").write_text("x = 1\ndef broken(:\n")
    with pytest.raises(StoreError, match=r"helper\.py:2: not valid Python"):
        code_digest("tasks.update", tree)


def test_the_sources_of_this_package_are_what_is_digested():
    found = code_digest("core.artifacts.code")
    text = Path(sys.modules[code_digest.__module__].__file__).read_text()
    defined = [n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    assert {f"core.artifacts.code.{name}" for name in defined} <= set(found.functions)


def test_code_of_a_plug_in_counts_with_what_it_imports(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("from core.errors import OpdError\n\n\ndef rule():\n    return 1\n")
    plugins = {"plugin.selector": own}
    before = code_digest("tasks.prepare_splits", plugins=plugins)
    assert "plugin.selector.rule" in before.functions
    assert "core.errors.OpdError" in before.functions
    own.write_text("from core.errors import OpdError\n\n\ndef rule():\n    return 2  # changed\n")
    after = code_digest("tasks.prepare_splits", plugins=plugins)
    changed = changed_functions(before.functions, after.functions)
    assert changed == ["plugin.selector.rule"]
    assert after.digest != before.digest != code_digest("tasks.prepare_splits").digest

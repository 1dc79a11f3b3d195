"""The tiny run of the tests of run directories, here too."""

import importlib.util
from pathlib import Path

import pytest

_PLACE = Path(__file__).parents[1] / "runs" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("runs_conftest", _PLACE)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

tiny, copy = _MODULE.tiny, _MODULE.copy


@pytest.fixture(scope="session")
def computed():
    """Return f(root, words): the tiny recipe with some changes, run in a directory of its own."""
    return _MODULE.computed

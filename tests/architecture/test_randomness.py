"""Every source of randomness has an owner, a derivation and a test, and the page says so."""

import importlib.util
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location(
    "randomness", Path(__file__).parent / "randomness_table.py"
)
TABLE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(TABLE)
TESTS = "".join(path.read_text() for path in (REPO / "tests").rglob("test_*.py"))


def test_every_stream_that_begins_in_the_code_is_in_the_table():
    begun = {(one.file, one.function) for one in TABLE.sources()}
    assert begun == set(TABLE.ROWS)


def test_the_page_has_the_table_of_the_code():
    assert TABLE.in_docs() == TABLE.table(), "run `python tests/architecture/randomness_table.py`"


@pytest.mark.parametrize("place", TABLE.ROWS, ids="-".join)
def test_every_stream_has_a_test(place):
    assert f"def {TABLE.ROWS[place][2]}(" in TESTS

import shutil

import pytest

from core.errors import StoreError
from core.runs.registry import AREA, known_runs, register_run


def test_a_store_knows_the_runs_that_were_computed_in_it(tiny):
    assert tiny.directory.absolute() in known_runs(tiny.runtime.store)


def test_a_run_that_was_removed_is_forgotten(tmp_path, tiny):
    store, run = tmp_path / "store", tmp_path / "runs" / "toy"
    run.parent.mkdir()
    shutil.copytree(tiny.directory, run)
    register_run(store, run)
    register_run(store, run)
    assert known_runs(store) == [run]
    shutil.rmtree(run)
    assert known_runs(store) == []


def test_a_damaged_entry_is_refused_since_its_run_could_lose_what_it_needs(tmp_path):
    register_run(tmp_path, tmp_path / "runs" / "toy")
    (entry,) = (tmp_path / AREA).iterdir()
    entry.write_text("{}\n")
    with pytest.raises(StoreError, match="names no run directory"):
        known_runs(tmp_path)

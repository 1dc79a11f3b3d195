import shutil

import pytest

from core.errors import StoreError
from core.runs.registry import AREA, STATUS, known_benchmarks, known_runs, register_run


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


def test_a_benchmark_is_known_by_its_status_and_is_no_run(tmp_path):
    place = tmp_path / "runs" / "benchmark-toy"
    place.mkdir(parents=True)
    register_run(tmp_path / "store", place)
    assert known_benchmarks(tmp_path / "store") == []
    (place / STATUS).write_text("[]")
    ((found, began_s),) = known_benchmarks(tmp_path / "store")
    assert (found, known_runs(tmp_path / "store")) == (place, [])
    assert began_s <= place.stat().st_mtime


def test_a_damaged_entry_is_refused_since_its_run_could_lose_what_it_needs(tmp_path):
    register_run(tmp_path, tmp_path / "runs" / "toy")
    (entry,) = (tmp_path / AREA).iterdir()
    entry.write_text("{}\n")
    with pytest.raises(StoreError, match="names no run directory"):
        known_runs(tmp_path)

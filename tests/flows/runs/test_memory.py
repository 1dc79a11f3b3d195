"""``opd plan RECIPE --memory`` says what a run would take, and runs nothing."""

import json

import pytest

from core.models import hf, toy
from core.models.batching import AUTO_PADDED_TOKENS
from flows.cli import app
from flows.runs import memory
from flows.runs.memory import memory_document, memory_lines, plan_memory


def test_every_phase_has_its_peaks(recipe_file, overrides, tmp_path):
    found = memory_document(plan_memory(recipe_file, overrides))
    assert [phase["phase"] for phase in found["phases"]] == ["load", "rollout", "score", "update"]
    for phase in found["phases"]:
        assert 0 < phase["swapped_bytes"] <= phase["resident_bytes"]
    assert found["swapped_peak_bytes"] < found["resident_peak_bytes"]
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("change", ["loss.chunk_size=8", "train.trajectory_batch_size=1"])
def test_a_smaller_physical_size_is_a_smaller_plan(recipe_file, overrides, change):
    whole = memory_document(plan_memory(recipe_file, overrides))["resident_peak_bytes"]
    less = memory_document(plan_memory(recipe_file, [*overrides, change]))["resident_peak_bytes"]
    assert less < whole


def test_the_constants_are_those_of_the_engine():
    assert memory.ENGINE_ROWS == {"toy": toy.PHYSICAL_ROWS, "hf": hf.PHYSICAL_ROWS}
    assert memory.AUTO_PADDED_TOKENS == AUTO_PADDED_TOKENS


def test_the_plan_is_a_line_per_phase_and_both_peaks(recipe_file, overrides):
    lines = memory_lines(plan_memory(recipe_file, overrides))
    assert lines[0].startswith("phase")
    assert "with memory.strategy resident" in lines[-1]
    assert len(lines) == 6


def test_the_command_prints_one_document(recipe_file, overrides, capsys):
    app(["plan", str(recipe_file), *overrides, "--memory", "--json"], standalone_mode=False)
    assert set(json.loads(capsys.readouterr().out)) == {
        "phases",
        "resident_peak_bytes",
        "swapped_peak_bytes",
    }

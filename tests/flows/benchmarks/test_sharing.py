from pathlib import Path

import pytest
import yaml

from core.recipe.benchmark_loading import load_benchmark
from flows.benchmarks.sharing import sharing_cells

SMOKE = Path("recipes/benchmarks/smoke.yaml")


@pytest.fixture
def place(tmp_path):
    return [f"runtime.store={tmp_path}/store"]


def test_what_no_arm_needs_is_no_part_of_what_they_share(place, tmp_path):
    """Every arm has a teacher of its own: pretraining the common one would be for nobody."""
    document = yaml.safe_load(SMOKE.read_text())
    document |= {"base": str(Path("recipes/toy.yaml").absolute()), "seeds": [1], "arms": []}
    document |= {"sweep": {"models.teacher.toy_pretrain_steps": [3, 4]}, "baseline": None}
    path = tmp_path / "teachers.yaml"
    path.write_text(yaml.safe_dump(document))
    own = load_benchmark(path, place)
    assert sharing_cells(own.common[1], own.cells, lambda runtime: runtime) == []
    document["arms"] = [{"name": "common"}]
    path.write_text(yaml.safe_dump(document))
    grid = load_benchmark(path, place)
    [cell] = sharing_cells(grid.common[1], grid.cells, lambda runtime: runtime)
    assert cell.arm == "common"
    every = load_benchmark(SMOKE, [*place, "seeds=[1]"])
    assert sharing_cells(every.common[1], every.cells, lambda runtime: runtime) == [*every.cells]

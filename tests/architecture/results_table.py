"""The results in the README, made from finished benchmarks.

    opd benchmark recipes/benchmarks/toy_scarce.yaml
    opd benchmark recipes/benchmarks/toy_plenty.yaml
    python tests/architecture/results_table.py

Anyone who runs these gets the block that stands there, byte for byte where arithmetic is the same.
"""

import re
from pathlib import Path

from core.report.benchmark_data import BenchmarkReport, benchmark_report
from core.report.benchmark_tables import percent, points
from core.report.data import Json

REPO = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- results -->\n.*?<!-- /results -->", re.DOTALL)
SHOWN = {"toy-scarce": "96 demonstrations", "toy-plenty": "1024 demonstrations"}
"""Benchmark -> what its columns are called."""


def results_table(found: dict[str, BenchmarkReport]) -> str:
    """Return the table: arms by benchmarks, success beside the difference to the baseline.

    Args:
        found: Finished benchmarks of the same arms, by name.
    """
    first = next(iter(found.values()))
    baseline = first.document["baseline"]
    heads = [head for name in found for head in (SHOWN[name], f"minus {baseline}")]
    rows = [[arm, *(c for one in found.values() for c in _cells(one, arm))] for arm in first.arms]
    lines = [["arm", *heads], ["---"] * (1 + len(heads)), *rows]
    digests = ", ".join(f"{name} `{one.document['digest'][:16]}`" for name, one in found.items())
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\nDigests of what was asked: {digests}."


def _cells(found: BenchmarkReport, arm: str) -> tuple[str, str]:
    rate = next(one for one in found.comparison["rates"] if one["arm"] == arm)
    return percent(rate["success"]["mean_of_seeds"]), _difference(found.comparison, arm)


def _difference(comparison: Json, arm: str) -> str:
    for one in comparison["comparisons"]:
        if one["arm"] == arm and one["measure"] == "success":
            span = f"[{points(one['lower'])}, {points(one['upper'])}]"
            return f"{points(one['effect'])} {span}, {one['verdict']}"
    return "baseline"


def block(runs: Path) -> str:
    """Return the block of the README for the benchmarks in a directory of runs.

    Raises:
        StoreError: One of them was not run.
    """
    found = {name: benchmark_report(runs / f"benchmark-{name}") for name in SHOWN}
    return f"<!-- results -->\n{results_table(found)}\n<!-- /results -->"


if __name__ == "__main__":
    readme, made = REPO / "README.md", block(Path("runs"))
    readme.write_text(BLOCK.sub(lambda _: made, readme.read_text()))

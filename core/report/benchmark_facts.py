"""Tables of a benchmark that say what is equal between arms, and where every number is from."""

from collections.abc import Iterator, Sequence
from typing import Any

from core.report.benchmark_data import BenchmarkReport
from core.report.benchmark_tables import COSTS, Link, Table, effect, percent
from core.report.data import Json


def arm_table(report: BenchmarkReport) -> Table:
    """Return what every arm is, and every key in which it differs from the common recipe."""
    rows = [
        [
            one["name"],
            one["method"].replace("_", " "),
            one["states"],
            one["objective"],
            "; ".join(f"{key}: {there} → {here}" for key, there, here in one["differs"]) or "none",
            one["description"],
        ]
        for one in report.document["arms"]
    ]
    columns = ["arm", "method", "states", "objective", "differs from the common recipe in", "why"]
    return Table("Arms", columns, rows, "Arms of a seed begin from the weights of one cold start.")


def equal_table(report: BenchmarkReport) -> Table:
    """Return which counts are equal in all arms that train, on every seed."""
    trained = [one for one in report.document["results"] if one["optimizer_steps"]]
    rows = []
    for name, words in COSTS.items():
        by_arm: dict[str, list[int]] = {}
        for one in trained:
            by_arm.setdefault(one["arm"], []).append(one[name])
        values = [value for each in by_arm.values() for value in each]
        if values:
            equal = len(set(values)) == 1
            span = f"{min(values):,}" if equal else f"{min(values):,} to {max(values):,}"
            rows.append([words, "equal" if equal else "not equal", span])
    axis = report.document["budget"]["axis"].replace("_", " ")
    groups = [", ".join(names) for names in report.document["identical"]]
    same = f" Equal byte for byte in all artifacts: {'; '.join(groups)}." if groups else ""
    note = f"Arms that train, on every seed. Made equal by this benchmark: {axis}{_short(report)}."
    note += same
    return Table("What is equal between arms", ["what", "", "value"], rows, note)


def _short(report: BenchmarkReport) -> str:
    """Name the arms that ended early, or with some of the budget left: they are not equal."""
    trained = [one for one in report.document["results"] if one["optimizer_steps"]]
    if report.document["budget"]["axis"] == "optimizer_steps":
        most = max((one["optimizer_steps"] for one in trained), default=0)
        short = [one for one in trained if one["optimizer_steps"] < most]
    else:
        short = [one for one in trained if not (one.get("budget") or {}).get("stopped")]
    names = ", ".join(f"{one['arm']} on seed {one['seed']}" for one in short)
    return f", but for {names}, which ended before" if short else ""


def budget_table(report: BenchmarkReport) -> Table:
    """Return what was spent of each budget, and by how much it was passed."""
    rows = [
        [
            one["arm"],
            one["seed"],
            budget["axis"].replace("_", " "),
            f"{budget['target']:,.10g}",
            f"{budget['actual']:,.10g}",
            f"{budget['overshoot']:,.4g}",
            "budget" if budget["stopped"] else "cycles ended first",
        ]
        for one in report.document["results"]
        if (budget := one.get("budget"))
    ]
    columns = ["arm", "seed", "axis", "target", "spent", "over", "ended by"]
    note = "A budget in tokens cuts the last step; one in seconds is looked at between steps."
    return Table("Budget", columns, rows, note)


def published_tables(report: BenchmarkReport) -> Iterator[Table]:
    """Yield the numbers of others beside ours, where a benchmark names some."""
    theirs = report.document.get("published")
    if not theirs:
        return
    note = f"Published by {theirs['source']}. {theirs['setting']}".strip()
    rates = {one["arm"]: one for one in report.comparison["rates"]}
    rows = [_rate_row(one, rates.get(one["arm"])) for one in theirs["arms"]]
    columns = ["arm", "success, ours", "success, published", "recovery, ours (mean of seeds)"]
    more = ["recovery, published", "seconds, published"]
    if rows:
        yield Table("Beside published numbers", [*columns, *more], rows, note)
    ours = {
        (one["arm"], one["against"], one.get("measure")): one
        for one in report.comparison["comparisons"]
    }
    pairs = [
        [
            one["arm"],
            one["against"],
            one["measure"],
            effect(ours.get((one["arm"], one["against"], one["measure"]))),
            effect(one),
        ]
        for one in theirs["comparisons"]
    ]
    if pairs:
        columns = ["arm", "against", "measure", "ours", "published"]
        yield Table("Beside published differences", columns, pairs, note)


def source_table(report: BenchmarkReport) -> Table:
    """Return address and digest of the artifacts behind every arm and seed."""
    rows = [row for one in report.cells for row in _source_rows(one)]
    columns = ["arm", "seed", "state", "what", "artifact", "content digest"]
    note = "Addresses are directories of the store; a seed links to its run directory."
    return Table("Where the numbers come from", columns, rows, note)


def _source_rows(cell: Json) -> Iterator[Sequence[Any]]:
    run = Link(str(cell["seed"]), f"../{cell['run']}/") if cell.get("run") else cell["seed"]
    first = [cell["arm"], run, cell["state"]]
    result = cell.get("result")
    if result is None:
        yield [*first, cell.get("reason") or "", "", ""]
        return
    address = f"{result['kind']}/{result['name']}-{result['key']}"
    found = [{"role": "results", "address": address, "digest": result["digest"]}]
    for one in (*found, *cell.get("sources", [])):
        yield [*first, one["role"], one["address"], one["digest"][:16]]
        first = ["", "", ""]


def _rate_row(theirs: Json, own: Json | None) -> list[Any]:
    recovery = own["recovery"] if own else None
    return [
        theirs["arm"],
        percent(own["success"]["estimate"]) if own else "–",
        percent(theirs["success"]),
        percent(recovery["mean_of_seeds"]) if recovery else "–",
        percent(theirs["recovery"]),
        "–" if theirs["seconds"] is None else f"{theirs['seconds']:,.1f}",
    ]

"""``opd verify``, ``diff``, ``gc`` and ``doctor``: what can be believed, and what may go."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.errors import InputError, OpdError, StoreError
from flows.commands.document import print_json

if TYPE_CHECKING:
    from core.artifacts.retention import KeptRun, Retention
    from core.artifacts.verification import Finding
    from core.runs.comparison import FieldDifference, RunDifference
    from core.runs.manifest import Manifest

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
StoreRoot = Annotated[
    Path | None, typer.Option("--store", help="Root of the store; that of recipes where none is.")
]
MIB, DAY_S = 1 << 20, 86_400.0
MOST_SHOWN = 12


def verify(
    place: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN|STORE]", help="A run directory or a store; .opd/store."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hash every file again, derive masks again, follow every link; exit with 3 where one fails."""
    place = place if place is not None else _default_store()
    found = _verify_run(place) if (place / "manifest.json").exists() else _verify_store(place)
    findings: list[Finding] = found.pop("findings")
    if as_json:
        print_json({**found, "findings": [vars(finding) for finding in findings]})
    else:
        for finding in findings:
            typer.echo(f"{finding}\n  fix: {finding.remedy}")
        counts = ", ".join(f"{value} {name}" for name, value in found.items() if name != "place")
        typer.echo(
            f"{place}: {counts}; {f'{len(findings)} findings' if findings else 'all is sound'}"
        )
    if findings:
        raise typer.Exit(OpdError.exit_code)


def diff(
    here: Annotated[Path, typer.Argument(metavar="RUN")],
    there: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
) -> None:
    """Say where two runs part: recipe, machine, the first step that differs, and what in it."""
    from core.runs.comparison import compare_runs
    from core.runs.reading import open_run

    found = compare_runs(open_run(here), open_run(there))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        typer.echo("\n".join(difference_lines(found)))


def gc(
    store: StoreRoot = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", help="More runs to keep; the store knows its own."),
    ] = None,
    min_age_days: Annotated[
        float, typer.Option(help="Younger artifacts stay, whatever needs them.", min=0.0)
    ] = 1.0,
    apply: Annotated[bool, typer.Option("--apply", help="Remove what is listed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what no kept run needs, and states that can be made again; remove it with --apply."""
    from core.artifacts.retention import apply_retention, plan_retention

    root = store or _default_store()
    if not root.is_dir():
        raise StoreError(f"{root}: there is no store", "Give the root of a store with --store.")
    kept = kept_runs(runs or [], root)
    plan = plan_retention(root, kept, min_age_s=min_age_days * DAY_S)
    freed = apply_retention(root, plan) if apply else 0
    if as_json:
        print_json(_retention_document(plan, kept, freed if apply else None))
    else:
        typer.echo("\n".join(retention_lines(plan, kept, freed if apply else None)))


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can run and what is unwell, each with its remedy."""
    from flows.commands.doctor import diagnose, diagnosis_lines

    found = diagnose()
    if as_json:
        print_json(found.as_document())
    else:
        typer.echo("\n".join(diagnosis_lines(found)))
    if not found.is_well:
        raise typer.Exit(OpdError.exit_code)


def kept_runs(places: list[Path], store: Path) -> list["KeptRun"]:
    """Return the runs and benchmarks that a store knows of, and those below further directories.

    Raises:
        InputError: A directory does not exist, a run is being computed, or its manifest cannot be
            read: what it needs is then unknown.
    """
    from core.artifacts.retention import KeptRun
    from core.runs.manifest import load_manifest
    from core.runs.reading import status_of
    from core.runs.registry import known_runs
    from flows.benchmarks.kept import kept_benchmarks

    directories = {path.absolute() for path in known_runs(store)}
    for place in places:
        if not place.is_dir():
            raise InputError(
                f"{place}: there is no such directory of runs",
                "Name directories of runs to keep with --runs.",
            )
        below = [*place.glob("*/manifest.json"), *place.glob("manifest.json")]
        if not below and not list(place.glob("benchmark-*/status.json")):
            raise InputError(f"{place}: no run lies there", "Name a directory of runs with --runs.")
        directories |= {path.parent.absolute() for path in below}
    found = []
    for directory in sorted(directories):
        manifest = load_manifest(directory)
        if status_of(directory, manifest) in ("ready", "running"):
            raise InputError(
                f"{directory} is being computed: what it needs is not known yet",
                "Wait for it, or stop it; then run `opd gc` again.",
            )
        entries = [entry.ref for entry in manifest.artifacts.values()]
        refs = [*entries, *manifest.inputs.values()]
        refs += [manifest.report] if manifest.report is not None else []
        found.append(
            KeptRun(str(directory), tuple(refs), manifest.student, _unfinished_since_s(manifest))
        )
    return [*found, *kept_benchmarks(places, store)]


def _unfinished_since_s(manifest: "Manifest") -> float | None:
    if manifest.status == "completed":
        return None
    return datetime.fromisoformat(manifest.created_at).timestamp()


def difference_lines(found: "RunDifference") -> list[str]:
    """Return the lines of ``opd diff``."""
    lines = []
    for title, fields in (("recipe", found.recipe), ("machine", found.environment)):
        lines += _field_lines(title, fields)
    if found.is_equal:
        return [*lines, f"all {found.equal_steps} artifacts are equal, byte for byte"]
    for step in found.steps[:1]:
        asked = "both asked for the same" if step.same_request else "another request"
        lines.append(f"first step that differs: {step.task or 'input'} {step.role} ({asked})")
        lines += [f"  {detail}" for detail in step.details]
    rest = [step.role for step in found.steps[1:]]
    lines += [f"then {len(rest)} more: {', '.join(rest[:MOST_SHOWN])}"] if rest else []
    for whose, roles in (("first", found.only_here), ("second", found.only_there)):
        lines += [f"only the {whose} run has {', '.join(roles[:MOST_SHOWN])}"] if roles else []
    lines += _field_lines("held-out success", found.success)
    lines += [
        f"weights of {one.checkpoint}: cosine {one.cosine:.9f}, relative L2 {one.relative_l2:.3g}, "
        f"{one.unequal} of {one.weights} differ, by at most {one.largest:.3g}"
        for one in found.weights
        if one.unequal
    ]
    return [*lines, f"{found.equal_steps} artifacts are equal, byte for byte"]


def retention_lines(plan: "Retention", kept: list["KeptRun"], freed: int | None) -> list[str]:
    """Return the lines of ``opd gc``."""
    lines = [f"{one.action:<6} {_mib(one.size):>10}  {one.where}" for one in plan.removals]
    lines.append(f"kept: {plan.kept} artifacts that {len(kept)} runs need")
    if plan.young:
        lines.append(f"too new to go: {plan.young} artifacts that no run needs")
    if freed is not None:
        return [*lines, f"freed {_mib(freed)}"]
    return [*lines, f"{_mib(plan.freed())} could be freed; nothing was removed: add --apply"]


def _retention_document(
    plan: "Retention", kept: list["KeptRun"], freed: int | None
) -> dict[str, Any]:
    return {
        "runs": [run.name for run in kept],
        "kept": plan.kept,
        "young": plan.young,
        "removals": [
            {"where": one.where, "action": one.action, "bytes": one.size} for one in plan.removals
        ],
        "freed_bytes": freed,
        "could_free_bytes": plan.freed(),
    }


def _verify_run(place: Path) -> dict[str, Any]:
    from core.runs.verification import verify_run

    manifest, findings = verify_run(place)
    return {"place": str(place), "files": len(manifest.files), "findings": findings}


def _verify_store(place: Path) -> dict[str, Any]:
    from core.artifacts.verification import verify_store

    audit = verify_store(place)
    return {
        "place": str(place),
        "artifacts": audit.artifacts,
        "pruned": audit.pruned,
        "files": audit.files,
        "bytes": audit.size,
        "findings": audit.findings,
    }


def _default_store() -> Path:
    from core.recipe.runtime import Runtime

    return Runtime().store


def _field_lines(title: str, fields: "tuple[FieldDifference, ...]") -> list[str]:
    shown = [f"{title}: {one.field}: {one.here!r} → {one.there!r}" for one in fields[:MOST_SHOWN]]
    more = len(fields) - MOST_SHOWN
    return [*shown, *([f"{title}: … and {more} more"] if more > 0 else [])]


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"

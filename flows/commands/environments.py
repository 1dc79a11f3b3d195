"""``opd env``: make an environment of one's own, check it, and read its episodes; without torch."""

import json
import re
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from core.errors import ConformanceError, InputError, OpdError, PluginError
from flows.commands.document import print_json

app = typer.Typer(
    help="Environments: list them, read their episodes, make and check your own.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Which = Annotated[
    str, typer.Argument(metavar="NAME|FILE.py[:NAME]", help="A known name, or a file of yours.")
]
Params = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Parameters, e.g. prompt_style=compact"),
]
Seed = Annotated[int, typer.Option(help="Seed of the tasks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

DIFFICULTIES = ("easy", "medium", "hard")


@app.command("list")
def list_environments(as_json: AsJson = False) -> None:
    """List the environments that a recipe can name; installed plug-ins are not imported."""
    rows = [*_known()]
    if as_json:
        print_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}}  {row['about']}")


def _known() -> Iterator[dict[str, str]]:
    from core.environments.plugin_code import installed_names
    from core.environments.registry import BUILT_IN, make_environment

    for name in BUILT_IN:
        about = (type(make_environment(name)).__doc__ or "").splitlines()[0]
        yield {"name": name, "source": "built in", "about": about}
    for name, distribution in sorted(installed_names("environment").items()):
        about = f"plug-in of distribution {distribution}"
        yield {"name": name, "source": distribution, "about": about}


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Of the environment, e.g. my_world.")],
    out: Annotated[Path | None, typer.Option("--out", help="File; NAME.py if not given.")] = None,
) -> None:
    """Write a small working environment to start from."""
    from core.environments import starter
    from core.environments.registry import BUILT_IN

    camel = "".join(part.capitalize() for part in name.split("_"))
    # The file's class must not hide what the file imports.
    taken = name in BUILT_IN or iskeyword(camel) or (name != "starter" and hasattr(starter, camel))
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or taken:
        raise InputError(
            f"{name!r} cannot be the name of a new environment",
            "Use lower-case letters, digits and _, and no built-in environment's name, nor that of "
            "a class that a world needs, such as task.",
        )
    path = out or Path(f"{name}.py")
    source = Path(starter.__file__).read_text(encoding="utf-8")
    source = source.replace("Starter", camel).replace("starter", name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(source)
    except FileExistsError as error:
        raise InputError(f"{path} exists", "Name another file with --out.") from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", "Name another file with --out."
        ) from error
    print(f"{path} is a working environment; next: opd env check {path}")


@app.command()
def check(which: Which, params: Params = None, seed: Seed = 7, as_json: AsJson = False) -> None:
    """Check that an environment keeps its contract; exits with 2 where it does not."""
    from core.environments.conformance import check_environment
    from core.environments.plugins import choose_environment

    choice = choose_environment(which, _parameters(params))
    done = check_environment(choice, seed=seed)
    if as_json:
        print_json({**done.as_document(), "recipe": _section(choice)})
    else:
        for finding in done.findings:
            mark = "ok" if finding.passed else "warning" if finding.warning else "FAILED"
            print(f"{mark:<8} {finding.check}")
            for reason in finding.reasons:
                print(f"           {reason}")
    if not done.passed:
        failed = [f.check for f in done.findings if not f.passed and not f.warning]
        raise ConformanceError(
            f"environment {done.environment!r} breaks its contract: {', '.join(failed)}",
            "Mend what is listed above from the top, and check again; see docs/environments.md.",
        )
    if not as_json:
        print(f"\nIn a recipe:\n{json.dumps({'environment': _section(choice)}, default=str)}")


def _section(choice: Any) -> dict[str, Any]:
    """Return the recipe's section ``environment`` for a choice."""
    section: dict[str, Any] = {"name": choice.name}
    if choice.params:
        section["params"] = dict(choice.params)
    if choice.plugin is not None:
        code = {key: value for key, value in vars(choice.plugin).items() if value is not None}
        section["plugin"] = ({"path": str(choice.path)} if choice.path else {}) | code
    return section


@app.command()
def sample(
    which: Which,
    params: Params = None,
    difficulty: Annotated[str, typer.Option(help="easy, medium or hard")] = "easy",
    split: Annotated[str, typer.Option(help="train, eval or test")] = "train",
    seed: Seed = 7,
    count: Annotated[int, typer.Option(min=1, help="Episodes.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show how the oracle solves tasks: each span with its type, then the verdict."""
    from core.environments.plugins import choose_environment

    choice = choose_environment(which, _parameters(params))
    environment = choice.make()
    try:
        shown = [*_episodes(environment, difficulty, split, seed, count)]
    except OpdError:
        raise
    except Exception as error:
        if choice.plugin is None:
            raise
        raise PluginError(
            f"environment {choice.name!r} raises {type(error).__name__}: {error}",
            f"`opd env check {which}` says where.",
        ) from error
    if as_json:
        print_json(shown)
        return
    for number, episode in enumerate(shown):
        print("" if number == 0 else "\n" + "-" * 40)
        for span in episode["spans"]:
            if span["type"] != "system" or number == 0:
                print(f"[{span['type']}]\n{span['text']}\n")
        print(f"({episode['task_id']}, {episode['verdict']}; answer {episode['answer']!r})")


def _episodes(
    environment: Any, difficulty: str, split: str, seed: int, count: int
) -> Iterator[dict[str, Any]]:
    from core.environments.base import make_splits
    from core.environments.scripted import paragraphs, play_oracle

    if difficulty not in DIFFICULTIES:
        raise InputError(
            f"--difficulty is {difficulty!r}", f"Choose one of {', '.join(DIFFICULTIES)}."
        )
    wanted = cast(Literal["easy", "medium", "hard"], difficulty)
    for task in make_splits(environment, {split: count}, seed, wanted)[split]:
        episode = play_oracle(environment, task)
        spans = [{"type": kind, "text": text} for kind, text in paragraphs(environment, episode)]
        hint = environment.privileged_context(task)
        if hint is not None:
            spans.insert(1, {"type": "privileged", "text": hint})
        verdict = None if episode.verdict is None else episode.verdict.failure_category.value
        found = {"task_id": task.task_id, "prompt": task.prompt, "answer": task.answer}
        yield {**found, "verdict": verdict, "spans": spans}


def _parameters(words: list[str] | None) -> dict[str, Any]:
    from core.recipe.syntax import parse_value

    found: dict[str, Any] = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InputError(f"parameter {word!r} is not key=value", "Write prompt_style=compact.")
        found[key] = parse_value(value, f"parameter {word!r}")
    return found

"""``local.json``: where things lie on the machine that computed a run.

It is what resuming, sampling and exporting weights need and nobody else may know: paths, and the
recipe word for word. Exports leave it out; a run directory works without it, as far as the base
model of a pretrained student is at hand.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from core.artifacts.filesystem import read_file
from core.errors import InputError, StoreError
from core.recipe.recipe import Recipe
from core.recipe.runtime import PluginFiles, Runtime
from core.runs.configs import Submission
from core.runs.layout import LOCAL


class LocalFacts(BaseModel):
    """What one machine knows about a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    store: str
    """Root of the store that holds the artifacts."""
    recipe: Recipe
    """As it was run, weights and files by digest."""
    model_paths: dict[str, Path] = {}
    """Directory of each pretrained model, by the digest of its files."""
    data_paths: dict[str, Path] = {}
    """Place of each file of prompts and of a persisted data set, by the digest of its content."""
    plugins: PluginFiles = PluginFiles()
    """Files of plug-ins."""
    recipe_path: str | None = None
    """The file that was given."""
    overrides: tuple[str, ...] = ()
    """Word for word; the manifest has them redacted."""


def local_facts(recipe: Recipe, runtime: Runtime, given: Submission) -> LocalFacts:
    """Gather what this machine knows about a run."""
    return LocalFacts(
        store=str(runtime.store.absolute()),
        recipe=recipe,
        model_paths=runtime.model_paths,
        data_paths=runtime.data_paths,
        plugins=runtime.plugins,
        recipe_path=given.path,
        overrides=given.overrides,
    )


def read_local(run: Path) -> LocalFacts | None:
    """Read ``local.json``; None where a run was exported or came without it.

    Raises:
        InputError: It is damaged.
    """
    path = run / LOCAL
    if not path.exists():
        return None
    try:
        return LocalFacts.model_validate_json(read_file(path))
    except (StoreError, ValidationError) as error:
        raise InputError(
            f"{path} cannot be used", "Run the recipe again to remake it, or remove that file."
        ) from error

"""The life of a run directory: ready, running, and how it ended."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.artifacts.contents import hash_file
from core.artifacts.ownership import owned
from core.artifacts.record import Record
from core.artifacts.redaction import redact
from core.artifacts.store import Store
from core.errors import InputError, InterruptedRunError, OpdError, StoreError
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.runs import facts
from core.runs.configs import Submission
from core.runs.contents import (
    RunContents,
    config_layers,
    opening_contents,
    run_contents,
    run_facts,
)
from core.runs.journal import Journal, now, step_events
from core.runs.layout import EVENTS, MANIFEST, directory_name
from core.runs.machine import describe_machine
from core.runs.manifest import Manifest, Status, load_manifest, write_manifest
from core.runs.parts import RunArtifacts
from core.runs.placing import place_files, remove_files
from core.runs.registry import register_run

logger = logging.getLogger(__name__)


@contextmanager
def recorded(
    store: Store, recipe: Recipe, runtime: Runtime, given: Submission | None = None
) -> Iterator["RunRecorder"]:
    """Hold the directory of a run from its first step to its end, whatever that is.

    A second process that starts the same run waits here, and then finds its steps done; it is
    refused instead where the runtime says so.

    Args:
        store: Holds the artifacts.
        recipe: What is computed, weights and files by digest.
        runtime: Says where runs lie and what this one is called.
        given: What a person gave; None for a recipe that was put together in code.

    Raises:
        StoreError: The directory cannot be written, or holds a manifest that is not a run's.
        RunOwnedError: Another process is at this run, and the runtime does not wait for it.
    """
    directory = runtime.runs / directory_name(recipe, runtime)
    with owned(directory, wait=runtime.wait_for_run):
        recorder = RunRecorder(store, recipe, runtime, given or Submission(recipe, runtime))
        with _writing(directory):
            recorder.open()
        try:
            yield recorder
        except BaseException as error:
            recorder.fail(error)
            raise


def write_run(
    store: Store,
    artifacts: RunArtifacts,
    recipe: Recipe,
    runtime: Runtime,
    given: Submission | None = None,
) -> Path:
    """Make or refresh the directory of a run whose steps are done, and return it.

    The store stays the only truth: the directory may be deleted, and is made again by the next run.

    Args:
        store: Holds the artifacts.
        artifacts: What the run left.
        recipe: What was computed.
        runtime: Says where runs lie and what this one is called.
        given: What a person gave.

    Raises:
        StoreError: The directory cannot be written, or an artifact is gone.
    """
    with recorded(store, recipe, runtime, given) as recorder:
        recorder.start()
        return recorder.complete(artifacts)


class RunRecorder:
    """Writes the files of one run; made by :func:`recorded`, which holds the lock."""

    def __init__(self, store: Store, recipe: Recipe, runtime: Runtime, given: Submission) -> None:
        self.directory = runtime.runs / directory_name(recipe, runtime)
        self.so_far: Callable[[], RunArtifacts] = RunArtifacts
        """Says what there is when a run fails; set by who runs the steps."""
        self._store, self._recipe, self._runtime, self._given = store, recipe, runtime, given
        self._machine = describe_machine()
        self._journal = Journal(self.directory)
        self._manifest = _draft(recipe, runtime, self._machine)

    def open(self) -> None:
        """Take the directory over: what another recipe left here goes, and all else stays."""
        self.directory.mkdir(parents=True, exist_ok=True)
        before = self._before()
        contents = opening_contents(self._given, self._machine)
        layers = config_layers(contents, self._given.overrides)
        self._manifest = self._updated(config=layers, owned=[*contents.entries, EVENTS])
        same = before is not None and before.recipe_digest == self._manifest.recipe_digest
        if before is not None:
            self._manifest = self._updated(
                owned=sorted({*before.owned, *self._manifest.owned}),
                created_at=before.created_at if same else self._manifest.created_at,
            )
        write_manifest(self.directory, self._manifest)
        if before is not None and not same:
            remove_files(self.directory, set(before.owned) - contents.entries.keys())
        place_files(self.directory, contents)
        self._open_journal(before if same else None)

    def start(self) -> None:
        """Say that the first step begins, to the store as well: it keeps what a run needs."""
        register_run(self._store.root, self.directory)
        self._manifest = self._updated(status="running", started_at=now())
        write_manifest(self.directory, self._manifest)

    def note(self, task: str, record: Record, *, cached: bool) -> None:
        """Write the events of a finished step."""
        for event, told in step_events(task, record, cached=cached):
            self._journal.write(event, **told)

    def complete(self, artifacts: RunArtifacts, stop: str | None = None) -> Path:
        """Put every file of the run in place and return its directory.

        Args:
            artifacts: What the run left.
            stop: Why it ended before its last cycle.

        Raises:
            StoreError: The directory cannot be written, or an artifact is gone.
        """
        with _writing(self.directory):
            self._settle(artifacts, "completed", stop=stop and {"reason": stop})
        return self.directory

    def fail(self, error: BaseException) -> None:
        """Say how the run ended, and keep what it has done so far."""
        stopped = isinstance(error, InterruptedRunError) or not isinstance(error, Exception)
        status: Status = "interrupted" if stopped else "failed"
        told = None if stopped else _told(error)
        try:
            self._settle(self.so_far(), status, error=told)
        except (OpdError, OSError) as second:
            # The first failure is the one to be raised; the next run remakes the directory.
            logger.warning("%s: its end could not be written: %s", self.directory, second)

    def _before(self) -> Manifest | None:
        path = self.directory / MANIFEST
        if not path.exists():
            return None
        try:
            return load_manifest(self.directory)
        except InputError as error:
            raise StoreError(
                f"{path} does not say which files are the run's: none was touched",
                "Remove that directory, or choose another with run.run_id=NAME.",
            ) from error

    def _open_journal(self, before: Manifest | None) -> None:
        if before is None or before.status == "completed":
            self._journal.clear()
        self._journal.mend()
        self._journal.write("run_start", run_id=self.directory.name, mode=self._manifest.mode)
        if before is not None and before.status != "completed":
            found = "interrupted" if before.status == "running" else before.status
            self._journal.write("resumed", after=found)

    def _settle(self, artifacts: RunArtifacts, status: Status, **told: Any) -> None:
        contents = run_contents(
            self._store,
            artifacts,
            self._recipe,
            self._runtime,
            self._given,
            self._machine,
        )
        names = {*contents.entries, EVENTS}
        # While files change the manifest lists none, so a directory that is cut off is not whole.
        self._manifest = self._updated(owned=sorted({*self._manifest.owned, *names}), files={})
        write_manifest(self.directory, self._manifest)
        remove_files(self.directory, set(self._manifest.owned) - names)
        place_files(self.directory, contents)
        self._journal.write("run_end", status=status)
        self._close(artifacts, contents, status, told)

    def _close(
        self, artifacts: RunArtifacts, contents: RunContents, status: Status, told: dict[str, Any]
    ) -> None:
        gpu = self._machine["gpu"]
        known = run_facts(self._store, artifacts, self._recipe, self._runtime, gpu)
        files = {**contents.entries, EVENTS: hash_file(self._journal.path)}
        self._manifest = self._updated(
            **known,
            **told,
            config=config_layers(contents, self._given.overrides),
            status=status,
            ended_at=now(),
            owned=sorted(files),
            files=dict(sorted(files.items())),
        )
        write_manifest(self.directory, self._manifest)

    def _updated(self, **changes: Any) -> Manifest:
        return portable(self._manifest.model_copy(update=changes))


def portable(manifest: Manifest) -> Manifest:
    """Return a manifest without secrets and places."""
    plain = manifest.model_dump(mode="json")
    # Names of our own files and of artifacts look like nothing that must go, but for one that
    # speaks of tokens.
    names = {name: plain.pop(name) for name in ("files", "owned", "artifacts", "inputs")}
    return Manifest.model_validate({**redact(plain), **names})


def _draft(recipe: Recipe, runtime: Runtime, machine: dict[str, Any]) -> Manifest:
    text = json.dumps(recipe.model_dump(mode="json"), sort_keys=True)
    return Manifest(
        status="ready",
        run_id=directory_name(recipe, runtime),
        run_name=runtime.run_name,
        notes=runtime.notes,
        tags=runtime.tags,
        created_at=now(),
        opdflow_version=machine["packages"]["opdflow"],
        git_commit=machine["git_commit"],
        git_dirty=machine["git_dirty"],
        python_version=machine["python_version"],
        os=machine["os"],
        os_release=machine["os_release"],
        platform=machine["platform"],
        packages=machine["packages"],
        gpu=machine["gpu"],
        mode=recipe.run.mode,
        is_on_policy=facts.is_on_policy(recipe),
        seed=recipe.run.seed,
        deterministic=recipe.run.deterministic,
        source=facts.source_facts(recipe),
        environment=facts.environment_facts(recipe, {}),
        objective=facts.objective_facts(recipe),
        roles=facts.role_facts(recipe),
        measurement_status=facts.measurement_facts(None, machine["gpu"]),
        recipe_digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def _told(error: BaseException) -> dict[str, Any]:
    known = isinstance(error, OpdError)
    return {
        "type": type(error).__name__,
        "message": error.message if known else str(error),
        "hint": error.hint if known else None,
    }


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{directory} cannot be written: {error.strerror}",
            "Set run.output_dir to a directory that can be written.",
        ) from error

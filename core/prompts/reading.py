"""From files of prompts to tasks.

Every row is taken, shortened, left out by a rule of the recipe, or refused; the counts say how many
of each.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from core.environments.base import Task
from core.environments.prompt_world import DEMONSTRATION, HINT, SYSTEM, UNRATED
from core.errors import PromptFileError
from core.prompts.bounds import prompt_length, shortened
from core.prompts.files import read_rows
from core.prompts.row import OPTIONAL, PromptRow, columns, read_row
from core.recipe.prompt_specs import PromptSplitSpec
from core.trajectory.template import CHATML, Template
from core.trajectory.tokens import TokenCodec


@dataclass
class PromptCounts:
    """What became of the rows: ``rows = tasks + dropped_overlong + dropped_overlap``."""

    rows: int = 0
    """Rows read."""
    tasks: int = 0
    """Rows that became tasks."""
    truncated: int = 0
    """Tasks whose prompt was shortened."""
    repeated: int = 0
    """Tasks whose prompt an earlier task of the split has too."""
    dropped_overlong: int = 0
    """Rows left out by ``source.filter_overlong_prompts``."""
    dropped_overlap: int = 0
    """Rows left out because the train split has their prompt, by ``source.overlap``."""
    longest_prompt: int = 0
    """Tokens of the longest prompt that was taken."""


class PromptReader:
    """Reads one split.

    In memory are one batch of rows and 16 bytes per prompt, whatever the size of the files.

    Args:
        spec: What to read, and how.
        codec: The student's tokenizer.
        batch_size: Rows of a Parquet file in memory at a time.
        train: Tasks of the train split, which must share no prompt with another.
        template: How messages are framed.
    """

    def __init__(
        self,
        spec: PromptSplitSpec,
        codec: TokenCodec,
        batch_size: int,
        train: Iterable[Task] = (),
        template: Template = CHATML,
    ) -> None:
        self.counts = PromptCounts()
        self._spec = spec
        self._codec = codec
        self._template = template
        self._batch_size = batch_size
        self._train = {_digest(task.metadata[SYSTEM], task.prompt) for task in train}
        self._seen: set[bytes] = set()

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield the tasks of files in the order of files and rows, counting as it goes.

        Raises:
            PromptFileError: A file or row is refused, or no row is left.
        """
        wanted = columns(self._spec)
        for index, path in enumerate(paths):
            for raw in read_rows(path, wanted, self._batch_size, OPTIONAL):
                self.counts.rows += 1
                row = self._bounded(read_row(raw, self._spec))
                if row is not None and self._is_apart(row):
                    self.counts.tasks += 1
                    yield self._task(row, index)
        if not self.counts.tasks:
            raise PromptFileError(
                f"{', '.join(map(str, paths))}: no row is left of {self.counts.rows}",
                f"Counts: {asdict(self.counts)}.",
            )

    def _bounded(self, row: PromptRow) -> PromptRow | None:
        limit, frames = self._spec.max_prompt_length, self._template
        length = prompt_length(row, self._codec, frames)
        if length > limit:
            if self._spec.filter_overlong_prompts:
                self.counts.dropped_overlong += 1
                return None
            if self._spec.truncation == "error":
                raise PromptFileError(
                    f"{row.place}: the prompt has {length} tokens, more than "
                    f"source.max_prompt_length ({limit})",
                    "Raise it, set source.truncation: left or right, or "
                    "source.filter_overlong_prompts: true.",
                )
            row = shortened(row, self._codec, limit, self._spec.truncation, frames)
            self.counts.truncated += 1
            length = prompt_length(row, self._codec, frames)
        self._check_demonstration(row)
        self.counts.longest_prompt = max(self.counts.longest_prompt, length)
        return row

    def _check_demonstration(self, row: PromptRow) -> None:
        limit = self._spec.max_response_length
        if row.demonstration is None or limit is None:
            return
        length = len(self._codec.encode(row.demonstration)) + 1
        if length > limit:
            raise PromptFileError(
                f"{row.place}: {self._spec.demonstration_key} has {length} tokens with its end, "
                f"more than source.max_response_length ({limit})",
                "Raise it, or shorten the demonstration: a student could not write it to its end.",
            )

    def _is_apart(self, row: PromptRow) -> bool:
        """Return whether the row may be a task of this split; count repetitions."""
        digest = _digest(row.system, row.user)
        if digest in self._train:
            if self._spec.overlap == "error":
                raise PromptFileError(
                    f"{row.place}: the train split has this prompt too",
                    "Remove it from one of them, or set source.overlap: drop.",
                )
            self.counts.dropped_overlap += 1
            return False
        self.counts.repeated += digest in self._seen
        self._seen.add(digest)
        return True

    def _task(self, row: PromptRow, file: int) -> Task:
        metadata = {"file": file, "row": row.number, SYSTEM: row.system}
        optional = {
            DEMONSTRATION: row.demonstration,
            HINT: row.hint,
            "data_source": row.data_source,
        }
        metadata |= {key: value for key, value in optional.items() if value is not None}
        name = f"prompt-{self._spec.split}-{file}-{row.number}"
        return Task(name, row.user, row.answer, UNRATED, self._spec.split, metadata)


def _digest(system: str, user: str) -> bytes:
    blob = f"{len(system)}\n{system}{user}".encode()
    return hashlib.sha256(blob).digest()[:16]

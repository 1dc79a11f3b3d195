"""Keys whose feature would change numbers and is not built yet. Building it removes its row."""

from collections.abc import Iterator
from dataclasses import dataclass

from core.recipe.document import Document
from core.recipe.problems import Problem


@dataclass(frozen=True)
class Unbuilt:
    """A key with the values that are refused; no values means anything but ``built`` and null."""

    key: str
    values: tuple[object, ...] | None = None
    instead: str = "Leave it out."
    built: object = None
    """The one value that works, where ``values`` does not name those that do not."""
    backend: str | None = None
    """The one backend that would read the key; null is every backend."""


MODELS = ("models.student", "models.teacher", "models.reference")

UNBUILT: tuple[Unbuilt, ...] = (
    Unbuilt(
        "offline_kd.trajectory_source",
        ("persisted",),
        "Use oracle or frozen_student: an equal data set is found in the store.",
    ),
    Unbuilt("offline_kd.task_schedule_digest"),
    Unbuilt("models.runtime", ("shared_backbone",), "Use dual_model."),
    Unbuilt("models.reference"),
    *(Unbuilt(f"{model}.trust_remote_code", (True,), "Use false.") for model in MODELS),
    *(Unbuilt(f"{model}.tokenizer_id") for model in MODELS),
    *(Unbuilt(f"{model}.tokenizer_revision") for model in MODELS),
    Unbuilt("models.student.lora.dropout", instead="Use 0.", built=0.0, backend="hf"),
    Unbuilt("alignment"),
)


def unbuilt(document: Document) -> Iterator[Problem]:
    """Yield a problem for every key of the document whose feature does not exist."""
    backend = document.get(("models", "backend"), "toy")
    for row in UNBUILT:
        path = tuple(row.key.split("."))
        value = document.get(path)
        refused = value not in (None, row.built) if row.values is None else value in row.values
        if refused and row.backend in (None, backend):
            yield Problem(path, "not built yet", row.instead)

"""What a reader should know about a recipe that is accepted: keys that have no effect here."""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from core.recipe.document import Document
from core.recipe.execution import EXECUTION_KEYS
from core.recipe.recipe import Recipe
from core.recipe.schedule import steps_per_cycle, total_steps
from core.recipe.schema.section import Section
from core.recipe.steps import SELECTORS_WITH_RATIO

VERL_MODES = ("forward_kl_topk", "verl_pg_k1")


def _not_verl(recipe: Recipe) -> bool:
    return recipe.loss.mode not in VERL_MODES


def _supervised(recipe: Recipe) -> bool:
    return recipe.run.mode == "sft"


IDLE: dict[str, tuple[Callable[[Recipe], bool], str]] = {
    "selection.ratio": (
        lambda recipe: recipe.selection.selector not in SELECTORS_WITH_RATIO,
        "this selector has no ratio",
    ),
    "loss.jsd_beta": (
        lambda recipe: recipe.loss.divergence != "jsd",
        "loss.divergence is not jsd",
    ),
    "loss.tail_epsilon": (
        lambda recipe: recipe.loss.mode != "bucketed_topk_tail",
        "loss.mode has no rest bucket",
    ),
    "loss.log_prob_min_clamp": (_not_verl, "only verl's loss modes clamp"),
    "loss.loss_max_clamp": (_not_verl, "only verl's loss modes clamp"),
    "loss.clip_ratio": (_not_verl, "only verl_pg_k1 clips"),
    "loss.clip_ratio_low": (_not_verl, "only verl_pg_k1 clips"),
    "loss.clip_ratio_high": (_not_verl, "only verl_pg_k1 clips"),
    "loss.clip_ratio_c": (_not_verl, "only verl_pg_k1 clips"),
    "loss.estimator_implementation_version": (_not_verl, "only verl_pg_k1 has an estimator"),
    "loss.divergence": (_supervised, "run.mode sft has no divergence"),
    "train.opd_freshness": (_supervised, "run.mode sft samples nothing"),
    "train.eval_every_cycles": (_supervised, "run.mode sft is evaluated before and after"),
    "run.deterministic": (lambda _: True, "kernels are always deterministic"),
    "eval.seed": (lambda recipe: recipe.eval.temperature == 0, "greedy decoding draws nothing"),
}
"""Key -> when it has no effect, and why."""


def notes(recipe: Recipe, document: Document, moved: Sequence[str]) -> list[str]:
    """Return one line per thing worth knowing.

    Args:
        recipe: An accepted recipe.
        document: What was submitted.
        moved: Submitted names of execution keys.
    """
    return [
        *_moved(moved),
        *_idle(recipe),
        *_dtypes(recipe, document),
        *_warmups(recipe),
        *_training_split(recipe),
    ]


def _moved(moved: Sequence[str]) -> Iterator[str]:
    inert = [key for key in moved if EXECUTION_KEYS[key].startswith("inherited.")]
    settings = [key for key in moved if key not in inert and not key.startswith("run.")]
    if settings:
        yield f"execution settings, no part of identity: {', '.join(settings)}"
    if inert:
        yield f"accepted, without effect here: {', '.join(inert)}"


def _idle(recipe: Recipe) -> Iterator[str]:
    for key, (idle, reason) in IDLE.items():
        if idle(recipe) and not _is_default(recipe, key):
            yield f"{key} has no effect: {reason}"


def _is_default(recipe: Recipe, key: str) -> bool:
    *sections, name = key.split(".")
    section: Any = reduce(getattr, sections, recipe)
    assert isinstance(section, Section)
    default = type(section).model_fields[name].get_default(call_default_factory=True)
    return getattr(section, name) == default


def _dtypes(recipe: Recipe, document: Document) -> Iterator[str]:
    for role in ("student", "teacher"):
        if recipe.models.backend == "hf" and document.get(("models", role, "dtype")) == "auto":
            yield (
                f"models.{role}.dtype auto means float32, whatever the device; "
                "write bfloat16 for half the memory"
            )


def _warmups(recipe: Recipe) -> Iterator[str]:
    steps, warmup = total_steps(recipe), recipe.train.warmup_steps
    if warmup > steps > 0:
        yield f"train.warmup_steps {warmup} exceeds the {steps} steps of the run"
    own = recipe.cold_start
    if own and own.warmup_steps > own.cycles * steps_per_cycle(recipe):
        yield f"cold_start.warmup_steps {own.warmup_steps} exceeds the steps of the cold start"


def _training_split(recipe: Recipe) -> Iterator[str]:
    if recipe.eval.split == "train":
        yield "eval.split is train: success is measured on tasks that are trained on"

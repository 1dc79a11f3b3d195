"""What a reader should know about a recipe that is accepted: keys that have no effect here."""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

from core.recipe.document import Document
from core.recipe.execution import EXECUTION_KEYS
from core.recipe.objective import (
    CROSS_TOKENIZER_MODES,
    READERS,
    TAIL_MODES,
    objective_name,
)
from core.recipe.recipe import Recipe
from core.recipe.schedule import own_schedule, total_steps
from core.recipe.schema.section import Section
from core.recipe.schema.selection import Gate
from core.recipe.sources import prompt_source, split_size
from core.recipe.steps import SELECTORS_WITH_RATIO

TINY_MIXTURE = 0.05
"""Weight of a side in ``jsd`` below which the weight acts as a learning rate."""


def _unread(key: str) -> tuple[Callable[[Recipe], bool], str]:
    readers = READERS[key]
    return (
        lambda recipe: objective_name(recipe.loss) not in readers,
        f"only {' and '.join(readers)} read{'s' if len(readers) == 1 else ''} it",
    )


def _supervised(recipe: Recipe) -> bool:
    return recipe.run.mode == "sft"


def _samples_nothing(recipe: Recipe) -> bool:
    return recipe.run.mode != "opd"


def _from_files(recipe: Recipe) -> bool:
    return prompt_source(recipe) is not None


ONE_RESPONSE = "a prompt from a file has one response, bounded by source.max_response_length"


IDLE: dict[str, tuple[Callable[[Recipe], bool], str]] = {
    "selection.ratio": (
        lambda recipe: recipe.selection.selector not in SELECTORS_WITH_RATIO,
        "this selector has no ratio",
    ),
    **{f"loss.{key}": _unread(key) for key in READERS},
    "loss.tail_epsilon": (
        lambda recipe: recipe.loss.mode not in TAIL_MODES,
        "loss.mode has no rest bucket",
    ),
    "loss.top_k": (
        lambda recipe: recipe.loss.mode in CROSS_TOKENIZER_MODES,
        "loss.mode keeps the sampled token alone, or all tokens that are shared",
    ),
    "loss.cross_tokenizer": (
        lambda recipe: (
            recipe.models.backend == "toy" and recipe.models.teacher.toy_vocabulary == "first"
        ),
        "the toy pair has one tokenizer",
    ),
    "models.teacher.toy_vocabulary": (
        lambda recipe: recipe.models.backend == "hf",
        "a pretrained teacher brings its tokenizer",
    ),
    "models.reference": (_supervised, "run.mode sft has no update that reads it"),
    "loss.clip_ratio": (lambda _: True, "the lower and the upper half width have their own keys"),
    "loss.estimator_implementation_version": (lambda _: True, "there is one estimator"),
    "loss.teacher_temperature": (_supervised, "run.mode sft has no teacher"),
    "loss.divergence": (
        lambda recipe: _supervised(recipe) or recipe.loss.mode == "verl_pg_k1",
        "run.mode sft and loss.mode verl_pg_k1 have no divergence",
    ),
    "train.first_task": (_supervised, "run.mode sft trains on its demonstrations"),
    "train.opd_freshness": (_samples_nothing, "run.mode is not opd"),
    "train.eval_every_cycles": (_supervised, "run.mode sft is evaluated before and after"),
    "models.student.lora.dropout": (
        lambda recipe: recipe.models.backend == "toy",
        "the toy backend trains every weight, without an adapter",
    ),
    "train.stop_after_cycles": (
        lambda recipe: (
            recipe.train.stop_below_entropy is None and recipe.train.stop_below_success is None
        ),
        "train.stop_below_entropy and train.stop_below_success give no bound",
    ),
    **{
        f"train.stop_below_{bound}": (_samples_nothing, "no cycle samples episodes")
        for bound in ("entropy", "success")
    },
    **dict.fromkeys(
        (
            "rollout.max_turns",
            "rollout.max_new_tokens_per_turn",
            "rollout.max_total_tokens",
            "rollout.max_parse_errors",
            "rollout.max_repeated_calls",
            "eval.max_turns",
        ),
        (_from_files, ONE_RESPONSE),
    ),
    "run.deterministic": (lambda _: True, "deterministic kernels are always asked for"),
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
        *_passed_over(recipe),
        *_collections(recipe),
        *_gates(recipe),
        *_signals(recipe),
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
    if own and own.warmup_steps > own_schedule(recipe, own).total_steps:
        yield f"cold_start.warmup_steps {own.warmup_steps} exceeds the steps of the cold start"


def _training_split(recipe: Recipe) -> Iterator[str]:
    if recipe.eval.split == "train":
        yield "eval.split is train: success is measured on tasks that are trained on"


def _passed_over(recipe: Recipe) -> Iterator[str]:
    first, tasks = recipe.train.first_task, split_size(recipe, "train")
    if first is None or _supervised(recipe):
        return
    if _from_files(recipe):
        yield (
            "train.first_task passes over prompts in the order that they are sampled in; "
            "demonstrations have another"
        )
    elif tasks is not None and first >= tasks:
        yield (
            f"train.first_task {first} passes over all {tasks} tasks to train on, "
            "and the order starts over"
        )


def _collections(recipe: Recipe) -> Iterator[str]:
    wanted, tasks = recipe.offline_kd.collection_tasks, split_size(recipe, "train")
    by_oracle = recipe.offline_kd.trajectory_source == "oracle"
    if recipe.run.mode != "offline_kd" or not by_oracle or wanted is None or tasks is None:
        return
    if wanted > tasks:
        yield (
            f"offline_kd.collection_tasks {wanted} exceeds the {tasks} tasks to train on: "
            "the oracle solves each once"
        )


def _gates(recipe: Recipe) -> Iterator[str]:
    gate = recipe.selection.gate
    if gate is not None and gate.threshold != Gate.model_fields["threshold"].default:
        yield (
            "selection.gate.threshold has no effect: what opens the gate is the environment's "
            "verdict on the task"
        )


def _signals(recipe: Recipe) -> Iterator[str]:
    """Settings that are legal and mean something else than their names suggest."""
    if _supervised(recipe):
        return
    loss, rollout = recipe.loss, recipe.rollout
    smaller = min(loss.jsd_beta, 1 - loss.jsd_beta)
    if objective_name(loss) == "jsd" and smaller < TINY_MIXTURE:
        yield (
            f"loss.jsd_beta {loss.jsd_beta} shrinks jsd, and every gradient, to about "
            f"{smaller:.2g} of a KL; rescaled_jsd keeps its size"
        )
    if loss.sampled_token_nll_weight > 0:
        yield (
            "loss.sampled_token_nll_weight trains on the student's own samples, right or wrong, "
            "not on demonstrations"
        )
    if rollout.top_p < 1 or rollout.top_k > 0:
        yield (
            "rollout.top_p or rollout.top_k truncates: the episodes are not exactly on-policy; "
            "each token's kept probability is recorded"
        )

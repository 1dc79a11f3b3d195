"""Rules about models, adapters and backends."""

from collections.abc import Iterator

from core.environments.base import Split
from core.recipe.problems import Problem, problem
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from core.recipe.schema.models import Model
from core.recipe.schema.source import ParquetSource
from core.recipe.sources import prompt_source, split_size
from core.recipe.steps import limits_spec

SHARED_FIELDS = (
    "model_id",
    "revision",
    "tokenizer_id",
    "tokenizer_revision",
    "dtype",
    "quantization",
    "attn_implementation",
    "prepare_kbit_training",
    "trust_remote_code",
)
MINIMA = (
    "minimum_strict_success_rate",
    "minimum_recovery_after_error_rate",
    "minimum_parse_valid_tool_call_rate",
    "minimum_tool_execution_success_rate",
)


TOTAL = "rollout.max_total_tokens"
GATE = "models.teacher.qualification"


def roles(recipe: Recipe) -> dict[str, Model]:
    """Return the models that a recipe names, by dotted key."""
    found: dict[str, Model | None] = {
        "models.student": recipe.models.student,
        "models.teacher": recipe.models.teacher,
        "models.reference": recipe.models.reference,
    }
    return {key: model for key, model in found.items() if model is not None}


def head_width_is_even(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """2: a toy decoder's heads share its width, and rotary positions turn channels in pairs."""
    for key, model in roles(recipe).items():
        width, heads = model.toy.hidden_size, model.toy.num_heads
        if width % (2 * heads):
            yield problem(
                f"{key}.toy.hidden_size",
                f"{width} is not a multiple of twice {key}.toy.num_heads ({heads})",
                f"Use {width - width % (2 * heads) or 2 * heads} or another number of heads.",
            )


def quantised_student_needs_lora(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """3: quantised weights cannot be trained themselves."""
    student = recipe.models.student
    if student.quantization != "none" and not student.lora.enabled:
        yield problem(
            "models.student.quantization",
            "quantised weights cannot be trained, and models.student.lora.enabled is false",
            "Set models.student.lora.enabled: true or models.student.quantization: none.",
        )


def hub_adapter_needs_revision(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """3: what a Hub id means changes, so an adapter from there is pinned."""
    for key, model in roles(recipe).items():
        adapter = getattr(model, "adapter", None)
        if adapter is not None and adapter.source == "hub" and adapter.revision is None:
            yield problem(
                f"{key}.adapter.revision",
                f"is required where {key}.adapter.source is hub",
                "Give the commit of the adapter.",
            )


def minima_need_an_evaluation(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """3: a threshold means nothing where no measurement is demanded."""
    adapter = recipe.models.teacher.adapter
    if adapter is None or adapter.require_policy_evaluation:
        return
    for name in MINIMA:
        if getattr(adapter, name) is not None:
            yield problem(
                f"models.teacher.adapter.{name}",
                "needs models.teacher.adapter.require_policy_evaluation: true",
                "Demand the evaluation or leave the minimum out.",
            )


def reference_needs_shared_backbone(recipe: Recipe, runtime: Runtime) -> Iterator[Problem]:
    """4: a third model exists on a shared backbone only."""
    if recipe.models.reference is not None and runtime.models_runtime == "dual_model":
        yield problem(
            "models.reference",
            "needs models.runtime: shared_backbone",
            "Set models.runtime: shared_backbone or leave models.reference out.",
        )


def reference_names_its_adapter(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """A base with its adapter switched off is not what a warm student started from."""
    models = recipe.models
    if models.reference is None or models.reference.adapter is not None:
        return
    starts = {
        "models.student.adapter is given": models.student.adapter is not None,
        "run.start names a trained student": recipe.run.start is not None,
    }
    for reason in (reason for reason, given in starts.items() if given):
        yield problem(
            "models.reference.adapter",
            f"is null, and {reason}: the base alone is not where training starts",
            "Name the adapter that the student is to be compared with.",
        )


def shared_backbone_needs_adapters(recipe: Recipe, runtime: Runtime) -> Iterator[Problem]:
    """4: one set of weights needs an adapter per role, and stays where it is."""
    models = recipe.models
    if runtime.models_runtime != "shared_backbone":
        return
    reasons = {
        "models.backend": (models.backend == "toy", "the toy backend has no adapters"),
        "models.student.lora.enabled": (not models.student.lora.enabled, "the student needs LoRA"),
        "models.student.lora.bias": (
            models.student.lora.bias != "none",
            "biases of the base are every role's",
        ),
        "models.teacher.adapter": (models.teacher.adapter is None, "the teacher needs an adapter"),
        "runtime.memory_strategy": (
            runtime.memory_strategy == "swap",
            "a shared backbone cannot be swapped out (memory.strategy: swap)",
        ),
    }
    for key, (broken, reason) in reasons.items():
        if broken:
            yield problem(
                key,
                f"{reason}, and models.runtime is shared_backbone",
                "Set models.runtime: dual_model or change this key.",
            )


def shared_backbone_is_one_model(recipe: Recipe, runtime: Runtime) -> Iterator[Problem]:
    """4: roles on one backbone agree in everything but the adapter."""
    if runtime.models_runtime != "shared_backbone":
        return
    student = recipe.models.student
    for key, model in roles(recipe).items():
        for name in SHARED_FIELDS:
            if getattr(model, name) != getattr(student, name):
                yield problem(
                    f"{key}.{name}",
                    f"differs from models.student.{name}, and models.runtime is shared_backbone",
                    "Give both the same value or set models.runtime: dual_model.",
                )


def toy_backend_is_plain(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """5: the toy decoder is trained in full, in float32, without adapters."""
    if recipe.models.backend != "toy":
        return
    for key, model in roles(recipe).items():
        plain = {"quantization": "none", "dtype": "float32", "adapter": None}
        for name, value in plain.items():
            if getattr(model, name, value) != value:
                yield problem(
                    f"{key}.{name}",
                    "the toy backend (models.backend: toy) has float32 weights and no adapter",
                    f"Leave {key}.{name} out or set models.backend: hf.",
                )


def toy_has_no_template(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """The toy tokenizer brings no chat template."""
    if recipe.models.backend == "toy" and recipe.rollout.template != "chatml":
        yield problem(
            "rollout.template",
            "the toy tokenizer (models.backend: toy) has no chat template",
            "Use chatml or set models.backend: hf.",
        )


def episodes_fit_the_toy(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """An episode that outgrows the decoder could not be finished."""
    if recipe.models.backend != "toy":
        return
    source, limit = prompt_source(recipe), limits_spec(recipe).max_total_tokens
    meant = "source.max_prompt_length and max_response_length" if source else TOTAL
    for key, model in roles(recipe).items():
        width = model.toy.max_position_embeddings
        if limit > width:
            yield problem(
                f"{key}.toy.max_position_embeddings",
                f"{width} is less than {meant} ({limit})",
                f"Use at least {limit}, or shorter episodes.",
            )


def gate_can_be_measured(recipe: Recipe, _: Runtime) -> Iterator[Problem]:
    """A teacher shows what it can do on tasks that exist and have answers, by acting itself."""
    gate, source = recipe.models.teacher.qualification, prompt_source(recipe)
    if gate is None:
        return
    if recipe.models.teacher.plugin is not None:
        yield problem(
            GATE,
            "cannot be combined with models.teacher.plugin, which gives targets and cannot act",
            "Leave it out, or teach with a model.",
        )
    if source is not None:
        yield from _gate_on_prompts(recipe, source, gate.split)
        return
    size = split_size(recipe, gate.split)
    last = gate.task_offset + (gate.tasks or 1)
    if size is not None and last > size:
        yield problem(
            f"{GATE}.{'tasks' if gate.tasks else 'task_offset'}",
            f"tasks {gate.task_offset} to {last - 1} do not all exist: "
            f"environment.{gate.split}_tasks is {size}",
            f"Use a slice of the {size} tasks or make more.",
        )


def _gate_on_prompts(recipe: Recipe, source: ParquetSource, split: Split) -> Iterator[Problem]:
    if source.answer_key is None:
        hint = "Name the column of answers."
        yield problem("source.answer_key", f"is null, and {GATE} counts right answers", hint)
    if split == "test":
        hint = "Use eval, which is source.val_files."
        yield problem(f"{GATE}.split", "prompts from files have no test split", hint)
    if split == "eval" and not source.val_files:
        hint = f"Name files in source.val_files, or use {GATE}.split: train."
        yield problem("source.val_files", f"is empty, and {GATE}.split is eval", hint)
    if split != "train" and recipe.models.teacher.mode == "privileged_context":
        hint = "Use train."
        yield problem(f"{GATE}.split", "only rows of source.train_files have hints", hint)

"""The smallest description of each step: what its key is made of, besides its parents.

A field that a step does not use is not in its spec, and one that is switched off is null.

A key leaves out fields that equal their default. No field below has a default other than null, and
no class with other defaults is part of one, so that a default of the recipe may change without a
key going on to name what it no longer describes. ``tests/golden/test_fingerprints.py`` holds this.
"""

from typing import Literal

from pydantic import Field, JsonValue

from core.recipe.order_spec import TaskOrderSpec
from core.recipe.plugin_specs import NamedPluginSpec, PluginSpec, Spec
from core.recipe.schema.adapters import Lora
from core.recipe.schema.loss import LossMode
from core.recipe.schema.rollout import OwnTemplate
from core.recipe.schema.selection import SelectorName


class EnvironmentSpec(Spec):
    """Which world."""

    name: str
    """Name in the registry of environments, or in the plug-in."""
    params: dict[str, JsonValue]
    """Arguments of the environment."""
    plugin: PluginSpec | None = None
    """Code that defines it; null for a built-in one."""


class SplitSpec(Spec):
    """Generate the tasks of one split: prompt-disjoint from those before it, and no others."""

    split: Literal["train", "eval", "test"]
    """Which tasks."""
    environment: EnvironmentSpec
    """Which world."""
    difficulty: Literal["easy", "medium", "hard"]
    """How many steps a task needs."""
    split_seed: int
    """Seed of the tasks."""
    train: int
    """Tasks of the train split."""
    eval: int | None
    """Tasks of the eval split; null for the train split, which comes first."""
    test: int | None
    """Tasks of the test split; null for the splits before it."""


class TokenizerSpec(Spec):
    """Which tokenizer reads and writes the transcripts."""

    backend: Literal["toy", "hf"]
    """Library."""
    tokenizer_id: str | None
    """Hub id or local directory; null for the toy tokenizer."""
    revision: str | None
    """Commit or tag on the Hub."""
    vocabulary: Literal["worlds", "recovery", "second"] | None = None
    """Fragments of the toy tokenizer; null are the calculator's."""
    trust_remote_code: bool | None = None
    """Run Python code that ships with tokenizer or model; null is no."""


class TracesSpec(Spec):
    """Play the oracle on every task of a split."""

    environment: EnvironmentSpec
    """Which world."""
    tokenizer: TokenizerSpec
    """How the transcripts are tokenised."""
    split: Literal["train"]
    """Which tasks."""
    max_turns: int
    """Turns before a transcript is cut."""
    template: OwnTemplate | None = None
    """Frames of the messages; null is ChatML."""


class ToySizeSpec(Spec):
    """Width and depth of a toy decoder, all written out."""

    hidden_size: int
    """Width of the residual stream, channels."""
    num_layers: int
    """Decoder blocks."""
    num_heads: int
    """Attention heads per block."""
    intermediate_size: int
    """Width of the feed-forward layer, channels."""
    max_position_embeddings: int
    """Longest sequence that the model accepts, tokens."""


class LoraSpec(Lora):
    """An adapter, all written out: what ``Lora`` fills in is required here."""

    enabled: bool = Field()
    """Train the adapter; false trains every weight."""
    r: int = Field(ge=1, le=512)
    """Rank of the update."""
    alpha: int = Field(ge=1, le=1024)
    """Numerator of the scale ``alpha / r``."""
    dropout: float = Field(ge=0, lt=1)
    """Probability of dropping an input of the adapter while training."""
    target_modules: tuple[str, ...] = Field(min_length=1, strict=False)
    """Names of the linear layers that get an adapter."""
    bias: Literal["none", "all", "lora_only"] = Field()
    """Which biases are trained."""


class ModelSpec(Spec):
    """Weights and arithmetic of one model, before any training of ours."""

    backend: Literal["toy", "hf"]
    """Library."""
    toy: ToySizeSpec | None
    """Size of the toy decoder; null for another backend."""
    model_id: str | None
    """Hub id or local directory; null for the toy backend."""
    revision: str | None
    """Commit or tag on the Hub."""
    dtype: str
    """Arithmetic: float32, bfloat16 or float16."""
    attn_implementation: str | None
    """Attention kernel; null for the toy backend."""
    tokenizer: TokenizerSpec
    """The tokenizer that belongs to it."""
    quantization: Literal["nf4", "int8"] | None = None
    """Storage of the frozen weights; null is as they are."""
    prepare_kbit_training: bool | None = None
    """Whether what isn't quantised becomes float32; null where nothing is quantised."""
    adapter: str | None = None
    """Digest or directory of an adapter: a teacher's, or what a student starts from."""


class ToyFitSpec(Spec):
    """How a toy teacher is fitted on oracle traces."""

    seed: int
    """Seed of its initial weights and of the order of the traces."""
    steps: int
    """Optimizer steps."""
    learning_rate: float
    """Peak learning rate."""
    batch_size: int
    """Traces per step."""
    betas: tuple[float, float]
    """Decays of AdamW's moments."""


class TeacherSpec(Spec):
    """What identifies the teacher's weights; what it is shown is no part of it."""

    model: ModelSpec | None
    """Architecture or pretrained weights; null for a plug-in."""
    fit: ToyFitSpec | None
    """How a toy teacher is made; null for pretrained weights."""
    plugin: NamedPluginSpec | None = None
    """Code that teaches in place of a model; null for a model."""


class StudentSpec(Spec):
    """The student before any training of ours."""

    model: ModelSpec
    """Architecture or pretrained weights."""
    lora: LoraSpec | None
    """Adapter of pretrained weights; a disabled one trains every weight, null none of them. Null
    for the toy backend, which always trains every weight."""
    seed: int
    """Run seed: initial weights that are not pretrained."""


class SelectionSpec(Spec):
    """Which of the student's tokens count, and how much."""

    selector: SelectorName
    """Rule that picks positions."""
    ratio: float
    """Share of the student's tokens; 1 where the rule has none."""
    max_positions_per_trajectory: int | None
    """Upper limit of selected tokens per episode; null is none."""
    critical_weight: float
    """Weight of a token in a tool call or a final answer."""
    other_weight: float
    """Weight of any other token."""
    skip_first_tokens: int | None = None
    """Tokens at the start of each turn that are never selected; null is none."""
    plugin: NamedPluginSpec | None = None
    """Code of a rule that is not built in; null for those that are."""


class LimitsSpec(Spec):
    """When an episode ends."""

    max_turns: int
    """Turns of the student."""
    max_new_tokens_per_turn: int
    """Tokens that one turn may generate."""
    max_total_tokens: int
    """Tokens of the whole transcript."""
    max_parse_errors: int
    """Unreadable turns after which the episode ends."""
    max_repeated_calls: int
    """Times that one identical tool call is executed."""


class SamplingSpec(Spec):
    """The distribution that tokens are drawn from."""

    temperature: float
    """Divides the logits; 0 takes the most likely token."""
    top_p: float
    """Nucleus probability; 1 keeps all."""
    top_k: int
    """Most likely tokens kept; 0 keeps all."""


class RolloutSpec(Spec):
    """Sample the episodes of one cycle."""

    environment: EnvironmentSpec
    """Which world."""
    limits: LimitsSpec
    """When an episode ends."""
    sampling: SamplingSpec
    """How tokens are drawn."""
    rollouts: int
    """Episodes."""
    cycle: int
    """Index of the cycle; it enters the episodes' ids and so their noise."""
    task_cursor: int
    """Place of the first task in the order of the train split, counted without wrapping."""
    order: TaskOrderSpec | None = None
    """Order of tasks from files; null is ``Random(run_seed ^ 0x5EED).shuffle(range(tasks))``."""
    run_seed: int
    """Seed of the task order and of the sampling."""
    template: OwnTemplate | None = None
    """Frames of the messages; null is ChatML."""


class ScoreSpec(Spec):
    """Ask the teacher about the episodes of one cycle."""

    environment: EnvironmentSpec | None
    """World that gives the teacher its hint; null where the teacher reads what the student read."""
    selection: SelectionSpec
    """Which tokens are scored."""
    loss_mode: LossMode
    """What the teacher hands over, by the mode that is named after it."""
    top_k: int | None
    """Log-probabilities per position; null where there is no support."""
    temperature: float | None
    """Divides the teacher's logits; null where the loss does it on the whole distribution."""
    teacher_mode: Literal["standard", "privileged_context"]
    """What the teacher reads."""
    run_seed: int
    """Seed of the selection."""
    student_tokenizer: TokenizerSpec | None = None
    """Tokenizer of the episodes; null where it must be the teacher's."""
    plugin: NamedPluginSpec | None = None
    """Code that teaches in place of a model; null for a model."""
    template: OwnTemplate | None = None
    """Frames of a hint; null is ChatML, or that there is no hint."""


class EvaluationSpec(Spec):
    """Solve a slice of a split."""

    environment: EnvironmentSpec
    """Which world."""
    limits: LimitsSpec
    """When an episode ends."""
    sampling: SamplingSpec
    """How tokens are drawn."""
    split: Literal["train", "eval", "test"]
    """Which tasks."""
    task_offset: int
    """Index in the split of the first task."""
    tasks: int | None
    """Tasks to solve; null for all that follow, where only the files of prompts know how many."""
    seed: int
    """Seed of the sampling; 0 where the temperature is 0 and nothing is drawn."""
    samples_per_task: int | None = None
    """Episodes of each task; null is one."""
    template: OwnTemplate | None = None
    """Frames of the messages; null is ChatML."""

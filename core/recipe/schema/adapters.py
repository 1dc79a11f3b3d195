"""Low-rank adapters: the one that is trained, and those that are loaded."""

from typing import Annotated, Literal

from pydantic import Field

from core.recipe.schema.section import Section

Rate = Annotated[float | None, Field(ge=0, le=1)]


class Lora(Section):
    """A low-rank update of linear layers (Hu et al. 2021, arXiv:2106.09685)."""

    enabled: bool = True
    """Train the adapter; false trains every weight. The toy backend always trains every weight."""
    r: int = Field(default=16, ge=1, le=512)
    """Rank of the update."""
    alpha: int = Field(default=32, ge=1, le=1024)
    """Numerator of the scale ``alpha / r``."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability of dropping an input of the adapter while training."""
    target_modules: tuple[str, ...] = Field(
        default=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        strict=False,
    )
    """Names of the linear layers that get an adapter."""
    bias: Literal["none", "all", "lora_only"] = "none"
    """Which biases are trained."""


class AdapterSource(Section):
    """Where adapter weights come from, and which base they belong to."""

    path: str = Field(min_length=1)
    """Directory or Hub id."""
    source: Literal["local", "hub"] = "local"
    """Where ``path`` points."""
    revision: str | None = None
    """Commit on the Hub; required there."""
    base_model_revision: str
    """Commit of the base model that the adapter was trained on."""
    tokenizer_fingerprint: str
    """Content digest of the tokenizer that the adapter was trained with."""


class TeacherAdapter(Section):
    """A teacher's adapter with the evidence it must show before it may teach."""

    path: str = Field(min_length=1)
    """Directory or Hub id."""
    source: Literal["local", "hub"] = "local"
    """Where ``path`` points."""
    revision: str | None = None
    """Commit on the Hub; required there."""
    base_model_revision: str | None = None
    """Commit of the base model that the adapter was trained on."""
    tokenizer_fingerprint: str | None = None
    """Content digest of the tokenizer that the adapter was trained with."""
    require_policy_evaluation: bool = False
    """Demand a measured evaluation in the adapter's manifest."""
    minimum_strict_success_rate: Rate = None
    """Least share of solved tasks, 0 to 1."""
    minimum_recovery_after_error_rate: Rate = None
    """Least share of tasks solved after a failing tool result, 0 to 1."""
    minimum_parse_valid_tool_call_rate: Rate = None
    """Least share of tool calls that can be read, 0 to 1."""
    minimum_tool_execution_success_rate: Rate = None
    """Least share of tool calls that succeed, 0 to 1."""

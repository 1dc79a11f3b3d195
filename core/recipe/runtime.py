"""Where and how a recipe is executed. Nothing here may change a key."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from core.recipe.schema.section import Section


class Inherited(Section):
    """Settings of the seeds' recipes that have no counterpart here.

    They are checked like any other so that such a recipe loads unchanged, and then have no effect:
    targets and states are artifacts, log-probabilities are always kept.
    """

    cache_dtype: Literal["float32", "float16"] = "float32"
    """Storage of targets; they are stored as they were computed."""
    cache_strict_policy_version: bool = True
    """Refuse targets of another student; a key already says which student."""
    cache_reuse_across_policy_versions: bool = False
    """Keep targets across updates; offline distillation only."""
    cache_keep_cycles: int = Field(default=1, ge=1)
    """Cycles of targets to keep; ``cache.max_bytes`` decides here."""
    cache_verify_checksums_on_load: bool = True
    """Re-hash targets; every read is verified."""
    rollout_record_logprobs: bool = False
    """Keep the sampler's log-probabilities; they are always kept."""
    rollout_prompt_batch_size: int = Field(default=1, ge=1, le=1024)
    """Prompts per physical batch; ``slots`` decides here."""
    rollout_max_padded_tokens: int = Field(default=4096, ge=1)
    """Tokens per physical batch of prompts; ``slots`` decides here."""
    train_log_every_steps: int = Field(default=1, ge=1)
    """Optimizer steps between log lines; there are none."""
    train_save_every_cycles: int = Field(default=0, ge=0)
    """Cycles between checkpoints; the state after every cycle is an artifact."""
    loss_exact_max_vocab: int = Field(default=8192, ge=1)
    """Largest vocabulary for stored exact targets; exact targets are hidden states here."""
    loss_allow_large_exact: bool = False
    """Lift that limit."""
    run_execution_plan_digest: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the plan that a recipe was compiled from."""
    run_profile_identity: dict[str, JsonValue] = Field(default_factory=dict)
    """Name of the profile that a recipe was compiled from."""


class PluginFiles(Section):
    """Where the files of plug-ins lie; their digests are identity."""

    environment: Path | None = Field(default=None, strict=False)
    """File of the environment plug-in, relative to the recipe's."""
    teacher: Path | None = Field(default=None, strict=False)
    """File of the teacher plug-in, relative to the recipe's."""
    selector: Path | None = Field(default=None, strict=False)
    """File of the selector plug-in, relative to the recipe's."""


class Runtime(Section):
    """Device, paths, physical sizes and labels."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models run; ``auto`` takes CUDA where there is one."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of one operation; null means 1 for the toy backend and all cores otherwise."""
    store: Path = Field(default=Path(".opd/store"), strict=False)
    """Root of the artifact store."""
    runs: Path = Field(default=Path("runs"), strict=False)
    """Directory of run directories."""
    run_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,99}$")
    """Name of this run's directory; null means its label and seed, as in ``toy-seed1234``."""
    run_name: str = Field(default="opd", min_length=1, max_length=120)
    """Label of the run; a recipe without one is called after its file."""
    notes: str = ""
    """Free text for the manifest of the run directory."""
    tags: tuple[str, ...] = Field(default=(), strict=False)
    """Free labels, for the same manifest."""
    slots: int = Field(default=32, ge=1)
    """Episodes that are decoded together, rows."""
    trajectory_batch_size: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = 8
    """Episodes per physical batch of scoring and updating, 1 to 1024 rows, or ``auto``."""
    max_update_padded_tokens: int | None = Field(default=None, ge=1)
    """Tokens, padding included, of one physical update batch; null is no limit."""
    length_bucketing: bool = True
    """Batch updates of episodes of similar length; scoring always does."""
    chunk_size: int = Field(default=256, ge=1, le=65_536)
    """Positions whose logits exist at the same time."""
    row_batch_size: int = Field(default=256, ge=1)
    """Rows of a Parquet file of prompts in memory at a time."""
    oom_retries: int = Field(default=3, ge=0, le=10)
    """Times that ``chunk_size`` is halved after running out of memory."""
    min_chunk_size: int = Field(default=8, ge=1)
    """Smallest ``chunk_size`` tried, positions."""
    gradient_checkpointing: bool = False
    """Recompute the student's layers in the backward pass: less memory, more time, equal bits."""
    models_runtime: Literal["dual_model", "shared_backbone"] = "dual_model"
    """Models of their own, or one base with an adapter per role: less memory, equal bits."""
    memory_strategy: Literal["resident", "swap", "auto"] = "auto"
    """Whether a model at rest leaves the device; ``auto`` lets it where not all of them fit."""
    memory_auto_swap_vram_headroom_gb: float = Field(default=2.0, ge=0, le=1024)
    """Free device memory below which ``auto`` swaps, GiB."""
    memory_empty_cache_between_phases: bool = True
    """Give memory that no tensor holds back to the device after each step."""
    memory_reset_peak_stats_each_cycle: bool = True
    """Start the peak-memory counter anew with each step; otherwise it counts from the first one."""
    cache_enabled: bool | Literal["auto"] = "auto"
    """Keep what a frozen teacher says about exact tokens for every run of the store; ``auto`` does
    for pretrained teachers. No target changes."""
    cache_dir: Annotated[Path, Field(strict=False)] | None = None
    """Directory of those targets; null means ``.teacher-cache`` in the store."""
    cache_max_bytes: int = Field(default=1_073_741_824, ge=0)
    """Most bytes of those targets; the least recently used go first."""
    cache_entries_per_shard: int = Field(default=32, ge=1, le=4096)
    """Most episodes of one file of those targets."""
    wait_for_run: bool = True
    """Wait for another process that is at the same run directory; false is refused instead."""
    progress_seconds: float = Field(default=20.0, ge=0)
    """Seconds between states that a cold start or a teacher's fit keeps on its way, to go on from
    after a kill."""
    offline: bool = False
    """Never open a network connection for models."""
    strict_code: bool = False
    """Rebuild an artifact whose code has changed, in place of flagging it."""
    gpu_slot: bool = True
    """Take the machine-wide GPU slot around work on CUDA."""
    model_paths: dict[str, Annotated[Path, Field(strict=False)]] = Field(default_factory=dict)
    """Directory of each pretrained model, by the digest of its files."""
    plugins: PluginFiles = PluginFiles()
    """Files of plug-ins."""
    data_paths: dict[str, Annotated[Path, Field(strict=False)]] = Field(default_factory=dict)
    """Place of each file of prompts and of a persisted data set, by the digest of its content."""
    inherited: Inherited = Inherited()
    """Settings of the seeds' recipes without effect here."""

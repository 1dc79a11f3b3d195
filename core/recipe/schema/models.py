"""Section ``models``: who learns, who teaches, and in which arithmetic."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from core.recipe.schema.adapters import AdapterSource, Lora, TeacherAdapter
from core.recipe.schema.plugin import NamedPlugin
from core.recipe.schema.qualification import Qualification
from core.recipe.schema.section import Section

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["none", "nf4", "int8"]
Attention = Literal["sdpa", "eager"]
ToyVocabulary = Literal["first", "second"]


def _concrete(dtype: Dtype) -> Dtype:
    """Replace ``auto``: identity may not depend on the device that happens to be present."""
    return "float32" if dtype == "auto" else dtype


class ToySize(Section):
    """Width and depth of the toy decoder."""

    hidden_size: int = Field(default=64, ge=8, le=512)
    """Width of the residual stream, channels; a multiple of twice ``num_heads``."""
    num_layers: int = Field(default=2, ge=1, le=8)
    """Decoder blocks."""
    num_heads: int = Field(default=4, ge=1, le=16)
    """Attention heads per block."""
    intermediate_size: int = Field(default=128, ge=8, le=2048)
    """Width of the feed-forward layer, channels."""
    max_position_embeddings: int = Field(default=1024, ge=64, le=8192)
    """Longest sequence that the model accepts, tokens."""


class Model(Section):
    """What identifies the weights and the arithmetic of one model."""

    model_id: str = Field(min_length=1)
    """Hub id or local directory; for the toy backend a label."""
    revision: str | None = None
    """Commit on the Hub, 40 hexadecimal digits; needed for a Hub id, unread for a directory."""
    tokenizer_id: str | None = None
    """Where the tokenizer comes from; null means ``model_id``."""
    tokenizer_revision: str | None = None
    """Commit of the tokenizer on the Hub; null means ``revision``."""
    dtype: Annotated[Dtype, AfterValidator(_concrete)] = "float32"
    """Arithmetic of the weights. ``auto`` means float32, whatever the device."""
    quantization: Quantization = "none"
    """Storage of the frozen weights: 4-bit NF4, 8-bit integers, or as they are."""
    attn_implementation: Attention = "sdpa"
    """Attention kernel; it changes the last bits."""
    prepare_kbit_training: bool = True
    """Cast norms and head to float32 before training a quantised model."""
    trust_remote_code: bool = False
    """Run Python code that ships with weights or tokenizer; without it, such a model is refused."""
    toy: ToySize = ToySize()
    """Size of the toy decoder; read by the toy backend only."""


class Student(Model):
    """The model that is trained."""

    lora: Lora = Lora()
    """Low-rank adapter that is trained in place of the full weights (Hugging Face backend)."""
    adapter: AdapterSource | None = None
    """Adapter weights to start from; null starts from a fresh adapter."""


class Teacher(Model):
    """The frozen model that is imitated."""

    mode: Literal["standard", "privileged_context"] = "standard"
    """``privileged_context`` lets the teacher read the environment's hint before the episode."""
    toy_teacher_seed: int = Field(default=99, ge=0)
    """Seed of the toy teacher's initial weights and of the order of its traces."""
    toy_pretrain_steps: int = Field(default=120, ge=0, le=100_000)
    """Optimizer steps on oracle traces that make the toy teacher."""
    toy_pretrain_lr: float = Field(default=3e-3, gt=0, le=1)
    """Peak learning rate of those steps."""
    toy_pretrain_batch_size: int | None = Field(default=None, ge=1, le=1024)
    """Traces per step; null means ``train.gradient_accumulation_steps``."""
    toy_vocabulary: ToyVocabulary = "first"
    """Tokenizer of the toy teacher; the student's is the first. ``second`` has other tokens and ids
    and needs ``loss.cross_tokenizer``."""
    adapter: TeacherAdapter | None = None
    """Adapter that was trained for teaching, with the evidence it must show."""
    plugin: NamedPlugin | None = None
    """Code of your own that teaches in place of a model; null for a model."""
    qualification: Qualification | None = None
    """What it must show by acting itself before the run goes on; null asks for nothing."""


class Reference(Model):
    """A frozen third model; how far the student is from it is recorded, and never trained on."""

    adapter: AdapterSource | None = None
    """Adapter of the reference; null is the base, and is refused where the student starts from an
    adapter."""


class Models(Section):
    """The student, its teacher, and the library that runs them."""

    backend: Literal["toy", "hf"] = "toy"
    """``toy``: the small decoder of this project; ``hf``: any transformers causal decoder."""
    student: Student
    """The model that is trained."""
    teacher: Teacher
    """The model that is imitated."""
    reference: Reference | None = None
    """A frozen model whose divergence from the student is recorded; ``shared_backbone`` only."""
    toy_vocabulary: Literal["calculator", "worlds", "recovery"] | None = None
    """Whose transcripts the toy tokenizer makes short: the calculator's, all five worlds', or those
    of ``sqlite_recovery`` with every name of its schemas; null means ``calculator``."""

"""How large a decoder is, from its configuration alone: no torch, no weights.

Counts are of Llama's layout (four attention projections, a gated feed-forward layer of three). The
families that run here share it but for norms and biases, and Phi's feed-forward layer has no gate.
"""

from dataclasses import dataclass
from pathlib import Path

from core.models.source import read_config
from core.recipe.schema.adapters import Lora
from core.recipe.specs import ModelSpec

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per 4-bit weight: an 8-bit scale per 64 of them, and a float32 one per 256 scales (Dettmers
et al. 2023, section 3)."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of one decoder and how its numbers are stored."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    inner: int
    rows: int
    """Rows of the embedding."""
    tied: bool
    """Whether the head is the embedding."""
    dtype: str
    quantization: str = "none"
    dense_dtype: str | None = None
    """Arithmetic of what is not quantised; null is ``dtype``."""

    @property
    def number_bytes(self) -> int:
        """Bytes of a hidden state's number."""
        return BYTES[self.dense_dtype or self.dtype]

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of the linear layers of one block."""
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        return {
            "q_proj": (self.hidden, queries),
            "k_proj": (self.hidden, keys),
            "v_proj": (self.hidden, keys),
            "o_proj": (queries, self.hidden),
            "gate_proj": (self.hidden, self.inner),
            "up_proj": (self.hidden, self.inner),
            "down_proj": (self.inner, self.hidden),
        }

    @property
    def linear_weights(self) -> int:
        """Weights of all blocks' linear layers: what quantisation stores in fewer bits."""
        return self.layers * sum(ins * outs for ins, outs in self.projections.values())

    @property
    def other_weights(self) -> int:
        """Embedding, head and norms."""
        tables = self.rows * self.hidden * (1 if self.tied else 2)
        return tables + (2 * self.layers + 1) * self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights as they are stored."""
        per_weight = {"none": BYTES[self.dtype], "int8": 1.0, "nf4": NF4_BYTES}[self.quantization]
        scales = 0
        if self.quantization == "int8":
            scales = 4 * self.layers * sum(outs for _, outs in self.projections.values())
        return (
            int(self.linear_weights * per_weight)
            + scales
            + self.other_weights * (self.number_bytes)
        )

    def adapter_weights(self, lora: Lora) -> int:
        """Return the numbers of a low-rank adapter."""
        sizes = [size for name, size in self.projections.items() if name in lora.target_modules]
        return self.layers * lora.r * sum(ins + outs for ins, outs in sizes)

    def cache_bytes(self, rows: int, width: int) -> int:
        """Return the bytes of keys and values of ``rows`` rows of ``width`` slots."""
        return 2 * self.layers * rows * self.kv_heads * width * self.head_width * self.number_bytes


def shape_of(spec: ModelSpec, directory: Path | None, toy_rows: int) -> ModelShape:
    """Return the shape of a recipe's model.

    Args:
        spec: The model.
        directory: Where a pretrained model lies; null for a toy.
        toy_rows: Tokens of a toy's vocabulary.

    Raises:
        ModelSourceError: There is no readable ``config.json``.
    """
    if spec.toy is not None:
        size = spec.toy
        return ModelShape(
            hidden=size.hidden_size,
            layers=size.num_layers,
            heads=size.num_heads,
            kv_heads=size.num_heads,
            head_width=size.hidden_size // size.num_heads,
            inner=size.intermediate_size,
            rows=toy_rows,
            tied=True,
            dtype="float32",
        )
    assert directory is not None, "a pretrained model has a directory"
    config = read_config(directory / "config.json")
    heads = config["num_attention_heads"]
    quantised = spec.quantization or "none"
    return ModelShape(
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_width=config.get("head_dim") or config["hidden_size"] // heads,
        inner=config["intermediate_size"],
        rows=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", True)),
        dtype=spec.dtype,
        quantization=quantised,
        dense_dtype="float32" if quantised != "none" and spec.prepare_kbit_training else None,
    )

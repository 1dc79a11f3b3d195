"""Model directories of two layers with random weights, and the real one where it can be had."""

import os
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

REPO = Path(__file__).resolve().parents[3]
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (("t", "o"), ("to", "o"), ("too", "l"), ("1", "2"), ("Ġ", "a"))
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
LOCAL = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
FAMILIES = {
    "gemma": (GemmaForCausalLM, GemmaConfig, {"head_dim": 8}),
    "gemma3_text": (
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        {"head_dim": 8, "final_logit_softcapping": 3.0, **LOCAL},
    ),
    "granite": (
        GraniteForCausalLM,
        GraniteConfig,
        {
            "logits_scaling": 8.0,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.4,
            "tie_word_embeddings": True,
        },
    ),
    "phi": (PhiForCausalLM, PhiConfig, {"tie_word_embeddings": False}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": True}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": False}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"tie_word_embeddings": False, "head_dim": 16}),
}


SQUASHED = (
    Gemma2ForCausalLM,
    Gemma2Config,
    {"head_dim": 8, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 5.0, **LOCAL},
)
"""Gemma 2 squashes attention scores too, which is not for every kernel."""


def build_tokenizer(*, swap: tuple[str, str] | None = None, specials=SPECIALS) -> Tokenizer:
    """Byte-level BPE with five merges; ``swap`` exchanges the ids of two entries."""
    entries = [*specials, *sorted(ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    ids = {entry: index for index, entry in enumerate(entries)}
    if swap:
        ids[swap[0]], ids[swap[1]] = ids[swap[1]], ids[swap[0]]
    tokenizer = Tokenizer(BPE(vocab=ids, merges=list(MERGES)))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in specials])
    return tokenizer


def write_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>"
    ).save_pretrained(path)


def write_model(path: Path, family: str = "llama", *, spare_rows: int = 0, **changes) -> Path:
    """Write a random model of a family whose head has ``spare_rows`` rows without a token."""
    model_class, config_class, extra = {**FAMILIES, "gemma2": SQUASHED}[family]
    tokenizer = build_tokenizer()
    rows = tokenizer.get_vocab_size() + spare_rows
    config = config_class(vocab_size=rows, **{**SIZES, **extra, **changes})
    with torch.random.fork_rng(devices=[]):
        model = model_class(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.2 if parameter.ndim == 2 else noise * 0.1 + 1)
    model.save_pretrained(path)
    write_tokenizer(path, tokenizer)
    return path


@pytest.fixture
def tiny_tokenizer():
    return build_tokenizer


@pytest.fixture
def save_tokenizer():
    return write_tokenizer


@pytest.fixture
def save_tiny_model():
    return write_model


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session", params=sorted(FAMILIES))
def tiny_model(request, tmp_path_factory) -> Path:
    """One directory per family; heads have five rows more than the tokenizer has ids."""
    return write_model(tmp_path_factory.mktemp(request.param), request.param, spare_rows=5)


@pytest.fixture(scope="session")
def tiny_gemma2(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("gemma2"), "gemma2", spare_rows=5)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real model: $OPD_SMOLLM2, or models/smollm2-135m-instruct of this repository."""
    path = Path(os.environ.get("OPD_SMOLLM2", REPO / "models" / "smollm2-135m-instruct"))
    if not (path / "model.safetensors").is_file():
        pytest.skip(f"SmolLM2 is not at {path}: see README, `opd import-gguf`")
    return path

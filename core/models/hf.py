"""Decoders of transformers behind the ``Backend`` contract.

The trunk runs alone and the head is applied to chosen states, so ``[S, Q, V]`` logits never exist.
An engine step hands transformers our own cache: one cursor per row, a constant width, and a mask
that follows from positions alone. Models stay in eval mode, in training too; what an adapter drops
is said by ``dropout`` alone.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor, nn

from core.errors import ModelSourceError
from core.models.adapter_dropout import dropping
from core.models.adapter_weights import load_adapter_tensors
from core.models.adapters import make_trainable, plain_name
from core.models.attention import ROWWISE
from core.models.backend import PADDING_POSITIONS, KVCache
from core.models.checkpointing import checkpointed_layers, recomputing
from core.models.head import check_head, head_of
from core.models.loading import load_decoder, resolve_dtype
from core.models.parameters import overwrite
from core.models.quantization import (
    GradientCheck,
    gradient_check,
    quantisation_tensors,
    settle,
)
from core.models.row_cache import RowCache, cache_argument
from core.models.step_masks import sliding_window, step_mask
from core.models.tensor_files import parameter_digest
from core.models.tokenizer import load_tokenizer
from core.recipe.schema.adapters import Lora
from core.seeding import derive_seed

logger = logging.getLogger(__name__)

PHYSICAL_ROWS = 16
"""Rows of every engine step: a matrix product's bits change below four rows, and above sixteen a
small CPU gains little."""

PROBE_TOKENS = 8
"""Tokens on which the head path is compared with the model's own logits at load."""


class HFBackend:
    """A transformers decoder behind the ``Backend`` contract.

    Args:
        path: A local model directory.
        tokenizer_path: Directory of the tokenizer, if not ``path``.
        dtype: ``float32``, ``bfloat16``, ``float16`` (CUDA) or ``auto``.
        attn_implementation: ``sdpa`` or ``eager``.
        quantization: ``none``, ``nf4`` or ``int8``: how the frozen weights are stored.
        prepare_kbit_training: Whether what isn't quantised becomes float32; without quantisation
            it means nothing.
        device: Where the weights live.
        lora: None freezes every weight (a teacher); an enabled adapter is trained alone; a
            disabled one trains every weight.
        seed: Seed of the adapter's initial values.
        adapter: Directory of an adapter to start from, whose settings are ``lora``.
        gradient_checkpointing: Recompute layers in the backward pass; no bit changes.
        trust_remote_code: Whether Python code that ships with model and tokenizer may run.

    Raises:
        ModelSourceError: The directory is not a whole model of a family that runs here.
        BackendError: The dtype or the adapter's targets do not fit, or a quantised model has other
            gradients than its weights.
        MissingDependencyError: transformers, peft or bitsandbytes is not installed.
    """

    name = "hf"
    physical_rows = PHYSICAL_ROWS

    def __init__(
        self,
        path: Path,
        *,
        tokenizer_path: Path | None = None,
        dtype: str = "auto",
        attn_implementation: str = "sdpa",
        quantization: str = "none",
        prepare_kbit_training: bool = True,
        device: str | torch.device = "cpu",
        lora: Lora | None = None,
        seed: int = 0,
        adapter: Path | None = None,
        gradient_checkpointing: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        self.device = torch.device(device)
        self.dtype = resolve_dtype(dtype, self.device)
        self.tokenizer = load_tokenizer(tokenizer_path or path, trust_remote_code=trust_remote_code)
        self.quantization = quantization
        self._quantised = quantization != "none"
        model = load_decoder(
            path,
            dtype=self.dtype,
            attn_implementation=attn_implementation,
            quantization=quantization,
            device=self.device,
            trust_remote_code=trust_remote_code,
        )
        if self._quantised:
            settle(model, prepare=prepare_kbit_training)
            self.dtype = model.get_input_embeddings().weight.dtype
        make_trainable(model, lora, seed, self.dtype)
        if attn_implementation == "sdpa":
            model.set_attn_implementation(ROWWISE)
        self._model = model.to(self.device)
        self._decoder = model.get_decoder()
        self._recomputed = checkpointed_layers(model) if gradient_checkpointing else []
        self._cache_argument = cache_argument(self._decoder)
        self._head, self._window = head_of(model.config), sliding_window(model.config)
        self._parameters = {plain_name(name): p for name, p in model.named_parameters()}
        # Named once: libraries that add adapters flip ``requires_grad`` of what is there.
        self._trained = {name for name, p in self._parameters.items() if p.requires_grad}
        self._frozen_memo: tuple[list[tuple[int, int]], str] = ([], "")
        self.vocab_size = self.tokenizer.vocab_size
        self.hidden_size = model.config.hidden_size
        self.max_positions = model.config.max_position_embeddings
        self.step_positions = self.max_positions + PADDING_POSITIONS
        self._check_head(path)
        if self._quantised and self.trainable():
            self._check_fresh_gradients(seed)
        if adapter is not None:
            self.load_trainable(load_adapter_tensors(adapter))

    def hidden_states(self, token_ids_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Run the trunk over right-padded rows: causal attention alone hides the padding."""
        del lengths_B
        with recomputing(self._recomputed):
            return self._decoder(input_ids=token_ids_BT, use_cache=False).last_hidden_state

    def project(self, hidden_NH: Tensor) -> Tensor:
        """Apply the model's head: ``logits_NV`` over the tokenizer's ids.

        Heads are often padded to a round number of rows. The surplus has no token and is cut off,
        so that models of one family agree on V and no sampler can choose a row without a text.
        """
        logits_NR = self._model.get_output_embeddings()(hidden_NH)
        return self._head.finish(logits_NR[..., : self.vocab_size])

    def new_cache(self, rows: int, width: int) -> KVCache:
        """Allocate zeroed keys and values for ``rows`` rows of ``width`` slots."""
        config = self._model.config
        head_width = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        shape = (rows, config.num_key_value_heads, width, head_width)
        layers = range(config.num_hidden_layers)
        return KVCache(
            keys=[torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in layers],
            values=[torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in layers],
        )

    @torch.no_grad()
    def step(self, token_ids_SQ: Tensor, positions_SQ: Tensor, cache: KVCache) -> Tensor:
        """Write the tokens' keys and values at their positions and return ``hidden_SQH``."""
        output = self._decoder(
            input_ids=token_ids_SQ,
            attention_mask=step_mask(positions_SQ, cache.width, self.dtype, self._window),
            position_ids=positions_SQ,
            use_cache=False,
            **{self._cache_argument: RowCache(cache, positions_SQ)},
        )
        return output.last_hidden_state

    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that were made trainable at load, by plain name, in sorted order."""
        return {name: self._parameters[name] for name in sorted(self._trained)}

    def dropout(self, row_seeds: Sequence[int]) -> AbstractContextManager[None]:
        """Drop the adapter's inputs meanwhile, where its settings say so."""
        return dropping(self._model, row_seeds)

    def freeze(self) -> None:
        """Make every parameter part of ``frozen_digest``: a teacher is never trained."""
        self._trained = set()
        for parameter in self._parameters.values():
            parameter.requires_grad_(requires_grad=False)

    def frozen_digest(self, *, recheck: bool = False) -> str:
        """SHA-256 over names, types and bytes of the parameters that are not trained.

        Hashing 135 million float32 weights takes about half a second, so the digest is kept for as
        long as autograd's version counters say that nothing was written in place.

        Args:
            recheck: Hash again in any case; this also sees writes through ``.data``.
        """
        frozen: dict[str, Tensor] = {
            name: p for name, p in self._parameters.items() if name not in self._trained
        }
        if self._quantised:
            frozen |= quantisation_tensors(self._model)
        versions = [(p.data_ptr(), p._version) for p in frozen.values()]
        if recheck or self._frozen_memo[0] != versions:
            self._frozen_memo = (versions, parameter_digest(frozen))
        return self._frozen_memo[1]

    @torch.no_grad()
    def load_trainable(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite the trainable parameters in place.

        Raises:
            BackendError: Names or shapes differ; nothing was written.
        """
        overwrite(self.trainable(), tensors)

    @property
    def model(self) -> nn.Module:
        """The transformers model."""
        return self._model

    def check_gradients(self) -> None:
        """Do nothing: the base is this model's alone."""

    def move_to(self, device: torch.device) -> None:
        """Move every weight, and the scales of quantised ones, to a device."""
        self._model.to(device)
        self.device = device

    def gradient_check(self) -> GradientCheck | None:
        """Compare gradients through quantised layers with those of their dequantised twins.

        Returns:
            The comparison, or None: nothing is quantised, or nothing is trained.

        Raises:
            BackendError: They disagree.
        """
        trainable = self.trainable()
        if not self._quantised or not trainable:
            return None
        probe_1T = self._probe()
        lengths_1 = torch.tensor([probe_1T.shape[1]], device=self.device)
        # As a rollout does: what an inference pass leaves behind must not reach the gradients.
        with torch.no_grad():
            self.hidden_states(probe_1T, lengths_1)
        generator = torch.Generator().manual_seed(derive_seed("gradient_check"))
        weights_H = torch.randn(self.hidden_size, generator=generator).to(self.device)

        def loss() -> Tensor:
            return (self.hidden_states(probe_1T, lengths_1).float() @ weights_H).square().mean()

        return gradient_check(self._model, trainable, loss)

    @torch.no_grad()
    def _check_fresh_gradients(self, seed: int) -> None:
        """Run the check with every adapter matrix away from zero, then give them back."""
        before = {name: p.clone() for name, p in self.trainable().items()}
        for name, parameter in self.trainable().items():
            generator = torch.Generator().manual_seed(derive_seed(seed, "gradient_check", name))
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * max(parameter.shape) ** -0.5)
        try:
            with torch.enable_grad():
                found = self.gradient_check()
        finally:
            self.load_trainable(before)
        logger.info("gradients agree with the dequantised twin's: %s", found)

    def _probe(self) -> Tensor:
        """Return one row of token ids spread over the vocabulary."""
        step = max(1, self.vocab_size // PROBE_TOKENS)
        return torch.arange(0, self.vocab_size, step, device=self.device)[None]

    @torch.no_grad()
    def _check_head(self, path: Path) -> None:
        """Compare trunk and head with the model's own logits on a few tokens."""
        rows = self._model.get_output_embeddings().weight.shape[0]
        if self.vocab_size > rows:
            raise ModelSourceError(
                f"{path} has {rows} output rows but its tokenizer has ids up to "
                f"{self.vocab_size - 1}",
                "The tokenizer belongs to another model; copy the right one.",
            )
        probe_1T = self._probe()
        lengths_1 = torch.tensor([probe_1T.shape[1]], device=self.device)
        self.dropped_mass = check_head(
            path,
            self._model(input_ids=probe_1T, use_cache=False).logits,
            self.hidden_states(probe_1T, lengths_1),
            self.project,
        )

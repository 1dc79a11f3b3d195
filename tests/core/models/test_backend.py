"""The contract's promises on padding and on the width of heads, kept by a real decoder."""

import pytest
import torch

from core.losses.divergence import reverse_kl
from core.models.hf import HFBackend
from core.recipe.schema.adapters import Lora

ROWS, WIDTH = 16, 24
LORA = Lora(r=4, alpha=8)


def random_ids(rows, tokens):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 264, (rows, tokens), generator=generator)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_padded_rows_are_finite_in_every_arithmetic(tiny_llama, dtype, attention):
    """C42: pads stand on the right and see what precedes them, so no query attends to nothing.

    float16 is for CUDA; its arithmetic is tried here on a model that was loaded in float32.
    """
    wide = "float32" if dtype == "float16" else dtype
    backend = HFBackend(tiny_llama, dtype=wide, attn_implementation=attention, lora=LORA)
    if dtype == "float16":
        backend._model.half()
    ids_BT, lengths_B = random_ids(3, 10), torch.tensor([10, 4, 1])
    for row, length in enumerate(lengths_B.tolist()):
        ids_BT[row, length:] = backend.tokenizer.pad_id
    hidden_BTH = backend.hidden_states(ids_BT, lengths_B)
    assert bool(hidden_BTH.isfinite().all())
    real_BT = torch.arange(10) < lengths_B[:, None]
    backend.project(hidden_BTH[real_BT]).float().logsumexp(-1).sum().backward()
    gradients = [parameter.grad for parameter in backend.trainable().values()]
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    cache = backend.new_cache(ROWS, WIDTH)
    if dtype != "float16":  # its cache has the arithmetic of the load
        states = backend.step(random_ids(ROWS, 3), torch.arange(3).expand(ROWS, -1), cache)
        assert bool(states.isfinite().all())


@pytest.mark.parametrize(("own", "theirs"), [(4, 10), (10, 4), (0, 7)])
def test_heads_of_unequal_width_are_cut_to_the_real_ids_before_the_softmax(
    tmp_path, save_tiny_model, own, theirs
):
    """C64, C66: 152,064 and 151,936 rows of one tokenizer; nothing is cut to the shorter head."""
    backends = [
        HFBackend(save_tiny_model(tmp_path / name, spare_rows=spare))
        for name, spare in (("student", own), ("teacher", theirs))
    ]
    ids_BT, lengths_B = random_ids(2, 9), torch.tensor([9, 9])
    rows = []
    for backend, spare in zip(backends, (own, theirs), strict=True):
        hidden_NH = backend.hidden_states(ids_BT, lengths_B).flatten(0, 1)
        whole_NR = backend._model.get_output_embeddings()(hidden_NH)
        assert whole_NR.shape[-1] == 264 + spare
        logits_NV = backend.project(hidden_NH)
        assert torch.equal(logits_NV, whole_NR[:, :264])
        torch.testing.assert_close(logits_NV.softmax(-1).sum(-1), torch.ones(len(hidden_NH)))
        probe_1T = backend._probe()
        probe_1TR = backend._model(input_ids=probe_1T, use_cache=False).logits
        lost = float(probe_1TR.float().softmax(-1)[..., 264:].sum(-1).max())
        assert backend.dropped_mass == pytest.approx(lost, rel=1e-4, abs=1e-9)
        assert (backend.dropped_mass > 0.0) == (spare > 0)
        rows.append(logits_NV)
    assert bool(reverse_kl(rows[1], rows[0]).isfinite().all())
    assert backends[0].tokenizer.digest == backends[1].tokenizer.digest

"""Plain attention agrees with the fused kernel and, unlike it, forgets the batch."""

from types import SimpleNamespace

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from core.models.attention import rowwise_attention

ROWS, HEADS, KEY_HEADS, WIDTH, HEAD_WIDTH = 16, 9, 3, 271, 64


def layer(groups=HEADS // KEY_HEADS):
    return SimpleNamespace(num_key_value_groups=groups, is_causal=True, training=False)


def inputs(tokens, dtype=torch.float32):
    generator = torch.Generator().manual_seed(tokens)

    def draw(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    positions = (torch.arange(ROWS) * 7)[:, None] + torch.arange(tokens)
    later = (torch.arange(WIDTH) > positions[..., None])[:, None]
    mask = torch.zeros(later.shape, dtype=dtype).masked_fill_(later, -torch.inf)
    return [
        draw(ROWS, HEADS, tokens, HEAD_WIDTH),
        draw(ROWS, KEY_HEADS, WIDTH, HEAD_WIDTH),
        draw(ROWS, KEY_HEADS, WIDTH, HEAD_WIDTH),
        mask,
    ]


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("scaling", [None, 0.5])
def test_it_computes_what_the_fused_kernel_computes(tokens, scaling):
    ours, weights = rowwise_attention(layer(), *inputs(tokens), scaling=scaling)
    theirs, _ = sdpa_attention_forward(layer(), *inputs(tokens), scaling=scaling)
    assert weights is None
    assert ours.shape == (ROWS, tokens, HEADS, HEAD_WIDTH)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tokens", [1, 2, 5, 16])
def test_a_row_keeps_its_bits_wherever_it_lies(tokens, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        plain, _ = rowwise_attention(layer(), *inputs(tokens))
        moved, _ = rowwise_attention(layer(), *[t.roll(5, 0) for t in inputs(tokens)])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(moved, plain.roll(5, 0))


def test_without_a_mask_attention_is_causal():
    query, key, value, _ = inputs(5)
    ours, _ = rowwise_attention(layer(), query, key[:, :, :5], value[:, :, :5], None)
    theirs, _ = sdpa_attention_forward(layer(), query, key[:, :, :5], value[:, :, :5], None)
    assert torch.equal(ours, theirs)
    changed = value[:, :, :5].clone()
    changed[:, :, 3:] = 0
    again, _ = rowwise_attention(layer(), query, key[:, :, :5], changed, None)
    assert torch.equal(again[:, :3], ours[:, :3])


def test_bfloat16_takes_the_fused_kernel_which_adds_in_float32():
    ours, _ = rowwise_attention(layer(), *inputs(1, torch.bfloat16))
    theirs, _ = sdpa_attention_forward(layer(), *inputs(1, torch.bfloat16))
    assert torch.equal(ours, theirs)

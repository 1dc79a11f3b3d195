"""The head that is applied to chosen states is the model's own, whatever it does to its logits."""

import json
import shutil

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from core.errors import ModelSourceError
from core.losses.chunked import selected_position_loss
from core.losses.targets import ExactTargets
from core.models import hf
from core.models.head import Head, head_of
from core.models.hf import HFBackend

IDS_BT = torch.arange(22).reshape(2, 11) + 40
LENGTHS_B = torch.tensor([11, 11])


def transformers_logits(path, **options):
    model = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, **options).eval()
    with torch.no_grad():
        return model(input_ids=IDS_BT, use_cache=False).logits


def test_logits_are_divided_and_squashed_as_written():
    logits_NV = torch.tensor([[-30.0, 0.0, 3.0]])
    assert Head().finish(logits_NV) is logits_NV
    assert torch.equal(Head(divisor=4.0).finish(logits_NV), logits_NV / 4)
    squashed = Head(softcap=3.0).finish(logits_NV)
    torch.testing.assert_close(squashed, torch.tensor([[-3.0, 0.0, 3 * 0.7615942]]))


def test_the_logits_are_those_of_transformers(tiny_model):
    backend = HFBackend(tiny_model)
    ours_BTV = backend.project(backend.hidden_states(IDS_BT, LENGTHS_B))
    theirs_BTR = transformers_logits(tiny_model)
    torch.testing.assert_close(ours_BTV, theirs_BTR[..., :264], rtol=0, atol=2e-5)


def test_gemma_2_squashes_scores_and_logits_under_the_eager_kernel(tiny_gemma2):
    backend = HFBackend(tiny_gemma2, attn_implementation="eager")
    assert head_of(backend._model.config) == Head(softcap=3.0)
    ours_BTV = backend.project(backend.hidden_states(IDS_BT, LENGTHS_B))
    theirs_BTR = transformers_logits(tiny_gemma2, attn_implementation="eager")
    torch.testing.assert_close(ours_BTV, theirs_BTR[..., :264], rtol=0, atol=2e-5)
    assert float(ours_BTV.abs().max()) < 3.0


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text"])
def test_steps_see_the_window_of_local_layers(family, tmp_path, save_tiny_model):
    """Eleven tokens through a window of five, one by one and in one forward pass."""
    backend = HFBackend(save_tiny_model(tmp_path, family), attn_implementation="eager")
    whole = backend.hidden_states(IDS_BT[:1], torch.tensor([11]))
    cache = backend.new_cache(backend.physical_rows, 16)
    for position in range(11):
        ids_S1 = IDS_BT[:1, position, None].expand(backend.physical_rows, 1)
        states = backend.step(ids_S1, torch.full((backend.physical_rows, 1), position), cache)
        torch.testing.assert_close(states[0, 0], whole[0, position], rtol=0, atol=2e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "granite", "gemma3_text"])
def test_tied_and_untied_heads_both_run(family, tied, tmp_path, save_tiny_model):
    path = save_tiny_model(tmp_path, family, tie_word_embeddings=tied)
    backend = HFBackend(path)
    ours_BTV = backend.project(backend.hidden_states(IDS_BT, LENGTHS_B))
    torch.testing.assert_close(ours_BTV, transformers_logits(path), rtol=0, atol=2e-5)


def test_a_biased_head_keeps_its_bias(tmp_path, save_tiny_model):
    backend = HFBackend(save_tiny_model(tmp_path, "phi"))
    bias_V = backend._model.lm_head.bias
    assert bias_V.abs().max() > 0
    assert torch.equal(backend.project(torch.zeros(1, 32))[0], bias_V[:264])


def test_a_four_bit_head_is_called_and_not_read_as_a_matrix(tmp_path, save_tiny_model):
    """C62: a loss in chunks through an NF4 head is that of its dequantised twin."""
    bitsandbytes = pytest.importorskip("bitsandbytes")
    backend = HFBackend(save_tiny_model(tmp_path, "qwen2"))
    dense = backend._model.lm_head
    layer = bitsandbytes.nn.Linear4bit(32, 264, bias=False, quant_type="nf4")
    layer.weight = bitsandbytes.nn.Params4bit(
        dense.weight.detach().clone(), requires_grad=False, quant_type="nf4"
    )
    backend._model.set_output_embeddings(layer.to("cpu"))
    assert backend._model.lm_head.weight.dtype is torch.uint8
    matrix_VH = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    hidden_NH = backend.hidden_states(IDS_BT, LENGTHS_B)[0]
    targets = ExactTargets(torch.roll(hidden_NH, 1, 0), backend.project, None)

    def loss(project):
        states_NH = hidden_NH.clone().requires_grad_()
        found = selected_position_loss(
            states_NH, project, targets, torch.ones(11, dtype=torch.float64),
            divergence="reverse_kl", chunk_size=4, denominator=11.0, backward=True,
        )  # fmt: skip
        return found.loss, states_NH.grad

    value, gradient = loss(backend.project)
    expected, its_gradient = loss(lambda states_NH: states_NH @ matrix_VH.T)
    torch.testing.assert_close(value, expected, rtol=0.02, atol=0.02)
    assert nn.functional.cosine_similarity(gradient.flatten(), its_gradient.flatten(), 0) > 0.99


@pytest.mark.parametrize(
    ("family", "missed"), [("granite", Head()), ("gemma3_text", Head()), ("llama", Head(2.0))]
)
def test_a_head_that_is_not_understood_is_refused(
    family, missed, tmp_path, save_tiny_model, monkeypatch
):
    monkeypatch.setattr(hf, "head_of", lambda _: missed)
    with pytest.raises(ModelSourceError, match="do not give the model's own logits"):
        HFBackend(save_tiny_model(tmp_path, family))


def test_a_kernel_that_cannot_squash_scores_is_refused(tiny_gemma2):
    with pytest.raises(ModelSourceError, match=r"squashes attention scores.*sdpa.*\n.*eager"):
        HFBackend(tiny_gemma2)


def test_a_model_that_sees_later_tokens_is_refused(tiny_gemma2, tmp_path):
    path = shutil.copytree(tiny_gemma2, tmp_path / "model")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "use_bidirectional_attention": True}))
    with pytest.raises(ModelSourceError, match="attends to later tokens"):
        HFBackend(path, attn_implementation="eager")

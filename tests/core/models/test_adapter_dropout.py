"""An adapter's dropout is on in an update alone, and its masks know only seeds and places."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.models.adapter_dropout import RowDropout
from core.models.hf import HFBackend
from core.recipe.runtime import Runtime
from core.recipe.schema.adapters import Lora
from core.training.group import Example, Objective, accumulate
from core.training.memory import ChunkSize

LORA = Lora(r=4, alpha=8, dropout=0.2)
IDS_BT = torch.randint(0, 264, (4, 12), generator=torch.Generator().manual_seed(2))
LENGTHS_B = torch.tensor([12, 7, 12, 9])
SEEDS = [5, 6, 7, 8]


def student(path, **changes):
    """Return a backend whose adapter is away from zero."""
    backend = HFBackend(path, **{"lora": LORA, "seed": 3, **changes})
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in backend.trainable().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return backend


def gradients(backend, batch_size, row_seeds=SEEDS):
    """Return the gradient of four examples' cross-entropy, in physical batches of a size."""
    examples = [
        Example(
            trajectory_id=f"t{row}",
            token_ids=IDS_BT[row, : int(length)].tolist(),
            prediction_positions=range(2, int(length) - 1),
            target_ids=IDS_BT[row, 3 : int(length)].tolist(),
            weights=[1.0] * (int(length) - 3),
            span_types=["assistant_final"] * (int(length) - 3),
        )
        for row, length in enumerate(LENGTHS_B)
    ]
    runtime = Runtime(trajectory_batch_size=batch_size)
    arguments = (lambda _: None, Objective("token-mean"), runtime, ChunkSize(8, 0, 8))
    accumulate(backend, examples, *arguments, row_seeds)
    return torch.cat([p.grad.flatten() for p in backend.trainable().values()])


def test_inputs_are_dropped_at_the_rate_and_kept_ones_grow():
    layer = RowDropout(0.2, "q_proj")
    inputs_BTI = torch.ones(4, 50, 96)
    assert layer(inputs_BTI) is inputs_BTI
    layer.keys_B = torch.tensor(SEEDS)
    dropped_BTI = layer(inputs_BTI)
    assert sorted(set(dropped_BTI.flatten().tolist())) == pytest.approx([0.0, 1.25], abs=1e-4)
    # 19,200 draws: four standard deviations are 0.0116.
    assert float((dropped_BTI == 0).double().mean()) == pytest.approx(0.2, abs=0.0116)
    assert float(dropped_BTI.mean()) == pytest.approx(1.0, abs=0.0145)


def test_layers_rows_and_positions_have_masks_of_their_own():
    keys_B = torch.tensor(SEEDS)
    first = RowDropout(0.5, "q_proj").kept(keys_B, 6, 64)
    other = RowDropout(0.5, "k_proj").kept(keys_B, 6, 64)
    masks = [*first.flatten(0, 1).tolist(), *other.flatten(0, 1).tolist()]
    assert len({tuple(mask) for mask in masks}) == 2 * 4 * 6


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(1, 9), st.integers(0, 7), st.integers(1, 40))
def test_a_rows_mask_does_not_depend_on_padding_or_company(key, tokens, padding, channels):
    layer = RowDropout(0.3, "q_proj")
    alone_1TI = layer.kept(torch.tensor([key]), tokens, channels)
    among_BTI = layer.kept(torch.tensor([17, key]), tokens + padding, channels)
    assert torch.equal(alone_1TI[0], among_BTI[1, :tokens])


def test_sampling_and_scoring_drop_nothing(tiny_llama):
    """C52: in torch's train mode two passes of this model differ; here they have equal bits."""
    dropping, plain = student(tiny_llama), student(tiny_llama, lora=Lora(r=4, alpha=8))
    modes = [module.training for module in dropping._model.modules()]
    expected_BTH = plain.hidden_states(IDS_BT, LENGTHS_B)
    assert torch.equal(dropping.hidden_states(IDS_BT, LENGTHS_B), expected_BTH)
    with dropping.dropout(SEEDS):
        in_update_BTH = dropping.hidden_states(IDS_BT, LENGTHS_B)
        again_BTH = dropping.hidden_states(IDS_BT, LENGTHS_B)
    assert torch.equal(in_update_BTH, again_BTH)
    assert (in_update_BTH - expected_BTH).abs().max() > 0.01
    assert torch.equal(dropping.hidden_states(IDS_BT, LENGTHS_B), expected_BTH)
    assert [module.training for module in dropping._model.modules()] == modes


def test_an_error_switches_dropout_off(tiny_llama):
    backend = student(tiny_llama)
    before_BTH = backend.hidden_states(IDS_BT, LENGTHS_B)
    with pytest.raises(RuntimeError), backend.dropout(SEEDS):
        raise RuntimeError
    assert torch.equal(backend.hidden_states(IDS_BT, LENGTHS_B), before_BTH)


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_quantised_base_keeps_its_arithmetic_under_dropout(tiny_llama, kind):
    """C52 on 4 and 8 bits: no module changes its mode, and gradients stay those of the twin."""
    pytest.importorskip("bitsandbytes")
    backend = student(tiny_llama, quantization=kind)
    modes = [module.training for module in backend._model.modules()]
    gradients(backend, 4)
    assert [module.training for module in backend._model.modules()] == modes
    for parameter in backend.trainable().values():
        parameter.grad = None
    found = backend.gradient_check()
    assert found is not None
    assert found.cosine > 0.9999


@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_gradient_does_not_depend_on_micro_batches(tiny_llama, checkpointed):
    whole = gradients(student(tiny_llama, gradient_checkpointing=checkpointed), 4)
    for size in (1, 2, 3):
        split = gradients(student(tiny_llama, gradient_checkpointing=checkpointed), size)
        torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-7)
    undropped = gradients(student(tiny_llama), 4, row_seeds=None)
    assert (undropped - whole).norm() > 0.05 * whole.norm()


def test_the_gradient_is_that_of_the_loss_with_those_masks(tiny_llama):
    """A central difference along one direction, in which the masks are held."""
    backend = student(tiny_llama)
    gradient = gradients(backend, 4)
    parameters = list(backend.trainable().values())
    generator = torch.Generator().manual_seed(4)
    direction = [torch.randn(p.shape, generator=generator) for p in parameters]

    def loss(step):
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.add_(step * d)
        with backend.dropout(SEEDS), torch.no_grad():
            hidden_BTH = backend.hidden_states(IDS_BT, LENGTHS_B)
            logps_BTV = backend.project(hidden_BTH).double().log_softmax(-1)
        taken = [
            -logps_BTV[row, position, IDS_BT[row, position + 1]]
            for row, length in enumerate(LENGTHS_B.tolist())
            for position in range(2, length - 1)
        ]
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.sub_(step * d)
        return float(torch.stack(taken).mean())

    slope = (loss(1e-3) - loss(-1e-3)) / 2e-3
    expected = float(gradient @ torch.cat([d.flatten() for d in direction]))
    assert slope == pytest.approx(expected, rel=0.02)


def test_the_global_generator_is_not_touched(tiny_llama):
    backend, before = student(tiny_llama, gradient_checkpointing=True), torch.get_rng_state()
    gradients(backend, 2)
    assert torch.equal(torch.get_rng_state(), before)

"""The backend computes what transformers computes, row by row, and trains only what it may."""

import shutil
import warnings

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from core.errors import BackendError, ModelSourceError
from core.models.backend import Backend
from core.models.hf import HFBackend
from core.recipe.schema.adapters import Lora
from core.recipe.training_specs import OptimizerSpec
from core.training.optimizer import NO_MOMENTS, Optimizer

ROWS, WIDTH = 16, 24
LORA = Lora(r=4, alpha=8)
ADAMW = OptimizerSpec(
    name="adamw", weight_decay=0.1, betas=(0.9, 0.999), eps=1e-8, max_grad_norm=1.0
)
Q_PROJ_A = "model.layers.0.self_attn.q_proj.lora_A.weight"


def own_logits(backend, ids_BT):
    """Logits of transformers' own forward pass."""
    return backend._model(input_ids=ids_BT, use_cache=False).logits[..., : backend.vocab_size]


def random_ids(rows, tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 264, (rows, tokens), generator=generator)


def decode_rows(backend, rows, slots, cursor_step=1):
    """Feed each row into its slot, ``cursor_step`` tokens per engine step; stale slots hold 5s."""
    cache = backend.new_cache(backend.physical_rows, WIDTH)
    for tensor in (*cache.keys, *cache.values):
        tensor.fill_(5.0)
    length = len(rows[0])
    states = []
    for start in range(0, length, cursor_step):
        ids_SQ = torch.full((backend.physical_rows, cursor_step), 3)
        for row, slot in zip(rows, slots, strict=True):
            ids_SQ[slot] = row[start : start + cursor_step]
        positions_SQ = torch.arange(start, start + cursor_step).expand(backend.physical_rows, -1)
        states.append(backend.step(ids_SQ, positions_SQ, cache)[list(slots)])
    return torch.cat(states, dim=1)


def test_it_is_a_backend(tiny_model):
    backend = HFBackend(tiny_model)
    assert isinstance(backend, Backend)
    assert (backend.physical_rows, backend.hidden_size, backend.max_positions) == (16, 32, 256)
    assert (backend.dtype, backend.vocab_size) == (torch.float32, 264)


def test_trunk_and_head_give_the_models_own_logits(tiny_model):
    backend = HFBackend(tiny_model)
    ids_BT = random_ids(3, 12)
    hidden_BTH = backend.hidden_states(ids_BT, torch.tensor([12, 12, 12]))
    torch.testing.assert_close(
        backend.project(hidden_BTH), own_logits(backend, ids_BT), rtol=0, atol=1e-5
    )


def test_head_rows_without_a_token_are_cut_off(tiny_model):
    backend = HFBackend(tiny_model)
    assert backend._model.get_output_embeddings().weight.shape[0] == 269
    assert backend.project(torch.zeros(2, 32)).shape == (2, 264)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("cursor_step", [1, 4])
def test_steps_give_what_one_forward_pass_gives(tiny_model, attention, cursor_step):
    backend = HFBackend(tiny_model, attn_implementation=attention)
    rows = random_ids(ROWS, 12)
    stepped = decode_rows(backend, rows, range(ROWS), cursor_step)
    whole = backend.hidden_states(rows, torch.full((ROWS,), 12))
    torch.testing.assert_close(stepped, whole, rtol=0, atol=2e-5)


def test_greedy_decoding_is_that_of_generate(tiny_model):
    backend = HFBackend(tiny_model)
    prompt = random_ids(1, 6)
    theirs = backend._model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=10,
        do_sample=False,
        suppress_tokens=list(range(backend.vocab_size, 269)),
        eos_token_id=None,
        pad_token_id=0,
    )[0]
    cache = backend.new_cache(ROWS, WIDTH)
    ids, ours = prompt.expand(ROWS, -1), prompt[0].tolist()
    positions = torch.arange(6).expand(ROWS, -1)
    for position in range(6, 16):
        hidden_SH = backend.step(ids, positions, cache)[:, -1]
        ids = backend.project(hidden_SH).argmax(-1)[:, None]
        ours.append(int(ids[0, 0]))
        positions = torch.full((ROWS, 1), position)
    assert ours == theirs.tolist()


def test_rows_have_their_own_cursors(tiny_llama):
    backend = HFBackend(tiny_llama)
    rows = random_ids(ROWS, 12)
    whole = backend.hidden_states(rows, torch.full((ROWS,), 12))
    cache = backend.new_cache(ROWS, WIDTH)
    lags = torch.arange(ROWS) % 4
    for clock in range(15):
        positions = (clock - lags).clamp(0, 11)
        ids = rows.gather(1, positions[:, None])
        states = backend.step(ids, positions[:, None], cache)[:, 0]
        live = (clock - lags >= 0) & (clock - lags < 12)
        expected = whole[torch.arange(ROWS), positions]
        torch.testing.assert_close(states[live], expected[live], rtol=0, atol=2e-5)


def test_tokens_that_pad_a_step_leave_no_trace(tiny_llama):
    backend = HFBackend(tiny_llama)
    rows = random_ids(ROWS, 8)
    plain = decode_rows(backend, rows, range(ROWS), 4)
    cache = backend.new_cache(ROWS, WIDTH)
    first = torch.cat([rows[:, :4], torch.full((ROWS, 2), 9)], dim=1)
    backend.step(first, torch.arange(6).expand(ROWS, -1), cache)
    second = backend.step(rows[:, 4:], torch.arange(4, 8).expand(ROWS, -1), cache)
    torch.testing.assert_close(second, plain[:, 4:], rtol=0, atol=0)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cursor_step", [1, 4])
def test_a_rows_bits_do_not_depend_on_its_slot_or_company(tiny_llama, dtype, cursor_step, threads):
    backend = HFBackend(tiny_llama, dtype=dtype, lora=LORA)
    rows = random_ids(ROWS, 8)
    crowd = decode_rows(backend, rows, range(ROWS), cursor_step)
    moved = decode_rows(backend, rows.flip(0), range(ROWS), cursor_step).flip(0)
    alone = decode_rows(backend, rows[4:5], [11], cursor_step)
    assert torch.equal(moved, crowd)
    assert torch.equal(alone[0], crowd[4])


def test_padding_never_reaches_a_real_position(tiny_model):
    backend = HFBackend(tiny_model)
    ids_BT, lengths_B = random_ids(2, 10), torch.tensor([10, 6])
    changed_BT = ids_BT.clone()
    changed_BT[1, 6:] = 2
    first = backend.hidden_states(ids_BT, lengths_B)
    second = backend.hidden_states(changed_BT, lengths_B)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1, :6], second[1, :6])
    assert torch.isfinite(second).all()


def test_a_copied_row_continues_as_its_source(tiny_llama):
    backend = HFBackend(tiny_llama)
    rows = random_ids(ROWS, 6)
    source, copy = backend.new_cache(ROWS, WIDTH), backend.new_cache(ROWS, WIDTH)
    backend.step(rows, torch.arange(6).expand(ROWS, -1), source)
    for row in range(ROWS):
        copy.copy_row(source, 3, row, 6)
    after = backend.step(torch.full((ROWS, 1), 8), torch.full((ROWS, 1), 6), copy)
    expected = backend.step(torch.full((ROWS, 1), 8), torch.full((ROWS, 1), 6), source)[3]
    assert torch.equal(after[0], expected)


def test_a_teacher_trains_nothing(tiny_llama):
    backend = HFBackend(tiny_llama)
    assert backend.trainable() == {}
    ids = random_ids(1, 4)
    assert not backend.hidden_states(ids, torch.tensor([4])).requires_grad


def test_without_an_adapter_every_weight_is_trained(tiny_llama):
    backend = HFBackend(tiny_llama, lora=Lora(enabled=False))
    names = list(backend.trainable())
    assert names == sorted(names)
    assert len(names) == 2 + 2 * 9
    backend.freeze()
    assert backend.trainable() == {}


def test_an_adapter_is_trained_alone_under_stable_names(tiny_llama):
    backend = HFBackend(tiny_llama, lora=LORA)
    names = list(backend.trainable())
    assert names == sorted(names)
    assert len(names) == 28
    assert Q_PROJ_A in names
    backend.hidden_states(random_ids(1, 4), torch.tensor([4])).sum().backward()
    gradients = {name: p.grad for name, p in backend.trainable().items()}
    assert all(gradient is not None for gradient in gradients.values())
    assert gradients[Q_PROJ_A.replace("lora_A", "lora_B")].abs().max() > 0


def test_what_is_trained_is_named_once_whatever_a_library_flips(tiny_llama):
    """C57: an adapter that is added later flips ``requires_grad``; no list here follows it."""
    backend = HFBackend(tiny_llama, lora=LORA)
    names, frozen = list(backend.trainable()), backend.frozen_digest()
    other = peft.LoraConfig(r=2, target_modules=["q_proj"])
    with warnings.catch_warnings(action="ignore"):
        peft.inject_adapter_in_model(other, backend._model, adapter_name="teacher")
    for parameter in backend._model.parameters():
        parameter.requires_grad_(requires_grad=True)
    assert list(backend.trainable()) == names
    optimizer = Optimizer(backend.trainable(), ADAMW, NO_MOMENTS)
    backend.hidden_states(random_ids(1, 4), torch.tensor([4])).sum().backward()
    optimizer.step(1e-2)
    assert backend.frozen_digest(recheck=True) == frozen


def test_the_base_has_one_digest_with_and_without_an_adapter(tiny_llama):
    teacher, student = HFBackend(tiny_llama), HFBackend(tiny_llama, lora=LORA, seed=3)
    assert len(teacher.frozen_digest()) == 64
    assert student.frozen_digest() == teacher.frozen_digest()
    assert HFBackend(tiny_llama, dtype="bfloat16").frozen_digest() != teacher.frozen_digest()


def test_a_changed_base_changes_its_digest_and_a_changed_adapter_does_not(tiny_llama):
    backend = HFBackend(tiny_llama, lora=LORA)
    before = backend.frozen_digest()
    with torch.no_grad():
        backend.trainable()[Q_PROJ_A].add_(1)
        assert backend.frozen_digest() == before
        backend._parameters["model.norm.weight"].add_(1)
    assert backend.frozen_digest() != before


def test_a_recheck_sees_what_the_version_counters_do_not(tiny_llama):
    backend = HFBackend(tiny_llama)
    before = backend.frozen_digest()
    backend._parameters["model.norm.weight"].data.view(-1).numpy()[0] += 1
    assert backend.frozen_digest() == before
    assert backend.frozen_digest(recheck=True) != before


def test_trained_tensors_move_to_another_backend_bit_by_bit(tiny_llama):
    source = HFBackend(tiny_llama, lora=LORA, seed=1)
    with torch.no_grad():
        for parameter in source.trainable().values():
            parameter.add_(0.25)
    target = HFBackend(tiny_llama, lora=LORA, seed=2)
    target.load_trainable({name: p.detach().clone() for name, p in source.trainable().items()})
    ids, lengths = random_ids(2, 6), torch.tensor([6, 6])
    assert torch.equal(target.hidden_states(ids, lengths), source.hidden_states(ids, lengths))


def test_tensors_that_do_not_fit_are_refused_and_nothing_is_written(tiny_llama):
    backend = HFBackend(tiny_llama, lora=LORA)
    before = {name: p.detach().clone() for name, p in backend.trainable().items()}
    wrong = {name: torch.ones_like(p) for name, p in before.items()}
    wrong[Q_PROJ_A] = torch.ones(1, 1)
    with pytest.raises(BackendError, match=r"q_proj\.lora_A.*differs in name or shape"):
        backend.load_trainable(wrong)
    with pytest.raises(BackendError, match="differs in name or shape"):
        backend.load_trainable({})
    assert all(torch.equal(p, before[name]) for name, p in backend.trainable().items())


def test_training_every_weight_in_bfloat16_is_refused(tiny_llama):
    with pytest.raises(BackendError, match=r"dtype=bfloat16 cannot train every weight"):
        HFBackend(tiny_llama, dtype="bfloat16", lora=Lora(enabled=False))


def test_a_tokenizer_with_more_ids_than_the_head_has_rows_is_refused(tmp_path, save_tiny_model):
    path = save_tiny_model(tmp_path, spare_rows=-1)
    with pytest.raises(ModelSourceError, match=r"263 output rows .* ids up to 263"):
        HFBackend(path)


def test_weights_that_are_not_finite_are_refused(tiny_llama, tmp_path):
    path = shutil.copytree(tiny_llama, tmp_path / "model")
    stored = load_file(path / "model.safetensors")
    stored["model.norm.weight"][0] = float("nan")
    save_file(stored, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelSourceError, match="not finite"):
        HFBackend(path)


@pytest.mark.slow
def test_smollm2_rows_keep_their_bits(smollm2, threads):
    backend = HFBackend(smollm2, lora=Lora(r=8, alpha=16))
    rows = random_ids(ROWS, 2)
    for cursor_step in (1, 2):
        crowd = decode_rows(backend, rows, range(ROWS), cursor_step)
        moved = decode_rows(backend, rows.roll(5, 0), range(ROWS), cursor_step).roll(-5, 0)
        alone = decode_rows(backend, rows[4:5], [11], cursor_step)
        assert torch.equal(moved, crowd)
        assert torch.equal(alone[0], crowd[4])

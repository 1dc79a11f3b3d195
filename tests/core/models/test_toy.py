import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import BackendError
from core.models.backend import Backend
from core.models.toy import ToyBackend, ToyConfig, initial_weights, rotations
from core.models.toy_tokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer()
SMALL = ToyConfig(
    hidden_size=32, num_layers=2, num_heads=2, intermediate_size=48, max_position_embeddings=64
)
WIDTH = 40


def model(seed: int = 3, dtype: torch.dtype = torch.float32) -> ToyBackend:
    return ToyBackend(SMALL, seed, TOKENIZER, dtype=dtype)


def random_ids(rows: int, tokens: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, TOKENIZER.vocab_size, (rows, tokens), generator=generator)


def full(rows: int, tokens: int) -> torch.Tensor:
    return torch.full((rows,), tokens)


def decode_rows(backend: ToyBackend, ids_ST: torch.Tensor) -> torch.Tensor:
    cache = backend.new_cache(ids_ST.shape[0], WIDTH)
    columns = [
        backend.step(ids_ST[:, t : t + 1], full(ids_ST.shape[0], t)[:, None], cache)
        for t in range(ids_ST.shape[1])
    ]
    return torch.cat(columns, dim=1)


def test_the_backend_contract_is_met():
    backend = model()
    assert isinstance(backend, Backend)
    assert (backend.vocab_size, backend.hidden_size, backend.max_positions) == (
        TOKENIZER.vocab_size,
        32,
        64,
    )
    assert backend.physical_rows == 32


def test_parameters_are_counted_by_the_sizes():
    hidden, inner, layers = 32, 48, 2
    per_layer = 4 * hidden * hidden + 3 * hidden * inner + 2 * hidden
    expected = TOKENIZER.vocab_size * hidden + layers * per_layer + hidden
    assert sum(p.numel() for p in model().trainable().values()) == expected


def test_rotations_turn_by_the_formula():
    table = rotations(5, 4, torch.float64)
    assert table[3, 0].angle().item() == pytest.approx(3.0)
    assert table[3, 1].angle().item() == pytest.approx(3.0 / 100.0)


def test_weights_come_from_the_seed_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    first, second, other = (initial_weights(SMALL, seed, 11) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["embedding"], other["embedding"])


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 12), st.integers(0, 100))
def test_later_and_padding_tokens_never_reach_a_real_position(length: int, seed: int):
    backend = model()
    ids = random_ids(2, 12, seed)
    changed = ids.clone()
    changed[:, length:] = random_ids(2, 12, seed + 1)[:, length:]
    lengths = full(2, length)
    before, after = (backend.hidden_states(x, lengths)[:, :length] for x in (ids, changed))
    torch.testing.assert_close(before, after, atol=1e-6, rtol=0)


def test_padded_rows_are_finite_with_finite_gradients():
    """C42: pads stand on the right and see what precedes them, so no query attends to nothing."""
    backend = model()
    ids, lengths = random_ids(3, 10), torch.tensor([10, 4, 1])
    for row, length in enumerate(lengths.tolist()):
        ids[row, length:] = 0
    hidden = backend.hidden_states(ids, lengths)
    assert bool(hidden.isfinite().all())
    backend.project(hidden[torch.arange(10) < lengths[:, None]]).logsumexp(-1).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in backend.trainable().values())


def test_a_padded_batch_equals_one_row_at_a_time():
    backend = model()
    ids = random_ids(5, 20)
    lengths = torch.tensor([20, 3, 11, 7, 16])
    together = backend.hidden_states(ids, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = backend.hidden_states(ids[row : row + 1, :length], full(1, length))[0]
        torch.testing.assert_close(together[row, :length], alone, atol=3e-5, rtol=0)


def test_decoding_with_a_cache_equals_one_teacher_forced_pass():
    backend = model()
    ids = random_ids(4, 30)
    expected = backend.project(backend.hidden_states(ids, full(4, 30)))
    torch.testing.assert_close(
        backend.project(decode_rows(backend, ids)), expected, atol=1e-4, rtol=0
    )


def test_a_prefill_in_one_step_equals_token_by_token():
    backend = model()
    ids = random_ids(3, 12)
    cache = backend.new_cache(3, WIDTH)
    at_once = backend.step(ids, torch.arange(12).expand(3, 12), cache)
    torch.testing.assert_close(at_once, decode_rows(backend, ids), atol=1e-5, rtol=0)


def test_a_padding_query_past_the_cursor_is_overwritten_unseen():
    backend = model()
    ids = random_ids(2, 8)
    cache = backend.new_cache(2, WIDTH)
    backend.step(ids, torch.arange(8).expand(2, 8), cache)
    # Row 0 really has 5 tokens; its positions 5..7 hold padding that real tokens now replace.
    real = random_ids(2, 11, seed=9)
    real[0, :5], real[1, :8] = ids[0, :5], ids[1]
    positions = torch.tensor([[5, 6, 7], [8, 9, 10]])
    hidden = backend.step(torch.gather(real, 1, positions), positions, cache)
    alone = backend.hidden_states(real[:1, :8], full(1, 8))[0, 5:]
    torch.testing.assert_close(hidden[0], alone, atol=1e-5, rtol=0)


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(32)), st.integers(0, 50))
def test_a_row_has_the_same_bits_wherever_it_sits(order: list[int], seed: int):
    backend = model()
    ids = random_ids(32, 6, seed)
    moved = decode_rows(backend, ids[order])
    assert torch.equal(moved, decode_rows(backend, ids)[order])


def test_a_row_has_the_same_bits_whoever_shares_its_batch():
    backend = model()
    ids = random_ids(32, 6)
    others = random_ids(32, 6, seed=8)
    others[17] = ids[17]
    assert torch.equal(decode_rows(backend, ids)[17], decode_rows(backend, others)[17])


def test_a_copied_prefix_continues_like_its_source():
    backend = model()
    ids = random_ids(2, 9)
    cache = backend.new_cache(2, WIDTH)
    backend.step(ids[:, :8], torch.arange(8).expand(2, 8), cache)
    other = backend.new_cache(2, WIDTH)
    other.copy_row(cache, 0, 1, 8)
    other.copy_row(cache, 1, 0, 8)
    last = full(2, 8)[:, None]
    expected = backend.step(ids[:, 8:], last, cache)
    actual = backend.step(ids.flip(0)[:, 8:], last, other)
    assert torch.equal(actual.flip(0), expected)


def test_gradients_match_finite_differences():
    backend = model(dtype=torch.float64)
    ids = random_ids(2, 6)

    def loss(gain: torch.Tensor) -> torch.Tensor:
        backend.parameters["layers.0.qkv"] = gain
        return backend.project(backend.hidden_states(ids, full(2, 6))).log_softmax(-1)[..., 5].sum()

    start = backend.parameters["layers.0.qkv"].detach()
    direction = torch.randn(
        start.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    leaf = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    step = 1e-5
    numeric = (loss(start + step * direction) - loss(start - step * direction)) / (2 * step)
    assert (gradient * direction).sum().item() == pytest.approx(numeric.item(), rel=1e-6)


def test_every_parameter_receives_a_gradient():
    backend = model()
    logits = backend.project(backend.hidden_states(random_ids(2, 9), full(2, 9)))
    logits.log_softmax(-1)[..., 4].sum().backward()
    norms = [p.grad.norm().item() for p in backend.trainable().values() if p.grad is not None]
    assert len(norms) == len(backend.trainable())
    assert min(norms) > 0.0


def test_loading_restores_every_bit():
    source, target = model(seed=1), model(seed=2)
    target.load_trainable({name: p.detach() for name, p in source.trainable().items()})
    ids = random_ids(1, 5)
    assert torch.equal(source.hidden_states(ids, full(1, 5)), target.hidden_states(ids, full(1, 5)))


def test_a_frozen_model_has_nothing_to_train_and_a_digest_of_everything():
    first, second = model(seed=1), model(seed=2)
    assert first.frozen_digest() == second.frozen_digest()
    first.freeze()
    second.freeze()
    assert first.trainable() == {}
    assert first.frozen_digest() != second.frozen_digest()


def test_heads_must_divide_the_hidden_width_evenly():
    with pytest.raises(BackendError, match="num_heads 3 does not divide hidden_size 32"):
        ToyBackend(ToyConfig(hidden_size=32, num_heads=3), 0, TOKENIZER)


def test_a_row_beyond_the_context_is_refused():
    with pytest.raises(BackendError, match="65 tokens and the toy model 64 positions"):
        model().hidden_states(random_ids(1, 65), full(1, 65))


def test_tensors_of_another_shape_are_refused_before_anything_is_written():
    backend = model()
    before = {name: p.detach().clone() for name, p in backend.trainable().items()}
    wrong = {**before, "norm": torch.ones(7), "embedding": before["embedding"] + 1}
    with pytest.raises(BackendError, match="'norm' differs in name or shape"):
        backend.load_trainable(wrong)
    assert all(torch.equal(before[name], p) for name, p in backend.trainable().items())

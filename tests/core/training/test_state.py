import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.errors import StoreError, StoreSchemaError
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer
from core.training.optimizer import Moments
from core.training.state import (
    OPTIMIZER,
    STATE,
    TRAINABLE,
    Counters,
    StudentState,
    initial_state,
    load_state,
)

SIZE = ToyConfig(hidden_size=16, num_layers=1, num_heads=2, intermediate_size=16)


def state() -> StudentState:
    generator = torch.Generator().manual_seed(4)
    tensors = {"b": torch.randn(3, 2, generator=generator), "a": torch.tensor([0.1, float("inf")])}
    moments = {name: torch.randn(t.shape, generator=generator) for name, t in tensors.items()}
    squares = {name: moment.square() for name, moment in moments.items()}
    memory = {"exp_avg": moments, "exp_avg_sq": squares}
    return StudentState(tensors, Moments(7, memory), Counters(7, 6, 2, 40, 3, 1234))


def test_a_state_returns_bit_by_bit(tmp_path: Path):
    before = state()
    before.save(tmp_path)
    after = load_state(tmp_path)
    assert after.counters == before.counters
    assert after.digest() == before.digest()
    assert after.moments.step == 7
    for name in before.tensors:
        assert torch.equal(after.tensors[name], before.tensors[name])
        for kind, by_name in before.moments.tensors.items():
            assert torch.equal(after.moments.tensors[kind][name], by_name[name])


def test_equal_states_are_equal_files(tmp_path: Path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        state().save(tmp_path / name)
    for file in (TRAINABLE, OPTIMIZER, STATE):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_the_initial_state_is_a_copy_of_the_model(tmp_path: Path):
    backend = ToyBackend(SIZE, 0, ToyTokenizer())
    fresh = initial_state(backend)
    with torch.no_grad():
        backend.trainable()["norm"].zero_()
    assert fresh.tensors["norm"].sum().item() == 16.0
    fresh.save(tmp_path)
    backend.load_trainable(load_state(tmp_path).tensors)
    assert backend.trainable()["norm"].sum().item() == 16.0


@given(st.data())
def test_any_file_cut_anywhere_is_refused(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("state")
    state().save(directory)
    path = directory / data.draw(st.sampled_from([TRAINABLE, OPTIMIZER, STATE]))
    blob = path.read_bytes()
    path.write_bytes(blob[: data.draw(st.integers(0, len(blob) - 1))])
    with pytest.raises(StoreError, match="cannot be loaded"):
        load_state(directory)


def edit(directory: Path, **changes: object) -> None:
    path = directory / STATE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_missing_file_is_refused(tmp_path: Path):
    state().save(tmp_path)
    (tmp_path / OPTIMIZER).unlink()
    with pytest.raises(StoreError, match="optimizer"):
        load_state(tmp_path)


def test_weights_of_another_state_are_refused(tmp_path: Path):
    state().save(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    StudentState({"a": torch.zeros(1)}).save(other)
    (tmp_path / TRAINABLE).write_bytes((other / TRAINABLE).read_bytes())
    with pytest.raises(StoreError, match="of another artifact"):
        load_state(tmp_path)


def test_a_digest_that_differs_is_refused(tmp_path: Path):
    state().save(tmp_path)
    edit(tmp_path, digest="0" * 64)
    with pytest.raises(StoreError, match=r"not those of state\.json"):
        load_state(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "dataset"}, "describes a 'dataset'"),
        ({"counters": {"cycle": 1}}, "a counter is missing or unknown"),
        ({"extra": 1}, "a field is missing or unknown"),
    ],
)
def test_a_foreign_description_is_refused(tmp_path: Path, changes, message):
    state().save(tmp_path)
    edit(tmp_path, **changes)
    with pytest.raises(StoreError, match=message):
        load_state(tmp_path)


def test_a_newer_schema_is_refused_by_name(tmp_path: Path):
    state().save(tmp_path)
    edit(tmp_path, schema_version=2)
    with pytest.raises(StoreSchemaError, match="schema version 2"):
        load_state(tmp_path)

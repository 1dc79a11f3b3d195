import pytest
import torch

from core.errors import StoreError
from core.models.building import Placement
from core.models.roles import RESIDENTS
from core.recipe import model_steps
from core.recipe.loading import load_text
from core.training.opening import MODEL, open_model, open_weights, read_model, write_model
from core.training.state import StudentState, initial_state

RECIPE = """\
models:
  student: {model_id: s, toy: {hidden_size: 16, num_layers: 1, num_heads: 2, intermediate_size: 16}}
  teacher: {model_id: t}
environment: {name: calculator}
"""
PLACEMENT = Placement()


@pytest.fixture(autouse=True)
def _no_resident_stays():
    RESIDENTS.evict()
    yield
    RESIDENTS.evict()


def spec(seed=1):
    return model_steps.student_spec(load_text(RECIPE, [f"run.seed={seed}"]).recipe)


def stored(directory, *, shift=0.0):
    """Write a model and a state whose weights are the initial ones plus ``shift``."""
    directory.mkdir()
    write_model(directory, spec())
    state = initial_state(open_model("maker", spec(), PLACEMENT).backend)
    state = StudentState({name: tensor + shift for name, tensor in state.tensors.items()})
    state.save(directory)
    return state


def test_a_description_returns(tmp_path):
    write_model(tmp_path, spec())
    assert read_model(tmp_path) == spec()


def test_the_weights_of_an_artifact_are_put_into_its_model(tmp_path):
    state = stored(tmp_path / "a", shift=0.5)
    resident = open_weights("student", tmp_path / "a", PLACEMENT)
    assert resident.state == state.digest()
    own = resident.backend.trainable()
    assert all(torch.equal(own[name], tensor) for name, tensor in state.tensors.items())


def test_the_wanted_weights_are_not_read_again(tmp_path, monkeypatch):
    stored(tmp_path / "a")
    first = open_weights("student", tmp_path / "a", PLACEMENT)
    monkeypatch.setattr("core.training.opening.load_state", pytest.fail)
    assert open_weights("student", tmp_path / "a", PLACEMENT) is first


def test_other_weights_go_into_the_same_model(tmp_path):
    stored(tmp_path / "a")
    other = stored(tmp_path / "b", shift=0.25)
    first = open_weights("student", tmp_path / "a", PLACEMENT)
    second = open_weights("student", tmp_path / "b", PLACEMENT)
    assert second is first
    assert second.state == other.digest()


def test_an_artifact_without_a_state_is_the_model_as_built(tmp_path):
    write_model(tmp_path, spec())
    built = open_weights("teacher", tmp_path, PLACEMENT)
    assert built.state is None
    assert built.backend.hidden_size == 16


def test_a_fresh_model_forgets_what_was_trained():
    first = open_model("student", spec(), PLACEMENT)
    with torch.no_grad():
        first.backend.trainable()["norm"].zero_()
    assert open_model("student", spec(), PLACEMENT) is first
    fresh = open_model("student", spec(), PLACEMENT, fresh=True)
    assert fresh.backend.trainable()["norm"].sum().item() == 16.0


def test_another_seed_is_another_model():
    first = open_model("student", spec(1), PLACEMENT)
    assert open_model("student", spec(2), PLACEMENT) is not first


def test_a_damaged_description_is_refused(tmp_path):
    (tmp_path / MODEL).write_text('{"model": {}}')
    with pytest.raises(StoreError, match="describes no model"):
        read_model(tmp_path)


def test_a_missing_description_is_refused(tmp_path):
    with pytest.raises(StoreError, match=r"model\.json"):
        read_model(tmp_path)

"""A resident model is used again exactly while it is the wanted one."""

import gc
import weakref

import pytest
import torch

from core.errors import BackendError
from core.models.roles import RESIDENTS, Identity, Residents
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer

SIZE = ToyConfig(hidden_size=8, num_layers=1, num_heads=1, intermediate_size=8)
FIRST = Identity(digest="a" * 64, dtype="float32", device="cpu")
SECOND = Identity(digest="b" * 64, dtype="float32", device="cpu")


def build():
    return ToyBackend(SIZE, 1, ToyTokenizer())


def refuse():
    raise AssertionError("nothing should be built or read")


def tensors(value):
    return lambda: {n: torch.full_like(p, value) for n, p in build().trainable().items()}


@pytest.fixture
def residents():
    return Residents()


def test_the_wanted_model_is_built_once(residents):
    first = residents.acquire("student", FIRST, build)
    assert residents.acquire("student", FIRST, refuse) is first


@pytest.mark.parametrize(
    "other",
    [
        SECOND,
        Identity(digest="a" * 64, dtype="bfloat16", device="cpu"),
        Identity(digest="a" * 64, dtype="float32", device="cuda"),
    ],
)
def test_another_model_takes_the_place_of_the_old_one(residents, other):
    old = weakref.ref(residents.acquire("student", FIRST, build).backend)

    def build_alone():
        gc.collect()
        assert old() is None, "two models in memory at once"
        return build()

    assert residents.acquire("student", other, build_alone).identity == other


def test_roles_do_not_share_a_model(residents):
    student = residents.acquire("student", FIRST, build)
    teacher = residents.acquire("teacher", FIRST, build)
    assert student.backend is not teacher.backend
    assert residents.acquire("student", FIRST, refuse) is student


def test_a_resident_state_is_not_loaded_again(residents):
    student = residents.acquire("student", FIRST, build)
    student.load("s1", tensors(0.5))
    student.load("s1", refuse)
    assert student.state == "s1"
    assert all((p == 0.5).all() for p in student.backend.trainable().values())
    student.load("s2", tensors(0.25))
    assert all((p == 0.25).all() for p in student.backend.trainable().values())


def test_an_interrupted_change_leaves_no_name_behind(residents):
    student = residents.acquire("student", FIRST, build)
    student.load("s1", tensors(0.5))
    with pytest.raises(KeyboardInterrupt), student.changing():
        raise KeyboardInterrupt
    assert student.state is None


def test_a_state_that_does_not_fit_leaves_no_name_behind(residents):
    student = residents.acquire("student", FIRST, build)
    student.load("s1", tensors(0.5))
    with pytest.raises(BackendError):
        student.load("s2", dict)
    assert student.state is None


def test_eviction_drops_one_role_or_all(residents):
    student = residents.acquire("student", FIRST, build)
    residents.acquire("teacher", FIRST, build)
    residents.evict("teacher")
    assert residents.acquire("student", FIRST, refuse) is student
    residents.evict()
    assert residents.acquire("student", FIRST, build) is not student


def test_a_failed_build_leaves_the_role_empty(residents):
    residents.acquire("student", FIRST, build)
    with pytest.raises(AssertionError):
        residents.acquire("student", SECOND, refuse)
    assert residents.acquire("student", FIRST, build).state is None


def test_the_process_has_one_registry():
    assert isinstance(RESIDENTS, Residents)

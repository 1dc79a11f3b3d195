"""A resident model is used again exactly while it is the wanted one."""

import gc
import weakref

import pytest
import torch

from core.errors import BackendError
from core.models.roles import RESIDENTS, Identity, Residents
from core.models.swap import MemoryRules, crowded
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


class Mobile(ToyBackend):
    """A toy whose weights really move, into new storage, and may come back as something else."""

    def __init__(self, log, name, damage=None):
        super().__init__(SIZE, 1, ToyTokenizer())
        self.log, self.label, self.damage = log, name, damage

    def move_to(self, device):
        leaves = len([line for line in self.log if line[0] == self.label]) % 2 == 0
        self.log.append((self.label, "sleeps" if leaves else "wakes"))
        for name, parameter in self.parameters.items():
            parameter.data = parameter.data.clone()
            if name == self.damage and not leaves:
                parameter.data.zero_()
        super().move_to(device)


class Device:
    """Memory that counts down, as a test says."""

    def __init__(self, free=None):
        self.free = free
        self.released = 0

    def free_bytes(self):
        return self.free

    def peak_bytes(self):
        return None

    def reset_peak(self):
        pass

    def release_unused(self):
        self.released += 1


SWAP = MemoryRules("swap")
ON_CUDA = Identity(digest="c" * 64, dtype="float32", device="cuda")


@pytest.fixture
def log():
    return []


def alternating(residents, log, rules, rounds=2, damage=None, identity=FIRST):
    for _ in range(rounds):
        for role in ("student", "teacher"):
            hurt = damage if role == "teacher" else None
            build_one = lambda role=role, hurt=hurt: Mobile(log, role, hurt)  # noqa: E731
            residents.acquire(role, identity, build_one, rules=rules)


def test_one_role_at_a_time_is_awake_under_swap(residents, log):
    alternating(residents, log, SWAP)
    assert log == [
        ("student", "sleeps"),
        ("teacher", "sleeps"),
        ("student", "wakes"),
        ("student", "sleeps"),
        ("teacher", "wakes"),
    ]
    assert (residents.decision.strategy, residents.decision.reason) == ("swap", "asked for")


def test_a_trip_to_the_host_changes_no_bit(residents, log):
    student = residents.acquire("student", FIRST, lambda: Mobile(log, "student"), rules=SWAP)
    student.load("s1", tensors(0.5))
    before = {name: p.clone() for name, p in student.backend.trainable().items()}
    residents.acquire("teacher", FIRST, lambda: Mobile(log, "teacher"), rules=SWAP)
    again = residents.acquire("student", FIRST, refuse, rules=SWAP)
    assert (again.state, len(log)) == ("s1", 3)
    assert all(torch.equal(p, before[name]) for name, p in again.backend.trainable().items())


@pytest.mark.parametrize("damage", ["embedding", "norm", "layers.0.down"])
def test_a_role_that_comes_back_damaged_is_refused_and_loaded_anew(residents, log, damage):
    """C61: a weight that is zero after waking is noticed before the teacher is asked."""
    with pytest.raises(BackendError, match="the teacher came back from the host"):
        alternating(residents, log, SWAP, damage=damage)
    fresh = residents.acquire("teacher", FIRST, lambda: Mobile([], "teacher"), rules=SWAP)
    assert fresh.asleep is None


def test_roles_that_compute_together_stay_awake_together(residents, log):
    alternating(residents, log, SWAP, rounds=1)
    teacher = residents.acquire("teacher", FIRST, refuse, rules=SWAP, beside=("student",))
    student = residents.acquire("student", FIRST, refuse, rules=SWAP, beside=("teacher",))
    assert student.asleep is None and teacher.asleep is None


def test_a_role_that_need_not_compute_is_left_asleep(residents, log):
    alternating(residents, log, SWAP, rounds=1)
    residents.acquire("student", FIRST, refuse, rules=SWAP)
    before = list(log)
    assert residents.acquire("teacher", FIRST, refuse, rules=SWAP, wake=False).asleep is not None
    assert log == before


def test_nothing_moves_where_roles_are_resident(residents, log):
    alternating(residents, log, MemoryRules("resident"))
    assert (log, residents.decision.strategy) == ([], "resident")


def test_auto_on_a_cpu_is_resident(residents, log):
    alternating(residents, log, MemoryRules("auto"))
    assert log == []
    assert residents.decision.reason == "auto: a CPU has no memory of its own"


def test_auto_swaps_before_a_role_that_would_leave_no_headroom(log):
    device = Device(free=10)
    residents = Residents(lambda kind: device)
    residents.acquire("student", ON_CUDA, lambda: Mobile(log, "student"), rules=MemoryRules("auto"))
    residents.acquire("teacher", ON_CUDA, lambda: Mobile(log, "teacher"), rules=MemoryRules("auto"))
    assert (log, device.released) == ([("student", "sleeps")], 1)
    assert "headroom" in residents.decision.reason


def test_auto_swaps_once_a_role_does_not_fit(log):
    residents = Residents(lambda kind: Device(free=100 * 2**30))
    residents.acquire("student", ON_CUDA, lambda: Mobile(log, "student"), rules=MemoryRules("auto"))
    attempts = []

    def large():
        attempts.append(len(log))
        if not log:
            raise torch.OutOfMemoryError("full")
        return Mobile(log, "teacher")

    residents.acquire("teacher", ON_CUDA, large, rules=MemoryRules("auto"))
    assert attempts == [0, 1]
    assert residents.decision == crowded("teacher")


def test_a_role_that_does_not_fit_alone_is_no_reason_to_swap(residents, log):
    def too_large():
        raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError):
        residents.acquire("student", FIRST, too_large, rules=MemoryRules("auto"))


def test_weights_that_cannot_move_refuse_a_swap_that_was_asked_for(residents, log):
    """C60: 8-bit weights stay; of 4-bit ones the installed library decides."""
    fixed = Mobile(log, "student")
    fixed.quantization = "int8"
    residents.acquire("student", FIRST, lambda: fixed, rules=SWAP)
    with pytest.raises(BackendError, match=r"runtime\.memory_strategy=swap is impossible: 8-bit"):
        residents.acquire("teacher", FIRST, lambda: Mobile(log, "teacher"), rules=SWAP)


def test_a_teacher_is_heard_once_for_each_set_of_weights(residents):
    teacher = residents.acquire("teacher", FIRST, build)
    teacher.listen()
    heard = teacher.heard
    teacher.listen()
    assert teacher.heard is heard
    teacher.load("t1", tensors(0.5))
    assert teacher.heard is None
    teacher.load("t2", tensors(0.0))
    with pytest.raises(BackendError, match="says nothing"):
        teacher.listen()

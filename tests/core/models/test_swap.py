"""When a model at rest leaves the device, and why."""

import importlib.metadata

import pytest
import torch

from core.errors import BackendError
from core.models import swap
from core.models.hf import HFBackend
from core.models.probe import probe
from core.models.quantization import quantised_layers
from core.models.roles import Identity, Residents
from core.models.swap import MemoryRules, crowded, decide, obstacle
from core.recipe.schema.adapters import Lora

GIB = 2**30
CUDA = {"device": "cuda", "free_bytes": 5 * GIB, "fixed": None}


def test_a_cpu_has_no_memory_of_its_own():
    found = decide(MemoryRules("auto"), device="cpu", free_bytes=None, fixed=None)
    assert (found.strategy, found.reason) == ("resident", "auto: a CPU has no memory of its own")


def test_auto_stays_where_the_headroom_is_free():
    found = decide(MemoryRules("auto", 2 * GIB), **CUDA)
    assert (found.strategy, found.swaps) == ("resident", False)
    assert "5.00 GiB was free" in found.reason


def test_auto_swaps_below_the_headroom():
    found = decide(MemoryRules("auto", 6 * GIB), **CUDA)
    assert found.swaps
    assert "5.00 GiB are free, less than the 6.00 GiB" in found.reason


def test_auto_stays_where_weights_cannot_move():
    found = decide(MemoryRules("auto", 6 * GIB), **{**CUDA, "fixed": "they are bolted down"})
    assert (found.strategy, found.reason) == ("resident", "auto: they are bolted down")


@pytest.mark.parametrize("strategy", ["resident", "swap"])
def test_what_is_asked_for_is_done(strategy):
    for device in ("cpu", "cuda"):
        found = decide(MemoryRules(strategy), device=device, free_bytes=0, fixed=None)
        assert (found.strategy, found.reason) == (strategy, "asked for")


def test_a_role_that_does_not_fit_is_a_reason():
    assert crowded("teacher").swaps
    assert "the teacher does not fit" in crowded("teacher").reason


@pytest.mark.parametrize(
    ("installed", "moves"), [("0.42.0", False), ("0.43.1", False), ("0.43.2", True), ("0.50.2", 1)]
)
def test_four_bits_move_from_a_version_on(monkeypatch, installed, moves):
    """C60: that 4-bit weights cannot move was true of old versions only."""
    monkeypatch.setattr(swap, "version", lambda name: installed)
    assert (obstacle("nf4") is None) == bool(moves)
    if not moves:
        assert installed in str(obstacle("nf4"))


def test_eight_bits_stay_and_plain_weights_move():
    assert obstacle("none") is None
    assert "8-bit" in str(obstacle("int8"))


def test_without_the_library_four_bits_stay(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(swap, "version", absent)
    assert obstacle("nf4") == "bitsandbytes is not installed"


def test_a_swap_that_is_impossible_is_refused_with_its_key():
    with pytest.raises(BackendError, match=r"runtime\.memory_strategy=swap is impossible: bolted"):
        decide(MemoryRules("swap"), device="cuda", free_bytes=0, fixed="bolted")


# ---------------------------------------------------------------- a 4-bit model goes and comes back


class Traveller(HFBackend):
    """An NF4 model that is taken apart and put together again when it moves.

    A CPU has nowhere to move it to, so every weight and scale gets new storage here, and packed
    weights are made again from what bitsandbytes keeps of them.
    """

    damage = None
    moves = 0

    def move_to(self, device):
        self.moves += 1
        for parameter in self.model.parameters():
            parameter.data = parameter.data.clone()
        for weight in packed(self):
            scales = weight.quant_state.as_dict(packed=True)
            kept = {key: value.clone() for key, value in scales.items()}
            again = type(weight).from_prequantized(weight.data, kept, device=device)
            weight.data, weight.quant_state = again.data, again.quant_state
        if self.damage is not None and self.moves % 2 == 0:
            self.damage(packed(self)[0])
        super().move_to(device)


def packed(backend):
    return [layer.weight for layer in quantised_layers(backend.model).values()]


def scramble_bytes(weight):
    weight.data[: len(weight.data) // 2] ^= 0x11


def zero_weights(weight):
    weight.data.zero_()


def lose_block_scales(weight):
    weight.quant_state.absmax.zero_()


def lose_nested_scales(weight):
    weight.quant_state.state2.absmax.zero_()


def lose_offset(weight):
    weight.quant_state.offset.zero_()


DAMAGES = (
    scramble_bytes,
    zero_weights,
    lose_block_scales,
    lose_nested_scales,
    lose_offset,
)


def identity(role):
    return Identity(digest=role, dtype="float32", device="cpu")


@pytest.fixture
def acquire(tiny_llama):
    """Return f(role): that role of one registry under ``swap``; the teacher is quantised too."""
    residents = Residents()

    def get(role):
        lora = Lora(r=4, alpha=8) if role == "student" else None
        return residents.acquire(
            role,
            identity(role),
            lambda: Traveller(tiny_llama, quantization="nf4", lora=lora, seed=3),
            rules=MemoryRules("swap"),
        )

    return get


def test_four_bits_come_back_from_the_host_with_every_bit(acquire):
    """C60: the logits of a probe, the frozen digest with its scales, and the gradients."""
    student = acquire("student").backend
    tensors = {n: torch.full_like(p, 0.05) for n, p in student.trainable().items()}
    student.load_trainable(tensors)
    frozen, gradients = student.frozen_digest(recheck=True), student.gradient_check()
    said = probe(student).logits_TV
    scales = [weight.quant_state for weight in packed(student)]
    teacher = acquire("teacher").backend
    assert (student.moves, teacher.moves) == (1, 0)
    back = acquire("student")
    assert (back.asleep, back.backend, student.moves, teacher.moves) == (None, student, 2, 1)
    assert not {id(each) for each in scales} & {id(w.quant_state) for w in packed(student)}
    assert torch.equal(probe(student).logits_TV, said)
    assert student.frozen_digest(recheck=True) == frozen
    assert student.gradient_check() == gradients
    assert all(torch.equal(p, tensors[name]) for name, p in student.trainable().items())


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_four_bits_that_come_back_damaged_are_refused_and_loaded_anew(acquire, damage):
    """C60: weights or scales that were lost on the way change the logits of the probe."""
    teacher = acquire("teacher").backend
    said = probe(teacher).logits_TV
    teacher.damage = damage
    acquire("student")
    with pytest.raises(BackendError, match="the teacher came back from the host with other"):
        acquire("teacher")
    again = acquire("teacher").backend
    assert again is not teacher
    assert torch.equal(probe(again).logits_TV, said)

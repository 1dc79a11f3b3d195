"""Roles on one base do what models of their own do, and never train each other."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from core.errors import BackendError, RoleScopeError
from core.models.backend import Backend
from core.models.hf import HFBackend
from core.models.shared import SharedBackbone
from core.recipe.schema.adapters import Lora

LORA = Lora(r=4, alpha=8, target_modules=("q_proj", "down_proj"))
OTHER = Lora(r=2, alpha=8, target_modules=("v_proj", "down_proj"))
IDS = torch.tensor([[5, 9, 3, 7, 11, 2], [4, 4, 8, 6, 1, 0]])
LENGTHS = torch.tensor([6, 5])


def drawn(own, seed):
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(p.shape, generator=generator) * 0.3 for n, p in sorted(own.items())}


def alone(path, lora, seed, **changes):
    """A model of its own, with an adapter whose values are drawn from ``seed``."""
    backend = HFBackend(path, lora=lora, seed=seed, **changes)
    backend.load_trainable(drawn(backend.trainable(), seed))
    return backend


@pytest.fixture(params=["student first", "teacher first"])
def pair(request, tiny_llama):
    """The student and teacher of one base, attached in either order."""
    backbone = SharedBackbone(HFBackend(tiny_llama))
    order = [("student", LORA, 1), ("teacher", OTHER, 2)]
    made = {}
    for role, lora, seed in order if request.param == "student first" else reversed(order):
        values = drawn(HFBackend(tiny_llama, lora=lora).trainable(), seed)
        made[role] = backbone.attach(role, lora, seed=seed, tensors=values)
    return backbone, made["student"], made["teacher"]


def loss_of(backend):
    return backend.project(backend.hidden_states(IDS, LENGTHS)).square().mean()


def gradients(backend):
    return {name: p.grad.clone() for name, p in backend.trainable().items()}


def test_each_role_has_the_bits_of_a_model_of_its_own(tiny_llama, pair):
    _, student, teacher = pair
    own_student, own_teacher = alone(tiny_llama, LORA, 1), alone(tiny_llama, OTHER, 2)
    own_teacher.freeze()
    assert isinstance(student, Backend)
    assert torch.equal(loss_of(student), loss_of(own_student))
    assert torch.equal(loss_of(teacher), loss_of(own_teacher))
    assert sorted(student.trainable()) == sorted(own_student.trainable())
    assert teacher.trainable() == {}
    assert student.frozen_digest() == own_student.frozen_digest()
    assert teacher.frozen_digest() == own_teacher.frozen_digest()


def test_engine_steps_have_the_bits_of_a_model_of_its_own(tiny_llama, pair):
    _, student, teacher = pair
    positions = torch.arange(3).repeat(2, 1)
    for role, own in (
        (student, alone(tiny_llama, LORA, 1)),
        (teacher, alone(tiny_llama, OTHER, 2)),
    ):
        found = role.step(IDS[:, :3], positions, role.new_cache(2, 8))
        assert torch.equal(found, own.step(IDS[:, :3], positions, own.new_cache(2, 8)))


def test_roles_on_a_quantised_base_have_the_bits_of_models_of_their_own(tiny_llama):
    own = alone(tiny_llama, LORA, 1, quantization="nf4")
    backbone = SharedBackbone(HFBackend(tiny_llama, quantization="nf4"))
    backbone.attach("teacher", OTHER, seed=2)
    student = backbone.attach("student", LORA, tensors=drawn(own.trainable(), 1))
    assert student.frozen_digest() == own.frozen_digest()
    assert student.gradient_check() == own.gradient_check()
    loss_of(own).backward()
    loss_of(student).backward()
    expected = gradients(own)
    assert all(torch.equal(g, expected[name]) for name, g in gradients(student).items())


def test_dropout_of_the_student_is_not_the_teacher_s(tiny_llama):
    dropping = LORA.model_copy(update={"dropout": 0.5})
    backbone = SharedBackbone(HFBackend(tiny_llama))
    values = drawn(alone(tiny_llama, OTHER, 2).trainable(), 2)
    teacher = backbone.attach("teacher", OTHER, tensors=values)
    values = drawn(alone(tiny_llama, LORA, 1).trainable(), 1)
    student = backbone.attach("student", dropping, tensors=values)
    before = loss_of(teacher), loss_of(student)
    with student.dropout([1, 2]):
        assert torch.equal(loss_of(teacher), before[0])
        assert not torch.equal(loss_of(student), before[1])


def test_a_fresh_adapter_has_the_values_of_a_model_of_its_own(tiny_llama):
    backbone = SharedBackbone(HFBackend(tiny_llama))
    backbone.attach("teacher", OTHER, seed=3)
    student = backbone.attach("student", LORA, seed=9)
    expected = HFBackend(tiny_llama, lora=LORA, seed=9).trainable()
    assert all(torch.equal(p, expected[name]) for name, p in student.trainable().items())


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("teacher_when", ["before", "between", "never"])
def test_the_student_s_gradients_do_not_depend_on_the_teacher(
    tiny_llama, teacher_when, checkpointing
):
    """C54: scoring on either side of the forward pass, and layers that are run again."""
    own = alone(tiny_llama, LORA, 1)
    loss_of(own).backward()
    base = HFBackend(tiny_llama, gradient_checkpointing=checkpointing)
    backbone = SharedBackbone(base)
    student = backbone.attach("student", LORA, tensors=drawn(own.trainable(), 1))
    teacher = backbone.attach("teacher", OTHER, seed=2)
    if teacher_when == "before":
        loss_of(teacher)
    loss = loss_of(student)
    if teacher_when == "between":
        loss_of(teacher)
    loss.backward()
    student.check_gradients()
    expected = gradients(own)
    assert all(torch.equal(g, expected[name]) for name, g in gradients(student).items())
    assert all(p.grad is None for p in teacher.own.values())


@pytest.mark.parametrize("other", ["teacher", None])
def test_a_backward_pass_in_another_scope_is_refused(pair, other):
    """C54: without the check the student gets no gradient, or the teacher gets the student's."""
    backbone, student, _ = pair
    loss = loss_of(student)
    with backbone.scope(other), pytest.raises(RoleScopeError, match="backward pass of the student"):
        loss.backward()
    assert all(p.grad is None for p in student.trainable().values())


def test_a_scope_is_left_even_by_an_error(pair):
    backbone, student, _ = pair
    with pytest.raises(KeyboardInterrupt), backbone.scope("teacher"):
        raise KeyboardInterrupt
    assert backbone.active == "student"
    loss_of(student).backward()
    student.check_gradients()


def test_a_layer_that_is_run_again_meets_the_same_adapter(pair):
    """C54: recomputing the whole trunk enters the student's scope by itself."""
    _, student, teacher = pair
    loss_of(student).backward()
    expected = gradients(student)
    for parameter in student.trainable().values():
        parameter.grad = None
    hidden = checkpoint(student.hidden_states, IDS, LENGTHS, use_reentrant=False)
    loss_of(teacher)
    student.project(hidden).square().mean().backward()
    assert all(torch.equal(g, expected[name]) for name, g in gradients(student).items())


@pytest.mark.parametrize("other", ["teacher", "reference"])
def test_a_gradient_of_another_role_is_refused(pair, other):
    backbone, student, teacher = pair
    frozen = teacher if other == "teacher" else backbone.attach("reference", OTHER, seed=7)
    loss_of(student).backward()
    parameter = next(iter(frozen.own.values()))
    parameter.grad = torch.zeros_like(parameter)
    student.check_gradients()
    parameter.grad = torch.ones_like(parameter)
    with pytest.raises(RoleScopeError, match="is not the student's and got a gradient"):
        student.check_gradients()


def test_a_missing_gradient_of_the_student_is_refused(pair):
    _, student, _ = pair
    loss_of(student).backward()
    parameter = next(iter(student.trainable().values()))
    parameter.grad = None
    with pytest.raises(RoleScopeError, match="of the student got no gradient"):
        student.check_gradients()


def test_the_reference_is_a_snapshot_and_not_an_adapter_switched_off(tiny_llama):
    """C55: a student that starts from an adapter has that adapter as its reference."""
    start = drawn(HFBackend(tiny_llama, lora=LORA).trainable(), 5)
    backbone = SharedBackbone(HFBackend(tiny_llama))
    student = backbone.attach("student", LORA, tensors=start)
    reference = backbone.attach("reference", LORA, tensors=start)
    bare = HFBackend(tiny_llama)
    assert torch.equal(loss_of(reference), loss_of(student))
    assert not torch.equal(loss_of(reference), loss_of(bare))
    before = loss_of(reference)
    student.load_trainable({n: p + 0.1 for n, p in student.trainable().items()})
    assert torch.equal(loss_of(reference), before)
    assert not torch.equal(loss_of(student), before)


def test_a_role_without_an_adapter_is_the_base(tiny_llama):
    backbone = SharedBackbone(HFBackend(tiny_llama))
    backbone.attach("student", LORA, tensors=drawn(HFBackend(tiny_llama, lora=LORA).trainable(), 1))
    reference = backbone.attach("reference", None)
    assert torch.equal(loss_of(reference), loss_of(HFBackend(tiny_llama)))


def test_attaching_a_role_makes_nothing_trainable(pair):
    """C57: peft turns what it adds on, and the optimizer's list is of names."""
    backbone, student, teacher = pair
    names, frozen = sorted(student.trainable()), student.frozen_digest()
    backbone.attach("reference", OTHER, seed=7)
    with backbone.scope("teacher"):
        assert not any(p.requires_grad for p in teacher.own.values())
        assert sorted(student.trainable()) == names
    wanted = {id(p) for p in student.trainable().values()}
    asking = {id(p) for p in backbone.base.model.parameters() if p.requires_grad}
    assert asking == wanted
    assert student.frozen_digest() == frozen


def test_a_role_can_be_attached_anew(pair):
    backbone, student, teacher = pair
    before = loss_of(teacher)
    again = backbone.attach("student", OTHER, seed=4)
    loss_of(again).backward()
    again.check_gradients()
    assert torch.equal(loss_of(teacher), before)
    assert sorted(again.trainable()) != sorted(student.own)


def test_biases_of_the_base_cannot_be_one_role_s(tiny_llama):
    backbone = SharedBackbone(HFBackend(tiny_llama))
    with pytest.raises(BackendError, match=r"biases of the base \(lora\.bias=all\)"):
        backbone.attach("student", LORA.model_copy(update={"bias": "all"}))


def test_values_that_do_not_fit_are_refused(tiny_llama):
    backbone = SharedBackbone(HFBackend(tiny_llama))
    with pytest.raises(BackendError, match="do not fit this model"):
        backbone.attach("teacher", LORA, tensors={})


def test_one_role_cannot_leave_the_device(pair):
    with pytest.raises(BackendError, match="shares its base"):
        pair[1].move_to(torch.device("cpu"))

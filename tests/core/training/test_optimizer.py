import importlib.util
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from core.errors import BackendError, MissingDependencyError, NumericsError
from core.recipe.training_specs import OptimizerSpec
from core.training.optimizer import NO_MOMENTS, Moments, Optimizer


def parameters(*values: float) -> dict[str, nn.Parameter]:
    return {f"p{i}": nn.Parameter(torch.tensor([value])) for i, value in enumerate(values)}


def spec(**changes) -> OptimizerSpec:
    settings = {"name": "adamw", "weight_decay": 0.0, "betas": (0.9, 0.95), "eps": 1e-12}
    return OptimizerSpec(**{**settings, "max_grad_norm": 1e9, **changes})


def test_the_first_step_has_the_size_of_the_learning_rate():
    # Bias correction makes the first update lr * g / |g|.
    named = parameters(1.0, 1.0)
    named["p0"].grad, named["p1"].grad = torch.tensor([3.0]), torch.tensor([-0.5])
    norm = Optimizer(named, spec(), NO_MOMENTS).step(0.1)
    assert named["p0"].item() == pytest.approx(0.9, abs=1e-6)
    assert named["p1"].item() == pytest.approx(1.1, abs=1e-6)
    assert norm == pytest.approx(math.sqrt(9.25))


def test_the_second_step_follows_the_formula():
    # m = .9*.1*2 + .1*1 = .28, v = .95*.05*4 + .05*1 = .24; corrected by 1-.9^2 and 1-.95^2.
    named = parameters(0.0)
    optimizer = Optimizer(named, spec(), NO_MOMENTS)
    for gradient in (2.0, 1.0):
        named["p0"].grad = torch.tensor([gradient])
        optimizer.step(0.1)
    second = 0.1 * (0.28 / 0.19) / math.sqrt(0.24 / 0.0975)
    assert named["p0"].item() == pytest.approx(-0.1 - second, rel=1e-5)


def test_weight_decay_is_decoupled():
    named = parameters(2.0)
    named["p0"].grad = torch.tensor([0.0])
    Optimizer(named, spec(weight_decay=0.5), NO_MOMENTS).step(0.1)
    assert named["p0"].item() == pytest.approx(2.0 * (1 - 0.1 * 0.5))


@given(st.floats(0.1, 100.0), st.floats(0.1, 100.0))
def test_long_gradients_are_scaled_to_the_limit(first, second):
    named = parameters(0.0, 0.0)
    named["p0"].grad, named["p1"].grad = torch.tensor([first]), torch.tensor([second])
    optimizer = Optimizer(named, spec(max_grad_norm=1.0), NO_MOMENTS)
    norm = optimizer.step(0.1)
    seen = [moment.item() / 0.1 for moment in optimizer.moments().tensors["exp_avg"].values()]
    assert norm == pytest.approx(math.hypot(first, second), rel=1e-5)
    assert math.hypot(*seen) == pytest.approx(min(1.0, norm), rel=1e-4)


def test_moments_that_leave_and_enter_continue_bit_by_bit():
    straight, resumed = parameters(1.0, 2.0), parameters(1.0, 2.0)
    optimizer = Optimizer(straight, spec(), NO_MOMENTS)
    moments = NO_MOMENTS
    for step in range(4):
        for named in (straight, resumed):
            for name, parameter in named.items():
                parameter.grad = torch.tensor([math.sin(step + len(name) + parameter.item())])
        optimizer.step(0.1)
        again = Optimizer(resumed, spec(), moments)
        again.step(0.1)
        moments = again.moments()
    assert moments.step == 4
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def large() -> dict[str, nn.Parameter]:
    """One tensor that gets 8-bit moments, and one too small for them."""
    generator = torch.Generator().manual_seed(3)
    sizes = {"large": (64, 128), "small": (8,)}
    return {
        name: nn.Parameter(torch.randn(size, generator=generator)) for name, size in sizes.items()
    }


def trained(named, settings, moments, *, steps, first=0):
    """Take steps towards zero, in one process or one optimizer per step; return the moments."""
    optimizer = Optimizer(named, settings, moments)
    for step in range(first, first + steps):
        for parameter in named.values():
            parameter.grad = parameter.detach() * (1 + math.sin(step))
        optimizer.step(0.01)
    return optimizer.moments()


def test_eight_bit_moments_take_a_quarter_and_the_way_of_full_ones():
    full, small = large(), large()
    wide = trained(full, spec(), NO_MOMENTS, steps=20)
    narrow = trained(small, spec(name="adamw8bit"), NO_MOMENTS, steps=20)
    assert narrow.tensors["state1"]["large"].dtype == torch.uint8
    assert narrow.tensors["state1"]["small"].dtype == torch.float32
    assert narrow.tensors["state1"]["large"].nbytes * 4 == wide.tensors["exp_avg"]["large"].nbytes
    apart = (full["large"] - small["large"]).detach().norm() / full["large"].detach().norm()
    assert apart < 0.01
    torch.testing.assert_close(full["small"], small["small"], rtol=1e-5, atol=1e-6)


def test_eight_bit_moments_that_leave_and_enter_continue_bit_by_bit():
    straight, resumed, settings = large(), large(), spec(name="adamw8bit")
    trained(straight, settings, NO_MOMENTS, steps=5)
    moments = NO_MOMENTS
    for step in range(5):
        moments = trained(resumed, settings, moments, steps=1, first=step)
    assert moments.step == 5
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def test_exported_moments_do_not_change_later():
    named = parameters(1.0)
    optimizer = Optimizer(named, spec(), NO_MOMENTS)
    named["p0"].grad = torch.tensor([1.0])
    optimizer.step(0.1)
    before = optimizer.moments().tensors["exp_avg"]["p0"].item()
    exported = optimizer.moments()
    named["p0"].grad = torch.tensor([5.0])
    optimizer.step(0.1)
    assert exported.tensors["exp_avg"]["p0"].item() == before


def test_a_parameter_without_gradient_counts_as_zero():
    named = parameters(1.0, 2.0)
    named["p0"].grad = torch.tensor([1.0])
    optimizer = Optimizer(named, spec(), NO_MOMENTS)
    optimizer.step(0.1)
    assert named["p1"].item() == 2.0
    assert optimizer.moments().tensors["exp_avg"]["p1"].item() == 0.0


@pytest.mark.parametrize("gradient", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_moves_nothing(gradient):
    named = parameters(1.0, 2.0)
    named["p0"].grad, named["p1"].grad = torch.tensor([gradient]), torch.tensor([1.0])
    with pytest.raises(NumericsError, match="the gradient norm is"):
        Optimizer(named, spec(), NO_MOMENTS).step(0.1)
    assert [parameter.item() for parameter in named.values()] == [1.0, 2.0]


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(BackendError, match="0 trainable parameters"):
        Optimizer({}, spec(), NO_MOMENTS)


def test_moments_of_other_parameters_are_refused():
    foreign = Moments(1, {"exp_avg": {"other": torch.zeros(1)}})
    with pytest.raises(BackendError, match="moments are of other parameters: 'other'"):
        Optimizer(parameters(1.0), spec(), foreign)


def test_moments_of_another_optimizer_are_refused():
    named = large()
    moments = trained(named, spec(), NO_MOMENTS, steps=1)
    with pytest.raises(BackendError, match=r"another train\.optimizer"):
        Optimizer(large(), spec(name="adamw8bit"), moments)


def test_eight_bit_moments_without_bitsandbytes_are_refused(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="adamw8bit needs bitsandbytes"):
        Optimizer(parameters(1.0), spec(name="adamw8bit"), NO_MOMENTS)

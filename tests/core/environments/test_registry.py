"""Environments by name."""

import pytest

from core.environments.calculator import Calculator
from core.environments.registry import BUILT_IN, make_environment, names, register
from core.errors import InputError


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_world_is_made_by_its_name(name):
    assert make_environment(name).name == name
    assert name in names()


def test_the_calculator_is_built_in():
    environment = make_environment("calculator", prompt_style="compact")
    assert isinstance(environment, Calculator)
    assert environment.prompt_style == "compact"
    assert "calculator" in names()


def test_registering_a_class_again_changes_nothing():
    known = names()
    assert register(Calculator) is Calculator
    assert names() == known


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(InputError, match="'calcuator' does not exist") as caught:
        make_environment("calcuator")
    assert caught.value.hint == "Did you mean 'calculator'?"


def test_an_unknown_parameter_is_refused():
    with pytest.raises(InputError, match="cannot be made"):
        make_environment("calculator", colour="red")


def test_a_second_class_of_one_name_is_refused():
    class Impostor(Calculator):
        pass

    with pytest.raises(InputError, match="already core"):
        register(Impostor)

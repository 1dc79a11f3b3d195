"""An environment of one's own is opened like any other, once its code is listed."""

from pathlib import Path

import pytest

from core.environments import starter
from core.environments.calculator import Calculator
from core.environments.plugin_code import file_code
from core.environments.plugins import EnvironmentChoice, choose_environment, open_environment
from core.errors import InputError, PluginError

SOURCE = Path(starter.__file__).read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shop.py"
    path.write_text(SOURCE.replace("starter", "shop").replace("Starter", "Shop"))
    return path


def test_a_built_in_environment_needs_no_code():
    assert isinstance(open_environment(EnvironmentChoice("calculator")), Calculator)


def test_a_file_makes_an_environment_with_its_parameters(file):
    choice = choose_environment(str(file), {"prompt_style": "compact"})
    assert (choice.name, choice.plugin, choice.path) == ("shop", file_code(file), file)
    world = choice.make()
    assert (world.name, world.prompt_style) == ("shop", "compact")
    assert choice.make() is not world


def test_a_file_may_define_several_environments(file):
    file.write_text(
        file.read_text() + "\n\nclass Other(Shop):\n    name = 'other'\n", encoding="utf-8"
    )
    with pytest.raises(PluginError, match="several environments") as refusal:
        choose_environment(str(file))
    assert refusal.value.hint == "Name one, as shop.py:other."
    assert choose_environment(f"{file}:shop").make().name == "shop"


def test_a_file_without_an_environment_is_refused(tmp_path):
    path = tmp_path / "empty.py"
    path.write_text("from core.environments.calculator import Calculator\n")
    with pytest.raises(PluginError, match="defines no environment"):
        choose_environment(str(path))


def test_a_plug_in_may_not_take_a_built_in_name(tmp_path):
    path = tmp_path / "calculator.py"
    path.write_text(SOURCE.replace('"starter"', '"calculator"'))
    with pytest.raises(PluginError, match="'calculator' is built in"):
        choose_environment(str(path)).make()


def test_parameters_that_it_does_not_take_are_refused(file):
    with pytest.raises(InputError, match="cannot be made with"):
        choose_environment(str(file), {"colour": "red"}).make()


def test_an_unfinished_class_is_refused(tmp_path):
    path = tmp_path / "half.py"
    path.write_text(SOURCE.replace("def oracle_actions", "def oracle_action"))
    with pytest.raises(InputError, match="abstract"):
        choose_environment(str(path)).make()


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="'calculater' does not exist") as refusal:
        choose_environment("calculater")
    assert "calculator, jsonnav" in refusal.value.hint

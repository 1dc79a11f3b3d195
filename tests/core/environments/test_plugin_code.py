"""Code that a recipe lists, and nothing else, is run."""

import hashlib
import sys

import pytest

from core.environments import plugin_code
from core.environments.plugin_code import (
    PluginCode,
    file_code,
    installed_code,
    installed_names,
    load_plugin,
    sources,
)
from core.errors import PluginError

SOURCE = "def every_third(trajectory, spec, seed):\n    return [3]\n\n\ndef _own():\n    return 1\n"


def by_function_name(value):
    name = getattr(value, "__name__", "_")
    return None if name.startswith("_") else name


def load(path, sha256, name="every_third"):
    return load_plugin("selector", name, PluginCode(sha256), path, by_function_name)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """An installed distribution with one entry point per kind."""
    package = tmp_path / "site" / "my_rules"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text(SOURCE)
    info = tmp_path / "site" / "my_rules-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-rules\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[opdflow.selectors]\nevery_third = my_rules.rules:every_third\n"
        "broken = my_rules.missing:x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    plugin_code._package_digest.cache_clear()
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_rules"]:
        del sys.modules[name]
    plugin_code._package_digest.cache_clear()


def test_the_identity_of_a_file_is_the_hash_of_its_bytes(file):
    assert file_code(file) == PluginCode(hashlib.sha256(SOURCE.encode()).hexdigest())


def test_a_listed_file_is_run_once_per_process(file):
    sha256 = file_code(file).sha256
    first = load(file, sha256)
    assert first(None, None, 0) == [3]
    file.write_text("raise SystemExit('edited while running')")
    assert load(file, sha256) is first


def test_a_changed_file_is_refused_with_the_new_sha_and_not_run(file):
    file.write_text("raise AssertionError('unlisted code ran')\n")
    with pytest.raises(PluginError, match="not the code that the recipe lists") as refusal:
        load(file, "0" * 64)
    assert refusal.value.hint.endswith(f"write sha256: {file_code(file).sha256}")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PluginError, match=r"nowhere\.py cannot be read: No such file"):
        load(tmp_path / "nowhere.py", "0" * 64)


def test_a_listed_file_whose_place_is_not_known_is_refused():
    with pytest.raises(PluginError, match="is not at hand"):
        load(None, "0" * 64)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "x = 1\nimport no_such_package_anywhere\n",
            r":2: cannot be imported: ModuleNotFoundError",
        ),
        ("x = 1\n\ny = (\n", r":3: cannot be imported: SyntaxError"),
        (
            "def f():\n    raise ValueError('a\\nb')\nf()\n",
            r":2: cannot be imported: ValueError: a$",
        ),
        ("import sys\nsys.exit(4)\n", r":2: cannot be imported: SystemExit: 4"),
    ],
)
def test_an_import_error_is_told_with_its_line(tmp_path, source, message):
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(PluginError) as refusal:
        load(path, file_code(path).sha256)
    assert refusal.match(rf"(?m){message}")
    assert f"opdflow_plugin_{file_code(path).sha256}" not in sys.modules


def test_a_name_that_is_not_there_is_refused_with_those_that_are(file):
    with pytest.raises(PluginError, match="defines no selector 'every_fourth'") as refusal:
        load(file, file_code(file).sha256, "every_fourth")
    assert "It defines: every_third." in refusal.value.hint


def test_looking_at_entry_points_imports_nothing(distribution):
    assert installed_names("selector") == {"every_third": "my-rules", "broken": "my-rules"}
    found = installed_code("selector", "every_third", "my-rules")
    assert (found.distribution, found.version) == ("my-rules", "1.2")
    assert not any(name.startswith("my_rules") for name in sys.modules)


def test_a_listed_entry_point_is_loaded(distribution):
    identity = installed_code("selector", "every_third", "my-rules")
    rule = load_plugin("selector", "every_third", identity, None, by_function_name)
    assert rule(None, None, 0) == [3]
    assert set(sources("selector", "every_third", identity, None)) == {
        "my_rules.__init__",
        "my_rules.rules",
    }


def test_an_entry_point_whose_package_changed_is_refused_and_not_imported(distribution):
    identity = installed_code("selector", "every_third", "my-rules")
    (distribution / "data.json").write_text("{}")
    plugin_code._package_digest.cache_clear()
    with pytest.raises(PluginError, match="is not the code that the recipe lists") as refusal:
        load_plugin("selector", "every_third", identity, None, by_function_name)
    new = installed_code("selector", "every_third", "my-rules")
    assert refusal.value.hint.endswith(f"version: '1.2' and sha256: {new.sha256}")
    assert not any(name.startswith("my_rules") for name in sys.modules)


def test_an_entry_point_that_does_not_exist_is_refused(distribution):
    with pytest.raises(PluginError, match="'nobody' is not installed"):
        installed_code("selector", "every_third", "nobody")
    with pytest.raises(PluginError, match="has no entry point 'other'") as refusal:
        installed_code("selector", "other", "my-rules")
    assert "broken, every_third" in refusal.value.hint
    identity = installed_code("selector", "broken", "my-rules")
    with pytest.raises(PluginError, match=r"my_rules\.missing:x: cannot be imported"):
        load_plugin("selector", "broken", identity, None, by_function_name)

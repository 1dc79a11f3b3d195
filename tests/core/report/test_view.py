import json
from pathlib import Path

import pytest

from core.artifacts.request import PublishRequest
from core.artifacts.store import Store
from core.errors import InputError, RecipeError, StoreError
from core.recipe.loading import load_text
from core.report import view
from core.report.view import assemble_view, directory_name, read_index

TEXT = """\
models:
  student: {model_id: toy-student}
  teacher: {model_id: toy-teacher}
environment: {name: calculator}
"""
FILES = {
    "student": ("metrics.jsonl", "state.json"),
    "rollouts": ("trajectories.jsonl", "stats.json"),
    "report": ("report.html", "report.json"),
}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def artifact(store):
    """Return f(kind, content): an artifact with the files that a view shows."""

    def publish(kind, content):
        def build(directory):
            for name in FILES[kind]:
                (directory / name).write_text(content)
            return {}

        return store.publish(PublishRequest(kind, "x", kind, "1", {"content": content}), build)

    return publish


@pytest.fixture
def show(store, artifact, tmp_path):
    """Return f(content, cycles, overrides): the view of a run of so many cycles."""

    def run(content, cycles, *overrides, report=True):
        loaded = load_text(TEXT, [f"run.output_dir={tmp_path / 'runs'}", *overrides])
        kinds = [(kind, n) for n in range(cycles) for kind in ("rollouts", "student")]
        parts = {f"{kind}_{n:04d}": artifact(kind, f"{content} {n}") for kind, n in kinds}
        student = artifact("student", f"{content} last")
        page = artifact("report", content) if report else None
        return assemble_view(store, parts, student, page, loaded.recipe, loaded.runtime)

    return run


def tree(directory):
    return {str(p.relative_to(directory)) for p in directory.rglob("*")}


def test_a_view_is_called_after_the_run_and_its_seed(show):
    assert show("a", 1, "run.name=mine", "run.seed=7").name == "mine-seed7"
    assert show("a", 1, "run.name=mine", "run.seed=8").name == "mine-seed8"
    assert show("a", 1, "run.name=mine", "run.run_id=exactly.this").name == "exactly.this"


@pytest.mark.parametrize(
    ("label", "directory"),
    [
        ("../../etc", "etc-seed1"),
        ("/tmp/x", "tmp-x-seed1"),
        ("..", "run-seed1"),
        ("a b/c: 100%", "a-b-c-100-seed1"),
        ("日本", "run-seed1"),
        ("lr=1e-3_v1.2+x", "lr=1e-3_v1.2+x-seed1"),
    ],
)
def test_no_label_leads_out_of_the_directory_of_views(label, directory):
    loaded = load_text(TEXT, ["run.seed=1"])
    runtime = loaded.runtime.model_copy(update={"run_name": label})
    assert directory_name(loaded.recipe, runtime) == directory


@pytest.mark.parametrize(
    "run_id", ["../x", "/tmp/x", "..", ".hidden", "a/b", "''", "a b", "x" * 101]
)
def test_an_id_that_is_no_plain_name_is_refused(run_id):
    with pytest.raises(RecipeError, match=r"run\.run_id"):
        load_text(TEXT, [f"run.run_id={run_id}"])


def test_the_index_says_what_the_run_was_and_which_files_are_the_view_s(show):
    directory = show("a", 1, "run.notes=why", "run.tags=[x, y]")
    index = json.loads((directory / "artifacts.json").read_text())
    assert (index["notes"], index["tags"]) == ("why", ["x", "y"])
    listed = {str(Path(name)) for name in index["files"]}
    assert listed == {name for name in tree(directory) if (directory / name).is_file()} - {
        "artifacts.json",
        "recipe.yaml",
    }
    assert read_index(directory).student.kind == "student"


def test_nothing_of_an_older_run_remains_and_nothing_of_a_user_s_is_lost(show):
    directory = show("long", 3)
    (directory / "notes.txt").write_text("mine")
    (directory / "student_0002" / "plot.png").write_text("mine")
    assert show("short", 1, report=False) == directory
    assert tree(directory) == {
        "artifacts.json",
        "recipe.yaml",
        "notes.txt",
        "rollouts_0000",
        "rollouts_0000/trajectories.jsonl",
        "rollouts_0000/stats.json",
        "student_0000",
        "student_0000/metrics.jsonl",
        "student_0000/state.json",
        "student_0002",
        "student_0002/plot.png",
    }
    assert (directory / "student_0000" / "state.json").read_text() == "short 0"
    assert (directory / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_cut_off_view_is_no_run_and_is_made_whole_by_the_next_one(show, monkeypatch, at):
    directory, link = show("long", 3), view._link
    calls = 0

    def dying(source, target):
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        link(source, target)

    monkeypatch.setattr(view, "_link", dying)
    with pytest.raises(KeyboardInterrupt):
        show("short", 2)
    with pytest.raises(InputError, match="is no run directory"):
        read_index(directory)
    monkeypatch.undo()
    fresh = tree(show("short", 1))
    assert fresh == tree(show("short", 1, "run.run_id=elsewhere"))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"files": 3}', '{"files": ["../../x"]}', '{"files": ["/etc/x"]}']
)
def test_an_index_that_is_not_a_view_s_is_left_alone(show, tmp_path, text):
    directory = tmp_path / "runs" / "taken"
    directory.mkdir(parents=True)
    (directory / "artifacts.json").write_text(text)
    with pytest.raises(StoreError, match=r"artifacts\.json.*\n.*run\.run_id"):
        show("a", 1, "run.run_id=taken")
    assert tree(directory) == {"artifacts.json"}


@pytest.mark.parametrize("missing", ["student", "model_paths", "store", "parts"])
def test_an_index_with_a_part_missing_is_no_run(show, missing):
    directory = show("a", 1)
    index = json.loads((directory / "artifacts.json").read_text())
    del index[missing]
    (directory / "artifacts.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=f"is no run directory.*{missing}"):
        read_index(directory)

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.artifacts.locking import locked
from core.errors import InputError, NumericsError, StoreError
from core.recipe.loading import load
from core.runs import recorder
from core.runs.layout import checkpoint_name
from core.runs.manifest import load_manifest
from core.runs.placing import lock_file
from core.runs.reading import open_run, status_of
from core.runs.recorder import recorded, write_run

REPO = Path(__file__).resolve().parents[3]

NAMES = {
    "config.submitted.yaml",
    "config.validated.yaml",
    "config.resolved.yaml",
    "environment.json",
    "metrics.jsonl",
    "events.jsonl",
    "trajectories.jsonl",
    "eval_trajectories.jsonl",
    "token_analysis.jsonl",
    "teacher-cache/index.json",
    "teacher-cache/shard-00000.safetensors",
    "teacher-cache/shard-00001.safetensors",
    "eval.json",
    "report.html",
    "summary.md",
    "local.json",
    *(
        f"checkpoints/{name}/{file}"
        for name in ("final", checkpoint_name(1), checkpoint_name(0))
        for file in (
            "checkpoint.json",
            "model.json",
            "optimizer.safetensors",
            "state.json",
            "trainable.safetensors",
        )
    ),
}


def files_of(directory):
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def events(directory):
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


@pytest.fixture
def own(tiny, tmp_path):
    """Return f(words): recipe and runtime of a run with a directory of its own."""

    def make(*words):
        where = f"run.output_dir={tmp_path / 'runs'}"
        store = f"runtime.store={tiny.runtime.store}"
        return load(tiny.given.path, [store, where, *words])

    return make


def written(tiny, loaded):
    artifacts = tiny.run.artifacts()
    return write_run(tiny.store, artifacts, loaded.recipe, loaded.runtime)


def test_a_run_leaves_exactly_the_files_of_the_seeds(tiny):
    """001, section 5: the names, and nothing beside them."""
    assert files_of(tiny.directory) == NAMES | {"manifest.json"}
    manifest = load_manifest(tiny.directory)
    assert manifest.status == "completed"
    assert set(manifest.files) == NAMES


def test_every_file_has_the_size_and_digest_that_the_manifest_names(tiny):
    for name, entry in load_manifest(tiny.directory).files.items():
        data = (tiny.directory / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.size, entry.sha256), name


def test_the_submitted_file_is_kept_byte_for_byte_and_its_overrides_beside_it(tiny):
    submitted = (tiny.directory / "config.submitted.yaml").read_bytes()
    assert submitted == Path(tiny.given.path).read_bytes()
    config = load_manifest(tiny.directory).config
    assert config["submitted"]["sha256"] == hashlib.sha256(submitted).hexdigest()
    assert config["overrides"] == ["runtime.store=<local>", "run.output_dir=<local>"]


def test_the_resolved_configuration_has_no_auto_left_and_loads_to_the_same_recipe(tiny):
    text = (tiny.directory / "config.resolved.yaml").read_text()
    assert "auto" not in text.replace("auto_swap", "")
    loaded = load(tiny.directory / "config.resolved.yaml")
    assert loaded.recipe == tiny.recipe
    assert (loaded.runtime.device, loaded.runtime.threads) == ("cpu", 1)
    assert loaded.runtime.run_id == tiny.directory.name


def test_nothing_that_is_shared_names_a_place_or_a_person(tiny):
    for name in ("manifest.json", "environment.json", "config.validated.yaml", "summary.md"):
        text = (tiny.directory / name).read_text()
        assert str(tiny.runtime.store) not in text
        assert str(Path.home()) not in text.replace("/root", "/root/")


def test_a_second_writing_of_the_same_run_changes_no_file_but_the_journal(tiny, own):
    first = written(tiny, own("run.run_id=again"))
    before = {name: (first / name).read_bytes() for name in files_of(first)}
    assert written(tiny, own("run.run_id=again")) == first
    after = {name: (first / name).read_bytes() for name in files_of(first)}
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {"manifest.json", "events.jsonl"}
    assert before.keys() == after.keys()


def test_the_life_of_a_run_is_told_in_order(tiny, own):
    """001, 5.3: ready, running, and how it ended."""
    loaded = own("run.run_id=life")
    with recorded(tiny.store, loaded.recipe, loaded.runtime) as record:
        seen = [load_manifest(record.directory).status]
        record.start()
        seen.append(load_manifest(record.directory).status)
        record.complete(tiny.run.artifacts())
    seen.append(load_manifest(record.directory).status)
    assert seen == ["ready", "running", "completed"]
    assert [row["event"] for row in events(record.directory)] == ["run_start", "run_end"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NumericsError("loss is not finite in /data/x", "Lower the rate."), "failed"),
        (ValueError("token=abc"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_run_that_fails_says_so_and_keeps_what_it_has(tiny, own, error, status):
    loaded = own("run.run_id=short")
    with pytest.raises(type(error)), recorded(tiny.store, loaded.recipe, loaded.runtime) as record:
        record.so_far = tiny.run.artifacts
        record.start()
        raise error
    manifest = load_manifest(record.directory)
    assert manifest.status == status
    assert open_run(record.directory).metrics()
    assert "/data" not in json.dumps(manifest.error)
    assert "abc" not in json.dumps(manifest.error)
    if status == "failed":
        assert manifest.error["type"] == type(error).__name__


DYING = """
import os, sys
from core.artifacts.store import Store
from core.recipe.loading import load
from core.runs.recorder import recorded
loaded = load(sys.argv[1], sys.argv[2:])
with recorded(Store(loaded.runtime.store), loaded.recipe, loaded.runtime) as record:
    record.start()
    os.kill(os.getpid(), 9)
"""


def test_a_killed_run_reads_as_interrupted_and_the_next_one_says_that_it_resumed(tiny, tmp_path):
    """Vectors 19: a crash leaves a status that says so."""
    words = [
        f"runtime.store={tiny.runtime.store}",
        f"run.output_dir={tmp_path / 'runs'}",
        "run.run_id=killed",
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-c", DYING, tiny.given.path, *words]
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    directory = tmp_path / "runs" / "killed"
    manifest = load_manifest(directory)
    assert (manifest.status, status_of(directory, manifest)) == ("running", "interrupted")
    with pytest.raises(InputError, match=r"no whole run directory: the run is interrupted"):
        open_run(directory)
    loaded = load(tiny.given.path, words)
    assert written(tiny, loaded) == directory
    told = [row["event"] for row in events(directory)]
    assert told == ["run_start", "run_start", "resumed", "run_end"]
    assert open_run(directory).manifest.status == "completed"


def test_a_run_with_a_living_owner_reads_as_running(tiny, own):
    loaded = own("run.run_id=alive")
    with recorded(tiny.store, loaded.recipe, loaded.runtime) as record:
        record.start()
        manifest = load_manifest(record.directory)
        assert status_of(record.directory, manifest) == "running"
        record.complete(tiny.run.artifacts())


def test_a_second_start_waits_for_the_first(tiny, own):
    loaded = own("run.run_id=twice")
    directory = loaded.runtime.runs / "twice"
    lock_file(directory).parent.mkdir(parents=True)
    script = DYING.replace("os.kill(os.getpid(), 9)", "print('in', flush=True)")
    with locked(lock_file(directory), "twice"):
        command = [sys.executable, "-c", script, tiny.given.path]
        words = [
            f"runtime.store={tiny.runtime.store}",
            f"run.output_dir={loaded.runtime.runs}",
            "run.run_id=twice",
        ]
        waiting = subprocess.Popen(
            [*command, *words], env={**os.environ, "PYTHONPATH": str(REPO)}, stdout=subprocess.PIPE
        )
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(3)
        assert not directory.exists()
    assert waiting.communicate(timeout=60)[0] == b"in\n"


def test_nothing_of_another_recipe_remains_and_nothing_of_a_user_s_is_lost(tiny, own):
    directory = written(tiny, own("run.run_id=shared"))
    (directory / "notes.txt").write_text("mine")
    (directory / "checkpoints" / "final" / "plot.png").write_text("mine")
    loaded = own("run.run_id=shared", "train.cycles=9")
    with recorded(tiny.store, loaded.recipe, loaded.runtime) as record:
        assert files_of(record.directory) == {
            "manifest.json",
            "config.validated.yaml",
            "environment.json",
            "events.jsonl",
            "notes.txt",
            "checkpoints/final/plot.png",
        }
    assert (directory / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("at", [1, 5, 12])
def test_a_directory_that_is_cut_off_is_no_run_and_is_made_whole_by_the_next_one(
    tiny, own, monkeypatch, at
):
    loaded = own("run.run_id=cut")
    calls, replace = 0, recorder.place_files.__globals__["replace_file"]

    def dying(path, chunks):
        nonlocal calls
        calls += 1
        if calls == at + 2:  # two files are written when the directory is opened
            raise KeyboardInterrupt
        replace(path, chunks)

    monkeypatch.setitem(recorder.place_files.__globals__, "replace_file", dying)
    with pytest.raises(KeyboardInterrupt):
        written(tiny, loaded)
    monkeypatch.undo()
    directory = loaded.runtime.runs / "cut"
    assert load_manifest(directory).status == "interrupted"
    whole = written(tiny, loaded)
    assert files_of(whole) == NAMES - {"config.submitted.yaml"} | {"manifest.json"}


@pytest.mark.parametrize("text", ["{", "[]", '{"owned": ["../../x"]}', '{"owned": 3}'])
def test_a_manifest_that_is_not_a_run_s_is_left_alone(tiny, own, text):
    loaded = own("run.run_id=taken")
    directory = loaded.runtime.runs / "taken"
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=r"manifest\.json.*\n.*run\.run_id"):
        written(tiny, loaded)
    assert files_of(directory) == {"manifest.json"}


def test_nothing_is_written_through_a_link_out_of_the_directory(tiny, own, tmp_path):
    loaded = own("run.run_id=linked")
    directory, outside = loaded.runtime.runs / "linked", tmp_path / "outside"
    directory.mkdir(parents=True)
    outside.mkdir()
    (directory / "checkpoints").symlink_to(outside)
    with pytest.raises(StoreError, match="checkpoints is a link"):
        written(tiny, loaded)
    assert list(outside.iterdir()) == []


def test_a_run_that_was_put_together_in_code_has_no_submitted_file(tiny, own):
    directory = written(tiny, own("run.run_id=code"))
    assert not (directory / "config.submitted.yaml").exists()
    assert load_manifest(directory).config["submitted"] is None

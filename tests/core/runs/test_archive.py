import hashlib
import io
import json
import shutil
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.artifacts.record import FileEntry
from core.errors import InputError
from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.loading import load
from core.report.markdown import summary
from core.report.page import render
from core.report.run_report import run_report
from core.runs.archive import export_run, exported_files
from core.runs.checkpoints import open_checkpoint
from core.runs.configs import Submission
from core.runs.inspection import episode_view, provenance_table
from core.runs.manifest import load_manifest, write_manifest
from core.runs.reading import open_run
from core.runs.recorder import write_run


def unpacked(path, target):
    target.mkdir()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            archive.extractall(target)
    else:
        with tarfile.open(path) as archive:
            archive.extractall(target, filter="data")
    (inside,) = target.iterdir()
    return inside


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tgz"])
def test_the_same_directory_gives_the_same_bytes(tiny, tmp_path, ending):
    run = open_run(tiny.directory)
    first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    export_run(run, first)
    export_run(run, second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_an_unpacked_archive_is_a_run_directory_without_its_places(tiny, tmp_path, ending):
    path = tmp_path / f"run.{ending}"
    export_run(open_run(tiny.directory), path)
    inside = unpacked(path, tmp_path / "out")
    manifest = load_manifest(inside)
    here = {str(p.relative_to(inside)) for p in inside.rglob("*") if p.is_file()}
    assert here == {*manifest.files, "manifest.json"}
    assert set(load_manifest(tiny.directory).files) - here == {"local.json"}
    for name, entry in manifest.files.items():
        assert hashlib.sha256((inside / name).read_bytes()).hexdigest() == entry.sha256
    run = open_run(inside)
    assert provenance_table(run) == provenance_table(open_run(tiny.directory))
    assert run_report(run) == run_report(open_run(tiny.directory))
    assert open_checkpoint(inside).name == "final"
    assert run.recipe() == tiny.recipe


def test_an_archive_says_what_was_changed_and_what_was_left_out(tiny):
    manifest, _ = exported_files(open_run(tiny.directory))
    assert manifest.exported is not None
    assert set(manifest.exported["left_out"]) == {"local.json"}
    assert manifest.exported["redacted"] == []
    assert manifest.exported["of"] == load_manifest(tiny.directory).digest


def test_an_altered_file_is_named_and_nothing_is_written(copy, tmp_path):
    with (copy / "metrics.jsonl").open("ab") as stream:
        stream.write(b"{}\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl is not what the manifest says"):
        export_run(open_run(copy), tmp_path / "x.zip")
    assert list(tmp_path.glob("*.zip")) == []


def test_another_ending_and_an_existing_file_are_refused(tiny, tmp_path):
    run = open_run(tiny.directory)
    with pytest.raises(InputError, match="an archive ends in"):
        export_run(run, tmp_path / "x.rar")
    (tmp_path / "x.zip").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        export_run(run, tmp_path / "x.zip")
    assert (tmp_path / "x.zip").read_text() == "mine"


def test_a_link_out_of_the_directory_is_not_followed(copy, tmp_path):
    secret = tmp_path / "secret.md"
    shutil.copy(copy / "summary.md", secret)
    (copy / "summary.md").unlink()
    (copy / "summary.md").symlink_to(secret)
    with pytest.raises(InputError, match=r"summary\.md is not what the manifest says"):
        exported_files(open_run(copy))


def planted(directory, text):
    """Let the worlds of all episodes say ``text``, the students repeat it, the ids spell it."""
    path = directory / "trajectories.jsonl"
    rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    for row in rows:
        for span in row["spans"]:
            if span["span_type"] in ("user", "assistant_text"):
                span["text"] += text
                size = span["end"] - span["start"]
                ids = [*ToyTokenizer().encode(text), *([1] * size)][:size]
                row["token_ids"][span["start"] : span["end"]] = ids
    rows[0]["metadata"] = {"note": text, "api_key": "plainword7"}
    rows[0]["verification"]["predicted"] = text
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(data)
    manifest = load_manifest(directory)
    entry = FileEntry(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    files = {**manifest.files, "trajectories.jsonl": entry}
    write_manifest(directory, manifest.model_copy(update={"files": files}))


def test_token_ids_that_spell_a_redacted_text_go_with_it(copy):
    planted(copy, " /home/ann/qqprivateqq")
    assert any(b"qqprivateqq" in line for line in (copy / "trajectories.jsonl").open("rb"))
    manifest, files = exported_files(open_run(copy))
    assert manifest.exported is not None
    assert "teacher-cache/index.json" in manifest.exported["left_out"]
    codec = ToyTokenizer()
    for line in files["trajectories.jsonl"].split(b"\n")[:-1]:
        row = json.loads(line)
        assert "qqprivateqq" not in codec.decode(row["token_ids"])
    assert b"plainword7" not in files["trajectories.jsonl"]


WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=6, max_size=10).map(lambda w: f"zq{w}qz")
SECRETS = st.builds(
    lambda kind, word: (kind.format(word), word),
    st.sampled_from(
        [
            "hf_abcdefghijklmnop{}",
            "ghp_abcdefghijklmnop{}",
            "https://{}:pw@host/x",
            "token={}",
            '"password": "{} and more"',
            "Bearer abcdef.{}",
            "/home/{}/models/x",
            "/data/a b/{}",
            "C:\\Users\\{}\\x",
            "\\\\server\\share\\{}",
            "~/{}/x",
            "file:///srv/{} x/y",
        ]
    ),
    WORD,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(secrets=st.lists(SECRETS, min_size=5, max_size=5, unique_by=lambda pair: pair[1]))
def test_no_secret_or_absolute_path_survives_in_any_exported_file(tiny, tmp_path, secrets):
    """Issue 6, acceptance 5: planted in recipe, environment and prompts."""
    where = tmp_path / secrets[0][1]
    where.mkdir(exist_ok=True)
    texts = [text for text, _ in secrets]
    recipe = where / f"{secrets[0][1]}.yaml"
    source = f"# {texts[0]}\n" + tiny.given.source.decode()
    recipe.write_text(source, newline="\n")
    words = (f"run.output_dir={where / 'runs'}", "run.run_id=planted")
    loaded = load(recipe, words)
    runtime = loaded.runtime.model_copy(
        update={"notes": texts[1], "tags": (texts[2], "plain"), "run_name": texts[3][:120]}
    )
    teacher = loaded.recipe.models.teacher.model_copy(update={"model_id": texts[4]})
    models = loaded.recipe.models.model_copy(update={"teacher": teacher})
    planted_recipe = loaded.recipe.model_copy(update={"models": models})
    given_ = Submission(planted_recipe, runtime, source.encode(), (*words, texts[1]), str(recipe))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", texts[0].replace("\n", " "))
        patch.setenv("PYTORCH_CUDA_ALLOC_CONF", texts[2].replace("\n", " "))
        directory = write_run(tiny.store, tiny.run.artifacts(), planted_recipe, runtime, given_)
    planted(directory, f" {texts[0]}\n{texts[1]}")
    run = open_run(directory)
    _, files = exported_files(run)
    data = run_report(run)
    shown = {
        **{name: as_bytes(content) for name, content in files.items()},
        "page": render(data).encode(),
        "markdown": summary(data).encode(),
    }
    leaks = {
        (name, word)
        for name, content in shown.items()
        for _, word in secrets
        if word.encode() in content
    }
    assert leaks == set()


def as_bytes(content):
    return content if isinstance(content, bytes) else content.read_bytes()


def test_an_export_shows_its_episodes_token_by_token(tiny, tmp_path):
    export_run(open_run(tiny.directory), tmp_path / "x.zip")
    inside = open_run(unpacked(tmp_path / "x.zip", tmp_path / "out"))
    first = next(iter(inside.trajectories())).trajectory_id
    assert episode_view(inside, first) == episode_view(open_run(tiny.directory), first)


def test_a_tar_archive_names_no_owner(tiny, tmp_path):
    export_run(open_run(tiny.directory), tmp_path / "x.tar")
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "x.tar").read_bytes())) as archive:
        for member in archive:
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            assert member.mtime == 0

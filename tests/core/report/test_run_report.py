import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.artifacts.record import FileEntry
from core.recipe.steps import report_spec
from core.report.assembly import assemble
from core.report.markdown import summary
from core.report.page import episode_view, render
from core.report.run_report import run_report
from core.runs.manifest import load_manifest, write_manifest
from core.runs.reading import open_run
from core.runs.recorder import write_run

REPO = Path(__file__).resolve().parents[3]
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "]]>\u2028\x1b[31m\x00 <!-- -->",
    "| a | b |\n# not a heading\n[x](javascript:alert(1))",
]


def test_the_directory_alone_gives_the_report_of_the_store(tiny):
    spec = report_spec(tiny.recipe)
    assert spec is not None
    from_store = assemble(tiny.store, tiny.run.parts, spec)
    from_files = run_report(open_run(tiny.directory))
    assert from_files == from_store
    assert render(from_files) == (tiny.directory / "report.html").read_text()
    assert summary(from_files) == (tiny.directory / "summary.md").read_text()


OFFLINE = ("run.mode=offline_kd", "cache.reuse_across_policy_versions=true")


@pytest.mark.parametrize(
    "words",
    [
        ("run.mode=sft",),
        (*OFFLINE, "offline_kd.trajectory_source=oracle"),
        (*OFFLINE, "offline_kd.trajectory_source=frozen_student"),
        ("train.opd_freshness=replay", "train.gradient_accumulation_steps=2"),
        ("train.max_selected_training_tokens=40",),
    ],
    ids=["sft", "oracle", "frozen", "replay", "budget"],
)
def test_every_kind_of_run_has_one_report_whoever_reads_it(tmp_path, computed, words):
    found = computed(tmp_path, *words)
    spec = report_spec(found.recipe)
    assert spec is not None
    directory = write_run(found.store, found.run.artifacts(), found.recipe, found.runtime)
    from_store = assemble(found.store, found.run.parts, spec)
    assert run_report(open_run(directory)) == from_store


def test_a_report_speaks_only_of_tokens_that_the_student_wrote(tiny):
    """001, section 6: reports describe only tokens that the policy emitted."""
    run = open_run(tiny.directory)
    masks = {one.trajectory_id: one.model_mask for one in run.trajectories()}
    rows = run.token_rows()
    assert rows
    assert all(masks[row["trajectory_id"]][row["target_position"]] for row in rows)
    for episode in run_report(run).episodes:
        for span in episode_view(episode)["spans"]:
            assert span["model"] or span["tokens"] == []


def said(copy, text):
    """Let an episode and a token of it say ``text``."""
    for name, change in (
        ("trajectories.jsonl", lambda row: row["spans"][1].update(text=text)),
        ("token_analysis.jsonl", lambda row: row.update(token_piece=text)),
    ):
        rows = [json.loads(line) for line in (copy / name).read_text().split("\n") if line]
        for row in rows:
            change(row)
        (copy / name).unlink()
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (copy / name).write_bytes(data)
    config = (copy / "config.resolved.yaml").read_text()
    (copy / "local.json").unlink()
    (copy / "config.resolved.yaml").write_text(
        config.replace("model_id: toy-student", f"model_id: {json.dumps(text)}")
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_never_run(copy, text):
    plain = render(run_report(open_run(copy)))
    said(copy, text)
    data = run_report(open_run(copy))
    assert any(note.piece == text for one in data.episodes for note in one.notes)
    page = render(data)
    assert page.count("<script") == plain.count("<script")
    assert page.count("</script") == plain.count("</script")
    assert "<img src=x" not in page
    shown = summary(data)
    assert "\x1b" not in shown
    assert "\x00" not in shown
    assert "\n# not a heading" not in shown


def test_no_remote_address_is_on_the_page(tiny):
    page = (tiny.directory / "report.html").read_text()
    body = page.split("</script>", 1)[1]  # after the library, whose texts name its home
    for sign in ('src="http', "src='http", 'href="http', "url(http", "@import", "<link"):
        assert sign not in body


TORCH_FREE = """
import sys
for name in ("torch", "transformers", "peft", "prefect"):
    sys.modules[name] = None
from pathlib import Path
from core.report.page import episode_view, render
from core.report.markdown import summary
from core.report.run_report import run_report
from core.runs.archive import export_run
from core.runs.inspection import episode_ids, episode_view, provenance_table
from core.runs.reading import open_run
from core.runs.recorder import write_run
run = open_run(Path(sys.argv[1]))
data = run_report(run)
assert "after OPD" in render(data) and "after OPD" in summary(data)
assert provenance_table(run)
assert episode_view(run, episode_ids(run)[0][0]).tokens
export_run(run, Path(sys.argv[1]).parent / "export.zip")
assert run.recipe().run.seed == run.manifest.seed
"""


def test_a_copy_is_read_without_torch_prefect_and_store(copy):
    (copy / "local.json").unlink()
    command = [sys.executable, "-c", TORCH_FREE, str(copy)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_report_can_be_made_of_a_run_that_made_none(copy):
    config = copy / "config.resolved.yaml"
    text = config.read_text().replace("report:\n  enabled: true", "report:\n  enabled: false")
    config.write_text(text)
    (copy / "local.json").unlink()
    assert run_report(open_run(copy)).cycles


def test_entries_of_the_manifest_are_not_needed_to_be_equal_for_a_report(copy):
    """What a report shows is read from the files as they are; `files` is for verification."""
    manifest = load_manifest(copy)
    entry = FileEntry(sha256=hashlib.sha256(b"").hexdigest(), size=0)
    files = {**manifest.files, "events.jsonl": entry}
    write_manifest(copy, manifest.model_copy(update={"files": files}))
    assert run_report(open_run(copy)).title

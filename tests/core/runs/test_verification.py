import json
import os
import random
import shutil

import pytest

from core.errors import InputError
from core.runs.manifest import load_manifest, write_manifest
from core.runs.verification import verify_run


def _findings(directory):
    return [str(finding) for finding in verify_run(directory)[1]]


def _reseal(directory, name):
    """Make the manifest agree with a file that was changed: then only its meaning can betray it."""
    from core.artifacts.contents import hash_file

    manifest = load_manifest(directory)
    files = {**manifest.files, name: hash_file(directory / name)}
    write_manifest(directory, manifest.model_copy(update={"files": files}))


def test_a_run_as_it_was_made_is_sound_wherever_it_is(tiny, copy):
    assert _findings(tiny.directory) == _findings(copy) == []


def test_any_byte_of_any_file_is_missed(copy):
    """One byte anywhere in any file of a run, sampled widely, is found and its file named."""
    rng = random.Random(9)
    names = [*load_manifest(copy).files, "manifest.json"]
    assert len(names) > 15
    for name in names:
        path = copy / name
        whole = path.read_bytes()
        path.unlink()  # a copy may share the bytes of another
        for place in rng.sample(range(len(whole)), min(len(whole), 5)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 2]) + whole[place + 1 :])
            if name == "manifest.json":
                with pytest.raises(InputError):
                    verify_run(copy)
            else:
                assert f"{name}: content was altered" in _findings(copy), (name, place)
        path.write_bytes(whole)
    assert _findings(copy) == []


def test_files_that_went_came_or_became_links_are_named(copy, tmp_path):
    shutil.copy(copy / "eval.json", tmp_path / "eval.json")
    (copy / "eval.json").unlink()
    (copy / "eval.json").symlink_to(tmp_path / "eval.json")
    (copy / "metrics.jsonl").unlink()
    (copy / "checkpoints" / "final" / "extra.bin").write_bytes(b"x")
    (copy / "notes-of-mine.txt").write_text("a person may put files beside the run's own")
    assert sorted(_findings(copy)) == [
        "checkpoints/final/extra.bin: not in the manifest",
        "eval.json: is not a plain file",
        "metrics.jsonl: missing",
    ]


def test_a_pipe_in_place_of_a_file_is_not_read(copy):
    (copy / "eval.json").unlink()
    os.mkfifo(copy / "eval.json")
    assert _findings(copy) == ["eval.json: is not a plain file"]


def test_a_tool_result_cannot_be_passed_off_as_the_student_s_words(copy):
    """Masks follow from the spans, so relabelling tokens breaks the episode."""
    path = copy / "trajectories.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    span = next(one for one in rows[0]["spans"] if one["span_type"] in ("user", "system"))
    span["span_type"] = "assistant_text"
    path.unlink()
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    _reseal(copy, "trajectories.jsonl")
    (line,) = _findings(copy)[:1]
    assert line.startswith("trajectories.jsonl: ")
    assert "row 1" in line


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"trajectory_id": "nobody"}, "nobody is no training episode of this run"),
        ({"target_position": 0}, "position 0 of"),
        ({"token_id": -1}, "holds another token"),
    ],
)
def test_token_rows_must_speak_of_sampled_tokens(copy, change, what):
    path = copy / "token_analysis.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1] |= change
    path.unlink()
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    _reseal(copy, "token_analysis.jsonl")
    (line,) = _findings(copy)
    assert line.startswith("token_analysis.jsonl: row 2: ")
    assert what in line


def test_targets_of_another_run_are_found_by_their_index(copy):
    path = copy / "teacher-cache" / "index.json"
    index = json.loads(path.read_text())
    index["shards"][0]["sha256"] = "0" * 64
    path.unlink()
    path.write_text(json.dumps(index))
    _reseal(copy, "teacher-cache/index.json")
    assert _findings(copy) == ["teacher-cache/index.json: shard-00000.safetensors is another file"]


def test_what_is_no_run_directory_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run directory"):
        verify_run(tmp_path)

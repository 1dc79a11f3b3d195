import hashlib

import pytest

from core.errors import PromptFileError
from core.prompts.places import find_files, locate_file


def test_a_file_is_called_after_its_content_wherever_it_lies(jsonl, tmp_path):
    path = jsonl([{"a": 1}])
    found = locate_file(str(path), tmp_path / "stamps")
    assert found.name == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    moved = path.rename(tmp_path / "moved.txt")
    assert locate_file(str(moved)).name == found.name
    assert find_files([found.name], {found.digest: moved}) == [moved]


def test_changed_content_is_another_file(jsonl, tmp_path):
    """C82: a key holds content, never a path."""
    before = locate_file(str(jsonl([{"a": 1}])), tmp_path / "stamps")
    after = locate_file(str(jsonl([{"a": 2}])), tmp_path / "stamps")
    assert before.name != after.name


def test_what_is_not_there_is_named_with_what_may_have_been_meant(jsonl, tmp_path):
    path = jsonl([{"a": 1}], "train.jsonl")
    with pytest.raises(PromptFileError, match=r"trian.jsonl does not exist") as caught:
        locate_file(str(tmp_path / "trian.jsonl"))
    assert str(path) in caught.value.hint
    with pytest.raises(PromptFileError, match="is a directory"):
        locate_file(str(tmp_path))
    with pytest.raises(PromptFileError, match="not at hand"):
        find_files(["sha256:" + "0" * 64], {})

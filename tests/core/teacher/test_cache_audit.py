import json

import pytest
import torch

from core.errors import CacheError
from core.teacher.addresses import Scope
from core.teacher.cache_audit import read_header, stats, validate
from core.teacher.target_cache import TargetCache

SCOPE = Scope("t", "k", "exact_full_vocab", None, None, 1000, "float32", "cpu", 1, "2")


@pytest.fixture
def directory(tmp_path):
    """Three positions of two episodes in two files."""
    for number, count in ((1, 2), (2, 1)):
        names = [bytes([number, n]) * 8 for n in range(count)]
        columns = {"teacher_hidden_NH": torch.full((count, 4), float(number))}
        TargetCache(tmp_path).publish(
            SCOPE, [(names, columns)], hits=number, misses=count, served=set(),
            max_bytes=1 << 20, entries_per_shard=32,
        )  # fmt: skip
    return tmp_path


def test_stats_count_what_is_there(directory):
    found = stats(directory)
    size = sum(path.stat().st_size for path in directory.glob("targets-*"))
    assert (found["positions"], found["entries"], found["shards"]) == (3, 2, 2)
    assert (found["bytes"], found["full_vocabulary_bytes"]) == (size, 3 * 1000 * 2)
    assert found["compression"] == pytest.approx(6000 / size)
    assert (found["hits"], found["misses"], found["hit_rate"]) == (3, 3, 0.5)
    (row,) = found["scopes"]
    assert (row["scope"], row["teacher_digest"], row["positions"]) == (SCOPE.digest, "t", 3)


def test_counters_survive_what_is_pruned_and_a_lost_memo_costs_only_them(directory):
    TargetCache(directory).publish(
        SCOPE, [], hits=0, misses=0, served=set(), max_bytes=0, entries_per_shard=32
    )
    found = stats(directory)
    assert (found["positions"], found["bytes"], found["compression"]) == (0, 0, None)
    assert (found["hits"], found["scopes"][0]["teacher_digest"]) == (3, None)
    (directory / "usage.json").write_text("{")
    assert stats(directory)["hit_rate"] is None
    assert validate(directory) == []


def test_every_problem_names_its_file(directory):
    first, second = sorted(directory.glob("targets-*"))
    blob = bytearray(first.read_bytes())
    blob[-1] ^= 1
    first.write_bytes(blob)
    second.unlink()
    stray = directory / "targets-0123456789abcdef.safetensors"
    stray.write_bytes(b"")
    problems = validate(directory)
    assert len(problems) == 3
    for path, reason in ((first, "altered"), (second, "missing"), (stray, "not in the index")):
        assert any(str(path) in line and reason in line for line in problems)


def test_an_index_of_another_version_or_kind_is_refused(directory):
    index = directory / "index.json"
    document = json.loads(index.read_text())
    for field, value in (("schema_version", 99), ("kind", "photos")):
        index.write_text(json.dumps({**document, field: value}))
        with pytest.raises(CacheError, match=r"index\.json"):
            stats(directory)
    index.write_text(json.dumps({**document, "scopes": {}}))
    (problem,) = validate(directory)
    assert "names a scope that it does not describe" in problem


@pytest.mark.parametrize("blob", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{]"])
def test_a_header_that_is_none_is_refused(blob):
    with pytest.raises(ValueError, match=r"header|Expecting|decode"):
        read_header(blob)

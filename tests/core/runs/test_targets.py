import hashlib

import pytest
from safetensors.numpy import load_file

from core.errors import CacheError
from core.runs.targets import read_index


def test_every_shard_is_a_cycle_s_targets_with_the_digest_in_the_index(tiny):
    index = read_index(tiny.directory)
    assert [shard.cycle for shard in index.shards] == [0, 1]
    for shard in index.shards:
        path = tiny.directory / "teacher-cache" / shard.file
        data = path.read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard.size, shard.sha256)
        assert shard.artifact == tiny.run.parts[shard.role]
        stored = tiny.store.path(shard.artifact) / "targets.safetensors"
        assert path.samefile(stored)
        tensors = load_file(path)
        positions = sum(entry.positions for entry in shard.entries)
        assert len(tensors["prediction_positions_N"]) == positions
        assert shard.provenance["teacher_digest"] == tiny.run.teacher.digest


@pytest.mark.parametrize("text", ["", "[]", '{"kind": 3}', '{"shards": [{}]}'])
def test_what_is_no_index_is_refused(copy, text):
    (copy / "teacher-cache" / "index.json").write_text(text)
    with pytest.raises(CacheError, match="is no index"):
        read_index(copy)

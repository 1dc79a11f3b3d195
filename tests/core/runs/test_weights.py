import hashlib
import json
import struct

import numpy as np
import pytest

from core.artifacts.contents import content_digest, hash_file
from core.errors import InputError
from core.runs.checkpoints import read_checkpoint
from core.runs.manifest import load_manifest, write_manifest
from core.runs.reading import open_run
from core.runs.weights import WEIGHTS, compare_weights


def _write(path, tensors):
    """Write a safetensors file of raw bytes: {name: (dtype, shape, bytes)}."""
    header, blob = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        offsets = [len(blob), len(blob) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        blob += data
    text = json.dumps(header).encode()
    path.unlink()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def _replace(run, tensors):
    """Give the final checkpoint of a run other weights, with digests that fit."""
    place = run / "checkpoints" / "final"
    _write(place / WEIGHTS, tensors)
    known = read_checkpoint(place)
    files = {**known.files, WEIGHTS: hash_file(place / WEIGHTS)}
    changed = known.model_copy(update={"files": files, "content_digest": content_digest(files)})
    (place / "checkpoint.json").unlink()
    (place / "checkpoint.json").write_text(changed.model_dump_json())
    manifest = load_manifest(run)
    names = [f"checkpoints/final/{name}" for name in (WEIGHTS, "checkpoint.json")]
    entries = {**manifest.files, **{name: hash_file(run / name) for name in names}}
    write_manifest(run, manifest.model_copy(update={"files": entries}))


def _final(left, right):
    return compare_weights(open_run(left), open_run(right))[-1]


@pytest.fixture
def pair(tiny, copy, tmp_path):
    """Two copies of a run whose final weights can be chosen."""
    import shutil

    other = tmp_path / "other" / copy.name
    shutil.copytree(tiny.directory, other)
    return copy, other


def _floats(*values):
    return ("F32", [len(values)], np.array(values, dtype="<f4").tobytes())


def test_distances_equal_those_by_hand(pair):
    # a = (3, 4, 0), b = (3, 0, 4): a·b = 9, |a| = |b| = 5, |a − b| = √32.
    for run, rest in zip(pair, ((4.0, 0.0), (0.0, 4.0)), strict=True):
        _replace(run, {"x": _floats(3.0), "y": _floats(*rest)})
    found = _final(*pair)
    assert found.checkpoint == "final"
    assert found.cosine == pytest.approx(9 / 25)
    assert found.relative_l2 == pytest.approx(32**0.5 / 5)
    assert (found.largest, found.unequal, found.weights) == (4.0, 2, 3)


def test_bfloat16_is_read_as_what_it_is(pair):
    # 1.0 is 0x3F80 and 1.0078125 the next bfloat16, 0x3F81.
    for run, bits in zip(pair, (0x3F80, 0x3F81), strict=True):
        _replace(run, {"x": ("BF16", [1], struct.pack("<H", bits))})
    assert _final(*pair).largest == 2**-7


def test_a_run_and_its_copy_have_the_same_weights(tiny, copy):
    found = compare_weights(open_run(tiny.directory), open_run(copy))
    assert len(found) > 1
    assert {(one.cosine, one.relative_l2, one.unequal) for one in found} == {(1.0, 0.0, 0)}


def test_weights_of_another_model_are_left_out(pair):
    for run, name in zip(pair, "xy", strict=True):
        _replace(run, {name: _floats(1.0)})
    assert "final" not in [one.checkpoint for one in compare_weights(*map(open_run, pair))]


def test_altered_weights_are_refused(copy, tiny):
    path = copy / "checkpoints" / "final" / WEIGHTS
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert hashlib.sha256(path.read_bytes()).hexdigest() != hashlib.sha256(whole).hexdigest()
    with pytest.raises(InputError, match="altered: nothing was loaded"):
        compare_weights(open_run(tiny.directory), open_run(copy))

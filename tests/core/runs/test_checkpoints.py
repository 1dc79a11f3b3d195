import json

import pytest

from core.errors import InputError
from core.runs.checkpoints import open_checkpoint, read_checkpoint
from core.runs.layout import CHECKPOINTS, STATE_FILES
from core.training.state import load_state

PLACES = ["final", "cycle-000001", "cycle-000000"]


def replaced(path, data):
    path.unlink()  # it may be a hard link
    path.write_bytes(data)


@pytest.mark.parametrize("name", PLACES)
def test_a_checkpoint_holds_a_state_of_the_store_and_says_which(tiny, name):
    place = open_checkpoint(tiny.directory, name)
    known = read_checkpoint(place)
    stored = tiny.store.path(known.artifact)
    for file in STATE_FILES:
        assert (place / file).read_bytes() == (stored / file).read_bytes()
    assert load_state(place).digest() == load_state(stored).digest()
    assert known.counters["cycle"] == known.cycle


def test_the_last_two_states_and_the_evaluated_ones_are_kept(tiny):
    """Design 9.14."""
    found = sorted(path.name for path in (tiny.directory / CHECKPOINTS).iterdir())
    assert found == sorted(PLACES)
    assert read_checkpoint(tiny.directory / CHECKPOINTS / "final").artifact == tiny.run.student


@pytest.mark.parametrize("file", STATE_FILES)
def test_any_changed_or_cut_byte_is_refused_before_a_tensor_is_read(copy, file):
    """Vectors 19: refused before any model is touched."""
    path = copy / CHECKPOINTS / "final" / file
    data = path.read_bytes()
    for place in sorted({0, len(data) // 3, len(data) - 1}):
        changed = bytearray(data)
        changed[place] ^= 1
        replaced(path, bytes(changed))
        with pytest.raises(InputError, match=f"{file} is altered: nothing was loaded"):
            open_checkpoint(copy)
    replaced(path, data[:-1])
    with pytest.raises(InputError, match=f"{file} is cut off"):
        open_checkpoint(copy)
    path.unlink()
    with pytest.raises(InputError, match=f"{file} is missing"):
        open_checkpoint(copy)


def test_files_of_two_checkpoints_do_not_mix(copy):
    final, other = (copy / CHECKPOINTS / name for name in ("final", "cycle-000001"))
    replaced(final / "trainable.safetensors", (other / "trainable.safetensors").read_bytes())
    with pytest.raises(InputError, match=r"trainable\.safetensors is altered"):
        open_checkpoint(copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain.pop("files"),
        lambda plain: plain["files"].pop("state.json"),
        lambda plain: plain.update(content_digest="0" * 64),
        lambda plain: plain["files"].update({"../x": plain["files"]["state.json"]}),
    ],
)
def test_a_description_that_does_not_hold_is_refused(copy, change):
    path = copy / CHECKPOINTS / "final" / "checkpoint.json"
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))
    with pytest.raises(InputError, match="does not describe a checkpoint"):
        open_checkpoint(copy)


def test_a_checkpoint_without_its_description_is_none(copy):
    (copy / CHECKPOINTS / "final" / "checkpoint.json").unlink()
    with pytest.raises(InputError, match="does not describe a checkpoint"):
        open_checkpoint(copy)

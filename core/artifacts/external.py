"""An artifact that lies outside the store: its own directory, or a copy of it, with its record."""

from pathlib import Path

from core.artifacts import contents, filesystem
from core.artifacts.key import key_of_payload
from core.artifacts.record import RECORD_NAME, Record, load_record
from core.errors import DamagedRecordError, StoreError

FIX = "Name the directory of an artifact in a store, or a whole copy of one."


def read_external(directory: Path, kind: str) -> Record:
    """Read the record in a directory, whatever the directory is called; no file is hashed.

    Args:
        directory: Where the files and ``record.json`` are.
        kind: What it must be.

    Raises:
        StoreSchemaError: A newer version of this system wrote it.
        DamagedRecordError: The record was altered, or does not fit itself.
        StoreError: There is no record, it is of another kind, or files of it were removed.
    """
    path = directory / RECORD_NAME
    if filesystem.status(path) is None:
        raise StoreError(f"{path}: does not exist", FIX)
    try:
        record = load_record(path)
    except DamagedRecordError as error:
        raise DamagedRecordError(error.message, FIX) from error
    faults = {
        f"is of kind {record.kind}, not {kind}": record.kind != kind,
        "its payload was altered": key_of_payload(record.payload) != record.key,
        "its list of files was altered": contents.content_digest(record.files) != record.digest,
        "files of it were removed to save space": record.pruned or bool(record.shed),
    }
    for what, present in faults.items():
        if present:
            raise StoreError(f"{path}: {what}", FIX)
    return record


def copy_external(directory: Path, record: Record, target: Path) -> None:
    """Copy the files of a record and hash the copies, so that what was checked is what is used.

    Args:
        directory: Where they are; no link is followed.
        record: What they must be; other files stay behind.
        target: Directory that exists.

    Raises:
        StoreError: A file is missing, a link, or altered.
    """
    for name, entry in record.files.items():
        source, copy = directory / name, target / name
        what = contents.strange_part(directory, source)
        if filesystem.status(source) is None:
            what = "missing"
        if what is not None:
            raise StoreError(f"{source}: {what}", FIX)
        filesystem.make_directories(copy.parent)
        filesystem.write_file(copy, [filesystem.read_file(source)])
        if contents.hash_file(copy) != entry:
            raise StoreError(f"{source}: content was altered", FIX)

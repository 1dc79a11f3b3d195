"""One portable archive of a run: redacted, with a manifest of its own, always in the same bytes.

An export is a run directory like any other, less ``local.json``: it can be unpacked, inspected,
reported on and sampled from. Texts are redacted. A span whose text lost something loses its token
ids too, since they spell the same text; where the student itself wrote such a text, the targets are
left out. Weights are numbers and stay: what a model learned by heart, it knows.
"""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, TypeAlias

from core.artifacts.codec import parse_strict
from core.artifacts.contents import hash_file
from core.artifacts.filesystem import touching
from core.artifacts.record import FileEntry
from core.artifacts.redaction import redact, redact_text
from core.errors import InputError, OpdError
from core.recipe.syntax import parse_document, write_document
from core.runs import layout
from core.runs.manifest import Manifest, dump_manifest
from core.runs.reading import RunDirectory

Json = dict[str, Any]
Content: TypeAlias = bytes | Path
"""Of a file: what was made here, or where it lies."""

FORMATS = (".zip", ".tar", ".tar.gz", ".tgz")
LEFT_OUT = {layout.LOCAL: "names places on the machine that computed the run"}
_EPISODES = (layout.TRAJECTORIES, layout.EVAL_TRAJECTORIES)
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a ZIP file can hold; when an archive was made is no content."""
REPLACED = 0
"""Token id in place of those that spell a redacted text."""


def export_run(run: RunDirectory, out: Path) -> Manifest:
    """Write the archive of a run and return the manifest in it.

    Args:
        run: A run directory.
        out: ``.zip``, ``.tar``, ``.tar.gz`` or ``.tgz``; must not exist.

    Raises:
        InputError: ``out`` exists or has another ending, or a file of the run is missing or
            altered.
        StoreError: ``out`` cannot be written.
    """
    if not out.name.endswith(FORMATS):
        raise InputError(f"{out}: an archive ends in {', '.join(FORMATS)}", "Use --out RUN.zip.")
    if out.exists():
        raise InputError(f"{out} exists already", "Choose another name, or remove it.")
    manifest, files = exported_files(run)
    members = {f"{run.manifest.run_id}/{name}": files[name] for name in sorted(files)}
    temporary = out.with_name(f".{out.name}.{token_hex(4)}.tmp")
    with touching("write", out):
        try:
            (_write_zip if out.suffix == ".zip" else _write_tar)(temporary, members, out.suffix)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    return manifest


def exported_files(run: RunDirectory) -> tuple[Manifest, dict[str, Content]]:
    """Return the manifest of an export, and every file of it, the manifest included.

    Raises:
        InputError: A file of the run is missing or altered.
    """
    left_out = dict(LEFT_OUT)
    files: dict[str, Content] = {}
    spoken = False
    for name, entry in run.manifest.files.items():
        if name not in left_out:
            files[name], written = _portable(name, _checked(run.path / name, entry))
            spoken = spoken or written
    if spoken:
        for name in [name for name in files if name.startswith(f"{layout.TARGETS}/")]:
            left_out[name] = "the student wrote a text that was redacted, and its targets spell it"
            del files[name]
    manifest = _manifest(run, files, left_out)
    return manifest, {**files, layout.MANIFEST: dump_manifest(manifest)}


def _manifest(
    run: RunDirectory, files: Mapping[str, Content], left_out: Mapping[str, str]
) -> Manifest:
    known = run.manifest.files
    entries = {
        name: known[name] if isinstance(content, Path) else _entry(content)
        for name, content in sorted(files.items())
    }
    told = {
        "of": run.manifest.digest,
        "redacted": [name for name, entry in entries.items() if entry != known[name]],
        "left_out": dict(left_out),
    }
    return run.manifest.model_copy(
        update={"files": entries, "owned": list(entries), "exported": told}
    )


def _entry(data: bytes) -> FileEntry:
    return FileEntry(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _checked(path: Path, entry: FileEntry) -> Path:
    if path.is_symlink() or not path.is_file() or hash_file(path) != entry:
        raise InputError(
            f"{path} is not what the manifest says: nothing was exported",
            "Run the recipe again to remake the directory.",
        )
    return path


def _portable(name: str, path: Path) -> tuple[Content, bool]:
    """Return a file without secrets, and whether the student wrote one."""
    if name in _EPISODES:
        return _episodes(path.read_bytes())
    if name == layout.TOKEN_ANALYSIS:
        return _token_rows(path.read_bytes()), False
    if name.endswith(".jsonl"):
        return _lines(path.read_bytes(), redact), False
    if name.endswith(".json"):
        return _document(path.read_bytes()), False
    if name.endswith(".yaml"):
        return _yaml(path.read_bytes(), name), False
    # Weights and targets are numbers; report and summary were redacted when they were made.
    return path, False


def _document(data: bytes) -> bytes:
    value = parse_strict(data.decode())
    shown = redact(value)
    return data if shown == value else (json.dumps(shown, indent=1) + "\n").encode()


def _yaml(data: bytes, name: str) -> bytes:
    """Return a configuration as it is, or, where it tells too much, its redacted values alone."""
    text = data.decode("utf-8-sig")
    try:
        values = parse_document(text, name).values
    except OpdError:
        return redact_text(text).encode()
    shown = redact(values)
    if shown == values and redact_text(text) == text:
        return data
    return f"# redacted: comments and layout are gone\n{write_document(shown)}".encode()


def _lines(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return JSON lines with each row changed; a row that stays the same stays byte for byte."""
    lines = []
    for line in filter(None, data.split(b"\n")):
        row = parse_strict(line.decode())
        shown = change(row)
        lines.append(line + b"\n" if shown == row else _line(shown))
    return b"".join(lines)


def _line(row: Any) -> bytes:
    return (json.dumps(row, separators=(",", ":")) + "\n").encode()


def _episodes(data: bytes) -> tuple[bytes, bool]:
    spoken = False

    def change(row: Json) -> Json:
        nonlocal spoken
        shown = redact(row)
        spoken = _hide_tokens(row, shown) or spoken
        return shown

    return _lines(data, change), spoken


def _hide_tokens(row: Json, shown: Json) -> bool:
    """Replace the ids of tokens whose text was changed; tell whether the student wrote one."""
    spoken = False
    for before, after in zip(row["spans"], shown["spans"], strict=True):
        if before["text"] != after["text"]:
            own = range(before["start"], before["end"])
            shown["token_ids"][own.start : own.stop] = [REPLACED] * len(own)
            spoken = spoken or before["span_type"].startswith("assistant")
    return spoken


def _token_rows(data: bytes) -> bytes:
    """Redact pieces of tokens by the text that they make together, episode by episode."""
    texts: dict[str, str] = {}
    for line in filter(None, data.split(b"\n")):
        row = parse_strict(line.decode())
        name = row["trajectory_id"]
        texts[name] = texts.get(name, "") + row["token_piece"]
    told = {name for name, text in texts.items() if redact_text(text) != text}
    gone = {"token_piece": "", "token_id": REPLACED}
    gone |= {"student_top_token": None, "teacher_top_token": None}

    def change(row: Json) -> Json:
        return redact(row | gone if row["trajectory_id"] in told else row)

    return _lines(data, change)


def _write_zip(path: Path, members: Mapping[str, Content], suffix: str) -> None:
    del suffix
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, _EPOCH)
            member.external_attr = 0o644 << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            member.file_size = _size(content)
            with archive.open(member, "w") as target, _open(content) as source:
                shutil.copyfileobj(source, target)


def _write_tar(path: Path, members: Mapping[str, Content], suffix: str) -> None:
    with (
        path.open("wb") as raw,
        _compressed(raw, suffix) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = _size(content), 0o644
            with _open(content) as source:
                archive.addfile(member, source)


def _compressed(raw: IO[bytes], suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".tar":
        return nullcontext(raw)
    return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)


def _open(content: Content) -> IO[bytes]:
    return content.open("rb") if isinstance(content, Path) else io.BytesIO(content)


def _size(content: Content) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)

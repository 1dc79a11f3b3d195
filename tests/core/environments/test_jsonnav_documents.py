"""Golden rows: vectors.md 4 (documents) and 5 (path grammar)."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.environments.jsonnav_documents import (
    build_document,
    key_paths,
    parse_path,
    read_path,
    render_value,
)
from core.errors import ToolEnvironmentError


@pytest.mark.parametrize(
    ("document_seed", "digest"),
    [
        (55433, "2c7e4eeb6155167cfdccd62f8d2b37d8fa8b80ba4ad0e4b7934101019f6693d0"),
        (55434, "d9eb120dba0939fce8149ec093ac2d00d395d14d03d55ddef3483a50da044de7"),
        (0, "fba766f28e09053d94efaba221ad396b3ccb250f8a0729fb45f5804a13549612"),
    ],
)
def test_documents_are_the_known_ones(document_seed, digest):
    text = json.dumps(build_document(document_seed), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == digest


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("", []),
        ("  ", []),
        ("a", ["a"]),
        ("a[0]", ["a", 0]),
        ("a[0][1]", ["a", 0, 1]),
        ("records[12].owner", ["records", 12, "owner"]),
        ("a" * 120, ["a" * 120]),
    ],
)
def test_paths_are_read(path, steps):
    assert parse_path(path) == steps


@pytest.mark.parametrize(
    "path", ["a]", "a[-1]", "a[x]", "a" * 121, "a b", "a[0]b", "[0]", "a..b", ".", "a.", "a-b", "é"]
)
def test_other_paths_are_refused(path):
    with pytest.raises(ToolEnvironmentError):
        parse_path(path)


def test_keys_are_found_in_the_order_of_the_document():
    document = build_document(55433)
    assert list(key_paths(document, "label")) == [
        "config.delta.label",
        "config.alpha.label",
        "config.beta.label",
    ]
    assert list(key_paths(document, "id")) == ["records[0].id", "records[1].id"]


@given(st.integers(0, 10**9))
def test_every_found_path_reads_back(document_seed):
    document = build_document(document_seed)
    pointed = document["meta"]["pointer"]
    assert list(key_paths(document, "threshold")) == [f"config.{pointed}.threshold"]
    owners = [read_path(document, path) for path in key_paths(document, "owner")]
    assert owners == [record["owner"] for record in document["records"]]
    labels = [read_path(document, path) for path in key_paths(document, "label")]
    assert labels == [section["label"] for section in document["config"].values()]


@given(st.text(alphabet="abz_.[]09- ", max_size=130) | st.text())
def test_reading_is_a_value_or_a_refusal(path):
    document = build_document(7)
    try:
        value = read_path(document, path)
    except ToolEnvironmentError:
        return
    assert len(render_value(value)) <= 2000


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("nope", "the keys config, meta, records"),
        ("records[9]", "a list of 2"),
        ("records.id", "a list of 2"),
        ("config[0]", "the keys alpha, beta, delta"),
        ("meta.pointer.x", "a plain value"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_is_there(path, hint):
    with pytest.raises(ToolEnvironmentError, match="leads nowhere") as caught:
        read_path(build_document(55433), path)
    assert hint in caught.value.hint

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.artifacts.redaction import is_sensitive, redact, redact_text

# The table of the reference, row by row. Where the reference keeps a basename, the tail behind a
# space or the "~", the row is superseded: nothing of a path stays here.
VECTORS = [
    ("C:\\Users\\Ann\\models\\x", "<local>"),
    ("/home/ann/runs/r1", "<local>"),
    ("/Users/ann/x.yaml", "<local>"),
    ("https://user:pw@host/x", "https://<redacted>@host/x"),
    ("hf_abcdefghijklmnopqrstuvwxyz0123456789", "<redacted>"),
    ("Bearer abcdef123456", "Bearer <redacted>"),
    ("pypi-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "<redacted>"),
    ("\\\\server\\share\\x", "<local>"),
    ("file:///home/ann/x", "<local>"),
    ("~/x/y", "<local>"),
    ("token=abc123", "token=<redacted>"),
    ("normal text", "normal text"),
    ("s3://bucket/key", "s3://bucket/key"),
    (
        "https://huggingface.co/Qwen/Qwen3-0.6B",
        "https://huggingface.co/Qwen/Qwen3-0.6B",
    ),
    ("prefix /home/ann/a b suffix", "prefix <local>"),
]
SECRETS = [
    "hf_abcdefghijklmnopqrstuvwxyz0123456789",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_abcdefghijklmnopqrstuvwxyz012345",
    "glpat-abcdefghijklmnopqrst",
    "sk-abcdefghijklmnopqrstuvwxyz012345",
    "pypi-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijk",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize(("text", "shown"), VECTORS)
def test_the_published_texts_are_redacted_and_no_part_of_a_path_stays(text, shown):
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("file:///home/ann/a b c", "<local>"),
        ("sqlite:////srv/ann/x.db", "<local>"),
        ("~ann/x and more", "<local>"),
        ("-I/home/ann/x", "-I<local>"),
        ("$HOME/x y", "<local>"),
        ("//server/share/x", "<local>"),
        ("d:/data/x", "<local>"),
        ('{"path": "' + chr(92) + "/data" + chr(92) + '/x"}', '{"path": "' + chr(92) + "<local>"),
        ("\\\\?\\C:\\x", "<local>"),
        ('{"path": "/data/a b/x", "n": 3}', '{"path": "<local>", "n": 3}'),
        ("'/home/ann/it's here'", "'<local>'"),
        ("(/data/x) is gone", "(<local>) is gone"),
        ("/data/x.yaml:3: train.cycles is 0", "<local>: train.cycles is 0"),
        ("one /data/x\ntwo", "one <local>\ntwo"),
        ("http://h/x?p=/data/y", "http://h/x?p=<local>"),
        ("https://h/x?sig=abc&n=1", "https://h/x?sig=<redacted>&n=1"),
        ("password: two words", "password: <redacted>"),
        ('{"api_key": "a b", "n": 1}', '{"api_key": "<redacted>", "n": 1}'),
        ("Authorization: Basic YWJjZGVm", "Authorization: Basic <redacted>"),
        ("secret: hf_abcdefghijklmnopqrstuvwxyz hunter2", "secret: <redacted>"),
    ],
)
def test_nothing_of_a_place_or_a_secret_stays(text, shown):
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "1/2 and 3 / 4 and (7)/(3)",
        "</final> and <br/> and a/b",
        '{"error": "<tool_call> has no <' + chr(92) + '/tool_call>", "ok": false}',
        "max_selected_training_tokens: null",
        "rollout: {max_new_tokens_per_turn: 12, max_total_tokens: 128}",
        "recipes/data/word_problems.jsonl, ./x, ../y",
        "sha256:0123456789abcdef",
        "calc-train-7:c1:0",
        "tokens: 12, max_new_tokens=24",
        "Compute (7 * 3).<|im_end|>\n<|im_start|>assistant\n",
        '{"arguments": {"expression": "3/4"}, "name": "calculator"}',
    ],
)
def test_what_is_no_path_and_no_secret_stays(text):
    assert redact_text(text) == text


@pytest.mark.parametrize("secret", SECRETS)
def test_every_known_kind_of_credential_goes(secret):
    shown = redact_text(f"before {secret} after")
    assert secret not in shown
    assert shown.startswith("before ")


@pytest.mark.parametrize(
    "key",
    [
        *("api_key", "api-key", "apiKey", "ApiKey", "APIKey", "HF_TOKEN", "access_token", "token"),
        *("client_secret", "clientSecret", "password", "db.password", "sessionId", "session_token"),
        *("private_key", "Cookie", "Authorization", "credentials", "hostname", "user_name"),
    ],
)
def test_sensitive_keys_are_known_in_every_spelling(key):
    assert is_sensitive(key, "x")


@pytest.mark.parametrize(
    "key",
    [
        *("tokenizer_digest", "token_ids", "token_piece", "monkey", "key", "session_count"),
        *("teacher_top_token", "author", "segment_key", "user", "access_kind"),
    ],
)
def test_ordinary_keys_stay_readable(key):
    assert not is_sensitive(key, "x")


def test_numbers_under_a_token_key_are_counts_and_stay():
    row = {"max_new_tokens": 3, "generated_tokens": 2.5, "token_ids": [1, 2], "max_tokens": None}
    assert redact(row) == row
    assert redact({"password": 12, "api_tokens": "x"}) == {
        "password": "<redacted>",
        "api_tokens": "<redacted>",
    }


NAMES = st.text(string.ascii_letters + string.digits + "_-+.@ ", min_size=1, max_size=12).map(
    lambda name: f"q{name}q"  # so that it can be looked for
)
PATHS = st.builds(
    lambda start, names, sep: start + sep.join(names).replace(sep * 2, sep),
    st.sampled_from(["/", "/home/", "/opt/x/", "~/", "file:///", "//host/share/"]),
    st.lists(NAMES, min_size=2, max_size=4),
    st.just("/"),
) | st.builds(
    lambda start, names: start + "\\".join(names),
    st.sampled_from(["C:\\", "\\\\host\\share\\", "d:\\"]),
    st.lists(NAMES, min_size=2, max_size=4),
)
FRAMES = st.sampled_from(
    ["{}", "see {}", 'x "{}" y', "({})", "at={}", "a\n{}\nb", "[{}]", "`{}`", "it: {}"]
)


def names_of(path):
    return [name for name in path.replace("\\", "/").split("/") if name.startswith("q")]


@given(path=PATHS, frame=FRAMES)
def test_no_part_of_an_absolute_path_survives_in_any_surroundings(path, frame):
    shown = redact_text(frame.format(path))
    assert not [name for name in names_of(path) if name in shown]


@given(st.text())
def test_redacting_twice_changes_nothing_more(text):
    once = redact_text(text)
    assert redact_text(once) == once


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(value=JSON, secret=st.sampled_from(SECRETS), path=PATHS)
def test_no_secret_survives_at_any_depth(value, secret, path):
    planted = {"a": [value, {"b": secret, path: path}], "api_key": [value, "qwhateverq"]}
    shown = repr(redact(planted))
    assert secret not in shown
    assert "qwhateverq" not in shown
    assert not [name for name in names_of(path) if name in shown]

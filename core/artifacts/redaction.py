"""What leaves this machine names no secret and no place on it.

Two rules: a value under a key such as ``api_key`` goes, whatever it is; and in every text known
credentials, user names of URLs and absolute paths go. A path goes whole, to the end of its quotes
or else of its line: where it ends cannot be known, and a name behind a space tells as much as the
rest. Relative paths stay. Token ids and weights are no text and are not looked at.

A secret that looks like an ordinary word under an ordinary key cannot be told from one.
"""

import itertools
import re
from collections.abc import Mapping
from typing import Any

from core.artifacts.redacted_places import REDACTED, hide_paths, hide_urls

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
_ALWAYS = frozenset(
    [
        "secret",
        "secrets",
        "password",
        "passwords",
        "passwd",
        "passphrase",
        "pwd",
        "credential",
        "credentials",
        "authorization",
        "cookie",
        "cookies",
        "apikey",
        "hostname",
        "username",
        "homedir",
    ]
)
"""A key with one of these words names a secret or a person, whatever stands there."""
_TEXTUAL = frozenset({"token", "tokens"})
"""A key with one of these does so where a text stands there: numbers are counts and ids."""
_PAIRS = (
    ("api", "key"),
    ("access", "key"),
    ("private", "key"),
    ("session", "id"),
    ("session", "key"),
    ("host", "name"),
    ("user", "name"),
    ("home", "directory"),
    ("machine", "name"),
    ("computer", "name"),
)
_BENIGN = frozenset(
    [
        "token_piece",
        "token_text",
        "token_ids",
        "tokens_digest",
        "tokens",
        "student_top_token",
        "teacher_top_token",
        "eos_token",
        "bos_token",
        "pad_token",
        "unk_token",
        "sampled_token",
    ]
)
"""Keys of our own files whose texts are tokens of a language model."""

_CREDENTIALS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bhf_\w{16,}"
    r"|\bpypi-[\w-]{16,}|\bsk-[\w-]{16,}|\bxox[abeoprs]-[\w-]{10,}|\bAIza[\w-]{30,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    re.DOTALL,
)
_SCHEME = re.compile(r"\b(Bearer|Basic)([ \t]+)[\w.~+/=-]{6,}", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(?P<key>[A-Za-z_][\w.-]*)(?P<sep>[\"']?[ \t]*(?P<sign>[=:])[ \t]*)"
    r"(?P<value>\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?|[^\n]+)"
)
_GONE = re.compile(rf"[\"']?(?:(?:Bearer|Basic)[ \t]+)?{REDACTED}[\"']?", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?:[-+]?\d[\d._]*(?:[eE][-+]?\d+)?|null|None|true|false|True|False)(?=[\s,;}\])]|\Z)"
)
_SECRET_WORD = re.compile(
    r"token|secret|passw|pwd|passphrase|credential|authorization|cookie|key|session|name|homedir"
    r"|home_?dir",
    re.IGNORECASE,
)


def is_sensitive(key: str, value: object = "") -> bool:
    """Tell whether what stands under a key must go.

    Args:
        key: In snake, kebab, camel or Pascal case.
        value: What stands there; a number under ``max_tokens`` stays.
    """
    words = [word.lower() for word in _WORD.findall(key)]
    if _ALWAYS & set(words) or any(pair in itertools.pairwise(words) for pair in _PAIRS):
        return True
    return bool(_TEXTUAL & set(words)) and key not in _BENIGN and _holds_text(value)


def redact(value: Any) -> Any:
    """Return plain data without secrets and absolute paths; keys are texts too.

    Args:
        value: None, bool, number, text, list, tuple or mapping of those.
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {
            redact_text(str(key)): _blank(item) if is_sensitive(str(key), item) else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value


def redact_text(text: str) -> str:
    """Return a text without credentials, URL user names and absolute paths.

    >>> redact_text("token=abc123 at https://ann:pw@host/x, see /home/ann/x")
    'token=<redacted>'
    """
    if not text:
        return text
    text = _CREDENTIALS.sub(REDACTED, text)
    text = _SCHEME.sub(rf"\1\2{REDACTED}", text)
    if _SECRET_WORD.search(text):
        text = _hide_assigned(text)
    return hide_paths(hide_urls(text))


def _holds_text(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_text, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_text, value))
    return isinstance(value, str)


def _blank(value: Any) -> Any:
    """Keep the shape of a secret and nothing else."""
    if isinstance(value, Mapping):
        return {redact_text(str(key)): _blank(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_blank(item) for item in value]
    return value if value is None or isinstance(value, bool) else REDACTED


def _hide_assigned(text: str) -> str:
    """Replace what a text assigns to a sensitive name, as in ``token=abc`` and ``"secret": "x"``.

    A bare value is taken to the end of its line: passwords may hold spaces and signs.
    """
    kept, place = [], 0
    while (match := _ASSIGNED.search(text, place)) is not None:
        if _is_secret(match):
            kept += [text[place : match.start("value")], _replacement(match["value"])]
            place = match.end("value")
        else:  # what was taken for its value may hold an assignment
            kept.append(text[place : match.start("value")])
            place = match.start("value")
    return "".join([*kept, text[place:]])


def _is_secret(match: re.Match[str]) -> bool:
    value = match["value"]
    if not is_sensitive(match["key"]) or _GONE.fullmatch(value):
        return False
    return not _NUMBER.match(value) or is_sensitive(match["key"], 0)


def _replacement(value: str) -> str:
    quote = value[0] if value[0] in "\"'" else ""
    return f"{quote}{REDACTED}{quote}"

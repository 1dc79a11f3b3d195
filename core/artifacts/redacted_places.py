"""Absolute paths and URLs in a text: where they begin, where they end, and what stays of them."""

import re

REDACTED, LOCAL = "<redacted>", "<local>"

_REMOTE = "https?|ftps?|s3|gs|gcs|hf|az|abfss?|ssh|git|git\\+https|git\\+ssh|wss?|grpc|tcp"
"""Schemes that lead to another machine. Of any other, such as ``file`` and ``sqlite``, and of a URL
without a host, nothing stays."""
_URL = re.compile(rf"(?<![A-Za-z0-9+.-])(?:{_REMOTE})://(?=[^\s/])[^\s\"'<>`]*", re.IGNORECASE)
_QUERY_SECRET = re.compile(
    r"([?&#;][^=&#;]*(?:token|key|secret|sig|passw|auth)[^=&#;]*=)[^&#;]*", re.I
)

_ROOTS = "home|Users|root|tmp|var|etc|mnt|media|private|Volumes|workspace"
_START = re.compile(
    rf"/(?:{_ROOTS})(?![\w.-])"  # well-known roots, even behind a letter: -I/home/ann
    r"|(?<![\w/<.~)\]-])(?<!<\\)/(?!\d+(?![\w./-]))[\w.@~+%$-]"
    r"|(?<![\w/:])//[\w.-]+/"
    r"|(?<![A-Za-z0-9])[A-Za-z]:(?:\\|/(?!/))"
    r"|\\\\[\w.?-]"
    r"|(?<![A-Za-z0-9+.-])(?:file:/|[A-Za-z][A-Za-z0-9+.-]*://)"
    r"|(?<![\w~])~[\w.-]*[\\/]"
    r"|\$(?:HOME\b|\{HOME\})|%(?:USERPROFILE|HOMEPATH|APPDATA)%"
)
_CLOSERS = {'"': '"', "'": "'", "`": "`", "(": ")", "[": "]", "{": "}", "<": ">", "“": "”"}
_FILE_THEN_WORDS = re.compile(r"\.[A-Za-z0-9]{1,6}(?::\d+)*(?=: )")
"""``…/toy.yaml:3: key`` ends a path: a place in a file, and what is said about it."""


def hide_urls(text: str) -> str:
    """Replace the user names, secrets and local paths in the URLs of a text."""
    return _URL.sub(_hide_url, text) if "://" in text else text


def _hide_url(match: re.Match[str]) -> str:
    scheme, _, address = match[0].partition("://")
    authority, slash, rest = address.partition("/")
    user, at, host = authority.rpartition("@")
    shown = f"{scheme}://{REDACTED + at if user or at else ''}{host}{slash}{rest}"
    return _hide_in_query(_QUERY_SECRET.sub(rf"\1{REDACTED}", shown))


def _hide_in_query(url: str) -> str:
    cut = min((place for sign in "?#" if (place := url.find(sign)) >= 0), default=len(url))
    return url[:cut] + hide_paths(url[cut:])


def hide_paths(text: str) -> str:
    """Replace every absolute path of a text, to its end, by ``<local>``."""
    shielded = _shield(text)
    kept, place = [], 0
    while (match := _START.search(shielded, place)) is not None:
        kept += [text[place : match.start()], LOCAL]
        place = _end(text, match.start())
    return "".join([*kept, text[place:]])


def _shield(text: str) -> str:
    """Blank the URLs, which look like paths, without moving a character."""
    if "://" not in text:
        return text
    return _URL.sub(lambda match: "x" * len(match[0]), text)


def _end(text: str, start: int) -> int:
    """Return where a path ends at the latest: its closing quote or bracket, or its line."""
    stop = min((at for sign in "\n\r" if (at := text.find(sign, start)) >= 0), default=len(text))
    opener = text[start - 1] if start else ""
    if opener in _CLOSERS:
        return _closing(text, start, stop, _CLOSERS[opener])
    words = _FILE_THEN_WORDS.search(text, start, stop)
    return words.end() if words is not None else stop


def _closing(text: str, start: int, stop: int, closer: str) -> int:
    """Return the first closing sign that nothing of a name follows, as in ``it's``."""
    place = text.find(closer, start, stop)
    while place >= 0:
        if place + 1 >= stop or text[place + 1] in " \t,;:)]}>.\"'`\\":
            return place
        place = text.find(closer, place + 1, stop)
    return stop

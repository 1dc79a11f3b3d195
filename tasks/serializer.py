"""How Prefect keeps a step's result: strict JSON, so that no record can execute code or import.

Only plain JSON data and :class:`ArtifactRef` pass, both ways. A failed step's exception is kept as
its text. Nothing is looked up by a name that stands in a record.
"""

import json
import math
from typing import Any

from prefect.serializers import Serializer
from pydantic import Field

from core.artifacts.record import ArtifactRef
from core.errors import OpdError, StoreError

ARTIFACT = "$artifact"
FAILURE = "$failure"


class StrictJSON(Serializer):
    """Prefect serializer ``opd-json``."""

    type: str = Field(default="opd-json", frozen=True)

    def dumps(self, obj: Any) -> bytes:
        """Write a value.

        Raises:
            StoreError: It holds something else than plain finite JSON data and references.
        """
        return json.dumps(_encode(obj), sort_keys=True, allow_nan=False).encode()

    def loads(self, blob: bytes) -> Any:
        """Read a value; a kept failure comes back as an :class:`OpdError` with its text.

        Raises:
            ValueError: It is not such JSON, or holds a reference that is none.
        """
        return _decode(json.loads(blob))


def _encode(value: Any) -> Any:
    if isinstance(value, ArtifactRef):
        return {ARTIFACT: value.model_dump(mode="json")}
    if isinstance(value, BaseException):
        return {FAILURE: f"{type(value).__name__}: {value}"}
    if type(value) is list:
        return [_encode(item) for item in value]
    if type(value) is dict:
        return {_name(key): _encode(item) for key, item in value.items()}
    plain = value is None or type(value) in (bool, int, str)
    if plain or (type(value) is float and math.isfinite(value)):
        return value
    raise _refusal(f"a {type(value).__name__}" if type(value) is not float else f"{value}")


def _name(key: Any) -> str:
    if type(key) is not str or key.startswith("$"):
        raise _refusal(f"the key {key!r}")
    return key


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {ARTIFACT}:
        return ArtifactRef.model_validate(value[ARTIFACT])
    if value.keys() == {FAILURE}:
        return OpdError(str(value[FAILURE]), "See the log of the failed run.")
    return {key: _decode(item) for key, item in value.items()}


def _refusal(what: str) -> StoreError:
    return StoreError(
        f"a step's result holds {what}, which strict JSON cannot keep",
        "Return an ArtifactRef; put everything else into the artifact or its metrics.",
    )

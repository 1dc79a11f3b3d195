"""Which tokens are trained, derived from who wrote them.

Standard library only. A span here is ``(span_type, start, end)``: any caller can check its masks
against these without our schema.
"""

from collections.abc import Iterable, Sequence

SpanTuple = tuple[str, int, int]
"""Type, first token, one past the last token."""

MODEL_SPAN_TYPES = frozenset({"assistant_text", "assistant_tool_call", "assistant_final"})
"""Written by the student; every other token is context and is never trained."""

CRITICAL_SPAN_TYPES = frozenset({"assistant_tool_call", "assistant_final"})
"""Typed blocks of the student."""


def model_mask(spans: Iterable[SpanTuple], num_tokens: int) -> list[bool]:
    """Return, per token, whether the student wrote it.

    Args:
        spans: Ascending and tiling ``[0, num_tokens)``.
        num_tokens: Length of the trajectory.

    Returns:
        One flag per token.

    Raises:
        ValueError: The spans leave a gap, overlap, are empty or miss the end.
    """
    return _mask(spans, num_tokens, MODEL_SPAN_TYPES)


def critical_mask(spans: Iterable[SpanTuple], num_tokens: int) -> list[bool]:
    """Return, per token, whether it lies in a typed block of the student.

    Args:
        spans: Ascending and tiling ``[0, num_tokens)``.
        num_tokens: Length of the trajectory.

    Returns:
        One flag per token.

    Raises:
        ValueError: The spans leave a gap, overlap, are empty or miss the end.
    """
    return _mask(spans, num_tokens, CRITICAL_SPAN_TYPES)


def target_positions(mask: Sequence[bool]) -> list[int]:
    """Return the positions that can be supervised: written by the student, and not the first.

    Nothing precedes token 0, so nothing predicts it.

    Args:
        mask: Per token, whether the student wrote it.

    Returns:
        Ascending positions.
    """
    return [position for position, written in enumerate(mask) if written and position > 0]


def check_target_positions(positions: Sequence[int], mask: Sequence[bool]) -> None:
    """Refuse positions that are no targets.

    Args:
        positions: Indices of supervised tokens.
        mask: Per token, whether the student wrote it.

    Raises:
        ValueError: Out of range, 0, not written by the student, repeated or not ascending.
    """
    previous = 0
    for position in positions:
        if not 0 < position < len(mask):
            raise ValueError(f"target {position} is outside [1, {len(mask)})")
        if not mask[position]:
            raise ValueError(f"target {position} was not written by the student")
        if position <= previous:
            raise ValueError(f"target {position} follows {previous}: positions must ascend")
        previous = position


def check_masks(
    spans: Iterable[SpanTuple], model: Sequence[bool], critical: Sequence[bool]
) -> None:
    """Refuse masks that differ from those that the spans imply.

    Args:
        spans: Ascending and tiling the tokens.
        model: Claimed model mask, one flag per token.
        critical: Claimed critical mask.

    Raises:
        ValueError: The masks' lengths differ, the spans do not tile, or a flag is wrong.
    """
    if len(model) != len(critical):
        raise ValueError(f"{len(model)} model flags but {len(critical)} critical flags")
    listed = list(spans)
    for name, claimed, derived in (
        ("model", model, model_mask(listed, len(model))),
        ("critical", critical, critical_mask(listed, len(model))),
    ):
        for position, (flag, expected) in enumerate(zip(claimed, derived, strict=True)):
            if bool(flag) != expected:
                raise ValueError(f"{name} mask says {bool(flag)} at token {position}: spans differ")


def check_tiling(spans: Iterable[SpanTuple], num_tokens: int) -> None:
    """Refuse spans that do not tile ``[0, num_tokens)`` exactly.

    Args:
        spans: In order.
        num_tokens: Length of the trajectory.

    Raises:
        ValueError: A gap, an overlap, an empty span, or a wrong end.
    """
    cursor = 0
    for index, (_, start, end) in enumerate(spans):
        if start != cursor or end <= start:
            raise ValueError(
                f"spans[{index}] is [{start}, {end}) but must start at {cursor} and hold a token"
            )
        cursor = end
    if cursor != num_tokens:
        raise ValueError(f"spans end at {cursor} but there are {num_tokens} tokens")


def _mask(spans: Iterable[SpanTuple], num_tokens: int, chosen: frozenset[str]) -> list[bool]:
    listed = list(spans)
    check_tiling(listed, num_tokens)
    return [span_type in chosen for span_type, start, end in listed for _ in range(start, end)]

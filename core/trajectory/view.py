"""A trajectory as a teacher with a hint reads it."""

from typing import NamedTuple

from core.errors import ChatTemplateError, TokenizerMismatchError, TrajectoryError
from core.trajectory.spans import Span, SpanType
from core.trajectory.template import CHATML, Template, first_difference
from core.trajectory.tokens import TokenCodec
from core.trajectory.trajectory import Trajectory


class TeacherView(NamedTuple):
    """What a teacher with a hint reads: the student's segments and one more."""

    token_ids: list[int]
    spans: list[Span]


def teacher_view(
    trajectory: Trajectory,
    privileged_text: str,
    codec: TokenCodec,
    template: Template = CHATML,
    *,
    system_text: str | None = None,
) -> TeacherView:
    """Return a trajectory with a hint: a system message keyed ``privileged`` after the system one.

    All other segments keep their ids and keys and move by a constant, which is what alignment
    relies on.

    Args:
        trajectory: What the student did.
        privileged_text: The hint.
        codec: The tokenizer of both.
        template: The template of the trajectory.
        system_text: The system message of the trajectory, where the template's words for a hint
            may depend on it; it is compared with the trajectory.

    Raises:
        TokenizerMismatchError: ``codec`` did not make the trajectory's ids.
        TrajectoryError: The trajectory has no ``sys`` segment or has a hint already, or the hint
            contains a control text.
        ChatTemplateError: With a hint, the template writes other segments differently.
    """
    if codec.digest != trajectory.tokenizer_digest:
        raise TokenizerMismatchError(
            f"{trajectory.trajectory_id} was made by another tokenizer",
            "Use the tokenizer of the rollouts.",
        )
    keys = [span.segment_key for span in trajectory.spans]
    if "sys" not in keys or "privileged" in keys:
        raise TrajectoryError(
            f"{trajectory.trajectory_id} has segments {keys}",
            "A hint follows a segment 'sys', once.",
        )
    split = keys.index("sys") + 1
    cut = trajectory.spans[split - 1].end
    text = _hint(template, system_text, privileged_text, trajectory.spans[split - 1].text)
    hint = codec.encode(text)
    shift = len(hint)
    added = Span(
        span_type=SpanType.SYSTEM,
        start=cut,
        end=cut + shift,
        segment_key="privileged",
        text=text,
    )
    moved = [
        span.model_copy(update={"start": span.start + shift, "end": span.end + shift})
        for span in trajectory.spans[split:]
    ]
    token_ids = [*trajectory.token_ids[:cut], *hint, *trajectory.token_ids[cut:]]
    return TeacherView(token_ids, [*trajectory.spans[:split], added, *moved])


def _hint(template: Template, system_text: str | None, hint: str, written: str) -> str:
    """Return the hint's segment after checking that no other segment changes with it."""
    system = "." if system_text is None else system_text
    plain = template.conversation().open(system, ".")
    before, added, after = template.conversation().open(system, ".", hint)
    if [before, after] != plain:
        raise ChatTemplateError(
            "the chat template writes the prompt differently where a hint follows it",
            "Use rollout.template=chatml, or a teacher without a hint.",
        )
    if system_text is not None and before.text != written:
        raise ChatTemplateError(
            "the system message of the trajectory is not the template's: "
            + first_difference(written, before.text),
            "Score with the environment and template that the episodes were sampled with.",
        )
    return added.text

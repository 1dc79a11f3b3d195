"""Is distillation worth it here? What a short comparison of teacher and student amounts to.

Reads no model and no torch: the measurements are in artifacts, and this turns them into one
verdict with its reasons. The thresholds below are rules of thumb, not laws; each reason names the
number behind it, so that a reader may judge otherwise.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core.evaluation.statistics import wilson

Answer = Literal["go", "cold start first", "another teacher", "nothing to learn"]

MIN_OVERLAP = 0.25
"""Share of common tokens in both top k, below which teacher and student speak of other things."""
MIN_MASS = 0.5
"""Student's probability of the teacher's top k, below which a top-k objective sees little."""
MIN_ABOVE_NOISE = 0.01
"""Share of positions with a divergence above the noise, below which there is no signal."""
MAX_NOISE_SHARE = 0.1
"""Largest noise of scoring one model twice, as a share of the mean divergence."""


class Facts(BaseModel):
    """A part of the comparison."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class Noise(Facts):
    """KL of one model from itself, scored twice in different company: nats."""

    mean: float
    largest: float


class SpanSigns(Facts):
    """Positions of one type of span."""

    tokens: int
    disagreeing: float
    """Share where the most likely tokens differ."""
    divergence: float
    """Mean KL(student‖teacher), nats."""


class TokenSigns(Facts):
    """Teacher and student at every token that the student wrote."""

    tokens: int
    top_k: int
    overlap: float
    """Mean share of common tokens in both top k."""
    student_mass: float
    """Mean probability of the teacher's top k under the student."""
    teacher_mass: float
    """Mean probability of the student's top k under the teacher."""
    disagreeing: float
    """Share of positions where the most likely tokens differ."""
    above_noise: float
    """Share of positions whose divergence is above the largest noise of either model."""
    divergence: float
    """Mean KL(student‖teacher), nats."""
    spans: dict[str, SpanSigns]
    """The same by type of span."""
    student_noise: Noise
    """The student as its own teacher: what a divergence of nothing looks like here."""
    teacher_noise: Noise
    """The teacher against itself."""
    sampler_gap: float | None = None
    """Mean |difference| of the sampler's and the scorer's log-probability of a sampled token,
    nats; null where the sampler recorded none, or cut the distribution."""


class Tokenizers(Facts):
    """Whether both read the same tokens and frame a turn alike."""

    same: bool
    """Equal by content."""
    shared: float
    """Share of the student's tokens that the teacher has too, 0 to 1."""
    replies_begin_alike: bool
    """False where their own chat templates open a reply with other tokens."""


class Comparison(Facts):
    """What two models say of the same states."""

    tokenizers: Tokenizers
    episodes: int
    tokens: TokenSigns | None = None
    """Null where the tokenizers differ, and where the student wrote nothing."""


class Success(Facts):
    """Solved tasks."""

    solved: int
    total: int = Field(ge=0)

    @classmethod
    def of(cls, solved: Iterable[bool]) -> "Success":
        """Count outcomes."""
        counted = list(solved)
        return cls(solved=sum(counted), total=len(counted))

    def __str__(self) -> str:
        if not self.total:
            return "0 of 0"
        found = wilson(self.solved, self.total)
        return (
            f"{found.estimate:.1%} ({self.solved} of {self.total}, 95 % interval "
            f"{found.lower:.1%} to {found.upper:.1%})"
        )

    @property
    def rate(self) -> float:
        """Share of solved tasks; 0 of none."""
        return self.solved / self.total if self.total else 0.0


class Preflight(Facts):
    """All that was measured."""

    comparison: Comparison
    student: Success
    """On held-out tasks."""
    teacher: Success
    """On the same tasks."""
    student_fails: Success
    """The teacher on those of them that the student fails."""
    continued: Success
    """The teacher, going on from states in which the student was before it failed."""
    cross_tokenizer: bool
    """Whether the objective compares models of different tokenizers."""


class Verdict(Facts):
    """One answer, and what speaks for it."""

    answer: Answer
    reasons: list[str]

    def __str__(self) -> str:
        return f"verdict: {self.answer}: {'; '.join(self.reasons)}"


def judge(found: Preflight) -> Verdict:
    """Return the verdict: the first obstacle in the order of what it would take to remove it."""
    obstacles: dict[Answer, list[str]] = {
        "another teacher": _about_teacher(found),
        "nothing to learn": _about_signal(found.comparison.tokens),
        "cold start first": _about_support(found.comparison.tokens),
    }
    for answer, reasons in obstacles.items():
        if reasons:
            return Verdict(answer=answer, reasons=reasons)
    return Verdict(answer="go", reasons=_in_favour(found))


def _about_teacher(found: Preflight) -> list[str]:
    reasons = []
    tokenizers = found.comparison.tokenizers
    if not tokenizers.same and not found.cross_tokenizer:
        reasons.append(
            f"its tokenizer is another one ({tokenizers.shared:.1%} of the student's tokens are "
            "shared) and loss.cross_tokenizer is off"
        )
    if found.teacher.rate <= found.student.rate:
        reasons.append(
            f"it solves {found.teacher} where the student solves {found.student} by itself"
        )
    signs = found.comparison.tokens
    if signs is not None and signs.teacher_noise.mean > MAX_NOISE_SHARE * signs.divergence > 0:
        reasons.append(
            f"scored twice it differs from itself by {signs.teacher_noise.mean:.2g} nats, and from "
            f"the student by {signs.divergence:.2g}"
        )
    return reasons


def _about_signal(signs: TokenSigns | None) -> list[str]:
    if signs is None or signs.above_noise >= MIN_ABOVE_NOISE:
        return []
    return [
        f"{signs.above_noise:.1%} of the student's tokens show a divergence above the noise of "
        f"scoring ({signs.student_noise.largest:.2g} nats)"
    ]


def _about_support(signs: TokenSigns | None) -> list[str]:
    if signs is None:
        return []
    reasons = []
    if signs.overlap < MIN_OVERLAP:
        reasons.append(f"both top {signs.top_k} share {signs.overlap:.0%} of their tokens")
    if signs.student_mass < MIN_MASS:
        reasons.append(
            f"the student gives {signs.student_mass:.0%} to the teacher's top {signs.top_k}"
        )
    return reasons


def _in_favour(found: Preflight) -> list[str]:
    reasons = [f"the teacher solves {found.teacher}, the student {found.student}"]
    if wilson_overlaps(found.teacher, found.student):
        reasons.append("these intervals overlap, so measure more tasks before a long run")
    signs = found.comparison.tokens
    if signs is not None:
        reasons.append(
            f"they disagree on {signs.disagreeing:.1%} of the tokens, by {signs.divergence:.2g} "
            "nats in the mean"
        )
    return reasons


def wilson_overlaps(one: Success, other: Success) -> bool:
    """Tell whether the 95 % intervals of two rates overlap; those of nothing do."""
    if not one.total or not other.total:
        return True
    left, right = wilson(one.solved, one.total), wilson(other.solved, other.total)
    return left.lower <= right.upper and right.lower <= left.upper

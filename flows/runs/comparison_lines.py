"""What a person reads of a comparison: a line per number, and the verdict last."""

from collections.abc import Iterator
from typing import Any

from core.evaluation.preflight import Preflight, TokenSigns, Verdict


def comparison_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield what was measured, a line each, and the verdict last."""
    facts = {name: document[name] for name in Preflight.model_fields}
    found = Preflight.model_validate(facts)
    tokenizers = found.comparison.tokenizers
    same = "the same" if tokenizers.same else f"{tokenizers.shared:.1%} of the student's shared"
    yield f"tokenizer                {same}"
    yield f"replies begin alike      {'yes' if tokenizers.replies_begin_alike else 'no'}"
    if found.comparison.tokens is not None:
        yield from _token_lines(found.comparison.tokens, found.comparison.episodes)
    yield f"student, held-out        {found.student}"
    yield f"teacher, held-out        {found.teacher}"
    yield f"teacher, where it fails  {found.student_fails}"
    yield f"teacher, going on there  {found.continued}"
    yield str(Verdict.model_validate(document["verdict"]))


def _token_lines(signs: TokenSigns, episodes: int) -> Iterator[str]:
    top = f"top {signs.top_k}"
    yield f"student's states         {signs.tokens} tokens of {episodes} episodes"
    yield f"{top + ' in common':<24} {signs.overlap:.1%}"
    yield f"student on teacher's     {signs.student_mass:.1%} of its probability, {top}"
    yield f"teacher on student's     {signs.teacher_mass:.1%} of its probability, {top}"
    yield f"noise, student twice     {_noise(signs, 'student')}"
    yield f"noise, teacher twice     {_noise(signs, 'teacher')}"
    if signs.sampler_gap is not None:
        yield f"sampler against scorer   {signs.sampler_gap:.2g} nats in the mean"
    yield f"favourites differ        {signs.disagreeing:.1%} of tokens"
    yield f"above the noise          {signs.above_noise:.1%} of tokens"
    yield f"KL(student‖teacher)      {signs.divergence:.4g} nats in the mean"
    for name, span in signs.spans.items():
        yield (
            f"  {name:<22} {span.divergence:.4g} nats on {span.tokens} tokens, of which "
            f"{span.disagreeing:.1%} differ"
        )


def _noise(signs: TokenSigns, side: str) -> str:
    noise = signs.student_noise if side == "student" else signs.teacher_noise
    return f"{noise.mean:.2g} nats in the mean, {noise.largest:.2g} at most"

"""One verdict, the first obstacle first, each reason with its number."""

import pytest

from core.evaluation.preflight import (
    Comparison,
    Noise,
    Preflight,
    Success,
    Tokenizers,
    TokenSigns,
    Verdict,
    judge,
)


def signs(**changes) -> TokenSigns:
    quiet = Noise(mean=1e-9, largest=1e-7)
    facts = {
        "tokens": 200, "top_k": 16, "overlap": 0.6, "student_mass": 0.9, "teacher_mass": 0.9,
        "disagreeing": 0.2, "above_noise": 0.8, "divergence": 0.4, "spans": {},
        "student_noise": quiet, "teacher_noise": quiet,
    }  # fmt: skip
    return TokenSigns.model_validate(facts | changes)


def found(tokens=None, *, same=True, cross=False, student=2, teacher=9) -> Preflight:
    tokenizers = Tokenizers(same=same, shared=1.0 if same else 0.5, replies_begin_alike=True)
    return Preflight(
        comparison=Comparison(tokenizers=tokenizers, episodes=8, tokens=tokens),
        student=Success(solved=student, total=16),
        teacher=Success(solved=teacher, total=16),
        student_fails=Success(solved=0, total=0),
        continued=Success(solved=0, total=0),
        cross_tokenizer=cross,
    )


@pytest.mark.parametrize(
    ("preflight", "answer", "word"),
    [
        (found(signs()), "go", "disagree on 20.0%"),
        (found(same=False, cross=True), "go", "9 of 16"),
        (found(same=False), "another teacher", "50.0% of the student's tokens"),
        (found(signs(), teacher=2), "another teacher", "2 of 16"),
        (found(signs(teacher_noise=Noise(mean=0.1, largest=1))), "another teacher", "0.1 nats"),
        (found(signs(above_noise=0.0, divergence=0.0)), "nothing to learn", "0.0%"),
        (found(signs(overlap=0.1)), "cold start first", "share 10%"),
        (found(signs(student_mass=0.2)), "cold start first", "gives 20%"),
        (found(signs(overlap=0.1), teacher=1), "another teacher", "1 of 16"),
    ],
)
def test_the_first_obstacle_decides(preflight, answer, word):
    verdict = judge(preflight)
    assert verdict.answer == answer
    assert word in str(verdict)
    assert "\n" not in str(verdict)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_a_difference_that_may_be_chance_is_said_to_be():
    assert "overlap" in str(judge(found(signs(), student=8, teacher=9)))
    assert "overlap" not in str(judge(found(signs(), student=0, teacher=16)))


def test_a_rate_of_nothing_has_no_interval():
    assert str(Success.of([])) == "0 of 0"
    assert Success.of([]).rate == 0.0
    assert Success.of([True, False]).rate == 0.5

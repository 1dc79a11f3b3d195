"""What a person reads of a comparison."""

from flows.runs.comparison_lines import comparison_lines

NOISE = {"mean": 1e-9, "largest": 1e-7}
TOKENS = {
    "tokens": 200, "top_k": 16, "overlap": 0.6, "student_mass": 0.9, "teacher_mass": 0.8,
    "disagreeing": 0.2, "above_noise": 0.75, "divergence": 0.4, "sampler_gap": 2e-7,
    "spans": {"assistant_final": {"tokens": 200, "disagreeing": 0.2, "divergence": 0.4}},
    "student_noise": NOISE, "teacher_noise": NOISE,
}  # fmt: skip
FOUND = {
    "comparison": {
        "tokenizers": {"same": True, "shared": 1.0, "replies_begin_alike": True},
        "episodes": 8, "tokens": TOKENS,
    },
    "student": {"solved": 2, "total": 16}, "teacher": {"solved": 12, "total": 16},
    "student_fails": {"solved": 10, "total": 14}, "continued": {"solved": 5, "total": 6},
    "cross_tokenizer": False,
    "verdict": {"answer": "go", "reasons": ["because"]}, "artifacts": {},
}  # fmt: skip


def test_a_line_per_number_and_the_verdict_last():
    lines = [*comparison_lines(FOUND)]
    assert lines[0] == "tokenizer                the same"
    assert "teacher, going on there  83.3% (5 of 6, 95 % interval 43.6% to 97.0%)" in lines
    assert "above the noise          75.0% of tokens" in lines
    assert lines[-1] == "verdict: go: because"
    assert max(map(len, lines)) < 100


def test_without_common_tokens_there_are_no_numbers_about_them():
    tokenizers = {"same": False, "shared": 0.25, "replies_begin_alike": False}
    other = {**FOUND, "comparison": {"tokenizers": tokenizers, "episodes": 8, "tokens": None}}
    lines = [*comparison_lines(other)]
    assert lines[:2] == [
        "tokenizer                25.0% of the student's shared",
        "replies begin alike      no",
    ]
    assert not any("nats" in line for line in lines)

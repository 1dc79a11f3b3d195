import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.rollout.limits import SamplingSpec
from core.rollout.noise import uniforms
from core.rollout.sampler import sample, support

# Probabilities 1/2, 1/4, 1/8, 1/8: logits are their logarithms.
PROBABILITIES = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
LOGITS = PROBABILITIES.log()


def stream(key: int, count: int) -> torch.Tensor:
    return uniforms(torch.tensor([key]), count)[0]


finite_logits = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=12)


def draw(u: float, spec: SamplingSpec | None = None, logits: torch.Tensor = LOGITS):
    result = sample(logits[None], spec or SamplingSpec(), torch.tensor([u], dtype=torch.float64))
    mass = None if result.kept_mass_S is None else result.kept_mass_S.item()
    return int(result.token_ids_S.item()), result.logprobs_S.item(), mass


@pytest.mark.parametrize(
    ("u", "token", "probability"),
    [
        (1e-9, 0, 0.5),
        (0.4999, 0, 0.5),
        (0.5001, 1, 0.25),
        (0.7499, 1, 0.25),
        (0.7501, 2, 0.125),
        (0.8751, 3, 0.125),
        (1 - 2**-52, 3, 0.125),
    ],
)
def test_a_uniform_picks_the_interval_it_falls_in(u: float, token: int, probability: float):
    drawn, logprob, mass = draw(u)
    assert (drawn, mass) == (token, None)
    assert logprob == pytest.approx(math.log(probability), abs=1e-15)


def test_temperature_reshapes_the_distribution():
    # At temperature 2: sqrt of the weights, 0.7071, 0.5, 0.3536, 0.3536; total 1.9142.
    drawn, logprob, _ = draw(0.9, SamplingSpec(2.0))
    assert drawn == 3
    assert logprob == pytest.approx(math.log(0.125**0.5 / 1.914213562373095), abs=1e-12)


def test_greedy_takes_the_first_best_token_with_the_models_own_logprob():
    drawn, logprob, mass = draw(0.99, SamplingSpec(0.0, 0.5, 1))
    assert (drawn, mass) == (0, None)
    assert logprob == pytest.approx(math.log(0.5), abs=1e-15)


@pytest.mark.parametrize(
    ("spec", "mass", "kept"),
    [
        (SamplingSpec(1.0, 1.0, 1), 0.5, 1),
        (SamplingSpec(1.0, 1.0, 2), 0.75, 2),
        (SamplingSpec(1.0, 1.0, 3), 1.0, 4),  # a tie at the third place keeps both
        (SamplingSpec(1.0, 0.5), 0.5, 1),  # the first token already reaches 0.5
        (SamplingSpec(1.0, 0.51), 0.75, 2),
        (SamplingSpec(1.0, 0.8), 0.875, 3),
        (SamplingSpec(1.0, 0.6, 2), 0.5, 1),  # 2/3 of what top-k left reaches 0.6
        (SamplingSpec(1.0, 0.7, 2), 0.75, 2),
        (SamplingSpec(1.0, 1e-9), 0.5, 1),
        (SamplingSpec(1.0, 1.0, 99), 1.0, 4),
    ],
)
def test_truncation_keeps_the_documented_support(spec: SamplingSpec, mass: float, kept: int):
    assert support(PROBABILITIES[None], spec).sum().item() == kept
    drawn, logprob, kept_mass = draw(1 - 2**-52, spec)
    assert drawn == kept - 1
    assert kept_mass == pytest.approx(mass, abs=1e-15)
    assert logprob == pytest.approx(math.log(PROBABILITIES[drawn].item() / mass), abs=1e-12)


@given(finite_logits, st.floats(0.1, 4), st.floats(2**-52, 1 - 2**-52))
def test_logprob_is_the_tempered_log_softmax(row: list[float], temperature: float, u: float):
    logits = torch.tensor(row)
    drawn, logprob, _ = draw(u, SamplingSpec(temperature), logits)
    expected = (logits.double() / temperature).log_softmax(-1)[drawn].item()
    assert logprob == pytest.approx(expected, abs=1e-9)


@given(finite_logits, st.floats(0.05, 1), st.integers(0, 6), st.floats(2**-52, 1 - 2**-52))
def test_truncated_logprob_adds_the_missing_mass(row: list[float], top_p: float, k: int, u: float):
    logits, spec = torch.tensor(row), SamplingSpec(1.0, top_p, k)
    if not spec.is_truncated:
        return
    drawn, logprob, mass = draw(u, spec, logits)
    assert mass is not None
    assert 0.0 < mass <= 1.0 + 1e-12
    untruncated = logits.double().log_softmax(-1)[drawn].item()
    assert logprob == pytest.approx(untruncated - math.log(mass), abs=1e-9)
    assert support(logits.double().softmax(-1)[None], spec)[0, drawn].item()


@given(finite_logits, st.floats(-50, 50), st.floats(2**-52, 1 - 2**-52))
def test_a_shift_of_the_logits_changes_nothing(row: list[float], shift: float, u: float):
    logits = torch.tensor(row).double()
    plain, shifted = draw(u, None, logits), draw(u, None, logits + shift)
    assert shifted[1] == pytest.approx(plain[1], abs=1e-9) or shifted[0] != plain[0]


@given(st.integers(0, 2**62), st.integers(1, 5))
def test_a_row_is_drawn_the_same_alone_and_in_a_batch(key: int, rows: int):
    noise = stream(key, rows * 40 + rows)
    logits = (noise[: rows * 40].view(rows, 40) * 9).float()
    together = sample(logits, SamplingSpec(0.8, 0.9), noise[rows * 40 :])
    for row in range(rows):
        alone = sample(logits[row : row + 1], SamplingSpec(0.8, 0.9), noise[rows * 40 + row :][:1])
        assert torch.equal(alone.token_ids_S[0], together.token_ids_S[row])
        assert torch.equal(alone.logprobs_S[0], together.logprobs_S[row])


def test_frequencies_follow_the_distribution():
    # 20 000 draws from fixed streams; chi-square with 3 degrees of freedom, 99.9 % point 16.3.
    numbers = stream(11, 20_000)
    tokens = sample(LOGITS.expand(20_000, 4), SamplingSpec(), numbers).token_ids_S
    expected = PROBABILITIES * 20_000
    counts = torch.bincount(tokens, minlength=4)
    assert ((counts - expected) ** 2 / expected).sum().item() < 16.3


def test_the_mean_importance_ratio_is_the_kept_mass():
    # C50: on truncated samples the mean of p/q is what truncation kept, not 1.
    logits = torch.tensor([1.3, 0.9, 0.2, -0.4, -1.0, -1.7]).double()
    spec = SamplingSpec(1.0, 0.8)
    result = sample(logits.expand(4000, 6), spec, stream(5, 4000))
    ratios = (logits.log_softmax(-1)[result.token_ids_S] - result.logprobs_S).exp()
    assert result.kept_mass_S is not None
    assert 0.8 <= result.kept_mass_S[0].item() < 1.0
    assert ratios.mean().item() == pytest.approx(result.kept_mass_S[0].item(), abs=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_give_no_number_and_a_legal_token(bad: float):
    logits = torch.tensor([0.0, bad, 1.0])
    drawn, logprob, _ = draw(0.5, None, logits)
    assert 0 <= drawn < 3
    assert math.isnan(logprob)


def test_excluded_columns_are_never_drawn():
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0, -math.inf])
    tokens = sample(logits.expand(500, 5), SamplingSpec(), stream(2, 500)).token_ids_S
    assert set(tokens.tolist()) == {1, 3}

"""Student's t distribution: the small part of it that intervals need."""

import math

_TINY = 1e-300
_PRECISION = 1e-15
_MAX_TERMS = 10_000


def t_two_sided_p(statistic: float, degrees: float) -> float:
    """Return the probability that |T| is at least as large as a statistic.

    P(|T| ≥ t) = I_x(ν/2, ½) with x = ν / (ν + t²), I the regularised incomplete beta function:
    Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 26.7.1.

    Args:
        statistic: Any number.
        degrees: Degrees of freedom ν, positive, not necessarily whole.

    Raises:
        ValueError: If ``degrees`` is not positive.
    """
    if not degrees > 0:
        raise ValueError(f"{degrees} degrees of freedom: there must be some")
    if math.isinf(statistic):
        return 0.0
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + statistic * statistic))


def t_quantile(confidence: float, degrees: float) -> float:
    """Return the half width, in standard errors, of a two-sided interval.

    Args:
        confidence: Probability inside, in (0, 1).
        degrees: Degrees of freedom, positive, not necessarily whole.

    Raises:
        ValueError: If either is out of its range.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence {confidence} is not in (0, 1)")
    outside = 1.0 - confidence
    lower, upper = 0.0, 1.0
    while t_two_sided_p(upper, degrees) > outside:
        lower, upper = upper, 2 * upper
    while upper - lower > 1e-13 * upper:
        middle = (lower + upper) / 2
        if middle in (lower, upper):
            break
        if t_two_sided_p(middle, degrees) > outside:
            lower = middle
        else:
            upper = middle
    return upper


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logarithm + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _continued_fraction(a, b, x)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Evaluate 26.5.8 of the same handbook by Lentz's method.

    Raises:
        ArithmeticError: If it does not converge.
    """
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            value *= d * c
        if abs(d * c - 1.0) < _PRECISION:
            return value
    raise ArithmeticError(f"incomplete beta({a}, {b}) at {x} does not converge")


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

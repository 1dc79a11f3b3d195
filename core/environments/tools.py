"""What tools do, as plain functions: arithmetic, conversion, and the guards of other worlds.

Every function here is total on what a model can write: it returns, or raises
``ToolEnvironmentError`` with words that the model may be shown.
"""

import ast
import math
import operator
import re
from collections.abc import Callable

from core.environments.jsonnav_documents import parse_path, read_path
from core.environments.sqlite_guard import check_query, render_rows, run_query
from core.errors import ToolEnvironmentError

__all__ = [
    "FACTORS",
    "UNITS",
    "check_query",
    "convert",
    "format_number",
    "parse_number",
    "parse_path",
    "read_path",
    "render_rows",
    "run_query",
    "safe_eval",
]

MAX_EXPRESSION_CHARACTERS = 200
MAX_EXPRESSION_DEPTH = 12
MAX_MAGNITUDE = 1e12
MAX_EXPONENT = 8.0
MAX_BASE = 1e3

FACTORS: dict[tuple[str, str], float] = {
    ("km", "mi"): 0.621371,
    ("mi", "km"): 1.609344,
    ("m", "ft"): 3.280839895,
    ("ft", "m"): 0.3048,
    ("kg", "lb"): 2.20462262,
    ("lb", "kg"): 0.45359237,
    ("g", "oz"): 0.0352739619,
    ("oz", "g"): 28.349523125,
    ("l", "gal"): 0.264172052,
    ("gal", "l"): 3.785411784,
}
"""Units that differ by a factor; degrees Celsius (c) and Fahrenheit (f) do not."""

UNITS = tuple(sorted({unit for pair in FACTORS for unit in pair} | {"c", "f"}))

# No letter here can spell a name that Python would look up, nor a keyword it would warn about.
_ALLOWED = re.compile(r"[0-9A-Fa-fxXoOjJ_.+\-*/%()\s]*")
_WRITE = "Write numbers with + - * / // % ** and parentheses only."

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def safe_eval(expression: str) -> float:
    """Return the value of an arithmetic expression; nothing but arithmetic can happen.

    Numbers, ``+ - * / // % **``, signs and parentheses; at most 200 characters, 12 levels, values
    of at most 1e12, exponents of at most 8 and bases of at most 1000 in magnitude.

    Raises:
        ToolEnvironmentError: The expression is none of these or leaves these bounds.
    """
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise ToolEnvironmentError(
            f"the expression has {len(expression)} characters", "At most 200 are read."
        )
    if not _ALLOWED.fullmatch(expression):
        raise ToolEnvironmentError("the expression is not arithmetic", _WRITE)
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ToolEnvironmentError("the expression cannot be read", _WRITE) from error
    try:
        return _value(tree.body, 0)
    except ZeroDivisionError as error:
        raise ToolEnvironmentError(
            "division by zero", "Change the expression so that no divisor is 0."
        ) from error


def _value(node: ast.expr, depth: int) -> float:
    if depth > MAX_EXPRESSION_DEPTH:
        raise ToolEnvironmentError(
            "the expression nests too deeply", f"At most {MAX_EXPRESSION_DEPTH} levels are read."
        )
    if isinstance(node, ast.Constant):
        return _bounded(_literal(node.value))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _bounded(_UNARY[type(node.op)](_value(node.operand, depth + 1)))
    if isinstance(node, ast.BinOp):
        return _bounded(
            _binary(node.op, _value(node.left, depth + 1), _value(node.right, depth + 1))
        )
    raise ToolEnvironmentError(f"{type(node).__name__} is not arithmetic", _WRITE)


def _literal(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ToolEnvironmentError(f"{type(value).__name__} is no real number", _WRITE)
    return float(value)


def _binary(op: ast.operator, left: float, right: float) -> float:
    if isinstance(op, ast.Pow):
        return _power(left, right)
    if type(op) not in _BINARY:
        raise ToolEnvironmentError(f"{type(op).__name__} is not supported", _WRITE)
    return _BINARY[type(op)](left, right)


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > MAX_EXPONENT or abs(base) > MAX_BASE:
        raise ToolEnvironmentError(
            f"{format_number(base)} ** {format_number(exponent)} is too large",
            "Exponents reach 8 and bases 1000 at most.",
        )
    value = base**exponent
    if isinstance(value, complex):
        raise ToolEnvironmentError("the value is complex", "Only real numbers are computed.")
    return value


def _bounded(value: float) -> float:
    if not abs(value) <= MAX_MAGNITUDE:  # also refuses NaN
        raise ToolEnvironmentError(
            "a value is too large", "Values reach 1e12 in magnitude at most."
        )
    return value


def convert(value: float, from_unit: str, to_unit: str) -> float:
    """Return ``value`` in another unit. Units are read in any case; a unit converts to itself.

    Raises:
        ToolEnvironmentError: No such conversion exists, or the value leaves ±1e12.
    """
    source, target = from_unit.strip().lower(), to_unit.strip().lower()
    _bounded(value)
    if source == target and source in UNITS:
        return value
    if (source, target) == ("c", "f"):
        return _bounded(value * 9.0 / 5.0 + 32.0)
    if (source, target) == ("f", "c"):
        return _bounded((value - 32.0) * 5.0 / 9.0)
    if (source, target) not in FACTORS:
        raise ToolEnvironmentError(
            f"{from_unit[:20]!r} does not convert to {to_unit[:20]!r}",
            f"Units: {', '.join(UNITS)}.",
        )
    return _bounded(value * FACTORS[source, target])


def format_number(value: float) -> str:
    """Return an integer where ``value`` is one within 1e-9, else at most four decimals."""
    nearest = round(value)
    if abs(value - nearest) < 1e-9:
        return str(nearest)
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def parse_number(text: str) -> float | None:
    """Return the number that ``text`` is, or None; never NaN or infinite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None

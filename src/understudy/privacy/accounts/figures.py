"""An ε for a person to read: what is spent is rounded up, what is left is rounded down."""

import math
from collections.abc import Callable

_LEAST = 1e-300  # below it, powers of ten leave the range of a float


def shown(value: float | None, digits: int = 4, *, endless: str = "no guarantee") -> str:
    """An ε for a person to read, rounded up: a claim may be too high, never too low. None is without end, too."""
    if value is None or value == math.inf:
        return endless
    return "0" if value <= 0 else _rounded(max(value, _LEAST), digits, lambda part: math.ceil(part - 1e-9))


def shown_left(value: float, digits: int = 4) -> str:
    """What is left of an ε, rounded down."""
    if value == math.inf:
        return "inf"
    return "0" if value < _LEAST else _rounded(value, digits, lambda part: math.floor(part + 1e-9))


def _rounded(value: float, digits: int, whole: Callable[[float], int]) -> str:
    places = digits - 1 - math.floor(math.log10(value))
    return f"{whole(value * 10.0**places) / 10.0**places:g}"

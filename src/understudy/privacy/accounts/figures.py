"""An ε for a person to read: what is spent is rounded up, what is left is rounded down."""

import math


def shown(value: float, digits: int = 4, *, endless: str = "no guarantee") -> str:
    """An ε for a person to read, rounded up: a claim may be too high, never too low."""
    if value in (0.0, math.inf):
        return "0" if value == 0 else endless
    places = digits - 1 - math.floor(math.log10(value))
    return f"{math.ceil(value * 10.0**places - 1e-9) / 10.0**places:g}"


def shown_left(value: float, digits: int = 4) -> str:
    """What is left of an ε, rounded down."""
    if value in (0.0, math.inf):
        return "0" if value == 0 else "inf"
    places = digits - 1 - math.floor(math.log10(value))
    return f"{math.floor(value * 10.0**places + 1e-9) / 10.0**places:g}"

"""Figures as text: digits that a reader can hold in mind, and a privacy price that is never rounded down."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.privacy.accounts.budget import shown


def lower_bound(epsilon: float | None) -> str:
    """A figure that was reached at least, rounded down; None: no amount of the claimed noise explains it."""
    return "∞" if epsilon is None else f"{math.floor(1000 * epsilon) / 1000:g}"


def at_price(epsilon: float | None, delta: float | None = None) -> str:
    """ "ε = 1.2 at δ = 10⁻⁵" in a piece that no line break parts."""
    said = f"ε\u00a0=\u00a0{shown(epsilon)}"
    return said if delta is None else f"{said} at δ\u00a0=\u00a0{chance(delta)}"


def best_guess(epsilon: float | None, delta: float, exact: float | None = None) -> str:
    """How often a guess at even odds whether one person took part can be right at most: (e^ε + δ) / (1 + e^ε).

    `exact`: by all of the run's curve, where that is known, which is less.

    Wasserman and Zhou (JASA 2010), Kairouz et al. (ICML 2015): the two errors of any test under (ε, δ)-DP
    sum to at least 2(1 − δ) / (1 + e^ε). Rounded up.
    """
    if epsilon is None or math.isinf(epsilon):
        return "always"
    share = 1 - (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    share = share if exact is None else min(share, max(0.5, float(exact)))
    return f"{math.ceil(share * 1000 - 1e-9) / 10:g} %"


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def short(text: str, most: int) -> str:
    """A text of at most so many letters: names tend to differ at their ends, so the middle goes."""
    return text if len(text) <= most else f"{text[: most - most // 2 - 1]}…{text[-(most // 2) :]}"


def percent(share: float) -> str:
    """A share in whole per cent; what is there but rounds to nothing is said to be there."""
    return "<1" if 0 < share < 0.005 else f"{100 * share:.0f}"


def right_about(quality: Mapping[str, Any]) -> str:
    """An offer's figure: "right about 83 % (81 to 85 %) of its own people". The interval is rounded outwards."""
    low, high = math.floor(100 * quality["low"]), math.ceil(100 * quality["high"])
    return f"right about {percent(quality['accuracy'])}\u00a0% ({low} to {high}\u00a0%) of its own people"


def signed(value: float) -> str:
    """A correlation with its sign."""
    return f"{value:+.2f}".replace("-", "−")


def chance(delta: float) -> str:
    """δ as a power of ten: 10⁻⁵, 2·10⁻⁶, 0."""
    if not delta:
        return "0"
    digits, _, power = f"{delta:.2e}".partition("e")
    digits = f"{float(digits):g}"
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def luck(p: float | None) -> str:
    """How likely something is by luck; small chances are rounded up, and a dash stands where none was computed."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{math.ceil(p * 1000 - 1e-9) / 1000:.3f}" if p < 0.1 else f"{p:.2f}"


def size(count: float) -> str:
    """Bytes in a unit that keeps the number short."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def listed(items: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def capital(text: str) -> str:
    """The first letter large, the rest as it stands."""
    return text[:1].upper() + text[1:]

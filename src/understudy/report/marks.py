"""Marks of figures: good, partly, poor, or not known. The lines are conventions; `rules.html` says them in words.

A figure's *place* is where it stands between what real rows reach (0) and what a naive table reaches (1). Numbers are
marked by how far they stand beyond what real rows reach, whatever a naive table would do: bounds that are too wide make
every naive table look bad, and so every other one good.
"""

from collections.abc import Sequence
from typing import Literal

from understudy.evaluate.comparison import Shares
from understudy.evaluate.figure import Figure, What
from understudy.evaluate.utility.values import Numbers

Mark = Literal["good", "partly", "poor", "unknown"]

CLOSE, LOST = 0.25, 0.75
SHORT = 1.1  # ends nearer to each other than by this factor leave nothing to tell apart
BLUR = 0.1  # real samples that stand so far from each other cannot show that a table is good
NEAR = 0.02  # shares of one column that are so little further away than real rows are from each other are close
OFF = 0.1  # a column whose shares, or numbers, differ by more than this is not close, whatever real rows reach
SLACK, FAR = 0.05, 0.15  # so far beyond what real rows reach numbers are still close, or partly kept
NONE, TINY = 0.01, 0.002  # so little further, or so far at all, independent columns lie off where they are the truth
LEARNABLE = 0.02  # so much must real rows beat a naive guess by, or there is nothing to predict
STRONG, REASONABLE = 1.0, 10.0  # ε


def place(figure: Figure) -> float | None:
    """0 at the real end, 1 at the naive end; None where an end is missing or the ends tell nothing apart."""
    if figure.value is None or figure.floor is None or figure.ceiling is None:
        return None
    low, high = figure.floor, figure.ceiling
    apart = high > SHORT * low if figure.better == "lower" else high - low > LEARNABLE
    if not apart:
        return None
    share = (figure.value - low) / (high - low)
    return share if figure.better == "lower" else 1 - share


def mark(figure: Figure, near: float = 0.0) -> Mark:
    """The figure's mark by its place; where the ends tell nothing apart, by whether it is near them. What is at most
    `near` beyond the real end is good wherever the naive end is, if real rows are not far apart.
    """
    known = figure.value is not None and figure.floor is not None and figure.floor <= BLUR
    if near and known and figure.value - figure.floor <= near:  # type: ignore[operator]
        return "good"
    if (share := place(figure)) is not None:
        return "good" if share <= CLOSE else "partly" if share <= LOST else "poor"
    if figure.value is None or figure.floor is None or figure.ceiling is None or figure.better == "higher":
        return "unknown"
    if figure.value > SHORT * max(figure.floor, figure.ceiling):
        return "poor"
    return "good" if figure.floor <= BLUR else "unknown"


def number_mark(numbers: Numbers) -> Mark:
    """The worst mark of a column's numbers, by how far they stand beyond what real rows reach."""
    judged = [f for f in numbers.figures if f.what.measure in ("ks", "zero_share", "negative_share", "spike_share")]
    return worst([not_off(figure.value, beyond(figure)) for figure in judged])


def column_mark(shares: Shares) -> Mark:
    """The worse of the marks of a column's levels and of its numbers and gaps."""
    figure = shares.figure
    marks = [not_off(figure.value, mark(figure, NEAR))] if figure is not None else []
    return not_off(shares.off, worst([*marks, *([raw_mark(shares)] if shares.numbers is not None else [])]))


def raw_mark(shares: Shares) -> Mark:
    """A column's mark by how far its numbers and gaps, or where it has no numbers its shares, stand beyond what real
    rows reach.
    """
    if shares.numbers is None:
        figure = shares.figure
        return "unknown" if figure is None else not_off(max(shares.off, figure.value or 0.0), beyond(figure))
    real, made = (0.0 if part is None else float(part[-1]) for part in (shares.real, shares.synthetic))
    gaps = abs(real - made) if shares.column.nullable else 0.0
    found = worst([number_mark(shares.numbers), beyond(Figure(What("missing"), value=gaps, floor=0.0))])
    return not_off(shares.off, found)


def not_off(value: float | None, found: Mark) -> Mark:
    """The mark, which is never good for what differs by more than `OFF`."""
    return "partly" if found == "good" and (value or 0.0) > OFF else found


def without_dependence(figure: Figure) -> bool:
    """Whether independent columns are hardly further from the real rows than these are from each other."""
    if figure.value is None or figure.floor is None or figure.ceiling is None or figure.floor > BLUR:
        return False
    return figure.ceiling <= max(SHORT * figure.floor, min(figure.floor + NONE, 3 * figure.floor), TINY)


def dependence_mark(figure: Figure) -> Mark:
    """By its place where there is dependence to lose, and otherwise by how much there is that should not be."""
    if figure.value is None or figure.floor is None or figure.ceiling is None:
        return "unknown"
    return mark(figure) if figure.ceiling - figure.floor > SLACK else beyond(figure)


def worst(marks: Sequence[Mark]) -> Mark:
    """A mark for several things together; what cannot be judged is not good."""
    order: tuple[Mark, ...] = ("good", "unknown", "partly", "poor")
    return max(marks, key=order.index, default="unknown")


def beyond(figure: Figure) -> Mark:
    """By how far it stands beyond what real rows reach."""
    if figure.value is None or figure.floor is None:
        return "unknown"
    more = figure.value - figure.floor
    if more > max(FAR, figure.floor):
        return "poor"
    if figure.floor > BLUR:
        return "unknown"
    return "good" if more <= max(SLACK, figure.floor) else "partly"

"""Marks of figures: good, partly, poor, or not known. The lines are conventions;
`rules.html` says them in words.

A figure's *place* is where it stands between what real rows reach (0) and what a naive
table reaches (1). Numbers are marked by how far they stand beyond what real rows reach,
whatever a naive table would do: bounds that are too wide make every naive table look
bad, and so every other one good.
"""

from collections.abc import Sequence
from typing import Literal

from understudy.evaluate.comparison import ColumnShares
from understudy.evaluate.figure import Figure, FigureKey, StrongPair
from understudy.evaluate.utility.association import Pair
from understudy.evaluate.utility.values import Numbers, NumberSummary

Mark = Literal["good", "partly", "poor", "unknown"]
ORDER: tuple[Mark, ...] = ("good", "unknown", "partly", "poor")  # from the kindest

CLOSE = 0.25
LOST = 0.75
SHORT = 1.1  # ends nearer to each other than by this factor leave nothing to tell apart
# real samples that stand so far from each other cannot show that a table is good
BLUR = 0.1
# shares of one column that are so little further away than real rows are from each
# other are close
NEAR = 0.02
# a column whose shares, or numbers, differ by more than this is not close, whatever
# real rows reach
OFF = 0.1
# so far beyond what real rows reach numbers are still close, or partly kept
SLACK = 0.05
FAR = 0.15
# so little further, or so far at all, independent columns lie off where they are the
# truth
NONE = 0.01
TINY = 0.002
# a column of which more synthetic rows lie beyond the real ends, and more than by
# chance, is not close
PAST = 0.001
LUCK = 0.001  # the chance at which that is called chance
# a column of which more real rows lie beyond the synthetic ends is not close
CUT = 0.01
# of the real range: so far past its end a single row may lie, or further where the real
# tail is long
REACH = 0.02
# times what lies between the real 99 % quantile and the end: so far it may lie where
# the tail is long
TAIL = 3
# a column whose deviation is larger, or smaller, by this factor is not close
WIDER = 1.5
# deviations of its noise: a pair that is further off than by these is not off by chance
SURE = 4
# so much must real rows beat a guess by, or a column that nobody named is not worth
# predicting
TAUGHT = 0.05
# a score that is so little below the one from real rows is close: models differ by as
# much by chance
LITTLE = 0.03
# a score that is further than this below the one from real rows is not close
BEHIND = 0.05
# deviations (one in twenty is further off, to one side) by which a score may be lower
# than the test rows show
DOUBT = 1.645
# so much must real rows beat a naive guess by, or there is nothing to predict
LEARNABLE = 0.02
# ε
STRONG = 1.0
REASONABLE = 10.0


def mark_up_to(value: float, *, good: float, partly: float) -> Mark:
    """The mark of a value that is better the smaller it is."""
    if value <= good:
        return "good"
    return "partly" if value <= partly else "poor"


def scale_position(figure: Figure) -> float | None:
    """0 at the real end, 1 at the naive end; None where an end is missing or the ends
    tell nothing apart.
    """
    if figure.value is None or figure.floor is None or figure.ceiling is None:
        return None
    low = figure.floor
    high = figure.ceiling
    is_wide = high > SHORT * low if figure.better == "lower" else high - low > LEARNABLE
    if not is_wide:
        return None
    share = (figure.value - low) / (high - low)
    return share if figure.better == "lower" else 1 - share


def figure_mark(figure: Figure, near: float = 0.0) -> Mark:
    """The figure's mark by its place; where the ends tell nothing apart, by whether it
    is near them. What is at most `near` beyond the real end is good wherever the naive
    end is, if real rows are not far apart.
    """
    has_real_end = (
        figure.value is not None and figure.floor is not None and figure.floor <= BLUR
    )
    if near and has_real_end and figure.value - figure.floor <= near:  # type: ignore[operator]
        return "good"
    share = scale_position(figure)
    if share is not None:
        return mark_up_to(share, good=CLOSE, partly=LOST)
    if (
        figure.value is None
        or figure.floor is None
        or figure.ceiling is None
        or figure.better == "higher"
    ):
        return "unknown"
    if figure.value > SHORT * max(figure.floor, figure.ceiling):
        return "poor"
    return "good" if figure.floor <= BLUR else "unknown"


def number_mark(numbers: Numbers) -> Mark:
    """The worst mark of a column's numbers, by how far they stand beyond what real rows
    reach.
    """
    judged = [
        f
        for f in numbers.figures
        if f.key.measure in ("ks", "zero_share", "negative_share", "spike_share")
    ]
    return worst_mark(
        [cap_by_difference(figure.value, excess_mark(figure)) for figure in judged]
    )


def column_mark(shares: ColumnShares) -> Mark:
    """The worse of the marks of a column's levels and of its numbers and gaps."""
    figure = shares.figure
    marks = (
        [cap_by_difference(figure.value, figure_mark(figure, NEAR))]
        if figure is not None
        else []
    )
    return cap_by_difference(
        shares.distance,
        worst_mark(
            [*marks, *([raw_mark(shares)] if shares.numbers is not None else [])]
        ),
    )


def raw_mark(shares: ColumnShares) -> Mark:
    """A column's mark by how far its numbers and gaps, or where it has no numbers its
    shares, stand beyond what real rows reach.
    """
    if shares.numbers is None:
        figure = shares.figure
        return (
            "unknown"
            if figure is None
            else cap_by_difference(
                max(shares.distance, figure.value or 0.0), excess_mark(figure)
            )
        )
    real, synthetic = (
        0.0 if part is None else float(part[-1])
        for part in (shares.real, shares.synthetic)
    )
    gaps = abs(real - synthetic) if shares.column.nullable else 0.0
    mark = worst_mark(
        [
            number_mark(shares.numbers),
            excess_mark(Figure(FigureKey("missing"), value=gaps, floor=0.0)),
        ]
    )
    has_faults = shares.spread is not None and range_faults(shares.spread)
    return cap_by_difference(
        shares.distance, "partly" if has_faults and mark == "good" else mark
    )


def range_faults(spread: NumberSummary) -> tuple[str, ...]:
    """What of "below", "above", "smallest", "largest", "deviation", "cut" is such that
    a column is not close: rows beyond the real ends, a number far beyond them, a
    deviation that is another, real rows that are beyond reach.
    """
    faults = []
    low, high = spread.ends
    for side, (synthetic_share, _) in (
        ("below", spread.below),
        ("above", spread.above),
    ):
        if synthetic_share > PAST and _chance_beyond(synthetic_share, spread) < LUCK:
            faults.append(side)
    quantiles = spread.quantiles
    tails = quantiles[0.01][0] - low, high - quantiles[0.99][0]
    overshoots = low - quantiles[0.0][1], quantiles[1.0][1] - high
    for side, tail, step, distance in zip(
        ("smallest", "largest"), tails, spread.step, overshoots, strict=True
    ):
        tolerance = min(max(REACH * (high - low), TAIL * tail, step), high - low)
        if distance > tolerance:
            faults.append(side)
    real, synthetic = spread.deviation
    if max(real, synthetic) > WIDER * min(real, synthetic):
        faults.append("deviation")
    if max(spread.below[1], spread.above[1]) > CUT:
        faults.append("cut")
    return tuple(faults)


def _chance_beyond(share: float, spread: NumberSummary) -> float:
    """How likely so many of the drawn rows lie beyond the largest of the real ones if
    both are of one law: each of them precedes the real ones with at most the drawn
    rows' share of all, whatever the law.
    """
    real, synthetic = spread.rows
    return float((synthetic / (real + synthetic)) ** round(share * synthetic))


def cap_by_difference(
    difference: float | None, mark: Mark, max_difference: float = OFF
) -> Mark:
    """The mark, which is never good for what differs by more than `off`."""
    return "partly" if mark == "good" and (difference or 0.0) > max_difference else mark


def in_doubt(figure: Figure) -> bool:
    """Whether the rows that a score was tested on are too few to say that it is not
    further than `BEHIND` below the one from real rows.
    """
    if figure.value is None or figure.ceiling is None or figure.deviation is None:
        return False
    return figure.ceiling - figure.value + DOUBT * figure.deviation > BEHIND


def pair_mark(pair: StrongPair) -> Mark:
    """Of one of the strongest real pairs: how much of its dependence is lost, where
    that is more than chance; "unknown" where it has too little dependence to lose.

    A row moves a distance by at most 1/n, so the deviation of the difference of two
    distances is at most √(1/2n).
    """
    figure = pair.figure
    if figure.value is None or figure.floor is None or figure.ceiling is None:
        return "unknown"
    chance = 1.5 * (0.5 / pair.rows) ** 0.5
    dependence = figure.ceiling - figure.floor
    lost = figure.value - figure.floor
    if dependence <= max(2 * chance, NONE):
        return "unknown"
    if lost <= max(CLOSE * dependence, chance):
        return cap_by_difference(lost, "good")
    return "partly" if lost <= LOST * dependence else "poor"


def strength_mark(pair: Pair) -> Mark:
    """Of how strongly two columns hang together: never good where it is off by more
    than `OFF`; "unknown" where real rows are so few that they might differ by as much.
    """
    if pair.difference <= OFF:
        return "good"
    if pair.noise is None or pair.difference <= SURE * pair.noise:
        return "unknown"
    return (
        "poor"
        if abs(pair.real) > OFF and pair.difference > LOST * abs(pair.real)
        else "partly"
    )


def scores_mark(figures: Sequence[Figure]) -> Mark:
    """Of one model: the worst of its scores, of those in which real rows beat a guess
    by `TAUGHT` at least.
    """
    score_marks: list[Mark] = []
    for figure in filter(beats_guess, figures):
        score_marks.append(score_mark(figure))
    return worst_mark(score_marks)


def score_mark(figure: Figure) -> Mark:
    """Of one score: close where hardly anything is lost, and not where much is; unknown
    where much may be.
    """
    lost = (figure.ceiling or 0.0) - (figure.value or 0.0)
    mark = figure_mark(figure) if lost > LITTLE else "good"
    mark = cap_by_difference(lost, mark, BEHIND)
    return "unknown" if mark == "good" and in_doubt(figure) else mark


def beats_guess(figure: Figure) -> bool:
    """Whether a model that learned from real rows beats a guess by `TAUGHT` in this
    score.
    """
    if figure.value is None or figure.floor is None or figure.ceiling is None:
        return False
    return figure.ceiling - figure.floor >= TAUGHT


def combined_mark(marks: Sequence[Mark]) -> Mark:
    """A mark for several things of a kind: poor where most of them are, else no better
    than the worst, which counts as partly; what cannot be judged is left aside unless
    nothing can.
    """
    judged = [mark for mark in marks if mark != "unknown"]
    if not judged:
        return "unknown"
    if 2 * judged.count("poor") > len(judged):
        return "poor"
    return worst_mark(["partly" if mark == "poor" else mark for mark in judged])


def without_dependence(figure: Figure) -> bool:
    """Whether independent columns are hardly further from the real rows than these are
    from each other.
    """
    if (
        figure.value is None
        or figure.floor is None
        or figure.ceiling is None
        or figure.floor > BLUR
    ):
        return False
    return figure.ceiling <= max(
        SHORT * figure.floor, min(figure.floor + NONE, 3 * figure.floor), TINY
    )


def dependence_mark(figure: Figure) -> Mark:
    """By its place where there is dependence to lose, and otherwise by how much there
    is that should not be.
    """
    if figure.value is None or figure.floor is None or figure.ceiling is None:
        return "unknown"
    return (
        figure_mark(figure)
        if figure.ceiling - figure.floor > SLACK
        else excess_mark(figure)
    )


def worst_mark(marks: Sequence[Mark]) -> Mark:
    """A mark for several things together; what cannot be judged is not good."""
    return max(marks, key=ORDER.index, default="unknown")


def excess_mark(figure: Figure) -> Mark:
    """By how far it stands beyond what real rows reach."""
    if figure.value is None or figure.floor is None:
        return "unknown"
    excess = figure.value - figure.floor
    blurred = figure.floor > BLUR
    if excess > max(FAR, 2 * figure.floor if blurred else figure.floor):
        return "poor"
    if blurred:
        return "unknown"
    return "good" if excess <= max(SLACK, figure.floor) else "partly"

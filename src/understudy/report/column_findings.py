"""Findings about single columns: what the schema could not say of them, how far their
levels and numbers are off, and what lies beyond their range.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from understudy.evaluate.comparison import ColumnShares
from understudy.evaluate.figure import Figure, FigureKey
from understudy.evaluate.holdings import SchemaLoss
from understudy.ground.check import pluralize
from understudy.report import marks
from understudy.report.findings import (
    MAX_NAMED,
    Finding,
    Worst,
    cap_finding,
    judge_figure,
    name_some,
)
from understudy.report.words import (
    capitalize,
    number,
)

ENDS = ("value", "floor", "ceiling")


def schema_findings(losses: Sequence[SchemaLoss]) -> Iterable[Finding]:
    """What the schema could not say of the holder's rows, those of most people
    first.
    """
    if not losses:
        return
    left_out = list(dict.fromkeys(loss.column for loss in losses if loss.left_out))
    partly_lost = sorted(
        (loss for loss in losses if not loss.left_out), key=lambda loss: -loss.people
    )
    columns = list(dict.fromkeys(loss.column for loss in partly_lost))
    sentences = [
        f"{loss}." for loss in partly_lost if loss.column in columns[:MAX_NAMED]
    ]
    n_more = len(columns) - MAX_NAMED
    if n_more > 0:
        sentences.append(f"And {pluralize(n_more, 'more column')}.")
    if left_out:
        sentences.insert(0, f"Left out of all that was made: {name_some(left_out)}.")
    is_poor = bool(left_out) or any(
        loss.people > marks.FAR * loss.rows for loss in losses
    )
    count = len({loss.column for loss in losses})
    subject = f"{pluralize(count, 'column')} of your table"
    words = (
        f"{'are' if count > 1 else 'is'} not in the schema as "
        f"{'they' if count > 1 else 'it'} came"
    )
    yield Finding(
        "poor" if is_poor else "partly",
        subject,
        words,
        " ".join(sentences),
        "columns",
        "cut",
    )


def judge_columns(levels: Finding, shares: Sequence[ColumnShares]) -> Finding:
    """What is said of single columns, by their levels, by their numbers, and by each of
    them.
    """
    if not shares:
        return levels
    mark_of = {share.column.name: marks.raw_mark(share) for share in shares}
    unknown = [name for name, mark in mark_of.items() if mark == "unknown"]
    judged = [share for share in shares if mark_of[share.column.name] != "unknown"]
    if not judged:
        return (
            levels
            if levels.mark == "unknown"
            else cap_finding(levels, "unknown", levels.detail)
        )
    column_marks = [mark_of[share.column.name] for share in judged]
    furthest = max(
        judged,
        key=lambda share: (
            marks.ORDER.index(mark_of[share.column.name]),
            _column_figure(share).value or 0.0,
        ),
    )
    name = furthest.column.name
    detail = (
        f"{levels.detail} Each by itself, {column_marks.count('good')} of "
        f"{len(mark_of)} columns are close; furthest is “{name}”: "
        f"{_describe_column(furthest)}."
    )
    if unknown:
        detail += (
            f" {capitalize(name_some(unknown))} cannot be judged: too few people have "
            "a value."
        )
    worst = _worst_column(furthest)
    if levels.mark == "unknown" and marks.combined_mark(column_marks) == "good":
        return replace(levels, detail=detail, worst=worst)
    finding = replace(
        cap_finding(levels, marks.combined_mark(column_marks), detail), worst=worst
    )
    if unknown and finding.mark == "good":
        finding = replace(
            finding,
            statement=f"are close to the real rows in {len(judged)} of {len(mark_of)}",
        )
    return finding


def _worst_column(share: ColumnShares) -> Worst:
    figure = _column_figure(share)
    numbers = share.numbers
    if numbers is not None and numbers.median is not None:
        return Worst(f"“{share.column.name}”", *numbers.median)
    return Worst(f"“{share.column.name}”", figure.floor, figure.value)


def columns_finding(shares: Sequence[ColumnShares], subject: str) -> Finding:
    """What is said of single columns, of which no table of all has a figure."""
    figures = [share.figure for share in shares if share.figure is not None]
    if not figures:
        return Finding(
            "unknown", subject, "cannot be judged", "A table has no rows.", "columns"
        )
    value, floor, ceiling = (
        sum(getattr(figure, end) or 0.0 for figure in figures) / len(figures)
        for end in ENDS
    )
    mean = Figure(FigureKey("avd", 1), value=value, floor=floor, ceiling=ceiling)
    return judge_columns(
        judge_figure(
            mean, subject, "equal shares of every level", "columns", near=marks.NEAR
        ),
        shares,
    )


def _column_figure(share: ColumnShares) -> Figure:
    """The figure that says how far a column is off: KS of numbers, the distance of
    shares of all else.
    """
    if share.numbers is not None:
        return share.numbers.figures[0]
    return share.figure or Figure.absent(
        FigureKey(share.column.name), "no real row was looked at."
    )


def _describe_column(share: ColumnShares) -> str:
    figure = _column_figure(share)
    numbers = share.numbers
    if figure.value is None:
        return figure.reason.rstrip(".")
    ends = f"{number(figure.value)}, real rows reach {number(figure.floor)}"
    if numbers is None or numbers.median is None:
        return f"its shares are off by {ends}"
    real, synthetic = map(numbers.format_value, numbers.median)
    return "; ".join(
        [f"KS {ends}", f"median {synthetic}, real {real}", *range_remarks(share)]
    )


def range_remarks(share: ColumnShares) -> list[str]:
    """What lies beyond a column's ends, or spreads otherwise than the real rows do, in
    words.
    """
    spread = share.spread
    numbers = share.numbers
    if spread is None or numbers is None:
        return []
    faults = marks.range_faults(spread)
    format_value = numbers.format_value
    low, high = map(format_value, spread.ends)
    smallest, largest = (format_value(spread.quantiles[end][1]) for end in (0.0, 1.0))
    remarks = {
        "below": (
            f"{_share(spread.below[0])} of synthetic rows lie below the real "
            f"minimum of {low}"
        ),
        "above": (
            f"{_share(spread.above[0])} of synthetic rows lie above the real "
            f"maximum of {high}"
        ),
        "smallest": f"its smallest is {smallest}, real {low}",
        "largest": f"its largest is {largest}, real {high}",
        "deviation": "deviation "
        + ", real ".join(
            numbers.format_distance(deviation)
            for deviation in reversed(spread.deviation)
        ),
        "cut": f"{_share(spread.below[1] + spread.above[1])} of real rows lie outside "
        f"of {smallest} to {largest}, where all synthetic rows are",
    }
    return [remarks[fault] for fault in faults]


def _share(share: float) -> str:
    """A share in per cent with the digits that it needs."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"

"""Findings about the dependence of two columns: 2-way marginals, correlations, and a
number with itself some events later.
"""

from collections.abc import Sequence
from dataclasses import replace

from understudy.evaluate.figure import Figure, StrongPair
from understudy.evaluate.utility.association import RANK_MEASURES, STRONG, Pair
from understudy.report import marks
from understudy.report.findings import (
    INDEPENDENT,
    NO_DEPENDENCE,
    SPURIOUS_DEPENDENCE,
    Finding,
    Worst,
    cap_finding,
    judge_figure,
    worst_part,
)
from understudy.report.words import (
    MARKED,
    STRENGTHS,
    figure_name,
    number,
    signed,
)


def pairs_finding(
    figure: Figure,
    strongest: Sequence[StrongPair],
    subject: str,
    naive: str,
    limit: str = "",
) -> Finding:
    """What is said of pairs: by their average, and by each of the strongest real ones.
    An average over pairs of nearly constant columns shows no dependence, whatever a few
    pairs have.
    """
    finding = judge_figure(figure, subject, naive, "utility", limit)
    strong_pairs = [
        (pair, mark)
        for pair in strongest
        if (mark := marks.pair_mark(pair)) != "unknown"
    ]
    if finding.mark == "unknown" or not strong_pairs:
        return finding
    pair_marks = [mark for _, mark in strong_pairs]
    furthest = max(
        strong_pairs,
        key=lambda judged: (marks.ORDER.index(judged[1]), _lost_share(judged[0])),
    )[0]
    name = _pair_name(furthest)
    figure_of_pair = furthest.figure
    detail = (
        f"{finding.detail} Each by itself, {pair_marks.count('good')} of the "
        f"{len(pair_marks)} strongest pairs are close; furthest is {name}: "
        f"{number(figure_of_pair.value)}, real rows reach "
        f"{number(figure_of_pair.floor)}, {naive} {number(figure_of_pair.ceiling)}."
    )
    pairs_mark = marks.combined_mark(pair_marks)
    # the average tells nothing apart where some pairs do
    if finding.statement in (NO_DEPENDENCE, SPURIOUS_DEPENDENCE):
        nearer = (
            figure.value is not None
            and figure.ceiling is not None
            and figure.value < figure.ceiling
        )
        words = (
            MARKED[pairs_mark]
            if nearer or pairs_mark != "good"
            else f"are no better than {naive}"
        )
        finding = replace(
            finding,
            mark=pairs_mark if nearer else marks.worst_mark([pairs_mark, "partly"]),
            statement=words,
        )
    worst = Worst(name, figure_of_pair.floor, figure_of_pair.value)
    return replace(cap_finding(finding, pairs_mark, detail), worst=worst)


def _pair_name(pair: StrongPair | Pair) -> str:
    return f"“{pair.first}” × “{pair.second}”"


def _lost_share(pair: StrongPair) -> float:
    """The share of a pair's dependence that is lost."""
    return marks.scale_position(pair.figure) or 0.0


def judge_strong_pairs(finding: Finding, pairs: Sequence[Pair]) -> Finding:
    """What is said of pairs: never close where two columns that hang together strongly
    by their ranks, in either table, are off by more than `marks.OFF`. Bins of the
    schema may hide it: within them columns can lose what they have in common.
    """
    mark_of = {pair: marks.strength_mark(pair) for pair in pairs if pair.is_strong}
    if finding.mark == "unknown" or not mark_of:
        return finding
    furthest = max(
        mark_of, key=lambda pair: (marks.ORDER.index(mark_of[pair]), pair.difference)
    )
    mark = mark_of[furthest]
    if mark == "good":
        return finding
    lost = [pair for pair, pair_mark in mark_of.items() if pair_mark == "poor"]
    if mark == "poor" and not 2 * len(lost) > len(mark_of):
        mark = "partly"
    detail = (
        f"{finding.detail} By their values furthest off is {_both_figures(furthest)}."
    )
    if mark == "unknown":
        detail += TOO_FEW_ROWS
    capped = cap_finding(finding, mark, detail)
    if capped.mark == finding.mark:
        return capped
    return replace(
        capped,
        worst=Worst(_pair_name(furthest), furthest.real, furthest.synthetic),
    )


def _both_figures(pair: Pair) -> str:
    measure = STRENGTHS[pair.measure]
    return (
        f"{_pair_name(pair)}: {signed(pair.real).lstrip('+')} in the real rows, "
        f"{signed(pair.synthetic).lstrip('+')} in the synthetic ones "
        f"({measure[0].lower()}{measure[1:]})"
    )


TOO_FEW_ROWS = " There are too few real rows to tell whether that is chance."


def judge_pairs(averages: Finding, pairs: Sequence[Pair]) -> Finding:
    """What is said of correlations: never close where one of them is off by more than
    `marks.OFF`. Pearson's is judged by ranks where a few large numbers make it so
    uncertain that real rows differ by half as much; so is the correlation ratio.
    """
    by_ranks = {
        (pair.first, pair.second) for pair in pairs if pair.measure in RANK_MEASURES
    }
    judged_pairs = [
        pair
        for pair in pairs
        if pair.measure in RANK_MEASURES
        or (pair.first, pair.second) not in by_ranks
        or (pair.noise or 0.0) <= marks.OFF / 2
    ]
    if averages.mark == "unknown" or not judged_pairs:
        return averages
    furthest = max(judged_pairs, key=lambda pair: pair.difference)
    n_far = sum(pair.difference > marks.OFF for pair in judged_pairs)
    detail = f"{averages.detail} Furthest off is {_both_figures(furthest)}."
    mark = marks.strength_mark(furthest)
    if n_far:
        detail += (
            f" {n_far:,} of {len(judged_pairs):,} are off by more than {marks.OFF:g}."
        )
    if mark == "unknown":
        detail += TOO_FEW_ROWS
    strong_pairs = [pair for pair in judged_pairs if abs(pair.real) > STRONG]
    lost_pairs = [
        pair for pair in strong_pairs if pair.difference > marks.LOST * abs(pair.real)
    ]
    if mark == "poor" and not 2 * len(lost_pairs) > len(strong_pairs):
        mark = "partly"
    worst = Worst(_pair_name(furthest), furthest.real, furthest.synthetic)
    finding = cap_finding(averages, mark, detail)
    if finding.statement == NO_DEPENDENCE and mark == "unknown":
        finding = replace(finding, statement=MARKED["unknown"])
    return replace(finding, worst=worst)


def judge_strengths(levels: Finding, figures: Sequence[Figure]) -> Finding:
    """What is said of correlations: the worst of their measures."""
    mark_of = {
        figure: marks.dependence_mark(figure)
        for figure in figures
        if figure.value is not None
    }
    not_close = [
        figure for figure, mark in mark_of.items() if mark in ("partly", "poor")
    ]
    if levels.mark == "unknown" or not not_close:
        return levels
    leading = next((f for f in not_close if mark_of[f] == "poor"), not_close[0])
    detail = (
        f"{levels.detail} {STRENGTHS[leading.key.measure]}: off by "
        f"{number(leading.value)}; real rows reach {number(leading.floor)}, "
        f"{INDEPENDENT} {number(leading.ceiling)}."
    )
    finding = cap_finding(levels, mark_of[leading], detail)
    return (
        replace(finding, statement=SPURIOUS_DEPENDENCE)
        if levels.statement == NO_DEPENDENCE
        else finding
    )


def memory_finding(figures: Sequence[Figure]) -> Finding:
    """What is said of columns and themselves some events later, by the numbers as they
    came.
    """
    marked = marks.worst_mark(
        [
            marks.cap_by_difference(figure.value, marks.dependence_mark(figure))
            for figure in figures
        ]
    )
    furthest = max(figures, key=lambda figure: figure.value or 0.0)
    name = figure_name(furthest.key)
    detail = f"Furthest off, by ranks: {name}: {furthest.note}."
    words = MARKED[marked].replace("are", "is", 1)
    return Finding(
        marked,
        "memory of events",
        words,
        detail,
        "utility",
        worst=worst_part(name, furthest),
    )

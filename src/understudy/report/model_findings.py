"""Findings about models that learned from synthetic rows and were tested on real ones
(TSTR).
"""

from collections.abc import Iterable, Sequence

from understudy.evaluate.figure import Figure
from understudy.evaluate.utility.predictions import Predictions
from understudy.report import marks
from understudy.report.findings import (
    Finding,
    Worst,
    _place_in_words,
)
from understudy.report.words import (
    MARKED,
    SCORES,
    capitalize,
    join_words,
    number,
)


def leading_figure(all_figures: Sequence[Figure]) -> Figure | None:
    """The downstream figure that says most: of the models that learn best from real
    rows, or nearly so, the one that loses most by learning from synthetic ones.
    """
    for score in ("auc", "r2"):
        figures = [
            f for f in all_figures if (f.key.measure, f.key.score) == ("tstr", score)
        ]
        usable = [f for f in figures if f.value is not None and f.ceiling is not None]
        if usable:
            best = max(figure.ceiling or 0.0 for figure in usable)
            leading = [
                figure
                for figure in usable
                if (figure.ceiling or 0.0) >= best - marks.LITTLE
            ]
            return max(leading, key=_loss)
        if figures:
            return figures[0]
    return None


def _loss(figure: Figure) -> float:
    return (figure.ceiling or 0.0) - (figure.value or 0.0)


def _doubt(figure: Figure) -> str:
    """What to say where the test rows are too few to call a score close."""
    possible = _loss(figure) + marks.DOUBT * (figure.deviation or 0.0)
    return (
        " The rows that it was tested on are few: it may be up to "
        f"{number(possible)} below."
    )


def prediction_findings(figure: Figure | None, subject: str) -> Iterable[Finding]:
    """What a model that learned from synthetic rows says, where one was tried."""
    section = "downstream"
    if figure is None:
        return
    if figure.value is None:
        yield Finding(
            "unknown", subject, "cannot be judged", capitalize(figure.reason), section
        )
        return
    detail = (
        "Of the models that learn most from real rows, the one that loses most scores "
        f"{number(figure.ceiling)} with them, {number(figure.value)} with synthetic "
        f"rows, {number(figure.floor)} by a constant guess."
    )
    if marks.figure_mark(figure) == "unknown":
        detail += (
            " Models trained on real rows hardly beat the constant guess, so there is "
            "nothing to keep."
        )
    marked = marks.cap_by_difference(
        _loss(figure), marks.figure_mark(figure), marks.BEHIND
    )
    if marked == "good" and marks.in_doubt(figure):
        marked = "unknown"
        detail += _doubt(figure)
    words = (
        _place_in_words(figure, "a constant guess")
        if marked == marks.figure_mark(figure)
        else MARKED[marked]
    )
    words = words.replace("the real rows", "those from real rows")
    yield Finding(
        marked,
        subject,
        words,
        detail,
        section,
        worst=Worst(subject, figure.ceiling, figure.value),
    )


def column_prediction_findings(predictions: Predictions) -> Iterable[Finding]:
    """What models learn of columns where nobody named one: as good as the one that is
    furthest off.
    """
    by_column: dict[str, list[Figure]] = {}
    for figure in predictions.figures:
        if figure.value is not None:
            by_column.setdefault(figure.key.column, []).append(figure)
    mark_of = {name: marks.scores_mark(scores) for name, scores in by_column.items()}
    judged = [
        name
        for name, scores in by_column.items()
        if any(map(marks.beats_guess, scores))
    ]
    if not judged:
        return
    behind = {
        name: max(marks.scale_position(score) or 0.0 for score in by_column[name])
        for name in judged
    }
    furthest = max(
        judged, key=lambda name: (marks.ORDER.index(mark_of[name]), behind[name])
    )
    score = max(
        filter(marks.beats_guess, by_column[furthest]),
        key=lambda score_figure: marks.scale_position(score_figure) or 0.0,
    )
    title = SCORES[score.key.score][0]
    listed_names = join_words([f"“{name}”" for name in judged])
    searched = ""
    if predictions.columns_searched:
        searched = (
            f"A linear model looked at {predictions.columns_searched:,} columns, each "
            "predicted from all others. "
        )
    detail = (
        f"{searched}A model of trees predicted {listed_names}. Furthest off is "
        f"“{furthest}”: {title} {number(score.ceiling)} with real rows, "
        f"{number(score.value)} with synthetic rows, {number(score.floor)} by a "
        "constant guess."
    )
    marked = marks.worst_mark([mark_of[name] for name in judged])
    if marked == "unknown":
        detail += _doubt(score)
    words = MARKED[marked].replace("the real rows", "those from real rows")
    worst = Worst(f"“{furthest}”", score.ceiling, score.value)
    yield Finding(
        marked, "predictions of columns", words, detail, "downstream", worst=worst
    )

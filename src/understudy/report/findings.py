"""What a finding of a report is, and how a distance is judged: between what real rows
reach and what is naive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from understudy.evaluate.figure import Figure
from understudy.report import marks
from understudy.report.marks import Mark
from understudy.report.words import (
    MARKED,
    capitalize,
    join_words,
    number,
)


@dataclass(frozen=True)
class Worst:
    """What of a finding's subject is furthest off: its name, and the number of each
    table, or of the distances.
    """

    name: str
    real: float | None
    synthetic: float | None


@dataclass(frozen=True)
class Finding:
    """One thing that a holder should know: a mark, a subject, what is said of it,
    figures, the section; and of what has parts, which of them is furthest off.
    """

    mark: Mark
    subject: str
    statement: str
    detail: str
    section: str
    badge: str = ""
    group: str = ""
    worst: Worst | None = None


def headline(findings: Sequence[Finding]) -> str:
    """The findings in a few sentences, subjects of one judgement together."""
    by_statement: dict[str, dict[str, list[str]]] = {}
    for finding in findings:
        by_statement.setdefault(finding.statement, {}).setdefault(
            finding.subject, []
        ).extend(filter(None, [finding.group]))
    # each subject with all that it is of: "numbers of events (visits and claims)"
    return " ".join(
        f"{capitalize(join_words(_with_parts(subjects)))} {words}."
        for words, subjects in by_statement.items()
    )


def _with_parts(subjects: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"{subject} ({join_words(parts)})" if parts else subject
        for subject, parts in subjects.items()
    ]


MAX_NAMED = 5  # columns in one finding


def name_some(names: Sequence[str]) -> str:
    """The first names, and how many more there are: "“a”, “b” and 3 more"."""
    quoted = [f"“{name}”" for name in names[:MAX_NAMED]]
    further = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return join_words([*quoted, *further])


INDEPENDENT = "independent columns"


def judge_figure(
    figure: Figure,
    subject: str,
    naive: str,
    section: str,
    limit: str = "",
    *,
    near: float = 0.0,
) -> Finding:
    """What a distance says of its subject, between real rows and what is naive."""
    if figure.value is None:
        return Finding(
            "unknown", subject, "cannot be judged", capitalize(figure.reason), section
        )
    ends = (
        f"real rows reach {number(figure.floor)}, {naive} {number(figure.ceiling)}; "
        "smaller is better"
    )
    detail = f"Distance {number(figure.value)}; {ends}."
    marked = marks.cap_by_difference(
        figure.value - (figure.floor or 0.0), marks.figure_mark(figure, near)
    )
    words = (
        MARKED[marked]
        if marked in ("good", "partly")
        else _place_in_words(figure, naive)
    )
    if naive == INDEPENDENT and marks.without_dependence(figure):
        marked = marks.excess_mark(figure)
        words = NO_DEPENDENCE if marked == "good" else SPURIOUS_DEPENDENCE
    if marked == "unknown":
        detail += (
            " Real rows differ from each other as much: there are too few of them for "
            "so many levels."
        )
    elif marked != "good":
        detail = f"{detail} {limit}".strip()
    return Finding(marked, subject, words, detail, section)


NO_DEPENDENCE = "show no dependence to speak of, as in the real rows"


SPURIOUS_DEPENDENCE = "show dependence that the real rows do not have"


def _place_in_words(figure: Figure, naive: str) -> str:
    share = marks.scale_position(figure)
    is_lost = marks.figure_mark(figure) == "poor" and (share is None or share >= 1)
    return (
        f"are no better than {naive}" if is_lost else MARKED[marks.figure_mark(figure)]
    )


def cap_finding(finding: Finding, mark: Mark, detail: str) -> Finding:
    """The finding with these details, and no better a mark than this."""
    if marks.worst_mark([finding.mark, mark]) == finding.mark:
        return replace(finding, detail=detail)
    return replace(finding, mark=mark, statement=MARKED[mark], detail=detail)


def worst_part(name: str, figure: Figure) -> Worst:
    """Of a difference the two numbers that it is of, of a distance what real rows reach
    and what it is.
    """
    return Worst(name, *(figure.compared or (figure.floor, figure.value)))

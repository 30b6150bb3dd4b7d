"""A page's verdict as data: each line with its mark, what of it is furthest off, and
both numbers.

    for line in verdict_lines(us.evaluate(real, synthetic, schema)):
        print(line.line, line.mark, line.subject, line.real, line.synthetic)

A benchmark puts these beside a truth that it knows. They are computed from real rows:
for their holder alone.
"""

from dataclasses import dataclass

from understudy.evaluate.comparison import ColumnShares, Comparison
from understudy.report import marks
from understudy.report.findings import Finding
from understudy.report.marks import Mark
from understudy.report.people import PeopleComparison
from understudy.report.people import people_findings as people_findings
from understudy.report.verdict import verdict

COLUMN = "column"


@dataclass(frozen=True)
class ReportLine:
    """`line` is what is judged ("correlations", or "column" for one column), `subject`
    what of it is furthest off, and `real` and `synthetic` are its numbers: medians,
    correlations, scores, or the distances of real and of synthetic rows.
    """

    line: str
    mark: Mark
    subject: str
    real: float | None
    synthetic: float | None


def verdict_lines(compared: Comparison | PeopleComparison) -> list[ReportLine]:
    """All lines of the page, then a line for each column by itself."""
    findings = (
        people_findings(compared)
        if isinstance(compared, PeopleComparison)
        else verdict(compared, None)
    )
    return [*map(_line, findings), *map(_column, compared.shares)]


def _line(finding: Finding) -> ReportLine:
    name = f"{finding.subject} ({finding.group})" if finding.group else finding.subject
    if finding.worst is None:
        return ReportLine(name, finding.mark, "", None, None)
    return ReportLine(
        name,
        finding.mark,
        finding.worst.name,
        finding.worst.real,
        finding.worst.synthetic,
    )


def _column(share: ColumnShares) -> ReportLine:
    """The kindest mark that the page shows for a column."""
    column_marks = marks.column_mark(share), marks.raw_mark(share)
    kindest = min(column_marks, key=marks.ORDER.index)
    median = None if share.numbers is None else share.numbers.median
    if median is not None:
        return ReportLine(COLUMN, kindest, share.column.name, *median)
    figure = share.figure
    reached = None if figure is None else figure.floor
    return ReportLine(
        COLUMN,
        kindest,
        share.column.name,
        reached,
        None if figure is None else figure.value,
    )

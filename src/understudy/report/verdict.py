"""The verdict in words: what is good, what is not, what it cost. Every word follows
from a figure by a rule that `rules.html` states.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from understudy.evaluate.comparison import Comparison
from understudy.evaluate.figure import FigureKey
from understudy.evaluate.utility.association import Pair
from understudy.report import marks
from understudy.report.column_findings import (
    judge_columns,
    schema_findings,
)
from understudy.report.findings import (
    INDEPENDENT,
    Finding,
    judge_figure,
)
from understudy.report.model_findings import (
    column_prediction_findings,
    leading_figure,
    prediction_findings,
)
from understudy.report.pair_findings import (
    judge_pairs,
    judge_strengths,
    judge_strong_pairs,
    pairs_finding,
)
from understudy.report.run_findings import (
    attack_finding,
    price_finding,
    public_findings,
)
from understudy.report.words import (
    STRENGTHS,
)

# Protocols, by the beginning of their name, in which each party judges its own columns
# and nobody all of them.
PROTOCOLS_WITHOUT_LINKS = {"verti-gan": "VertiGAN", "vd-gan": "VDGAN"}


NO_LINKS = (
    "In {} each party judges only its own columns, so nothing in the loss links "
    "columns of different parties: it does not learn these links."
)


def verdict(
    comparison: Comparison | None,
    privacy: Mapping[str, Any] | None,
    protocol: str = "",
    short_ledgers: Mapping[str, str] | None = None,
    rehearsal: str = "",
    row_findings: Sequence[Finding] = (),
    quality: Mapping[str, Any] | None = None,
) -> tuple[Finding, ...]:
    """All findings: utility (`others`: of rows that are no table), attacks, what the
    release alone says (`quality`), price; `short` ledgers; a `rehearsal` first.
    """
    findings: list[Finding] = []
    if rehearsal:
        statement = "is a rehearsal, and nothing here is private"
        findings.append(
            Finding("poor", "the run", statement, rehearsal, "privacy", "rehearsal")
        )
    if comparison is not None:
        limits = [
            NO_LINKS.format(name)
            for start, name in PROTOCOLS_WITHOUT_LINKS.items()
            if protocol.startswith(start)
        ]
        findings += schema_findings(comparison.losses)
        findings += _utility_findings(comparison, "".join(limits))
        findings += prediction_findings(
            leading_figure(comparison.evaluation.figures),
            f"predictions of “{comparison.target}”",
        )
        findings += column_prediction_findings(comparison.predictions)
        findings.append(attack_finding(comparison.attacks))
    findings += row_findings
    findings += public_findings(quality)
    if privacy is not None and not rehearsal:
        findings.append(price_finding(privacy))
    statement = "records less than stated"
    findings += [
        Finding("poor", f"the ledger of {name}", statement, why, "privacy")
        for name, why in (short_ledgers or {}).items()
    ]
    return tuple(findings)


def _utility_findings(comparison: Comparison, limit: str) -> Iterable[Finding]:
    by_key = {figure.key: figure for figure in comparison.figures}
    single = FigureKey("avd", 1)
    cross = FigureKey("avd", 2, "cross")
    linear = FigureKey("cmd")
    if single in by_key:
        naive = "equal shares of every level"
        levels = judge_figure(
            by_key[single], "single columns", naive, "utility", near=marks.NEAR
        )
        yield judge_columns(levels, comparison.shares)
    scopes = {"all": "pairs of columns"}
    if cross in by_key and by_key[cross].value is not None:
        scopes = {"within": "pairs within a party", "cross": "pairs across parties"}
    for scope, subject in scopes.items():
        figure = by_key.get(FigureKey.for_scope("avd", scope, 2))
        if figure is not None:
            strongest = comparison.strongest.get(scope, ())
            by_levels = pairs_finding(
                figure,
                strongest,
                subject,
                INDEPENDENT,
                limit if scope == "cross" else "",
            )
            yield judge_strong_pairs(by_levels, _pairs_of_scope(comparison, scope))
    if linear in by_key:
        levels = judge_figure(
            by_key[linear], "correlations", INDEPENDENT, "correlations"
        )
        averages = judge_strengths(
            levels,
            [
                by_key[FigureKey(measure)]
                for measure in STRENGTHS
                if FigureKey(measure) in by_key
            ],
        )
        yield judge_pairs(averages, comparison.pairs)


def _pairs_of_scope(comparison: Comparison, scope: str) -> list[Pair]:
    """How strongly two columns hang together: of all, within one party, across them."""
    if scope == "all" or comparison.owners is None:
        return list(comparison.pairs)
    owners = comparison.owners
    return [
        pair
        for pair in comparison.pairs
        if (owners[pair.first] == owners[pair.second]) is (scope == "within")
    ]

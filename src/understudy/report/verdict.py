"""The verdict in words: what is good, what is not, what it cost. Every word follows
from a figure by a rule that `rules.html` states. The words for ε are the tiers of
Ponomareva et al., "How to DP-fy ML" (JAIR 2023).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from understudy.evaluate.attacks.attack import Attack
from understudy.evaluate.attacks.rates import LEVEL
from understudy.evaluate.comparison import ColumnShares, Comparison
from understudy.evaluate.figure import Figure, FigureKey, StrongPair
from understudy.evaluate.holdings import SchemaLoss
from understudy.evaluate.utility.association import Pair
from understudy.evaluate.utility.fidelity import Evaluation
from understudy.evaluate.utility.predictions import Predictions
from understudy.privacy.accounts.budget import PLURALS, unit_of
from understudy.report import marks
from understudy.report.marks import Mark
from understudy.report.words import (
    MARKED,
    SCORES,
    STRENGTHS,
    at_price,
    capital,
    figure_name,
    listed,
    number,
    percent,
    signed,
)

ENDS = ("value", "floor", "ceiling")
MOST_NAMED = 5  # columns in one finding
INDEPENDENT = "independent columns"

# Protocols, by the beginning of their name, in which each party judges its own columns
# and nobody all of them.
APART = {"verti-gan": "VertiGAN", "vd-gan": "VDGAN"}
LIMIT = (
    "In {} each party judges only its own columns, so nothing in the loss links "
    "columns of different parties: it does not learn these links."
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
    said: str
    detail: str
    section: str
    badge: str = ""
    of: str = ""
    worst: Worst | None = None


def verdict(
    comparison: Comparison | None,
    privacy: Mapping[str, Any] | None,
    protocol: str = "",
    short: Mapping[str, str] | None = None,
    rehearsal: str = "",
    others: Sequence[Finding] = (),
    quality: Mapping[str, Any] | None = None,
) -> tuple[Finding, ...]:
    """All findings: utility (`others`: of rows that are no table), attacks, what the
    release alone says (`quality`), price; `short` ledgers; a `rehearsal` first.
    """
    found: list[Finding] = []
    if rehearsal:
        said = "is a rehearsal, and nothing here is private"
        found.append(
            Finding("poor", "the run", said, rehearsal, "privacy", "rehearsal")
        )
    if comparison is not None:
        limits = [
            LIMIT.format(name)
            for start, name in APART.items()
            if protocol.startswith(start)
        ]
        found += lost(comparison.losses)
        found += _utility(comparison, "".join(limits))
        found += predicted(
            leading(comparison.evaluation), f"predictions of “{comparison.target}”"
        )
        found += predicted_columns(comparison.predictions)
        found.append(attack_finding(comparison.attacks))
    found += others
    found += public_findings(quality)
    if privacy is not None and not rehearsal:
        found.append(_price(privacy))
    said = "records less than stated"
    found += [
        Finding("poor", f"the ledger of {name}", said, why, "privacy")
        for name, why in (short or {}).items()
    ]
    return tuple(found)


def headline(findings: Sequence[Finding]) -> str:
    """The findings in a few sentences, subjects of one judgement together."""
    said: dict[str, dict[str, list[str]]] = {}
    for finding in findings:
        said.setdefault(finding.said, {}).setdefault(finding.subject, []).extend(
            filter(None, [finding.of])
        )
    # each subject with all that it is of: "numbers of events (visits and claims)"
    return " ".join(
        f"{capital(listed(_with_parts(subjects)))} {words}."
        for words, subjects in said.items()
    )


def _with_parts(subjects: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"{subject} ({listed(parts)})" if parts else subject
        for subject, parts in subjects.items()
    ]


def _utility(comparison: Comparison, limit: str) -> Iterable[Finding]:
    known = {figure.key: figure for figure in comparison.figures}
    single = FigureKey("avd", 1)
    cross = FigureKey("avd", 2, "cross")
    linear = FigureKey("cmd")
    if single in known:
        naive = "equal shares of every level"
        levels = judged(
            known[single], "single columns", naive, "utility", near=marks.NEAR
        )
        yield _with_columns(levels, comparison.shares)
    scopes = {"all": "pairs of columns"}
    if cross in known and known[cross].value is not None:
        scopes = {"within": "pairs within a party", "cross": "pairs across parties"}
    for scope, subject in scopes.items():
        figure = known.get(FigureKey.for_scope("avd", scope, 2))
        if figure is not None:
            strongest = comparison.strongest.get(scope, ())
            yield pairs_finding(
                figure,
                strongest,
                subject,
                INDEPENDENT,
                limit if scope == "cross" else "",
            )
    if linear in known:
        levels = judged(known[linear], "correlations", INDEPENDENT, "correlations")
        averages = _with_strengths(
            levels,
            [known[FigureKey(one)] for one in STRENGTHS if FigureKey(one) in known],
        )
        yield _with_worst_pair(averages, comparison.pairs)


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
    found = judged(figure, subject, naive, "utility", limit)
    strong = [
        (pair, mark)
        for pair in strongest
        if (mark := marks.pair_mark(pair)) != "unknown"
    ]
    if found.mark == "unknown" or not strong:
        return found
    each = [mark for _, mark in strong]
    furthest = max(strong, key=lambda one: (marks.ORDER.index(one[1]), _lost(one[0])))[
        0
    ]
    name = _names(furthest)
    own = furthest.figure
    close = (
        f"Each by itself, {each.count('good')} of the {len(each)} strongest pairs are "
        "close"
    )
    ends = f"real rows reach {number(own.floor)}, {naive} {number(own.ceiling)}"
    detail = f"{found.detail} {close}; furthest is {name}: {number(own.value)}, {ends}."
    marked = marks.together(each)
    # the average tells nothing apart where some pairs do
    if found.said in (_NOTHING, _SPURIOUS):
        nearer = (
            figure.value is not None
            and figure.ceiling is not None
            and figure.value < figure.ceiling
        )
        words = (
            MARKED[marked]
            if nearer or marked != "good"
            else f"are no better than {naive}"
        )
        found = replace(
            found,
            mark=marked if nearer else marks.worst([marked, "partly"]),
            said=words,
        )
    worst = Worst(name, own.floor, own.value)
    return replace(_no_better(found, marked, detail), worst=worst)


def _names(pair: StrongPair | Pair) -> str:
    return f"“{pair.first}” × “{pair.second}”"


def _lost(pair: StrongPair) -> float:
    """The share of a pair's dependence that is lost."""
    return marks.place(pair.figure) or 0.0


def _with_worst_pair(averages: Finding, pairs: Sequence[Pair]) -> Finding:
    """What is said of correlations: never close where one of them is off by more than
    `marks.OFF`. Pearson's is judged by ranks where a few large numbers make it so
    uncertain that real rows differ by half as much.
    """
    ranked = {(pair.first, pair.second) for pair in pairs if pair.measure == "spearman"}
    sure = [
        pair
        for pair in pairs
        if pair.measure != "pearson"
        or (pair.first, pair.second) not in ranked
        or (pair.noise or 0.0) <= marks.OFF / 2
    ]
    if averages.mark == "unknown" or not sure:
        return averages
    furthest = max(sure, key=lambda pair: pair.difference)
    far = sum(pair.difference > marks.OFF for pair in sure)
    measure = STRENGTHS[furthest.measure]
    detail = (
        f"{averages.detail} Furthest off is {_names(furthest)}: "
        f"{signed(furthest.real).lstrip('+')} in the real rows, "
        f"{signed(furthest.synthetic).lstrip('+')} in the synthetic ones "
        f"({measure[0].lower()}{measure[1:]})."
    )
    marked = marks.strength_mark(furthest)
    if far:
        detail += f" {far:,} of {len(sure):,} are off by more than {marks.OFF:g}."
    if marked == "unknown":
        detail += " There are too few real rows to tell whether that is chance."
    strong = [pair for pair in sure if abs(pair.real) > _STRONG]
    lost = [pair for pair in strong if pair.difference > marks.LOST * abs(pair.real)]
    if marked == "poor" and not 2 * len(lost) > len(strong):
        marked = "partly"
    worst = Worst(_names(furthest), furthest.real, furthest.synthetic)
    found = _no_better(averages, marked, detail)
    if found.said == _NOTHING and marked == "unknown":
        found = replace(found, said=MARKED["unknown"])
    return replace(found, worst=worst)


# a coefficient from which on two columns are said to depend on each other strongly
_STRONG = 0.3


def lost(losses: Sequence[SchemaLoss]) -> Iterable[Finding]:
    """What the schema could not say of the holder's rows, those of most people
    first.
    """
    if not losses:
        return
    gone = list(dict.fromkeys(loss.column for loss in losses if loss.left_out))
    cut = sorted(
        (loss for loss in losses if not loss.left_out), key=lambda loss: -loss.people
    )
    columns = list(dict.fromkeys(loss.column for loss in cut))
    said = [f"{loss}." for loss in cut if loss.column in columns[:MOST_NAMED]]
    more = len(columns) - MOST_NAMED
    if more > 0:
        said.append(f"And {more} more column{'s' * (more > 1)}.")
    if gone:
        said.insert(0, f"Left out of all that was made: {some(gone)}.")
    bad = bool(gone) or any(loss.people > marks.FAR * loss.rows for loss in losses)
    count = len({loss.column for loss in losses})
    subject = f"{count} column{'s' * (count > 1)} of your table"
    words = (
        f"{'are' if count > 1 else 'is'} not in the schema as "
        f"{'they' if count > 1 else 'it'} came"
    )
    yield Finding(
        "poor" if bad else "partly", subject, words, " ".join(said), "columns", "cut"
    )


def _with_columns(levels: Finding, shares: Sequence[ColumnShares]) -> Finding:
    """What is said of single columns, by their levels, by their numbers, and by each of
    them.
    """
    if not shares:
        return levels
    each = {share.column.name: marks.raw_mark(share) for share in shares}
    unsure = [name for name, mark in each.items() if mark == "unknown"]
    sure = [share for share in shares if each[share.column.name] != "unknown"]
    if not sure:
        return (
            levels
            if levels.mark == "unknown"
            else _no_better(levels, "unknown", levels.detail)
        )
    count = [each[share.column.name] for share in sure]
    close = f"Each by itself, {count.count('good')} of {len(each)} columns are close"
    furthest = max(
        sure,
        key=lambda share: (
            marks.ORDER.index(each[share.column.name]),
            _off(share).value or 0.0,
        ),
    )
    name = furthest.column.name
    detail = f"{levels.detail} {close}; furthest is “{name}”: {_furthest(furthest)}."
    if unsure:
        detail += (
            f" {capital(some(unsure))} cannot be judged: too few people have a value."
        )
    worst = _worst_of(furthest)
    if levels.mark == "unknown" and marks.together(count) == "good":
        return replace(levels, detail=detail, worst=worst)
    found = replace(_no_better(levels, marks.together(count), detail), worst=worst)
    if unsure and found.mark == "good":
        found = replace(
            found, said=f"are close to the real rows in {len(sure)} of {len(each)}"
        )
    return found


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are: "“a”, “b” and 3 more"."""
    shown = [f"“{name}”" for name in names[:MOST_NAMED]]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return listed([*shown, *more])


def _worst_of(share: ColumnShares) -> Worst:
    figure = _off(share)
    numbers = share.numbers
    if numbers is not None and numbers.median is not None:
        return Worst(f"“{share.column.name}”", *numbers.median)
    return Worst(f"“{share.column.name}”", figure.floor, figure.value)


def columns_finding(shares: Sequence[ColumnShares], subject: str) -> Finding:
    """What is said of single columns, of which no table of all has a figure."""
    known = [share.figure for share in shares if share.figure is not None]
    if not known:
        return Finding(
            "unknown", subject, "cannot be judged", "A table has no rows.", "columns"
        )
    value, floor, ceiling = (
        sum(getattr(one, end) or 0.0 for one in known) / len(known) for end in ENDS
    )
    mean = Figure(FigureKey("avd", 1), value=value, floor=floor, ceiling=ceiling)
    return _with_columns(
        judged(
            mean, subject, "equal shares of every level", "columns", near=marks.NEAR
        ),
        shares,
    )


def memory(figures: Sequence[Figure]) -> Finding:
    """What is said of columns and themselves some events later, by the numbers as they
    came.
    """
    marked = marks.worst(
        [
            marks.not_off(figure.value, marks.dependence_mark(figure))
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


def worst_part(name: str, figure: Figure) -> Worst:
    """Of a difference the two numbers that it is of, of a distance what real rows reach
    and what it is.
    """
    return Worst(name, *(figure.compared or (figure.floor, figure.value)))


def _off(share: ColumnShares) -> Figure:
    """The figure that says how far a column is off: KS of numbers, the distance of
    shares of all else.
    """
    if share.numbers is not None:
        return share.numbers.figures[0]
    return share.figure or Figure.absent(
        FigureKey(share.column.name), "no real row was looked at."
    )


def _furthest(share: ColumnShares) -> str:
    figure = _off(share)
    numbers = share.numbers
    if figure.value is None:
        return figure.reason.rstrip(".")
    ends = f"{number(figure.value)}, real rows reach {number(figure.floor)}"
    if numbers is None or numbers.median is None:
        return f"its shares are off by {ends}"
    real, made = map(numbers.format_value, numbers.median)
    return "; ".join([f"KS {ends}", f"median {made}, real {real}", *strays(share)])


def strays(share: ColumnShares) -> list[str]:
    """What lies beyond a column's ends, or spreads otherwise than the real rows do, in
    words.
    """
    spread = share.spread
    numbers = share.numbers
    if spread is None or numbers is None:
        return []
    astray = marks.astray(spread)
    shown = numbers.format_value
    low, high = map(shown, spread.ends)
    least, most = (shown(spread.quantiles[end][1]) for end in (0.0, 1.0))
    said = {
        "below": (
            f"{_share(spread.below[0])} of synthetic rows lie below the real "
            f"minimum of {low}"
        ),
        "above": (
            f"{_share(spread.above[0])} of synthetic rows lie above the real "
            f"maximum of {high}"
        ),
        "smallest": f"its smallest is {least}, real {low}",
        "largest": f"its largest is {most}, real {high}",
        "deviation": "deviation "
        + ", real ".join(
            numbers.format_distance(one) for one in reversed(spread.deviation)
        ),
        "cut": f"{_share(spread.below[1] + spread.above[1])} of real rows lie outside "
        f"of {least} to {most}, where all synthetic rows are",
    }
    return [said[what] for what in astray]


def _share(share: float) -> str:
    """A share in per cent with the digits that it needs."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _with_strengths(levels: Finding, figures: Sequence[Figure]) -> Finding:
    """What is said of correlations: the worst of their measures."""
    each = {
        figure: marks.dependence_mark(figure)
        for figure in figures
        if figure.value is not None
    }
    bad = [figure for figure, mark in each.items() if mark in ("partly", "poor")]
    if levels.mark == "unknown" or not bad:
        return levels
    lead = next((f for f in bad if each[f] == "poor"), bad[0])
    ends = f"real rows reach {number(lead.floor)}, {INDEPENDENT} {number(lead.ceiling)}"
    detail = (
        f"{levels.detail} {STRENGTHS[lead.key.measure]}: off by "
        f"{number(lead.value)}; {ends}."
    )
    found = _no_better(levels, each[lead], detail)
    return replace(found, said=_SPURIOUS) if levels.said == _NOTHING else found


def _no_better(finding: Finding, mark: Mark, detail: str) -> Finding:
    """The finding with these details, and no better a mark than this."""
    if marks.worst([finding.mark, mark]) == finding.mark:
        return replace(finding, detail=detail)
    return replace(finding, mark=mark, said=MARKED[mark], detail=detail)


def judged(
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
            "unknown", subject, "cannot be judged", capital(figure.reason), section
        )
    ends = (
        f"real rows reach {number(figure.floor)}, {naive} {number(figure.ceiling)}; "
        "smaller is better"
    )
    detail = f"Distance {number(figure.value)}; {ends}."
    marked = marks.not_off(
        figure.value - (figure.floor or 0.0), marks.mark(figure, near)
    )
    words = MARKED[marked] if marked in ("good", "partly") else _words(figure, naive)
    if naive == INDEPENDENT and marks.without_dependence(figure):
        marked = marks.beyond(figure)
        words = _NOTHING if marked == "good" else _SPURIOUS
    if marked == "unknown":
        detail += (
            " Real rows differ from each other as much: there are too few of them for "
            "so many levels."
        )
    elif marked != "good":
        detail = f"{detail} {limit}".strip()
    return Finding(marked, subject, words, detail, section)


_NOTHING = "show no dependence to speak of, as in the real rows"
_SPURIOUS = "show dependence that the real rows do not have"


def _words(figure: Figure, naive: str) -> str:
    share = marks.place(figure)
    lost = marks.mark(figure) == "poor" and (share is None or share >= 1)
    return f"are no better than {naive}" if lost else MARKED[marks.mark(figure)]


def leading(evaluation: Evaluation) -> Figure | None:
    """The downstream figure that says most: of the model that learns best from real
    rows.
    """
    for score in ("auc", "r2"):
        figures = [
            f
            for f in evaluation.figures
            if (f.key.measure, f.key.score) == ("tstr", score)
        ]
        known = [f for f in figures if f.value is not None and f.ceiling is not None]
        if known:
            return max(known, key=lambda figure: figure.ceiling or 0.0)
        if figures:
            return figures[0]
    return None


def predicted(figure: Figure | None, subject: str) -> Iterable[Finding]:
    """What a model that learned from synthetic rows says, where one was tried."""
    section = "downstream"
    if figure is None:
        return
    if figure.value is None:
        yield Finding(
            "unknown", subject, "cannot be judged", capital(figure.reason), section
        )
        return
    detail = (
        f"The model that learns most from real rows scores {number(figure.ceiling)} "
        f"with them, {number(figure.value)} with synthetic rows, "
        f"{number(figure.floor)} by a constant guess."
    )
    if marks.mark(figure) == "unknown":
        detail += (
            " Models trained on real rows hardly beat the constant guess, so there is "
            "nothing to keep."
        )
    marked = marks.not_off(
        (figure.ceiling or 0.0) - figure.value, marks.mark(figure), marks.BEHIND
    )
    words = (
        _words(figure, "a constant guess")
        if marked == marks.mark(figure)
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


def predicted_columns(predictions: Predictions) -> Iterable[Finding]:
    """What models learn of columns where nobody named one: as good as the one that is
    furthest off.
    """
    by_column: dict[str, list[Figure]] = {}
    for figure in predictions.figures:
        if figure.value is not None:
            by_column.setdefault(figure.key.column, []).append(figure)
    each = {name: marks.scores_mark(scores) for name, scores in by_column.items()}
    known = [name for name, mark in each.items() if mark != "unknown"]
    if not known:
        return
    behind = {
        name: max(marks.place(score) or 0.0 for score in by_column[name])
        for name in known
    }
    furthest = max(
        known, key=lambda name: (marks.ORDER.index(each[name]), behind[name])
    )
    score = max(
        filter(marks.teaches, by_column[furthest]),
        key=lambda one: marks.place(one) or 0.0,
    )
    title = SCORES[score.key.score][0]
    listed_names = listed([f"“{name}”" for name in known])
    looked_at = ""
    if predictions.columns_searched:
        looked_at = (
            f"A linear model looked at {predictions.columns_searched:,} columns, each "
            "predicted from all others. "
        )
    detail = (
        f"{looked_at}A model of trees predicted {listed_names}. Furthest off is "
        f"“{furthest}”: {title} {number(score.ceiling)} with real rows, "
        f"{number(score.value)} with synthetic rows, {number(score.floor)} by a "
        "constant guess."
    )
    marked = marks.worst([each[name] for name in known])
    words = MARKED[marked].replace("the real rows", "those from real rows")
    worst = Worst(f"“{furthest}”", score.ceiling, score.value)
    yield Finding(
        marked, "predictions of columns", words, detail, "downstream", worst=worst
    )


def public_findings(quality: Mapping[str, Any] | None) -> list[Finding]:
    """What everybody may know of how good it is, from a card's `quality`: noise of
    columns, pairs below it, what the fit misses. No real row is behind it, so it never
    says that a pair is close. Edges: a damaged card says nothing.
    """
    try:
        columns = {
            str(name): float(moved)
            for name, moved in (quality or {})["columns"].items()
        }
        pairs, below, missed = (
            int((quality or {})[key]) for key in ("pairs", "below_noise", "fit_misses")
        )
        said = [str(one) for one in (quality or {})["said"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []
    if not columns or not said:
        return []
    worst = max(columns, key=lambda name: columns[name])
    mark: Mark = (
        "good"
        if columns[worst] <= marks.NEAR
        else "partly"
        if columns[worst] <= marks.FAR
        else "poor"
    )
    words = f"has noise of {percent(columns[worst])} % at most in a column’s shares"
    found = [
        Finding(
            mark,
            "the release",
            words,
            said[0],
            "columns",
            worst=Worst(f"“{worst}”", None, columns[worst]),
        )
    ]
    if pairs and len(said) > 1:
        unclear = 2 * below > pairs
        off = missed > 0
        of_pairs: Mark = (
            "poor" if below == pairs else "partly" if unclear or off else "unknown"
        )
        stand = f"stand out of the noise in {pairs - below:,} of {pairs:,}"
        found.append(
            Finding(of_pairs, "released pairs", stand, said[1], "columns", "by noise")
        )
    return found


def attack_finding(attacks: Sequence[Attack]) -> Finding:
    ran = [attack for attack in attacks if attack.measures]
    if not ran:
        why = attacks[0].reason if attacks else "none was given."
        return Finding("unknown", "attacks", "were not run", capital(why), "attacks")
    tried = f"{len(ran)} attacks were tried" if len(ran) > 1 else "1 attack was tried"
    together = f"at {100 * LEVEL:g} % for all together"
    leaks = [attack.name for attack in ran if attack.leaks]
    if leaks:
        detail = (
            f"{tried}; {listed(leaks)} did better than the control by more than "
            f"chance, {together}."
        )
        said = "beat their control" if len(leaks) > 1 else "beats its control"
        return Finding(
            "poor", f"{len(leaks)} of {len(ran)} attacks", said, detail, "attacks"
        )
    risks = [
        m.risk.high for attack in ran for m in attack.measures if m.risk is not None
    ]
    room = (
        f" Their intervals leave room for a risk of up to {number(max(risks), 2)}."
        if risks
        else ""
    )
    detail = (
        f"{tried}; none did better than its control by more than chance, "
        f"{together}.{room} That is no proof; ε is."
    )
    return Finding(
        "good", "attacks", "found nothing beyond their controls", detail, "attacks"
    )


def _price(privacy: Mapping[str, Any]) -> Finding:
    person = privacy["person"]
    parties = privacy["parties"]
    unit = unit_of(privacy["adjacency"])
    most_spent = max(
        (math.inf if e is None else e for e in person["epsilon"].values()),
        default=math.inf,
    )
    most = len(parties) if person["same_people"] else int(person.get("most_holders", 1))
    over = f" over {most} parties" if most > 1 else ""
    if math.isinf(most_spent):
        return Finding(
            "poor",
            "the run",
            "has no formal guarantee",
            "Its ε is infinite: do not publish.",
            "privacy",
        )
    mark: Mark = (
        "good"
        if most_spent <= marks.STRONG
        else "partly"
        if most_spent <= marks.REASONABLE
        else "poor"
    )
    tier = {"good": "strong", "partly": "reasonable", "poor": "weak"}[mark]
    said = f"costs each {unit} at most {at_price(most_spent, person['delta'])}{over}"
    detail = (
        f"By convention a {tier} guarantee. The price is paid: publishing the results "
        "of the run, or drawing more rows from it, costs nothing more."
    )
    detail += "".join(f" This assumes {text}." for text in privacy.get("assumed", ()))
    if unit != "person":
        mark = marks.worst([mark, "partly"])
        tier = f"{tier} for one {unit}"
        detail += (
            f" It protects each {unit} and not each person: who has several "
            f"{PLURALS[unit]} is protected less."
        )
    unguarded = privacy["unguarded"]
    if unguarded and all(" against " in text for text in unguarded):
        mark = marks.worst([mark, "partly"])
        tier = f"{tier}, if they do not collude"
        detail += (
            " It holds as long as those who are listed below do not pool what they "
            "know."
        )
    elif unguarded:
        mark = "poor"
        tier = "in part"
        detail += (
            " Parts of the release have no formal guarantee; they are listed below."
        )
    return Finding(mark, "the run", said, detail, "privacy", tier)

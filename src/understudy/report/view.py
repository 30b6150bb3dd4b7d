"""Rows for the page's tables: figures as text, pictures beside them. No judgement
here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup

from understudy.evaluate.attacks.attack import Attack
from understudy.evaluate.comparison import ColumnShares
from understudy.evaluate.figure import Figure
from understudy.evaluate.utility.association import Matrix, Pair
from understudy.evaluate.utility.values import SUMMARY_QUANTILES, NumberSummary
from understudy.privacy.accounts.budget import (
    Guess,
    best_guess,
    counted_in,
    shown,
    shown_bound,
    stated_guess,
    unit_of,
)
from understudy.privacy.accounts.statement import AGAINST
from understudy.report import plots, words
from understudy.report.words import number

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError)


@dataclass(frozen=True)
class FigureRow:
    label: str
    figure: Figure
    picture: Markup
    value: str
    real: str
    naive: str


def lines(figures: Sequence[Figure]) -> list[FigureRow]:
    (low, high), name = plots.span(figures), words.figure_name
    return [
        FigureRow(
            name(f.key),
            f,
            plots.strip(f, low, high),
            number(f.value),
            number(f.best),
            number(plots.worst(f)),
        )
        for f in figures
    ]


def predictions(figures: Sequence[Figure]) -> list[tuple[str, list[FigureRow]]]:
    """For each score a line for each column that a model predicted, by the column's
    name.
    """
    found = []
    for score, (name, _) in words.SCORES.items():
        known = [figure for figure in figures if figure.key.score == score]
        labelled = [
            replace(line, label=f"“{line.figure.key.column}”") for line in lines(known)
        ]
        found += [(name, labelled)] if known else []
    return found


def downstream(
    figures: Sequence[Figure],
) -> Iterator[tuple[str, str, bool, list[FigureRow]]]:
    """For each score its name, what it means, whether less is better, and a line per
    model.
    """
    for score, (name, meaning) in words.SCORES.items():
        known = [f for f in figures if (f.key.measure, f.key.score) == ("tstr", score)]
        if known:
            yield name, meaning, known[0].better == "lower", lines(known)


def attacks(results: Sequence[Attack]) -> Iterator[dict[str, Any]]:
    """Each attack with its meaning and measures; leading are the first one, copies, and
    what succeeds.
    """
    for attack in results:
        name, asks = words.attack_name(attack.key)
        rows = [
            (words.MEASURES.get(m.name, m.name), plots.rates(m), m)
            for m in attack.measures
        ]
        leading = [
            row
            for i, row in enumerate(rows)
            if i == 0 or row[2].name == "copies" or row[2].leaks
        ]
        kind = words.ATTACKS.get(attack.key.measure, [attack.name])[0]
        told = {
            "name": name,
            "kind": kind,
            "asks": asks,
            "reason": attack.reason,
            "note": attack.note,
        }
        yield told | {"measures": rows, "leading": leading}


def closeness(
    groups: Mapping[str, Sequence[Figure]],
) -> list[tuple[str, str, str, str, bool]]:
    """How near synthetic rows come to training rows: name, group, value, unseen
    people's, whether less is better.
    """
    return [
        (
            words.CLOSENESS.get(f.key.measure, f.name),
            group,
            number(f.value),
            number(f.best),
            f.better == "lower",
        )
        for group, figures in groups.items()
        for f in figures
        if f.value is not None
    ]


def heat_maps(
    synthetic: Matrix,
    real: Matrix | None,
    names: Sequence[str],
    owners: Mapping[str, str] | None,
) -> list[tuple[str, str, Markup]]:
    """Title, meaning and picture of each map; the synthetic one alone where no real row
    was looked at.
    """
    difference = synthetic if real is None else synthetic - real
    chosen = plots.chosen_columns(difference - np.diag(np.diag(difference)))
    kept = [names[i] for i in chosen]
    maps = {"Synthetic": (synthetic, "in the synthetic rows")}
    if real is not None:
        maps = {"Real": (real, "in the real rows")} | maps
        maps["Difference"] = (difference, "synthetic minus real: a blank map is best")
    whose = [(owners or {}).get(name) for name in kept]
    drawn = []
    for title, (matrix, meaning) in maps.items():
        label = f"{title}: correlation of each pair of columns {meaning}"
        drawn.append(
            (
                title,
                meaning,
                plots.heat(matrix[np.ix_(chosen, chosen)], kept, whose, label),
            )
        )
    return drawn


def furthest_pairs(
    pairs: Sequence[Pair], owners: Mapping[str, str] | None
) -> list[tuple[str, str, str, str, str, str]]:
    """The eight pairs of columns whose dependence differs most: both names, whose,
    measure, real, synthetic.
    """
    whose = owners or {}
    seen = dict[tuple[str, str], Pair]()
    for pair in sorted(pairs, key=lambda pair: -abs(pair.synthetic - pair.real)):
        seen.setdefault((pair.first, pair.second), pair)
    found = []
    for pair in [*seen.values()][:8]:
        parties = " × ".join(
            dict.fromkeys(filter(None, (whose.get(pair.first), whose.get(pair.second))))
        )
        figures = (
            words.STRENGTHS[pair.measure],
            words.signed(pair.real),
            words.signed(pair.synthetic),
        )
        found.append((pair.first, pair.second, parties, *figures))
    return found


def number_rows(columns: Sequence[ColumnShares]) -> list[dict[str, Any]]:
    """Each column of numbers as a row: its mark is for the page to draw."""
    rows = []
    for share in columns:
        found = share.numbers
        spread = share.spread
        if found is None or found.median is None or spread is None:
            continue
        figures = {figure.key.measure: figure for figure in found.figures}
        kinds = {"zero_share": "zeros", "negative_share": "negative"}
        spike = f"exactly {found.format_value(found.spike or 0.0)}"
        told = [
            (
                kinds.get(name, spike),
                f"{words.percent(real)} %",
                f"{words.percent(made)} %",
            )
            for name, (real, made) in found.shares.items()
            if max(real, made) >= 0.005
        ]
        told += [
            (words_for, _named(share_of), "")
            for words_for, share_of in _beyond(spread)
            if share_of
        ]
        rows.append(
            {
                "share": share,
                "name": share.column.name,
                "ks": number(figures["ks"].value),
                "shares": told,
                "best": number(figures["ks"].floor),
                "moved": number(figures["wasserstein"].value),
                "quantiles": [
                    tuple(map(found.format_value, both))
                    for both in spread.quantiles.values()
                ],
                "deviation": tuple(map(found.format_distance, spread.deviation)),
            }
        )
    return rows


def _beyond(spread: NumberSummary) -> list[tuple[str, float]]:
    """Shares of rows beyond the other table's ends, in both directions."""
    return [
        ("synthetic below the real minimum", spread.below[0]),
        ("synthetic above the real maximum", spread.above[0]),
        ("real below the synthetic minimum", spread.below[1]),
        ("real above the synthetic maximum", spread.above[1]),
    ]


def _named(share: float) -> str:
    """A share in per cent, two digits of it, and "<0.01 %" of what is less."""
    return f"{100 * share:.2g} %" if share >= 0.0001 else "<0.01 %"


_ENDS = {0.0: "min", 0.5: "median", 1.0: "max"}
QUANTILES = tuple(_ENDS.get(share, f"{100 * share:g} %") for share in SUMMARY_QUANTILES)


def privacy(statement: Mapping[str, Any]) -> dict[str, Any] | None:
    """The privacy statement in cells, or None where it is damaged."""
    try:
        several = len(statement["parties"]) > 1
        whom = {
            who: said
            for who, said in AGAINST.items()
            if several or who != "another_party"
        }
        person = statement["person"]
        parties = statement["parties"]
        adjacency = str(statement["adjacency"])
        prices = person["epsilon"]

        def bounded(price: float | None) -> Guess:
            return best_guess(price, person["delta"])

        guesses = {who: bounded(prices[who]) for who in whom}
        if "right_guesses" in person:
            guesses = {who: stated_guess(statement, who) for who in whom}
        known = [(said, shown(prices[who]), guesses[who]) for who, said in whom.items()]
        together = [
            (str(said), shown(price), bounded(price))
            for said, price in person.get("together", ())
        ]
        tiles = [
            (who, price, guess.share, guess.in_words(adjacency))
            for who, price, guess in known + together
        ]
        told = {
            key: [str(text) for text in statement[key]]
            for key in ("outside", "unguarded")
        }
        return told | {
            "adjacency": adjacency,
            "unit": unit_of(adjacency),
            "counted": counted_in(adjacency),
            "accountant": statement["accountant"],
            "same_people": bool(person["same_people"]) and several,
            "one_release": bool(person.get("one_release")),
            "most_holders": int(person.get("most_holders", 1)),
            "delta": words.chance(person["delta"]),
            "person": tiles,
            "parties": [_party(party, whom) for party in parties],
            "pure": any(
                p.get("epsilon_sum", {}).get("server") is not None for p in parties
            ),
            "assumed": [str(text) for text in statement.get("assumed", ())],
        }
    except DAMAGED:
        return None


def _party(party: Mapping[str, Any], whom: Mapping[str, str]) -> dict[str, Any]:
    sides = {"": party["uses"]["outsider"]}
    if party["uses"]["outsider"] != party["uses"]["insider"]:
        sides = {
            "to an outsider: ": party["uses"]["outsider"],
            "to insiders: ": party["uses"]["insider"],
        }
    budget = party["budget"]
    sums = party.get("epsilon_sum", {})
    prices = [
        (party["epsilon"][who], party["epsilon_round"][who], sums.get(who))
        for who in whom
    ]
    return {
        "name": party["name"],
        "people": "not disclosed"
        if party["people"] is None
        else f"{party['people']:,}",
        "delta": words.chance(party["delta"]),
        "rounds": f"{party['rounds']:,}",
        "noise": party["noise"],
        "allowed": (
            f"{words.at_price(budget['epsilon'], budget['delta'])} against "
            f"{budget['against']}"
        ),
        "rows": [
            (said, *map(shown, three))
            for said, three in zip(whom.values(), prices, strict=True)
        ],
        "uses": [
            f"{side}{use['count']:,} × {use['words']}"
            for side, uses in sides.items()
            for use in uses
        ],
    }


def transcript(
    rows: Sequence[Mapping[str, Any]], *, sizes: bool
) -> dict[str, list[dict[str, str]]] | None:
    """Messages exchanged, in cells, by kind of message; None where the transcript is
    damaged.
    """
    kinds: dict[str, list[dict[str, str]]] = {}
    try:
        for row in rows:
            cells = {
                "party": str(row["party"]),
                "meaning": re.sub("`([^`]*)`", r"“\1”", str(row.get("meaning", ""))),
                "count": f"{row['count']:,}",
                "down": words.size(row["down_bytes"]) if sizes else "",
                "up": words.size(row["up_bytes"]) if sizes else "",
                "paid": f"{row['paid']:,}" if row["paid"] else "–",
                "price": words.at_price(row["epsilon"]) if row["paid"] else "–",
            }
            kinds.setdefault(str(row["ask"]), []).append(cells)
    except DAMAGED:
        return None
    return kinds


def learning(card: Mapping[str, Any] | None) -> list[tuple[int, float]]:
    """Accuracy on public held-out rows after each round that was tested, from a
    classifier's card.
    """
    try:
        return [
            (int(test["round"]), float(test["accuracy"]))
            for test in (card or {}).get("history", [])
        ]
    except DAMAGED:
        return []


def audit(body: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What an audit claimed and observed, in cells; None where there was none."""
    if body is None:
        return None
    try:
        views = [
            (
                str(one["adversary"]),
                shown_bound(one["observed"]),
                shown_bound(one["any_noise"]),
            )
            for one in body["views"]
        ]
        return {
            "passed": bool(body["passed"]),
            "claimed": words.at_price(body["claimed"], body["delta"]),
            "views": views,
            "confidence": f"{100 * body['confidence']:g} %",
            "trials": f"{body['trials']:,}",
            "notes": [str(note) for note in body["notes"]],
        }
    except DAMAGED:
        return None

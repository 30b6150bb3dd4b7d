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


def figure_rows(figures: Sequence[Figure]) -> list[FigureRow]:
    (low, high), name = plots.common_scale(figures), words.figure_name
    return [
        FigureRow(
            name(f.key),
            f,
            plots.figure_strip(f, low, high),
            number(f.value),
            number(f.best),
            number(plots.naive_end(f)),
        )
        for f in figures
    ]


def prediction_rows(figures: Sequence[Figure]) -> list[tuple[str, list[FigureRow]]]:
    """For each score a line for each column that a model predicted, by the column's
    name.
    """
    rows_by_score = []
    for score, (name, _) in words.SCORES.items():
        figures_of_score = [figure for figure in figures if figure.key.score == score]
        labelled = [
            replace(line, label=f"“{line.figure.key.column}”")
            for line in figure_rows(figures_of_score)
        ]
        rows_by_score += [(name, labelled)] if figures_of_score else []
    return rows_by_score


def downstream_rows(
    figures: Sequence[Figure],
) -> Iterator[tuple[str, str, bool, list[FigureRow]]]:
    """For each score its name, what it means, whether less is better, and a line per
    model.
    """
    for score, (name, meaning) in words.SCORES.items():
        figures_of_score = [
            f for f in figures if (f.key.measure, f.key.score) == ("tstr", score)
        ]
        if figures_of_score:
            yield (
                name,
                meaning,
                figures_of_score[0].better == "lower",
                figure_rows(figures_of_score),
            )


def attack_rows(results: Sequence[Attack]) -> Iterator[dict[str, Any]]:
    """Each attack with its meaning and measures; leading are the first one, copies, and
    what succeeds.
    """
    for attack in results:
        name, asks = words.attack_name(attack.key)
        rows = [
            (words.MEASURES.get(m.name, m.name), plots.rate_intervals(m), m)
            for m in attack.measures
        ]
        leading = [
            row
            for i, row in enumerate(rows)
            if i == 0 or row[2].name == "copies" or row[2].leaks
        ]
        kind = words.ATTACKS.get(attack.key.measure, [attack.name])[0]
        cells = {
            "name": name,
            "kind": kind,
            "asks": asks,
            "reason": attack.reason,
            "note": attack.note,
        }
        yield cells | {"measures": rows, "leading": leading}


def closeness_rows(
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
    shown = [names[i] for i in chosen]
    maps = {"Synthetic": (synthetic, "in the synthetic rows")}
    if real is not None:
        maps = {"Real": (real, "in the real rows")} | maps
        maps["Difference"] = (difference, "synthetic minus real: a blank map is best")
    party_of = [(owners or {}).get(name) for name in shown]
    pictures = []
    for title, (matrix, meaning) in maps.items():
        label = f"{title}: correlation of each pair of columns {meaning}"
        pictures.append(
            (
                title,
                meaning,
                plots.heat_map(matrix[np.ix_(chosen, chosen)], shown, party_of, label),
            )
        )
    return pictures


def furthest_pairs(
    pairs: Sequence[Pair], owners: Mapping[str, str] | None
) -> list[tuple[str, str, str, str, str, str]]:
    """The eight pairs of columns whose dependence differs most: both names, whose,
    measure, real, synthetic.
    """
    party_of = owners or {}
    strongest = dict[tuple[str, str], Pair]()
    for pair in sorted(pairs, key=lambda pair: -abs(pair.synthetic - pair.real)):
        strongest.setdefault((pair.first, pair.second), pair)
    rows = []
    for pair in [*strongest.values()][:8]:
        parties = " × ".join(
            dict.fromkeys(
                filter(None, (party_of.get(pair.first), party_of.get(pair.second)))
            )
        )
        figures = (
            words.STRENGTHS[pair.measure],
            words.signed(pair.real),
            words.signed(pair.synthetic),
        )
        rows.append((pair.first, pair.second, parties, *figures))
    return rows


def number_rows(columns: Sequence[ColumnShares]) -> list[dict[str, Any]]:
    """Each column of numbers as a row: its mark is for the page to draw."""
    rows = []
    for share in columns:
        numbers = share.numbers
        spread = share.spread
        if numbers is None or numbers.median is None or spread is None:
            continue
        figures = {figure.key.measure: figure for figure in numbers.figures}
        kinds = {"zero_share": "zeros", "negative_share": "negative"}
        spike = f"exactly {numbers.format_value(numbers.spike or 0.0)}"
        shares = [
            (
                kinds.get(name, spike),
                f"{words.percent(real)} %",
                f"{words.percent(synthetic)} %",
            )
            for name, (real, synthetic) in numbers.shares.items()
            if max(real, synthetic) >= 0.005
        ]
        shares += [
            (words_for, _format_small_share(share_of), "")
            for words_for, share_of in _shares_beyond(spread)
            if share_of
        ]
        rows.append(
            {
                "share": share,
                "name": share.column.name,
                "ks": number(figures["ks"].value),
                "shares": shares,
                "best": number(figures["ks"].floor),
                "moved": number(figures["wasserstein"].value),
                "quantiles": [
                    tuple(map(numbers.format_value, pair))
                    for pair in spread.quantiles.values()
                ],
                "deviation": tuple(map(numbers.format_distance, spread.deviation)),
            }
        )
    return rows


def _shares_beyond(spread: NumberSummary) -> list[tuple[str, float]]:
    """Shares of rows beyond the other table's ends, in both directions."""
    return [
        ("synthetic below the real minimum", spread.below[0]),
        ("synthetic above the real maximum", spread.above[0]),
        ("real below the synthetic minimum", spread.below[1]),
        ("real above the synthetic maximum", spread.above[1]),
    ]


def _format_small_share(share: float) -> str:
    """A share in per cent, two digits of it, and "<0.01 %" of what is less."""
    return f"{100 * share:.2g} %" if share >= 0.0001 else "<0.01 %"


_ENDS = {0.0: "min", 0.5: "median", 1.0: "max"}
QUANTILES = tuple(_ENDS.get(share, f"{100 * share:g} %") for share in SUMMARY_QUANTILES)


def privacy_cells(statement: Mapping[str, Any]) -> dict[str, Any] | None:
    """The privacy statement in cells, or None where it is damaged."""
    try:
        several = len(statement["parties"]) > 1
        views = {
            view: view_words
            for view, view_words in AGAINST.items()
            if several or view != "another_party"
        }
        person = statement["person"]
        parties = statement["parties"]
        adjacency = str(statement["adjacency"])
        prices = person["epsilon"]

        def bounded(price: float | None) -> Guess:
            return best_guess(price, person["delta"])

        guesses = {view: bounded(prices[view]) for view in views}
        if "right_guesses" in person:
            guesses = {view: stated_guess(statement, view) for view in views}
        prices_by_view = [
            (view_words, shown(prices[view]), guesses[view])
            for view, view_words in views.items()
        ]
        pooled = [
            (str(view_words), shown(price), bounded(price))
            for view_words, price in person.get("together", ())
        ]
        tiles = [
            (view, price, guess.share, guess.in_words(adjacency))
            for view, price, guess in prices_by_view + pooled
        ]
        cells = {
            key: [str(text) for text in statement[key]]
            for key in ("outside", "unguarded")
        }
        return cells | {
            "adjacency": adjacency,
            "unit": unit_of(adjacency),
            "counted": counted_in(adjacency),
            "accountant": statement["accountant"],
            "same_people": bool(person["same_people"]) and several,
            "one_release": bool(person.get("one_release")),
            "max_holders_per_person": int(person.get("max_holders_per_person", 1)),
            "delta": words.power_of_ten(person["delta"]),
            "person": tiles,
            "parties": [_party_cells(party, views) for party in parties],
            "pure": any(
                p.get("epsilon_sum", {}).get("server") is not None for p in parties
            ),
            "assumed": [str(text) for text in statement.get("assumed", ())],
        }
    except DAMAGED:
        return None


def _party_cells(party: Mapping[str, Any], views: Mapping[str, str]) -> dict[str, Any]:
    sides = {"": party["uses"]["outsider"]}
    if party["uses"]["outsider"] != party["uses"]["insider"]:
        sides = {
            "to an outsider: ": party["uses"]["outsider"],
            "to insiders: ": party["uses"]["insider"],
        }
    budget = party["budget"]
    sums = party.get("epsilon_sum", {})
    prices = [
        (party["epsilon"][view], party["epsilon_round"][view], sums.get(view))
        for view in views
    ]
    return {
        "name": party["name"],
        "people": "not disclosed"
        if party["people"] is None
        else f"{party['people']:,}",
        "delta": words.power_of_ten(party["delta"]),
        "rounds": f"{party['rounds']:,}",
        "noise": party["noise"],
        "allowed": (
            f"{words.at_price(budget['epsilon'], budget['delta'])} against "
            f"{budget['against']}"
        ),
        "rows": [
            (view_words, *map(shown, view_prices))
            for view_words, view_prices in zip(views.values(), prices, strict=True)
        ],
        "uses": [
            f"{side}{use['count']:,} × {use['words']}"
            for side, uses in sides.items()
            for use in uses
        ],
    }


def transcript_cells(
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
                "down": words.format_bytes(row["down_bytes"]) if sizes else "",
                "up": words.format_bytes(row["up_bytes"]) if sizes else "",
                "paid": f"{row['paid']:,}" if row["paid"] else "–",
                "price": words.at_price(row["epsilon"]) if row["paid"] else "–",
            }
            kinds.setdefault(str(row["ask"]), []).append(cells)
    except DAMAGED:
        return None
    return kinds


def accuracy_history(card: Mapping[str, Any] | None) -> list[tuple[int, float]]:
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


def audit_cells(body: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What an audit claimed and observed, in cells; None where there was none."""
    if body is None:
        return None
    try:
        views = [
            (
                str(view["adversary"]),
                shown_bound(view["observed"]),
                shown_bound(view["any_noise"]),
            )
            for view in body["views"]
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

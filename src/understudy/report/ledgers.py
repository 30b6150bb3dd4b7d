"""A holder's ledger for the page: ε over its entries, the last of them in words, and whether it records the stated ε.

Guarantee: reads a ledger and writes nothing. A ledger tells of the holder's other runs too, so it is shown to the
holder alone. Edges: a ledger that is missing, locked or damaged → the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.ground.errors import UnderstudyError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import shown
from understudy.privacy.accounts.entries import Entry
from understudy.privacy.accounts.ledger import Ledger
from understudy.report.words import at_price

POINTS = 16  # entries whose ε is drawn: each takes the accountant a tenth of a second
LINES = 12


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One ledger: ε after some of its entries, the limit then, the last entries as cells, and two remarks."""

    holder: str
    points: tuple[tuple[int, float], ...]
    limit: float
    entries: int
    when: str
    lines: tuple[tuple[str, ...], ...]
    earlier: int
    summary: str
    check: str
    agrees: bool


def timeline(path: str | Path, run: str, party: Mapping[str, Any] | None, *, lines: int = LINES) -> Timeline | str:
    """The ledger at `path`, held against what the run's privacy statement says of its `party`; or the reason."""
    if not Path(path).exists():
        return f"there is no ledger at {path}."
    try:
        with Ledger(path) as ledger:
            entries, merged = ledger.entries(), ledger.entries(merged=True)
            budget, spent = ledger.budget, ledger.spent(against=ledger.budget.against)
            charged = epsilon(ledger.spend(run=run), budget.delta if party is None else party["delta"])
            check, agrees = _check(charged, party if run else None)
            drawn = np.unique(np.linspace(0, len(entries) - 1, POINTS).round().astype(int))
            first, last = entries[0].when[:10], entries[-1].when[:10]
            return Timeline(
                holder=ledger.holder,
                points=tuple((entries[i].number, entries[i].total) for i in drawn),
                limit=budget.epsilon,
                entries=len(entries),
                when=f"on {first}" if first == last else f"from {first} to {last}",
                lines=tuple(map(_cells, merged[-lines:])),
                earlier=max(0, len(merged) - lines),
                summary=f"{ledger.holder} allows {at_price(budget.epsilon, budget.delta)} against {budget.against}; "
                f"{at_price(spent)} is spent.",
                check=check,
                agrees=agrees,
            )
    except UnderstudyError as error:
        return str(error)


def _cells(entry: Entry) -> tuple[str, ...]:
    paid = (f"{entry.count:,}", shown(entry.price)) if entry.count else ("", "")
    return (entry.when[:16].replace("T", " "), entry.run, entry.what, *paid, shown(entry.total))


def _check(charged: float, party: Mapping[str, Any] | None) -> tuple[str, bool]:
    """Whether the ledger records what is stated: it may hold more (a run that was resumed), never less."""
    if party is None:
        return ("It cannot be compared with a statement: the run's name or its privacy statement is missing.", True)
    stated = party["epsilon"]["server"]
    if stated is None:
        return "The statement gives no guarantee for this party.", True
    if charged < stated * (1 - 1e-6):
        return (
            f"The ledger records {at_price(charged)} for this run and the statement says {shown(stated)}: "
            "the ledger records less than stated. Find out why before you publish.",
            False,
        )
    if charged > stated * (1 + 1e-6):
        return (
            f"The ledger records {at_price(charged)} for this run, more than the stated {shown(stated)}: "
            "rounds that were started again are charged again. The ledger is right.",
            True,
        )
    return f"The ledger and the statement agree on this run: {at_price(charged)}.", True

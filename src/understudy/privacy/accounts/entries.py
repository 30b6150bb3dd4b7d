"""The lines of a ledger as a holder reads them: when, what, which run, the price, and the sum so far."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import Spend, describe
from understudy.privacy.accounts.figures import shown
from understudy.privacy.accounts.ledger_store import Priced, seen

VIEWS = ("outsider", "insider")


def views(against: str) -> tuple[str, ...]:
    """In whose eyes a price counts: a limit against anyone binds both."""
    return VIEWS if against == "anyone" else ("outsider",)


@dataclass(frozen=True)
class Entry:
    """One entry, or several of one price that followed each other. ε is computed when asked for.

    `people` is how many were charged, None for everyone. `cost` and `after` are, in the eyes of an outsider
    and of an insider, what this entry added and what the person with the highest spend had spent after it (an upper
    bound where people took part in different things). A budget that was set is an entry without cost.
    """

    number: int
    when: str
    run: str
    what: str
    people: int | None
    charges: int
    cost: Mapping[str, Spend]
    after: Mapping[str, Spend]
    budget: Budget

    @property
    def event(self) -> str:
        """What was done, in words."""
        return "; ".join(describe(event) for event in self.cost["outsider"])

    @property
    def count(self) -> int:
        """How many uses."""
        return sum(self.cost["outsider"].values())

    @property
    def price(self) -> float:
        """ε of this entry alone, at the budget's δ and against whom it binds."""
        return self._epsilon(self.cost)

    @property
    def total(self) -> float:
        """ε of everything up to and with this entry, for the person with the highest spend."""
        return self._epsilon(self.after)

    def _epsilon(self, spends: Mapping[str, Spend]) -> float:
        return max(epsilon(spends[view], self.budget.delta) for view in views(self.budget.against))

    def cells(self) -> tuple[str, ...]:
        """When, run, what, uses, people, ε alone, ε in all: for a table."""
        who = "everyone" if self.people is None else f"{self.people:,}"
        if not self.count:
            return (self.when, self.run, self.what, "", "", "", shown(self.total))
        return (
            self.when,
            self.run,
            self.what,
            f"{self.count:,}",
            who,
            shown(self.price),
            shown(self.total),
        )


def read_entries(rows: Iterable[tuple[Any, ...]], priced: list[Priced]) -> Iterator[Entry]:
    """Entries from a store's rows, in order."""
    totals: dict[int, int] = {}
    alike = all(row.view == "both" for row in priced)
    budget: Budget  # the first entry of every ledger sets one
    for (number, when, run, what, people), lines in groupby(rows, key=lambda row: row[:5]):
        counts: dict[int, int] = {}
        for *_, event, count, total, limit, delta, against in lines:
            if limit is not None:
                budget = Budget(limit, delta, against)
            if event is not None:
                counts[event], totals[event] = count, total
        cost, after = (
            dict.fromkeys(VIEWS, seen(uses, priced, VIEWS[0]))
            if alike
            else {view: seen(uses, priced, view) for view in VIEWS}
            for uses in (counts, totals)
        )
        yield Entry(number, when, run, what, people, 1, cost, after, budget)


def merge(entries: Iterable[Entry]) -> list[Entry]:
    """Join a run's successive charges for the same events; costs add up where everyone was charged."""
    merged: list[Entry] = []
    for entry in entries:
        last = merged[-1] if merged else entry
        if not merged or not entry.count or _kind(last) != _kind(entry):
            merged.append(entry)
            continue
        cost = {v: Counter(last.cost[v]) + Counter(entry.cost[v]) for v in VIEWS}
        if entry.people is not None:
            cost = {v: Counter(last.cost[v]) | Counter(entry.cost[v]) for v in VIEWS}
        merged[-1] = replace(
            last,
            what=last.what if last.what == entry.what else f"{last.what.split(' … ')[0]} … {entry.what}",
            people=None if last.people is None or entry.people is None else last.people + entry.people,
            charges=last.charges + entry.charges,
            cost=cost,
            after=entry.after,
        )
    return merged


def _kind(entry: Entry) -> tuple[Any, ...]:
    return entry.run, entry.people is None, entry.budget, *(frozenset(entry.cost[view]) for view in VIEWS)

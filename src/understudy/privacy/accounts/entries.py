"""The lines of a ledger: as a charge writes them, as a person has spent by them, and as
a holder reads them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import DpEvent, epsilon, flatten
from understudy.privacy.accounts.budget import Budget, shown
from understudy.privacy.accounts.events import Spend, describe
from understudy.privacy.accounts.ledger_store import Priced, spend_seen

VIEWS = ("outsider", "insider")


def views(against: str) -> tuple[str, ...]:
    """In whose eyes a price counts: a limit against anyone binds both."""
    return VIEWS if against == "anyone" else ("outsider",)


@dataclass(frozen=True)
class Entry:
    """One entry, or several of one price that followed each other. ε is computed when
    asked for.

    `people` is how many were charged, None for everyone. `cost` and `after` are, in the
    eyes of an outsider and of an insider, what this entry added and what the person
    with the highest spend had spent after it (an upper bound where people took part in
    different things). A budget that was set is an entry without cost.
    """

    number: int
    when: str
    run: str
    description: str
    people: int | None
    charges: int
    cost: Mapping[str, Spend]
    after: Mapping[str, Spend]
    budget: Budget

    @property
    def event(self) -> str:
        return "; ".join(describe(event) for event in self.cost["outsider"])

    @property
    def count(self) -> int:
        return sum(self.cost["outsider"].values())

    @property
    def price(self) -> float:
        """ε of this entry alone, at the budget's δ and against whom it binds."""
        return self._epsilon(self.cost)

    @property
    def total(self) -> float:
        """ε of everything up to and with this entry, for the person with the highest
        spend.
        """
        return self._epsilon(self.after)

    def _epsilon(self, spends: Mapping[str, Spend]) -> float:
        return max(
            epsilon(spends[view], self.budget.delta)
            for view in views(self.budget.against)
        )

    def cells(self) -> tuple[str, ...]:
        """When, run, description, uses, people, ε alone, ε in all: for a table."""
        people = "everyone" if self.people is None else f"{self.people:,}"
        cost = (
            (f"{self.count:,}", people, shown(self.price))
            if self.count
            else ("", "", "")
        )
        return (self.when, self.run, self.description, *cost, shown(self.total))


def read_entries(
    rows: Iterable[tuple[Any, ...]],
    priced: list[Priced],
) -> Iterator[Entry]:
    totals: dict[int, int] = {}
    alike = all(row.view == "both" for row in priced)
    budget: Budget  # the first entry of every ledger sets one
    for (number, when, run, description, people), lines in groupby(
        rows,
        key=lambda row: row[:5],
    ):
        counts: dict[int, int] = {}
        for *_, event, count, total, limit, delta, against in lines:
            if limit is not None:
                budget = Budget(limit, delta, against)
            if event is not None:
                counts[event], totals[event] = count, total
        cost = _by_view(counts, priced, alike=alike)
        after = _by_view(totals, priced, alike=alike)
        yield Entry(number, when, run, description, people, 1, cost, after, budget)


def _by_view(
    uses: Mapping[int, int],
    priced: list[Priced],
    *,
    alike: bool,
) -> dict[str, Spend]:
    """What these uses cost in each view; `alike`: whether all views are one."""
    if alike:
        return dict.fromkeys(VIEWS, spend_seen(uses, priced, VIEWS[0]))
    return {view: spend_seen(uses, priced, view) for view in VIEWS}


def merge(entries: Iterable[Entry]) -> list[Entry]:
    """Join a run's successive charges for the same events; costs add up where everyone
    was charged.
    """
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
            description=_joined(last.description, entry.description),
            people=_total(last.people, entry.people),
            charges=last.charges + entry.charges,
            cost=cost,
            after=entry.after,
        )
    return merged


def _joined(first: str, last: str) -> str:
    """What several charges were for, in one phrase."""
    return first if first == last else f"{first.split(' … ')[0]} … {last}"


def _total(people: int | None, more: int | None) -> int | None:
    """How many people in all; None: everyone."""
    return None if people is None or more is None else people + more


def _kind(entry: Entry) -> tuple[Any, ...]:
    return (
        entry.run,
        entry.people is None,
        entry.budget,
        *(frozenset(entry.cost[view]) for view in VIEWS),
    )


def lines_of(
    event: DpEvent,
    count: int,
    insider: DpEvent | None,
    insider_count: int | None,
) -> dict[tuple[DpEvent, str], int]:
    """What is charged, by event and by whose eyes it counts in."""
    outside = flatten(event, count)
    uses = count if insider_count is None else insider_count
    inside = flatten(event if insider is None else insider, uses) if uses else Counter()
    if inside == outside:
        return {(event, "both"): count for event, count in outside.items()}
    sides = {"outsider": outside, "insider": inside}
    return {
        (event, view): count
        for view, side in sides.items()
        for event, count in side.items()
    }


def views_apart(against: str, eyes: set[str]) -> tuple[str, ...]:
    """In whose eyes a price counts, where all that is charged counts in these: once,
    where it counts in both alike.
    """
    return views(against) if eyes - {"both"} else views(against)[:1]


def cost_seen(lines: Mapping[tuple[DpEvent, str], int], view: str) -> Counter[DpEvent]:
    return Counter(
        {
            event: count
            for (event, eyes), count in lines.items()
            if eyes in (view, "both")
        }
    )


def person_spend(
    priced: list[Priced],
    uses: Mapping[int, int],
    view: str,
) -> Counter[DpEvent]:
    """A person's spend: what everyone was charged, and their own uses by event id."""
    return spend_seen(
        {row.id: row.everyone + uses.get(row.id, 0) for row in priced},
        priced,
        view,
    )


def highest_spends(spends: Iterable[Counter[DpEvent]]) -> list[Counter[DpEvent]]:
    """Those that no other exceeds in every count: the person with the highest spend is
    among them.
    """
    undominated: list[Counter[DpEvent]] = []
    for spend in sorted(spends, key=Counter.total, reverse=True):
        if not any(spend <= other for other in undominated):
            undominated.append(spend)
    return undominated


def people_ids(people: Iterable[int | str] | None) -> list[str] | None:
    return None if people is None else sorted(people_texts(people))


def people_texts(people: Iterable[int | str]) -> list[str]:
    values = people.tolist() if hasattr(people, "tolist") else list(people)
    if not {type(value) for value in values} <= {int, str}:
        raise ConfigError(
            "people must be whole numbers or texts.",
            effect=Effect.NOTHING_CHARGED,
        )
    ids = list(map(str, values))
    if len(set(ids)) < len(ids):
        raise ConfigError(
            "people names a person twice: use `count` instead.",
            effect=Effect.NOTHING_CHARGED,
        )
    return ids


def people_json(ids: list[str] | None) -> str | None:
    return None if ids is None else json.dumps(ids)

"""The ledger: what every release of a holder has cost its people, written down before
the release.

One file at the holder, for all runs and all time. `charge` checks the price against the
budget and writes it in one transaction, durable before it returns; only then may rows
be touched. What is charged and then not used stays charged: a crash can overstate the
price, never understate it.

A price has two sides: against an outsider, who sees the release, and against an insider
(the server, another party), who saw the training too. They differ only where sampling
hides nothing from insiders (`insider=`).

Guarantee: for every person, all charges to everyone and to that person together stay
within the budget.
Edges: a file that is full, locked, damaged, read-only or not a ledger → LedgerError,
and nothing is charged.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.ground.check import not_negative, one_of, plain_name
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    LedgerError,
    PrivacyError,
)
from understudy.ground.html import grid, line
from understudy.privacy.accounts import entries as booked
from understudy.privacy.accounts.accounting import DpEvent, Spend, distance, epsilon
from understudy.privacy.accounts.budget import (
    ADJACENCY,
    AGAINST,
    Budget,
    Guess,
    best_guess,
    in_units,
    shown,
    shown_left,
    unit_of,
)
from understudy.privacy.accounts.events import event_to_json
from understudy.privacy.accounts.ledger_store import LedgerStore, add_budget, add_entry
from understudy.privacy.accounts.price_terms import PriceTerms

_REMEMBERED = 64  # spends known to fit the budget
_REASON = 200  # letters of a reason


@dataclass(frozen=True)
class Receipt:
    """Proof that a price stands in a ledger: which entry, how many uses of which event,
    as an insider sees it.
    """

    holder: str
    ledger: str
    entry: int
    run: str
    description: str
    event: str = ""
    uses: int = 1

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Receipt":
        """TypeError for what `to_dict` does not give."""
        receipt = cls(**values)
        if any(
            type(value) is not cls.__annotations__[name]
            for name, value in values.items()
        ):
            raise TypeError("a receipt holds texts and whole numbers.")
        return receipt


class Ledger(AbstractContextManager["Ledger"]):
    """A holder's ledger in a file; a new one needs a holder and a budget, an old one
    has its own (`set_budget`).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        holder: str | None = None,
        budget: Budget | None = None,
        patience: float = 10.0,
    ) -> None:
        not_negative(patience=patience)
        path = Path(path)
        if not path.exists():
            if holder is None or budget is None:
                raise LedgerError(
                    f"{path}: there is no such ledger, and a new one needs a holder "
                    "and a budget."
                )
            if budget.epsilon == math.inf:
                raise LedgerError(
                    f"{path}: a ledger in a file needs a finite budget.",
                    effect=Effect.NOTHING_WRITTEN,
                )
            plain_name(holder=holder)
            LedgerStore.create(path, holder, budget)
        self._begin(LedgerStore.open(path, patience), real=True)
        if holder not in (None, self.holder):
            self.close()
            raise LedgerError(
                f"{path}: this is the ledger of {self.holder}, not of {holder}. A "
                f"holder has one name everywhere: call it {self.holder} here, too, or "
                "name another ledger.",
                effect=Effect.NOTHING_SENT,
            )
        if budget not in (None, self.budget):
            allowed = self.budget
            self.close()
            raise LedgerError(
                f"{self.holder}: the ledger {path} allows {allowed}, not {budget}. "
                "Only `set_budget` (`understudy ledger budget`) changes it.",
                effect=Effect.NOTHING_SENT,
            )

    @classmethod
    def rehearsal(cls, holder: str, budget: Budget) -> "Ledger":
        """A ledger in memory, for simulations on public rows: it allows seeds, and a
        budget of infinity.
        """
        ledger = cls.__new__(cls)
        ledger._begin(LedgerStore.memory(holder, budget), real=False)
        return ledger

    def _begin(self, store: LedgerStore, *, real: bool) -> None:
        self._store = store
        self.real = real
        self.holder = store.holder
        self.id = store.id
        self._fits: dict[tuple[float, float], list[Counter[DpEvent]]] = {}
        self._run: tuple[str, Budget] | None = None

    def within(self, run: str, budget: Budget) -> "Ledger":
        """The same file for one run that may cost so much: every charge must fit that,
        and then the holder's budget.

        Guarantee: what the run has spent is what the file holds under its name, and
        both limits are checked in the transaction that writes the charge. So all of
        these for one run, in whatever processes, spend the price once, and what a
        server asks a second time is paid a second time, and counts.
        Edges: two runs of one name add up, as if they were one; a charge under another
        name → LedgerError.
        """
        ledger = Ledger.__new__(Ledger)
        ledger._begin(self._store, real=self.real)
        ledger._fits = self._fits
        ledger._run = (run, budget)
        return ledger

    def charge(
        self,
        event: DpEvent,
        *,
        run: str,
        description: str,
        count: int = 1,
        people: Iterable[int | str] | None = None,
        insider: DpEvent | None = None,
        insider_count: int | None = None,
        once: bool = False,
        terms: PriceTerms | None = None,
    ) -> Receipt:
        """Write down `count` uses of `event`, for everyone or for each of `people`, or
        refuse.

        Guarantee: on return the entry is on disk; a refusal writes nothing. `once`: a
        run has one entry of these words, whatever state its party was put back to,
        since the ledger goes back to none. PrivacyError at the second. `terms`: how the
        price is to be read, kept for the run with its first charge.
        Edges: no people → an entry that costs nobody anything; a person named twice →
        ConfigError; a disk that fails while the entry is committed → LedgerError, and
        the entry may stand although nothing was used.
        """
        lines = booked.lines_of(event, count, insider, insider_count)
        ids = booked.people_ids(people)
        if self._run is not None and run != self._run[0]:
            raise LedgerError(
                f'{self.holder}: this ledger is open for the run "{self._run[0]}", '
                f'not for "{run}".',
                effect=Effect.NOTHING_SENT,
            )
        with self._store.transaction(write=True) as sql:
            if once and self._store.has_entry(run, description):
                raise PrivacyError(
                    f"{self.holder}: once in a run, and it was: {description}.",
                    effect=Effect.NOTHING_CHARGED_OR_SENT,
                )
            self._check(lines, ids)
            entry = add_entry(sql, run, description, None if ids is None else len(ids))
            self._store.add_lines(entry, run, lines, booked.people_json(ids))
            if terms is not None:
                self._store.note_terms(
                    run,
                    json.dumps(terms.to_dict(), sort_keys=True, ensure_ascii=False),
                )
        inside = event_to_json(event if insider is None else insider)
        uses = count if insider_count is None else insider_count
        return Receipt(self.holder, self.id, entry, run, description, inside, uses)

    def afford(
        self,
        event: DpEvent,
        count: int = 1,
        *,
        people: Iterable[int | str] | None = None,
        insider: DpEvent | None = None,
        insider_count: int | None = None,
    ) -> None:
        """BudgetExceeded unless `charge` would accept this now; asked for a run, its
        charges cost no accounting.
        """
        with self._store.transaction(write=False):
            self._check(
                booked.lines_of(event, count, insider, insider_count),
                booked.people_ids(people),
            )

    def able(
        self,
        event: DpEvent,
        count: int = 1,
        *,
        people: Iterable[int | str],
    ) -> NDArray[np.bool_]:
        """Who of `people`, in their order, `charge` would accept this for now, each
        alone. Writes nothing.
        """
        lines = booked.lines_of(event, count, None, None)
        ids = booked.people_texts(people)
        with self._store.transaction(write=False):
            store = self._store
            limits = self._limits()
            accounts = [
                (budget, store.priced(run), store.tallies(run))
                for run, budget in limits
            ]
        able = np.ones(len(ids), dtype=bool)
        for budget, priced, uses_by_person in accounts:
            costs = {
                view: booked.cost_seen(lines, view)
                for view in booked.views(budget.against)
            }
            fits: dict[tuple[tuple[int, int], ...], bool] = {}
            for index, id in enumerate(ids):
                uses = uses_by_person.get(id, {})
                key = tuple(uses.items())
                if key not in fits:
                    spends = (
                        booked.person_spend(priced, uses, view) + cost
                        for view, cost in costs.items()
                    )
                    fits[key] = all(self._fit(budget, spend) for spend in spends)
                able[index] &= fits[key]
        return able

    def _limits(self) -> list[tuple[str | None, Budget]]:
        """What binds: the run's own price, where this ledger is open for one, and the
        holder's budget for all.
        """
        whole: tuple[str | None, Budget] = (None, self._store.budget())
        return [whole] if self._run is None else [self._run, whole]

    def _check(
        self,
        lines: Mapping[tuple[DpEvent, str], int],
        ids: list[str] | None,
    ) -> None:
        for run, budget in self._limits():
            priced = self._store.priced(run)
            eyes = {row.view for row in priced} | {eyes for _, eyes in lines}
            for view in booked.views_apart(budget.against, eyes):
                cost = booked.cost_seen(lines, view)
                # no person has more
                worst = (
                    booked.person_spend(
                        priced,
                        {row.id: row.peak for row in priced},
                        view,
                    )
                    + cost
                )
                if not cost or ids == [] or self._fit(budget, worst):
                    continue
                tallies = self._store.distinct_tallies(booked.people_json(ids), run)
                for before in booked.highest_spends(
                    [booked.person_spend(priced, uses, view) for uses in tallies]
                ):
                    if not self._fit(budget, before + cost):
                        raise BudgetExceeded(
                            self._refusal(run, budget, before, cost, ids),
                            effect=Effect.NOTHING_SENT,
                        )

    def _fit(self, budget: Budget, spend: Counter[DpEvent]) -> bool:
        """Whether ε of `spend` is within the budget; by memory first, since ε grows
        with every count.
        """
        affordable = self._fits.setdefault((budget.epsilon, budget.delta), [])
        if budget.epsilon == math.inf or any(spend <= other for other in affordable):
            return True
        fits = epsilon(spend, budget.delta) <= budget.epsilon
        if fits:
            affordable[:] = [
                spend,
                *(other for other in affordable if not other <= spend),
            ][:_REMEMBERED]
        return fits

    def _refusal(
        self,
        run: str | None,
        budget: Budget,
        before: Spend,
        cost: Counter[DpEvent],
        ids: list[str] | None,
    ) -> str:
        spent = epsilon(before, budget.delta)
        price = epsilon(Counter(before) + cost, budget.delta) - spent
        group = "all" if ids is None else f"{len(ids):,} people of this step"
        costs = shown(price, endless="inf")
        remaining = shown_left(max(0.0, budget.epsilon - spent))
        message = (
            f"{self.holder}: this step costs ε={costs} but {remaining} of "
            f"{budget.epsilon} is left for person group "
            f'"{group}" (δ={budget.delta:g}, against {budget.against}).'
        )
        if run is not None:
            return f'{message} (That is the limit of this run, "{run}".)'
        changed = "its holder changes it with `understudy ledger budget`"
        return (
            f"{message} (That is the lifetime limit of the ledger; {changed}.)"
            if self.real
            else message
        )

    @property
    def path(self) -> Path | None:
        return Path(self._store.where) if self.real else None

    def _repr_html_(self) -> str:
        heads = ("when", "run", "description", "uses", "who", "ε alone", "ε in all")
        rows = [entry.cells() for entry in self.entries(merged=True)[-20:]]
        return grid(heads, rows, title=f"Ledger of {self.holder}") + line(
            self.summary()
        )

    @property
    def limit(self) -> Budget | None:
        """What the run may cost that this ledger is open for (`within`)."""
        return None if self._run is None else self._run[1]

    @property
    def budget(self) -> Budget:
        with self._store.transaction(write=False):
            return self._store.budget()

    def set_budget(self, budget: Budget, *, reason: str = "") -> None:
        """Raise or lower the limit from now on. It becomes an entry, with the reason;
        what was spent stays spent.
        """
        if not reason.isprintable() or len(reason) > _REASON:
            raise ConfigError(
                f"a reason is one line of at most {_REASON} letters. Nothing changed."
            )
        if self.real and budget.epsilon == math.inf:
            raise LedgerError(
                f"{self.holder}: a ledger in a file needs a finite budget. Nothing "
                "changed."
            )
        with self._store.transaction(write=True) as sql:
            add_budget(sql, budget, reason.strip())

    def change_lifetime(
        self,
        *,
        epsilon: float,
        reason: str,
        delta: float | None = None,
    ) -> tuple[Budget, Budget]:
        """Set another budget, for a reason; what it was, and what it is."""
        if not reason.strip():
            raise ConfigError(
                "a budget is changed for a reason, and there is none. Nothing changed."
            )
        before = self.budget
        after = Budget(
            epsilon,
            before.delta if delta is None else delta,
            before.against,
        )
        self.set_budget(after, reason=reason)
        return before, after

    def spent(
        self,
        person: int | str | None = None,
        *,
        against: str = "anyone",
        delta: float | None = None,
    ) -> float:
        """The ε of everything charged so far to a person; to the person with the
        highest spend for None.
        """
        spends, budget_delta = self._highest(person, against, None)
        return max(
            epsilon(spend, budget_delta if delta is None else delta) for spend in spends
        )

    def spend(
        self,
        person: int | str | None = None,
        *,
        against: str = "anyone",
        run: str | None = None,
        delta: float | None = None,
    ) -> Counter[DpEvent]:
        """How often each event was charged to a person (None: the one with the highest
        spend), in all or one run. `delta`: at which spends are compared, by default
        that of the budget.
        """
        spends, budget_delta = self._highest(person, against, run)
        delta = budget_delta if delta is None else delta
        return (
            spends[0]
            if len(spends) == 1
            else max(spends, key=lambda spend: epsilon(spend, delta))
        )

    def remaining(self, person: int | str | None = None) -> float:
        budget = self.budget
        return max(0.0, budget.epsilon - self.spent(person, against=budget.against))

    def _highest(
        self,
        person: int | str | None,
        against: str,
        run: str | None,
    ) -> tuple[list[Counter[DpEvent]], float]:
        """The spends of which one has the highest price, whatever the prices are, and
        the budget's δ.
        """
        one_of(AGAINST, against=against)
        ids = booked.people_ids(None if person is None else [person])
        with self._store.transaction(write=False):
            delta = self._store.budget().delta
            priced = self._store.priced(run)
            tallies = self._store.distinct_tallies(booked.people_json(ids), run)
        views = booked.views_apart(against, {row.view for row in priced})
        return booked.highest_spends(
            booked.person_spend(priced, uses, view)
            for view in views
            for uses in tallies
        ), delta

    def entries(self, *, merged: bool = False) -> list[booked.Entry]:
        """Every entry in order; `merged` joins a run's successive charges of one price
        into one.
        """
        with self._store.transaction(write=False):
            entries = list(
                booked.read_entries(self._store.entries(), self._store.priced())
            )
        return booked.merge(entries) if merged else entries

    def terms(self, run: str) -> list[dict[str, Any]]:
        """How the price of a run is to be read (`PriceTerms.to_dict`); several where it
        was resumed otherwise.
        """
        with self._store.transaction(write=False):
            return [json.loads(terms) for terms in self._store.terms(run)]

    @property
    def adjacency(self) -> str:
        """What ε protects in all runs that say it: people, or less where one of them
        protects less.
        """
        return self.adjacency_of(self.runs())

    def adjacency_of(self, runs: Iterable[str]) -> str:
        """The same of these runs."""
        stated = {terms["adjacency"] for run in runs for terms in self.terms(run)}
        less = sorted(
            adjacency for adjacency in stated if unit_of(adjacency) != "person"
        )
        return less[0] if less else ADJACENCY

    def runs(self) -> list[str]:
        with self._store.transaction(write=False):
            return self._store.runs()

    def summary(self) -> str:
        budget = self.budget
        figures = {against: self.spent(against=against) for against in AGAINST}
        remaining = max(0.0, budget.epsilon - figures[budget.against])
        whom = in_units("the person with the highest spend", unit_of(self.adjacency))
        return (
            f"{self.holder} allows {budget}. Spent by {whom}: "
            f"ε={shown(figures['anyone'])} "
            f"against anyone, ε={shown(figures['outsider'])} against an outsider. "
            f"Left: {shown_left(remaining)}."
        )

    def guess(self, run: str | None = None) -> Guess:
        """How often, at most, a guess at any one person is right, by all releases, or a
        run's.

        Of two people, the one with the smaller ε at the budget's δ may be the one who
        is guessed at more often.
        """
        spends, _ = self._highest(None, "anyone", run)
        return best_guess(distance=max(map(distance, spends), default=0.0))

    def close(self) -> None:
        self._store.close()

    def __exit__(self, *_: object) -> None:
        self.close()

"""What a run cost its people, in words and figures that a privacy officer can hold it
to.

Every ε stands beside its δ, against whom it holds, what "one person" means, and how
often rows were used. Figures are rounded up. Where all uses are pure (local reports), ε
stands there twice: the tight figure at the stated δ, and the plain sum over the uses,
which holds at δ=0. A rehearsal, and noise that can be guessed, protect nobody: the
statement says so before all else.

Differs from the paper (Zhang 2022, Eq. 4.17, the maximum over parties): where parties
hold the same people, a person's price is the composition of all parties' prices. Their
uses are priced together at one stated δ, the largest of theirs; that is a guarantee in
its own right, since the uses together have an ε at every δ. Against another party j, a
person's price is that of all parties but j, which has its own rows anyway; the worst j
is shown. Where the parties draw one sample for all of them in each step
(`common_steps`), an outsider's price is that of the one sample with all parties' noise
on it (`events.together`). Who knows the samples is priced without them.

Where the parties make one release together (`one_release`), each party's ledger holds
the price of that release, for the whole of a person: those charges are for the same
thing, and the person pays the largest of them once.

Where parties hold rows of different people, that no person is with two of them is the
holders' word: nobody checks it, and the statement says so. Where a person may be with
`max_holders_per_person` of them, prices compose over so many: of each event the most
uses that so many parties can have together. A joint release of a horizontal partition
is moved so many times as far by such a person, and its parties are charged for that.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

from dp_accounting import DpEvent

from understudy.ground.check import finite, one_of, whole
from understudy.ground.errors import ConfigError
from understudy.ground.html import pre
from understudy.privacy.accounts.accounting import ACCOUNTANTS, Spend, distance, epsilon
from understudy.privacy.accounts.budget import (
    ADJACENCY,
    PLURALS,
    Budget,
    Guess,
    best_guess,
    counted_in,
    in_units,
    rehearsed,
    shown,
    unit_of,
)
from understudy.privacy.accounts.events import (
    describe,
    event_from_json,
    event_to_json,
    spent_together,
)

_version = cache(version)
AGAINST = {
    "outsider": "an outsider who sees the release",
    "server": "the server",
    "another_party": "another party",
}
EVERYBODY = "all others together"
ALONE = "only one party holds each person"
ELSEWHERE = (
    f"that {ALONE}. The holders state this, and nobody has checked it: a person whom "
    "several of them hold pays more than stated here"
)
SEVERAL = (
    "a person with several {units}: all of them together cost up to as many times ε"
)
OUTSIDE = (
    "which people the parties share: alignment reveals the intersection",
    "the number of people",
    "the schema: columns, levels and bounds are public",
    "the size and the timing of messages",
)


@dataclass(frozen=True, kw_only=True)
class PartyPrivacy:
    """One party's price for its person with the highest spend: uses of each event, as
    outsider and insider see them.

    `rounds` is how many rounds the uses were spread over, evenly (where cohorts are
    asked: the rounds that this person took part in); `noise` names the generator of the
    noise; `people` is None where not disclosed, and 0 at an aggregator; `rehearsal` are
    keys of `REHEARSED`.
    """

    name: str
    budget: Budget
    outsider: Spend
    insider: Spend
    noise: str
    people: int | None
    rounds: int = 1
    # uses of every round, where they may differ: a round costs the dearest
    uses_of_rounds: tuple[Spend, ...] = ()
    rehearsal: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whole(rounds=self.rounds)

    @classmethod
    def stated(
        cls,
        name: str,
        info: Mapping[str, Any],
        spent: Mapping[str, Spend],
        **more: Any,
    ) -> "PartyPrivacy":
        """What was `spent`, in each view, with what the party stated: budget (None: no
        limit), noise and people.
        """
        budget = (
            Budget(math.inf, 0.0)
            if info["budget"] is None
            else Budget(**info["budget"])
        )
        return cls(
            name=name,
            budget=budget,
            outsider=spent["outsider"],
            insider=spent["anyone"],
            noise=info["noise"]["generator"],
            people=info.get("people"),
            rehearsal=tuple(info["noise"]["rehearsal"]),
            **more,
        )

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> "PartyPrivacy":
        """What `PrivacyStatement.to_dict` wrote of a party, without the figures that
        follow from it.
        """
        budget = dict(stated["budget"])
        if budget["epsilon"] is None:
            budget["epsilon"] = math.inf
        return cls(
            name=str(stated["name"]),
            budget=Budget(**budget),
            outsider=_spend(stated["uses"]["outsider"]),
            insider=_spend(stated["uses"]["insider"]),
            noise=str(stated["noise"]),
            people=stated["people"],
            rounds=stated["rounds"],
            uses_of_rounds=tuple(map(_spend, stated["uses_of_rounds"])),
        )

    def spend(self, against: str) -> Spend:
        return self.outsider if against == "outsider" else self.insider

    def round(self, against: str) -> Spend:
        """What the dearest round used; where rounds may differ, what was paid beside
        them counts as one.
        """
        if self.uses_of_rounds:
            rest = Counter(self.spend(against)) - sum(
                map(Counter, self.uses_of_rounds),
                Counter(),
            )
            return max(
                (*self.uses_of_rounds, rest),
                key=lambda uses: epsilon(uses, self.budget.delta),
            )
        return {
            event: -(-count // self.rounds)
            for event, count in self.spend(against).items()
        }


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The privacy of a run. `str` for people, `to_dict` for files.

    `same_people`: the parties hold columns of the same people; otherwise at most
    `max_holders_per_person` of them hold a person, as the holders state. `one_release`:
    the parties' charges are for one joint release, each for a whole person.
    `common_steps`: the parties' samples are common ones, of at least so many steps;
    None: each party draws its own. `adjacency` says what is protected, a person or
    less: two worlds that ε holds apart differ in that. `coalition`: those against whom
    ε holds each alone, and does not hold where they pool what they know. `local`: it
    holds where all others do, since each person's own device adds all of the noise.
    `outside` lists what ε does not cover, `unguarded` what of the release has no formal
    guarantee.
    """

    parties: tuple[PartyPrivacy, ...]
    run: str = ""
    same_people: bool = True
    max_holders_per_person: int = 1
    one_release: bool = False
    common_steps: int | None = None
    adjacency: str = ADJACENCY
    coalition: str = ""
    local: bool = False
    outside: tuple[str, ...] = OUTSIDE
    unguarded: tuple[str, ...] = ()
    delta: float = field(init=False)

    def __post_init__(self) -> None:
        whole(max_holders_per_person=self.max_holders_per_person)
        if not self.parties:
            raise ConfigError("a privacy statement needs at least one party.")
        object.__setattr__(
            self,
            "delta",
            max(party.budget.delta for party in self.parties),
        )

    @property
    def unit(self) -> str:
        """What ε protects: a person, or a row, an image, a series, a window, of which a
        person may have several.
        """
        return unit_of(self.adjacency)

    @property
    def beyond(self) -> tuple[str, ...]:
        """All that ε does not cover: `outside`, and people where less than a person is
        protected.
        """
        if self.unit == "person":
            return self.outside
        several = SEVERAL.format(units=PLURALS[self.unit])
        outside = (
            in_units(text, self.unit) for text in self.outside if text != several
        )
        return (several, *outside)

    @property
    def rehearsal(self) -> str:
        return rehearsed({party.name: party.rehearsal for party in self.parties})

    def epsilon(self, party: str | None = None, against: str = "server") -> float:
        """ε of one party at its own δ, or of a person over all; against a key of
        `AGAINST` (no other party → 0).
        """
        one_of(AGAINST, against=against)
        if party is not None:
            (stated,) = [
                candidate for candidate in self.parties if candidate.name == party
            ]
            return self._price(stated, against, stated.budget.delta)
        return _dearest(self._of_person(against), self.delta)

    def guess(self, against: str = "server") -> Guess:
        """How often, at most, whoever guesses whether a person took part is right, by
        the noise that was used.
        """
        one_of(AGAINST, against=against)
        return best_guess(
            distance=max(map(distance, self._of_person(against)), default=0.0)
        )

    def _of_person(self, against: str) -> Iterator[Counter[DpEvent]]:
        """All that may have been spent on one person, of which the dearest counts."""
        coalitions = [[*self.parties]]
        if against == "another_party":
            coalitions = [
                [other for other in self.parties if other is not party]
                for party in self.parties
            ]
        for parties in coalitions:
            max_parties = (
                len(parties) if self.same_people else self.max_holders_per_person
            )
            groups = [[party] for party in parties]
            if max_parties > 1 and not self.one_release:
                groups = [parties]
            for group in groups:
                yield from self._spends_seen(group, against, max_parties)

    def per_party(self, against: str = "server") -> dict[str, float]:
        return {party.name: self.epsilon(party.name, against) for party in self.parties}

    def _spends_seen(
        self,
        parties: list[PartyPrivacy],
        against: str,
        max_parties: int | None,
    ) -> list[Counter[DpEvent]]:
        """Of all these parties, or any `max_parties` of them; an insider's ε is at
        least an outsider's.
        """
        return [
            self._joint_spend([party.spend(v) for party in parties], max_parties)
            for v in {"outsider", against}
        ]

    def _price(
        self,
        party: PartyPrivacy,
        against: str,
        delta: float,
        *,
        rounds: bool = False,
    ) -> float:
        spends_by_view = [
            [party.round(v) if rounds else party.spend(v)]
            for v in {"outsider", against}
        ]
        return _dearest(
            (self._joint_spend(spends, None) for spends in spends_by_view),
            delta,
        )

    def _joint_spend(
        self,
        spends: list[Spend],
        max_parties: int | None,
    ) -> Counter[DpEvent]:
        """All uses; or of each event as many as any `max_parties` of the parties have
        together.
        """
        if self.common_steps is not None:
            return spent_together(spends, steps=self.common_steps)
        events = {event for spend in spends for event in spend}
        uses = {
            event: sorted((spend.get(event, 0) for spend in spends), reverse=True)
            for event in events
        }
        return Counter(
            {event: sum(counts[:max_parties]) for event, counts in uses.items()}
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for privacy.json. An ε that is not finite is null: no
        guarantee.
        """
        return {
            "rehearsal": self.rehearsal or None,
            "run": self.run,
            "adjacency": self.adjacency,
            "accountant": self._accountant(),
            "parties": [self._party(party) for party in self.parties],
            "person": {
                "same_people": self.same_people,
                "max_holders_per_person": self.max_holders_per_person,
                "one_release": self.one_release,
                "common_sample": self.common_steps is not None,
                "common_steps": self.common_steps,
                "delta": self.delta,
                "epsilon": {
                    against: finite(self.epsilon(None, against)) for against in AGAINST
                },
                "right_guesses": {
                    against: self.guess(against).share for against in AGAINST
                },
                "together": [
                    [against, finite(price)] for against, price in self._pooled()
                ],
            },
            "assumed": list(self.assumed),
            "outside": list(self.beyond),
            "unguarded": list(self.unguarded),
        }

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> "PrivacyStatement":
        """The statement that uses, budgets and how prices compose make, by what
        `to_dict` wrote of them; every figure is computed anew. Edges: KeyError,
        TypeError, ValueError, PrivacyError or ConfigError for anything else.
        """
        person = stated["person"]
        pooled = [(str(against), price) for against, price in person["together"]]
        unbounded = [
            against.removesuffix(" together")
            for against, price in pooled
            if price is None and against != EVERYBODY
        ]
        return cls(
            parties=tuple(map(PartyPrivacy.from_dict, stated["parties"])),
            run=str(stated["run"]),
            same_people=bool(person["same_people"]),
            max_holders_per_person=person["max_holders_per_person"],
            one_release=bool(person["one_release"]),
            common_steps=person["common_steps"],
            adjacency=str(stated["adjacency"]),
            coalition=unbounded[0] if unbounded else "",
            local=any(against == EVERYBODY for against, _ in pooled),
            outside=tuple(map(str, stated["outside"])),
            unguarded=tuple(map(str, stated["unguarded"])),
        )

    @property
    def assumed(self) -> tuple[str, ...]:
        # an aggregator holds nobody
        holders = [party for party in self.parties if party.people != 0]
        if self.same_people or len(holders) == 1:
            return ()
        if self.max_holders_per_person == 1:
            return (in_units(ELSEWHERE, self.unit),)
        return (
            f"that at most {self.max_holders_per_person} of the parties hold a "
            f"{self.unit}. The holders state this, and nobody has checked it",
        )

    def _party(self, party: PartyPrivacy) -> dict[str, Any]:
        delta = party.budget.delta
        return {
            "name": party.name,
            "people": party.people,
            "budget": party.budget.to_dict()
            | {"epsilon": finite(party.budget.epsilon)},
            "delta": delta,
            "epsilon": {
                against: finite(self.epsilon(party.name, against))
                for against in AGAINST
            },
            "epsilon_sum": {
                against: finite(self._price(party, against, 0.0)) for against in AGAINST
            },
            "epsilon_round": {
                against: finite(self._price(party, against, delta, rounds=True))
                for against in AGAINST
            },
            "rounds": party.rounds,
            "uses": {
                view: _uses(party.spend(view)) for view in ("outsider", "insider")
            },
            "uses_of_rounds": [_uses(uses) for uses in party.uses_of_rounds],
            "noise": party.noise,
        }

    def _accountant(self) -> str:
        return f"{ACCOUNTANTS['pld']}, dp_accounting {_version('dp-accounting')}"

    def _repr_html_(self) -> str:
        return pre(self)

    def __str__(self) -> str:
        title = f"Privacy of run {self.run}" if self.run else "Privacy"
        lines = [self.rehearsal, ""] if self.rehearsal else []
        protected = "one person" if self.unit == "person" else "protected"
        lines += [
            title,
            f"  {protected:<10}   {self.adjacency}",
            f"  accountant   {self._accountant()}",
        ]
        lines += ["", "Each party", *aligned(self._rows())]
        lines += [
            "",
            "Uses",
            *aligned([row for party in self.parties for row in _words(party)]),
        ]
        lines += [
            "",
            in_units(
                f"A person over all parties, at δ={self.delta:g} ({self._reason()})",
                self.unit,
            ),
        ]
        prices = [
            [AGAINST[against], shown(self.epsilon(None, against))]
            for against in self._whom()
        ]
        prices += [[against, shown(price)] for against, price in self._pooled()]
        lines += aligned([["against", "ε"], *prices])
        guess = max(map(self.guess, self._whom()), key=lambda guess: guess.share)
        lines += [f"  {guess.in_words(self.adjacency)}"]
        if self.assumed:
            lines += ["", "Assumed", *(f"  - {text}" for text in self.assumed)]
        lines += ["", "Outside ε", *(f"  - {text}" for text in self.beyond)]
        if self.unguarded:
            lines += [
                "",
                "Without a formal guarantee",
                *(f"  - {text}" for text in self.unguarded),
            ]
        return "\n".join(lines)

    def _reason(self) -> str:
        if not self.same_people and self.max_holders_per_person > 1:
            holders = (
                f"up to {self.max_holders_per_person} of the parties hold a person, "
                "as the holders state"
            )
            how = (
                "; the parties' charges are for one release"
                if self.one_release
                else ": prices compose"
            )
            return holders + how
        if self.one_release:
            n_releases = len(self.parties[0].uses_of_rounds)
            releases, same = (
                ("one release", "release")
                if n_releases < 2
                else (f"{n_releases:,} joint releases", "ones")
            )
            return f"{releases}; the parties' charges are for the same {same}"
        if self.same_people and self.common_steps is not None and len(self.parties) > 1:
            return (
                "the parties hold the same people in common samples: their noise is "
                "combined before sampling counts"
            )
        if self.same_people:
            return "the parties hold the same people, so their prices compose"
        return ALONE if len(self.parties) == 1 else f"assumed: {ALONE}"

    def _pooled(self) -> list[tuple[str, float]]:
        """A person's ε against several who pool what they know, where something is
        known of it.
        """
        if self.coalition:
            return [(f"{self.coalition} together", math.inf)]
        return (
            [(EVERYBODY, max(self.epsilon(None, against) for against in AGAINST))]
            if self.local
            else []
        )

    def _whom(self) -> list[str]:
        return [
            against
            for against in AGAINST
            if against != "another_party" or len(self.parties) > 1
        ]

    def _rows(self) -> list[list[str]]:
        """Heads, and a row for each party and whom it holds against; ε at δ=0 where any
        use is pure.
        """
        pure = any(
            math.isfinite(self._price(party, "server", 0.0)) for party in self.parties
        )
        heads = (
            "party",
            counted_in(self.adjacency),
            "against",
            "ε of the run",
            "δ",
            "ε at δ=0",
            "ε of a round",
            "rounds",
            "allowed",
        )
        rows = [[head for head in heads if pure or head != "ε at δ=0"]]
        for party in self.parties:
            people = "not disclosed" if party.people is None else f"{party.people:,}"
            delta = party.budget.delta
            for against in self._whom():
                stated_once = (
                    [party.name, people, f"{party.rounds:,}", str(party.budget)]
                    if against == "outsider"
                    else [""] * 4
                )
                prices = [shown(self.epsilon(party.name, against)), f"{delta:g}"]
                prices += [shown(self._price(party, against, 0.0))] if pure else []
                prices += [shown(self._price(party, against, delta, rounds=True))]
                rows.append(
                    [*stated_once[:2], AGAINST[against], *prices, *stated_once[2:]]
                )
        return rows


def _dearest(spends: Iterable[Spend], delta: float) -> float:
    return max((epsilon(spend, delta) for spend in spends), default=0.0)


def _uses(spend: Spend) -> list[dict[str, Any]]:
    return [
        {"count": count, "event": event_to_json(event), "words": describe(event)}
        for event, count in spend.items()
    ]


def _spend(uses: Iterable[Mapping[str, Any]]) -> Spend:
    """What `_uses` wrote. ValueError for an event that stands there twice, or a count
    that is none.
    """
    spend: dict[DpEvent, int] = {}
    for use in uses:
        event = event_from_json(str(use["event"]))
        if event in spend or type(use["count"]) is not int or use["count"] < 1:
            raise ValueError(f"{use['count']!r} uses of {use['event']}")
        spend[event] = use["count"]
    return spend


def _words(party: PartyPrivacy) -> list[list[str]]:
    """What was done, how often, with which noise; the insider's side only where it
    differs.
    """
    sides: Mapping[str, Spend] = {"": party.outsider}
    if Counter(party.outsider) != Counter(party.insider):
        sides = {
            "to an outsider": party.outsider,
            "to the server and other parties": party.insider,
        }
    return [
        [party.name, f"{count:,} ×", describe(event), side, f"noise: {party.noise}"]
        for side, spend in sides.items()
        for event, count in spend.items()
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, column below column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]

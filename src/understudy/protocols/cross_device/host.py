"""What the protocols of horizontal partitions share: parties that host people, cohorts
of them, and what it costs each.

A person is with one party, or with `max_holders_per_person` of them where the settings
say so. In each round the server asks a cohort, drawn over all parties from public
randomness; a party charges each asked person one use before it touches a row, and
answers for nobody beyond the `max_reports` that the run promised or beyond the ledger's
budget.

Guarantee: a person's reports at a party together cost at most `max_reports` uses of the
run's event, and the ledger holds each. Sampler a cohort amplifies nothing: who reports,
and when, is known to the server, and nothing else is claimed. Edges: a person without
rows reports like any other, since silence would tell. A party that goes back to a saved
state (`Return`) counts towards `max_reports` from there: what is asked again is charged
again, so that the ledger, and over a network the contract's price, bound such reports,
not `max_reports`.
"""

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.features import Slots
from understudy.data.encoding.population import Population
from understudy.data.kinds import NoRows, Rows, protected_unit
from understudy.data.schema import Schema
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    Effect,
    LedgerError,
    PartyError,
    PrivacyError,
)
from understudy.ground.pack import Value
from understudy.privacy.accounts.accounting import DpEvent, epsilon, flatten
from understudy.privacy.accounts.budget import Budget, in_units, shown
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.protocols.core import Ask, Message, Opening, Paid, Party, Public, Reply

ADJACENCY = (
    "replace the content of all reports of one person; that the person reported, and "
    "when, is public"
)
OUTSIDE = (
    "who takes part, and in which rounds: the server draws the cohorts",
    "the number of people",
    "the schema: columns, levels and bounds are public",
    "the size and the timing of messages; time grows a little with a person's rows",
)
WHO_REPORTS = "who reports, and how often, is public"


class BeginTraining(Opening, kind="people.begin"):
    """The run's settings, and the network that is trained."""

    network: dict[str, Any]


class Begun(Reply, kind="people.begun"):
    """How many people can take part and how many have too little left, what the run may
    cost, and whose noise.
    """

    people: Public
    left_out: Public
    budget: Public
    noise: Public


class Call(Ask):
    """Which of the party's people are to report in a round: their places, (n,). What on
    is the protocol's to say.
    """

    round: int
    people: Tensor


class Round(Call, kind="people.round"):
    """The global model, and which of the party's people are to report on it: their
    places, (n,).

    `rate` is γ, by which the server is to multiply the mean of what it gets.
    """

    weights: Tensor
    rate: float = 1.0


class Reported(Reply, kind="people.reported"):
    """What these people report, in the order in which they were asked."""

    reports: Paid


class Hosting(NamedTuple):
    """What a host has opened: its people, a report's price, how often at most, and what
    else each pays once.
    """

    population: Population
    event: DpEvent
    max_reports: int
    once: DpEvent | None = None

    @property
    def whole(self) -> DpEvent:
        reports = SelfComposedDpEvent(self.event, self.max_reports)
        return reports if self.once is None else ComposedDpEvent([self.once, reports])


class HostParty(Party):
    """A holder of many people, or a single phone. Subclasses say what a report is.
    Edges: an ask for an unknown person, for one twice, or for one who has reported
    `max_reports` times → PartyError. Who has too little left for `max_reports` reports
    stays out of the run, which says how many do; a party without anybody left does not
    begin: BudgetExceeded. Nobody is charged then.
    """

    begin_type: ClassVar[type[Opening]] = BeginTraining
    round_type: ClassVar[type[Call]] = Round
    description: str = "one report each"  # what a round's entry in the ledger says
    before: ClassVar[str] = ""  # what else a person pays for, in words
    beside: ClassVar[tuple[type[Message], ...]] = ()  # what else it is asked and says

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.messages = (
            *Party.messages,
            cls.begin_type,
            Begun,
            cls.round_type,
            Reported,
            *cls.beside,
        )

    def __init__(
        self,
        name: str,
        data: Rows | Population,
        ledger: Ledger,
        *,
        budget: Budget,
        **more: Any,
    ) -> None:
        super().__init__(name, ledger, **more)
        if not isinstance(data, Population):
            data.schema.require_public(f"the schema of {name}")
            data.schema.require_unit(f"the schema of {name}")
        self.data = data
        self.budget = budget
        self.begun: Opening | None = None

    @abstractmethod
    def open(self, ask: Any) -> Hosting:
        """Build what the settings say: the same from a fresh `BeginTraining` and from a
        saved state.
        """

    def check(self, ask: Any) -> None:
        """Refuse a round that nobody can answer, by what the server sent alone: before
        anybody is charged.
        """

    @abstractmethod
    def reports(self, ask: Any) -> Value:
        """What the asked people report. It has been paid for."""

    def respond(self, ask: Ask) -> Reply:
        if isinstance(ask, self.begin_type) and self.begun is None:
            # a second one would forget who has reported how often
            return self._begin(ask)
        if isinstance(ask, self.round_type) and self.begun is not None:
            return self._round(ask)
        raise self.unexpected(ask)

    def _begin(self, ask: Opening) -> Begun:
        self._open(ask)
        whole = self.hosting.whole
        budget = self.budget
        self._within(whole, self.hosting.max_reports)
        try:
            self.ledger.afford(whole)
        except BudgetExceeded as refusal:
            # somebody has spent too much, perhaps nobody who is here
            able = self.ledger.able(whole, people=self.population.ids)
            self._reset_participations(able)
            if not able.any():
                raise BudgetExceeded(
                    f"{self.name}: none of {len(able):,} people has enough left for "
                    f"{self.before}{self.hosting.max_reports} reports.",
                    effect=Effect.NOTHING_SENT,
                ) from refusal
        self.begun = ask
        limit = None if budget.epsilon == math.inf else asdict(budget)
        return Begun(
            people=Public(
                self.stated_people, f"how many people can take part; {WHO_REPORTS}"
            ),
            left_out=Public(
                self.population.people - len(self.places),
                f"whose budgets are too small; {WHO_REPORTS}",
            ),
            budget=Public(limit, "the holder's own choice"),
            noise=self.stated_noise(),
        )

    def _within(self, whole: DpEvent, max_reports: int) -> None:
        budget = self.budget
        price = epsilon(flatten(whole), budget.delta)
        if price > budget.epsilon:
            cost = shown(price, endless="inf")
            raise BudgetExceeded(
                f"{self.name}: {self.before}{max_reports} reports of one person cost "
                f"ε={cost} at δ={budget.delta:g}, but this run may cost {budget}.",
                effect=Effect.NOTHING_SENT,
            )

    def _round(self, ask: Call) -> Reported:
        self._admit(ask.people)
        self.check(ask)
        people = self.places[ask.people]
        receipt = self.pay(ask, self.population.ids[people.numpy()])
        self.participations[ask.people] += 1
        return Reported(
            reports=Paid(self.reports(replace(ask, people=people)), receipt)
        )

    def pay(self, ask: Call, people: NDArray[Any]) -> Receipt:
        """Charge each of these people one use, before a row of theirs is touched."""
        description = f"round {ask.round}: {self.description}"
        return self.charge(self.hosting.event, people=people, description=description)

    @property
    def stated_people(self) -> int | None:
        return len(self.places)

    def composition(self) -> dict[str, Any]:
        settings = {} if self.begun is None else self.begun.config
        max_holders_per_person = int(settings.get("max_holders_per_person", 1))
        described = (
            self.data.features
            if isinstance(self.data, Population)
            else self.data.schema
        )
        adjacency = in_units(ADJACENCY, protected_unit({self.name: described}))
        return {
            "same_people": False,
            "max_holders_per_person": max_holders_per_person,
            "adjacency": adjacency,
            "local": True,
        }

    def _admit(self, people: Tensor) -> None:
        distinct = (
            people.ndim == 1
            and people.dtype == torch.int64
            and len(np.unique(people)) == len(people)
        )
        if not distinct or not bool(
            ((people >= 0) & (people < len(self.places))).all()
        ):
            raise PartyError(
                f"{self.name}: the ask names a person twice, or one who is not here.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        over = int((self.participations[people] >= self.hosting.max_reports).sum())
        if over:
            raise PartyError(
                f"{self.name}: {over:,} of {len(people):,} asked people have reported "
                f"{self.hosting.max_reports} times, which is the most in this run.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def _open(self, ask: Opening) -> None:
        self.hosting = self.open(ask)
        self.population = self.hosting.population
        self._reset_participations(np.ones(self.population.people, np.bool_))

    def _reset_participations(self, able: NDArray[np.bool_]) -> None:
        self.places = torch.from_numpy(np.flatnonzero(able))
        self.participations = torch.zeros(len(self.places), dtype=torch.int32)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None:
            state |= {"begin": dict(vars(self.begun)), "people": self.population.people}
            state |= {"places": self.places, "participations": self.participations}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "begin" in state:
            self.begun = self.begin_type(**state["begin"])
            self._open(self.begun)
            if state["people"] != self.population.people:
                raise ArtefactError(
                    f"{self.name}: the saved state is about {state['people']:,} "
                    "people, and there "
                    f"are {self.population.people:,}.",
                    effect=Effect.NOTHING_COMPUTED_OR_SENT,
                )
            self.places = state["places"]
            self.participations = state["participations"]


class PassingOn(HostParty):
    """A party without rows that passes on what people's own devices made. Guarantee:
    its ledger holds the price of each person whose upload it passes on, before that.
    What is asked for again, after a crash or at an earlier state, is the same to the
    bit and charged once; uploads that were made for another ask are others, and are
    charged as such.
    """

    context: bytes  # what the uploads were made for

    def __init__(self, name: str, data: NoRows, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, data, ledger, **more)  # type: ignore[arg-type]  # of rows, a schema is all it asks for
        self.schema = data.schema
        self.box = data.box

    def pay(self, ask: Call, people: NDArray[Any]) -> Receipt:
        lines = "\n".join([self.context.hex(), *sorted(people.tolist())])
        description = (
            f"round {ask.round}: {self.description}, batch "
            f"{hashlib.sha256(lines.encode()).hexdigest()[:16]}"
        )
        try:
            return self.charge(
                self.hosting.event, people=people, description=description, once=True
            )
        except (BudgetExceeded, LedgerError):
            raise
        except PrivacyError:  # it stands there
            description = f"again, to the bit: {description}"
            return self.charge(self.hosting.event, people=(), description=description)


def elsewhere(schema: Schema, people: NDArray[Any]) -> Population:
    nothing = torch.zeros(len(people), 0)
    codes = torch.zeros(len(people), dtype=torch.int64)
    return Population(
        Slots(schema), people, nothing, codes, torch.arange(len(people) + 1)
    )


def left_out(begun: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    return {
        name: int(info["left_out"])
        for name, info in begun.items()
        if info.get("left_out")
    }

"""The server's side of a run over people: it begins at every party, asks in rounds,
saves, and states the price.

`Run` is what all have. A `Survey` asks everybody about a row, a few people of each
party at a time (LoPub); of `TwoRounds` everybody reports once, in the first or in the
second (one report a person, class means).

Guarantee: the server's side is post-processing of the parties' paid answers. In which
of two rounds a person reports is drawn from public randomness.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.kinds import TABLE, protected_unit
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.generators.parts import ClassifierParts, GeneratorParts
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    Effect,
    SchemaError,
)
from understudy.privacy.accounts.accounting import PureDp, Spend
from understudy.privacy.accounts.budget import Budget, in_units
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.protocols.core import (
    VIEWS,
    Opening,
    Parties,
    Party,
    Watcher,
    public_values,
    settled,
)
from understudy.protocols.core.common_rule import all_alike
from understudy.protocols.core.loop import (
    Checkpoint,
    Outcome,
    Present,
    card_of,
    remarks,
    run_rounds,
)
from understudy.protocols.cross_device.host import (
    ADJACENCY,
    OUTSIDE,
    Call,
    HostParty,
    Reported,
    left_out,
)
from understudy.protocols.protocol import Protocol

LAW = "of a random row of a random person"


def _spends(config: Any, budget: Budget) -> Spend | None:
    """What all reports of a person spend, where the settings state their ε."""
    report = getattr(config, "epsilon_report", None)
    if report:
        return {PureDp(report): int(getattr(config, "max_reports", 1))}
    total = getattr(config, "epsilon_total", None)
    return None if total is None else {PureDp(total): 1}


class Run(ABC):
    protocol: ClassVar[str]
    least: ClassVar[int] = 0  # rounds without which there is nothing to fit
    rounds: int  # how many there are
    every: int = 1  # of them between two checkpoints
    unit: str = "person"  # of the parties' rows
    local: ClassVar[bool] = True
    unguarded: tuple[str, ...] = ()

    @classmethod
    def train(
        cls,
        config: Any,
        parties: Parties,
        schemas: Mapping[str, Any],
        *,
        checkpoint: Path | None = None,
        resume: bool = False,
        watch: Watcher | None = None,
        **more: Any,
    ) -> Outcome:
        """Ask in all rounds, and make of the reports what the protocol makes; `more`
        are public rows that it takes. With a `checkpoint` folder it is saved as it goes
        and when it is interrupted, and `resume=True` continues from there, with the
        settings that it began with.
        """
        run = cls(
            config, parties, {name: schemas[name] for name in parties.names}, **more
        )
        run.unit = protected_unit(schemas)
        run.open(checkpoint, resume=resume)
        run.ended = run_rounds(
            run.rounds,
            run.step,
            done=run.done,
            save=run.save,
            every=run.every,
            watch=watch,
            spent=lambda: run.statement(run.asked_spend).per_party(),
        )
        if run.done < cls.least:
            raise BudgetExceeded(run.ended)
        fitted = run.fit()
        privacy = run.privacy()
        card = run.card(privacy)
        return Outcome(run.parts(fitted, card), privacy, card["people"])

    @classmethod
    def record(
        cls, party: Callable[..., Party], config: type[Any], **more: Any
    ) -> Protocol:
        return Protocol(
            name=cls.protocol,
            config=config,
            party=party,
            train=cls.train,
            same_people=False,
            **{"spends": _spends, **more},
        )

    def __init__(self, config: Any, parties: Parties, *more: Any) -> None:
        self.config = config
        self.parties = Present(parties, config.min_holders)
        self.done = 0
        self.ended = ""

    def open(self, checkpoint: Path | None, *, resume: bool) -> None:
        """Begin at every party, or go on from what was saved; and plan whom to ask."""
        self.store = (
            None if checkpoint is None else Checkpoint(checkpoint, self.parties)
        )
        saved = self.store.load() if self.store is not None and resume else None
        self.done, state = saved or (0, {})
        self.saved = self.done
        if saved is None:
            self.begun = public_values(self.parties.ask(self.opening()))
        else:
            self.begun = state["begun"]
            # the parties go on with those that they began with
            for name, value in asdict(self.config).items():
                before = state["config"].get(name)
                if before != value:
                    raise ArtefactError(
                        f"The saved run has {name}={before!r}, not {value!r}. Resume "
                        "it as it was.",
                        effect=Effect.NOTHING_CHARGED,
                    )
        self.hosted = {name: int(info["people"]) for name, info in self.begun.items()}
        self.plan_rounds()
        if saved is not None:
            self.restore(state)

    @property
    def adjacency(self) -> str:
        return in_units(ADJACENCY, self.unit)

    @abstractmethod
    def opening(self) -> Opening:
        """The ask by which the run begins at a party."""

    @abstractmethod
    def plan_rounds(self) -> None:
        """Decide whom to ask in how many rounds, once it is known how many people each
        party has.
        """

    @abstractmethod
    def step(self, round: int) -> None:
        """Ask the people of a round, learn from what they say, and note the round as
        done.
        """

    @abstractmethod
    def to_save(self) -> dict[str, Any]:
        """All that a resumed run needs, beside who began with which settings."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what was saved."""

    @property
    @abstractmethod
    def asked_spend(self) -> dict[str, Spend]:
        """What each party's people paid at most, by what they were asked."""

    @abstractmethod
    def fit(self) -> Any:
        """What comes of all reports: a network, ready to draw from, or weights."""

    @abstractmethod
    def parts(
        self, fitted: Any, card: dict[str, Any]
    ) -> GeneratorParts | ClassifierParts:
        """The artefact of what was found."""

    @abstractmethod
    def card_extra(self) -> dict[str, Any]:
        """What else the card says; asked for after the fit."""

    def save(self) -> None:
        if self.store is not None and self.done:
            state = {"begun": self.begun, "config": asdict(self.config)}
            self.store.save(self.done, state | self.to_save())

    def privacy(self) -> PrivacyStatement:
        """What was paid, by the parties' ledgers; of those who are gone, what they were
        asked.
        """
        paid = settled(self.parties, min_holders=0)
        return self.statement(
            self.asked_spend | {name: spends["anyone"] for name, spends in paid.items()}
        )

    def statement(self, spends: Mapping[str, Spend]) -> PrivacyStatement:
        notes = {
            name: note for name, note in self.parties.gone.items() if name in self.begun
        }
        parts = []
        for name, info in self.begun.items():
            spend = dict.fromkeys(VIEWS, spends[name])
            rounds = self.rounds_of(name, spends[name])
            parts.append(PartyPrivacy.stated(name, info, spend, rounds=rounds))
        return PrivacyStatement(
            parties=tuple(parts),
            same_people=False,
            max_holders_per_person=self.config.max_holders_per_person,
            adjacency=self.adjacency,
            local=self.local,
            outside=OUTSIDE + remarks(notes),
            unguarded=self.unguarded,
        )

    def rounds_of(self, name: str, spend: Spend) -> int:
        return max(1, *spend.values()) if spend else 1

    def card(self, privacy: PrivacyStatement) -> dict[str, Any]:
        common = {
            "gone": self.parties.gone,
            "people": sum(self.hosted.values()),
            "left_out": left_out(self.begun),
        }
        return card_of(
            self.protocol,
            self.config,
            self.done,
            self.ended,
            privacy,
            **common | self.card_extra(),
        )


class TableOpening(Opening):
    """The run's settings, and the columns that all parties' rows have."""

    schema: dict[str, Any]


class Survey(Run):
    """Everybody is asked, some people of every party in each turn."""

    begin: ClassVar[type[TableOpening]]
    least = 1
    # of each its part of the run, and the first of the people who are asked
    turns: list[tuple[int, int]]

    def __init__(
        self, config: Any, parties: Parties, schemas: Mapping[str, Any]
    ) -> None:
        super().__init__(config, parties)
        self.schema = self.common(schemas)

    @classmethod
    def common(cls, schemas: Mapping[str, Any]) -> Any:
        """The one schema of all parties, without what a holder may call or note as it
        likes.
        """
        for name, schema in schemas.items():
            if not TABLE.describes(schema):
                raise ConfigError(
                    f"{name}: {cls.protocol} is for tables, not for arrays.",
                    effect=Effect.NOTHING_CHARGED,
                )
        return Schema(
            columns=all_alike(
                {name: schema.columns for name, schema in schemas.items()}
            )
        )

    def opening(self) -> TableOpening:
        return self.begin(config=asdict(self.config), schema=self.schema.to_dict())

    def step(self, round: int) -> None:
        asks = {
            name: ask
            for name, ask in self.asks(round).items()
            if name in self.parties.names
        }
        self.hear(asks, self.parties.ask(asks))
        self.done = self.parties.round = round

    @abstractmethod
    def asks(self, round: int) -> Mapping[str, Call]:
        """What the people of each party are asked in a turn: the same whenever it is
        asked for.
        """

    @abstractmethod
    def hear(self, asks: Mapping[str, Call], answers: Mapping[str, Reported]) -> None:
        """Take what they reported."""

    def save(self) -> None:
        if self.done > self.saved:
            super().save()
            self.saved = self.done

    def parts(
        self, network: Any, card: dict[str, Any]
    ) -> GeneratorParts | ClassifierParts:
        return GeneratorParts(network, self.schema, card)


def own_table(party: HostParty, ask: TableOpening, protocol: str) -> Table:
    """The party's table, if the run is about such a one."""
    if not TABLE.holds(party.data):
        raise ConfigError(
            f"{party.name}: {protocol} is for tables, not for arrays.",
            effect=Effect.NOTHING_CHARGED,
        )
    if Schema.from_dict(ask.schema).columns != party.data.schema.columns:
        raise SchemaError(
            f"{party.name}: the run is about another schema.",
            effect=Effect.NOTHING_CHARGED_OR_SENT,
        )
    return party.data


class TwoRounds(Survey):
    who: dict[str, tuple[Tensor, Tensor]]  # of each party, by round

    def __init__(
        self, config: Any, parties: Parties, schemas: Mapping[str, Any]
    ) -> None:
        super().__init__(config, parties, schemas)
        self.answers: list[dict[str, Tensor]] = []  # of each turn
        # and what they are about, where people drew that by themselves
        self.chosen: list[dict[str, Tensor]] = []

    def divide(self, share: float) -> None:
        """A `share` of all people are asked in the first round, `config.batch` of a
        party at a time.
        """
        total = sum(self.hosted.values())
        ends = np.cumsum(list(self.hosted.values()))[:-1]
        early = np.zeros(total, dtype=bool)
        rng = np.random.default_rng((self.config.seed, 0))
        early[rng.permutation(total)[: round(share * total)]] = True
        self.who = {
            name: (
                torch.from_numpy(np.flatnonzero(part)),
                torch.from_numpy(np.flatnonzero(~part)),
            )
            for name, part in zip(self.hosted, np.split(early, ends), strict=True)
        }
        longest = [
            max(len(who[stage]) for who in self.who.values()) for stage in (0, 1)
        ]
        self.turns = [
            (s, start)
            for s in (0, 1)
            for start in range(0, longest[s], self.config.batch)
        ]
        self.rounds = len(self.turns)

    def hear(self, asks: Mapping[str, Any], answers: Mapping[str, Reported]) -> None:
        values: dict[str, Any] = {
            name: reply.reports.value for name, reply in answers.items()
        }
        choices = {
            name: own_choices(value, len(asks[name].people))
            for name, value in values.items()
        }
        self.chosen.append(
            {name: which for name, which in choices.items() if which is not None}
        )
        sent = {
            name: value if choices[name] is None else value["reports"]
            for name, value in values.items()
        }
        self.answers.append({name: _as_bytes(value) for name, value in sent.items()})

    def to_save(self) -> dict[str, Any]:
        return {"answers": self.answers, "chosen": self.chosen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.answers = state["answers"]
        self.chosen = state["chosen"]

    @property
    def asked_spend(self) -> dict[str, Spend]:
        return {name: {PureDp(self.config.epsilon_total): 1} for name in self.begun}

    def turn(self, round: int) -> tuple[int, slice, dict[str, Tensor]]:
        """In which of the two rounds a turn is, which part of it, and whom of each
        party it asks, if anybody.
        """
        stage, start = self.turns[round - 1]
        part = slice(start, start + self.config.batch)
        people = {name: who[stage][part] for name, who in self.who.items()}
        return stage, part, {name: who for name, who in people.items() if len(who)}

    def sent(self, stage: int) -> Iterator[tuple[int, str, Tensor]]:
        """All bytes that came in one of the two rounds: in which turn, from which
        party.
        """
        for number, (turn, answers) in enumerate(
            zip(self.turns, self.answers, strict=False), 1
        ):
            if turn[0] == stage:
                yield from ((number, name, sent) for name, sent in answers.items())

    def counted(self, reports: int, refused: int) -> dict[str, Any]:
        """What the card says of all reports."""
        every = {"all": reports, "refused": refused, "of the busiest person": 1}
        bytes_sent = sum(
            len(sent) for stage in (0, 1) for _, _, sent in self.sent(stage)
        )
        return {"law": LAW, "reports": every, "bytes": bytes_sent}


def own_choices(value: Any, people: int) -> Tensor | None:
    """What each of those who came, up to so many, has drawn by themselves, where a
    party says it: int64, (n,).
    """
    which = (
        value.get("which") if isinstance(value, dict) and "reports" in value else None
    )
    fits = (
        isinstance(which, Tensor)
        and which.dtype == torch.int64
        and which.ndim == 1
        and len(which) <= people
    )
    return which if fits else None


def _as_bytes(value: Any) -> Tensor:
    fits = isinstance(value, Tensor) and value.dtype == torch.uint8 and value.ndim == 1
    return value if fits else torch.zeros(0, dtype=torch.uint8)

"""Everybody reports on a row, a few people of each party at a time: LoPub, one report a person, class means.

Guarantee: the server's side is post-processing of the parties' paid answers.
Edges: ends early, with the reports that it has, when somebody's budget is spent. With a `checkpoint` folder the reports
are saved as they come, and a resumed run asks for those that are missing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import ArtefactError, BudgetExceeded, ConfigError, SchemaError
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.protocols.core import Opening, Parties, Watcher, public_values, settled
from understudy.protocols.core.loop import Checkpoint, Outcome, Present, run_rounds
from understudy.protocols.people.host import Call, HostParty, Reported, left_out, statement


@dataclass(frozen=True, kw_only=True)
class TableOpening(Opening):
    """The run's settings, and the columns that all parties' rows have."""

    schema: dict[str, Any]


def own_table(party: HostParty, ask: TableOpening, protocol: str) -> Table:
    """The party's table, if the run is about such a one."""
    if not TABLE.holds(party.data):
        raise ConfigError(f"{party.name}: {protocol} is for tables, not for arrays. Nothing was charged.")
    if Schema.from_dict(ask.schema).columns != party.data.schema.columns:
        raise SchemaError(f"{party.name}: the run is about another schema. Nothing was charged or sent.")
    return party.data


class Survey(ABC):
    """Whom the server asks, and what they reported. A protocol's `train` is that of its survey."""

    protocol: ClassVar[str]
    begin: ClassVar[type[TableOpening]]
    # of which each asks some people of every party: its part of the run, its first person
    turns: list[tuple[int, int]]

    @classmethod
    def train(
        cls,
        config: Any,
        parties: Parties,
        schemas: Mapping[str, Schema],
        *,
        checkpoint: Path | None = None,
        resume: bool = False,
        watch: Watcher | None = None,
    ) -> Any:
        """Ask everyone, and fit a generator, or what else the protocol makes, to the reports.

        Ends early, with the reports that it has, when somebody's budget is spent. With a `checkpoint` folder the
        reports are saved as they come, and `resume=True` asks for those that are missing.
        """
        schema = cls.common({name: schemas[name] for name in parties.names})
        survey = cls(config, parties, schema, checkpoint)
        survey.open(resume=resume)
        return survey.run(watch)

    @classmethod
    def common(cls, schemas: Mapping[str, Any]) -> Any:
        """The one schema of all parties."""
        return common_schema(schemas, cls.protocol)

    def __init__(self, config: Any, parties: Parties, schema: Any, checkpoint: Path | None) -> None:
        self.config, self.schema = config, schema
        self.parties = Present(parties, config.at_least)
        self.store = None if checkpoint is None else Checkpoint(checkpoint, self.parties)

    def open(self, *, resume: bool) -> None:
        """Begin at every party, or go on from what was saved; and plan whom to ask."""
        saved = self.store.load() if self.store is not None and resume else None
        self.done, state = saved or (0, {})
        if saved is None:
            begin = self.begin(config=asdict(self.config), schema=self.schema.to_dict())
            self.begun = public_values(self.parties.ask(begin))
        else:
            if state["config"] != asdict(self.config):
                raise ArtefactError(
                    "The saved run has other settings: resume it as it was. Nothing was charged."
                )
            self.begun = state["begun"]
            self.take(state)
        self.saved = self.done
        self.hosted = {name: int(info["people"]) for name, info in self.begun.items()}
        self.plan_turns()

    @abstractmethod
    def plan_turns(self) -> None:
        """Set the `turns`, once it is known how many people each party has."""

    @abstractmethod
    def asks(self, round: int) -> Mapping[str, Call]:
        """What the people of each party are asked in a turn."""

    @abstractmethod
    def hear(self, asks: Mapping[str, Call], answers: Mapping[str, Reported]) -> None:
        """Take what they reported."""

    @abstractmethod
    def reported(self) -> dict[str, Any]:
        """All reports so far, to be saved."""

    @abstractmethod
    def take(self, state: Mapping[str, Any]) -> None:
        """Go on from reports that were saved."""

    @property
    @abstractmethod
    def asked(self) -> dict[str, Spend]:
        """What each party's people paid at most, by what they were asked."""

    @abstractmethod
    def fit(self) -> Any:
        """What comes of all reports: a generator's network, ready to draw from, where `outcome` says nothing else."""

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """What else the card says; asked for after the fit."""

    def run(self, watch: Watcher | None) -> Any:
        """All turns that are left, and the fit."""
        ended = run_rounds(
            len(self.turns), self.step, done=self.done, save=self.save, every=1, watch=watch,
            spent=lambda: statement(self.begun, self.asked).per_party(),
        )  # fmt: skip
        if not self.done:
            raise BudgetExceeded(ended)
        found, privacy = self.fit(), self.privacy()
        return self.outcome(found, privacy, self.card(ended, privacy))

    def outcome(self, found: Any, privacy: PrivacyStatement, card: dict[str, Any]) -> Any:
        """The artefact, what it cost and how many took part."""
        return Outcome(GeneratorParts(found, self.schema, card), privacy, card["people"])

    def step(self, round: int) -> None:
        """Ask the people of the next turn, and count it as done."""
        asks = {name: ask for name, ask in self.asks(round).items() if name in self.parties.names}
        self.hear(asks, self.parties.ask(asks))
        self.done = self.parties.round = round

    def save(self) -> None:
        """Keep the rounds that are done. One that was cut off is asked again, so nothing of it may be kept."""
        if self.store is not None and self.done > self.saved:
            self.store.save(
                self.done, {"begun": self.begun, "config": asdict(self.config), **self.reported()}
            )
            self.saved = self.done

    def privacy(self) -> PrivacyStatement:
        """What was paid, by the parties' ledgers."""
        spends = self.asked | {
            name: spends["anyone"] for name, spends in settled(self.parties, at_least=0).items()
        }
        return statement(self.begun, spends, gone=self.parties.gone, most_holders=self.config.most_holders)

    def card(self, ended: str, privacy: PrivacyStatement) -> dict[str, Any]:
        """What is to be said of the run."""
        return {
            "protocol": self.protocol,
            "config": asdict(self.config),
            "rounds": self.done,
            "ended": ended,
            "gone": self.parties.gone,
            "people": sum(self.hosted.values()),
            "left_out": left_out(self.begun),
            **self.told(),
            "privacy": privacy.to_dict(),
        }


def common_schema(schemas: Mapping[str, Schema], protocol: str) -> Schema:
    """The one schema of all parties, without what a holder may call or note as it likes."""
    (first, schema), *others = schemas.items()
    for name, other in others:
        if not TABLE.describes(other) or not TABLE.describes(schema) or other.columns != schema.columns:
            raise ConfigError(
                f"{first} and {name} do not describe their rows in the same way: over rows, all parties have the same "
                "columns, levels and bounds. Nothing was charged."
            )
    if not TABLE.describes(schema):
        raise ConfigError(f"{first}: {protocol} is for tables, not for arrays. Nothing was charged.")
    return Schema(columns=schema.columns)

"""An enemy that stays: a server that draws protocols, settings and asks at random,
against parties of two worlds.

    make attack                   # ten minutes
    make attack S=60 SEED=7
    python tests/adversary/campaign.py --seconds 60 --seed 7 --only gen-fl

The worlds differ in one person's row; parties, seeds and asks are the same. A trial is
a run of one protocol with some settings at the ends of their ranges, in which other
asks come between those of the run: changed ones (not a number, infinite, subnormal,
huge, of another shape), repeated ones, `Keep` and `Return`, an alignment. In every
second trial parties are behind their journals, as over a network, and the server goes
back: it begins again, asks the same up to some place, something else there, and hands
on what follows. It looks for

- not finite: an answer, or what goes into noise, that is not a finite number;
- bound: what goes into noise moves by more than the mechanism's bound when one person's
  row is another, or leaves;
- noise: a mechanism whose result does not have the noise that it drew;
- course: an answer, a refusal or its words that depend on a person's row in any other
  way;
- receipt: an answer that bears no receipt of this moment, or a price that depends on
  rows;
- pads: two releases of one party under the same pads, which differ by its own sums and
  noise alone;
- price: a ledger that holds less than what was used, or whose ε is below that of a
  second, independent accountant.

It prints what it tried and found, and the seed, and exits with 1 where something was
found. What it finds in a trial is found again by that trial's own seed.
"""

import argparse
import math
import random
import re
import sys
import tempfile
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

sys.path += [
    str(Path(__file__).parents[1] / folder)
    for folder in ("", "adversary", "contract", "runtime")
]

import numpy as np
import pandas as pd
import torch
from mutations import Enemy
from network_cases import Network
from protocol_cases import CASES, Case
from second_accountant import composed, least_epsilon, pairs
from sites import Sites, named, tapped
from torch import Tensor
from undisturbed import entries_in

from understudy.data.arrays import ArrayTable
from understudy.data.encoding.population import Population
from understudy.ground import errors
from understudy.ground.errors import ConfigError, MessageError, UnderstudyError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Ask, Paid, Party, Public, Reply
from understudy.runs.federation import Federation
from understudy.runtime.contract import Contract, digest_of, units_of
from understudy.runtime.journal import AskId
from understudy.runtime.local import addressed
from understudy.runtime.session import Session
from understudy.runtime.wire import decode, encode, refusal

# of a contract under which a server may go back and pay again
WIDE = Budget(90.0, 1e-5)
BACK = 0.06  # how often it does, before an ask
UNIFORM = 1 << 24  # numbers under pads are larger than this, nearly all
NEAR = 1 << 16  # and two of them are nearer than this if the pads were the same
# uses that the second accountant multiplies out, which takes it seconds
MOST_PRICED = 6
ONE_IN = 6


def spoilt() -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows of one site at the ends of float32: what a population may hold, since no
    schema bounds it.
    """
    rng = np.random.default_rng(5)
    rows = rng.random((24, 3), np.float32)
    for place, value in enumerate((3e38, -3e38, 1e-45, 1e20, -1e9, 1e-20, 1e9)):
        rows[place, place % 3] = value
    return {
        "site": Population.from_arrays(
            rows, rng.integers(0, 2, 24), classes=2, rows_per_person=8
        )
    }, {}


SPOILT = Case(
    "DP-GenFL, rows at the ends of float32",
    "gen-fl",
    {
        "rounds": 3,
        "clients_per_round": 3,
        "max_reports": 3,
        "epsilon": 3.0,
        "rows": 8,
        "batch": 4,
        "steps": 2,
        "share": 0.0,
        "model": "logistic",
        "device": "cpu",
    },
    spoilt,
)
TRIED = [*CASES, SPOILT, SPOILT]


@dataclass
class Tally:
    """What was tried and found."""

    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    found: Counter[tuple[str, str]] = field(default_factory=Counter)
    words: list[str] = field(default_factory=list)

    def text(self) -> str:
        kinds = (
            "trials",
            "asks",
            "answered",
            "paid",
            "refused",
            "failed inside",
            "went back",
            "priced",
        )
        lines = [
            f"{'protocol':14}"
            + "".join(f"{kind:>14}" for kind in kinds)
            + f"{'FOUND':>8}"
        ]
        for protocol in sorted({name for name, _ in self.tried}):
            numbers = (self.tried[protocol, kind] for kind in kinds)
            bad = sum(n for (name, _), n in self.found.items() if name == protocol)
            lines.append(
                f"{protocol:14}" + "".join(f"{n:14,}" for n in numbers) + f"{bad:8,}"
            )
        return "\n".join(lines + self.words[:40])


# Two worlds


def neighbours(
    case: Case, rng: random.Random
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The tables of a case, those in which one person has another row, and the
    schemas.
    """
    tables, schemas = case.data()
    others = dict(tables)
    frames = {
        name: table for name, table in tables.items() if isinstance(table, pd.DataFrame)
    }
    visits = {name: table for name, table in tables.items() if isinstance(table, dict)}
    known = {
        name: getattr(schemas[name], "person", "id") for name in (*frames, *visits)
    }
    ids = sorted(
        {person for name, frame in frames.items() for person in frame[known[name]]}
        | {
            person
            for name, two in visits.items()
            for person in two["people"][known[name]]
        }
    )
    person = rng.choice(ids) if ids else None
    for name, two in visits.items():
        others[name] = _other_events(two, schemas[name], person, rng)
    for name, frame in frames.items():
        kept = (
            {known[name], case.settings.get("target")}
            if case.protocol == "sgde"
            else {known[name]}
        )
        here = np.flatnonzero(frame[known[name]] == person)
        # there a price is of one row
        here = here[:1] if case.protocol == "gen-fl" else here
        changed = frame.copy()
        for column in [column for column in frame.columns if column not in kept]:
            for place in here:
                changed.iloc[place, frame.columns.get_loc(column)] = frame[column].iloc[
                    rng.randrange(len(frame))
                ]
        others[name] = changed
    for name, table in tables.items():
        if isinstance(table, Population):
            rows = table.rows.clone()
            inside = (0.0, 1.0, 1e-40, 0.3)
            # which takes pixels alone
            ends = () if case.protocol == "sgde" else (-3e38, 3e38, -1e6, 1e9, 1e18)
            rows[rng.randrange(len(rows))] = rng.choice((*inside, *ends))
            others[name] = replace(table, rows=rows)
        if isinstance(table, ArrayTable) and case.protocol == "moments":
            others[name] = _another(table, rng, rng.randrange(len(table.ids)))
        if (
            isinstance(table, ArrayTable)
            and case.protocol == "tied"
            and person in table.ids
        ):
            others[name] = _another(
                table, rng, int(np.flatnonzero(table.ids == person)[0])
            )
    return tables, others, schemas


def _other_events(
    two: dict[str, Any], schema: Any, person: Any, rng: random.Random
) -> dict[str, Any]:
    """The same with another row and other events of one person; where events are drawn,
    as many of them.

    Else draws of other people's events would be others, too, and the worlds could not
    be compared.
    """
    people = two["people"].copy()
    events = two["events"]
    here = np.flatnonzero(people[schema.person] == person)
    for place in here:
        people.iloc[place, 1:] = people.iloc[rng.randrange(len(people)), 1:]
    mine = events[events[schema.person] == person]
    if not len(here):
        return two
    count = rng.choice((0, 1, 3, 40)) if schema.cut == "first" else len(mine)
    made = events.iloc[
        [rng.randrange(len(events))] * count
        if rng.random() < 0.5
        else [rng.randrange(len(events)) for _ in range(count)]
    ]
    rest = events[events[schema.person] != person]
    return {
        "people": people,
        "events": pd.concat([rest, made.assign(**{schema.person: person})]),
    }


def _another(
    table: ArrayTable[Any], rng: random.Random, person: int
) -> ArrayTable[Any]:
    """The same with other values and classes in all rows of one person."""
    values = table.values.copy()
    here = slice(table.starts[person], table.starts[person + 1])
    values[here] = rng.choice((0.0, 1.0, 0.5, rng.random()))
    classes = None if table.classes is None else table.classes.copy()
    if classes is not None:
        classes[here] = rng.randrange(math.prod(table.schema.label_sizes))
    return replace(table, values=values, classes=classes)


class Lives:
    """A party behind its journal: whoever asks may begin again, as a server does that
    was killed.
    """

    def __init__(self, session: Session, kinds: Any) -> None:
        self.session = session
        self.kinds = kinds
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.begin()

    def begin(self) -> None:
        self.life = uuid.uuid4().hex
        self.number = 0

    @property
    def holder(self) -> Party:
        return self.session._party

    @property
    def repeated(self) -> bool:
        """Whether the last answer is one of the journal's."""
        return bool(self.log) and self.log[-1][0] == "answer repeated"

    def answer(self, ask: Ask) -> Reply:
        try:
            data = encode(ask)
        except (UnderstudyError, OverflowError, TypeError, ValueError):
            raise MessageError("this cannot be sent.") from None
        self.number += 1
        self.log.clear()
        answer = self.session.answer(AskId(self.life, self.number), data)
        if answer.status == "reply":
            reply = decode(answer.body, self.kinds)
            assert isinstance(reply, Reply)
            return reply
        failed = [facts["kind"] for event, facts in self.log if event == "failed"]
        if failed and not hasattr(errors, failed[0]):
            raise RuntimeError(f"failed inside: {failed[0]}")
        raise refusal(self.session.participant.name, answer.body)


class _Log:
    """In place of an audit log: what was written since the last ask."""

    def __init__(self) -> None:
        self.lives: Lives | None = None

    def write(self, event: str, **facts: Any) -> None:
        if self.lives is not None:
            self.lives.log.append((event, facts))


class Worlds:
    """`Parties` of two worlds, asked alike; the server of the run goes by the answers
    of the first.
    """

    def __init__(
        self,
        trial: "Trial",
        worlds: list[dict[str, Party]],
        ledgers: list[dict[str, Any]],
    ) -> None:
        self.trial = trial
        self.worlds = worlds
        self.ledgers = ledgers
        self.earlier: dict[str, list[Ask]] = {name: [] for name in worlds[0]}
        self.rounds: list[dict[str, Ask]] = []  # all that was asked and answered
        self.released: dict[str, list[Tensor]] = {name: [] for name in worlds[0]}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.worlds[0])

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        replies = {}
        if self.trial.goes_back and self.rounds and self.trial.rng.random() < BACK:
            self.go_back()
            self.replay(len(self.rounds))
        asks = addressed(message, self.names)
        for name, ask in asks.items():
            for other in self.trial.enemy.between(ask, self.earlier[name]):
                # a refusal; what must not be is told to the trial
                with suppress(Exception):
                    self.put(name, other)
            replies[name] = self.put(name, ask)
            self.earlier[name].append(ask)
        self.rounds.append(dict(asks))
        return replies

    def replay(self, until: int) -> None:
        """Begin again, and ask the same, as far as it is answered."""
        for world in self.worlds:
            for lives in world.values():
                lives.begin()
        for asks in self.rounds[:until]:
            if self.all_answer(asks) is None:
                return

    def all_answer(self, asks: Mapping[str, Ask]) -> dict[str, Any] | None:
        """All replies, or None where somebody refuses; what must not be is told to the
        trial.
        """
        replies = {}
        for name, ask in asks.items():
            with suppress(Exception):
                replies[name] = self.put(name, ask)
        return replies if len(replies) == len(asks) else None

    def go_back(self) -> None:
        """The same up to some place, something else there, and from then on the same
        asks about what was answered.
        """
        self.trial.count("went back")
        place = self.trial.rng.randrange(len(self.rounds))
        self.replay(place)
        replies = self.all_answer(self.trial.enemy.another(self.rounds[place]))
        for asks in self.rounds[place + 1 :]:
            if replies is None:
                return
            inboxes = delivered(replies)
            told = {
                name: replace(ask, inbox=inboxes[name])
                if hasattr(ask, "inbox") and name in inboxes
                else ask
                for name, ask in asks.items()
            }
            replies = self.all_answer(told)

    def put(self, name: str, ask: Ask) -> Reply:
        """One ask in both worlds, and what is the matter with the answers."""
        trial = self.trial
        outcomes = []
        for world, parties in enumerate(self.worlds):
            ledger = self.ledgers[world][name]
            entries = entries_in(ledger)
            party: Any = parties[name]
            trial.sites.begin(world, getattr(party, "holder", party), ask)
            try:
                reply: Reply | Exception = parties[name].answer(ask)
                trial.sites.end()
            except Exception as error:
                reply = error
            outcomes.append(reply)
            if isinstance(reply, Reply) and not getattr(party, "repeated", False):
                trial.receipts(reply, ledger, entries)
                if world == 0:
                    trial.pads(reply, self.released[name])
        first, second = outcomes
        trial.compare(ask, first, second)
        if self.ledgers[0][name].spend() != self.ledgers[1][name].spend():
            trial.find(
                "receipt", f"{ask.kind()}: what the ledgers hold depends on a row"
            )
        if isinstance(first, Exception):
            raise first
        return first


def delivered(replies: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each holder's inbox, from whatever the outboxes of all hold for it: under
    encryption not everybody writes to everybody.
    """
    boxes = {
        name: reply.outbox.value
        for name, reply in replies.items()
        if hasattr(reply, "outbox")
    }
    return {
        receiver: {
            sender: box[receiver] for sender, box in boxes.items() if receiver in box
        }
        for receiver in boxes
    }


@dataclass
class Trial:
    """One run of one protocol, by one seed."""

    case: Case
    seed: int
    tally: Tally
    goes_back: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.enemy = Enemy(self.rng)
        self.sites = Sites(self.find)
        self.over: Exception | None = None

    def find(self, kind: str, words: str) -> None:
        """Something that must not be: once in a trial for each kind, since one brings
        others with it.
        """
        if self.tally.found[self.case.protocol, f"{kind} {self.seed}"] == 0:
            self.tally.found[self.case.protocol, f"{kind} {self.seed}"] += 1
            self.tally.words.append(
                f"FOUND, {kind}, by seed {self.seed}, {self.case.name}: {words}"
            )

    def count(self, kind: str) -> None:
        self.tally.tried[self.case.protocol, kind] += 1

    def run(self) -> None:
        torch.manual_seed(self.seed)
        self.count("trials")
        budget = self._budget()
        try:
            config = self.case.record.config(
                **self.enemy.settings(self.case.record.config, self.case.settings)
            )
        except ConfigError:
            self.count("refused")
            return
        one, two, schemas = neighbours(self.case, self.rng)
        allowed = WIDE if self.goes_back else budget
        federations = [
            Federation.rehearsal(
                tables,
                schemas,
                budget=allowed,
                seed=self.seed % 1000,
                same_people=self.case.same_people,
            )
            for tables in (one, two)
        ]
        with (
            tempfile.TemporaryDirectory() as folder,
            tapped(self.sites),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            worlds: list[dict[str, Any]] = [
                self._behind_journals(
                    federation, config, budget, Path(folder) / str(number)
                )
                if self.goes_back
                else federation.parties(
                    self.case.protocol,
                    config=config,
                    run="r",
                    folder=Path(folder) / str(number),
                )
                for number, federation in enumerate(federations)
            ]
            ledgers = [
                {name: holder.ledger for name, holder in f.holders.items()}
                for f in federations
            ]
            parties = Worlds(self, worlds, ledgers)
            try:
                self.case.record.train(config, parties, federations[0].schemas)
            except (
                UnderstudyError,
                ArithmeticError,
                LookupError,
                RuntimeError,
                TypeError,
                ValueError,
            ) as why:
                self.over = why
                # the server's own code need not bear what the enemy did to its run
                self.count("ended early")
            for _ in range(3 if self.goes_back and parties.rounds else 0):
                parties.go_back()
        for name, ledger in ledgers[0].items():
            self.price(name, ledger, budget)

    def _behind_journals(
        self, federation: Federation, config: Any, budget: Budget, folder: Path
    ) -> dict[str, Any]:
        """The parties, each with a session of a contract that has room for more than
        one price.
        """
        record = self.case.record
        schemas = federation.schemas
        network = Network(folder, *schemas)
        contract = Contract(
            federation="test",
            run="r",
            protocol=self.case.protocol,
            settings=asdict(config),
            schemas={name: digest_of(schema) for name, schema in schemas.items()},
            budgets=dict.fromkeys(schemas, WIDE),
            units=units_of(schemas),
        )
        found: dict[str, Any] = {}
        builds: Counter[str] = Counter()
        for name, holder in federation.holders.items():

            def build(
                contract: Contract, ledger: Ledger, folder: Path, holder: Any = holder
            ) -> Party:
                more = {
                    "run": contract.run,
                    "budget": budget,
                    "rng": holder.rng(),
                    "folder": folder,
                    "config": config,
                }
                party: Any = record.build(holder.name, holder.table, ledger, **more)
                builds[holder.name] += 1
                load = party.load_state_dict

                def put_back(state: dict[str, Any]) -> None:
                    """And with other noise from there on, as a real party has it."""
                    load(state)
                    party.rng.normal(builds[holder.name])

                party.load_state_dict = put_back
                self.sites.holder = party
                made: Party = party
                return made

            log: Any = _Log()
            participant = network.participant(
                name,
                build=build,
                description=schemas[name],
                ledger=holder.ledger,
                log=log,
            )
            found[name] = log.lives = Lives(participant.open(contract), record.messages)
        return found

    def pads(self, reply: Reply, earlier: list[Tensor]) -> None:
        """No two releases under pads are so near to each other that their pads were the
        same.
        """
        for value in vars(reply).values():
            for one in _tensors(value.value) if isinstance(value, Paid) else ():
                words = one.flatten()
                if (
                    words.dtype != torch.int64
                    or words.numel() < 4
                    or (words.abs() > UNIFORM).double().mean() < 0.9
                ):
                    continue
                for other in earlier:
                    if _same_pads(words, other):
                        self.find(
                            "pads",
                            f"{reply.kind()}: two releases differ by "
                            f"{(words - other)[:6].tolist()}",
                        )
                earlier.append(words)

    def _budget(self) -> Budget:
        plain = self.case.budget
        if self.case.protocol in (
            "sign-ds",
            "fed-wae",
            "wake-sleep",
            "fed-stdg",
            "lopub",
            "gen-fl",
            "dplt",
            "two-aggregators",
            "shared-moments",
            "one-report",
            "class-means",
        ):
            return Budget(
                3 * plain.epsilon, plain.delta
            )  # their settings name the price; what is asked again costs more
        return Budget(
            self.rng.choice((0.1, 1.0, plain.epsilon)),
            self.rng.choice((1e-7, 1e-5)),
            plain.against,
        )

    # What must hold

    def receipts(self, reply: Reply, ledger: Any, before: int) -> None:
        """Whatever was computed from rows bears a receipt of an entry that this ask
        made; all of it is finite.
        """
        paid = any(isinstance(value, Paid) for value in vars(reply).values())
        written = (
            {entry.number: entry for entry in ledger.entries()[before:]} if paid else {}
        )
        for item in fields(reply):
            value = getattr(reply, item.name)
            if isinstance(value, Paid):
                entry = written.get(value.receipt.entry)
                if (
                    entry is None
                    or entry.description != value.receipt.description
                    or value.receipt.ledger != ledger.id
                ):
                    self.find(
                        "receipt",
                        f"{reply.kind()}.{item.name} bears no receipt of this moment",
                    )
            if not all(bool(one.isfinite().all()) for one in _tensors(value.value)):
                self.find("not finite", f"{reply.kind()}.{item.name} is not finite")

    def compare(
        self, ask: Ask, first: Reply | Exception, second: Reply | Exception
    ) -> None:
        self.count("asks")
        if isinstance(first, Exception):
            self.count(
                "refused" if isinstance(first, UnderstudyError) else "failed inside"
            )
        else:
            self.count("answered")
            if any(isinstance(value, Paid) for value in vars(first).values()):
                self.count("paid")
        if type(first) is not type(second):
            self.find(
                "course",
                f"{ask.kind()}: {_short(first)} in one world, {_short(second)} in "
                "the other",
            )
        elif isinstance(first, Exception) and str(first) != str(second):
            self.find(
                "course",
                f"{ask.kind()}: a refusal's words depend on a row: {first} | {second}",
            )
        elif isinstance(first, Reply):
            for name, value in vars(first).items():
                other = getattr(second, name)
                one, two = (_of_one_group(side) for side in (value.value, other.value))
                if not self._uniform(first, name, value) and not _same(one, two):
                    self.find(
                        "course",
                        f"{first.kind()}.{name} depends on a row past all mechanisms",
                    )

    def _uniform(self, reply: Reply, name: str, value: Any) -> bool:
        """Whether it is uniform to whoever reads it: masked or sealed by randomness
        that only the holders have.
        """
        return isinstance(value, Public) and "sealed" in value.reason

    def price(self, name: str, ledger: Any, budget: Budget) -> None:
        """The ledger holds at least what was used, and its ε is at least that of the
        second accountant.
        """
        spend = ledger.spend(against="outsider", run="r")
        held: Counter[str] = Counter()
        for event, times in spend.items():
            held[named(event)] += times
        for person, used in self.sites.used.items():
            if person.startswith(f"{name}, ") and not used <= held:
                self.find(
                    "price",
                    f"{person} used {dict(used)}, and the ledger holds {dict(held)}",
                )
        if 0 < sum(spend.values()) <= MOST_PRICED and self.rng.randrange(ONE_IN) == 0:
            self.count("priced")
            least = least_epsilon(
                composed([pairs(e) for e, n in spend.items() for _ in range(n)]),
                budget.delta,
            )
            stated = epsilon(spend, budget.delta)
            if stated < least * (1 - 1e-6):
                self.find(
                    "price",
                    f"the ledger states {stated:g}, and {least:g} is lost: {spend}",
                )


def _same_pads(one: Tensor, other: Tensor) -> bool:
    """Whether two releases, uniform each, are near to each other; the same one again
    tells nothing.
    """
    if one.shape != other.shape or torch.equal(one, other):
        return False
    near = (one - other).abs() < NEAR
    return float(near.double().mean()) > 0.5


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, float):
        yield torch.tensor(value)
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(one)


def _of_one_group(value: Any) -> Any:
    """Of parts of blocks by their names, "0×1", those that are not shares of a product
    of two holders' rows: these are uniform to whoever reads them.
    """
    if not isinstance(value, dict):
        return value
    groups = {key: re.match(r"(\d+)×(\d+)", str(key)) for key in value}
    return {
        key: part
        for key, part in value.items()
        if not (at := groups[key]) or at[1] == at[2]
    }


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor)
            and one.shape == other.shape
            and bool(torch.equal(one, other))
        )
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(_same(one[k], other[k]) for k in one)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _short(outcome: Reply | Exception) -> str:
    return (
        outcome.kind()
        if isinstance(outcome, Reply)
        else f"{type(outcome).__name__} ({str(outcome)[:160]})"
    )


def campaign(
    *,
    seed: int,
    trials: int | None = None,
    seconds: float | None = None,
    only: Callable[[Case], bool] = lambda case: True,
    goes_back: bool | None = False,
) -> Tally:
    """So many trials, or as many as there is time for; each protocol in its turn.
    `goes_back`: None for every second round of them.
    """
    tally = Tally()
    rng = random.Random(seed)
    cases = [case for case in TRIED if only(case)]
    end = time.monotonic() + (seconds or 0.0)
    number = 0
    while (number < trials) if trials is not None else (time.monotonic() < end):
        if number % len(cases) == 0:
            rng.shuffle(cases)
        back = bool(number // len(cases) % 2) if goes_back is None else goes_back
        Trial(cases[number % len(cases)], rng.randrange(2**31), tally, back).run()
        number += 1
    return tally


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**9)
    )
    options.add_argument(
        "--only", default="", help="a protocol's name, or part of a case's"
    )
    options.add_argument(
        "--trial",
        type=int,
        help="one trial again, by its own seed, of each case of --only",
    )
    options.add_argument(
        "--back", action="store_true", help="the server goes back in every trial"
    )
    chosen = options.parse_args()
    torch.set_num_threads(1)

    def only(case: Case) -> bool:
        return chosen.only in case.protocol or chosen.only in case.name

    if chosen.trial is not None:
        tally = Tally()
        for case in filter(only, TRIED):
            Trial(case, chosen.trial, tally, chosen.back).run()
    else:
        # first: a campaign that breaks can be run again
        print(f"seed {chosen.seed}", flush=True)  # noqa: T201
        tally = campaign(
            seed=chosen.seed,
            seconds=chosen.seconds,
            only=only,
            goes_back=chosen.back or None,
        )
    print(tally.text())  # noqa: T201
    found = sum(tally.found.values())
    print(f"{chosen.seconds:g} s, seed {chosen.seed}: {found} found.")  # noqa: T201
    return bool(tally.found.total())


if __name__ == "__main__":
    sys.exit(main())

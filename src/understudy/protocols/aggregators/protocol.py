"""Two aggregators: all one- and two-way tables of people of whom nobody sees a row, and a mixture fitted to them.

Each person splits their tables into two shares (`secure.table_shares`), one for the server, one for a second aggregator
that does not collude with it. Each of the two adds up what it has and adds its own full noise, and only the two sums
together can be read. Corrigan-Gibbs, Boneh, "Prio" (NSDI 2017), for the model; Boneh et al. (S&P 2021) for the check
that a person's tables are tables (`secure.sketch`); Canonne, Kamath, Steinke (NeurIPS 2020) for the noise; the fit is
that of `gram` (`models/tables/fit_gram.py`).

Guarantee: (ε, δ)-DP for the content of a person's upload against an outsider, against the server, and against the
second aggregator, in one price that the person's ledger and the second aggregator's hold. A liar has the weight of one
person in each table. Against both aggregators together there is no guarantee, and the statement says so.
Edges: who takes part is known to both; that a liar's tables agree with each other is not checked; either aggregator can
spoil the sum. A person uploads once; who goes away before that costs the others nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.answers.release import Release as TableRelease
from understudy.answers.release import tables_of
from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import with_rules
from understudy.data.codec import Codec
from understudy.data.no_rows import NoRows
from understudy.data.population import Population
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.errors import ConfigError, MessageError
from understudy.generator import Generator
from understudy.models.device import pick_device
from understudy.models.tables.fit_gram import fit_gram
from understudy.pack import Value
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure import Numbers, Sketch, mirrored, movable
from understudy.protocols.aggregators.collected import CollectingParty
from understudy.protocols.aggregators.host import UploadParty
from understudy.protocols.aggregators.messages import Begin, Check, Open, Release, Take, Upload
from understudy.protocols.aggregators.plan import Config, Plan
from understudy.protocols.aggregators.second import SecondAggregator
from understudy.protocols.aggregators.upload import marked
from understudy.protocols.core import (
    Ask,
    Checkpoint,
    Outcome,
    Parties,
    Present,
    Progress,
    Watcher,
    public_values,
    remarks,
    settled,
)
from understudy.protocols.core.base import VIEWS
from understudy.protocols.people.host import left_out

SAME_PEOPLE = False  # each person is with one host
RELEASED = "released"  # what is saved
ADJACENCY = "replace the content of one person's upload by nothing; that the person took part is public"
OUTSIDE = (
    "who takes part, and whose upload was refused: both aggregators know it",
    "the number of people",
    "the schema: columns, levels and bounds are public",
    "the size and the timing of messages",
)


def build_party(
    name: str, table: Table | Population | NoRows, ledger: Ledger, **more: Any
) -> UploadParty | SecondAggregator:
    """A party of this protocol: without rows the second aggregator, or who collects uploads in a box."""
    if isinstance(table, NoRows):
        party = SecondAggregator if table.box is None else CollectingParty
        return party(name, table, ledger, **more)
    return UploadParty(name, table, ledger, **more)


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Collect everybody's upload, release all tables once, and fit a generator to them.

    With a `checkpoint` folder what was released is saved before it is fitted, and `resume=True` goes on from there. An
    aggregator that goes away before the release ends the run. Over a network, where parties repeat what they have
    answered, a run that is resumed collects nothing twice; in one process, what was paid by then is lost.
    """
    plan = Plan.joint(config, {name: schemas[name] for name in parties.names})
    schema = with_rules(plan.schema, dict.fromkeys(rule for one in schemas.values() for rule in one.rules))
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    saved = store.noted(RELEASED) if store is not None and resume else None
    if saved is not None and saved["config"] != asdict(config):
        raise ConfigError("The saved run has other settings: resume it as it was. Nothing was charged.")
    if saved is None:
        saved = _Server(plan, parties, schemas).released() | {"config": asdict(config)}
        if store is not None:
            store.note(RELEASED, saved)
    there = [name for name in saved["begun"] if name not in saved["gone"]]
    privacy = _statement(
        plan, saved, settled(parties, there, at_least=0)
    )  # the sum is here: nobody is needed

    def look(done: int = 1) -> None:
        if watch is not None:
            watch(Progress(done, 2, privacy.per_party))

    look()
    sizes, device = Codec(plan.schema).sizes, pick_device(config.device)
    gram, spread = plan.matrix(saved["sums"].numpy()), mirrored(plan.matrix(plan.spread))
    network = fit_gram(
        gram.to(device),
        sizes,
        noise=torch.where(movable(sizes), spread, torch.inf).float().to(device),
        people=saved["people"],
        ties=rule_ties(Codec(schema)),
        target=None if config.target is None else schema.names.index(config.target),
        components=config.components,
        steps=config.steps,
        rate=config.rate,
        seed=config.seed,
        watch=lambda step, residual: look(),
    )
    look(2)
    card: dict[str, Any] = {
        "protocol": "two-aggregators",
        "config": asdict(config),
        "rounds": 1,
        "ended": "after the one release",
        "gone": saved["gone"],
        "people": saved["people"],
        "refused": saved["refused"],
        "left_out": left_out(
            {name: info for name, info in saved["begun"].items() if name != config.aggregator}
        ),
        "noise": {"of each aggregator": plan.sigma, "of a cell": float(plan.spread.max())}
        | (
            {} if config.target is None else {"of a cell of a pair with the target": float(plan.spread.min())}
        ),
        "upload_bytes": plan.format.size,
        "levels": dict(zip(plan.schema.names, sizes, strict=True)),
        "privacy": privacy.to_dict(),
    }
    found = _release(plan, gram, spread, card)
    card["release"] = found.card
    generator = Generator(network.cpu().eval(), schema, card, None, found)
    return Outcome(generator, privacy, saved["people"])


class _Hosts:
    """The parties without the second aggregator."""

    def __init__(self, parties: Parties, aggregator: str) -> None:
        self.parties = parties
        self.names = tuple(name for name in parties.names if name != aggregator)

    def ask(self, message: Ask | Mapping[str, Ask], *, at_least: int | None = None) -> dict[str, Any]:
        asks = dict.fromkeys(self.names, message) if isinstance(message, Ask) else message
        return self.parties.ask(asks, at_least=at_least)


class _Server:
    """The first aggregator: it has uploads made, passes on what is the second's, and adds up its own part."""

    def __init__(self, plan: Plan, parties: Parties, schemas: Mapping[str, Schema]) -> None:
        self.plan, self.parties = plan, parties
        self.hosts = Present(_Hosts(parties, plan.aggregator), plan.config.at_least)
        told: dict[str, Any] = {
            "config": asdict(plan.config),
            "schemas": {name: schemas[name].to_dict() for name in parties.names},
        }
        opened = public_values({plan.aggregator: self._second(Open(**told))})
        opened[plan.aggregator]["people"] = 0
        self.begun = (
            public_values(self.hosts.ask(Begin(key=opened[plan.aggregator].pop("key"), **told))) | opened
        )
        self.total = np.zeros(plan.cells.count, np.uint64)
        self.mark, self.people, self.refused, self.batches = bytes(32), 0, 0, 0

    def released(self) -> dict[str, Value]:
        """Everybody's uploads, batch by batch, and the sum of all who passed, with the noise of both aggregators."""
        size = self.plan.config.batch
        hosted = {name: int(self.begun[name]["people"]) for name in self.hosts.names}
        for start in range(0, max(hosted.values(), default=0), size):
            places = {
                name: torch.arange(start, min(start + size, people))
                for name, people in hosted.items()
                if start < people and name in self.hosts.names
            }
            replies = self.hosts.ask({name: Upload(round=1, people=who) for name, who in places.items()})
            for name, reply in replies.items():
                self._taken(reply.reports.value, len(places[name]))
            self.hosts.round = 1
        sums = self._second(Release(people=self.people, mark=self.mark)).sums.value
        theirs = self._numbers(sums, (self.plan.cells.count,))
        drawn, field = self.plan.noise(self._rng()), self.plan.field
        total = (self.total + theirs + field.numbers(drawn)) % np.uint64(field.prime)
        return {
            "sums": field.signed(total),
            "people": self.people,
            "refused": self.refused,
            "begun": self.begun,
            "gone": self.hosts.gone,
        }

    def _taken(self, uploads: Any, people: int) -> None:
        """A host's batch. Edges: not so many uploads → all of it is left out and counted, and the others' stay."""
        try:
            rows = self.plan.format.checked(uploads, people, self.plan.format.size)
        except MessageError:
            self.refused += people
            return
        self._batch(rows)

    def _batch(self, rows: Any) -> None:
        """Check a batch of uploads with the second aggregator, and add up those who pass."""
        plan, prime = self.plan, np.uint64(self.plan.field.prime)
        share = plan.format.first(rows)
        head = torch.from_numpy(np.ascontiguousarray(rows[:, : plan.format.head]))
        taken = self._second(Take(batch=self.batches, uploads=head))
        sketch = Sketch(plan.cells, taken.coin.value, plan.field)
        mine = sketch.look(share)
        shape = mine[0].shape
        z, y = ((own + self._numbers(theirs.value, shape)) % prime
                for own, theirs in zip(mine, (taken.z, taken.y), strict=False))  # fmt: skip
        sigma = sketch.judge(share, z, y)
        said = {
            name: _tensor(part) for name, part in zip(("z", "y", "sigma"), (*mine[:2], sigma), strict=True)
        }
        checked = self._second(Check(batch=self.batches, **said))
        opened = taken.opened.value
        if not isinstance(opened, Tensor) or opened.dtype != torch.bool or opened.shape != shape[:1]:
            raise MessageError(f"{plan.aggregator}: which uploads open was not told. The run ends.")
        passed = sketch.passed(sigma, self._numbers(checked.sigma.value, shape)) & opened.numpy()
        failed = sketch.sums(share.only(np.flatnonzero(~passed)))
        self.total = (self.total + plan.field.minus(mine[2], failed)) % prime
        self.mark = marked(self.mark, plan.format.keys(rows)[passed])
        self.people += int(passed.sum())
        self.refused += int((~passed).sum())
        self.batches += 1

    def _second(self, ask: Ask) -> Any:
        name = self.plan.aggregator
        return self.parties.ask({name: ask})[name]

    def _rng(self) -> SecureRng:
        """Secure, unless all of it is a rehearsal that is to be repeatable."""
        seeded = all("seed" in info["noise"]["rehearsal"] for info in self.begun.values())
        return SecureRng.from_seed(self.plan.config.seed) if seeded else SecureRng()

    def _numbers(self, part: Any, shape: tuple[int, ...]) -> Numbers:
        good = isinstance(part, Tensor) and part.dtype == torch.int64 and part.shape == shape
        if not good or bool(((part < 0) | (part >= self.plan.field.prime)).any()):
            raise MessageError(
                f"{self.plan.aggregator}: {shape} numbers of the field were due. The run ends."
            )
        numbers: Numbers = part.numpy().astype(np.uint64)
        return numbers


def _release(plan: Plan, gram: Tensor, spread: Tensor, card: Mapping[str, Any]) -> TableRelease:
    """All counts as they were released, with what they cost."""
    person, sizes = card["privacy"]["person"], plan.cells.sizes
    about = {
        "adjacency": ADJACENCY,
        "epsilon": person["epsilon"]["outsider"],
        "delta": person["delta"],
        "releases": [list(kind) for kind in plan.kinds],
        "people": card["people"],
    }
    every = torch.ones(len(sizes), len(sizes), dtype=torch.bool)
    kept = tables_of(gram, spread, every, sizes, "pairs")
    return TableRelease.from_tensors(
        Codec(plan.schema), kept | {"sizes": torch.tensor(sizes, dtype=torch.int32)}, about
    )


def _statement(
    plan: Plan, saved: Mapping[str, Any], spends: Mapping[str, Mapping[str, Spend]]
) -> PrivacyStatement:
    """What the run cost, by the hosts' and the second aggregator's ledgers: all for the one release."""
    asked = dict.fromkeys(VIEWS, plan.price)
    away = [name for name in saved["begun"] if name not in spends and name not in saved["gone"]]
    parties = tuple(
        PartyPrivacy.stated(name, info, *(spends.get(name, asked)[view] for view in VIEWS))
        for name, info in saved["begun"].items()
    )
    names = f"the server and {plan.aggregator}"
    both = (
        f"everything against both aggregators together: {names} could put any upload together, and so could "
        f"{plan.aggregator} with a party that collected it"
    )
    whose = (
        "who the second aggregator is: people seal their part to a key that the server passes on; ledgers hold its "
        "fingerprint"
    )
    return PrivacyStatement(
        parties=parties,
        same_people=False,
        most_holders=plan.config.most_holders,
        one_release=True,
        adjacency=ADJACENCY,
        together=names,
        outside=OUTSIDE
        + tuple(
            f"what the ledger of {name} says: it was away at the end, and its price is what was asked"
            for name in away
        )
        + remarks({name: note for name, note in saved["gone"].items() if name in saved["begun"]}),
        unguarded=(both,) if plan.config.key else (both, whose),
    )


def _tensor(numbers: Numbers) -> Tensor:
    return torch.from_numpy(numbers.astype(np.int64))

"""The server as the first aggregator: it has uploads made, checks them with the second,
and adds up its own part.

Guarantee: what it keeps of the run is the sum that both released, with the noise of
both, and who took part.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.kinds import NoRows
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.ground.pack import Value
from understudy.privacy.accounts.accounting import Spend, planned_gaussians
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.privacy.noise import SecureRng
from understudy.protocols.aggregators.host import CollectingParty, UploadParty
from understudy.protocols.aggregators.second import (
    Check,
    Open,
    ReleaseSum,
    SecondAggregator,
    UploadBatch,
)
from understudy.protocols.aggregators.terms import (
    BeginUploads,
    Tally,
    Terms,
    Upload,
    as_tensor,
)
from understudy.protocols.core import (
    VIEWS,
    Ask,
    Parties,
    Party,
    Watcher,
    public_values,
    settled,
)
from understudy.protocols.core.loop import (
    Checkpoint,
    Outcome,
    Present,
    card_of,
    remarks,
    two_steps,
)
from understudy.protocols.cross_device.host import left_out
from understudy.protocols.protocol import Protocol

RELEASED = "released"  # what is saved
OUTSIDE = (
    "who takes part, and whose upload was refused: both aggregators know it",
    "the number of people",
    "the schema: columns, levels and bounds are public",
    "the size and the timing of messages",
)


def protocol_of(terms: type[Terms], **more: Any) -> Protocol:
    """The protocol of such terms: hosts upload, a party without rows is the second
    aggregator, or collects uploads.
    """

    def party(name: str, rows: Any, ledger: Ledger, **options: Any) -> Party:
        if not isinstance(rows, NoRows):
            return UploadParty(name, rows, ledger, terms=terms, **options)
        if rows.box is not None and not hasattr(terms.form, "decodes"):
            raise ConfigError(
                f"{name}: uploads of tables alone are collected from devices.",
                effect=Effect.NOTHING_CHARGED,
            )
        kind = SecondAggregator if rows.box is None else CollectingParty
        return kind(name, rows, ledger, terms=terms, **options)

    def spends(config: Any, budget: Budget) -> Spend | None:
        """All of the noise is Gaussian, as much as the settings' price needs."""
        return planned_gaussians(config.epsilon, config.delta)

    return Protocol(
        name=terms.protocol,
        config=terms.settings,
        party=party,
        spends=spends,
        parties=(UploadParty, SecondAggregator, CollectingParty),
        train=partial(train_by, terms),
        same_people=False,
        audit="aggregators",
        **more,
    )


def train_by(
    terms: type[Terms],
    config: Any,
    parties: Parties,
    schemas: Mapping[str, Any],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Collect everybody's upload, release once what the terms count, and fit a
    generator to it. With a `checkpoint` folder what was released is saved before it is
    fitted; `resume=True` continues from there. Over a network, where parties repeat
    what they have answered, a run that is resumed collects nothing twice; in one
    process, what was paid by then is lost.
    """
    plan = terms.joint(config, {name: schemas[name] for name in parties.names})
    schema = plan.drawn(schemas)
    saved, privacy = _collected(plan, parties, schemas, checkpoint, resume=resume)
    look = two_steps(watch, privacy.per_party)
    look(1)
    hosts = {
        name: info for name, info in saved["begun"].items() if name != plan.aggregator
    }
    outcome = {key: saved[key] for key in ("gone", "people", "refused")}
    card = card_of(
        plan.protocol,
        config,
        1,
        "after the one release",
        privacy,
        **outcome,
        left_out=left_out(hosts),
        upload_bytes=plan.format.size,
    )
    generator = plan.fit(saved, card, schema, partial(look, 1))
    look(2)
    return Outcome(generator, privacy, saved["people"])


def _collected(
    plan: Terms,
    parties: Parties,
    schemas: Mapping[str, Any],
    checkpoint: Path | None,
    *,
    resume: bool,
) -> tuple[dict[str, Any], PrivacyStatement]:
    """What was released, saved before anything is fitted to it or taken from there, and
    what it cost.
    """
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    settings = asdict(plan.config)
    saved = store.noted(RELEASED) if store is not None and resume else None
    if saved is not None and saved["config"] != settings:
        raise ConfigError(
            "The saved run has other settings: resume it as it was.",
            effect=Effect.NOTHING_CHARGED,
        )
    if saved is None:
        saved = FirstAggregator.open(plan, parties, schemas).released() | {
            "config": settings
        }
        if store is not None:
            store.note(RELEASED, saved)
    present = [name for name in saved["begun"] if name not in saved["gone"]]
    # min_holders=0: the sum is here, and nobody is needed
    return saved, statement_of(plan, saved, settled(parties, present, min_holders=0))


class FirstAggregator(Tally):
    def __init__(self, plan: Terms, parties: Parties) -> None:
        super().__init__(plan)
        self.parties = parties
        self.hosts = Present(parties, plan.config.min_holders, besides=plan.aggregator)
        self.begun: dict[str, dict[str, Any]] = {}
        self.refused = 0

    @classmethod
    def open(
        cls, plan: Terms, parties: Parties, schemas: Mapping[str, Any]
    ) -> "FirstAggregator":
        first = cls(plan, parties)
        described = {name: schemas[name].to_dict() for name in parties.names}
        assembly: dict[str, Any] = {"config": asdict(plan.config), "schemas": described}
        opened = public_values({plan.aggregator: first._second(Open(**assembly))})
        opened[plan.aggregator]["people"] = 0
        begin = BeginUploads(key=opened[plan.aggregator].pop("key"), **assembly)
        first.begun = public_values(first.hosts.ask(begin)) | opened
        return first

    def released(self) -> dict[str, Value]:
        """Everybody's uploads, batch by batch, and the sum of all who passed, with the
        noise of both aggregators.
        """
        size = self.plan.config.batch
        hosted = {name: int(self.begun[name]["people"]) for name in self.hosts.names}
        max_people = self.plan.most_people
        if max_people is not None and sum(hosted.values()) > max_people:
            raise ConfigError(
                f"{sum(hosted.values()):,} people are more than {max_people:,}, whom a "
                "sum of numbers of this length can hold: take fewer bits.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        for start in range(0, max(hosted.values(), default=0), size):
            batch_hosts = {
                name: people
                for name, people in hosted.items()
                if start < people and name in self.hosts.names
            }
            positions = {
                name: torch.arange(start, min(start + size, people))
                for name, people in batch_hosts.items()
            }
            replies = self.hosts.ask(
                {name: Upload(round=1, people=who) for name, who in positions.items()}
            )
            for name, reply in replies.items():
                self._take(reply.reports.value, len(positions[name]))
            self.hosts.round = 1
        sums = self._second(ReleaseSum(people=self.people, mark=self.mark)).sums.value
        second_share = self.plan.numbers(
            sums, (self.plan.cells.count,), self.plan.aggregator
        )
        # secure, unless all of it is a rehearsal that is to be repeatable
        seeded = all(
            "seed" in info["noise"]["rehearsal"] for info in self.begun.values()
        )
        rng = SecureRng.from_seed(self.plan.config.seed) if seeded else SecureRng()
        field = self.plan.field
        total = (self.plan.noisy(self.total, rng) + second_share) % np.uint64(
            field.prime
        )
        release: dict[str, Value] = {
            "sums": field.signed(total),
            "people": self.people,
            "refused": self.refused,
        }
        return {**release, "begun": self.begun, "gone": self.hosts.gone}

    def _take(self, uploads: Any, people: int) -> None:
        """A host's batch. Edges: not so many uploads → all of it is left out and
        counted, and the others' stay.
        """
        plan = self.plan
        prime = np.uint64(self.plan.field.prime)
        other = self.plan.aggregator
        try:
            rows = plan.format.checked(uploads, people, plan.format.size)
        except MessageError:
            self.refused += people
            return
        share = plan.format.first(rows)
        head = torch.from_numpy(np.ascontiguousarray(rows[:, : plan.format.head]))
        shares = self._second(UploadBatch(batch=self.batches, uploads=head))
        sketch = plan.sketch(shares.coin.value)
        *own_parts, sums = sketch.look(share)
        shape = own_parts[0].shape
        z, y = (
            (own_part + plan.numbers(other_part.value, shape, other)) % prime
            for own_part, other_part in zip(
                own_parts, (shares.z, shares.y), strict=True
            )
        )
        sigma = sketch.judge(share, z, y)
        check = dict(
            zip(("z", "y", "sigma"), map(as_tensor, (*own_parts, sigma)), strict=True)
        )
        checked = self._second(Check(batch=self.batches, **check))
        opened = shares.opened.value
        if (
            not isinstance(opened, Tensor)
            or opened.dtype != torch.bool
            or opened.shape != shape[:1]
        ):
            raise MessageError(
                f"{other}: it did not say which uploads open. The run ends."
            )
        passed = (
            sketch.passed(sigma, plan.numbers(checked.sigma.value, shape, other))
            & opened.numpy()
        )
        self.add(rows, share, sums, sketch, passed)
        self.refused += int((~passed).sum())

    def _second(self, ask: Ask) -> Any:
        name = self.plan.aggregator
        return self.parties.ask({name: ask})[name]


def statement_of(
    plan: Terms, saved: Mapping[str, Any], spends: Mapping[str, Mapping[str, Spend]]
) -> PrivacyStatement:
    """What the run cost, by the hosts' and the second aggregator's ledgers: all for the
    one release.
    """
    planned = dict.fromkeys(VIEWS, plan.price)
    silent = [
        name
        for name in saved["begun"]
        if name not in spends and name not in saved["gone"]
    ]
    reason = "it was away at the end, and its price is what was asked"
    away = tuple(f"what the ledger of {name} says: {reason}" for name in silent)
    parties = tuple(
        PartyPrivacy.stated(name, info, spends.get(name, planned))
        for name, info in saved["begun"].items()
    )
    notes = {
        name: note for name, note in saved["gone"].items() if name in saved["begun"]
    }
    return PrivacyStatement(
        parties=parties, outside=OUTSIDE + away + remarks(notes), **plan.composition()
    )

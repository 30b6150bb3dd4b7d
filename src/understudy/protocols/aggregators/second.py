"""The second aggregator: a party without rows, which adds up shares, checks them with
the server, and releases once.

Guarantee: its share of a sum leaves it with discrete Gaussian noise in full on every
cell, over at least `min_people` whose uploads both aggregators found to be tables,
each once, and the same ones at both. The release stands in its ledger first, with the
mark of who is in it; a run has one. What it says before that is uniform to the server
(`secure.sketch`), whatever the server says, but for who passes. All uploads of a run
are checked by one r, which follows from the aggregator's secret and which only the two
know. So one that is checked twice, since the aggregator was put back to an earlier
state, says the same of it twice, and nothing of its masks; and whether a sum was
released stands in the ledger, which no state puts back.
Edges: an upload that does not open, that came before, or that is not well formed is
left out; another ask than the one that is due → an error, and nothing is sent. The
state is not saved on the server's word (`Keep`). A release is on the disk, with its
noise, before it is charged: one that was charged and lost, by a crash between the two,
is said again to the bit, and no other sum is.
"""

import hmac
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.kinds import NoRows
from understudy.ground.durable import replace
from understudy.ground.errors import Effect, MessageError, PartyError
from understudy.ground.pack import pack, unpack
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.sums import KeyPair, fingerprint
from understudy.privacy.secure.table_shares import REPEATS
from understudy.protocols.aggregators.terms import Tally, Terms, as_tensor
from understudy.protocols.aggregators.upload import context_of
from understudy.protocols.core import (
    Ask,
    Assembly,
    Keep,
    Message,
    Paid,
    Party,
    Public,
    Reply,
)

RELEASE = "release.bin"  # in the party's folder, until the run is over
UNIFORM = "uniform under masks that the person dealt: it tells nothing of the upload"


class Open(Assembly, kind="aggregators.open"):
    """The run's settings and every party's schema, for the second aggregator."""


class Opened(Reply, kind="aggregators.opened"):
    """The second aggregator's public key of the run, what it allows, and whose noise it
    adds.
    """

    key: Public
    budget: Public
    noise: Public


class UploadBatch(Ask, kind="aggregators.take"):
    """A batch of uploads, as far as they are for the second aggregator: bytes, (n,
    size).
    """

    batch: int
    uploads: Tensor


class BatchShares(Reply, kind="aggregators.taken"):
    """What the second aggregator drew for the check, which uploads it could open, and
    its Z and Y of all.
    """

    coin: Public
    opened: Public
    z: Public
    y: Public


class Check(Ask, kind="aggregators.check"):
    """The first aggregator's Z, Y and share of σ for every upload of the batch."""

    batch: int
    z: Tensor
    y: Tensor
    sigma: Tensor


class Checked(Reply, kind="aggregators.checked"):
    """The second aggregator's share of σ, by which both know who passes."""

    sigma: Public


class ReleaseSum(Ask, kind="aggregators.release"):
    """Release the sum over all who passed: so many people, and the mark of who they
    are.
    """

    people: int
    mark: bytes


class Released(Reply, kind="aggregators.released"):
    """The second aggregator's share of the sum, with its noise."""

    sums: Paid


class SecondAggregator(Party):
    messages: ClassVar[tuple[type[Message], ...]] = (
        *Party.messages,
        Open,
        Opened,
        UploadBatch,
        BatchShares,
        Check,
        Checked,
        ReleaseSum,
        Released,
    )

    def __init__(
        self,
        name: str,
        data: NoRows,
        ledger: Ledger,
        *,
        terms: type[Terms],
        budget: Budget,
        **more: Any,
    ) -> None:
        super().__init__(name, ledger, **more)
        self.terms = terms
        self.schema = data.schema
        self.budget = budget
        self.secret = data.secret
        self.begun: Open | None = None
        self.pair: KeyPair | None = None  # until the release
        self.batch: dict[str, Any] | None = None  # between `Take` and `Check`
        self.seen: set[bytes] = set()

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.begun is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case Open() if self.begun is None:
                return self._open(ask)
            case UploadBatch() if (
                self.pair is not None
                and self.batch is None
                and ask.batch == self.tally.batches
            ):
                return self._take(ask, self.pair)
            case Check() if (
                self.pair and self.batch and ask.batch == self.batch["number"]
            ):
                return self._check(ask, self.pair, self.batch)
            case ReleaseSum() if self.pair is not None and self.batch is None:
                return self._release(ask, self.pair)
        raise self.unexpected(ask)

    def _open(self, ask: Open) -> Opened:
        plan = self._plan(ask)
        self.budget.warn_of_delta(self.name, plan.config.min_people)
        self.ledger.afford(plan.event)
        pair = KeyPair(
            self.secret if plan.config.key and self.secret else self.rng.bytes(32)
        )
        if plan.config.key not in ("", pair.public.hex()):
            raise PartyError(
                f"{self.name}: the run's settings name another key than this one's.",
                effect=Effect.NOTHING_SENT,
            )
        self.begun = ask
        self.pair = pair
        key = Public(pair.public, "a public key: fresh, or this aggregator's own")
        budget = Public(asdict(self.budget), "the aggregator's own choice")
        return Opened(key=key, budget=budget, noise=self.stated_noise())

    def _take(self, ask: UploadBatch, pair: KeyPair) -> BatchShares:
        form = self.plan.format
        people = len(ask.uploads) if ask.uploads.ndim else 0
        rows = form.checked(ask.uploads, people, form.head)
        share, opened = form.second(rows, pair, self.context(pair))
        for index, key in enumerate(form.keys(rows)):
            opened[index] &= key.tobytes() not in self.seen
            self.seen.add(key.tobytes())
        z, y, total = map(as_tensor, self.plan.sketch(self._coin(pair)).look(share))
        opens = torch.from_numpy(opened)
        self.batch = {"number": ask.batch, "uploads": ask.uploads, "opened": opens}
        self.batch |= {"z": z, "y": y, "total": total}
        return BatchShares(
            coin=Public(
                self._coin(pair),
                "random: by what the uploads are checked; people do not know it",
            ),
            opened=Public(
                opens, "which uploads open: a person's own doing, or the server's"
            ),
            z=Public(z, UNIFORM),
            y=Public(y, UNIFORM),
        )

    def _check(self, ask: Check, pair: KeyPair, batch: Mapping[str, Any]) -> Checked:
        plan = self.plan
        rows = batch["uploads"].numpy()
        sketch = self.plan.sketch(self._coin(pair))
        shape = (len(rows), plan.cells.blocks, REPEATS)
        prime = np.uint64(plan.field.prime)
        *server_parts, server_sigma = (
            plan.numbers(part, shape, self.name) for part in (ask.z, ask.y, ask.sigma)
        )
        share, _ = plan.format.second(rows, pair, self.context(pair))
        z, y = (
            (own_part.numpy().astype(np.uint64) + server_part) % prime
            for own_part, server_part in zip(
                (batch["z"], batch["y"]), server_parts, strict=True
            )
        )
        sigma = sketch.judge(share, z, y)
        passed = sketch.passed(server_sigma, sigma) & batch["opened"].numpy()
        self.tally.add(
            rows, share, batch["total"].numpy().astype(np.uint64), sketch, passed
        )
        self.batch = None
        why = (
            "zero with the server's share where an upload is what it is to be; else "
            "random"
        )
        return Checked(sigma=Public(as_tensor(sigma), why))

    def _release(self, ask: ReleaseSum, pair: KeyPair) -> Released:
        plan = self.plan
        people = self.tally.people
        mark = self.tally.mark
        if (ask.people, ask.mark) != (people, mark):
            raise MessageError(
                f"{self.name}: the server adds up other people than passed here.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if people < (min_people := plan.config.min_people):
            raise PartyError(
                f"{self.name}: {people:,} people passed, and {min_people:,} are the "
                "least.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        key = fingerprint({self.name: pair.public})
        description = (
            f"the sum over {people:,} people, once: batch {mark.hex()[:16]}, key {key}"
        )
        if self.ledger.spend(against="anyone", run=self.run):
            sums = self._released_before()
            receipt = self.charge(
                plan.event, description=f"again, to the bit: {description}", people=()
            )
        else:
            sums = as_tensor(plan.noisy(self.tally.total, self.rng))
            if self.folder is not None:
                replace(
                    self.folder / RELEASE, pack({"mark": mark, "sums": sums}), sync=True
                )
            receipt = self.charge(plan.event, description=description)
        self.pair = None  # no further batch can be opened
        self.seen, self.tally.total = set(), np.zeros_like(self.tally.total)
        return Released(sums=Paid(sums, receipt))

    @property
    def stated_people(self) -> int:
        """It hosts nobody."""
        return 0

    def composition(self) -> dict[str, Any]:
        return self.plan.composition()

    def _released_before(self) -> Tensor:
        """What was charged before, if it is on the disk and over the same people."""
        file = None if self.folder is None else self.folder / RELEASE
        stored = (
            unpack(file.read_bytes()) if file is not None and file.exists() else None
        )
        if not isinstance(stored, dict) or stored["mark"] != self.tally.mark:
            raise PartyError(
                f"{self.name}: a sum of this run was released.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        sums: Tensor = stored["sums"]
        return sums

    def context(self, pair: KeyPair) -> bytes:
        assert self.begun is not None
        return context_of(self.run, self.begun.config, self.begun.schemas, pair.public)

    def _plan(self, ask: Open) -> Terms:
        self.plan = self.terms.as_told(ask.config, ask.schemas, self.name, self.schema)
        if self.plan.aggregator != self.name:
            raise PartyError(
                f"{self.name}: {self.plan.aggregator} is to aggregate.",
                effect=Effect.NOTHING_SENT,
            )
        self.tally = Tally(self.plan)
        return self.plan

    def _coin(self, pair: KeyPair) -> bytes:
        return hmac.digest(
            pair.secret, b"understudy sketch " + self.context(pair), "sha256"
        )

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None:
            seen = np.frombuffer(b"".join(sorted(self.seen)), np.uint8)
            tally = self.tally
            secret = None if self.pair is None else self.pair.secret
            state |= {
                "begun": asdict(self.begun),
                "secret": secret,
                "batch": self.batch,
            }
            state |= {
                "batches": tally.batches,
                "people": tally.people,
                "mark": tally.mark,
            }
            state |= {
                "seen": torch.from_numpy(seen.copy()),
                "total": as_tensor(tally.total),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "begun" in state:
            self.begun = Open(**state["begun"])
            self._plan(self.begun)
            self.pair = None if state["secret"] is None else KeyPair(state["secret"])
            self.batch = state["batch"]
            tally = self.tally
            tally.batches = state["batches"]
            tally.people = state["people"]
            tally.mark = state["mark"]
            tally.total = state["total"].numpy().astype(np.uint64)
            self.seen = {key.tobytes() for key in state["seen"].numpy().reshape(-1, 16)}

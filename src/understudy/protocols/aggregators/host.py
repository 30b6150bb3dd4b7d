"""A host of people who upload to two aggregators, or a single phone; and who passes on
what people's devices uploaded.

Guarantee: a person has one upload in a run, and pays before a row is touched: the price
of one release under the noise that either aggregator adds in full. Which of several
rows it is about is drawn in secret. An upload follows from a secret of the run and from
the person: a host that goes back to an earlier state, or lost an answer, makes the same
one again, at a new price, and the second aggregator counts it once. Unless the settings
name the key of the second one, it comes from the server: its fingerprint stands in the
ledger beside the price, to be compared with the aggregator's own. The state is not
saved on the server's word (`Keep`); a host that lost it has no second try at the run.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.population import population_of
from understudy.data.kinds import AnySchema
from understudy.ground.errors import ConfigError, Effect, PartyError
from understudy.ground.pack import Value
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.ciphers import keystream
from understudy.privacy.secure.sums import fingerprint
from understudy.protocols.aggregators.terms import BeginUploads, Terms, Upload
from understudy.protocols.aggregators.upload import SEED, context_of
from understudy.protocols.core import Ask, Keep, Opening, Reply
from understudy.protocols.cross_device.host import (
    Begun,
    Hosting,
    HostParty,
    PassingOn,
    elsewhere,
)


class UploadParty(HostParty):
    begin_type = BeginUploads
    round_type = Upload

    def __init__(
        self, name: str, data: Any, ledger: Ledger, *, terms: type[Terms], **more: Any
    ) -> None:
        super().__init__(name, data, ledger, **more)
        self.terms = terms

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.begun is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def open(self, ask: BeginUploads) -> Hosting:
        if not self.terms.family.holds(self.data):
            raise ConfigError(
                f"{self.name}: these uploads are of {self.terms.rows_are}.",
                effect=Effect.NOTHING_CHARGED,
            )
        plan = self.terms_told(ask, self.data.schema)
        return Hosting(population_of(self.data), plan.event, 1)

    def terms_told(self, ask: BeginUploads, schema: AnySchema) -> Terms:
        """What the run is about, by the server's word, held to what is known here."""
        self.plan = plan = self.terms.as_told(
            ask.config, ask.schemas, self.name, schema
        )
        if len(ask.key) != 32 or plan.aggregator == self.name:
            raise PartyError(
                f"{self.name}: this is no aggregator, or its key is none.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if plan.config.key not in ("", ask.key.hex()):
            raise PartyError(
                f"{self.name}: this is another key than the run's settings name.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        self.key = ask.key
        self.context = context_of(self.run, ask.config, ask.schemas, ask.key)
        mark = fingerprint({plan.aggregator: ask.key})
        self.description = (
            "one upload each, in two shares: for the server, and for "
            f"{plan.aggregator}, key {mark}"
        )
        return plan

    def composition(self) -> dict[str, Any]:
        return self.plan.composition()

    def reports(self, ask: Upload) -> Value:
        lines = self.uploaded(ask.people).numpy()
        uploads: Tensor = self.plan.format.write(
            lines, self.randomness(ask.people, lines), self.key, self.context
        )
        return uploads

    def uploaded(self, people: Tensor) -> Tensor:
        return self.plan.lines_of(self.data, self.population, *self.drawn(people))

    def randomness(self, people: Tensor, lines: NDArray[Any]) -> NDArray[np.uint8]:
        """The secret bytes of these people's uploads, which are about$
        `lines`: uint8, (people, …).
        """
        random = np.empty((len(lines), self.plan.format.randomness), np.uint8)
        for row, person, line in zip(random, people.tolist(), lines, strict=True):
            # With what it is about: other rows under the same bytes would show what has
            # changed in them.
            seed = hashlib.sha256(
                self.secret + person.to_bytes(8, "big") + line.tobytes()
            ).digest()
            row[:] = keystream(seed, 0, len(row))
        return random

    def _begin(self, ask: Opening) -> Begun:
        if self.ledger.spend(against="anyone", run=self.run):
            raise PartyError(
                f"{self.name}: people here have uploaded in this run, and a second "
                "upload would count them twice.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        begun = super()._begin(ask)
        self.secret = self.rng.bytes(SEED)
        return begun

    def drawn(self, people: Tensor) -> tuple[Tensor, Tensor]:
        """The place of one row of each, drawn in secret, the same whenever asked, and
        who has one; else 0.
        """
        starts = self.population.starts
        sizes = starts.diff()[people]
        # 64 bits of a stream of each: one of up to 2³² rows with equal chances, but for
        # less than 2⁻³²
        words = [
            keystream(self.secret, person << 64, 8).view("<u8")[0]
            for person in people.tolist()
        ]
        chosen = [
            int(word) % max(size, 1)
            for word, size in zip(words, sizes.tolist(), strict=True)
        ]
        return torch.where(
            sizes > 0, starts[people] + torch.tensor(chosen, dtype=torch.int64), 0
        ), sizes > 0

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | (
            {} if self.begun is None else {"secret": self.secret}
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "secret" in state:
            self.secret = state["secret"]


class CollectingParty(PassingOn, UploadParty):
    """A party that collects people's uploads and passes them on: it holds no rows, and
    could make no upload itself.
    Guarantee: what it passes on was made and paid for by the people themselves, and is
    bound to this run, these settings and the second aggregator's key. Its own ledger
    holds the same price for each of them first.
    Edges: a run that costs more than it may here is refused before anybody is told of
    it. Who uploaded and has too little left in this party's ledger is left out, and
    counted as that.
    """

    def open(self, ask: BeginUploads) -> Hosting:
        schema: Any = self.schema
        plan = self.terms_told(ask, schema)
        self._within(plan.event, 1)
        ticket = {
            "run": self.run,
            "config": ask.config,
            "schemas": ask.schemas,
            "key": ask.key.hex(),
        }
        ticket |= {"sizes": list(plan.cells.sizes)}
        people = self.box.gather(ticket, self.context, plan.format)
        return Hosting(elsewhere(schema, people), plan.event, 1)

    def reports(self, ask: Upload) -> Value:
        uploads: Tensor = self.box.uploads(ask.people)
        return uploads

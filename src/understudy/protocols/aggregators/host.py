"""A host of people who upload their tables to two aggregators, or a single phone.

Guarantee: a person has one upload in a run, and pays before a row is touched: the price of one release of all one- and
two-way tables under the noise that either aggregator adds in full (`plan`). It holds against an outsider, the server
and the second aggregator, each alone. Which of several rows it is about is drawn in secret.
An upload follows from a secret of the run and from the person: a host that goes back to an earlier state, or lost an
answer, makes the same one again, at a new price, and the second aggregator counts it once.
Edges: against both aggregators together nothing holds. Unless the settings name the key of the second one, it comes
from the server: its fingerprint stands in the ledger beside the price, to be compared with the aggregator's own. The
state is not saved on the server's word (`Keep`); a host that lost it has no second try at the run.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.described import AnySchema
from understudy.data.kinds import TABLE, population_of
from understudy.ground.errors import ConfigError, PartyError
from understudy.ground.pack import Value
from understudy.privacy.noise.aes import keystream
from understudy.privacy.secure.channel import fingerprint
from understudy.protocols.aggregators.messages import Begin, Upload
from understudy.protocols.aggregators.plan import Plan
from understudy.protocols.aggregators.terms import Terms
from understudy.protocols.aggregators.upload import SEED, context_of
from understudy.protocols.core import Ask, Keep, Message, Opening, Party, Reply
from understudy.protocols.people.host import Begun, Hosting, HostParty, Reported


class UploadParty(HostParty):
    """A host of people with rows of a table. Guarantee and edges: see the module."""

    terms: ClassVar[type[Terms]] = Plan
    begin_type = Begin
    round_type = Upload
    messages: ClassVar[tuple[type[Message], ...]] = (*Party.messages, Begin, Begun, Upload, Reported)

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.begun is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def open(self, ask: Begin) -> Hosting:
        if not TABLE.holds(self.data):
            raise ConfigError(f"{self.name}: uploads are of tables, not of arrays. Nothing was charged.")
        plan = self.told(ask, self.data.schema)
        return Hosting(population_of(self.data), plan.event, 1)

    def told(self, ask: Begin, schema: AnySchema) -> Terms:
        """What the run is about, by the server's word, held to what is known here."""
        self.plan = plan = self.terms.of(ask.config, ask.schemas, self.name, schema)
        if len(ask.key) != 32 or plan.aggregator == self.name:
            raise PartyError(
                f"{self.name}: this is no aggregator, or its key is none. Nothing was charged or sent."
            )
        if plan.config.key not in ("", ask.key.hex()):
            raise PartyError(
                f"{self.name}: this is another key than the run's settings name. Nothing was charged or sent."
            )
        self.key = ask.key
        self.context = context_of(self.run, ask.config, ask.schemas, ask.key)
        mark = fingerprint({plan.aggregator: ask.key})
        self.what = f"one upload each, in two shares: for the server, and for {plan.aggregator}, key {mark}"
        return plan

    def reports(self, ask: Upload) -> Value:
        """The uploads of these people: uint8, (people, size)."""
        levels, form = self._levels(ask.people).numpy(), self.plan.format
        made: Tensor = form.write(levels, self.randomness(ask.people, levels), self.key, self.context)
        return made

    def randomness(self, people: Tensor, own: NDArray[Any]) -> NDArray[np.uint8]:
        """The secret bytes of these people's uploads, which are about the lines of `own`: uint8, (people, …)."""
        random = np.empty((len(own), self.plan.format.randomness), np.uint8)
        for row, person, line in zip(random, people.tolist(), own, strict=True):
            # With what it is about: other rows under the same bytes would show what has changed in them.
            seed = hashlib.sha256(self.secret + person.to_bytes(8, "big") + line.tobytes()).digest()
            row[:] = keystream(seed, 0, len(row))
        return random

    def _begin(self, ask: Opening) -> Begun:
        if self.ledger.spend(against="anyone", run=self.run):
            raise PartyError(
                f"{self.name}: people here have uploaded in this run, and a second upload would count them twice. "
                "Nothing was charged or sent."
            )
        begun = super()._begin(ask)
        self.secret = self.rng.bytes(SEED)
        return begun

    def _levels(self, people: Tensor) -> Tensor:
        """The levels of one row of each, drawn among their own: in a table everybody has one."""
        return self.population.rows[self.drawn(people)[0]].to(torch.int32)

    def drawn(self, people: Tensor) -> tuple[Tensor, Tensor]:
        """The place of one row of each, drawn in secret among their own, and who has one; the same whenever it is asked
        for. Edges: the place of a person without rows is 0, and means nothing.
        """
        starts = self.population.starts
        sizes = starts.diff()[people]
        # 64 bits of a stream of each: one of up to 2³² rows with equal chances, but for less than 2⁻³²
        words = [keystream(self.secret, person << 64, 8).view("<u8")[0] for person in people.tolist()]
        chosen = [int(word) % max(size, 1) for word, size in zip(words, sizes.tolist(), strict=True)]
        return torch.where(sizes > 0, starts[people] + torch.tensor(chosen, dtype=torch.int64), 0), sizes > 0

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | ({} if self.begun is None else {"secret": self.secret})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "secret" in state:
            self.secret = state["secret"]

"""A holder's side of visits: it checks, pays, counts, adds its share of noise, and pads.

Guarantee: before the release a party charges its ledger for what one person, with all rows, moves in it, under noise of
the scale that this party computes from its schema and the agreed multiplier, which is never below what its own budget
needs. In every table a person weighs 1 at most, whatever the rows hold (`data/visits/counts.py`). Where a person may be
with k holders (`most_holders`), the price is that of k times as much. ε holds against the server, an outsider, and up
to `colluding` other holders (`secure.sums`). The server chooses nothing but who takes part, and more noise.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from understudy.check import in_range, not_negative
from understudy.data.described import schema_from
from understudy.data.visits import Visits, VisitSchema, count_visits
from understudy.errors import MessageError, PrivacyError, SchemaError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import Rng
from understudy.privacy.secure import Channel, KeyPair, Ring, blind, connect, fingerprint, noise_on
from understudy.privacy.secure.moments import moments_event, needed_multipliers
from understudy.protocols.core import Ask, Keep, Message, Paid, Party, Public, Reply
from understudy.protocols.visits.messages import Agree, Agreed, Begin, Begun, Count, Counted
from understudy.protocols.visits.terms import SETTLED, Terms, check_settled, common, public_of

RING = Ring(64)


@dataclass(frozen=True)
class Agreement:
    """What a party holds between `Agree` and its release. It is dropped with that, keys and all."""

    agree: Agree
    channels: dict[str, Channel]
    terms: Terms


class VisitsParty(Party):
    """One holder of people and their events.

    Guarantee: see the module. The release is answered once. From `Begin` to it the state is not saved on the server's
    word (`Keep`): a server that could return to it would have two releases under one pad.
    Edges: another schema, less noise than the budget needs, a message repeated or out of turn → an error, and nothing
    is charged or sent; a session that is lost begins again with `Begin` and new keys, at a new price.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *Party.messages, Begin, Begun, Agree, Agreed, Count, Counted,
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        visits: Visits,
        ledger: Ledger,
        *,
        run: str,
        budget: Budget,
        rng: Rng | None = None,
        folder: Path | None = None,
        agreed: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, ledger, run=run, rng=rng, folder=folder)
        visits.schema.require_public(f"the schema of {name}")
        self.visits, self.budget, self.agreed = visits, budget, dict(agreed or {})
        self.begun: Begin | None = None
        self.pair: KeyPair | None = None
        self.multiplier = 0.0
        self.agreement: Agreement | None = None

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case Begin():
                return self._begin(ask)
            case Agree() if self.pair is not None:
                self.agreement = self._open(ask)
                return Agreed(fingerprint=Public(fingerprint(ask.keys), "a hash of public keys"))
            case Count() if self.agreement is not None:
                return self._count(self.agreement)
        raise self.unexpected(ask)

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        self._take_up(ask)
        private, budget = bool(ask.config["private"]), self.budget
        budget.warn_of_delta(self.name, self.visits.rows)
        self.multiplier = needed_multipliers(budget, (1.0,))[0] if private else 0.0
        Terms.of(self.visits.schema, self.multiplier, self._most_holders)  # noise that can be drawn
        self.ledger.afford(moments_event(self.multiplier))
        self.pair = KeyPair(self._fresh())
        return Begun(
            multiplier=Public(self.multiplier, "computed from the budget and public settings"),
            budget=Public(asdict(budget) if private else None, "the holder's own choice"),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _take_up(self, ask: Begin) -> None:
        self._check_agreed(ask.config)
        schemas = {name: schema_from(schema) for name, schema in ask.schemas.items()}
        own = schemas.get(self.name)
        if not isinstance(own, VisitSchema) or public_of(own) != public_of(self.visits.schema):
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        common(schemas)
        check_settled(ask.config, len(schemas))
        self.begun, self.pair, self.agreement = ask, None, None

    def _check_agreed(self, config: Mapping[str, Any]) -> None:
        """The settings, held to what the holder knows by itself."""
        for key in SETTLED:
            if key not in config:
                raise MessageError(f"{self.name}: the settings lack {key}. Nothing was charged or sent.")
            if key in self.agreed and config[key] != self.agreed[key]:
                raise MessageError(
                    f"{self.name}: {key}={config[key]} was asked for, and {self.agreed[key]} was agreed to. "
                    "Nothing was charged or sent."
                )

    def _open(self, ask: Agree) -> Agreement:
        """Check what was agreed, and derive the pads' lines from it."""
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        not_negative(multiplier=ask.multiplier)
        if ask.multiplier < self.multiplier:
            raise PrivacyError(
                f"{self.name}: a noise multiplier of {ask.multiplier:g} was asked for, but its budget needs "
                f"{self.multiplier:g}. Nothing was charged or sent."
            )
        if not ask.keys.keys() <= self.begun.schemas.keys():
            raise MessageError(f"{self.name}: a key is of a party that was not named. Nothing was sent.")
        if len(ask.keys) > 1:
            in_range(1, len(ask.keys) - 1, colluding=self._colluding)
        terms = Terms.of(self.visits.schema, ask.multiplier, self._most_holders)
        told = [self.run, asdict(self.begun), fingerprint(ask.keys), ask.multiplier]
        context = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()
        return Agreement(ask, connect(self.name, self.pair, ask.keys, context=context), terms)

    # The release

    def _count(self, agreement: Agreement) -> Counted:
        """Charge, and only then count."""
        agree, terms = agreement.agree, agreement.terms
        scale = terms.share(len(agree.keys), self._colluding)
        receipt = self.ledger.charge(
            moments_event(agree.multiplier),
            run=self.run,
            what=f"tables of people and their events with {', '.join(agreement.channels) or 'nobody'}; "
            f"keys {fingerprint(agree.keys)}",
            once=True,  # also for a server that puts this party back to before it: pads are for one release
        )
        self.agreement = self.pair = None  # a further release takes new keys, and is charged again
        cells = torch.from_numpy(count_visits(self.visits.codes(self.rng), terms.layout, terms.unit))
        noisy = cells + noise_on(torch.ones_like(cells, dtype=torch.bool), scale, self.rng)
        padded = blind(RING.words(noisy), agreement.channels.values(), RING, stream=0)
        return Counted(cells=Paid(RING.signed(padded), receipt))

    @property
    def _colluding(self) -> int:
        return 1 if self.begun is None else int(self.begun.config["colluding"])

    @property
    def _most_holders(self) -> int:
        return 1 if self.begun is None else int(self.begun.config["most_holders"])

    # Beginnings, which a saved state repeats

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None and self.pair is not None:
            state["begun"] = {
                "ask": asdict(self.begun),
                "secret": self.pair.secret,
                "multiplier": self.multiplier,
            }
        if self.agreement is not None:
            state["agree"] = asdict(self.agreement.agree)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.begun = self.pair = self.agreement = None
        if (begun := state.get("begun")) is not None:
            self._take_up(Begin(**begun["ask"]))
            self.pair, self.multiplier = KeyPair(begun["secret"]), float(begun["multiplier"])
        if (agree := state.get("agree")) is not None:
            self.agreement = self._open(Agree(**agree))

    def _fresh(self) -> bytes | None:
        """What a key is drawn from: the system, or in a rehearsal the party's own randomness."""
        return self.rng.bytes(32) if self.rng.seeded else None

"""A holder's side of moments: it checks, pays, sums up, adds its share of noise, and pads.

Guarantee: before a release a party charges its ledger for what one person, with all rows, moves in it, under noise of
the scale that this party computes from the agreed multiplier, which is never below what its own budget needs. Where a
person may be with k holders (`most_holders`), the price is that of k times as much. ε holds against the server, an
outsider, and up to `colluding` other holders (`secure.sums`). What a server chooses between two releases changes no
sensitivity (`stages`), so that it need not be believed in that.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from dp_accounting import ComposedDpEvent

from understudy.check import in_range, not_negative, whole
from understudy.data.arrays import ArrayTable
from understudy.data.described import ArraySchema, public_of, schema_from
from understudy.data.frame import MOST_FEATURES, Frame
from understudy.errors import ConfigError, MessageError, PrivacyError, SchemaError
from understudy.models.moments.released import bins_of
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import Rng, rounded_up
from understudy.privacy.secure import (
    Channel,
    KeyPair,
    Ring,
    blind,
    connect,
    fingerprint,
    noise_on,
    noise_share,
)
from understudy.privacy.secure.moments import Crowd, moments_event, needed_multipliers, noise_for
from understudy.protocols.core import Ask, Keep, Message, Paid, Party, Public, Reply, told_alike
from understudy.protocols.moments.messages import (
    Agree,
    Agreed,
    Begin,
    Begun,
    Cells,
    Means,
    Pooling,
    Summed,
)
from understudy.protocols.moments.stages import (
    MOST_BITS,
    First,
    Pooled,
    Rows,
    Stage,
    Within,
    check_basis,
    check_means,
    finest,
)

_RING = Ring(64)
_MOST_RADIUS = 1 << 20
SETTLED = ("features", "shares", "colluding", "most_holders", "private")


@dataclass
class Agreement:
    """What a party holds between `Agree` and its last release. It is dropped with that, keys and all."""

    agree: Agree
    channels: dict[str, Channel]
    released: int = 0


class MomentsParty(Party):
    """One holder of images or series of its own people.

    Guarantee: see the module. Each release is answered once and in turn. From `Begin` to the last release the state is
    not saved on the server's word (`Keep`): a server that could return to it would have two releases under one pad.
    Whatever state it is put back to, a release is charged once under its keys.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape, repeated or out of turn → an
    error, and nothing is charged or sent; a session that is lost begins again with `Begin` and new keys.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *Party.messages, Begin, Begun, Agree, Agreed, Means, Pooling, Cells, Summed,
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        rows: ArrayTable[Any],
        ledger: Ledger,
        *,
        run: str,
        budget: Budget,
        rng: Rng | None = None,
        folder: Path | None = None,
        agreed: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, ledger, run=run, rng=rng, folder=folder)
        self.table, self.budget, self.terms = rows, budget, dict(agreed or {})
        self.begun: Begin | None = None
        self.pair: KeyPair | None = None
        self.agreement: Agreement | None = None
        self.multipliers: tuple[float, ...] = ()
        self._rows: Rows | None = None

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        agreement = self.agreement
        match ask:
            case Begin():
                return self._begin(ask)
            case Agree() if agreement is None or not agreement.released:
                return self._agree(ask)
            case Means() if agreement is not None and agreement.released == 0:
                return self._release(
                    agreement, First(self.frame, self.classes), "counts, means and histograms"
                )
            case Pooling() if agreement is not None and agreement.released == 1:
                return self._release(agreement, self._pooled(ask, agreement), "second moments of all rows")
            case Cells() if agreement is not None and agreement.released == 2:
                return self._release(agreement, self._within(ask, agreement), "second moments by class")
        raise self.unexpected(ask)

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        self._take_up(ask)
        private, budget = bool(ask.config["private"]), self.budget
        budget.warn_of_delta(self.name, len(self.table.ids))
        shares = tuple(map(float, ask.config["shares"]))
        self.multipliers = needed_multipliers(budget, shares) if private else (0.0,) * len(shares)
        noise_for(self.multipliers[0], self.moves * First(self.frame, self.classes).reach)
        self.ledger.afford(ComposedDpEvent([moments_event(each) for each in self.multipliers[: self._count]]))
        self.pair, self.agreement = KeyPair(self._fresh()), None
        return Begun(
            multipliers=Public(list(self.multipliers), "computed from the budget and public settings"),
            budget=Public(asdict(budget) if private else None, "the holder's own choice"),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _take_up(self, ask: Begin) -> None:
        config = self._as_agreed(ask.config)
        schemas = {name: schema_from(schema) for name, schema in ask.schemas.items()}
        own = schemas.get(self.name)
        if own is None or public_of(own) != public_of(self.table.schema):
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        common(schemas)
        whole(**{key: config[key] for key in ("features", "colluding", "most_holders")})
        in_range(1, MOST_FEATURES, features=config["features"])
        if type(config["private"]) is not bool:
            raise ConfigError(f"private is true or false, not {config['private']!r}. Nothing was charged.")
        if config["most_holders"] > len(schemas):
            raise ConfigError(
                f"most_holders={config['most_holders']}, and there are {len(schemas)} parties. Nothing was charged."
            )
        check_shares(config["shares"])
        self.begun, self.pair, self.agreement = ask, None, None
        self._rows = None
        self.frame = Frame.of(self.table.schema, config["features"])
        self.moves = int(config["most_holders"])

    def _as_agreed(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings, held to what the holder knows by itself."""
        for key in SETTLED:
            if key not in config:
                raise MessageError(f"{self.name}: the settings lack {key}. Nothing was charged or sent.")
        for key, value in self.terms.items():
            told = tuple(config[key]) if isinstance(config[key], list) else config[key]
            if told != value:
                raise MessageError(
                    f"{self.name}: {key}={told} was asked for, and {value} was agreed to. "
                    "Nothing was charged or sent."
                )
        return config

    def _agree(self, ask: Agree) -> Agreed:
        self.agreement = self._open(ask)
        return Agreed(fingerprint=Public(fingerprint(ask.keys), "a hash of public keys"))

    def _open(self, ask: Agree) -> Agreement:
        """Check what was agreed, and derive the pads' lines from it."""
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        if len(ask.multipliers) != len(self.multipliers):
            raise MessageError(
                f"{self.name}: {len(self.multipliers)} scales of noise were due. Nothing was sent."
            )
        for asked, least in zip(ask.multipliers, self.multipliers, strict=True):
            not_negative(multiplier=asked)
            if asked < least:
                raise PrivacyError(
                    f"{self.name}: a noise multiplier of {asked:g} was asked for, but its budget needs {least:g}. "
                    "Nothing was charged or sent."
                )
        if not ask.keys.keys() <= self.begun.schemas.keys():
            raise MessageError(f"{self.name}: a key is of a party that was not named. Nothing was sent.")
        if len(ask.keys) > 1:
            in_range(1, len(ask.keys) - 1, colluding=self.begun.config["colluding"])
        context = told_alike(self.run, self.begun, ask)
        return Agreement(ask, connect(self.name, self.pair, ask.keys, context=context))

    # The releases

    def _pooled(self, ask: Pooling, agreement: Agreement) -> Pooled:
        check_means(self.name, ask.means, self.classes, self.frame.features)
        in_range(1, _MOST_RADIUS, radius=ask.radius)
        in_range(1, self.frame.features, features=ask.features)
        whole(radius=ask.radius, features=ask.features)
        scale = finest(agreement.agree.multipliers[1], self.moves)
        return Pooled(ask.means, ask.radius, ask.features, scale)

    def _within(self, ask: Cells, agreement: Agreement) -> Within:
        if not agreement.agree.multipliers[2] and self._share(2) == 0:
            raise self.unexpected(ask)
        check_means(self.name, ask.means, self.classes, self.frame.features)
        check_basis(self.name, ask.basis, self.frame.features)
        in_range(1, _MOST_RADIUS, radius=ask.radius)
        in_range(0, min(MOST_BITS, ask.basis.shape[1]), bits=ask.bits)
        whole(radius=ask.radius, **{"bits + 1": ask.bits + 1})
        scale = finest(agreement.agree.multipliers[2], self.moves)
        return Within(ask.means, ask.basis, ask.radius, ask.bits, scale)

    def _release(self, agreement: Agreement, stage: Stage, what: str) -> Summed:
        """Charge, and only then count."""
        number, agree = agreement.released, agreement.agree
        sigma = noise_for(agree.multipliers[number], self.moves * stage.reach)
        scales = [self._part(scale, len(agree.keys)) for scale in (Fraction(sigma), doubled(sigma))]
        receipt = self.ledger.charge(
            moments_event(agree.multipliers[number]),
            run=self.run,
            what=f"{what} with {', '.join(agreement.channels) or 'nobody'}; keys {fingerprint(agree.keys)}",
            once=True,  # also for a server that puts this party back to before it: pads are for one release
        )
        agreement.released += 1
        if agreement.released == self._count:
            self.agreement = self.pair = None  # a further release takes new keys, and is charged again
        sums, diagonal = stage.count(self.rows), stage.diagonal
        for cells, scale in ((~diagonal, scales[0]), (diagonal, scales[1])):
            sums = sums + noise_on(cells, scale, self.rng)
        padded = blind(_RING.words(sums), agreement.channels.values(), _RING, stream=number)
        return Summed(sums=Paid(_RING.signed(padded), receipt))

    def _part(self, scale: Fraction, parties: int) -> Fraction:
        colluding = 1 if self.begun is None else int(self.begun.config["colluding"])
        return noise_share(scale, parties, colluding=colluding)

    def _share(self, stage: int) -> float:
        return 0.0 if self.begun is None else float(self.begun.config["shares"][stage])

    @property
    def _count(self) -> int:
        """How many releases there are."""
        return 3 if self._share(2) else 2

    @property
    def classes(self) -> int:
        return classes_of(self.table.schema)

    @property
    def rows(self) -> Rows:
        """This holder's rows in the frame: made after the first charge, and kept."""
        if self._rows is None:
            codes = self.table.classes
            self._rows = Rows(
                self.frame.coefficients(self.table.values),
                self.frame.histograms(self.table.values, bins_of(self.frame)),
                np.zeros(self.table.rows, dtype=np.int64) if codes is None else codes,
                Crowd.of(self.table.starts),
            )
        return self._rows

    # Beginnings, which a saved state repeats

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None and self.pair is not None:
            state["begun"] = {
                "ask": asdict(self.begun),
                "secret": self.pair.secret,
                "multipliers": list(self.multipliers),
            }
        if (agreement := self.agreement) is not None:
            state["agreement"] = {"ask": asdict(agreement.agree), "released": agreement.released}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.begun = self.pair = self.agreement = None
        if (begun := state.get("begun")) is not None:
            self._take_up(Begin(**begun["ask"]))
            self.pair, self.multipliers = KeyPair(begun["secret"]), tuple(begun["multipliers"])
        if (held := state.get("agreement")) is not None:
            self.agreement = self._open(Agree(**held["ask"]))
            self.agreement.released = int(held["released"])

    def _fresh(self) -> bytes | None:
        """What a key is drawn from: the system, or in a rehearsal the party's own randomness."""
        return self.rng.bytes(32) if self.rng.seeded else None


def doubled(sigma: float) -> Fraction:
    """The noise of a diagonal: √2·σ, never less."""
    return rounded_up(sigma * 2**0.5 * (1 + 2.0**-40)) if sigma else Fraction(0)


def classes_of(schema: ArraySchema) -> int:
    """How many classes rows have; without a label they are one."""
    return 1 if schema.target is None else schema.target.levels


def common(schemas: Mapping[str, Any]) -> ArraySchema:
    """The one schema of all parties."""
    for name, schema in schemas.items():
        if getattr(schema, "kind", "table") not in ("image", "series"):
            raise ConfigError(
                f"{name} holds no images and no series, and moments takes nothing else: gram is for tables. "
                "Nothing was charged."
            )
    first, *others = schemas.items()
    for name, schema in others:
        if public_of(schema) != public_of(first[1]):
            raise SchemaError(f"{first[0]} and {name} describe their rows differently. Nothing was charged.")
    found: ArraySchema = first[1]
    return found


def check_shares(shares: Any) -> None:
    """Of the budget, for the three releases: the third may have none."""
    if not isinstance(shares, tuple | list) or len(shares) != 3:
        raise ConfigError(f"shares are three, one for each release, not {shares!r}.")
    in_range(0.05, 0.9, **{"the first share": shares[0], "the second share": shares[1]})
    if shares[2]:
        in_range(0.05, 0.9, **{"the third share": shares[2]})

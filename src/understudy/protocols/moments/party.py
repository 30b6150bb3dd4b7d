"""A holder's side of moments: it checks, pays, sums up, adds its share of noise, and pads.

Guarantee: before a release a party charges its ledger for what one person, with all rows, moves in it, under noise of
the scale that this party computes from the agreed multiplier, which is never below what its own budget needs. Where a
person may be with k holders (`most_holders`), the price is that of k times as much. ε holds against the server, an
outsider, and up to `colluding` other holders (`secure.sums`). What a server chooses between two releases changes no
sensitivity (`stages`), so that it need not be believed in that.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from dp_accounting import ComposedDpEvent

from understudy.data.arrays import ArrayTable
from understudy.data.described import ArraySchema, public_of
from understudy.data.encoding.frame import MOST_FEATURES, Frame
from understudy.data.kinds import schema_from
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError, MessageError, SchemaError
from understudy.models.moments.labels import Labels
from understudy.models.moments.released import bins_of
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import rounded_up
from understudy.privacy.secure import Ring, blind, noise_on, noise_share
from understudy.privacy.secure.moments import Crowd, moments_event, needed_multipliers, noise_for
from understudy.protocols.core import Ask, Beginnings, KeyedParty, Message, Paid, Public, Reply
from understudy.protocols.core.keyed import Agreement
from understudy.protocols.moments.levels import Levels
from understudy.protocols.moments.messages import (
    Agree,
    Agreed,
    Begin,
    Begun,
    Cells,
    Means,
    Norms,
    Pooling,
    Summed,
)
from understudy.protocols.moments.rows import Lengths, Rows
from understudy.protocols.moments.stages import (
    MOST_BITS,
    First,
    Pooled,
    Stage,
    Within,
    check_basis,
    check_means,
    finest,
    first_of,
    releases,
)

_RING = Ring(64)
_MOST_RADIUS = 1 << 20
SETTLED = ("features", "upright", "norms", "shares", "colluding", "most_holders", "private")


class MomentsParty(KeyedParty[Agreement]):
    """One holder of images or series of its own people.

    Guarantee: see the module, and `KeyedParty`.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape → an error, and nothing is
    charged or sent.
    """

    beginnings: ClassVar = Beginnings(Begin, Begun, Agree, Agreed)
    messages: ClassVar[tuple[type[Message], ...]] = (
        *KeyedParty.messages, *beginnings, Norms, Means, Pooling, Cells, Summed,
    )  # fmt: skip

    def __init__(self, name: str, rows: ArrayTable[Any], ledger: Ledger, **more: Any) -> None:
        super().__init__(name, ledger, **more)
        self.table = rows

    def forget(self) -> None:
        super().forget()
        self._rows: Rows | None = None

    def may_agree_again(self, agreement: Agreement) -> bool:
        return not agreement.released

    def go_on(self, ask: Ask, agreement: Agreement) -> Reply | None:
        due = self.releases[agreement.released]
        match ask:
            case Norms() if due == "norms":
                self.hear(ask, agreement)
                return self._release(agreement, Lengths(self.frame), "how long rows are")
            case Means() if due == "means":
                first = self._first(ask)
                self.hear(ask, agreement)
                return self._release(agreement, first, "counts, means and histograms")
            case Pooling() if due == "pooled":
                return self._release(agreement, self._pooled(ask, agreement), "second moments of all rows")
            case Cells() if due == "cells":
                return self._release(agreement, self._within(ask, agreement), "second moments by class")
        return None

    # Before anything leaves

    def take_up(self, ask: Begin) -> None:
        config = ask.config
        self.as_agreed(config, SETTLED)
        schemas = {name: schema_from(schema) for name, schema in ask.schemas.items()}
        own = schemas.get(self.name)
        if own is None or public_of(own) != public_of(self.table.schema):
            raise self.other_schema()
        common(schemas)
        whole(**{key: config[key] for key in ("features", "colluding", "most_holders")})
        in_range(1, MOST_FEATURES, features=config["features"])
        for key in ("private", "upright"):
            if type(config[key]) is not bool:
                raise ConfigError(f"{key} is true or false, not {config[key]!r}. Nothing was charged.")
        if config["most_holders"] > len(schemas):
            raise ConfigError(
                f"most_holders={config['most_holders']}, and there are {len(schemas)} parties. Nothing was charged."
            )
        check_shares(config["shares"])
        check_norms(config["norms"])
        self.renew(ask)
        self.frame = Frame.declared(self.table.schema, config["features"], upright=config["upright"])
        self.moves = int(config["most_holders"])
        self.releases = releases(config["norms"], config["shares"][2])

    def needs(self) -> dict[str, Public]:
        self.budget.warn_of_delta(self.name, len(self.table.ids))
        shares = shares_of(self.begun.config["norms"], self.begun.config["shares"])
        self.needed = [*needed_multipliers(self.budget, shares)] if self.private else [0.0] * len(shares)
        due = dict(zip(self.releases, self.needed, strict=False))
        noise_for(due["means"], self.moves * first_of(self.frame, self.labels).reach)
        noise_for(due.get("norms", 0.0), self.moves * Lengths(self.frame).reach)
        self.ledger.afford(ComposedDpEvent([moments_event(each) for each in due.values()]))
        return {"multipliers": Public(self.needed, "computed from the budget and public settings")}

    def open(self, ask: Agree) -> Agreement:
        self.enough_noise(ask.multipliers)
        if not ask.keys.keys() <= self.begun.schemas.keys():
            raise MessageError(f"{self.name}: a key is of a party that was not named. Nothing was sent.")
        if len(ask.keys) > 1:
            in_range(1, len(ask.keys) - 1, colluding=self.begun.config["colluding"])
        return Agreement(ask, self.lines(ask))

    # The releases

    def _first(self, ask: Means) -> First | Levels:
        """With the norm that was bought, if one was. Whichever is told, a person moves the sums by as much."""
        if (ask.norm is not None) != ("norms" in self.releases):
            raise MessageError(
                f"{self.name}: a norm is told where it was bought, and not else. Nothing was charged."
            )
        if ask.norm is None:
            return first_of(self.frame, self.labels)
        in_range(0.0, self.frame.norm, norm=ask.norm)
        return first_of(replace(self.frame, norm=float(ask.norm)), self.labels)

    def _pooled(self, ask: Pooling, agreement: Agreement) -> Pooled:
        check_means(self.name, ask.means, self.labels.combinations, self.frame.features)
        in_range(1, _MOST_RADIUS, radius=ask.radius)
        in_range(1, self.frame.features, features=ask.features)
        whole(radius=ask.radius, features=ask.features)
        scale = finest(agreement.agree.multipliers[agreement.released], self.moves)
        return Pooled(ask.means, ask.radius, ask.features, scale)

    def _within(self, ask: Cells, agreement: Agreement) -> Within:
        check_means(self.name, ask.means, self.labels.combinations, self.frame.features)
        check_basis(self.name, ask.basis, self.frame.features)
        in_range(1, _MOST_RADIUS, radius=ask.radius)
        in_range(0, min(MOST_BITS, ask.basis.shape[1]), bits=ask.bits)
        whole(radius=ask.radius, **{"bits + 1": ask.bits + 1})
        scale = finest(agreement.agree.multipliers[agreement.released], self.moves)
        return Within(ask.means, ask.basis, ask.radius, ask.bits, scale, self.labels.each)

    def _release(self, agreement: Agreement, stage: Stage, what: str) -> Summed:
        """Charge, and only then count."""
        number, agree = agreement.released, agreement.agree
        sigma = noise_for(agree.multipliers[number], self.moves * stage.reach)
        scales = [self._part(scale, len(agree.keys)) for scale in (Fraction(sigma), doubled(sigma))]
        event = moments_event(agree.multipliers[number])
        what = f"{what} with {agreement.peers or 'nobody'}"
        receipt = self.pay(event, what, agreement, of=len(self.releases))
        sums, diagonal = stage.count(self.rows), stage.diagonal
        for cells, scale in ((~diagonal, scales[0]), (diagonal, scales[1])):
            sums = sums + noise_on(cells, scale, self.rng)
        padded = blind(_RING.words(sums), agreement.channels.values(), _RING, stream=number)
        return Summed(sums=Paid(_RING.signed(padded), receipt))

    def _part(self, scale: Fraction, parties: int) -> Fraction:
        colluding = int(self.begun.config["colluding"])
        return noise_share(scale, parties, colluding=colluding)

    @property
    def labels(self) -> Labels:
        return labels_of(self.table.schema)

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


def doubled(sigma: float) -> Fraction:
    """The noise of a diagonal: √2·σ, never less."""
    return rounded_up(sigma * 2**0.5 * (1 + 2.0**-40)) if sigma else Fraction(0)


def labels_of(schema: ArraySchema) -> Labels:
    """The labels that rows have; without any they are of one class."""
    return Labels(schema.label_sizes or (1,))


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


def shares_of(norms: float, shares: Any) -> tuple[float, ...]:
    """Of each release: that of norms first, if there is one."""
    return (*([float(norms)] if norms else []), *map(float, shares))


def check_norms(norms: Any) -> None:
    """Of the budget, for a bound on norms: none, or enough that it can be told."""
    if norms != 0 or type(norms) not in (int, float):
        in_range(0.01, 0.5, norms=norms)


def check_shares(shares: Any) -> None:
    """Of the budget, for the three releases: the third may have none."""
    if not isinstance(shares, tuple | list) or len(shares) != 3:
        raise ConfigError(f"shares are three, one for each release, not {shares!r}.")
    in_range(0.05, 0.9, **{"the first share": shares[0], "the second share": shares[1]})
    if shares[2]:
        in_range(0.05, 0.9, **{"the third share": shares[2]})

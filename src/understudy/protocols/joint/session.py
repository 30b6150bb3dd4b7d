"""What a holder has in hand between the keys of a joint release and its last stage, and
what holders tell each other.

Guarantee: a line between two holders opens nothing unless both were told the same
(`told_alike`) and, where people are aligned, have the same ones in the same places. The
first thing that goes over it is a greeting, and before every stage that the server
chose anything of, a digest of what it chose: who has not heard both from everybody pays
for nothing.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from torch import Tensor

from understudy.ground.check import not_negative
from understudy.ground.errors import (
    ConfigError,
    Effect,
    MessageError,
    PrivacyError,
    SchemaError,
)
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import Channel, fingerprint
from understudy.protocols.joint.messages import Agree, Begin, Delivery
from understudy.protocols.joint.products import Products, sealed
from understudy.protocols.joint.stage import Stage, Study, Terms, digest, settings_of

D = TypeVar("D", bound=Delivery)
# of what is agreed on: told by a fingerprint, or each holder's own
_OWN = ("keys", "seeds", "cells")


def told_alike(run: str, begin: Begin, agree: Agree) -> bytes:
    """A digest of all that a holder was told, for the context of its channels: keys,
    settings, schemas, and all of `agree` but what is each holder's own.
    Guarantee: holders who were told anything else, be it the parties in another order,
    cannot read each other. Who is the first in a product goes by that order: two who
    both took themselves for it would release each other's rows times masks that the
    server dealt.
    """
    terms = {
        one.name: getattr(agree, one.name)
        for one in fields(agree)
        if one.name not in _OWN
    }
    told = [run, asdict(begin), list(begin.schemas), fingerprint(agree.keys), terms]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """A refusal by the study names this party, and says what happened to the data."""
    try:
        yield
    except (ConfigError, MessageError, SchemaError) as error:
        message = error.message
        raise error.restated(
            message if name in message else f"{name}: {message}",
            default=Effect.NOTHING_CHARGED_OR_SENT,
        ) from None


def told_study(
    kind: type[Study[Any]], begin: Begin, name: str, own: Any, agreed: Mapping[str, Any]
) -> Study[Any]:
    """What a holder of rows of its `own` schema is told of a run, if that is what it
    `agreed` to, and knows by itself.
    Edges: another family, other settings, another schema → an error, and nothing is
    charged or sent.
    """
    with refusing(name):
        if begin.family != kind.family:
            raise MessageError(
                f"{name}: this is a party of {kind.family}, not of {begin.family!r}."
            )
        config = settings_of(kind.settings, begin.config, (*kind.settled, *agreed))
        for key, value in agreed.items():
            told = getattr(config, key)
            if (tuple(told) if isinstance(told, list) else told) != value:
                raise MessageError(
                    f"{name}: {key}={told} was asked for, and {value} was agreed to."
                )
        schemas = {one: kind.schema_of(schema) for one, schema in begin.schemas.items()}
        study = kind(config, schemas) if name in schemas else None
        if study is None or not study.same_rows(schemas[name], own):
            raise SchemaError(f"{name}: the run is about another schema.")
    return study


def check_noise(name: str, asked: Sequence[float], needed: Sequence[float]) -> None:
    """No less noise than the budget needs, in every release."""
    if len(asked) != len(needed):
        raise MessageError(
            f"{name}: {len(needed)} scales of noise were due.",
            effect=Effect.NOTHING_SENT,
        )
    for each, least in zip(asked, needed, strict=True):
        not_negative(**{"a noise multiplier": each})
        if each < least:
            raise PrivacyError(
                f"{name}: a noise multiplier of {each:g} was asked for, but its budget "
                f"needs {least:g}.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )


@dataclass
class Session:
    """What a party holds between `Agree` and its last release. It is dropped with that,
    keys and all. Of stages that were released it keeps what later ones look at
    (`Study.lasting`), and nothing of all others.
    """

    study: Study[Any]
    agree: Agree
    channels: dict[str, Channel]
    released: int = 0
    # what the others have yet to show that they were told: keys first, then terms
    word: bytes = b""
    # of the stages that are kept; the last may still be due
    terms: dict[str, Terms] = field(default_factory=dict)
    stages: dict[str, Stage[Any]] = field(default_factory=dict)  # the same
    products: Products | None = None  # of the stage that is due
    # of the stages that are kept
    shares: dict[str, dict[tuple[int, int], Tensor]] = field(default_factory=dict)

    @property
    def due(self) -> str:
        """The stage that is released next."""
        return [*self.study.releases][self.released]

    @property
    def noise(self) -> float:
        return float(self.agree.noise[self.released])

    @property
    def about(self) -> bytes:
        """What its pads and masks are for."""
        return digest(self.released, self.due, self.noise, self.terms[self.due])

    @property
    def lasting(self) -> dict[str, Stage[Any]]:
        """The stages that were released and are looked at by later ones."""
        return {
            name: stage
            for name, stage in self.stages.items()
            if name in self.study.lasting
        }

    @property
    def ring(self) -> Ring:
        return Ring(self.agree.bits)

    @property
    def peers(self) -> str:
        """In one order, whichever the keys came in: a release is charged once by its
        words.
        """
        return ", ".join(sorted(self.channels))

    def greet(self) -> dict[str, Tensor]:
        """A sealed word for every other holder: all keys, as this one was told them.
        Guarantee: who opens it was told the same, of everybody: the channel's context
        holds whatever else was told.
        Edges: a server that made those keys itself speaks for their holders; the
        fingerprint of the keys, in every ledger, is what tells.
        """
        return self.say(
            hashlib.sha256(
                b"understudy greeting " + fingerprint(self.agree.keys).encode()
            ).digest()
        )

    def say(self, word: bytes) -> dict[str, Tensor]:
        """A word for every other holder, sealed, that is due of all of them, too."""
        self.word = word
        return {peer: sealed(channel, word) for peer, channel in self.channels.items()}

    def hear(self, ask: D) -> D:
        """Open the others' words, which come with the next ask. The ask without them.
        Edges: one is missing, too many or another → MessageError, and nothing is
        charged or sent.
        """
        if not self.word:
            return ask
        if ask.inbox.keys() != self.channels.keys():
            raise MessageError(
                "a greeting of another holder is missing or too many.",
                effect=Effect.NOTHING_CHARGED,
            )
        for peer, channel in self.channels.items():
            if not hmac.compare_digest(
                channel.open(ask.inbox[peer].numpy().tobytes()), self.word
            ):
                what = "terms" if any(self.terms.values()) else "keys"
                name = channel.name
                raise MessageError(
                    f"{name}: {peer} was told other {what} than {name}.",
                    effect=Effect.NOTHING_CHARGED,
                )
        self.word = b""
        return replace(ask, inbox={})

    def begin(self, name: str, terms: Terms, stage: Stage[Any]) -> None:
        """This stage is due. Nothing stays of those before it that no later one looks
        at.
        """
        past = self.stages.keys() - self.lasting.keys()
        for held in (self.terms, self.stages, self.shares):
            for one in past & held.keys():
                del held[one]
        self.terms[name], self.stages[name] = terms, stage

    def state_dict(self) -> dict[str, Any]:
        shares = {
            name: [[*groups, own] for groups, own in held.items()]
            for name, held in self.shares.items()
        }
        return {
            "ask": asdict(self.agree),
            "released": self.released,
            "word": self.word,
            "stages": [[name, terms] for name, terms in self.terms.items()],
            "products": None if self.products is None else self.products.state_dict(),
            "shares": shares,
            "channels": {
                peer: line.state_dict() for peer, line in self.channels.items()
            },
        }

    def load_state_dict(self, held: Mapping[str, Any]) -> None:
        """The inverse, but for products, which are begun anew first."""
        self.released = int(held["released"])
        self.word = held["word"]
        names = [*self.study.releases]
        for name, terms in held["stages"]:
            noise = self.agree.noise[names.index(name)]
            before = self.lasting
            self.terms[name], self.stages[name] = (
                terms,
                self.study.stage(name, terms, noise, before),
            )
        self.shares = {
            name: {(g, h): share for g, h, share in shares}
            for name, shares in held["shares"].items()
        }
        for peer, line in self.channels.items():
            line.load_state_dict(held["channels"][peer])

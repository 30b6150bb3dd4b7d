"""What a holder has in hand between the keys of a joint release and its last stage, and
what holders tell each other.

Guarantee: a channel between two holders opens nothing unless both were told the same
(`channel_context`) and, where people are aligned, have the same ones at the same
positions. The first message over it confirms the keys (the handshake); before every
stage that the server chose anything of, another confirms its round parameters. A holder
that has not received both from everybody charges nothing.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

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

if TYPE_CHECKING:
    from understudy.protocols.joint.encrypted import EncryptedProducts

D = TypeVar("D", bound=Delivery)
# of `Agree`: in the context by a fingerprint, or different at each holder
_APART = ("keys", "seeds", "cells")


def channel_context(run: str, begin: Begin, agree: Agree) -> bytes:
    """A digest of all that a holder was told, for the context of its channels: keys,
    settings, schemas, and all of `agree` but what is each holder's own.
    Guarantee: holders who were told anything else, be it the parties in another order,
    cannot read each other. Who is the first in a product goes by that order: two who
    both took themselves for it would release each other's rows times masks that the
    server dealt.
    """
    agreed = {
        field.name: getattr(agree, field.name)
        for field in fields(agree)
        if field.name not in _APART
    }
    context = [run, asdict(begin), list(begin.schemas), fingerprint(agree.keys), agreed]
    return hashlib.sha256(json.dumps(context, sort_keys=True).encode()).digest()


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


def study_from(
    kind: type[Study[Any]],
    begin: Begin,
    name: str,
    own_schema: Any,
    agreed: Mapping[str, Any],
) -> Study[Any]:
    """The study of the run that the server opens, if its settings are those that the
    holder `agreed` to and its schema is the holder's own.
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
            announced = getattr(config, key)
            if (
                tuple(announced) if isinstance(announced, list) else announced
            ) != value:
                raise MessageError(
                    f"{name}: {key}={announced} was asked for, and {value} was agreed "
                    "to."
                )
        schemas = {
            holder: kind.schema_of(schema) for holder, schema in begin.schemas.items()
        }
        study = kind(config, schemas) if name in schemas else None
        if study is None or not study.same_rows(schemas[name], own_schema):
            raise SchemaError(f"{name}: the run is about another schema.")
    return study


def check_noise(name: str, asked: Sequence[float], needed: Sequence[float]) -> None:
    """No less noise than the budget needs, in every release."""
    if len(asked) != len(needed):
        raise MessageError(
            f"{name}: {len(needed)} scales of noise were due.",
            effect=Effect.NOTHING_SENT,
        )
    for multiplier, min_multiplier in zip(asked, needed, strict=True):
        not_negative(**{"a noise multiplier": multiplier})
        if multiplier < min_multiplier:
            raise PrivacyError(
                f"{name}: a noise multiplier of {multiplier:g} was asked for, but its "
                f"budget needs {min_multiplier:g}.",
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
    # what every other holder has yet to confirm: the keys, then each stage's parameters
    confirmation: bytes = b""
    # of the stages that are kept; the last may still be due
    terms: dict[str, Terms] = field(default_factory=dict)
    stages: dict[str, Stage[Any]] = field(default_factory=dict)  # the same
    # of the stage that is due
    products: "Products | EncryptedProducts | None" = None
    # of the stages that are kept
    shares: dict[str, dict[tuple[int, int], Tensor]] = field(default_factory=dict)

    @property
    def next_stage(self) -> str:
        """The stage that is released next."""
        return [*self.study.releases][self.released]

    @property
    def noise(self) -> float:
        return float(self.agree.noise[self.released])

    @property
    def about(self) -> bytes:
        """What its one-time masks are for."""
        return digest(
            self.released, self.next_stage, self.noise, self.terms[self.next_stage]
        )

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

    def handshake(self) -> dict[str, Tensor]:
        """Confirm to every other holder all keys, as this one was told them.
        Guarantee: who opens it was told the same, of everybody: the channel's context
        holds whatever else was told.
        Edges: a server that made those keys itself speaks for their holders; the
        fingerprint of the keys, in every ledger, is what tells.
        """
        return self.confirm(
            hashlib.sha256(
                b"understudy handshake " + fingerprint(self.agree.keys).encode()
            ).digest()
        )

    def confirm(self, confirmation: bytes) -> dict[str, Tensor]:
        """Seal it for every other holder, each of whom owes the same in return."""
        self.confirmation = confirmation
        return {
            peer: sealed(channel, confirmation)
            for peer, channel in self.channels.items()
        }

    def require_confirmed(self, ask: D) -> D:
        """Open the others' confirmations, which come with the next ask. Returns the ask
        without them.
        Edges: one is missing, too many or another → MessageError, and nothing is
        charged or sent.
        """
        if not self.confirmation:
            return ask
        if ask.inbox.keys() != self.channels.keys():
            raise MessageError(
                "a handshake of another holder is missing or too many.",
                effect=Effect.NOTHING_CHARGED,
            )
        for peer, channel in self.channels.items():
            if not hmac.compare_digest(
                channel.open(ask.inbox[peer].numpy().tobytes()), self.confirmation
            ):
                what = "terms" if any(self.terms.values()) else "keys"
                name = channel.name
                raise MessageError(
                    f"{name}: {peer} was told other {what} than {name}.",
                    effect=Effect.NOTHING_CHARGED,
                )
        self.confirmation = b""
        return replace(ask, inbox={})

    def begin(self, name: str, terms: Terms, stage: Stage[Any]) -> None:
        """This stage is due. Nothing stays of those before it that no later one looks
        at.
        """
        past = self.stages.keys() - self.lasting.keys()
        for by_stage in (self.terms, self.stages, self.shares):
            for stage_name in past & by_stage.keys():
                del by_stage[stage_name]
        self.terms[name], self.stages[name] = terms, stage

    def state_dict(self) -> dict[str, Any]:
        shares = {
            name: [[*groups, share] for groups, share in by_groups.items()]
            for name, by_groups in self.shares.items()
        }
        return {
            "ask": asdict(self.agree),
            "released": self.released,
            "confirmation": self.confirmation,
            "stages": [[name, terms] for name, terms in self.terms.items()],
            "products": None if self.products is None else self.products.state_dict(),
            "shares": shares,
            "channels": {
                peer: channel.state_dict() for peer, channel in self.channels.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse, but for products, which are begun anew first."""
        self.released = int(state["released"])
        self.confirmation = state["confirmation"]
        names = [*self.study.releases]
        for name, terms in state["stages"]:
            noise = self.agree.noise[names.index(name)]
            before = self.lasting
            self.terms[name], self.stages[name] = (
                terms,
                self.study.stage(name, terms, noise, before),
            )
        self.shares = {
            name: {(g, h): share for g, h, share in shares}
            for name, shares in state["shares"].items()
        }
        for peer, channel in self.channels.items():
            channel.load_state_dict(state["channels"][peer])

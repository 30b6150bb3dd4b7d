"""Holders who agree on keys, and then release under pads: what the engine of joint releases rests on.

    Begin   the settings and everybody's schema: a party checks them, states what its budget needs, and draws a key
    Agree   everybody's keys and the noise: it checks them, and seals a greeting for every other party
    …       the family's own asks, of which the first brings the others' greetings (`hear`); each release is paid for
            by `pay`, and by nothing else

A family's messages are subclasses of those here, with kinds of their own. The server's side stands in `agreeing`.

Guarantee: nothing is charged, and so nothing that is paid for leaves, before every other holder has shown that it was
told the same (`products.told_alike`), and where people are aligned that it has the same ones in the same places
(`AlignedParty.shared_with`). A release is charged once under its keys, whatever state the party is put back to: two
releases under the same pads would differ by one party's own sums. With the last one the keys are dropped. From `Begin`
until then the state is not saved on the server's word (`Keep`).
Edges: an ask that is repeated or out of turn → an error, and nothing is charged or sent; a session that is lost begins
again with `Begin`, new keys, and a new price.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from understudy.ground.check import not_negative
from understudy.ground.errors import MessageError, PartyError, PrivacyError, SchemaError
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Receipt
from understudy.privacy.secure.channel import Channel, KeyPair, connect, fingerprint
from understudy.protocols.core.base import Ask, Assembly, Keep, Party, Public, Reply
from understudy.protocols.core.products import Delivery, confirm, greetings, told_alike


@dataclass(frozen=True, kw_only=True)
class Stated(Reply):
    """What every holder says when a run begins; what its budget needs is the family's own."""

    budget: Public
    noise: Public
    key: Public


@dataclass(frozen=True, kw_only=True)
class Keys(Ask):
    """Who takes part, with which keys."""

    keys: dict[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Greeted(Reply):
    """The fingerprint of all keys as this party was told them, and a sealed greeting for every other party."""

    fingerprint: Public
    outbox: Public


class Beginnings(NamedTuple):
    """A family's messages until its holders have agreed."""

    begin: type[Assembly]
    begun: type[Stated]
    agree: type[Keys]
    agreed: type[Greeted]


@dataclass
class Agreement:
    """What a party holds between `Agree` and its last release. It is dropped with that, keys and all."""

    agree: Any
    channels: dict[str, Channel]
    released: int = 0
    greeted: bool = False  # whether all others have shown that they were told the same

    @property
    def peers(self) -> str:
        """In one order, whichever the keys came in: a release is charged once by its words."""
        return ", ".join(sorted(self.channels))


def masked_rows(peers: str) -> str:
    """What a ledger says of the rows that are multiplied with others'."""
    return f"masked rows for {peers}, sealed: they tell nothing, outside ε"


H = TypeVar("H", bound=Agreement)
D = TypeVar("D", bound=Delivery)


class KeyedParty(Party, Generic[H]):
    """A holder's side. See the module.

    `agreed`: settings that the holder knows by itself, whatever a server says. `needed`: the noise that its budget
    needs in each release.
    """

    beginnings: ClassVar[Beginnings]
    sure: ClassVar[float] = (
        0.99  # of what the run may cost (`alignment`): all of it is Gaussian noise, or pure
    )

    def __init__(
        self, *holder: Any, budget: Budget, agreed: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        super().__init__(*holder, **more)
        self.budget, self.agreed = budget, dict(agreed or {})
        self.needed: list[float] = []
        self.forget()

    def forget(self) -> None:
        """Drop the session, if there is one."""
        self.begun: Any = None  # the family's `Begin`
        self.pair: KeyPair | None = None
        self.agreement: H | None = None

    # What a family says for itself

    @abstractmethod
    def take_up(self, ask: Any) -> None:
        """Check a `Begin`, `renew` with it, and keep what it fixes."""

    @abstractmethod
    def needs(self) -> dict[str, Public]:
        """What the family's `Begun` states besides: the noise that the budget needs, if the ledger affords it."""

    @abstractmethod
    def open(self, ask: Any) -> H:
        """Check an `Agree`, and derive lines to the others from it (`lines`)."""

    @abstractmethod
    def go_on(self, ask: Ask, agreement: H) -> Reply | None:
        """The answer to what is due after `Agree`, and None to all else."""

    def may_agree_again(self, agreement: H) -> bool:
        """Whether who takes part may still change."""
        return False

    def kept(self, agreement: H) -> dict[str, Any]:
        """The state of an agreement, besides what is common."""
        return {}

    def restore(self, agreement: H, held: Mapping[str, Any]) -> None:
        """The inverse of `kept`, of an agreement that was just opened."""

    # The session

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        agreement = self.agreement
        if isinstance(ask, self.beginnings.begin):
            return self._begin(ask)
        if isinstance(ask, self.beginnings.agree) and self.pair is not None:
            if agreement is None or self.may_agree_again(agreement):
                return self._agree(ask)
        elif agreement is not None and (reply := self.go_on(ask, agreement)) is not None:
            return reply
        raise self.unexpected(ask)

    def _begin(self, ask: Assembly) -> Reply:
        self.take_up(ask)
        stated = self.needs()
        self.pair = KeyPair(self.rng.bytes(32) if self.rng.seeded else None)
        return self.beginnings.begun(
            **stated,
            budget=Public(asdict(self.budget) if self.private else None, "the holder's own choice"),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _agree(self, ask: Keys) -> Reply:
        agreement, mark = self.open(ask), fingerprint(ask.keys)
        self.agreement = agreement
        return self.beginnings.agreed(
            fingerprint=Public(mark, "a hash of public keys"),
            outbox=Public(greetings(agreement.channels, ask.keys), "a word about public keys, sealed"),
        )

    def hear(self, ask: D, agreement: H) -> D:
        """Open the others' greetings, which come with the first ask after `Agree`. The ask without them.

        Edges: one was told anything else → MessageError, and nothing is charged or sent.
        """
        if agreement.greeted:
            return ask
        confirm(agreement.channels, agreement.agree.keys, ask.inbox)
        agreement.greeted = True
        return replace(ask, inbox={})

    def pay(self, event: DpEvent, what: str, agreement: H, *, of: int) -> Receipt:
        """Charge the next of so many releases, and end the agreement with the last one."""
        if not agreement.greeted:
            raise MessageError(
                f"{self.name}: the others have not shown what they were told. Nothing was charged or sent."
            )
        receipt = self.ledger.charge(
            event,
            run=self.run,
            what=f"{what}; keys {fingerprint(agreement.agree.keys)}",
            once=True,  # also for a server that puts this party back to before it: pads are for one release
        )
        agreement.released += 1
        if agreement.released == of:
            self.agreement = self.pair = None  # a further release takes new keys, and is charged again
        return receipt

    # What families check alike

    @property
    def private(self) -> bool:
        return self.begun is not None and bool(self.begun.config["private"])

    def renew(self, ask: Assembly) -> None:
        """Begin anew with this ask, which was checked."""
        self.forget()
        self.begun = ask

    def as_agreed(self, config: Mapping[str, Any], settled: Iterable[str]) -> None:
        """The settings, held to what the holder knows by itself."""
        for key in (*settled, *self.agreed):
            if key not in config:
                raise MessageError(f"{self.name}: the settings lack {key}. Nothing was charged or sent.")
        for key, value in self.agreed.items():
            told = tuple(config[key]) if isinstance(config[key], list) else config[key]
            if told != value:
                raise MessageError(
                    f"{self.name}: {key}={told} was asked for, and {value} was agreed to. "
                    "Nothing was charged or sent."
                )

    def other_schema(self) -> SchemaError:
        """The refusal of a run in which this party's rows are described differently."""
        return SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")

    def enough(self, people: int) -> None:
        """Two people, where their number is known to all: where it is not, a refusal would tell it."""
        if people < 2:
            raise PartyError(f"{self.name}: {people} people are too few to count. Nothing was charged.")

    def enough_noise(self, asked: Sequence[float], what: str = "a noise multiplier") -> None:
        """No less noise than the budget needs, in every release."""
        if len(asked) != len(self.needed):
            raise MessageError(f"{self.name}: {len(self.needed)} scales of noise were due. Nothing was sent.")
        for each, least in zip(asked, self.needed, strict=True):
            not_negative(**{what: each})
            if each < least:
                raise PrivacyError(
                    f"{self.name}: {what} of {each:g} was asked for, but its budget needs {least:g}. "
                    "Nothing was charged or sent."
                )

    def lines(
        self,
        ask: Any,
        *besides: Any,
        own: Iterable[str] = ("seeds",),
        shared: Mapping[str, bytes] | None = None,
    ) -> dict[str, Channel]:
        """A channel to every other holder, under all that this one was told, but for what is each one's `own`, and
        under what it has in common with that one (`AlignedParty.shared_with`).
        """
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        context = told_alike(self.run, self.begun, ask, *besides, own=own)
        return connect(self.name, self.pair, ask.keys, context=context, shared=shared)

    # The state, as it is saved

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None and self.pair is not None:
            begun = {"ask": asdict(self.begun), "secret": self.pair.secret, "needed": list(self.needed)}
            state["begun"] = begun
        if (agreement := self.agreement) is not None:
            state["agreement"] = self.kept(agreement) | {
                "ask": asdict(agreement.agree),
                "released": agreement.released,
                "greeted": agreement.greeted,
                "channels": {peer: line.state_dict() for peer, line in agreement.channels.items()},
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.forget()
        if (begun := state.get("begun")) is None:
            return
        self.take_up(self.beginnings.begin(**begun["ask"]))
        self.pair, self.needed = KeyPair(begun["secret"]), list(begun["needed"])
        if (held := state.get("agreement")) is not None:
            self.agreement = agreement = self.open(self.beginnings.agree(**held["ask"]))
            agreement.released, agreement.greeted = int(held["released"]), bool(held["greeted"])
            self.restore(agreement, held)
            for peer, line in agreement.channels.items():
                line.load_state_dict(held["channels"][peer])

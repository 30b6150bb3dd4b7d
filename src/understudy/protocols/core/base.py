"""The server asks, parties answer: the types that every protocol is written in.

A protocol file holds a `Config`, its asks and replies (frozen dataclasses), a `Party`
that answers them, and `train(config, parties, …)` that asks.

Guarantee: a `Reply` can be built only from `Paid` and `Public` values, so that whatever
a party says either bears the receipt of a ledger entry made first, or states why it is
public.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, dataclass_transform

from dp_accounting import DpEvent

from understudy.ground.durable import own_folder, replace
from understudy.ground.errors import (
    ArtefactError,
    BareReplyError,
    Effect,
    MessageError,
    PrivacyError,
)
from understudy.ground.pack import Value, pack, unpack
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import Spend, event_from_json, event_to_json
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.accounts.price_terms import PriceTerms
from understudy.privacy.noise import Rng, SecureRng

VIEWS = ("outsider", "anyone")
STOPPED = "stopped.safetensors"


@dataclass(frozen=True)
class Paid:
    """A value computed from rows, with the receipt of what was written into the ledger
    before.
    """

    value: Value
    receipt: Receipt


@dataclass(frozen=True)
class Public:
    """A value that no row has touched, or that is disclosed outside ε, and why that is
    so.
    """

    value: Value
    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise BareReplyError(
                "A public value needs a reason.", effect=Effect.NOTHING_SENT
            )


@dataclass(frozen=True, kw_only=True)
@dataclass_transform(frozen_default=True, kw_only_default=True)
class Message:
    """One ask or reply: a frozen dataclass of plain values and tensors. `kind`, written
    out, is its wire name.
    """

    _kind: ClassVar[str] = ""

    def __init_subclass__(cls, *, kind: str = "") -> None:
        super().__init_subclass__()
        # not inherited: two classes of one kind could not be told apart
        cls._kind = kind
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def kind(cls) -> str:
        if not cls._kind:
            raise MessageError(f"{cls.__name__} has no kind and cannot be sent.")
        return cls._kind

    @classmethod
    def meaning(cls) -> str:
        """What it asks or says: the first sentence of its docstring."""
        return first_sentence(cls.__doc__ or "")


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.?]) (?=[A-Z])", paragraph)[0]


class Ask(Message):
    """From the server to a party. It holds nothing that a party did not release
    before.
    """


class Opening(Ask):
    """An ask by which a run begins at a party: all settings of the run. Under a
    contract they are the contract's, or the party never sees the ask
    (`runtime.session`). No other ask bears settings: what a server may choose between
    two asks is typed, field by field, and the party's to check.
    """

    config: dict[str, Any]


class Assembly(Opening):
    """An opening that names all parties with what is public of their rows; under a
    contract those are its own, too.
    """

    schemas: dict[str, dict[str, Any]]


class Reply(Message):
    """From a party to the server. Every field is `Paid` or `Public`."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not isinstance(getattr(self, field.name), Paid | Public):
                raise BareReplyError(
                    f"{self.kind()}.{field.name} has neither a receipt nor a public "
                    "reason.",
                    effect=Effect.NOTHING_SENT,
                )


class Keep(Ask, kind="run.keep"):
    """Save your state under this round, so that the run can resume from here."""

    round: int


class Return(Ask, kind="run.return"):
    """Go back to the state that was saved under this round."""

    round: int


class Done(Reply, kind="run.done"):
    """Done as asked."""

    round: Public


class Settle(Ask, kind="run.settle"):
    """What has this run cost your person with the highest spend?"""


class Settled(Reply, kind="run.settled"):
    """How often each event is in the ledger, as an outsider and as anyone sees it."""

    spend: Public


class Party(ABC):
    """One holder: its rows, its ledger, its secret randomness, and the answers it
    gives. A party is rebuilt by its constructor and `load_state_dict`; nothing else is
    needed to go on. The state of its randomness is part of that only in a rehearsal:
    outside one, a party that comes back draws fresh noise, since the same noise under
    two different questions would reveal their difference.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        Keep,
        Return,
        Done,
        Settle,
        Settled,
    )
    protocol: str = ""  # by name: `Protocol.build` says it
    # what the schema of its rows says of having been drafted from rows
    drafted: tuple[str, ...] = ()
    budget: Budget  # what the run may cost here

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        *,
        run: str,
        rng: Rng | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.ledger = ledger
        self.run = run
        self.folder = folder
        self.rng = rng if rng is not None else SecureRng()
        if self.rng.seeded and ledger.real:
            raise PrivacyError(
                f"{name}: seeded noise can be repeated by anyone who knows the seed, "
                "so it is for rehearsals; "
                "this ledger is real.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def charge(self, event: DpEvent, *, description: str, **more: Any) -> Receipt:
        """`Ledger.charge` for this run, with how its price is to be read."""
        return self.ledger.charge(
            event,
            run=self.run,
            description=description,
            terms=self.price_terms(),
            **more,
        )

    def price_terms(self) -> PriceTerms | None:
        """How the price of this run is to be read, by what this party knows itself.
        None where another says it.
        """
        limits = (
            [self.budget]
            if self.ledger.limit is None
            else [self.budget, self.ledger.limit]
        )
        return PriceTerms(
            protocol=self.protocol,
            budgets=tuple(dict.fromkeys(limits)),
            noise=self.rng.name,
            rehearsal=self.rehearsal,
            drafted=self.drafted,
            people=self.stated_people,
            **self.composition(),
        )

    @property
    def stated_people(self) -> int | None:
        """How many people this party states to the run; None where their number stays
        here.
        """
        return None

    @abstractmethod
    def composition(self) -> dict[str, Any]:
        """What `PriceTerms` says of this run: over whom prices compose, what one person
        means, who is believed.
        """

    def stated_noise(self) -> Public:
        """What the run's statement says of this party's noise, and whether it is of a
        rehearsal.
        """
        stated: Value = {"generator": self.rng.name, "rehearsal": list(self.rehearsal)}
        return Public(stated, "the kind of generator, not its state")

    @property
    def rehearsal(self) -> tuple[str, ...]:
        """Why what this party does protects nobody (keys of `REHEARSED`); nothing where
        it is the real thing.
        """
        why = {
            "seed": self.rng.seeded,
            "fast": not self.rng.secure,
            "ledger": not self.ledger.real,
        }
        return tuple(key for key, true in why.items() if true)

    def answer(self, ask: Ask) -> Reply:
        """Answer one ask. Whatever it raises, nothing else has left."""
        match ask:
            case Keep():
                file = self._file(ask.round)
                replace(file, pack(self.state_dict()))
                # The server writes after its parties: until it has, it may still return
                # to the round before.
                states = sorted(file.parent.glob("state-*.safetensors"), key=_round_of)
                for old in [state for state in states if _round_of(state) < ask.round][
                    :-1
                ]:
                    old.unlink()
                return Done(round=Public(ask.round, "the server's own number"))
            case Return():
                file = self._file(ask.round)
                if not file.exists():
                    raise ArtefactError(
                        f"{self.name}: no state was saved for round {ask.round}."
                    )
                state = unpack(file.read_bytes())
                if not isinstance(state, dict):
                    raise ArtefactError(
                        f"{self.name}: {file.name} does not hold a party's state."
                    )
                self.load_state_dict(state)
                return Done(round=Public(ask.round, "the server's own number"))
            case Settle():
                uses: dict[str, Value] = {}
                for view in VIEWS:
                    spend = self.ledger.spend(against=view, run=self.run)
                    uses[view] = {
                        event_to_json(event): count
                        for event, count in spend.items()
                        if count
                    }
                return Settled(
                    spend=Public(
                        uses,
                        "prices: they follow from the settings and from what was asked",
                    )
                )
        return self.respond(ask)

    def stop(self) -> None:
        """Save the state between two asks, by the holder itself and not on a server's
        word.
        """
        if self.folder is not None:
            replace(
                own_folder(self.folder) / STOPPED, pack(self.state_dict()), sync=True
            )

    def stopped(self) -> dict[str, Any] | None:
        """The state that `stop` saved, once: it is removed."""
        file = None if self.folder is None else self.folder / STOPPED
        if file is None or not file.exists():
            return None
        state = unpack(file.read_bytes())
        file.unlink()
        return state if isinstance(state, dict) else None

    @abstractmethod
    def respond(self, ask: Ask) -> Reply:
        """Answer an ask of the protocol itself."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes between two asks, as plain values and tensors."""
        state: dict[str, Any] = {"real": self.ledger.real}
        return state | {"rng": self.rng.state_dict()} if self.rng.seeded else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`. A rehearsal's state at a real ledger, or the
        reverse → ArtefactError.
        """
        if state.get("real", self.ledger.real) != self.ledger.real:
            raise ArtefactError(
                f"{self.name}: a rehearsal is resumed as a rehearsal, and a run with a "
                "real ledger with that ledger.",
                effect=Effect.NOTHING_CHARGED,
            )
        if "rng" in state and self.rng.seeded:
            self.rng.load_state_dict(state["rng"])

    def unexpected(self, ask: Ask) -> MessageError:
        return MessageError(
            f"{self.name}: {ask.kind()} was not expected here.",
            effect=Effect.NOTHING_COMPUTED_OR_SENT,
        )

    def _file(self, round: int) -> Path:
        if self.folder is None:
            raise ArtefactError(
                f"{self.name}: this party has no folder to keep its state in."
            )
        return own_folder(self.folder) / f"state-{round}.safetensors"


def _round_of(file: Path) -> int:
    return int(file.stem.removeprefix("state-"))


class Parties(Protocol):
    """The other side of the line, as the server sees it. Implemented by each
    runtime.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in a fixed order."""

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        """Ask all the same, or each its own. A refusal is raised; so is PartyAway,
        unless `min_holders` have answered.
        """


@dataclass(frozen=True)
class Progress:
    """What a progress bar may show: rounds or releases (by `stage` also ids that are
    aligned, parts that are counted, chunks of people that are multiplied), and prices,
    which take long.
    """

    done: int
    rounds: int
    epsilon: Callable[[], Mapping[str, float]]
    stage: Literal["aligning", "counting", "multiplying", "training"] = "training"


Watcher = Callable[[Progress], None]


def settled(
    parties: Parties,
    names: Iterable[str] | None = None,
    *,
    min_holders: int | None = None,
) -> dict[str, dict[str, Spend]]:
    """What the ledgers of the parties (of these, where named) say of this run, to an
    outsider and to anyone.
    """
    ask = Settle() if names is None else dict.fromkeys(names, Settle())
    replies = (
        parties.ask(ask)
        if min_holders is None
        else parties.ask(ask, min_holders=min_holders)
    )

    def read(uses: Mapping[str, int]) -> Spend:
        return {event_from_json(event): count for event, count in uses.items()}

    return {
        name: {view: read(uses) for view, uses in reply.spend.value.items()}
        for name, reply in replies.items()
    }


def public_values(replies: Mapping[str, Reply]) -> dict[str, dict[str, Any]]:
    """What each party stated in its reply, plain, by the names of the reply's
    fields.
    """
    return {
        name: {key: stated.value for key, stated in vars(reply).items()}
        for name, reply in replies.items()
    }

"""Servers and parties that do not do as they should, for the tests of several
protocols.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from understudy.ground.errors import MessageError, PartyAway, SchemaError
from understudy.protocols.core.base import Ask
from understudy.protocols.joint.messages import Begin, Propose
from understudy.runtime.local import LocalParties, addressed


def charged(holder: Any) -> list[Any]:
    """What stands in a holder's ledger beside its budget."""
    return [entry for entry in holder.ledger.entries() if entry.count]


class Crooked(LocalParties):
    """A server that changes what it asks for, of each party by its name."""

    def __init__(self, parties: Any, change: Callable[[str, Any], Ask]) -> None:
        super().__init__(parties)
        self.change = change

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = addressed(message, self.names)
        changed = {name: self.change(name, ask) for name, ask in asks.items()}
        return super().ask(changed, min_holders=min_holders)


def to(party: str, change: Callable[[Any], Ask]) -> Callable[[str, Any], Ask]:
    """The change, of what this party is asked."""
    return lambda name, ask: change(ask) if name == party else ask


def of_kind(
    kind: type[Ask], change: Callable[[str, Any], Ask]
) -> Callable[[str, Any], Ask]:
    """The change, of asks of this kind alone."""
    return lambda name, ask: change(name, ask) if isinstance(ask, kind) else ask


@dataclass(frozen=True)
class Changed:
    """An ask of this kind, with other values; of a proposal for this stage, with other
    terms.
    """

    kind: type[Ask]
    values: Mapping[str, Any]
    stage: str = ""

    def __call__(self, name: str, ask: Ask) -> Ask:
        if not isinstance(ask, self.kind):
            return ask
        if isinstance(ask, Propose):
            if ask.stage != self.stage:
                return ask
            return replace(ask, terms=ask.terms | self.values)
        return replace(
            ask, **{key: v(ask) if callable(v) else v for key, v in self.values.items()}
        )


def changed(kind: type[Ask], **values: Any) -> Changed:
    return Changed(kind, values)


def proposed(stage: str, **terms: Any) -> Changed:
    return Changed(Propose, terms, stage)


# what no party of a joint release begins with
OTHER_BEGINNINGS = [
    (
        changed(Begin, config=lambda a: a.config | {"private": False}),
        MessageError,
        "was agreed to",
    ),
    (
        changed(Begin, config=lambda a: a.config | {"max_holders_per_person": 2}),
        MessageError,
        "was agreed to",
    ),
    (changed(Begin, config=lambda a: {}), MessageError, "the settings lack"),
    (changed(Begin, schemas={}), SchemaError, "another schema"),
]


class Leaving(LocalParties):
    """Parties of which one goes away when it is asked for this kind of message, or for
    the release of this stage.
    """

    def __init__(self, parties: Any, who: str, at: str) -> None:
        super().__init__(parties)
        self.who = who
        self.at = at
        self.is_gone = False

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = dict(addressed(message, self.names))
        self.is_gone = self.is_gone or any(
            self.at in (ask.kind(), getattr(ask, "stage", ""))
            for ask in asks.values()
            if not isinstance(ask, Propose)
        )
        here = {
            name: ask
            for name, ask in asks.items()
            if not (self.is_gone and name == self.who)
        }
        if len(here) < len(asks) and (min_holders is None or len(here) < min_holders):
            raise PartyAway(f"{self.who} is away.")
        return super().ask(here)


class CutOff(LocalParties):
    """Parties whose round of this number is interrupted after they have answered,
    before the server has it.
    """

    def __init__(self, parties: Any, kind: type[Ask], number: int) -> None:
        super().__init__(parties)
        self.kind = kind
        self.number = number

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        replies = super().ask(message, min_holders=min_holders)
        asks = addressed(message, self.names).values()
        if any(isinstance(one, self.kind) and one.round == self.number for one in asks):
            raise KeyboardInterrupt
        return replies


def resumed(
    train: Callable[..., Any],
    config: Any,
    parties: Callable[[], Any],
    schemas: Mapping[str, Any],
    checkpoint: Path,
    *,
    after: tuple[type[Ask], int],
) -> Any:
    """The outcome of a run whose round `after` was cut off."""
    with pytest.raises(KeyboardInterrupt):
        train(config, CutOff(parties(), *after), schemas, checkpoint=checkpoint)
    again = LocalParties(parties())
    return train(config, again, schemas, checkpoint=checkpoint, resume=True)


class Spoiling(LocalParties):
    """Some hosts' replies of this kind are put through functions."""

    def __init__(
        self,
        parties: Any,
        kind: type[Any],
        spoil: Mapping[str, Callable[[Tensor], Any]],
    ) -> None:
        super().__init__(parties)
        self.kind = kind
        self.spoil = spoil

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        replies = super().ask(message, min_holders=min_holders)
        for name, spoil in self.spoil.items():
            reply = replies.get(name)
            if isinstance(reply, self.kind):
                value = spoil(reply.reports.value)
                replies[name] = replace(
                    reply, reports=replace(reply.reports, value=value)
                )
        return replies

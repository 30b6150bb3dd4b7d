"""Parties through bytes: "works here" then means "works over a network"."""

from collections.abc import Callable, Mapping
from typing import Any

from understudy.ground.errors import PartyError
from understudy.ground.pack import pack, unpack
from understudy.protocols.core import Ask, Party, Reply
from understudy.runtime.local import Transcript, addressed
from understudy.runtime.wire import decode, encode


class BytesParties:
    """The same through bytes, with every party rebuilt from its saved state between
    messages.
    """

    def __init__(self, build: Mapping[str, Callable[[], Party]]) -> None:
        self._build = dict(build)
        self._state = {
            name: pack(make().state_dict()) for name, make in self._build.items()
        }
        self.transcript = Transcript()

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in the order in which they were given."""
        return tuple(self._build)

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        """Ask all the same, or each named party its own. Who is here does not go
        away.
        """
        replies: dict[str, Any] = {}
        for name, ask in addressed(message, self.names).items():
            party = self._build[name]()
            state = unpack(self._state[name])
            if not isinstance(state, dict):
                raise PartyError(f"{name}: its saved state cannot be read.")
            party.load_state_dict(state)
            down = encode(ask)
            received = decode(down, party.messages)
            if not isinstance(received, Ask):
                raise PartyError(f"{name}: {received.kind()} is not an ask.")
            up = encode(party.answer(received))
            self._state[name] = pack(party.state_dict())
            reply = decode(up, party.messages)
            if not isinstance(reply, Reply):
                raise PartyError(f"{name}: {reply.kind()} is not a reply.")
            replies[name] = reply
            self.transcript.record(name, ask, reply, down=len(down), up=len(up))
        return replies

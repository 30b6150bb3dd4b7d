"""Who may stand in the door: how many connections, and how long one may say nothing.
Below TLS: it holds before, too.

The listening socket counts what it accepts, and the accepted sockets tell when they
close: the event loop and TLS know nothing of it.

Guarantee: an address has at most `each` connections, all together `most`; one that has
not sent the head of a request within `hello` seconds, TLS included, or within `idle`
after an answer, is closed; so is a request that is not over after `whole` seconds. When
all places are taken, the oldest one that has said nothing makes room for the newest.
Edges: behind a proxy all come from one address, and its own limits count: `each` is
None then.
"""

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from understudy.ground.errors import ConfigError

MOST = 1000
_OTHER_FILES = 200  # that a server has open besides its connections
HELLO = 10.0
IDLE = 30.0


class Doors:
    """The connections of one server. For the event loop's thread alone."""

    def __init__(
        self,
        *,
        most: int = MOST,
        each: int | None,
        hello: float = HELLO,
        idle: float = IDLE,
        whole: float,
    ) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES
        self.most = most if files < 0 else max(1, min(most, files))
        self.each = each
        self.hello = hello
        self.idle = idle
        self.whole = whole
        self._from: Counter[str] = Counter()
        self._open: dict[int, _Accepted] = {}
        self._silent: dict[int, None] = {}  # in the order in which they came
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def enter(self, connection: "_Accepted") -> bool:
        if self.each is not None and self._from[connection.address] >= self.each:
            return False
        if len(self._open) >= self.most:
            if not self._silent:
                return False
            self._hang_up(next(iter(self._silent)))
        self._from[connection.address] += 1
        self._open[connection.fileno()] = connection
        self.silent(connection.fileno(), self.hello)
        return True

    def silent(self, place: int, seconds: float) -> None:
        """Nothing is being asked for: within so many seconds something has to be."""
        self._silent[place] = None
        self._within(place, seconds)

    def asked(self, place: int) -> None:
        self._silent.pop(place, None)
        self._within(place, self.whole)

    def leave(self, connection: "_Accepted") -> None:
        place = connection.fileno()
        if self._open.get(place) is not connection:
            return
        del self._open[place]
        self._silent.pop(place, None)
        self._timers.pop(place).cancel()
        self._from[connection.address] -= 1
        if not self._from[connection.address]:
            del self._from[connection.address]

    def _within(self, place: int, seconds: float) -> None:
        if place not in self._open:
            return
        if place in self._timers:
            self._timers[place].cancel()
        self._timers[place] = asyncio.get_running_loop().call_later(
            seconds, self._hang_up, place
        )

    def _hang_up(self, place: int) -> None:
        """Both directions are over: whoever reads from it, TLS or HTTP, finds its end
        and closes it.
        """
        connection = self._open[place]
        self._silent.pop(place, None)
        with suppress(OSError):  # the other end was quicker
            connection.shutdown(socket.SHUT_RDWR)


class _Accepted(socket.socket):
    doors: Doors
    address: str

    def close(self) -> None:
        if self.fileno() >= 0:
            self.doors.leave(self)
        super().close()


class _Listening(socket.socket):
    doors: Doors

    def accept(self) -> tuple[socket.socket, Any]:
        handle, address = self._accept()  # type: ignore[attr-defined]
        connection = _Accepted(self.family, self.type, self.proto, fileno=handle)
        connection.doors = self.doors
        connection.address = str(address[0])
        if not self.doors.enter(connection):
            socket.socket.close(connection)
            # the loop takes this for a connection that broke before it was taken up
            raise ConnectionAbortedError
        return connection, address


class DoorsServer(Server):
    """uvicorn's server, behind doors. `ready` gets the port once it listens."""

    def __init__(
        self,
        config: Config,
        doors: Doors,
        ready: Callable[[int], None] = lambda port: None,
    ) -> None:
        super().__init__(config)
        self.doors = doors
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets or self._listen())
        self.ready(int(self.servers[0].sockets[0].getsockname()[1]))

    def _listen(self) -> list[socket.socket]:
        host = self.config.host
        port = self.config.port
        made: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, kind, proto, _, address in dict.fromkeys(found):
                listening = _Listening(family, kind, proto)
                made.append(listening)
                listening.doors = self.doors
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
        except OSError as error:
            for opened in made:
                opened.close()
            raise ConfigError(
                f"{host}:{port} cannot be used for listening ({error.strerror}). "
                "Choose another port: --port N, or "
                "--listen HOST:PORT where the command has that."
            ) from None
        return made


class DoorsProtocol(H11Protocol):
    """HTTP/1.1 that tells the doors when something is asked."""

    doors: Doors  # of a class for each server

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._place = transport.get_extra_info("socket").fileno()
        super().connection_made(transport)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.doors.asked(self._place)

    def on_response_complete(self) -> None:
        self.doors.silent(self._place, self.doors.idle)
        super().on_response_complete()

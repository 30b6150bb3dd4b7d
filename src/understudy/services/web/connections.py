"""How many connections a server holds, and how long one may say nothing. Below TLS, so
that it holds before the handshake, too.

The listening socket counts what it accepts, and the accepted sockets tell when they
close: the event loop and TLS know nothing of it. Requests are seen by an ASGI wrapper,
which knows its connection by the addresses of both ends.

uvicorn's own `limit_concurrency` does not do this: it counts a silent connection as any
other and answers 503 to everybody once all are taken, so that 1,100 connections of one
stranger keep all members out (`benchmarks/network/silent.csv`). A proxy in front limits
connections by itself, but a service also has to stand without one.

Guarantee: an address has at most `max_per_address` connections, all together
`max_connections`; one that has not sent the head of a request within `hello` seconds,
TLS included, or within `idle` after an answer, is closed; so is a request that is not
over after `whole` seconds. When all are taken, the oldest one that has said nothing
makes room for the newest.
Edges: behind a proxy all come from one address, and its own limits count:
`max_per_address` is None then.
"""

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server

from understudy.ground.errors import ConfigError

MAX_CONNECTIONS = 1000
_OTHER_FILES = 200  # that a server has open besides its connections
HELLO = 10.0
IDLE = 30.0

Ends = tuple[str, int, str]  # the peer's address and port, and our own address


class ConnectionLimits:
    """The connections of one server. For the event loop's thread alone."""

    def __init__(
        self,
        *,
        max_connections: int = MAX_CONNECTIONS,
        max_per_address: int | None,
        hello: float = HELLO,
        idle: float = IDLE,
        whole: float,
    ) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES
        self.max_connections = (
            max_connections if files < 0 else max(1, min(max_connections, files))
        )
        self.max_per_address = max_per_address
        self.hello = hello
        self.idle = idle
        self.whole = whole
        self._per_address: Counter[str] = Counter()
        self._open: dict[Ends, _Accepted] = {}
        self._silent: dict[Ends, None] = {}  # in the order in which they came
        self._requests: Counter[Ends] = Counter()
        self._timers: dict[Ends, asyncio.TimerHandle] = {}

    def admit(self, connection: "_Accepted") -> bool:
        """Count a new connection, unless there are too many."""
        address = connection.ends[0]
        limit = self.max_per_address
        if limit is not None and self._per_address[address] >= limit:
            return False
        if len(self._open) >= self.max_connections:
            if not self._silent:
                return False
            self._hang_up(next(iter(self._silent)))
        self._per_address[address] += 1
        self._open[connection.ends] = connection
        self._wait_for_request(connection.ends, self.hello)
        return True

    def begin_request(self, ends: Ends) -> None:
        if ends in self._open:
            self._requests[ends] += 1
            self._silent.pop(ends, None)
            self._end_within(ends, self.whole)

    def end_request(self, ends: Ends) -> None:
        """The next request may have begun before the last one has cleaned up."""
        if ends in self._open:
            self._requests[ends] -= 1
            if not self._requests[ends]:
                self._wait_for_request(ends, self.idle)

    def forget(self, connection: "_Accepted") -> None:
        ends = connection.ends
        if self._open.get(ends) is not connection:
            return
        del self._open[ends]
        self._silent.pop(ends, None)
        self._requests.pop(ends, None)
        self._timers.pop(ends).cancel()
        self._per_address[ends[0]] -= 1
        if not self._per_address[ends[0]]:
            del self._per_address[ends[0]]

    def _wait_for_request(self, ends: Ends, seconds: float) -> None:
        self._silent[ends] = None
        self._end_within(ends, seconds)

    def _end_within(self, ends: Ends, seconds: float) -> None:
        if ends in self._timers:
            self._timers[ends].cancel()
        self._timers[ends] = asyncio.get_running_loop().call_later(
            seconds, self._hang_up, ends
        )

    def _hang_up(self, ends: Ends) -> None:
        """Both directions are over: whoever reads from it, TLS or HTTP, finds its end
        and closes it.
        """
        connection = self._open[ends]
        self._silent.pop(ends, None)
        with suppress(OSError):  # the other end was quicker
            connection.shutdown(socket.SHUT_RDWR)


class WatchedRequests:
    """An application whose requests are known to the limits of its connections."""

    def __init__(self, app: ASGIApp, limits: ConnectionLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["client"] is None:
            await self._app(scope, receive, send)
            return
        ends = _ends(scope["client"], scope["server"])
        self._limits.begin_request(ends)
        try:
            await self._app(scope, receive, send)
        finally:
            self._limits.end_request(ends)


def _ends(peer: Any, own: Any) -> Ends:
    return str(peer[0]), int(peer[1]), str(own[0])


class _Accepted(socket.socket):
    limits: ConnectionLimits
    ends: Ends

    def close(self) -> None:
        if self.fileno() >= 0:
            self.limits.forget(self)
        super().close()


class _Listening(socket.socket):
    limits: ConnectionLimits

    def accept(self) -> tuple[socket.socket, Any]:
        plain, address = super().accept()
        connection = _Accepted(
            self.family, self.type, self.proto, fileno=plain.detach()
        )
        connection.limits = self.limits
        connection.ends = _ends(address, connection.getsockname())
        if not self.limits.admit(connection):
            connection.close()
            # the loop takes this for a connection that broke before it was taken up
            raise ConnectionAbortedError
        return connection, address


class LimitedServer(Server):
    """uvicorn's server with limits. `ready` gets the port once it listens."""

    def __init__(
        self,
        config: Config,
        limits: ConnectionLimits,
        ready: Callable[[int], None] = lambda port: None,
    ) -> None:
        super().__init__(config)
        self.limits = limits
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets or self._listen())
        self.ready(int(self.servers[0].sockets[0].getsockname()[1]))

    def _listen(self) -> list[socket.socket]:
        host = self.config.host
        port = self.config.port
        opened: list[socket.socket] = []
        try:
            addresses = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, kind, proto, _, address in dict.fromkeys(addresses):
                listening = _Listening(family, kind, proto)
                opened.append(listening)
                listening.limits = self.limits
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
        except OSError as error:
            for listening_socket in opened:
                listening_socket.close()
            raise ConfigError(
                f"{host}:{port} cannot be used for listening ({error.strerror}). "
                "Choose another port: --port N, or "
                "--listen HOST:PORT where the command has that."
            ) from None
        return opened

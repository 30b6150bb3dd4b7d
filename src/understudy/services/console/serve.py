"""Serve a console: this machine alone, one port, until it is stopped.

Guarantee: it listens on 127.0.0.1 and nowhere else. The link is told to `ready` alone, and is worth nothing once the
process has ended.
"""

import socket
from collections.abc import Callable

import uvicorn

from understudy.services.console.app import build_app
from understudy.services.console.desk import Desk
from understudy.services.console.guard import HOSTS, Keys
from understudy.services.web.doors import Doors, DoorsServer, protocol_for

PORT = 8610
CONNECTIONS = 64
WHOLE = 60.0  # seconds for a request with its answer


class ConsoleServer(DoorsServer):
    """A server that says when it listens, and at which link."""

    keys: Keys
    ready: Callable[[str], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready(self.keys.link(self.servers[0].sockets[0].getsockname()[1]))


def server_for(
    desk: Desk, *, port: int = PORT, ready: Callable[[str], None], keys: Keys | None = None
) -> ConsoleServer:
    """The server, not yet running. `ready` gets the link."""
    keys = keys or Keys()
    doors = Doors(most=CONNECTIONS, each=CONNECTIONS, whole=WHOLE)
    config = uvicorn.Config(
        build_app(desk, keys),
        http=protocol_for(doors),
        loop="asyncio",
        host=HOSTS[0],
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=round(doors.idle),
        timeout_graceful_shutdown=3,
        ws="none",
    )
    server = ConsoleServer(config, doors)
    server.keys, server.ready = keys, ready
    return server

"""Serve a console: this machine alone, one port, until it is stopped.

Guarantee: it listens on 127.0.0.1 and nowhere else. The link is told to `ready` alone, and is worth nothing once the
process has ended.
"""

from collections.abc import Callable

from understudy.services.console.app import build_app
from understudy.services.console.desk import Desk
from understudy.services.console.guard import HOSTS, Keys
from understudy.services.web.doors import Doors, DoorsServer
from understudy.services.web.serving import server_behind_doors

PORT = 8610
CONNECTIONS = 64
WHOLE = 60.0  # seconds for a request with its answer


def server_for(
    desk: Desk, *, port: int = PORT, ready: Callable[[str], None], keys: Keys | None = None
) -> DoorsServer:
    """The server, not yet running. `ready` gets the link."""
    own = keys or Keys()
    doors = Doors(most=CONNECTIONS, each=CONNECTIONS, whole=WHOLE)
    return server_behind_doors(
        build_app(desk, own),
        doors,
        host=HOSTS[0],
        port=port,
        patience=3,
        ready=lambda listens: ready(own.link(listens)),
    )

"""Serve a box while a run is on: one port, in a thread of its own."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.ground.errors import ConfigError
from understudy.services.collect.app import SECONDS, build_app
from understudy.services.collect.box import Box
from understudy.services.web.doors import Doors
from understudy.services.web.limits import Limits
from understudy.services.web.serving import server_behind_doors


@contextmanager
def serving(
    box: Box,
    *,
    host: str = "127.0.0.1",
    port: int = 8700,
    certificate: Path | None = None,
    key: Path | None = None,
    proxied: bool = False,
    limits: Limits | None = None,
) -> Iterator[int]:
    """Take uploads into this box as long as the block lasts; the port.

    Edges: a port that is in use, or a certificate that is none → ConfigError.
    """
    limits = limits or Limits()
    doors = Doors(each=None if proxied else limits.connections, whole=2 * SECONDS)
    server = server_behind_doors(
        build_app(box, limits), doors, host=host, port=port, certificate=certificate, key=key, proxied=proxied,
        secret="codes",
    )  # fmt: skip
    why: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except (Exception, SystemExit) as error:
            why.append(error)

    thread = threading.Thread(target=run, name="understudy-collect", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                told = why[0] if why else "it ended"
                raise ConfigError(f"{host}:{port} cannot be served ({told}). Nothing was sent.")
            time.sleep(0.01)
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()

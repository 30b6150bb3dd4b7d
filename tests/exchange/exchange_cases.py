"""A real exchange on the loopback interface, and generators to trade on it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.protocols.papers.sgde.offer import Requirements, label_index, offer_card
from understudy.services.exchange.checker import Checkers
from understudy.services.exchange.client import Client
from understudy.services.exchange.database import issue
from understudy.services.exchange.serve import open_exchange, server_for
from understudy.services.exchange.service import Exchange
from understudy.services.web.limits import Limits

SCHEMA = toy(rows=4, seed=0)[1]
POOL = Requirements(
    schema=SCHEMA, target="smoker", epsilon=1.5, delta=1e-5, largest=1 << 20
)
LABELS = POOL.labels
FAST = Limits(rate=1e6, burst=10**6)


def generator(
    silo: str = "north",
    label: Any = LABELS[0],
    *,
    seed: int = 0,
    components: int = 4,
    **card: Any,
) -> Generator:
    """A mixture that draws this class alone, and a card that fits the pool unless told
    otherwise.
    """
    codec = Codec(SCHEMA)
    network = MixtureOfProducts(codec.sizes, components)
    block = codec.blocks[SCHEMA.names.index(POOL.target)]
    with torch.no_grad():
        network.logits.copy_(
            torch.randn(
                network.logits.shape, generator=torch.Generator().manual_seed(seed)
            )
        )
        network.logits[:, block] = -20.0
        network.logits[:, block.start + label_index(POOL, label)] = 20.0
    told = offer_card(
        POOL,
        silo=silo,
        label=label,
        epsilon=1.0,
        delta=1e-6,
        accountant="PLD",
        network=network.describe(),
    )
    return Generator(network.eval(), SCHEMA, told | card)


def halves(
    seed: int, n: int, dark: int, side: int = 12
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images that are bright in the half that their class says: 0 above, 1 below."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = rng.integers(0, dark, (n, side, side)).astype(np.uint8)
    bright = 240 - dark
    x[y == 0, : side // 2] += bright
    x[y == 1, side // 2 :] += bright
    return x, y


class Served:
    """An exchange that is being served: its address, and clients for silos."""

    def __init__(
        self, exchange: Exchange, folder: Path, port: int, scheme: str = "http"
    ) -> None:
        self.exchange = exchange
        self.folder = folder
        self.address = f"{scheme}://127.0.0.1:{port}"
        self.admin_token = (folder / "admin.token").read_text().strip()

    def admin(self, **options: Any) -> Client:
        return Client(self.address, self.admin_token, **options)

    def token(self, silo: str, pool: str = "ward") -> str:
        return issue(self.exchange.database, silo, pool=pool)

    def member(self, silo: str, pool: str = "ward", **options: Any) -> Client:
        """A client of a silo that has subscribed."""
        client = Client(self.address, self.token(silo, pool), **options)
        client.subscribe(pool)
        return client


@contextmanager
def served(
    folder: Path, *, limits: Limits = FAST, database: str | None = None, **options: Any
) -> Iterator[Served]:
    """Serve the pools "ward" and "other" from this folder on a free port."""
    exchange = open_exchange(
        folder, pools={"ward": POOL, "other": POOL}, limits=limits, database=database
    )
    server = server_for(exchange, port=0, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(
            exchange, folder, port, "https" if "certificate" in options else "http"
        )
    finally:
        server.should_exit = True
        thread.join()
        exchange.close()


def forked(checkers: Checkers) -> list[int]:
    """The processes that look, by their numbers."""
    nursery = checkers._nursery
    if nursery is None:
        return []
    process = nursery.process.pid
    return [
        int(one)
        for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]

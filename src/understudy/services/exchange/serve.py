"""Serve an exchange: one process, one port, one folder.

Guarantee: without a certificate it listens on this machine alone, since tokens would cross the network readable.
Who connects and says nothing is sent away (`doors`), before TLS too.
Edges: a second process on the same folder is refused; so is a pool file that differs from the pool of its name.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import uvicorn
from sqlalchemy import select

from understudy.ground.durable import replace
from understudy.ground.errors import ConfigError, ExchangeError
from understudy.protocols.sgde.offer import Requirements
from understudy.services.exchange.app import build_app
from understudy.services.exchange.database import Database, Token
from understudy.services.exchange.service import Exchange
from understudy.services.exchange.store import Store
from understudy.services.exchange.tokens import ADMIN, Caller, issue
from understudy.services.web.doors import Doors
from understudy.services.web.limits import Limits
from understudy.services.web.serving import server_behind_doors

OPERATOR = Caller(token="", silo="operator", role=ADMIN, pool=None)  # whoever may write to the folder


def open_exchange(
    data: str | Path,
    *,
    database: str | None = None,
    pools: Mapping[str, Requirements] | None = None,
    limits: Limits | None = None,
    new_admin: bool = False,
) -> Exchange:
    """The exchange in this folder. A new one, or `new_admin`, gets an administrator's token, in `admin.token`."""
    folder = Path(data)
    store = Store(folder)
    try:
        exchange = Exchange(
            Database.in_folder(folder) if database is None else Database(database), store, limits
        )
        for name, requirements in (pools or {}).items():
            _found(exchange, name, requirements)
        if new_admin or not _has_administrator(exchange):
            token = issue(exchange.database, "operator", role=ADMIN)
            replace(folder / "admin.token", f"{token}\n".encode())
    except BaseException:
        store.close()
        raise
    return exchange


def serve(
    exchange: Exchange,
    *,
    host: str = "127.0.0.1",
    port: int = 8600,
    certificate: Path | None = None,
    key: Path | None = None,
    proxied: bool = False,
) -> None:
    """Serve until stopped. `proxied`: a proxy in front speaks TLS."""
    server_for(exchange, host=host, port=port, certificate=certificate, key=key, proxied=proxied).run()


def server_for(
    exchange: Exchange,
    *,
    host: str = "127.0.0.1",
    port: int = 8600,
    certificate: Path | None = None,
    key: Path | None = None,
    proxied: bool = False,
) -> uvicorn.Server:
    """The server, not yet running."""
    limits = exchange.limits
    doors = Doors(each=None if proxied else limits.connections, whole=2 * limits.seconds + limits.check)
    return server_behind_doors(
        build_app(exchange), doors, host=host, port=port, certificate=certificate, key=key, proxied=proxied
    )


def _found(exchange: Exchange, name: str, requirements: Requirements) -> None:
    try:
        exchange.add_pool(OPERATOR, name, requirements)
    except ExchangeError as error:
        if error.status != 409:
            raise
        if json.loads(exchange.pool(OPERATOR, name).requirements) != json.loads(
            json.dumps(requirements.to_dict())
        ):
            raise ConfigError(
                f'pool "{name}" has other requirements. They never change, since offers were accepted by them: '
                "give the new ones a new name."
            ) from None


def _has_administrator(exchange: Exchange) -> bool:
    query = select(Token.id).where(Token.role == ADMIN, Token.revoked.is_(None))
    with exchange.database.read() as session:
        return session.scalars(query).first() is not None

"""Serve an exchange: one process, one port, one folder, with limits (`web.skeleton`).

Edges: a second process on the same folder is refused; so is a pool file that differs
from the pool of its name.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn
from sqlalchemy import select

from understudy.data.kinds import load_schema
from understudy.ground.durable import read_toml, replace
from understudy.ground.errors import ConfigError, ExchangeError
from understudy.protocols.papers.sgde.offer import Requirements
from understudy.services.exchange.app import build_app
from understudy.services.exchange.database import ADMIN, Caller, Database, Token, issue
from understudy.services.exchange.offer_file import OfferStore
from understudy.services.exchange.service import Exchange
from understudy.services.web.limits import Limits
from understudy.services.web.skeleton import limited_server

# whoever may write to the folder
OPERATOR = Caller(token="", silo="operator", role=ADMIN, pool=None)


def open_exchange(
    data: str | Path,
    *,
    database: str | None = None,
    pools: Mapping[str, Requirements] | None = None,
    limits: Limits | None = None,
    new_admin: bool = False,
) -> Exchange:
    """The exchange in this folder. A new one, or `new_admin`, gets an administrator's
    token, in `admin.token`.
    """
    folder = Path(data)
    store = OfferStore(folder)
    try:
        exchange = Exchange(
            Database.in_folder(folder) if database is None else Database(database),
            store,
            limits,
        )
        for name, requirements in (pools or {}).items():
            _found_pool(exchange, name, requirements)
        administrators = select(Token).where(
            Token.role == ADMIN, Token.revoked.is_(None)
        )
        if new_admin or not exchange.database.select_all(administrators):
            token = issue(exchange.database, "operator", role=ADMIN)
            replace(folder / "admin.token", f"{token}\n".encode())
    except BaseException:
        store.close()
        raise
    return exchange


def server_for(
    exchange: Exchange, *, host: str = "127.0.0.1", port: int = 8600, **tls: Any
) -> uvicorn.Server:
    """The server, not yet running. `tls`: as `limited_server` takes it."""
    limits = exchange.limits
    whole = 2 * limits.seconds + limits.check
    return limited_server(
        build_app(exchange),
        host=host,
        port=port,
        max_per_address=limits.connections,
        whole=whole,
        **tls,
    )


def read_pool(path: str | Path) -> tuple[str, Requirements]:
    """A pool written down, for whoever runs the exchange: its name and what it requires
    (docs/exchange.md). For images `target` is a name, with `classes`; `networks` and
    `largest`, in bytes of weights, may be left out. ConfigError names the file and what
    is wrong with it.
    """
    path = Path(path)
    try:
        values = read_toml(path)
        name = values.pop("name", path.stem)
        schema = load_schema(path.parent / values["schema"])
        return str(name), Requirements.from_dict({**values, "schema": schema.to_dict()})
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}).") from None
    except KeyError as error:
        raise ConfigError(f"{path.name} lacks {error}.") from None
    except (ValueError, TypeError) as error:
        # ConfigError and SchemaError are ValueErrors
        raise ConfigError(f"{path.name}: {error}") from None


def _found_pool(exchange: Exchange, name: str, requirements: Requirements) -> None:
    try:
        exchange.add_pool(OPERATOR, name, requirements)
    except ExchangeError as error:
        if error.status != 409:
            raise
        if json.loads(exchange.pool(OPERATOR, name).requirements) != json.loads(
            json.dumps(requirements.to_dict())
        ):
            raise ConfigError(
                f'pool "{name}" has other requirements. They never change, since '
                "offers were accepted by them: "
                "give the new ones a new name."
            ) from None

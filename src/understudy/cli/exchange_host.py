"""`understudy exchange`, for the operator of an exchange: serve it, say who may call, see who did."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.console import note, print_table
from understudy.cli.console import plain as out
from understudy.cli.exchange_client import At, Authorities, TokenFile, client_of
from understudy.cli.extras import need
from understudy.ground.errors import ConfigError

token_app = typer.Typer(
    no_args_is_help=True, help="Tokens, by which silos are known: issue, list, revoke (administrators)."
)


def serve(
    data: Annotated[Path, typer.Option(help="The exchange's folder; it is made if it does not exist.")],
    pool: Annotated[list[Path] | None, typer.Option(help="A pool to create (TOML); may be repeated.")] = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT.")] = "127.0.0.1:8600",
    database: Annotated[
        str | None,
        typer.Option(envvar="UNDERSTUDY_DATABASE", help="A database URL; default: SQLite in the folder."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="For TLS, with its key.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
    proxied: Annotated[bool, typer.Option(help="A proxy in front speaks TLS.")] = False,
    rate: Annotated[float, typer.Option(help="Requests a second for each token.")] = 20.0,
    largest: Annotated[int, typer.Option(help="The largest size of a generator in bytes, in any pool.")] = 1
    << 26,
    connections: Annotated[
        int,
        typer.Option(help="Connections at once from one address; with --proxied the proxy must limit them."),
    ] = 128,
    new_admin: Annotated[
        bool, typer.Option(help="Write another administrator's token, if the last one was lost.")
    ] = False,
) -> None:
    """Serve an exchange. The first start writes an administrator's token into the folder."""
    need("fastapi", "uvicorn", "sqlalchemy")
    from understudy.data.encoding.fine import cut_evenly
    from understudy.services.exchange.pool_file import read_pool
    from understudy.services.exchange.serve import open_exchange, server_for
    from understudy.services.web.limits import Limits

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--listen looks like 127.0.0.1:8600, not {listen!r}.")
    limits = Limits(rate=rate, burst=max(1, round(10 * rate)), largest=largest, connections=connections)
    founded = dict(map(read_pool, pool or ()))
    for name, required in founded.items():
        for said in cut_evenly(required.schema):
            note(f"pool {name}: {said}")
    exchange = open_exchange(data, database=database, pools=founded, limits=limits, new_admin=new_admin)
    try:
        server = server_for(
            exchange, host=host.strip("[]"), port=int(port), certificate=certificate, key=key, proxied=proxied
        )
        scheme = "http" if certificate is None else "https"
        out.print(f"Serving {data} at {scheme}://{listen}. Administrator's token: {data / 'admin.token'}")
        exchange.checkers.warm()
        server.run()
    finally:
        exchange.close()


@token_app.command("new")
def token_new(
    silo: Annotated[str, typer.Argument(help="The silo that gets the token.")],
    at: At,
    pool: Annotated[str | None, typer.Option(help="The pool that it is for.")] = None,
    admin: Annotated[bool, typer.Option(help="For an administrator, who belongs to no pool.")] = False,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Print a new token. It is shown only once: hand it over on a channel that both sides trust."""
    with client_of(at, token_file, ca) as client:
        out.print(client.issue(silo, pool=pool, role="admin" if admin else "member"))


@token_app.command("list")
def token_list(at: At, token_file: TokenFile = None, ca: Authorities = None) -> None:
    """All tokens, without their secrets."""
    with client_of(at, token_file, ca) as client:
        rows = client.tokens()
    keys = ("id", "silo", "role", "pool", "created", "revoked")
    print_table(keys, ([row[key] or "" for key in keys] for row in rows))


@token_app.command("revoke")
def token_revoke(
    id: Annotated[str, typer.Argument(help="The token's id, from `token list`.")],
    at: At,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Revoke a token. It is refused from the next request on."""
    with client_of(at, token_file, ca) as client:
        out.print(f"The token {id} of {client.revoke(id)['silo']} is revoked.")


def log(
    at: At,
    after: Annotated[int, typer.Option(help="Only lines after this one.")] = 0,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Every push and pull, done or refused (administrators)."""
    with client_of(at, token_file, ca) as client:
        rows = client.events(after=after)
    keys = ("id", "at", "silo", "action", "status", "pool")
    print_table(
        (*keys, "sha256"), ([*(row[key] or "" for key in keys), (row["digest"] or "")[:12]] for row in rows)
    )

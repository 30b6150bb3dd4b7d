"""`understudy exchange`: run one (here), trade on one (`exchange_silo`); web libraries
are imported when used.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli import terminal
from understudy.cli.terminal import argument, need, option, print_table
from understudy.cli.terminal import plain as out
from understudy.cli.terminal import plain_err as err
from understudy.ground.check import plain_name
from understudy.ground.errors import ConfigError, Effect

if TYPE_CHECKING:
    from understudy.services.exchange.client import Client

app = typer.Typer(
    no_args_is_help=True,
    help="Trade generators instead of rows: one silo runs the exchange, and all silos "
    "push and pull.\n\n"
    "A silo's commands take the address from --at or UNDERSTUDY_EXCHANGE, and the "
    "token from UNDERSTUDY_TOKEN or "
    "--token-file.",
)
token_app = typer.Typer(
    no_args_is_help=True,
    help="Tokens, by which silos are known: issue, list, revoke (administrators).",
)
app.add_typer(token_app, name="token")
At = Annotated[
    str, option("The exchange's address.", "--at", envvar="UNDERSTUDY_EXCHANGE")
]
TokenFile = Annotated[
    Path | None, option("A file with the token; else UNDERSTUDY_TOKEN.")
]
Authorities = Annotated[
    Path | None,
    option(
        "A certificate to trust in addition to the usual ones.",
        "--ca",
        envvar="UNDERSTUDY_CA",
    ),
]


def client_of(at: str, token_file: Path | None, ca: Path | None) -> "Client":
    need("httpx")
    from understudy.services.exchange.client import Client

    token = os.environ.get("UNDERSTUDY_TOKEN", "")
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(
                f"{token_file}: the token cannot be read ({why}).",
                effect=Effect.NOTHING_SENT,
            ) from None
    if not token.strip():
        raise ConfigError("which token? Give --token-file, or set UNDERSTUDY_TOKEN.")
    return Client(at, token, ca=ca)


@contextmanager
def as_member(
    at: str, token_file: Path | None, ca: Path | None
) -> Iterator[tuple["Client", str, str]]:
    """The same, with the pool and the silo of a member's token."""
    with client_of(at, token_file, ca) as client:
        me = client.me()
        if me["pool"] is None:
            raise ConfigError("this token is an administrator's: use a member's.")
        plain_name(
            pool=me["pool"], silo=me["silo"], effect=Effect.NOTHING_CHARGED_OR_SENT
        )
        yield client, me["pool"], me["silo"]


@contextmanager
def transfers() -> Iterator[Callable[[str], Callable[[int, int], None] | None]]:
    """A bar for each transfer; quiet when not in a terminal."""
    if not err.is_terminal:
        yield lambda name: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=err, transient=True) as bar:

        def watch(name: str) -> Callable[[int, int], None]:
            task = bar.add_task(name, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield watch


@app.command()
def serve(
    data: Annotated[
        Path, option("The exchange's folder; it is made if it does not exist.")
    ],
    pool: Annotated[
        list[Path] | None, option("A pool to create (TOML); may be repeated.")
    ] = None,
    listen: Annotated[str, option("HOST:PORT.")] = "127.0.0.1:8600",
    database: Annotated[
        str | None,
        option("A database's URL; else SQLite.", envvar="UNDERSTUDY_DATABASE"),
    ] = None,
    certificate: terminal.Certificate = None,
    key: terminal.Key = None,
    proxied: terminal.Proxied = False,
    rate: Annotated[float, option("Requests a second for each token.")] = 20.0,
    largest: Annotated[
        int, option("The largest size of a generator in bytes, in any pool.")
    ] = 1 << 26,
    connections: Annotated[
        int, option("Connections at once from one address; with --proxied the proxy's.")
    ] = 128,
    new_admin: Annotated[
        bool, option("Write another administrator's token, if the last one was lost.")
    ] = False,
) -> None:
    """Serve an exchange. The first start writes an administrator's token into the
    folder.
    """
    need("fastapi", "uvicorn", "sqlalchemy")
    from understudy.data.encoding.fine import cut_evenly
    from understudy.services.exchange.serve import open_exchange, read_pool, server_for
    from understudy.services.web.limits import Limits

    where = terminal.host_and_port(listen, 8600)
    limits = Limits(
        rate=rate,
        burst=max(1, round(10 * rate)),
        largest=largest,
        connections=connections,
    )
    founded = dict(map(read_pool, pool or ()))
    for name, required in founded.items():
        for words in cut_evenly(required.schema):
            terminal.note(f"pool {name}: {words}")
    exchange = open_exchange(
        data, database=database, pools=founded, limits=limits, new_admin=new_admin
    )
    try:
        server = server_for(
            exchange, certificate=certificate, key=key, proxied=proxied, **where
        )
        scheme = "http" if certificate is None else "https"
        out.print(
            f"Serving {data} at {scheme}://{listen}. Administrator's token: "
            f"{data / 'admin.token'}"
        )
        exchange.checkers.warm()
        server.run()
    finally:
        exchange.close()


@token_app.command("new")
def token_new(
    silo: Annotated[str, argument("The silo that gets the token.")],
    at: At,
    pool: Annotated[str | None, option("The pool that it is for.")] = None,
    admin: Annotated[
        bool, option("For an administrator, who belongs to no pool.")
    ] = False,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Print a new token. It is shown only once: hand it over on a channel that both
    sides trust.
    """
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
    id: Annotated[str, argument("The token's id, from `token list`.")],
    at: At,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Revoke a token. It is refused from the next request on."""
    with client_of(at, token_file, ca) as client:
        out.print(f"The token {id} of {client.revoke(id)['silo']} is revoked.")


@app.command()
def log(
    at: At,
    after: Annotated[int, option("Only lines after this one.")] = 0,
    token_file: TokenFile = None,
    ca: Authorities = None,
) -> None:
    """Every push and pull, done or refused (administrators)."""
    with client_of(at, token_file, ca) as client:
        rows = client.events(after=after)
    keys = ("id", "at", "silo", "action", "status", "pool")
    cells = (
        [*(row[key] or "" for key in keys), (row["digest"] or "")[:12]] for row in rows
    )
    print_table((*keys, "sha256"), cells)

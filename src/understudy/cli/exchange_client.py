"""What the commands of `understudy exchange` share: how an exchange is called."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.console import plain_err as err
from understudy.cli.extras import need
from understudy.ground.check import plain_name
from understudy.ground.errors import ConfigError

if TYPE_CHECKING:
    from understudy.services.exchange.client import Client

At = Annotated[str, typer.Option("--at", envvar="UNDERSTUDY_EXCHANGE", help="The exchange's address.")]
TokenFile = Annotated[Path | None, typer.Option(help="A file with the token; else UNDERSTUDY_TOKEN.")]
Authorities = Annotated[
    Path | None,
    typer.Option(
        "--ca", envvar="UNDERSTUDY_CA", help="A certificate to trust in addition to the usual ones."
    ),
]


def client_of(at: str, token_file: Path | None, ca: Path | None) -> "Client":
    """A caller of the exchange at this address."""
    need("httpx")
    from understudy.services.exchange.client import Client

    token = token_file.read_text() if token_file is not None else os.environ.get("UNDERSTUDY_TOKEN", "")
    if not token.strip():
        raise ConfigError("which token? Give --token-file, or set UNDERSTUDY_TOKEN.")
    return Client(at, token, ca=ca)


def membership(client: "Client") -> tuple[str, str]:
    """The pool and the silo of a member's token."""
    me = client.me()
    if me["pool"] is None:
        raise ConfigError("this token is an administrator's: use a member's.")
    plain_name(pool=me["pool"], silo=me["silo"], nothing="Nothing was charged or sent.")
    return me["pool"], me["silo"]


@contextmanager
def transfers() -> Iterator[Callable[[str], Callable[[int, int], None] | None]]:
    """A bar for each transfer; quiet when not in a terminal."""
    if not err.is_terminal:
        yield lambda name: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    with Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=err, transient=True
    ) as bar:

        def watch(name: str) -> Callable[[int, int], None]:
            task = bar.add_task(name, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield watch

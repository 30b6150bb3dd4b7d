"""Commands for holders on their own machines: `federation`, `serve`, `join`, `aggregate`, `collect`, `approve`,
`status`, `console`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli import federation
from understudy.cli.collect import collect
from understudy.cli.console import plain as out
from understudy.cli.party import aggregate, approve, join
from understudy.cli.serve import serve
from understudy.cli.status import status_view
from understudy.cli.stewards import console


def mount(app: typer.Typer) -> None:
    """Add the commands to the `understudy` command."""
    app.add_typer(federation.app, name="federation")
    for command in (serve, join, aggregate, collect, approve, status, console):
        app.command()(command)


def status(
    folder: Annotated[Path, typer.Argument(help="A run's output folder at its server, or a party's home.")],
    once: Annotated[bool, typer.Option("--once", help="Print it once, and exit.")] = False,
) -> None:
    """Parties, round, ε spent, bytes and the last error; live in a terminal until the run ends."""
    from understudy.network.status import OVER, read_status

    def now() -> dict[str, Any]:
        found = read_status(folder)
        if found["role"] == "party" and Path(found["book"]).exists():
            from understudy.privacy.accounts.ledger import Ledger

            with Ledger(found["book"]) as book:
                found["ledger"] = book.summary()
        return found

    if once or not out.is_terminal:
        out.print(status_view(now()))
        return
    from rich.live import Live

    with Live(status_view(shown := now()), console=out, auto_refresh=False) as live:
        while shown["state"] not in (*OVER, "silent"):
            time.sleep(1)
            live.update(status_view(shown := now()), refresh=True)

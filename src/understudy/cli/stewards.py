"""`understudy console`: a page for those who answer for a holder's data, or for a hub."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.console import plain as out
from understudy.cli.extras import need


def console(
    home: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help="A holder's home (`join --home`), or a federation's folder."
        ),
    ],
    run: Annotated[
        list[Path] | None,
        typer.Option(help="Also show the run in this output folder, with its report; may be repeated."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On this machine; 0: any that is free.")] = 8610,
) -> None:
    """Show a home in the browser: contracts that wait, runs, the ledger and its budget; at a hub parties and runs.

    It listens on this machine alone. Anyone who has the link can decide in your name: it is printed once, and ends with
    this command.
    """
    need("fastapi", "uvicorn")
    from understudy.services.console.desk import desk_of
    from understudy.services.console.serve import server_for

    desk = desk_of(home, tuple(run or ()))

    def ready(link: str) -> None:
        out.print(f"{desk.title}: open {link}\nThis link is for you alone. Ctrl-C ends the console.")

    server_for(desk, port=port, ready=ready).run()

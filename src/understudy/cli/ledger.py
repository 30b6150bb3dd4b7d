"""`understudy ledger`: what a holder has spent, and may spend."""

import re
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid

from understudy.cli.console import FileArg, escape, out

app = typer.Typer(
    no_args_is_help=True, help="What a holder has spent: when, on what, in which run; and the limit."
)


@app.command("show")
def ledger_show(
    ledger: FileArg,
    last: Annotated[int, typer.Option(help="How many of the last entries to show; 0 for all.")] = 20,
    keys: Annotated[bool, typer.Option("--keys", help="Show the fingerprints of keys, too.")] = False,
) -> None:
    """Show each entry: when, what, which run, its price and the total."""
    from understudy.privacy.accounts.ledger import Ledger

    with Ledger(ledger) as book:
        entries = book.entries(merged=True)
        grid = Grid(title=f"Ledger of {book.holder}", box=SIMPLE_HEAD, title_justify="left", padding=(0, 0))
        grid.add_column("when (UTC)", no_wrap=True)
        grid.add_column("run", overflow="fold", min_width=8)
        grid.add_column("what", overflow="fold", min_width=12)
        for name in ("uses", "who", "ε alone", "ε in all"):
            grid.add_column(name, justify="right", no_wrap=True)
        for entry in entries[-last:] if last else entries:
            when, run, what, *rest = entry.cells()
            grid.add_row(
                when[:16].replace("T", " "), *map(escape, (run, what if keys else without_keys(what), *rest))
            )
        out.print(grid, soft_wrap=False)
        if last and len(entries) > last:
            out.print(f"{len(entries) - last:,} earlier entries; --last 0 shows all.")
        out.print(book.summary(), markup=False)


def without_keys(what: str) -> str:
    """What an entry is for, without the fingerprints of keys: those are for a comparison by hand (--keys)."""
    return re.sub(r";? keys [0-9a-f]{4}(-[0-9a-f]{4})+", "", what)


@app.command("budget")
def ledger_budget(
    ledger: FileArg,
    epsilon: Annotated[float, typer.Option(help="What all runs together may cost a person.")],
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the ledger later.")],
    delta: Annotated[float | None, typer.Option(help="At which δ; default: as it was.")] = None,
) -> None:
    """Raise or lower the lifetime budget. It becomes an entry, with the reason; what was spent stays spent."""
    from understudy.privacy.accounts.ledger import Ledger
    from understudy.privacy.accounts.lifetime import change_lifetime

    with Ledger(ledger) as book:
        before, after = change_lifetime(book, epsilon=epsilon, reason=reason, delta=delta)
        out.print(f"The lifetime budget was {before}, and is {after}.\n{book.summary()}", markup=False)

"""`understudy ledger`: what a holder has spent, and may spend."""

import csv
import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid

from understudy.cli.terminal import FileArg, escape, option, out, plain, print_table
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.budget import shown

if TYPE_CHECKING:
    from understudy.privacy.accounts.entries import Entry
    from understudy.privacy.accounts.ledger import Ledger

# columns of a terminal: with fewer, what an entry says would be folded into a thin
# column
NARROW = 110
# fingerprints, for a comparison by hand (--keys)
KEYS = r";? keys [0-9a-f]{4}(-[0-9a-f]{4})+"
RUN_HEADS = ("run", "first (UTC)", "last (UTC)", "entries", "ε alone")
ENTRY_HEADS = (
    "number",
    "when",
    "run",
    "description",
    "how",
    "uses",
    "people",
    "epsilon_alone",
    "epsilon_in_all",
    "budget",
)

app = typer.Typer(
    no_args_is_help=True,
    help="What a holder has spent: when, on what, in which run; and the limit.",
)


@app.command("show")
def ledger_show(
    ledger: FileArg,
    last: Annotated[
        int, option("How many of the last entries to show; 0 for all.")
    ] = 20,
    keys: Annotated[
        bool, option("Show the fingerprints of keys, too.", "--keys")
    ] = False,
    runs: Annotated[
        bool, option("One line for each run in place of its entries.", "--runs")
    ] = False,
) -> None:
    """Show each entry: when, what, which run, its price and the total."""
    from understudy.privacy.accounts.ledger import Ledger

    with Ledger(ledger) as book:
        if runs:
            print_table(RUN_HEADS, by_run(book))
            _print_wrapped(
                "Runs do not add up: together they cost less than their sum.",
                book.summary(),
            )
            return
        entries = book.entries(merged=True)
        lines: list[tuple[str, ...]] = []
        for entry in entries[-last:] if last else entries:
            when, run, purpose, *figures = entry.cells()
            lines.append(
                (
                    when[:16].replace("T", " "),
                    run,
                    purpose if keys else re.sub(KEYS, "", purpose),
                    *figures,
                )
            )
        (_as_table if out.width >= NARROW else _as_lines)(
            f"Ledger of {book.holder}", lines
        )
        if last and len(entries) > last:
            out.print(f"{len(entries) - last:,} earlier entries; --last 0 shows all.")
        _print_wrapped(
            book.summary(),
            f"By all of it together: {book.guess().in_words(book.adjacency)}",
        )


def _print_wrapped(*texts: str, indent: str = "") -> None:
    """Each from a line of its own, in lines that the terminal has room for."""
    wrapper = textwrap.TextWrapper(
        out.width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    plain.print(*map(wrapper.fill, texts), sep="\n")


def _as_table(title: str, rows: Iterable[tuple[str, ...]]) -> None:
    grid = Grid(title=title, box=SIMPLE_HEAD, title_justify="left", padding=(0, 0))
    grid.add_column("when (UTC)", no_wrap=True)
    grid.add_column("run", overflow="fold", min_width=8)
    grid.add_column("description", overflow="fold", min_width=12)
    for name in ("uses", "who", "ε alone", "ε in all"):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        grid.add_row(*map(escape, row))
    out.print(grid, soft_wrap=False)


def _as_lines(title: str, rows: Iterable[tuple[str, ...]]) -> None:
    """The same for a terminal in which columns would be cut."""
    plain.print(title)
    for when, run, purpose, uses, people, own_price, total in rows:
        price = (
            f"ε {own_price} alone, {total} in all; {uses} uses, {people}"
            if uses
            else f"ε {total} in all"
        )
        plain.print(f"{when} UTC {run}".rstrip())
        _print_wrapped(purpose, price, indent="  ")


@app.command("export")
def ledger_export(
    ledger: FileArg,
    to: Annotated[Path, option("A .csv or .json file that is not there yet.", "--out")],
) -> None:
    """Write every entry to a file, for an auditor: when, run, description, uses, who, ε
    alone, ε in all, the limit.
    """
    from understudy.privacy.accounts.ledger import Ledger

    if to.suffix not in (".csv", ".json"):
        raise ConfigError(
            f"{to}: a ledger is exported as .csv or .json.",
            effect=Effect.NOTHING_WRITTEN,
        )
    if to.exists():
        raise ConfigError(f"{to} is there already.", effect=Effect.NOTHING_WRITTEN)
    with Ledger(ledger) as book:
        rows = [
            dict(zip(ENTRY_HEADS, (entry.number, *exact(entry)), strict=True))
            for entry in book.entries()
        ]
        holder = book.holder
    with to.open("w", newline="") as file:
        if to.suffix == ".json":
            json.dump(
                {"holder": holder, "entries": rows}, file, indent=1, ensure_ascii=False
            )
        else:
            lines = csv.DictWriter(file, ENTRY_HEADS, lineterminator="\n")
            lines.writeheader()
            lines.writerows(rows)
    plain.print(f"{len(rows):,} entries of {holder} written to {to}.")


def exact(entry: "Entry") -> tuple[object, ...]:
    """An entry's cells, figures not rounded; `people` is None where everyone was
    charged.
    """
    priced = entry.count > 0
    return (
        entry.when,
        entry.run,
        entry.description,
        entry.event if priced else "",
        entry.count,
        entry.people,
        entry.price if priced else 0.0,
        entry.total,
        str(entry.budget),
    )


def by_run(book: "Ledger") -> list[tuple[str, ...]]:
    """What each run cost the person with the highest spend in it, by itself."""
    from understudy.privacy.accounts.accounting import epsilon

    budget = book.budget
    entries = book.entries()
    rows = []
    for run in book.runs():
        entries_of_run = [entry for entry in entries if entry.run == run]
        cost = epsilon(book.spend(run=run, against=budget.against), budget.delta)
        times = [
            entry.when[:16].replace("T", " ")
            for entry in (entries_of_run[0], entries_of_run[-1])
        ]
        # none where it was refused after the alignment
        charges = sum(entry.count > 0 for entry in entries_of_run)
        rows.append((run, *times, f"{charges:,}", shown(cost)))
    return rows


@app.command("budget")
def ledger_budget(
    ledger: FileArg,
    epsilon: Annotated[float, option("What all runs together may cost a person.")],
    reason: Annotated[str, option("Why, for those who read the ledger later.")],
    delta: Annotated[float | None, option("At which δ; default: as it was.")] = None,
) -> None:
    """Raise or lower the lifetime budget. It becomes an entry, with the reason; what
    was spent stays spent.
    """
    from understudy.privacy.accounts.ledger import Ledger

    with Ledger(ledger) as book:
        before, after = book.change_lifetime(
            epsilon=epsilon, reason=reason, delta=delta
        )
        plain.print(
            f"The lifetime budget was {before}, and is {after}.\n{book.summary()}"
        )

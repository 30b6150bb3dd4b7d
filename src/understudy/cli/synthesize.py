"""`understudy synthesize`: one table of one holder, in one command."""

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.console import FileArg
from understudy.cli.training import summary, training
from understudy.ground.durable import free_folder
from understudy.ground.errors import ConfigError


def synthesize(
    table: FileArg,
    epsilon: Annotated[float, typer.Option(help="What all of it may cost a person.")],
    delta: Annotated[float, typer.Option(help="The δ of the price.")] = 1e-6,
    schema: Annotated[
        Path | None,
        typer.Option(help="The public schema; without one, a quarter of ε buys bounds and categories."),
    ] = None,
    person: Annotated[
        str | None, typer.Option(help="The column that identifies people, where the schema is bought.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="A column to predict from the others.")] = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="Where to write; default: the next free runs/NAME.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Whose rows these are, and the ledger's name; default: the file's.")
    ] = None,
    ledgers: Annotated[Path, typer.Option(help="The folder of the holder's ledgers.")] = Path("ledgers"),
    lifetime: Annotated[
        float | None,
        typer.Option(
            "--lifetime-epsilon",
            help="What everything together may cost a person, for a new ledger; default: this run alone.",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1, help="Synthetic rows; default: about as many as there are people, at most a million."
        ),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option("--names-and-kinds-are-public", help="State that names and kinds are publicly known."),
    ] = False,
) -> None:
    """Make a synthetic table from one table, with a price that is in the ledger first, and a page that judges it.

    Without --schema the bounds and categories of columns are bought from ε, as `understudy schema buy` does. Better
    is a schema: `understudy schema infer` drafts one, and you mark it public when it holds only what is publicly known.
    """
    import pandas as pd

    from understudy.api.synthesize import synthesize as carry_out
    from understudy.data.reading.writing import write_table
    from understudy.report.page import write_report

    if schema is not None and (person is not None or confirm):
        raise ConfigError("a schema says who and what: leave --person and --names-and-kinds-are-public out.")
    folder = to or free_folder(Path("runs") / table.name.split(".")[0])
    with training() as watch:
        result = carry_out(
            table,
            epsilon=epsilon,
            delta=delta,
            schema=schema,
            person=person,
            names_and_kinds_are_public=confirm,
            name=name,
            ledgers=ledgers,
            lifetime_epsilon=lifetime,
            folder=folder,
            rows=rows,
            watch=watch,
            target=target,
        )
    drawn = pd.read_parquet(folder / "synthetic.parquet")
    write_table(drawn, folder / "synthetic.csv", result.generator.schema)
    write_report(folder)
    summary(result, folder)

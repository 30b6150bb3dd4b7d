"""Questions to what a run trained: rows, predictions, tables. None of them costs privacy."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import err, note, out
from understudy.ground.check import nearest
from understudy.ground.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from understudy.answers.raking import Weights
    from understudy.generators.generator import Generator


def mount(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (sample, predict, tables):
        app.command()(command)


def sample(
    folder: Annotated[Path, typer.Argument(help="A run's folder or its generator/ folder.")],
    rows: Annotated[
        int, typer.Option("--rows", "-n", min=1, help="How many rows, or people with events.")
    ] = 1000,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out", help="CSV or Parquet; a folder for people and events. Default: CSV to the terminal."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help="Only rows that meet this condition, such as \"sex == 'F' and age >= 70\"."),
    ] = None,
    shares: Annotated[
        list[str] | None,
        typer.Option("--share", help='How often a value occurs, such as "outcome=yes:0.1"; may be repeated.'),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the same rows again.")] = None,
) -> None:
    """Draw synthetic rows from a saved generator. Drawing costs no privacy, however many rows are drawn."""
    from understudy.data.reading.writing import csv_text, write_tables
    from understudy.generators.generator import Generator
    from understudy.privacy.accounts.budget import first_said, rehearsal_of

    generator = Generator.load(folder)
    if said := rehearsal_of(generator.card):
        note(said)
    weights, told = _weights(generator, shares or ()), first_said(generator.card)
    if to is None:
        frames = {"": generator.sample(rows, where=where, weights=weights, seed=seed)}
    else:
        frames = generator.tables(rows, where=where, weights=weights, seed=seed)
    _say_probability(where, next(iter(frames.values())))
    for one in frames.values():
        one.attrs |= told
    if to is None:
        sys.stdout.write(csv_text(frames[""], generator.schema))
        return
    write_tables(frames, to, generator.schema, ".csv")
    counts = ", ".join(f"{len(one):,} {name or 'rows'}" for name, one in frames.items())
    out.print(f"{counts} written to {to}")


def _say_probability(where: str | None, frame: "pd.DataFrame") -> None:
    if where is not None:
        given = frame.attrs
        err.print(f"The model gives this the probability {given['probability']:.3g} ({given['answer']}).")


def _weights(generator: "Generator", shares: Iterable[str]) -> "Weights | None":
    """--share's texts as `Generator.sample` takes them. Values that are not named keep their proportions."""
    from understudy.data.kinds import TABLE
    from understudy.data.schema import Boolean

    weights: dict[str, dict[Any, float]] = {}
    for text in shares:
        column, _, rest = text.partition("=")
        value, _, share = rest.rpartition(":")
        if not value or not TABLE.describes(generator.schema):
            raise ConfigError(f'--share is "COLUMN=VALUE:SHARE" of a table, not {text!r}. Nothing was drawn.')
        found = generator.schema.column(column)
        known: dict[str, Any] = {str(one): one for one in getattr(found, "categories", ())}
        if isinstance(found, Boolean):
            known = dict(zip(found.labels, (False, True), strict=True))
        try:
            weights.setdefault(column, {})[known[value] if known else float(value)] = float(share)
        except (KeyError, ValueError):
            hint = nearest(value, known)
            raise ConfigError(
                f"--share {text!r}: no such value, or no number.{hint} Nothing was drawn."
            ) from None
    return weights or None


def predict(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, of a generator or of a classifier.")],
    table: Annotated[
        Path, typer.Argument(help="Rows of your own; with a generator, columns may be missing.")
    ],
    target: Annotated[
        str | None, typer.Option(help="The column to predict; default: the run's target.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="The probability of each class, not the likeliest class.")
    ] = False,
    to: Annotated[Path | None, typer.Option("--out", help="CSV; default: to the terminal.")] = None,
) -> None:
    """Predict a column of new rows with what a run trained, a classifier or a generator. It costs no privacy."""
    from understudy.api.predict import predicted

    frame = predicted(folder, table, target=target, probabilities=probabilities)
    text = frame.to_csv(index=False)
    if to is None:
        sys.stdout.write(text)
    else:
        to.write_text(text)
        out.print(f"{len(frame):,} predictions written to {to}")


def tables(
    folder: Annotated[Path, typer.Argument(help="A run's folder or its generator/ folder.")],
    columns: Annotated[list[str], typer.Argument(help="One column or several.")],
    where: Annotated[
        str | None,
        typer.Option(help="Only rows that meet this condition, such as \"sex == 'F' and age >= 70\"."),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="The table alone, as CSV.")] = False,
) -> None:
    """Show a table as it was fitted, and as it was released with its error bars. It costs no privacy."""
    from understudy.generators.generator import Generator
    from understudy.privacy.accounts.budget import rehearsal_of

    generator = Generator.load(folder)
    if said := rehearsal_of(generator.card):
        note(said)
    table = generator.table(*columns, where=where)
    if csv:
        sys.stdout.write(table.to_csv(index=False))
        return
    out.print(table.round(4).to_string(index=False), markup=False, soft_wrap=True)
    if generator.release is not None:
        figures = generator.figures(*columns, where=where)
        out.print(figures.round(4).to_string(index=False), markup=False, soft_wrap=True)
        for figure, why in figures.attrs.get("why", {}).items():
            out.print(f"{figure}: no released value, as {why}.", markup=False)
    out.print(_about_bars(dict(table.attrs)), markup=False)


def _about_bars(said: dict[Any, Any]) -> str:
    """What a table's columns are, in words."""
    fit = f"share, count: by the fit ({said['answer']})."
    if "bias" not in said:
        return (
            f"{fit} Nothing released stands beside it: {said.get('released', 'it came without its release')}."
        )
    return (
        f"{fit} released: as measured, with noise of standard deviation sd; low to high: 95 % of the noise alone. "
        f"By its residuals the fit is off by about {said['bias']:.3g} people a cell besides (its bias)."
    )

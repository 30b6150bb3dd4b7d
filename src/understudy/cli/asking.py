"""Questions to what a run trained: rows, predictions, tables. None of them costs
privacy.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from understudy.cli.terminal import (
    QuoteFormulas,
    RunFolderArg,
    argument,
    err,
    note,
    option,
    out,
    plain,
)
from understudy.ground.check import nearest
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.budget import first_said, rehearsal_of

if TYPE_CHECKING:
    from understudy.answers.raking import Weights
    from understudy.generators.generator import Generator


Where = Annotated[
    str | None,
    option("Only rows that meet this condition, such as \"sex == 'F' and age >= 70\"."),
]


def load_generator(folder: Path) -> "Generator":
    """The generator of this folder; what a rehearsal made is called that."""
    from understudy.generators.generator import Generator

    generator = Generator.load(folder)
    rehearsal = rehearsal_of(generator.card)
    if rehearsal:
        note(rehearsal)
    return generator


def sample(
    folder: RunFolderArg,
    rows: Annotated[
        int, option("How many rows, or people with events.", "--rows", "-n", min=1)
    ] = 1000,
    to: Annotated[
        Path | None,
        option("CSV, Parquet, a folder for events; else CSV to the terminal.", "--out"),
    ] = None,
    where: Where = None,
    shares: Annotated[
        list[str] | None,
        option("A value's share, as outcome=yes:0.1; repeatable.", "--share"),
    ] = None,
    seed: Annotated[int | None, option("Draw the same rows again.")] = None,
    separator: Annotated[str, option("What separates cells in CSV.")] = ",",
    quote_formulas: QuoteFormulas = False,
) -> None:
    """Sample synthetic rows from a saved generator. Sampling costs no privacy, however
    many rows are sampled.
    """
    from understudy.data.reading.writing import csv_text, write_tables

    if len(separator) != 1 or separator.isalnum() or separator in "\"'\r\n.- ":
        raise ConfigError(
            f"--separator is one character such as ; or a tab, not {separator!r}.",
            effect=Effect.NOTHING_SAMPLED,
        )
    csv_options: dict[str, Any] = {"separator": separator, "quoted": quote_formulas}
    generator = load_generator(folder)
    weights = _weights(generator, shares or ())
    statement = first_said(generator.card)
    if to is None:
        frames = {"": generator.sample(rows, where=where, weights=weights, seed=seed)}
    else:
        frames = generator.tables(rows, where=where, weights=weights, seed=seed)
    if where is not None:
        attributes = next(iter(frames.values())).attrs
        err.print(
            f"The model gives this the probability {attributes['probability']:.3g} "
            f"({attributes['answer']})."
        )
    for frame in frames.values():
        frame.attrs |= statement
    if to is None:
        sys.stdout.write(csv_text(frames[""], generator.schema, **csv_options))
        return
    write_tables(frames, to, generator.schema, ".csv", **csv_options)
    counts = ", ".join(
        f"{len(frame):,} {name or 'rows'}" for name, frame in frames.items()
    )
    out.print(f"{counts} written to {to}")


def _weights(generator: "Generator", shares: Iterable[str]) -> "Weights | None":
    """--share's texts as `Generator.sample` takes them. Values that are not named keep
    their proportions.
    """
    from understudy.data.kinds import TABLE
    from understudy.data.schema import Boolean

    weights: dict[str, dict[Any, float]] = {}
    for text in shares:
        column, _, assignment = text.partition("=")
        value, _, share = assignment.rpartition(":")
        if not value or not TABLE.describes(generator.schema):
            raise ConfigError(
                f'--share is "COLUMN=VALUE:SHARE" of a table, not {text!r}.',
                effect=Effect.NOTHING_SAMPLED,
            )
        declared = generator.schema.column(column)
        values: dict[str, Any] = {
            str(category): category for category in getattr(declared, "categories", ())
        }
        if isinstance(declared, Boolean):
            values = dict(zip(declared.labels, (False, True), strict=True))
        try:
            weights.setdefault(column, {})[
                values[value] if values else float(value)
            ] = float(share)
        except (KeyError, ValueError):
            hint = nearest(value, values)
            raise ConfigError(
                f"--share {text!r}: no such value, or no number.{hint}",
                effect=Effect.NOTHING_SAMPLED,
            ) from None
    return weights or None


def predict(
    folder: Annotated[
        Path, argument("The folder of a run, of a generator or of a classifier.")
    ],
    table: Annotated[
        Path, argument("Rows of your own; with a generator, columns may be missing.")
    ],
    target: Annotated[
        str | None, option("The column to predict; default: the run's target.")
    ] = None,
    probabilities: Annotated[
        bool, option("Each class's probability, not the likeliest.", "--probabilities")
    ] = False,
    to: Annotated[
        Path | None, option("CSV; default: to the terminal.", "--out")
    ] = None,
    quote_formulas: QuoteFormulas = False,
) -> None:
    """Predict a column of new rows with what a run trained, a classifier or a
    generator. It costs no privacy.
    """
    from understudy.data.reading.writing import csv_text
    from understudy.runs.result import predict_rows

    frame = predict_rows(folder, table, target=target, probabilities=probabilities)
    text = csv_text(frame, None, quoted=quote_formulas)
    if to is None:
        sys.stdout.write(text)
    else:
        to.write_text(text)
        out.print(f"{len(frame):,} predictions written to {to}")


def tables(
    folder: RunFolderArg,
    columns: Annotated[list[str], argument("One column or several.")],
    where: Where = None,
    csv: Annotated[bool, option("The table alone, as CSV.", "--csv")] = False,
) -> None:
    """Show a table as it was fitted, and as it was released with its error bars. It
    costs no privacy.
    """
    generator = load_generator(folder)
    table = generator.table(*columns, where=where)
    if csv:
        sys.stdout.write(table.to_csv(index=False))
        return
    plain.print(table.round(4).to_string(index=False))
    if generator.release is not None:
        figures = generator.figures(*columns, where=where)
        plain.print(figures.round(4).to_string(index=False))
        for figure, why in figures.attrs.get("why", {}).items():
            plain.print(f"{figure}: no released value, as {why}.")
    plain.print(_describe_bars(dict(table.attrs)))


def _describe_bars(attributes: dict[Any, Any]) -> str:
    fit = f"share, count: by the fit ({attributes['answer']})."
    if "bias" not in attributes:
        return (
            f"{fit} Nothing released stands beside it: "
            f"{attributes.get('released', 'it came without its release')}."
        )
    return (
        f"{fit} released: as measured, with noise of standard deviation sd; low to "
        "high: 95 % of the noise, and of means also of what is not known of values "
        "inside a level. By its residuals the fit is off by about "
        f"{attributes['bias']:.3g} people a cell besides (its bias)."
    )

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


def generator_in(folder: Path) -> "Generator":
    """The generator of this folder; what a rehearsal made is called that."""
    from understudy.generators.generator import Generator

    generator = Generator.load(folder)
    said = rehearsal_of(generator.card)
    if said:
        note(said)
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
    """Draw synthetic rows from a saved generator. Sampler costs no privacy, however
    many rows are drawn.
    """
    from understudy.data.reading.writing import csv_text, write_tables

    if len(separator) != 1 or separator.isalnum() or separator in "\"'\r\n.- ":
        raise ConfigError(
            f"--separator is one character such as ; or a tab, not {separator!r}.",
            effect=Effect.NOTHING_SAMPLED,
        )
    csv_options: dict[str, Any] = {"separator": separator, "quoted": quote_formulas}
    generator = generator_in(folder)
    weights = _weights(generator, shares or ())
    told = first_said(generator.card)
    if to is None:
        frames = {"": generator.sample(rows, where=where, weights=weights, seed=seed)}
    else:
        frames = generator.tables(rows, where=where, weights=weights, seed=seed)
    if where is not None:
        given = next(iter(frames.values())).attrs
        err.print(
            f"The model gives this the probability {given['probability']:.3g} "
            f"({given['answer']})."
        )
    for one in frames.values():
        one.attrs |= told
    if to is None:
        sys.stdout.write(csv_text(frames[""], generator.schema, **csv_options))
        return
    write_tables(frames, to, generator.schema, ".csv", **csv_options)
    counts = ", ".join(f"{len(one):,} {name or 'rows'}" for name, one in frames.items())
    out.print(f"{counts} written to {to}")


def _weights(generator: "Generator", shares: Iterable[str]) -> "Weights | None":
    """--share's texts as `Generator.sample` takes them. Values that are not named keep
    their proportions.
    """
    from understudy.data.kinds import TABLE
    from understudy.data.schema import Boolean

    weights: dict[str, dict[Any, float]] = {}
    for text in shares:
        column, _, rest = text.partition("=")
        value, _, share = rest.rpartition(":")
        if not value or not TABLE.describes(generator.schema):
            raise ConfigError(
                f'--share is "COLUMN=VALUE:SHARE" of a table, not {text!r}.',
                effect=Effect.NOTHING_SAMPLED,
            )
        found = generator.schema.column(column)
        known: dict[str, Any] = {
            str(one): one for one in getattr(found, "categories", ())
        }
        if isinstance(found, Boolean):
            known = dict(zip(found.labels, (False, True), strict=True))
        try:
            weights.setdefault(column, {})[known[value] if known else float(value)] = (
                float(share)
            )
        except (KeyError, ValueError):
            hint = nearest(value, known)
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
    from understudy.runs.result import predicted

    frame = predicted(folder, table, target=target, probabilities=probabilities)
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
    generator = generator_in(folder)
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
    plain.print(_about_bars(dict(table.attrs)))


def _about_bars(said: dict[Any, Any]) -> str:
    fit = f"share, count: by the fit ({said['answer']})."
    if "bias" not in said:
        return (
            f"{fit} Nothing released stands beside it: "
            f"{said.get('released', 'it came without its release')}."
        )
    return (
        f"{fit} released: as measured, with noise of standard deviation sd; low to "
        "high: 95 % of the noise, and of means also of what is not known of values "
        f"inside a level. By its residuals the fit is off by about {said['bias']:.3g} "
        "people a cell besides (its bias)."
    )

"""One call for all figures of a synthetic table: marginals, correlations, numbers as
they are, downstream models.

Tables are encoded by the public schema; a column that one of them lacks, or whose cells
do not fit, is left out of every figure and named with the reason. With `owners` the
marginals and the correlations are also given within one party and across parties, since
a table can be right in the first and wrong in the second.

`Yardstick` is a scale that the number of rows cannot bend: what a perfect table of the
same size would reach. A bootstrap of the real rows (the floor of `marginals`) repeats
cells of the very table it is held against, so with many levels and few rows it stands
well below every fresh sample, and a perfect generator looks poor beside it. Here one
half of the real rows is the truth, and three tables of one size are held against it:
rows of the synthetic table (value), the other half (floor: what a perfect generator
reaches), and the other half with its columns shuffled apart (ceiling: the same without
any joint structure). With held-out rows these are the other half, and all real rows the
truth. For single columns the ceiling is a table with all levels equally often: the
public schema alone, which costs nobody anything. The values themselves (`values`,
`association`) are measured on the same rows; for single columns of numbers the floor is
the mean of a few such partings, as one alone moves about.

Edges: whatever the tables hold, a figure is there or a reason.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Binned
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.values import numbers_of
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.evaluate.figure import SCOPES, Figure, FigureKey, StrongPair
from understudy.evaluate.utility.association import (
    Associations,
    Correlations,
    Pair,
    associations,
    correlations,
)
from understudy.evaluate.utility.downstream import (
    MODELS,
    SCORES,
    Examples,
    absent_figures,
    downstream,
)
from understudy.evaluate.utility.marginals import (
    Codes,
    Marginals,
    bootstrap,
    shuffle_columns,
    strongest_pairs,
)
from understudy.evaluate.utility.values import (
    Numbers,
    NumberSummary,
    Values,
    column_means,
    measure_numbers,
    split_repeatedly,
    summarize_numbers,
    table_values,
)
from understudy.ground.check import nearest, one_of
from understudy.ground.errors import ConfigError, SchemaError

Rows = pd.DataFrame | Table

SHARE_WORDS = {
    "zero_share": "zero",
    "negative_share": "negative",
    "spike_share": "exactly",
}
LEGEND = {
    "avd": (
        "avd1 … avd4: half the summed difference of the shares of levels (bins, "
        "for numbers) of so many columns."
    ),
    "cmd": "cmd: distance of the correlation matrices of level numbers.",
    "ks": (
        "ks: largest difference of the shares of rows up to any number. From here "
        "on, no figure looks at bins."
    ),
    "wasserstein": (
        "wasserstein: how far numbers must be moved on average, as a share of the "
        "declared bounds."
    ),
    "quantile_error": "quantile_error: mean error of the 5, 25, 50, 75, 95 % "
    "quantiles, as a share of the real 5–95 % range.",
    "zero_share": "zero_share, negative_share, spike_share: difference of the shares "
    "of exact zeros, of negative numbers, and of the real rows' most frequent number "
    "besides 0.",
    "pearson": "pearson, spearman, cramers_v, correlation_ratio, rank_ratio: root mean "
    "squared difference of the correlation of two columns' numbers, of their ranks, of "
    "two columns' levels, of levels and numbers, of levels and ranks.",
    "tstr": (
        "tstr_…: a model trained on synthetic rows, tested on real ones; its "
        "ceiling is one trained on real rows."
    ),
}


def _listed_figures(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)} figures)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """What was measured on all rows; `correlations` are matrices in the order of
    `columns`; `numbers` and `spreads` are of a column's values, `pairs` says how
    strongly two columns hang together by their values.
    """

    figures: tuple[Figure, ...]
    columns: tuple[str, ...]
    left_out: Mapping[str, str]
    sizes: Mapping[str, int]
    correlations: Correlations
    numbers: Mapping[str, Numbers]
    spreads: Mapping[str, NumberSummary] = field(default_factory=dict)
    pairs: tuple[Pair, ...] = ()

    def __getitem__(self, name: str) -> Figure:
        by_name = {figure.name: figure for figure in self.figures}
        if name not in by_name:
            raise ConfigError(f'there is no figure "{name}".{nearest(name, by_name)}')
        return by_name[name]

    def values(self) -> dict[str, float | None]:
        """Each value by its name, `trtr_…` beside every `tstr_…`: one row of a results
        file.
        """
        values: dict[str, float | None] = {}
        for figure in self.figures:
            values[figure.name] = figure.value
            if figure.key.measure == "tstr":
                values[replace(figure.key, measure="trtr").name] = figure.best
        return values

    def __str__(self) -> str:
        width = max(len(figure.name) for figure in self.figures)
        head = ", ".join(f"{count:,} {name}" for name, count in self.sizes.items())
        lines = [f"{head} rows, {len(self.columns)} columns compared"]
        lines += [
            f'left out: "{name}": {reason}' for name, reason in self.left_out.items()
        ]
        lines += [
            "",
            f"{'':{width}}  {'value':>8}  {'floor':>8}  {'ceiling':>8}  better",
        ]
        for figure in self.figures:
            cells = "  ".join(
                f"{_cell(v):>8}" for v in (figure.value, figure.floor, figure.ceiling)
            )
            lines.append(f"{figure.name:{width}}  {cells}  {figure.better}")
        lines += self._columns_of_numbers()
        remarks: dict[str, list[str]] = {}
        for figure in self.figures:
            text = (
                f"cannot be computed, because {figure.reason}"
                if figure.reason
                else figure.note
            )
            if text:
                remarks.setdefault(text, []).append(figure.name)
        remark_lines = [
            f"- {_listed_figures(names)}: {text}" for text, names in remarks.items()
        ]
        words = [
            f"  {text}"
            for start, text in LEGEND.items()
            if any(f.key.measure == start for f in self.figures)
        ]
        return "\n".join(
            [*lines, "", *remark_lines, "", "What the figures are:", *words]
        )

    def _columns_of_numbers(self) -> list[str]:
        """A line for each column of numbers: real against synthetic."""
        by_column = {
            name: numbers
            for name, numbers in self.numbers.items()
            if numbers.median is not None
        }
        if not by_column:
            return []
        width = max(map(len, by_column))
        lines = [
            "",
            f"{'':{width}}  {'ks':>8}  median, zeros, negatives, most frequent "
            "other number: real → synthetic",
        ]
        for name, numbers in by_column.items():
            cells = [" → ".join(map(numbers.format_value, numbers.median or ()))]
            for share, word in SHARE_WORDS.items():
                if share in numbers.shares:
                    cells.append(
                        " → ".join(
                            f"{100 * part:.1f} %" for part in numbers.shares[share]
                        )
                        + f" {word}"
                    )
            if numbers.spike is not None:
                cells[-1] += f" {numbers.format_value(numbers.spike)}"
            ks = _cell(numbers.figures[0].value)
            lines.append(f"{name:{width}}  {ks:>8}  {', '.join(cells)}")
        return lines


def evaluate_tables(
    real: Rows,
    synthetic: Rows,
    schema: Schema,
    *,
    holdout: Rows | None = None,
    target: str | None = None,
    task: str | None = None,
    owners: Mapping[str, str] | None = None,
    ways: Sequence[int] = (1, 2, 3, 4),
    models: Sequence[str] = MODELS,
    seed: int = 0,
    rows: int = 20_000,
) -> Evaluation:
    """Compare a synthetic table with the real one.

    `target` names the column that downstream models learn: classes, or numbers where it
    is an integer, a real or a date, unless `task` says "classification" or
    "regression". They are tested on `holdout`, rows that no generator saw; without it
    on a fifth of `real`, which flatters a generator that saw them. `owners` maps each
    column to its party. At most `rows` rows are trained on.
    """
    _check_names(schema, target, task, owners)
    tables = {"real": real, "synthetic": synthetic} | (
        {} if holdout is None else {"held-out": holdout}
    )
    frames = {
        name: table if isinstance(table, pd.DataFrame) else table.frame
        for name, table in tables.items()
    }
    codes, left_out = _encode(frames, schema)
    columns = tuple(name for name in schema.names if name not in left_out)
    levels = [schema.column(name).size for name in columns]
    parties = None if owners is None else [owners[name] for name in columns]
    figures, linear = level_figures(
        codes["real"],
        codes["synthetic"],
        levels,
        names=columns,
        owners=parties,
        ways=ways,
        seed=seed,
    )
    numbers: dict[str, Numbers] = {}
    spreads: dict[str, NumberSummary] = {}
    pairs: tuple[Pair, ...] = ()
    if columns:
        common_schema = schema.select(columns)
        values = {
            name: table_values(common_schema, frames[name], codes[name])
            for name in ("real", "synthetic")
        }
        numbers, strengths = _value_figures(common_schema, values, parties, seed)
        spreads = summarize_numbers(common_schema, values["real"], values["synthetic"])
        figures += (*column_means(numbers), *strengths.figures)
        pairs = strengths.pairs
    if target is not None:
        figures += _downstream_figures(
            frames,
            codes,
            schema,
            left_out,
            target,
            task,
            models=models,
            rows=rows,
            seed=seed,
        )
    return Evaluation(
        figures=tuple(figures),
        columns=columns,
        left_out=left_out,
        sizes={name: len(frame) for name, frame in frames.items()},
        correlations=linear,
        numbers=numbers,
        spreads=spreads,
        pairs=pairs,
    )


def _value_figures(
    schema: Schema,
    values: Mapping[str, Values],
    parties: Sequence[str] | None,
    seed: int,
) -> tuple[dict[str, Numbers], Associations]:
    """What is found of the values themselves, beside a bootstrap of the real rows and
    their columns shuffled apart.
    """
    real = values["real"]
    synthetic = values["synthetic"]
    rng = np.random.default_rng([seed, 2])
    floor = real[:0]
    ceiling = real[:0]
    if len(real):
        floor = real[bootstrap(len(real), len(synthetic), rng)]
        ceiling = shuffle_columns(real, len(synthetic), rng)
    numbers = measure_numbers(schema, real, synthetic, [(real, floor)])
    return numbers, associations(
        schema, real, (synthetic, floor, ceiling), owners=parties, noise=True, seed=seed
    )


def _check_names(
    schema: Schema,
    target: str | None,
    task: str | None,
    owners: Mapping[str, str] | None,
) -> None:
    for name in (*(owners or ()), *(() if target is None else (target,))):
        if name not in schema.names:
            raise ConfigError(
                f'there is no column "{name}" in the '
                f"schema.{nearest(name, schema.names)}"
            )
    if owners is not None and (
        without_owner := [name for name in schema.names if name not in owners]
    ):
        raise ConfigError(f'owners names no party for column "{without_owner[0]}".')
    if task is not None:
        one_of(SCORES, task=task)
    if (
        target is not None
        and task == "regression"
        and not isinstance(schema.column(target), Binned)
    ):
        raise ConfigError(
            f'column "{target}" is {schema.column(target).kind} and has no numbers to '
            "regress on."
        )


def _encode(
    frames: Mapping[str, pd.DataFrame], schema: Schema
) -> tuple[dict[str, Codes], dict[str, str]]:
    """The codes of the columns that fit in every table, and why the others do not."""
    parts_by_table: dict[str, list[Codes]] = {
        name: [np.empty((len(rows), 0), dtype=np.int32)]
        for name, rows in frames.items()
    }
    left_out: dict[str, str] = {}
    for name in schema.names:
        codec = Codec(schema.select([name]))
        try:
            parts = {
                table: _encode_column(codec, name, table, frame)
                for table, frame in frames.items()
            }
        except SchemaError as error:
            left_out[name] = str(error)
            continue
        for table, part in parts.items():
            parts_by_table[table].append(part)
    return {
        table: np.concatenate(parts, axis=1) for table, parts in parts_by_table.items()
    }, left_out


def _encode_column(codec: Codec, name: str, table: str, frame: pd.DataFrame) -> Codes:
    if name not in frame.columns:
        raise SchemaError(f"the {table} table does not have it.")
    try:
        return codec.codes(frame)
    except SchemaError as error:
        # The codec's message quotes the cell, which may be shown only where it is
        # synthetic.
        reason = (
            str(error)
            if table == "synthetic"
            else "a cell is outside the declared domain."
        )
        raise SchemaError(f"the {table} table does not fit: {reason}") from error


def _downstream_figures(
    frames: Mapping[str, pd.DataFrame],
    codes: Mapping[str, Codes],
    schema: Schema,
    left_out: Mapping[str, str],
    target: str,
    task: str | None,
    *,
    models: Sequence[str],
    rows: int,
    seed: int,
) -> tuple[Figure, ...]:
    """The downstream figures, with what was done to the rows in their notes."""
    column = schema.column(target)
    numbers = isinstance(column, Binned) if task is None else task == "regression"
    classes = None if numbers else column.levels
    if target in left_out:
        return absent_figures(
            f"the target is left out ({left_out[target]})",
            models=models,
            classes=classes,
        )
    names = [name for name in schema.names if name not in left_out]
    sizes = [schema.column(name).size for name in names if name != target]
    index = names.index(target)
    parts = {}
    remarks = []
    for table, code in codes.items():
        has_target = code[:, index] < column.levels
        truth = (
            numbers_of(column, frames[table][target][has_target])
            if numbers
            else code[has_target, index].astype(np.int64)
        )
        parts[table] = Examples(np.delete(code[has_target], index, axis=1), truth)
        lost = len(has_target) - int(has_target.sum())
        if lost:
            remarks.append(f"{lost:,} {table} rows without a target left out")
    if "held-out" not in parts:
        parts["real"], parts["held-out"] = parts["real"].split(
            np.random.default_rng([seed, 1])
        )
        remarks.append(
            "the test rows are a fifth of the real ones, which the generator may have "
            "seen"
        )
    train = parts["real"]
    synthetic = parts["synthetic"]
    test = parts["held-out"]
    figures = downstream(
        train,
        synthetic,
        test,
        sizes,
        classes=classes,
        models=models,
        rows=rows,
        seed=seed,
    )
    return tuple(
        replace(f, note="; ".join([f.note, *remarks])) if f.note else f for f in figures
    )


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Yardstick:
    schema: Schema
    truth: Codes
    tables: tuple[Codes, Codes, Codes]
    values: tuple[Values, Values, Values, Values]
    owners: Mapping[str, str] | None
    seed: int

    @classmethod
    def from_codes(
        cls,
        schema: Schema,
        real: Codes,
        synthetic: Codes,
        holdout: Codes | None = None,
        *,
        values: Sequence[Values] | None = None,
        owners: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> "Yardstick":
        """Draw halves, cut the tables to one size. `values`: as `table_values` gives
        them, or else levels.
        """
        rng = np.random.default_rng([seed, 3])
        truth_rows = np.arange(len(real))
        unseen = np.arange(0 if holdout is None else len(holdout))
        if holdout is None:
            truth_rows, unseen = np.array_split(rng.permutation(len(real)), 2)
        size = min(len(unseen), len(synthetic))
        unseen = rng.permutation(unseen)[:size]
        synthetic_sample = rng.permutation(len(synthetic))[:size]

        def parts(
            tables: Sequence[NDArray[Any]],
        ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
            fresh = tables[0 if holdout is None else 2][unseen]
            return (
                tables[0][truth_rows],
                tables[1][synthetic_sample],
                fresh,
                shuffle_columns(fresh, size, rng),
            )

        codes = [real, synthetic, *([] if holdout is None else [holdout])]
        truth, *compared = parts(codes)
        return cls(
            schema=schema,
            truth=truth,
            tables=(compared[0], compared[1], compared[2]),
            values=parts(
                [table.astype(np.float64) for table in codes]
                if values is None
                else values
            ),
            owners=owners,
            seed=seed,
        )

    def figures(self, ways: Sequence[int] = (1, 2, 3, 4)) -> tuple[Figure, ...]:
        """k-way marginals and correlations, each between its ends; named as in
        `fidelity`.
        """
        figures, _ = level_figures(
            self.truth,
            self.tables[0],
            [column.size for column in self.schema.columns],
            ends=self.tables[1:],
            names=self.schema.names,
            owners=self._parties,
            ways=ways,
            seed=self.seed,
        )
        columns = [
            figure.ceiling
            for figure in self.columns().values()
            if figure.ceiling is not None
        ]
        even = float(np.mean(columns)) if columns else None
        return tuple(
            replace(f, ceiling=even)
            if f.key == FigureKey("avd", 1) and f.value is not None
            else f
            for f in figures
        )

    def strongest(self, scope: str = "all") -> tuple[StrongPair, ...]:
        """The strongest real pairs of columns, each by itself."""
        if not len(self.truth) or not len(self.tables[0]):
            return ()
        sizes = [column.size for column in self.schema.columns]
        names = self.schema.names
        pairs = strongest_pairs(
            self.truth, sizes, owners=self._parties, scope=scope, seed=self.seed
        )
        tables = Marginals(
            self.truth, self.tables[0], sizes, ends=self.tables[1:], seed=self.seed
        )
        strongest = []
        for (first, second), (value, floor, ceiling) in zip(
            pairs.tolist(), tables.distances(pairs).tolist(), strict=True
        ):
            figure = Figure(
                FigureKey.for_scope("avd", scope, 2),
                value=value,
                floor=floor,
                ceiling=ceiling,
            )
            rows = len(self.tables[0])
            strongest.append(
                StrongPair(
                    first=names[first], second=names[second], figure=figure, rows=rows
                )
            )
        return tuple(strongest)

    def columns(self) -> dict[str, Figure]:
        if not len(self.truth) or not len(self.tables[0]):
            return {}
        figures = {}
        for j, column in enumerate(self.schema.columns):
            truth_shares, fake, fresh = (
                np.bincount(codes[:, j], minlength=column.size) / len(codes)
                for codes in (self.truth, *self.tables[:2])
            )
            value, floor, ceiling = (
                float(np.abs(truth_shares - compared).sum() / 2)
                for compared in (fake, fresh, 1 / column.size)
            )
            figures[column.name] = Figure(
                FigureKey(column.name), value=value, floor=floor, ceiling=ceiling
            )
        return figures

    def numbers(self) -> dict[str, Numbers]:
        truth, synthetic, fresh, _ = self.values
        pairs = split_repeatedly(truth, fresh, np.random.default_rng([self.seed, 6]))
        return measure_numbers(self.schema, truth, synthetic, pairs)

    def associations(self) -> Associations:
        return associations(
            self.schema,
            self.values[0],
            self.values[1:],
            owners=self._parties,
            seed=self.seed,
        )

    @property
    def _parties(self) -> list[str] | None:
        return (
            None
            if self.owners is None
            else [self.owners[name] for name in self.schema.names]
        )


def level_figures(
    real: Codes,
    synthetic: Codes,
    sizes: Sequence[int],
    *,
    names: Sequence[str],
    owners: Sequence[Hashable] | None,
    ways: Sequence[int],
    ends: Sequence[Codes] | None = None,
    seed: int = 0,
) -> tuple[list[Figure], Correlations]:
    """AVD of sets of so many columns and CMD; with `owners` also within and across
    parties.
    """
    pair = Marginals(real, synthetic, sizes, owners=owners, ends=ends, seed=seed)
    scopes = SCOPES if owners is not None else SCOPES[:1]
    figures = [
        pair.avd(k, scope=scope)
        for k in ways
        for scope in scopes
        if k > 1 or scope == "all"
    ]
    linear = correlations(
        real, synthetic, names=names, owners=owners, ends=ends, seed=seed
    )
    return [*figures, *linear.figures], linear

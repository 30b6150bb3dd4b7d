"""Numbers as they are: measures of a column that no choice of bins can flatter.

Shares of levels say nothing of where in its bin a number lies: an income of 799 and one
of 50,000 may share a bin. Here the numbers themselves are compared (days for a date),
missing ones left aside:

    ks                Kolmogorov–Smirnov: the largest difference of the shares of rows
                      up to any number
    wasserstein       how far the numbers have to be moved on average, as a share of the
                      declared bounds
    quantile_error    mean difference of the 5, 25, 50, 75 and 95 % quantiles, as a
                      share of the real 5–95 % range
    zero_share        difference of the shares of exact zeros
    negative_share    difference of the shares of numbers below 0
    spike_share       difference of the shares of the real rows' most frequent number
                      other than 0

Each stands between what real rows reach held against real rows (floor), and what
numbers spread evenly between the declared bounds reach (ceiling). Bounds that are too
wide make `wasserstein` small; the others do not look at them.

Edges: a column without any number in a table → a figure with a reason; no 0 within the
bounds, a date or a time, or no number that 1 % of the rows share → no figure of that
name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Binned, Date, Datetime
from understudy.data.encoding.values import numbers_of
from understudy.data.schema import Schema
from understudy.evaluate.figure import Figure, FigureKey
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import pluralize

Values = NDArray[np.float64]
"""Numbers of one column without the missing ones, or rows × columns.

Of rows × columns, NaN stands where one is missing.
"""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
COLUMN_FIGURES = (
    "ks",
    "wasserstein",
    "quantile_error",
    "zero_share",
    "negative_share",
    "spike_share",
)
# quantiles of a column's row: both ends, both tails, the middle
SUMMARY_QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)
MIN_ATOM_SHARE = (
    0.01  # a number that so many of the real rows share is one that matters
)
SPLITS = 5  # the floor is the mean of so many splits of the real rows


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """One column's figures, its quantiles (real, synthetic), and its shares of zeros,
    negatives and the spike.
    """

    column: Binned
    figures: tuple[Figure, ...]
    quantiles: tuple[tuple[float, float], ...] = ()
    shares: Mapping[str, tuple[float, float]]
    spike: float | None = None

    @property
    def median(self) -> tuple[float, float] | None:
        return self.quantiles[QUANTILES.index(0.5)] if self.quantiles else None

    def format_value(self, value: float) -> str:
        """A number as this column has it."""
        if isinstance(self.column, Date):
            return str(np.datetime64(round(value), "D"))
        if isinstance(self.column, Datetime):
            return str(np.datetime64(round(value) * self.column.step, "s")).replace(
                "T", " "
            )
        return (
            f"{value:,.0f}"
            if abs(value) >= 1000 or value == round(value)
            else f"{value:.4g}"
        )

    def format_distance(self, value: float) -> str:
        """How far numbers lie apart, as this column has it: days of a date."""
        if isinstance(self.column, Date):
            return f"{value:,.3g} days"
        if isinstance(self.column, Datetime):
            return f"{value * self.column.step / 86_400:,.3g} days"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class NumberSummary:
    """Where the numbers of a column lie, of all rows: (real, synthetic) for each
    quantile and for the deviation.

    `below` and `above` are shares of rows beyond the other table's ends: of synthetic
    rows beyond the real ones, and of real rows beyond the synthetic ones. `step` is how
    far the largest and the smallest real number lie from the next one.
    """

    quantiles: Mapping[float, tuple[float, float]]
    deviation: tuple[float, float]
    below: tuple[float, float]
    above: tuple[float, float]
    step: tuple[float, float]
    rows: tuple[int, int]

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest real number."""
        return self.quantiles[0.0][0], self.quantiles[1.0][0]


def summarize_numbers(
    schema: Schema, real: Values, synthetic: Values
) -> dict[str, NumberSummary]:
    """The spread of every column of numbers that both tables have some of."""
    summaries = {}
    for j, column in enumerate(schema.columns):
        if isinstance(column, Binned):
            real_numbers = _present(real[:, j])
            synthetic_numbers = _present(synthetic[:, j])
            if len(real_numbers) and len(synthetic_numbers):
                summaries[column.name] = _summarize(real_numbers, synthetic_numbers)
    return summaries


def _summarize(real: Values, synthetic: Values) -> NumberSummary:
    pairs = zip(
        *(
            np.quantile(table, SUMMARY_QUANTILES).tolist()
            for table in (real, synthetic)
        ),
        strict=True,
    )
    different = np.unique(real)
    steps = np.diff(different) if len(different) > 1 else np.zeros(1)
    return NumberSummary(
        quantiles=dict(zip(SUMMARY_QUANTILES, pairs, strict=True)),
        deviation=(_deviation(real), _deviation(synthetic)),
        below=(
            float((synthetic < real.min()).mean()),
            float((real < synthetic.min()).mean()),
        ),
        above=(
            float((synthetic > real.max()).mean()),
            float((real > synthetic.max()).mean()),
        ),
        step=(float(steps[0]), float(steps[-1])),
        rows=(len(real), len(synthetic)),
    )


def _deviation(values: Values) -> float:
    """The standard deviation; exactly 0 of equal numbers, which rounding would not
    leave at 0.
    """
    return float(values.std()) if np.ptp(values) else 0.0


def table_values(schema: Schema, frame: pd.DataFrame, codes: Codes) -> Values:
    """Rows × columns: numbers as they are, of all other columns the level."""
    values = codes.astype(np.float64)
    for j, column in enumerate(schema.columns):
        if isinstance(column, Binned):
            values[:, j] = numbers_of(column, frame[column.name])
    return values


def ks_and_wasserstein(real: Values, other: Values) -> tuple[float, float]:
    """The largest difference of the distribution functions (KS), and the area between
    them (Wasserstein-1): exact.
    """
    real = np.sort(real)
    other = np.sort(other)
    points = np.union1d(real, other)
    gaps = np.abs(_distribution_at(real, points) - _distribution_at(other, points))
    return float(gaps.max()), float((gaps[:-1] * np.diff(points)).sum())


def measure_numbers(
    schema: Schema,
    real: Values,
    synthetic: Values,
    pairs: Sequence[tuple[Values, Values]],
) -> dict[str, Numbers]:
    """The figures of every column of numbers. `pairs` are real rows and real rows held
    against them: the floor.
    """
    return {
        column.name: _measure_column(
            column, real[:, j], synthetic[:, j], [(a[:, j], b[:, j]) for a, b in pairs]
        )
        for j, column in enumerate(schema.columns)
        if isinstance(column, Binned)
    }


def split_repeatedly(
    real: Values, fresh: Values, rng: np.random.Generator
) -> list[tuple[Values, Values]]:
    """Two tables of real rows mixed and parted again, a few times, into tables of the
    same sizes.
    """
    rows = np.concatenate([real, fresh])
    return [
        (mixed[: len(real)], mixed[len(real) :])
        for mixed in (rng.permutation(rows) for _ in range(SPLITS))
    ]


def column_means(columns: Mapping[str, Numbers]) -> tuple[Figure, ...]:
    """Each figure's mean over the columns that have it, with the furthest column in the
    note.
    """
    means = (_mean_figure(name, columns) for name in COLUMN_FIGURES)
    return tuple(
        mean
        for mean in means
        if mean.value is not None or mean.key.measure not in COLUMN_FIGURES[3:]
    )


def _measure_column(
    column: Binned,
    real: Values,
    synthetic: Values,
    pairs: Sequence[tuple[Values, Values]],
) -> Numbers:
    real = _present(real)
    synthetic = _present(synthetic)
    real_pairs = [
        (a, b)
        for a, b in ((_present(a), _present(b)) for a, b in pairs)
        if len(a) and len(b)
    ]
    if not len(real) or not len(synthetic) or not real_pairs:
        reason = (
            f"the {'synthetic' if len(real) else 'real'} table has too few values of "
            f"{column.name}."
        )
        absent = tuple(
            Figure.absent(FigureKey(name), reason) for name in COLUMN_FIGURES[:3]
        )
        return Numbers(column=column, figures=absent, shares={})
    different, counts = np.unique(
        real if isinstance(column, Date | Datetime) else real[real != 0],
        return_counts=True,
    )
    # the most frequent number, where it is shared by 1 % of the rows, and by two
    often = bool((counts >= max(2, MIN_ATOM_SHARE * len(real))).any())
    spike = float(different[counts.argmax()]) if often else None
    first = float(column.edges[0])
    last = float(column.edges[-1])
    # the public schema alone
    even = first + (last - first) * (np.arange(len(synthetic)) + 0.5) / len(synthetic)
    comparisons = [
        (real, synthetic),
        (real, np.floor(even) if column.edges.dtype.kind == "i" else even),
        *real_pairs,
    ]
    value, high, *floors = (_distances(column, a, b, spike) for a, b in comparisons)
    low = {name: float(np.mean([floor[name] for floor in floors])) for name in value}
    figures = tuple(
        Figure(FigureKey(n), value=value[n], floor=low[n], ceiling=high[n])
        for n in value
    )
    quantiles = zip(
        *(np.quantile(table, QUANTILES).tolist() for table in (real, synthetic)),
        strict=True,
    )
    before, after = (_shares(column, table, spike) for table in (real, synthetic))
    return Numbers(
        column=column,
        figures=figures,
        quantiles=tuple(quantiles),
        shares={name: (before[name], after[name]) for name in before},
        spike=spike,
    )


def _distances(
    column: Binned, real: Values, other: Values, spike: float | None
) -> dict[str, float]:
    low = float(column.edges[0])
    high = float(column.edges[-1])
    largest, area = ks_and_wasserstein(real, other)
    true = np.quantile(real, QUANTILES)
    other_quantiles = np.quantile(other, QUANTILES)
    spread = float(true[-1] - true[0]) or high - low
    shares = _shares(column, real, spike)
    other_shares = _shares(column, other, spike)
    return {
        "ks": largest,
        "wasserstein": area / (high - low),
        "quantile_error": float(np.abs(true - other_quantiles).mean()) / spread,
    } | {name: abs(shares[name] - other_shares[name]) for name in shares}


def _shares(column: Binned, values: Values, spike: float | None) -> dict[str, float]:
    shares: dict[str, float] = {}
    if not isinstance(column, Date | Datetime):
        if column.low <= 0 <= column.high:
            shares["zero_share"] = float((values == 0).mean())
        if column.low < 0:
            shares["negative_share"] = float((values < 0).mean())
    if spike is not None:
        shares["spike_share"] = float((values == spike).mean())
    return shares


def _mean_figure(measure: str, columns: Mapping[str, Numbers]) -> Figure:
    measured = {
        column: figure
        for column, numbers in columns.items()
        for figure in numbers.figures
        if figure.key.measure == measure and figure.value is not None
    }
    if not measured:
        reason = (
            "no column has such numbers in both tables."
            if columns
            else "there is no column of numbers."
        )
        return Figure.absent(FigureKey(measure), reason)
    value, floor, ceiling = (
        float(np.mean([getattr(figure, end) for figure in measured.values()]))
        for end in ("value", "floor", "ceiling")
    )
    worst = max(measured, key=lambda column: measured[column].value or 0.0)
    count = f"mean over {pluralize(len(measured), 'column')} of numbers"
    note = f"{count}; furthest: {worst} ({measured[worst].value:.4f})"
    return Figure(
        FigureKey(measure), value=value, floor=floor, ceiling=ceiling, note=note
    )


def _present(values: Values) -> Values:
    return values[~np.isnan(values)]


def _distribution_at(ordered: Values, points: Values) -> Values:
    return np.searchsorted(ordered, points, side="right") / len(ordered)

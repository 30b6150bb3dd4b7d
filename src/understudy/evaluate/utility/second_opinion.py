"""The same tables in the eyes of another library: `sdmetrics` (extra
`understudy[sdmetrics]`).

Its measures, by its names: KSComplement (numbers) and TVComplement (levels) of each
column, ContingencySimilarity of pairs of levels and CorrelationSimilarity of pairs of
numbers, LogisticDetection (can a classifier tell the tables apart?) and NewRowSynthesis
(how many rows are not copies?). All lie in [0, 1], and 1 is best. Of levels,
TVComplement is one minus our 1-way AVD of that column and ContingencySimilarity one
minus our 2-way AVD of that pair.

Edges: the library is missing, or a measure cannot be had on these columns → the figure
has a reason.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from understudy.data.column import Binned, Column, Date, Datetime
from understudy.data.schema import Schema
from understudy.evaluate.figure import Figure, FigureKey
from understudy.ground.extras import install_line

MISSING = f"it needs the library sdmetrics: {install_line('sdmetrics')}."
_MAX_ROWS = 20_000
_MAX_PAIRS = 60


def second_opinion(
    real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema, *, seed: int = 0
) -> tuple[Figure, ...]:
    """Six figures by `sdmetrics`, on at most 20,000 rows of each table and 60 pairs of
    columns of each kind.
    """
    try:
        from sdmetrics import column_pairs, single_column, single_table
    except ModuleNotFoundError:
        return tuple(Figure(FigureKey(name), reason=MISSING) for name in NAMES)
    numbers = [column.name for column in schema.columns if isinstance(column, Binned)]
    levels = [name for name in schema.names if name not in numbers]
    real, synthetic = (_plain_frame(table, schema, seed) for table in (real, synthetic))

    def mean_score(measure: Any, sets: Sequence[Any]) -> Callable[[], float]:
        chosen = np.random.default_rng(seed).permutation(len(sets))[:_MAX_PAIRS]
        some = [sets[i] for i in sorted(chosen)]
        return lambda: float(
            np.mean(
                [
                    measure.compute(real_data=real[s], synthetic_data=synthetic[s])
                    for s in some
                ]
            )
        )

    def table_score(measure: Any, **more: Any) -> Callable[[], float]:
        kinds = {
            name: {"sdtype": "numerical" if name in numbers else "categorical"}
            for name in schema.names
        }
        return lambda: float(
            measure.compute(
                real_data=real,
                synthetic_data=synthetic,
                metadata={"columns": kinds},
                **more,
            )
        )

    pairs_by_kind = [
        [list(pair) for pair in combinations(names, 2)] for names in (levels, numbers)
    ]
    rows = min(len(real), len(synthetic), 2000)
    work = (
        mean_score(single_column.KSComplement, numbers),
        mean_score(single_column.TVComplement, levels),
        mean_score(column_pairs.ContingencySimilarity, pairs_by_kind[0]),
        mean_score(column_pairs.CorrelationSimilarity, pairs_by_kind[1]),
        table_score(single_table.LogisticDetection),
        table_score(single_table.NewRowSynthesis, synthetic_sample_size=rows),
    )
    return tuple(
        _figure(name, compute) for name, compute in zip(NAMES, work, strict=True)
    )


NAMES = (
    "sdmetrics_ks_complement",
    "sdmetrics_tv_complement",
    "sdmetrics_contingency_similarity",
    "sdmetrics_correlation_similarity",
    "sdmetrics_logistic_detection",
    "sdmetrics_new_row_synthesis",
)


def _figure(name: str, compute: Callable[[], float]) -> Figure:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a constant column warns, and gives nan
            value = compute()
    except Exception as error:
        # whatever another library raises on odd columns is a reason, not a crash
        return Figure(
            FigureKey(name),
            reason=f"sdmetrics cannot: {type(error).__name__}.",
            better="higher",
        )
    if math.isfinite(value):
        return Figure(FigureKey(name), value=value, better="higher")
    return Figure.absent(
        FigureKey(name),
        "no column, or no pair of columns, of that kind varies.",
        better="higher",
    )


def _plain_frame(table: pd.DataFrame, schema: Schema, seed: int) -> pd.DataFrame:
    """At most 20,000 rows, in the dtypes that the library knows: floats, also for days,
    and objects.
    """
    sample = (
        table.sample(_MAX_ROWS, random_state=seed) if len(table) > _MAX_ROWS else table
    )

    def cells(column: Column) -> "pd.Series[Any]":
        values = sample[column.name]
        if isinstance(column, Date | Datetime):
            return (pd.to_datetime(values) - pd.Timestamp(0)) / pd.Timedelta(days=1)
        return (
            values.astype(float)
            if isinstance(column, Binned)
            else values.astype(object)
        )

    return pd.DataFrame({column.name: cells(column) for column in schema.columns})

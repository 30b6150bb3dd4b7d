"""Two tables beside each other, from files or frames: `us.evaluate` and `understudy evaluate`."""

from dataclasses import replace
from pathlib import Path

from understudy.data.reading.files import Source
from understudy.data.schema import Schema
from understudy.data.table import read_table
from understudy.evaluate.comparison import Comparison, compare
from understudy.evaluate.holdings import read_rows


def evaluate(
    real: Source,
    synthetic: Source,
    schema: Schema | str | Path,
    *,
    holdout: Source | None = None,
    target: str | None = None,
    another: bool = False,
) -> Comparison:
    """Compare a synthetic table, from any generator, with the real one: for the holder of the real rows.

    `holdout` are real rows that the generator has not seen, `target` is a column to predict, `another` adds what
    `sdmetrics` says. `str` of the result has all figures with what they mean.
    Guarantee: none; what comes out is a function of real rows.
    """
    declared = Schema.load(schema) if isinstance(schema, str | Path) else schema
    public = replace(declared, person=None)
    rows, people = read_rows(real, declared)
    held_out, strangers = (None, None) if holdout is None else read_rows(holdout, declared)
    return compare(
        rows,
        read_table(synthetic, public).frame,
        public,
        holdout=held_out,
        target=target,
        another=another,
        people=(people, strangers),
    )

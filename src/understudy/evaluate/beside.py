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

    Real rows are compared as they came, also where they lie outside the schema: what it could not say of them is
    counted (`losses`), and stands first.

    `holdout` are real rows that the generator has not seen, `target` is a column to predict, `another` adds what
    `sdmetrics` says. `str` of the result has all figures with what they mean.
    Guarantee: none; what comes out is a function of real rows.
    """
    declared = Schema.load(schema) if isinstance(schema, str | Path) else schema
    made = read_table(synthetic, replace(declared, person=None)).frame
    rows, people, own = read_rows(real, declared)
    held_out, strangers, wide = None, None, own.schema
    if holdout is not None:
        held_out, strangers, others = read_rows(holdout, wide)
        wide = others.schema
    return compare(
        rows,
        made,
        replace(wide, person=None),
        holdout=held_out,
        target=target,
        another=another,
        people=(people, strangers),
        losses=own.losses,
    )

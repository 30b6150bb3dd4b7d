"""Claims of sentences, recomputed from CSV files: who is first, what is above what.

[NAME]                             # in tables.toml; csv, where and with as for tables
lines = ["dataset", "epsilon"]     # the claim is about each of these, by itself
over = "method"                    # what is compared
value = "mmd"                      # by the mean of this column
holds = "`SubMDS` < `SignDS-S`"    # DataFrame.eval over the values of `over`; or
holds = {lowest = "SubMDS"}        # below all others; or highest
count = 4                          # about how many lines, where the sentence says so
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd


def holds(rows: pd.DataFrame, declared: Mapping[str, Any]) -> "pd.Series[bool]":
    """Whether the claim holds, for each of its lines."""
    wide = compared(rows, declared)
    asked = declared["holds"]
    if isinstance(asked, str):
        return wide.eval(asked, engine="python").astype(bool)
    ((end, name),) = asked.items()
    others = wide.drop(columns=name)
    if end == "lowest":
        return wide[name] < others.min(axis=1)
    if end == "highest":
        return wide[name] > others.max(axis=1)
    raise ValueError(f"holds = {{{end} = …}}: there are lowest and highest")


def worked_out(rows: pd.DataFrame, declared: Mapping[str, Any]) -> str:
    """The values of an expression, as a sentence has them."""
    values = compared(rows, declared).eval(declared["shows"], engine="python")
    shown = [format(declared.get("times", 1) * one, declared["as"]) for one in values]
    if declared.get("span"):
        ends = sorted(shown, key=float)
        return f"{ends[0]} to {ends[-1]}"
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last


def compared(rows: pd.DataFrame, declared: Mapping[str, Any]) -> pd.DataFrame:
    """A row for each line, and a column for each value that is compared."""
    lines = declared["lines"]
    wide = rows.astype({declared["value"]: float}).pivot_table(
        index=lines, columns=declared["over"], values=declared["value"], aggfunc="mean"
    )
    wide.columns = pd.Index([_name(value) for value in wide.columns])
    if wide.isna().any(axis=None):
        raise LookupError(f"not every one of {lines} has all of {list(wide.columns)}")
    if len(wide) != declared.get("count", len(wide)):
        raise LookupError(f"the claim is about {len(wide)} of {lines}: {wide.index}")
    return wide


def _name(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

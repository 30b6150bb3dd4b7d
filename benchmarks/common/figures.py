"""Single figures of CSV files, for sentences."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


@cache
def frame(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)


def where(path: Path, **key: object) -> pd.DataFrame:
    """The rows with these values; None stands for an empty one. Fails where there are
    none.
    """
    rows = frame(path)
    every = [
        rows[name].isna() if value is None else rows[name] == value
        for name, value in key.items()
    ]
    found = rows[np.logical_and.reduce(every)] if every else rows
    if found.empty:
        raise LookupError(f"{path} has no row with {key}")
    return found


def found(path: Path, **key: object) -> "pd.Series[Any]":
    """The mean of the rows with these values, over seeds."""
    return where(path, **key).mean(numeric_only=True)


def bare(value: float, digits: int = 3) -> str:
    """A share without its zero."""
    return (
        f"{value:.{digits}f}".replace("0.", ".", 1)
        if abs(value) < 1
        else f"{value:.{digits}f}"
    )


def listed(values: Iterable[float], digits: int = 3) -> str:
    """0.1, 0.2 and 0.3."""
    *first, last = [f"{value:.{digits}f}" for value in values]
    return f"{', '.join(first)} and {last}" if first else last


def span(values: Iterable[float], digits: int = 3) -> str:
    """From the least to the largest."""
    every = list(values)
    low, high = (f"{value:.{digits}f}" for value in (min(every), max(every)))
    return low if low == high else f"{low} to {high}"

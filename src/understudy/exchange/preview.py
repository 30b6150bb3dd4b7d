"""A sheet of synthetic samples: what a generator draws, to look at before pulling it. Drawing costs no privacy."""

from typing import Any

import pandas as pd

from understudy.generator import Generator

ROWS = 12


def preview_of(generator: Generator, *, seed: int) -> dict[str, Any]:
    """A few rows as text, `{"columns": […], "rows": [[…], …]}`; the same for the same seed."""
    frame = generator.sample(ROWS, seed=seed)
    return {
        "columns": [str(name) for name in frame.columns],
        "rows": [[_text(value) for value in row] for row in frame.itertuples(index=False)],
    }


def _text(value: Any) -> str:
    if pd.isna(value):
        return "missing"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat()
    return str(value)

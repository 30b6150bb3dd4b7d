"""A table whose numbers have no declared bins, so that levels are bought: fine cells
are counted at one reading, and pairs at the next.
"""

from dataclasses import replace
from typing import Any

from understudy.data.column import Binned
from understudy.data.samples import toy
from understudy.privacy.accounts.budget import Budget

FRAME, _toy_schema = toy(rows=150, seed=4)
_binned = _toy_schema.select(["smoker", "age", "treated", "income"])
SCHEMA = replace(
    _binned,
    columns=tuple(
        replace(column, bins=None) if isinstance(column, Binned) else column
        for column in _binned.columns
    ),
)
BUDGET = Budget(2.0, 1e-5)
SMALL: dict[str, Any] = {"components": 8, "steps": 5, "device": "cpu"}

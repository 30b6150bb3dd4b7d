"""What the benchmarks of vertical and of joint publication share: prices, the ends of
the scale, columns of figures.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.evaluate.utility.marginals import bootstrap, shuffle_columns
from understudy.privacy.accounts.budget import Budget
from understudy.runs.result import Result

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DELTA = 1e-5
ENDS = ("independent", "bootstrap")  # of the scale; neither is private
SCOPES = ("", "_within", "_cross")  # over all columns, of one holder, of several


def scoped(measures: Iterable[str]) -> tuple[str, ...]:
    """The columns of these measures over all columns, within a holder and across."""
    return tuple(f"{measure}{scope}" for measure in measures for scope in SCOPES)


def downstream(models: Iterable[str], scores: Iterable[str]) -> tuple[str, ...]:
    """The columns of models that learned from synthetic (tstr) and from real rows
    (trtr).
    """
    models = tuple(models)
    scores = tuple(scores)
    return tuple(
        f"{kind}_{model}_{score}"
        for kind in ("tstr", "trtr")
        for model in models
        for score in scores
    )


def price(epsilon: float | None) -> str:
    return "no DP" if epsilon is None else f"ε={epsilon:g}"


def budget(epsilon: float | None) -> Budget:
    return Budget(math.inf, 0.0) if epsilon is None else Budget(epsilon, DELTA)


def end_of_scale(
    method: str, rows: pd.DataFrame, schema: Schema, seed: int
) -> pd.DataFrame:
    """`independent`: every column shuffled by itself; `bootstrap`: the rows themselves,
    drawn with replacement.
    """
    codec = Codec(schema)
    people = len(rows)
    rng = np.random.default_rng([seed, 1])
    codes = codec.codes(rows)
    if method == "independent":
        return codec.decode(shuffle_columns(codes, people, rng))
    return codec.decode(codes[bootstrap(people, people, rng)])


def sent(result: Result, parties: int) -> dict[str, float]:
    """Megabytes a party."""
    lines = result.transcript.lines.values()
    each = {
        "up_mb": sum(line.up_bytes for line in lines),
        "down_mb": sum(line.down_bytes for line in lines),
    }
    return {name: round(total / parties / 1e6, 4) for name, total in each.items()}


def rounded(
    figures: Mapping[str, float | None], names: Iterable[str]
) -> dict[str, float | str]:
    """The figures of these names, empty where there is none."""
    return {
        name: "" if (value := figures.get(name)) is None else round(value, 4)
        for name in names
    }


def plain(cell: "DataclassInstance") -> dict[str, Any]:
    """A cell as it stands in the file."""
    return {key: "" if value is None else value for key, value in asdict(cell).items()}

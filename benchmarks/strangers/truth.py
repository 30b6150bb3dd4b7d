"""What is true of synthetic rows beside real ones, for each line of a page: by code
that knows no schema.

Numbers and days are compared by correlations of values (Pearson) and of ranks
(Spearman), texts by Cramér's V, a text and a number by the correlation ratio of ranks;
the last two are corrected for many words and few rows (Bergsma, JKSS 2013; Kelley,
1935). A page's line that says "good" is wrong where the worst of its kind is further
off than `LIMITS`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# from here on a pair of columns hangs together, in the real or in the synthetic rows
STRONG = 0.3
MOST_WORDS = 40  # of a text; others count as one
LIMITS = {
    "columns": 0.1,
    "pairs": 0.1,
    "correlations": 0.1,
    "models": 0.05,
    "events": 0.1,
}
SUBJECTS = {  # how a line's subject begins, and which truth it is about
    "single columns": "columns",
    "pairs": "pairs",
    "correlations": "correlations",
    "predictions": "models",
    "numbers of events": "events",
}


@dataclass(frozen=True)
class Truth:
    """How far the worst of a kind is off, and which that is, with the real and the
    synthetic figure.
    """

    off: float = 0.0
    worst: str = ""

    def contradicts(self, mark: str, kind: str) -> bool:
        return mark == "good" and self.off > LIMITS[kind]


def kind_of_line(subject: str) -> str | None:
    """Which truth a line is about; None of lines about attacks and prices."""
    return next(
        (kind for start, kind in SUBJECTS.items() if subject.startswith(start)), None
    )


def worst_column(figures: Sequence[Mapping[str, Any]]) -> Truth:
    """The column with the largest KS or TV; of a column that nearly nobody shares a
    text of nothing is said.
    """
    measured = [
        row
        for row in figures
        if row["kind"] != "unsaid" and ("ks" in row or "tv" in row)
    ]
    truths = [Truth(row.get("ks", row.get("tv")), row["column"]) for row in measured]
    return max(truths, key=lambda truth: truth.off, default=Truth())


@dataclass(frozen=True, eq=False)
class Associations:
    """How strongly every two columns hang together: correlations of numbers, and
    strengths of all pairs.
    """

    values: pd.DataFrame  # Pearson's, numbers alone
    strengths: pd.DataFrame  # by ranks; all columns

    @classmethod
    def measure(
        cls,
        numbers: pd.DataFrame,
        texts: pd.DataFrame,
        words: Mapping[str, Sequence[str]],
    ) -> "Associations":
        ranks = numbers.rank()
        levels = {name: _levels(texts[name], words[name]) for name in texts}
        strengths = ranks.corr().reindex(
            index=[*numbers, *texts], columns=[*numbers, *texts]
        )
        for i, one in enumerate(texts):
            for name in numbers:
                ratio = _correlation_ratio(
                    levels[one], ranks[name].to_numpy(dtype=float)
                )
                strengths.loc[one, name] = strengths.loc[name, one] = ratio
            for other in list(texts)[:i]:
                association = _cramers_v(levels[one], levels[other])
                strengths.loc[one, other] = strengths.loc[other, one] = association
        return cls(numbers.corr(), strengths)


def common_words(real: pd.DataFrame) -> dict[str, list[str]]:
    """The most frequent words of each real text."""
    return {
        str(name): list(real[name].value_counts().index[:MOST_WORDS]) for name in real
    }


def worst_pair(real: Associations, made: Associations) -> Truth:
    """Of strong pairs the one whose strength is furthest off."""
    strong = np.maximum(real.strengths.abs(), made.strengths.abs()) >= STRONG
    return _furthest(real.strengths.where(strong), made.strengths)


def worst_correlation(real: Associations, made: Associations) -> Truth:
    """Of all pairs of numbers the one whose correlation, of values or of ranks, is
    furthest off.
    """
    numbers = list(real.values)
    by_ranks = _furthest(
        real.strengths.loc[numbers, numbers], made.strengths.loc[numbers, numbers]
    )
    return max(
        _furthest(real.values, made.values), by_ranks, key=lambda truth: truth.off
    )


def _furthest(real: pd.DataFrame, made: pd.DataFrame) -> Truth:
    """A synthetic pair without a coefficient, as of a constant, counts as 0."""
    differences = (real - made.fillna(0.0)).abs().to_numpy()
    differences = np.triu(np.nan_to_num(differences), 1)
    if not differences.any():
        return Truth()
    i, j = np.unravel_index(differences.argmax(), differences.shape)
    one = real.columns[i]
    other = real.columns[j]
    worst = (
        f"{one} and {other}: {real.iloc[i, j]:.2f} -> {made.fillna(0.0).iloc[i, j]:.2f}"
    )
    return Truth(round(float(differences[i, j]), 4), worst)


def _levels(cells: "pd.Series[Any]", words: Sequence[str]) -> NDArray[np.int64]:
    """Each cell's place among the words, one after them for other words, and one more
    for missing cells.
    """
    codes = pd.Categorical(cells, categories=words).codes.astype(np.int64)
    unknown = np.where(cells.isna(), len(words) + 1, len(words))
    return np.where(codes < 0, unknown, codes)


def _cramers_v(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    rows = len(one)
    size = int(other.max()) + 1
    counts = np.bincount(
        one * size + other, minlength=(int(one.max()) + 1) * size
    ).reshape(-1, size)
    table = counts[counts.any(axis=1)][:, counts.any(axis=0)].astype(float)
    height, width = table.shape
    if min(height, width) < 2:
        return float("nan")
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / rows
    square = ((table - expected) ** 2 / expected).sum() / rows
    excess = max(0.0, square - (height - 1) * (width - 1) / (rows - 1))
    room = min(size - (size - 1) ** 2 / (rows - 1) for size in (height, width)) - 1
    return float(min(1.0, np.sqrt(excess / room)))


def _correlation_ratio(
    levels: NDArray[np.int64], numbers: NDArray[np.float64]
) -> float:
    known = ~np.isnan(numbers)
    groups = levels[known]
    values = numbers[known]
    counts = np.bincount(groups)
    groups_used = int((counts > 0).sum())
    rows = len(values)
    if groups_used < 2 or rows <= groups_used or not np.ptp(values):
        return float("nan")
    centred = values - values.mean()
    sums = np.bincount(groups, weights=centred)[counts > 0]
    within = 1 - (sums**2 / counts[counts > 0]).sum() / (centred**2).sum()
    return float(np.sqrt(max(0.0, 1 - within * (rows - 1) / (rows - groups_used))))

"""The strongest pairs of a table: what synthetic rows keep of them.

An average over all pairs of columns hardly shows the few that an analyst looks at
first. So the strongest real pairs, by Cramér's V corrected for many levels and few rows
(Bergsma, JKSS 2013; `evaluate.utility.association`), are looked at by themselves: the
mean of V synthetic over V real, and the mean total variation distance of their tables.
Noise that a fit follows makes V larger as well, so that one is read beside the other.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from torch.nn import functional

from understudy.evaluate.utility.marginals import Codes
from understudy.privacy.secure.counts import gram_matrix

STRONGEST = 12
BINS = 16  # of a number's quantiles, at most
WORDS = 32  # values of any other column, the commonest; others are one level
FIGURES = ("kept", "strong_avd2", "pairs_avd2")


@dataclass(frozen=True)
class StrongPairs:
    """`kept`: V synthetic / V real, mean over the strongest pairs; the mean distance of
    their tables; that of all pairs.
    """

    kept: float
    distance: float
    all_pairs: float

    @property
    def figures(self) -> dict[str, float]:
        """By the names of columns in a file."""
        values = self.kept, self.distance, self.all_pairs
        return dict(zip(FIGURES, values, strict=True))


def strong_pairs(
    real: Codes, synthetic: Codes, sizes: list[int], strongest: int = STRONGEST
) -> StrongPairs:
    """Hold the level numbers of synthetic rows against those of real ones.

    Edges: a pair that varies in the synthetic rows less than a coefficient needs has
    kept nothing; no pair with an association in the real rows → NaN, but for all pairs.
    """
    tables = [gram_matrix(codes, sizes).double() for codes in (real, synthetic)]
    first, second = torch.triu_indices(len(sizes), len(sizes), 1)
    strengths = [
        _strengths(table, sizes, len(codes))[first, second]
        for table, codes in zip(tables, (real, synthetic), strict=True)
    ]
    columns = _columns(sizes)
    gap = tables[0] / len(real) - tables[1] / len(synthetic)
    distances = (columns.T @ gap.abs() @ columns / 2)[first, second]
    order = strengths[0].argsort(descending=True, stable=True)[:strongest]
    order = order[strengths[0][order] > 0]
    kept = strengths[1][order] / strengths[0][order]
    return StrongPairs(
        float(kept.mean()), float(distances[order].mean()), float(distances.mean())
    )


def _columns(sizes: list[int]) -> torch.Tensor:
    column = torch.repeat_interleave(torch.tensor(sizes))
    return functional.one_hot(column, len(sizes)).double()


def _strengths(gram: torch.Tensor, sizes: list[int], rows: int) -> torch.Tensor:
    """Bias-corrected Cramér's V of all pairs, 0 where there is none: (columns,
    columns).
    """
    columns = _columns(sizes)
    ways = gram.diagonal()
    expected = torch.outer(ways, ways).clamp(min=1)
    squares = columns.T @ (gram.square() / expected) @ columns
    levels = columns.T @ (ways > 0).double()
    if rows < 2:
        return torch.zeros_like(squares)
    chance = torch.outer(levels - 1, levels - 1) / (rows - 1)
    largest = levels - (levels - 1) ** 2 / (rows - 1) - 1
    largest = torch.minimum(largest[:, None], largest)
    excess = (squares - 1 - chance).clamp(min=0)
    ratio = torch.where(largest > 0, excess / largest.clamp(min=1e-12), 0)
    return ratio.clamp(max=1).sqrt()


def common_codes(
    real: pd.DataFrame, synthetic: pd.DataFrame
) -> tuple[Codes, Codes, list[int]]:
    """Both tables as level numbers, on the real table's rows and columns: of a number
    at most 16 quantiles, of anything else its 32 commonest values. One level more is
    for what is missing, rare, or not in the real rows.
    """
    parts = [
        _number_codes(real[name], synthetic.get(name))
        if is_numeric_dtype(real[name]) and not is_bool_dtype(real[name])
        else _word_codes(real[name], synthetic.get(name))
        for name in real
    ]
    rows = len(synthetic)
    ours = np.stack([one for one, _, _ in parts], 1)
    theirs = [
        np.full(rows, size - 1) if made is None else made for _, made, size in parts
    ]
    return ours, np.stack(theirs, 1), [size for _, _, size in parts]


_Coded = tuple[NDArray[np.int64], NDArray[np.int64] | None, int]


def _number_codes(real: "pd.Series[Any]", made: "pd.Series[Any] | None") -> _Coded:
    values = real.to_numpy(dtype=np.float64, na_value=np.nan)
    present = values[~np.isnan(values)]
    cuts = np.empty(0)
    if len(present):
        cuts = np.unique(np.quantile(present, np.arange(1, BINS) / BINS))
    missing = len(cuts) + 1

    def coded(cells: "pd.Series[Any]") -> NDArray[np.int64]:
        numbers = pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)
        bins = np.searchsorted(cuts, numbers, side="right")
        return np.where(np.isnan(numbers), missing, bins)

    return coded(real), None if made is None else coded(made), missing + 1


def _word_codes(real: "pd.Series[Any]", made: "pd.Series[Any] | None") -> _Coded:
    words = real.astype(str).where(real.notna())
    levels = words.value_counts().index[:WORDS]

    def coded(cells: "pd.Series[Any]") -> NDArray[np.int64]:
        found = levels.get_indexer(cells.astype(str).where(cells.notna()))
        return np.where(found < 0, len(levels), found)

    return coded(real), None if made is None else coded(made), len(levels) + 1

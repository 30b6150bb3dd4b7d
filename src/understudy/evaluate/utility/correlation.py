"""Correlation matrix distance (CMD): how alike the linear relations between columns are.

Jiang, dissertation (TUM 2024), Eq. 4.9 (Zhang's thesis, Eq. 5.2, calls it DCM):
CMD = 1 − tr(R·S) / (‖R‖_F·‖S‖_F), R and S the Pearson correlation matrices; 0 = alike up to a factor.
Paper → code: R_real → `real`, R_syn → `synthetic`.
Differs from the paper: the within-party and the cross-party entries are also compared apart, by the same
formula over those entries alone (a cross figure has no diagonal, so it may reach 2: opposite signs); floor
and ceiling as for the marginals. As in the paper a column enters by its level numbers, missing being the
last; `basis="onehot"` compares the indicators of all levels instead, for which the order of nominal levels
does not matter.

Guarantee: none. A figure is a function of real rows, meant for their holder. Edges: a column that is
constant in the real rows is left out (there is nothing to keep); one that is constant in the synthetic rows
alone counts as uncorrelated with all others; both are named in the note.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.figure import SCOPES, Figure, What
from understudy.evaluate.utility.marginals import Codes, bootstrap, party_numbers, shuffled
from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError

Matrix = NDArray[np.float64]

CHUNK = 1 << 22  # cells of a block of rows that is worked on at once


@dataclass(frozen=True, kw_only=True, eq=False)
class Correlations:
    """The figures and the two matrices behind them, for heat maps: 0 where a constant column has none."""

    figures: tuple[Figure, ...]
    real: Matrix
    synthetic: Matrix


def pearson(codes: Codes, sizes: Sequence[int] | None = None) -> tuple[Matrix, NDArray[np.bool_]]:
    """The correlation matrix of the columns (with `sizes`: of their indicators), and which of them vary.

    A constant column has correlation 1 with itself and 0 with the others.
    """
    rows, width = len(codes), codes.shape[1] if sizes is None else sum(sizes)
    starts = None if sizes is None else np.cumsum([0, *sizes[:-1]])
    first, second = np.zeros(width), np.zeros((width, width))
    step = max(1, CHUNK // max(1, width))
    for begin in range(0, rows, step):
        block = _floats(codes[begin : begin + step], starts, width)
        first += block.sum(axis=0)
        second += block.T @ block
    # Sums of whole numbers are exact up to 2^53, so nothing is lost by centring at the end.
    spread = rows * second - np.outer(first, first)
    scale = np.sqrt(np.maximum(np.diag(spread), 0))
    varies = scale > 1e-7 * np.sqrt(rows * np.diag(second))  # beyond 2^53 a constant leaves a rounding error
    scale[~varies] = 1
    matrix = np.clip(spread / np.outer(scale, scale), -1, 1) * np.outer(varies, varies)
    np.fill_diagonal(matrix, 1)
    return matrix, varies


def _floats(codes: Codes, starts: NDArray[np.int64] | None, width: int) -> Matrix:
    if starts is None:
        return codes.astype(np.float64)
    block = np.zeros((len(codes), width))
    np.put_along_axis(block, codes + starts, 1.0, axis=1)
    return block


def cmd(real: Matrix, synthetic: Matrix, where: NDArray[np.bool_] | None = None) -> float | None:
    """1 − tr(R·S)/(‖R‖‖S‖), over the entries `where`; None if the real entries there are all 0.

    Synthetic entries that are all 0 reproduce nothing: 1.
    """
    if where is not None:
        real, synthetic = real * where, synthetic * where
    norms = float(np.linalg.norm(real)), float(np.linalg.norm(synthetic))
    if not norms[0]:
        return None
    likeness = float((real * synthetic).sum()) / (norms[0] * norms[1]) if norms[1] else 0.0
    return max(0.0, 1 - likeness)


def correlations(
    real: Codes,
    synthetic: Codes,
    sizes: Sequence[int] | None = None,
    *,
    names: Sequence[str] | None = None,
    owners: Sequence[Hashable] | None = None,
    basis: str = "codes",
    seed: int = 0,
) -> Correlations:
    """CMD over all entries, and with `owners` also within and across parties, each with floor and ceiling.

    `sizes` are the levels per column, which the one-hot basis needs; `names` are used in the notes.
    """
    one_of(("codes", "onehot"), basis=basis)
    real, synthetic = np.asarray(real), np.asarray(synthetic)
    if real.ndim != 2 or real.shape[1:] != synthetic.shape[1:]:
        raise ConfigError(f"codes of shapes {real.shape} and {synthetic.shape} cannot be compared.")
    scopes = SCOPES if owners is not None else SCOPES[:1]
    if min(len(real), len(synthetic)) < 2:
        reason = f"{len(real)} real and {len(synthetic)} synthetic rows are too few for a correlation."
        nothing = np.empty((0, 0))
        figures = tuple(Figure.absent(What.within("cmd", scope), reason) for scope in scopes)
        return Correlations(figures=figures, real=nothing, synthetic=nothing)
    width = real.shape[1]
    if basis == "codes":
        sizes = None
    elif sizes is None:
        sizes = (1 + np.maximum(real.max(axis=0), synthetic.max(axis=0))).tolist()
    spans = np.ones(width, dtype=int) if sizes is None else np.asarray(sizes)
    rng = np.random.default_rng([seed, 0])
    floor = real[bootstrap(len(real), len(synthetic), rng)]
    tables = (real, synthetic, floor, shuffled(real, len(synthetic), rng))
    (truth, varies), (other, kept), *ends = (pearson(table, sizes) for table in tables)
    party = np.repeat(party_numbers(owners or [None] * width), spans)
    labels = np.repeat(np.array(names or range(width), dtype=object), spans)
    note = _note(labels, varies, kept)
    others = [other, *(matrix for matrix, _ in ends)]
    figures = tuple(_figure(scope, truth, others, varies, party, note) for scope in scopes)
    return Correlations(figures=figures, real=truth, synthetic=other)


def _figure(
    scope: str, real: Matrix, others: list[Matrix], varies: NDArray[np.bool_], party: Codes, note: str
) -> Figure:
    what, same = What.within("cmd", scope), party[:, None] == party
    where = np.outer(varies, varies) & {"all": np.ones_like(same), "within": same, "cross": ~same}[scope]
    if not varies.any():
        reason = "every column of the real rows is constant." if len(varies) else "there are no columns."
        return Figure.absent(what, reason)
    if not where.any():
        return Figure.absent(what, "no two columns that vary belong to different parties.")
    value, floor, ceiling = (cmd(real, other, where) for other in others)
    if value is None:
        return Figure.absent(what, "the real rows have no correlation at all there.")
    return Figure(what, value=value, floor=floor, ceiling=ceiling, note=note)


def _note(labels: NDArray[np.object_], real: NDArray[np.bool_], synthetic: NDArray[np.bool_]) -> str:
    said = (
        ("constant in the real rows, left out", labels[~real]),
        ("constant only in the synthetic rows, counted as uncorrelated", labels[real & ~synthetic]),
    )
    return "; ".join(
        f"{what}: {', '.join(map(str, dict.fromkeys(which)))}" for what, which in said if len(which)
    )

"""Splits of one table between parties, to simulate what holders have in truth.

Parties are given as a number, as names, or as names with shares: 2, ("clinic",
"insurer"), {"clinic": 1, "insurer": 3}. Splits of columns return names, splits of rows
return positions; both by party.

Edges: more parties than columns or rows → ConfigError.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.ground.check import positive, whole
from understudy.ground.errors import ConfigError

Parties = int | Sequence[str] | Mapping[str, float]
Rows = NDArray[np.int64]


def random_columns(
    names: Iterable[str], parties: Parties, seed: int
) -> dict[str, tuple[str, ...]]:
    """Columns dealt at random in the parties' shares, at least one each, in their old
    order at each party.
    """
    names = tuple(names)
    order = np.random.default_rng(seed).permutation(len(names))
    return {
        party: tuple(names[i] for i in np.sort(order[part]))
        for party, part in _cut(len(names), _shares(parties), "columns").items()
    }


def iid_rows(n: int, parties: Parties, seed: int) -> dict[str, Rows]:
    """Rows dealt at random in the parties' shares, at least one each."""
    whole(n=n)
    order = np.random.default_rng(seed).permutation(n)
    return {
        party: order[part] for party, part in _cut(n, _shares(parties), "rows").items()
    }


def cramers_v(frame: pd.DataFrame, schema: Schema) -> NDArray[np.float64]:
    """Cramér's V between all pairs of columns, on their levels, missing included; 1 on
    the diagonal.

    One product of the one-hot table with itself holds every contingency table O at
    once, and χ²/n = Σ O²/(row sum · column sum) − 1. A column with a single level goes
    with nothing: V = 0.
    """
    codec = Codec(schema)
    rows = codec.encode(frame).numpy()
    tables = (rows.T @ rows).astype(np.float64)  # (width, width)
    sums = np.diag(tables)
    with np.errstate(divide="ignore", invalid="ignore"):
        # a level that nobody has adds nothing
        parts = np.nan_to_num(tables**2 / np.outer(sums, sums))
    starts = [block.start for block in codec.blocks]
    phi2 = np.add.reduceat(np.add.reduceat(parts, starts, axis=0), starts, axis=1) - 1
    free = np.add.reduceat(sums > 0, starts, dtype=np.int64) - 1
    v: NDArray[np.float64] = np.sqrt(
        np.clip(phi2 / np.maximum(np.minimum.outer(free, free), 1), 0, 1)
    )
    np.fill_diagonal(v, 1)
    return v


def _shares(parties: Parties) -> dict[str, float]:
    if isinstance(parties, int):
        whole(parties=parties)
        return {f"party{i + 1}": 1.0 for i in range(parties)}
    shares = (
        dict(parties) if isinstance(parties, Mapping) else dict.fromkeys(parties, 1.0)
    )
    if not shares or len(shares) < len(parties) or isinstance(parties, str):
        raise ConfigError(
            f"parties must be a number, or names that differ, not {parties!r}."
        )
    positive(**{f"the share of {party}": share for party, share in shares.items()})
    return shares


def _cut(n: int, shares: Mapping[str, float], what: str) -> dict[str, slice]:
    """Cut n things in the given shares, at least one each."""
    if len(shares) > n:
        raise ConfigError(f"{len(shares)} parties cannot split {n} {what}.")
    ends = np.round(np.cumsum([0, *shares.values()]) / sum(shares.values()) * n).astype(
        int
    )
    step = np.arange(len(ends))
    # at least one apart
    ends = np.maximum.accumulate(np.minimum(ends - step, n - len(shares))) + step
    return {
        party: slice(a, b) for party, a, b in zip(shares, ends, ends[1:], strict=False)
    }

"""Splits of one table between parties, to simulate what holders have in truth.

Columns are split where parties hold the same people (vertical), rows where they hold the same columns
(horizontal). Parties are given as a number, as names, or as names with shares: 2, ("clinic", "insurer") or
{"clinic": 1, "insurer": 3}. Splits of columns return names, splits of rows return positions; both by party.

Guarantee: none; these are for simulation, where someone holds the whole table. `correlated_columns` and
`label_skew_rows` read rows to choose the split.
Edges: more parties than columns, people or rows → ConfigError; a skewed split may leave a party without rows.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.ground.check import in_range, nearest, positive, whole
from understudy.ground.errors import ConfigError

Parties = int | Sequence[str] | Mapping[str, float]
Rows = NDArray[np.int64]


def by_name(source: pd.DataFrame | Schema, parts: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The split that `parts` says, checked: known columns, each at one party. The others are nobody's."""
    known = [str(name) for name in (source if isinstance(source, pd.DataFrame) else source.names)]
    holder: dict[str, str] = {}
    for party, names in parts.items():
        if not names:
            raise ConfigError(f'party "{party}" has no columns.')
        for name in names:
            if name not in known:
                raise ConfigError(f'party "{party}": there is no column "{name}".{nearest(name, known)}')
            if name in holder:
                raise ConfigError(f'column "{name}" is given to "{holder[name]}" and to "{party}".')
            holder[name] = party
    return {party: tuple(names) for party, names in parts.items()}


def random_columns(names: Iterable[str], parties: Parties, seed: int) -> dict[str, tuple[str, ...]]:
    """Columns dealt at random in the parties' shares, at least one each, in their old order at each party."""
    names = tuple(names)
    order = np.random.default_rng(seed).permutation(len(names))
    return {
        party: tuple(names[i] for i in np.sort(order[part]))
        for party, part in _cut(len(names), _shares(parties), "columns").items()
    }


def correlated_columns(frame: pd.DataFrame, schema: Schema, parties: Parties) -> dict[str, tuple[str, ...]]:
    """Columns that go together kept together: average-linkage clusters of the distance 1 − Cramér's V.

    Reads rows, and the split shows what was read: for simulation only. The largest cluster goes to the
    first party, and so on; shares are not used.
    """
    names = list(_shares(parties))
    if len(names) > len(schema.columns):
        raise ConfigError(f"{len(names)} parties cannot split {len(schema.columns)} columns.")
    if len(names) == 1:
        return {names[0]: schema.names}
    from scipy.cluster.hierarchy import cut_tree, linkage  # which take a second to load
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(1 - cramers_v(frame, schema), checks=False), "average")
    cluster = cut_tree(tree, n_clusters=[len(names)])[:, 0]
    by_size = np.argsort(-np.bincount(cluster), kind="stable")
    return {
        party: tuple(name for name, c in zip(schema.names, cluster, strict=True) if c == label)
        for party, label in zip(names, by_size, strict=True)
    }


def cramers_v(frame: pd.DataFrame, schema: Schema) -> NDArray[np.float64]:
    """Cramér's V between all pairs of columns, on their levels, missing included; 1 on the diagonal.

    One product of the one-hot table with itself holds every contingency table O at once, and
    χ²/n = Σ O²/(row sum · column sum) − 1. A column with a single level goes with nothing: V = 0.
    """
    codec = Codec(schema)
    rows = codec.encode(frame).numpy()
    tables = (rows.T @ rows).astype(np.float64)  # (width, width)
    sums = np.diag(tables)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.nan_to_num(tables**2 / np.outer(sums, sums))  # a level that nobody has adds nothing
    starts = [block.start for block in codec.blocks]
    phi2 = np.add.reduceat(np.add.reduceat(parts, starts, axis=0), starts, axis=1) - 1
    free = np.add.reduceat(sums > 0, starts, dtype=np.int64) - 1
    v: NDArray[np.float64] = np.sqrt(np.clip(phi2 / np.maximum(np.minimum.outer(free, free), 1), 0, 1))
    np.fill_diagonal(v, 1)
    return v


def iid_rows(n: int, parties: Parties, seed: int) -> dict[str, Rows]:
    """Rows dealt at random in the parties' shares, at least one each."""
    whole(n=n)
    order = np.random.default_rng(seed).permutation(n)
    return {party: order[part] for party, part in _cut(n, _shares(parties), "rows").items()}


def label_skew_rows(labels: ArrayLike, parties: Parties, alpha: float, seed: int) -> dict[str, Rows]:
    """Each label's rows dealt in proportions from Dirichlet(α · shares): the smaller α, the more skewed.

    Yurochkin et al., "Bayesian Nonparametric Federated Learning" (ICML 2019), section 4: p_k ~ Dir(α).
    Differs from the paper: shares, scaled to an average of 1, weigh the parties. A party may stay empty.
    """
    positive(alpha=alpha)
    rng = np.random.default_rng(seed)
    shares = _shares(parties)
    weights = np.array(list(shares.values())) / np.mean(list(shares.values()))
    codes, _ = pd.factorize(np.asarray(labels), use_na_sentinel=False)
    dealt: dict[str, list[Rows]] = {party: [] for party in shares}
    for label in range(codes.max(initial=-1) + 1):
        rows = rng.permutation(np.flatnonzero(codes == label))
        cuts = np.round(np.cumsum(rng.dirichlet(alpha * weights))[:-1] * len(rows)).astype(int)
        for party, part in zip(shares, np.split(rows, cuts), strict=True):
            dealt[party].append(part)
    return {party: rng.permutation(np.concatenate([*parts, np.arange(0)])) for party, parts in dealt.items()}


def by_person(ids: ArrayLike) -> dict[Hashable, Rows]:
    """Each person a party of its own: the rows of every id, in their old order."""
    people = pd.Series(np.asarray(ids))
    if people.isna().any():
        raise ConfigError(f"the id at row {int(people.isna().to_numpy().argmax()) + 1:,} is missing.")
    return {person: np.asarray(rows) for person, rows in people.groupby(people, sort=False).indices.items()}


def overlap_people(
    frame: pd.DataFrame, person: str, shares: Mapping[str, float], seed: int
) -> dict[str, Rows]:
    """Give each party its share of all people, drawn independently, with their rows in an order of its own.

    Two parties with shares a and b have about a·b of all people in common.
    """
    rng = np.random.default_rng(seed)
    codes, people = pd.factorize(frame[person])
    held = {}
    for party, share in shares.items():
        in_range(0, 1, **{f"the share of {party}": share})
        chosen = np.zeros(len(people), dtype=bool)
        chosen[rng.permutation(len(people))[: round(share * len(people))]] = True
        held[party] = rng.permutation(np.flatnonzero(chosen[codes]))
    return held


def _shares(parties: Parties) -> dict[str, float]:
    if isinstance(parties, int):
        whole(parties=parties)
        return {f"party{i + 1}": 1.0 for i in range(parties)}
    shares = dict(parties) if isinstance(parties, Mapping) else dict.fromkeys(parties, 1.0)
    if not shares or len(shares) < len(parties) or isinstance(parties, str):
        raise ConfigError(f"parties must be a number, or names that differ, not {parties!r}.")
    positive(**{f"the share of {party}": share for party, share in shares.items()})
    return shares


def _cut(n: int, shares: Mapping[str, float], what: str) -> dict[str, slice]:
    """Cut n things in the given shares, at least one each."""
    if len(shares) > n:
        raise ConfigError(f"{len(shares)} parties cannot split {n} {what}.")
    ends = np.round(np.cumsum([0, *shares.values()]) / sum(shares.values()) * n).astype(int)
    step = np.arange(len(ends))
    ends = np.maximum.accumulate(np.minimum(ends - step, n - len(shares))) + step  # at least one apart
    return {party: slice(a, b) for party, a, b in zip(shares, ends, ends[1:], strict=False)}

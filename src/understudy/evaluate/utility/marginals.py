"""k-way marginals: how far apart the joint distributions of k columns stand (AVD).

Zhang, master's thesis (TUM 2022), Eq. 5.1: the mean over m attribute sets ω of
½·Σ|P_r(ω) − P_s(ω)|.
Paper → code: m → count, ω → a row of `sets`, P_r and P_s → counts of the real and of
the synthetic rows.
Differs from the paper: every figure stands between two references made from the real
rows (*floor*: a bootstrap of the synthetic table's size, what sampling alone causes;
*ceiling*: columns shuffled independently, what a table without any joint structure
reaches), and, where columns have owners, sets within one party and sets across parties
are drawn apart: nothing in the papers' losses ties the latter. The floor takes the real
table for the truth: a fresh sample of the same people's population, as large as the
real table, would stand about √2 above it. Edges: too few columns or no rows → a
`Figure` with a reason.
"""

import math
from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.figure import SCOPES, Figure, FigureKey
from understudy.ground.check import one_of, whole
from understudy.ground.errors import ConfigError, Effect

Codes = NDArray[np.integer[Any]]
"""Rows × columns of level numbers, as `Codec.codes` gives them."""

# above so many cells, sorting the rows is cheaper than an array of all cells
DENSE_CELLS = 1 << 22
RANKED_ROWS = 5_000  # on which pairs are ranked by their dependence
# up to so many sets they are listed and drawn from, above it drawn blindly
LISTED_SETS = 20_000


def party_numbers(owners: Sequence[Hashable]) -> NDArray[np.int64]:
    numbers = {owner: number for number, owner in enumerate(dict.fromkeys(owners))}
    return np.array([numbers[owner] for owner in owners], dtype=np.int64)


def bootstrap(rows: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Row numbers of a table of `size` rows drawn with replacement: the sampling
    floor.
    """
    return rng.integers(rows, size=size)


def shuffle_columns(
    table: NDArray[Any], size: int, rng: np.random.Generator
) -> NDArray[Any]:
    """Each column shuffled on its own, then cut or repeated to `size` rows: the
    ceiling's rows.
    """
    mixed = rng.permuted(np.ascontiguousarray(table.T), axis=1).T
    return mixed[:size] if size <= len(mixed) else mixed[np.arange(size) % len(mixed)]


def reference_tables(real: Codes, size: int, seed: int) -> tuple[Codes, ...]:
    """Floor and ceiling of a synthetic table of this size; none where there are no
    rows.
    """
    rng = np.random.default_rng([seed, 0])
    if not len(real) or not size:
        return ()
    return real[bootstrap(len(real), size, rng)], shuffle_columns(real, size, rng)


def attribute_sets(
    owners: Sequence[Hashable],
    k: int,
    *,
    count: int = 100,
    scope: str = "all",
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Up to `count` distinct sets of k columns, uniform among those of the scope:
    (sets, k). `owners` names the party of each column. "within": all columns of one
    party; "cross": of at least two. Edges: fewer such sets than `count` → all of them;
    none → an array of no rows.
    """
    whole(k=k, count=count)
    one_of(SCOPES, scope=scope)
    party = party_numbers(owners)
    groups = [
        np.flatnonzero(party == number) for number in range(party.max(initial=-1) + 1)
    ]
    inside = sum(math.comb(len(group), k) for group in groups)
    if scope != "within":
        groups = [np.arange(len(party))]
    total = sum(math.comb(len(group), k) for group in groups)
    if total <= LISTED_SETS:
        listed = [
            group[list(chosen)]
            for group in groups
            for chosen in combinations(range(len(group)), k)
        ]
        sets = _in_scope(np.array(listed, dtype=np.int64).reshape(-1, k), party, scope)
        return sets[rng.permutation(len(sets))[:count]]
    count = min(count, total - inside if scope == "cross" else total)
    sampled: dict[tuple[int, ...], None] = {}
    while len(sampled) < count:
        sets = _in_scope(_blind_draws(groups, k, rng), party, scope)
        sampled.update(dict.fromkeys(map(tuple, sets.tolist())))
    return np.array(list(sampled)[:count], dtype=np.int64).reshape(-1, k)


def _in_scope(
    sets: NDArray[np.int64], party: NDArray[np.int64], scope: str
) -> NDArray[np.int64]:
    return (
        sets[(party[sets] != party[sets[:, :1]]).any(axis=1)]
        if scope == "cross"
        else sets
    )


def _blind_draws(
    groups: list[NDArray[np.int64]], k: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """1,024 sets, each group as often as it has sets: uniform over the groups' sets,
    with repeats.
    """
    shares = np.array([math.comb(len(group), k) for group in groups], dtype=float)
    draws = rng.multinomial(1024, shares / shares.sum())
    # The places of the k smallest of random keys are a uniform set of k.
    parts = [
        np.sort(
            group[np.argpartition(rng.random((n, len(group))), k - 1, axis=1)[:, :k]],
            axis=1,
        )
        for group, n in zip(groups, draws.tolist(), strict=True)
        if n
    ]
    return rng.permutation(np.concatenate(parts))


def strongest_pairs(
    codes: Codes,
    sizes: Sequence[int],
    *,
    owners: Sequence[Hashable] | None = None,
    count: int = 20,
    scope: str = "all",
    seed: int = 0,
) -> NDArray[np.int64]:
    """The pairs of columns that depend on each other most, strongest first: (pairs, 2).

    By the mean square contingency χ²/n, less what chance alone adds to it (its degrees
    of freedom over n), on at most `RANKED_ROWS` rows and `LISTED_SETS` pairs. Edges:
    pairs without any dependence are left out.
    """
    rng = np.random.default_rng([seed, 7])
    rows = codes[rng.permutation(len(codes))[:RANKED_ROWS]].astype(np.int64)
    column_owners = [None] * codes.shape[1] if owners is None else list(owners)
    sets = attribute_sets(column_owners, 2, count=LISTED_SETS, scope=scope, rng=rng)
    if not len(rows) or not len(sets):
        return sets[:0]
    strengths = np.array(
        [
            _mean_square_contingency(rows[:, a], rows[:, b], sizes[a], sizes[b])
            for a, b in sets.tolist()
        ]
    )
    order = np.argsort(-strengths, kind="stable")[:count]
    return sets[order[strengths[order] > 0]]


def count_occupied(
    keys: Codes, max_cells: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cells that occur, and how often: counted where there can be few, sorted where
    there can be many.
    """
    if max_cells > DENSE_CELLS:
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys, minlength=max_cells)
    cells = np.flatnonzero(counts)
    return cells, counts[cells]


def _mean_square_contingency(
    first: Codes, second: Codes, size: int, width: int
) -> float:
    """χ²/n of two columns' levels, less its expectation under independence."""
    n = len(first)
    level_counts = (
        np.bincount(first, minlength=size),
        np.bincount(second, minlength=width),
    )
    cells, counts = count_occupied(first * width + second, size * width)
    squares = counts.astype(np.float64) ** 2 / (
        level_counts[0][cells // width] * level_counts[1][cells % width]
    )
    freedom = (np.count_nonzero(level_counts[0]) - 1) * (
        np.count_nonzero(level_counts[1]) - 1
    )
    return float(squares.sum()) - 1 - freedom / n


class Marginals:
    """A real and a synthetic table laid out by column, with the rows of floor and
    ceiling beside them. `sizes` are the levels per column (default: the largest code +
    1), `owners` the party of each column, `ends` tables as large as the synthetic one
    for floor and ceiling, or none; by default they are drawn here.
    """

    def __init__(
        self,
        real: Codes,
        synthetic: Codes,
        sizes: Sequence[int] | None = None,
        *,
        owners: Sequence[Hashable] | None = None,
        ends: Sequence[Codes] | None = None,
        seed: int = 0,
    ) -> None:
        real, synthetic = check_tables(real=real, synthetic=synthetic).values()
        needed = 1 + np.maximum(
            real.max(axis=0, initial=0), synthetic.max(axis=0, initial=0)
        ).astype(np.int64)
        self.sizes = needed if sizes is None else np.asarray(sizes, dtype=np.int64)
        if self.sizes.shape != needed.shape or (self.sizes < needed).any():
            raise ConfigError(
                f"sizes {self.sizes.tolist()} are too small: the codes need "
                f"{needed.tolist()}."
            )
        self.owners = [None] * len(needed) if owners is None else list(owners)
        if len(self.owners) != len(needed):
            raise ConfigError(
                f"{len(self.owners)} owners were given for {len(needed)} columns."
            )
        self.rows = len(real)
        self.synthetic_rows = len(synthetic)
        self.seed = seed
        store = np.int16 if self.sizes.max(initial=0) < 1 << 15 else np.int64
        real = real.astype(store)
        synthetic = synthetic.astype(store)
        reference_codes = (
            reference_tables(real, self.synthetic_rows, seed) if ends is None else ends
        )
        self.starts = [
            self.rows + self.synthetic_rows * number
            for number in range(1 + len(reference_codes))
        ]
        # (columns, real + synthetic + floor + ceiling), each column in one piece
        self.columns = np.ascontiguousarray(
            np.concatenate([real, synthetic, *reference_codes]).astype(store).T
        )

    def distances(self, sets: NDArray[np.int64]) -> NDArray[np.float64]:
        """½·Σ|P_real − P_other| of each set, exactly: (sets, 1 + ends), other =
        synthetic, floor, ceiling.
        """
        return np.array(
            [self._distance(columns) for columns in np.asarray(sets, dtype=np.int64)]
        )

    def avd(
        self,
        k: int,
        *,
        scope: str = "all",
        count: int = 100,
        sets: NDArray[np.int64] | None = None,
    ) -> Figure:
        """Mean distance over the given sets, or `count` random ones of the scope.
        `avd1` has no ceiling.
        """
        key = FigureKey.for_scope("avd", scope, k)
        if not self.rows or not self.synthetic_rows:
            return Figure.absent(
                key, f"the {'synthetic' if self.rows else 'real'} table has no rows."
            )
        if sets is None:
            one_of(SCOPES, scope=scope)
            rng = np.random.default_rng([self.seed, 1, k, SCOPES.index(scope)])
            sets = attribute_sets(self.owners, k, count=count, scope=scope, rng=rng)
        if not len(sets):
            return Figure.absent(key, _no_sets(scope, k, len(self.sizes)))
        value, *ends = self.distances(sets).mean(axis=0).tolist()
        floor, ceiling = ends or (None, None)
        note = f"mean over {len(sets)} set{'s' * (len(sets) > 1)} of columns"
        return Figure(
            key,
            value=value,
            floor=floor,
            ceiling=ceiling if k > 1 else None,
            note=note,
        )

    def _distance(self, columns: NDArray[np.int64]) -> list[float]:
        keys, cells = _cell_keys(self.columns, columns, self.sizes)
        parts = np.split(keys, self.starts)
        dense = cells <= DENSE_CELLS
        real, *other_counts = (
            [np.bincount(part, minlength=cells) for part in parts]
            if dense
            else _sparse_counts(parts)
        )
        # Over a common denominator: |c/n − c'/n'| = |n'·c − n·c'| / (n·n').
        scale = 2 * self.rows * self.synthetic_rows
        return [
            int(np.abs(self.synthetic_rows * real - self.rows * counts).sum()) / scale
            for counts in other_counts
        ]


def _cell_keys(
    columns: Codes, chosen: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[Codes, int]:
    """One number per row for its values in the chosen columns, in mixed radix; and how
    many there can be.
    """
    first, *further = chosen.tolist()
    cells = int(sizes[first])
    # two bits are left for the table's number
    small = math.prod(sizes[chosen].tolist()) < 1 << 29
    keys: Codes = columns[first].astype(np.int32 if small else np.int64)
    for column in further:
        size = int(sizes[column])
        # int64 would not hold the next: renumber the values seen so far
        if cells * size >= 1 << 61:
            distinct, keys = np.unique(keys, return_inverse=True)
            cells = len(distinct)
        keys *= keys.dtype.type(size)
        keys += columns[column]
        cells *= size
    return keys, cells


def _sparse_counts(parts: list[Codes]) -> list[NDArray[np.int64]]:
    """Counts of the cells that occur, by one sort of all rows with the table's number
    in the lowest bits.
    """
    packed = np.sort(
        np.concatenate([part << 2 | table for table, part in enumerate(parts)])
    )
    cell = packed >> 2
    table = packed & 3
    rank = np.concatenate([[0], np.cumsum(cell[1:] != cell[:-1])])
    counts = np.bincount(rank << 2 | table, minlength=4 * (int(rank[-1]) + 1)).reshape(
        -1, 4
    )
    return list(counts.T[: len(parts)])


def check_tables(
    *, effect: Effect = Effect.NOTHING_COMPUTED, **codes_by_name: Codes
) -> dict[str, Codes]:
    """The tables by their names, of level numbers, with equally many columns."""
    tables = {name: np.asarray(codes) for name, codes in codes_by_name.items()}
    for name, codes in tables.items():
        if codes.ndim != 2 or codes.dtype.kind not in "iu" or codes.min(initial=0) < 0:
            raise ConfigError(
                f"{name}: codes must be rows × columns of whole numbers from 0, "
                f"not {codes.dtype} of shape {codes.shape}.",
                effect=effect,
            )
    widths = {name: codes.shape[1] for name, codes in tables.items()}
    if len(set(widths.values())) > 1:
        raise ConfigError(
            f"the tables have different numbers of columns: {widths}.", effect=effect
        )
    return tables


def _no_sets(scope: str, k: int, columns: int) -> str:
    if scope == "within":
        return f"no party holds {k} columns."
    if scope == "cross":
        return f"no {k} of the {columns} columns belong to more than one party."
    return f"{k} columns are needed and the table has {columns}."

"""A graphical model's junction tree over plain arrays: its cliques, its marginals, its
tables of two columns.

`lean_pgm.py` puts it in place of dpmm's. Sets of columns are whole numbers, a bit for
each column; tables are one vector, clique after clique; sums over some of a clique's
columns go by each cell's place in the smaller table, in loops that Numba compiles: many
arrays of a few cells are what NumPy is slow at, and what a junction tree is made of.
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Clique = tuple[str, ...]
Places = NDArray[np.int32]
_LEAST = 1e-280  # far above where doubles lose digits


def members(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def cells(bits: int, sizes: Sequence[int]) -> int:
    return math.prod(sizes[a] for a in members(bits))


def triangulated(domain: Any, cliques: Sequence[Clique]) -> tuple[list[int], list[int]]:
    """The greedy order of elimination, smallest table first, and the largest cliques
    that it leaves.
    """
    place = {a: n for n, a in enumerate(domain.attrs)}
    sizes = [int(size) for size in domain.shape]
    near = [0] * len(sizes)
    for clique in cliques:
        bits = sum(1 << place[a] for a in clique)
        for a in clique:
            near[place[a]] |= bits
    cost = [cells(bits, sizes) for bits in near]
    queue = [(size, a) for a, size in enumerate(cost)]
    heapq.heapify(queue)
    left = set(range(len(sizes)))
    order = []
    found = []
    while left:
        size, a = heapq.heappop(queue)
        if a not in left or size != cost[a]:
            continue
        left.remove(a)
        order.append(a)
        bits = near[a] | 1 << a
        found.append(bits)
        for b in members(bits & ~(1 << a)):
            joined = (near[b] | bits) & ~(1 << a)
            if joined != near[b]:
                near[b], cost[b] = joined, cells(joined, sizes)
                heapq.heappush(queue, (cost[b], b))
    # A later clique may lie within an earlier one, and not the other way round: the
    # earlier has its own column more.
    return order, [
        bits
        for n, bits in enumerate(found)
        if not any(bits & ~other == 0 for other in found[:n])
    ]


def spanned(cliques: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Edges (of numbers) of a heaviest spanning tree by shared columns, which is a
    junction tree.

    Each clique hangs on the earliest that is as good: ties are many, and a shallow tree
    has shorter ways.
    """
    left = {
        n: ((cliques[0] & bits).bit_count(), 0) for n, bits in enumerate(cliques) if n
    }
    while left:
        near = max(left, key=lambda n: left[n][0])
        yield left.pop(near)[1], near
        for n, (shared, _) in left.items():
            now = (cliques[near] & cliques[n]).bit_count()
            if now > shared:
                left[n] = now, near


class Homes:
    """Which cliques have a column; the smallest that has all of some."""

    def __init__(self, domain: Any, cliques: Sequence[Clique]) -> None:
        self.of: dict[str, list[tuple[Clique, frozenset[str]]]] = {
            a: [] for a in domain.attrs
        }
        for clique in sorted(cliques, key=domain.size):
            own = frozenset(clique)
            for a in clique:
                self.of[a].append((clique, own))

    def find(self, attrs: Sequence[str]) -> Clique | None:
        wanted = set(attrs)
        rarest = min((self.of[a] for a in attrs), key=len)
        return next((clique for clique, own in rarest if wanted <= own), None)


class Tree:
    """A model's junction tree from its largest clique on, laid out over one vector of
    all cliques' cells.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.domain = model.domain
        self.cliques = list(model.cliques)
        self.bounds = np.cumsum(
            [0, *(int(self.domain.size(clique)) for clique in self.cliques)]
        )
        self.number = {clique: number for number, clique in enumerate(self.cliques)}
        # the largest one is summed once, towards all others
        root = max(self.cliques, key=self.domain.size)
        down = [(root, near) for near in model.neighbors[root]]
        for i, j in down:  # grows while it is read
            down += [(j, near) for near in model.neighbors[j] if near != i]
        self.down = [(i, j, self.domain.canonical(set(i) & set(j))) for i, j in down]
        self.root = root

    def places(self, clique: Clique, asked: Clique) -> Places:
        """For each cell of a clique its place in the table of some of its columns."""
        shape = [int(self.domain[a]) for a in clique]
        place = np.zeros([1] * len(clique), np.int32)
        for a in asked:
            axis = clique.index(a)
            level = np.arange(shape[axis], dtype=np.int32)
            place = place * np.int32(shape[axis]) + level.reshape(
                [-1, *[1] * (len(shape) - 1 - axis)]
            )
        return np.broadcast_to(place, shape).ravel()

    def views(self, vector: Floats) -> list[Floats]:
        """Each clique's part of a vector."""
        return [
            vector[start:end] for start, end in itertools.pairwise(self.bounds.tolist())
        ]

    def vector(self, factors: Any) -> Floats:
        return np.concatenate(
            [factors[clique].values.ravel() for clique in self.cliques]
        )


class Propagation:
    """Potentials to marginals: sums towards the root, and back."""

    def __init__(self, tree: Tree) -> None:
        self.bounds = tree.bounds
        self.log_total = math.log(tree.model.total)
        ends = [(tree.number[i], tree.number[j]) for i, j, _ in tree.down]
        self.edges = np.array(ends, np.int64).reshape(-1, 2)
        sizes = [int(tree.domain.size(shared)) for *_, shared in tree.down]
        self.said = np.cumsum([0, *sizes])  # where each edge's message is kept
        above = [tree.places(i, shared) for i, _, shared in tree.down]
        below = [tree.places(j, shared) for _, j, shared in tree.down]
        self.starts = np.array([[0, *map(len, above)], [0, *map(len, below)]]).T.cumsum(
            0
        )
        empty = np.zeros(0, np.int32)
        self.above, self.below = (
            np.concatenate([empty, *parts]) for parts in (above, below)
        )

    def marginals(self, potentials: Floats) -> Floats:
        """Every clique's table of expected counts."""
        beliefs = potentials.copy()
        _propagate(
            beliefs,
            self.bounds,
            self.edges,
            self.said,
            self.above,
            self.below,
            self.starts,
            self.log_total,
        )
        return beliefs


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _powers(beliefs, powers, start, end):  # type: ignore[no-untyped-def]
    top = beliefs[start:end].max()
    for n in range(start, end):
        powers[n] = math.exp(beliefs[n] - top)
    return top


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _log_sums(beliefs, powers, top, start, end, places, sums):  # type: ignore[no-untyped-def]
    """Logarithms of sums of e^beliefs by place; where one is too small beside the
    largest, from the beliefs again.
    """
    sums[:] = 0
    for n in range(start, end):
        sums[places[n - start]] += powers[n]
    if sums.min() > _LEAST:
        for s in range(len(sums)):
            sums[s] = math.log(sums[s]) + top
        return
    tops = np.full(len(sums), -np.inf)
    for n in range(start, end):
        tops[places[n - start]] = max(tops[places[n - start]], beliefs[n])
    sums[:] = 0
    for n in range(start, end):
        sums[places[n - start]] += math.exp(beliefs[n] - tops[places[n - start]])
    for s in range(len(sums)):
        sums[s] = math.log(sums[s]) + tops[s]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _propagate(beliefs, bounds, edges, said, above, below, starts, log_total):  # type: ignore[no-untyped-def]
    powers = np.empty_like(beliefs)
    tops = np.full(len(bounds), np.nan)
    heard = np.empty(said[-1])
    for e in range(len(edges) - 1, -1, -1):  # towards the root
        i, j = edges[e]
        start = bounds[j]
        end = bounds[j + 1]
        sums = heard[said[e] : said[e + 1]]
        top = _powers(beliefs, powers, start, end)
        _log_sums(
            beliefs,
            powers,
            top,
            start,
            end,
            below[starts[e, 1] : starts[e + 1, 1]],
            sums,
        )
        places = above[starts[e, 0] : starts[e + 1, 0]]
        for n in range(len(places)):
            beliefs[bounds[i] + n] += sums[places[n]]
    for e in range(len(edges)):
        i, j = edges[e]
        start = bounds[i]
        end = bounds[i + 1]
        sums = np.empty(said[e + 1] - said[e])
        if math.isnan(tops[i]):
            tops[i] = _powers(beliefs, powers, start, end)
        _log_sums(
            beliefs,
            powers,
            tops[i],
            start,
            end,
            above[starts[e, 0] : starts[e + 1, 0]],
            sums,
        )
        # What j said is a function of what they share: taken away after the sum.
        sums -= heard[said[e] : said[e + 1]]
        places = below[starts[e, 1] : starts[e + 1, 1]]
        for n in range(len(places)):
            beliefs[bounds[j] + n] += sums[places[n]]
    top = _powers(beliefs, powers, 0, bounds[1])
    shift = log_total - top - math.log(powers[: bounds[1]].sum())
    for n in range(len(beliefs)):
        beliefs[n] = math.exp(beliefs[n] + shift)


class Answers:
    """Measurements of a model's marginals, side by side: half their weighted squared
    distance, and its slope.
    """

    def __init__(self, tree: Tree, groups: Any) -> None:
        firsts = []
        places = []
        counts = []
        shares = []
        weights = []
        for number, clique in enumerate(tree.cliques):
            for query, answer, noise, asked in groups[clique]:
                firsts.append(tree.bounds[number])
                places.append(tree.places(clique, tuple(asked)))
                counts.append(np.asarray(answer, float).ravel())
                shares.append(diagonal(query))
                weights.append(np.full(answer.size, 1 / noise))
        self.firsts = np.array(firsts)
        self.places, self.counts, self.shares, self.weights = map(
            np.concatenate, (places, counts, shares, weights)
        )
        self.starts, self.ends = (
            np.cumsum([0, *map(len, parts)]) for parts in (places, counts)
        )

    def loss(self, marginals: Floats) -> tuple[float, Floats]:
        found = np.zeros(len(self.counts))
        slope = np.zeros_like(marginals)
        _read(marginals, found, self.firsts, self.places, self.starts, self.ends)
        off = self.weights * (self.shares * found - self.counts)
        loss = 0.5 * float(off @ off)
        off *= self.weights * self.shares
        _spread(slope, off, self.firsts, self.places, self.starts, self.ends)
        return loss, slope


def diagonal(query: Any) -> Floats:
    """Of a measurement's matrix, which is diagonal here: of ones if it does not say."""
    return query.diagonal() if hasattr(query, "diagonal") else np.ones(query.shape[0])


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _read(marginals, found, firsts, places, starts, ends):  # type: ignore[no-untyped-def]
    for m in range(len(firsts)):
        for n in range(starts[m], starts[m + 1]):
            found[ends[m] + places[n]] += marginals[firsts[m] + n - starts[m]]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _spread(slope, off, firsts, places, starts, ends):  # type: ignore[no-untyped-def]
    for m in range(len(firsts)):
        for n in range(starts[m], starts[m + 1]):
            slope[firsts[m] + n - starts[m]] += off[ends[m] + places[n]]


class Pairs:
    """All tables of two columns of a model, in one matrix of (column, level) by
    (column, level).

    Up the tree: what lies below a clique is told to it as P(level, cells of what they
    share), and all pairs that meet there for the first time are written down. A column
    belongs to the clique nearest the root that has it. Lines of the matrix are in the
    order in which columns are met, so that whatever lies below a clique is a range of
    them.
    """

    def __init__(self, tree: Tree, marginals: Any) -> None:
        self.tree = tree
        self.domain = tree.domain
        self.marginals = marginals
        self.below: dict[Clique, list[tuple[Clique, Clique]]] = {
            clique: [] for clique in tree.cliques
        }
        self.shared: dict[Clique, Clique] = {tree.root: ()}
        for i, j, shared in tree.down:
            self.below[i].append((shared, j))
            self.shared[j] = shared
        width = sum(int(size) for size in self.domain.shape)
        self.met = 0
        self.start = {}
        self.matrix = np.zeros((width, width))
        told: dict[Clique, tuple[int, Floats]] = {}
        for clique in self._upwards():
            told[clique] = self._meet(
                clique, [(s, *told.pop(j)) for s, j in self.below[clique]]
            )
        self.matrix = np.triu(self.matrix) + np.triu(self.matrix, 1).T

    def _upwards(self) -> Iterator[Clique]:
        """Each clique after all below it, which are together; those that share the same
        with it are, too.
        """
        waiting = [self.tree.root]
        order = []
        while waiting:
            clique = waiting.pop()
            order.append(clique)
            self.below[clique].sort()
            waiting += [j for _, j in self.below[clique]]
        return reversed(order)

    def _meet(
        self, clique: Clique, heard: list[tuple[Clique, int, Floats]]
    ) -> tuple[int, Floats]:
        """From what was heard (what is shared, first line, P(level, shared)) to what is
        told upwards.
        """
        inside = Inside(self, clique)
        first = min([self.met, *(start for _, start, _ in heard)])
        groups: list[tuple[Clique, int, Floats]] = []
        for shared, start, table in heard:
            end = start + len(table)
            given = table / inside.chance(shared)
            for other, begin, rows in groups:
                self.matrix[begin : begin + len(rows), start:end] = (
                    inside.onward(rows, other, shared) @ given.T
                )
            if groups and groups[-1][0] == shared:
                _, begin, rows = groups.pop()
                groups.append((shared, begin, np.vstack([rows, table])))
            else:
                groups.append((shared, start, table))
        up = self.shared[clique]
        new = tuple(a for a in clique if a not in up)
        own = inside.levels(new, up)
        start = self.met
        for a in new:
            self.start[a] = self.met
            self.met += int(self.domain[a])
        self.matrix[start : self.met, start : self.met] = inside.gram(new)
        for shared, begin, rows in groups:
            tables = inside.levels(new, shared) / inside.chance(shared)
            self.matrix[begin : begin + len(rows), start : self.met] = rows @ tables.T
        return first, np.vstack(
            [*(inside.onward(rows, shared, up) for shared, _, rows in groups), own]
        )

    def table(self, a: str, b: str) -> Floats:
        starts = (self.start[a], self.start[b])
        sizes = (int(self.domain[a]), int(self.domain[b]))
        return self.matrix[
            starts[0] : starts[0] + sizes[0], starts[1] : starts[1] + sizes[1]
        ]


class Inside:
    """A clique's own tables, each counted once."""

    def __init__(self, pairs: Pairs, clique: Clique) -> None:
        self.tree = pairs.tree
        self.clique = clique
        self.domain = pairs.domain
        self.cells = pairs.marginals[clique].values.ravel()
        self.place: dict[Clique, Places] = {}
        self.kept: dict[tuple[Clique, Clique], Floats] = {}

    def joint(self, a: Clique, b: Clique) -> Floats:
        """The table of some columns by others (none of them among the first)."""
        if (a, b) not in self.kept:
            sizes = (int(self.domain.size(a)), int(self.domain.size(b)))
            places = self._places(a) * sizes[1] + self._places(b)
            self.kept[a, b] = np.bincount(
                places, self.cells, sizes[0] * sizes[1]
            ).reshape(sizes)
        return self.kept[a, b]

    def _places(self, asked: Clique) -> Places:
        if asked not in self.place:
            self.place[asked] = self.tree.places(self.clique, asked)
        return self.place[asked]

    def chance(self, shared: Clique) -> Floats:
        """The table of some columns; one where it is nothing, since it divides nothing
        there.
        """
        counts = self.joint(shared, ())[:, 0]
        return np.where(counts > 0, counts, 1)

    def levels(self, columns: Clique, shared: Clique) -> Floats:
        """(levels of each of the columns, cells of what is shared)."""
        size = int(self.domain.size(shared))
        rows = []
        for a in columns:
            places = self._places((a,)) * np.int32(size) + self._places(shared)
            count = int(self.domain[a])
            rows.append(
                np.bincount(places, self.cells, count * size).reshape(count, size)
            )
        return np.vstack(rows) if rows else np.zeros((0, size))

    def gram(self, columns: Clique) -> Floats:
        return (
            np.block([[self.levels((a,), (b,)) for b in columns] for a in columns])
            if columns
            else np.zeros((0, 0))
        )

    def onward(self, rows: Floats, known: Clique, wanted: Clique) -> Floats:
        """From P(level, known) to P(level, wanted)."""
        if known == wanted:
            return rows
        domain = self.domain
        both = tuple(a for a in known if a in wanted)
        gone, new = (
            tuple(a for a in columns if a not in both) for columns in (known, wanted)
        )
        joint = self.joint((*both, *gone), new).reshape(
            domain.size(both), domain.size(gone), -1
        )
        given = joint / self.chance((*both, *gone)).reshape(*joint.shape[:2], 1)
        table = rows.reshape(len(rows), *(int(domain[a]) for a in known))
        table = table.transpose([0, *(1 + known.index(a) for a in (*both, *gone))])
        table = np.moveaxis(table.reshape(len(rows), *joint.shape[:2]), 0, 1)
        made = np.moveaxis(table @ given, 1, 0)  # (level, both, new)
        made = made.reshape(len(rows), *(int(domain[a]) for a in (*both, *new)))
        made = made.transpose([0, *(1 + (*both, *new).index(a) for a in wanted)])
        return made.reshape(len(rows), -1)

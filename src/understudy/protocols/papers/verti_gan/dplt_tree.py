"""The pieces of a latent tree over binary attributes, and its releases: groups, which a
holder chooses, and tables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, combinations_with_replacement
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csgraph
from scipy.special import xlogy
from torch import Tensor

from understudy.data.encoding.codec import Codes
from understudy.data.schema import Block
from understudy.models.tables.inversion import BayesNet, Coded
from understudy.privacy.noise import Exponential, Rng, rounded_up
from understudy.privacy.secure.counts import gram_matrix
from understudy.privacy.secure.ring import Bits
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import (
    Choice,
    Multiplied,
    Product,
    Shares,
    block_name,
)

Edge = tuple[int, int]
# scores and their sensitivity → the place of the chosen one
Choose = Callable[[Tensor, int], int]
Array = NDArray[np.float64]
Groups = list[list[int]]  # of a holder's attributes; the first of each is at its centre


def digits(levels: int) -> int:
    """How many binary attributes a column of so many levels becomes."""
    return (levels - 1).bit_length()


def to_bits(codes: Codes, sizes: Sequence[int]) -> Bits:
    """Levels in binary, the highest digit first, column after column: (rows, all
    digits).
    """
    columns = [
        (codes[:, [column]] >> np.arange(digits(size))[::-1]) & 1
        for column, size in enumerate(sizes)
    ]
    return np.concatenate(columns, axis=1).astype(np.bool_)


def as_indicators(bits: Bits) -> Bits:
    """Each bit as a pair (is 0, is 1), side by side: (rows, 2 · bits)."""
    return np.stack([~bits, bits], -1).reshape(len(bits), 2 * bits.shape[1])


def association(bits: Bits) -> Tensor:
    """⌊n·|cov|⌋ of every two bits, from n₁₁, n₁ and m₁: int64, (bits, bits), 0 on the
    diagonal.
    Guarantee: one person moves each by at most 1 (add/remove). Write f = (n₁₁n₀₀ −
    n₁₀n₀₁)/n. As n₁₁ grows, f changes at the rate (n₀₀ − f)/n = (1 − p)(1 − q) with p,
    q the shares of ones; at n₀₀ at pq, at n₁₀ at −(1 − p)q, at n₀₁ at −p(1 − q). All
    these lie within [−1, 1], so f moves by at most 1 where a cell moves by 1; so does
    |f|; and two numbers at most 1 apart have whole parts at most 1 apart.
    Edges: nobody → 0, as for one person.
    """
    n = len(bits)
    both_set = _co_occurrences(bits)[:, 1, :, 1]
    ones = both_set.diagonal()
    scores = np.abs(both_set * n - np.outer(ones, ones)) // max(1, n)
    np.fill_diagonal(scores, 0)
    return torch.from_numpy(scores)


def group(scores: Tensor, size: int, choose: Choose) -> list[list[int]]:
    """All bits in groups of `size`, the last perhaps smaller; the first of each group
    is its latent attribute. A group's first is chosen by the sum of its size − 1
    highest scores with bits that are left, then its others by their score with it.
    Scores of sensitivity 1 make such a sum one of sensitivity size − 1.
    """
    remaining = list(range(len(scores)))
    groups = list[list[int]]()
    while remaining:
        n_others = min(size, len(remaining)) - 1
        candidate_scores = scores[remaining][:, remaining].topk(n_others).values.sum(1)
        members = [remaining.pop(choose(candidate_scores, n_others) if n_others else 0)]
        while len(members) < size and remaining:
            # Where all that is left goes into the group there is no choice to make.
            members.append(
                remaining.pop(
                    choose(scores[members[0], remaining], 1)
                    if len(remaining) > size - len(members)
                    else 0
                )
            )
        groups.append(members)
    return groups


def index_tree(scores: Tensor, choose: Choose) -> list[Edge]:
    """A spanning tree of latent attributes with these scores (Prim), from the first on;
    each edge is a choice.
    """
    joined = [0]
    remaining = list(range(1, len(scores)))
    edges = list[Edge]()
    while remaining:
        candidate_scores = scores[joined][:, remaining].flatten()
        choice = choose(candidate_scores, 1) if len(candidate_scores) > 1 else 0
        joined_node = joined[choice // len(remaining)]
        new_node = remaining[choice % len(remaining)]
        edges.append((min(joined_node, new_node), max(joined_node, new_node)))
        joined.append(new_node)
        remaining.remove(new_node)
    return edges


def choices(bits: int, size: int, *, index: bool) -> int:
    """How often `group`, and `index_tree` with `index`, choose among several: this
    depends on public sizes alone.
    """
    count = 0
    width = -(-bits // size)

    def choose(scores: Tensor, sensitivity: int) -> int:
        nonlocal count
        count += 1
        return 0

    group(torch.zeros(bits, bits, dtype=torch.int64), size, choose)
    if index:
        index_tree(torch.zeros(width, width, dtype=torch.int64), choose)
    return count


def information(tables: Array) -> Array:
    """Mutual information, in nats, of noisy tables of counts: (…, 2, 2) → (…). A
    negative count is taken as 0.
    """
    counts = np.maximum(tables, 0)
    share = counts / np.maximum(counts.sum((-2, -1), keepdims=True), 1)
    independent = share.sum(-1, keepdims=True) * share.sum(-2, keepdims=True)
    return np.asarray((xlogy(share, share) - xlogy(share, independent)).sum((-2, -1)))


def spanning_tree(weights: Array) -> list[Edge]:
    """A maximum spanning tree; −∞ is no edge. Edges from the first node outwards:
    (known, new).
    """
    # A weight of 0 is an edge, too, and to scipy it is none: no weight is negative, so
    # below −1 there is none.
    heavy = csgraph.minimum_spanning_tree(
        csgraph.csgraph_from_dense(-1 - weights, null_value=np.inf)
    )
    order, origin = csgraph.breadth_first_order(heavy, 0, directed=False)
    return [(int(origin[new]), int(new)) for new in order[1:]]


def is_tree(edges: Sequence[Edge], nodes: int) -> bool:
    """Whether these edges, each from a node that was reached to a new one, beginning at
    0, reach every node once.
    """
    reached = {0}
    for parent, child in edges:
        if parent not in reached or child in reached or not 0 <= child < nodes:
            return False
        reached.add(child)
    return len(reached) == nodes


def build_network(
    sizes: Sequence[int], tables: Mapping[Edge, Array], root: int
) -> BayesNet:
    """The tree with these noisy tables of counts, by (parent, child): rows are the
    parent's values.
    """
    starts = list(accumulate(map(digits, sizes), initial=0))
    columns = [
        Coded(size, tuple(range(start, start + digits(size))))
        for size, start in zip(sizes, starts, strict=False)
    ]
    parents: list[tuple[int, ...]] = [()] * starts[-1]
    for parent, child in tables:
        parents[child] = (parent,)
    net = BayesNet([2] * starts[-1], parents, columns)
    root_tables = [
        table if a == root else table.T
        for (a, b), table in tables.items()
        if root in (a, b)
    ]
    net.table(root).copy_(
        torch.from_numpy(conditional_counts(np.sum(root_tables, axis=0).sum(1)[None]))
    )
    for (_, child), table in tables.items():
        net.table(child).copy_(torch.from_numpy(conditional_counts(table)))
    return net


def conditional_counts(table: Array) -> Array:
    """Noisy counts as odds, row by row: (rows, 2). Where a row has none above 0, those
    of all rows, or even ones.
    """
    counts = np.maximum(table, 0)
    everyone = np.maximum(table.sum(0), 0)
    fallback = everyone if everyone.sum() > 0 else np.ones_like(everyone)
    return np.where(counts.sum(1, keepdims=True) > 0, counts, fallback)


# What is released


@dataclass(frozen=True)
class AttributeBits:
    """A holder's group, and the binary attributes of the shared people, in the common
    order: (people, bits).
    """

    group: int
    bits: Callable[[], Bits]


@dataclass(frozen=True)
class Grouping(Choice[AttributeBits]):
    """Step 1: each holder groups its attributes, and in DPLT+ chooses its index, by the
    exponential mechanism.
    """

    size: int
    plus: bool

    def choose(
        self, rows: AttributeBits, noise: float, rng: Rng
    ) -> dict[str, list[list[int]]]:
        """`association` moves by 1 at most; a choice is at ε of 1/noise."""
        scores = association(rows.bits())
        choose = partial(_choose, noise, rng)
        groups = group(scores, self.size, choose)
        first = [members[0] for members in groups]
        index = index_tree(scores[first][:, first], choose) if self.plus else []
        return {"groups": groups, "index": [list(edge) for edge in index]}


def _choose(noise: float, rng: Rng, scores: Tensor, sensitivity: int) -> int:
    return (
        Exponential(rounded_up(noise), sensitivity)(scores, rng)
        if noise
        else int(scores.argmax())
    )


@dataclass(frozen=True, eq=False)
class LatentPairTables(Multiplied[AttributeBits]):
    """Two-way tables of pairs of latent attributes, by the two holders that they are
    of.
    Guarantee: a person is in one cell of each table, so that a block of n tables moves
    by n in L1.
    """

    groups: Mapping[str, Groups]
    pairs: Mapping[tuple[str, str], list[Edge]]  # of latent attributes
    along_tree: bool

    @cached_property
    def names(self) -> list[str]:
        return list(self.groups)

    @cached_property
    def latent(self) -> dict[str, list[int]]:
        return {
            name: [members[0] for members in groups]
            for name, groups in self.groups.items()
        }

    def _leaves(self, name: str) -> list[Edge]:
        return leaf_edges(self.groups[name]) if self.along_tree else []

    def _local_pairs(self, name: str) -> list[Edge]:
        latent = self.latent[name]
        return [
            (latent[a], latent[b]) for a, b in self.pairs[name, name]
        ] + self._leaves(name)

    def _block(self, first: str, second: str) -> Block:
        return self.names.index(first), self.names.index(second)

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        counts = {
            self._block(first, second): len(
                self._local_pairs(first) if first == second else edges
            )
            for (first, second), edges in self.pairs.items()
        }
        return {
            block_name(groups): BlockSpec(groups, (tables, 2, 2), float(tables))
            for groups, tables in counts.items()
            if tables
        }

    @property
    def product(self) -> Product | None:
        return (
            None
            if self.along_tree
            else Product.of_all([2 * len(latent) for latent in self.latent.values()])
        )

    def count(self, rows: AttributeBits) -> dict[str, Tensor]:
        local_pairs = self._local_pairs(self.names[rows.group])
        if not local_pairs:
            return {}
        return {
            block_name((rows.group, rows.group)): pair_tables(rows.bits(), local_pairs)
        }

    def vectors(self, rows: AttributeBits, start: int, stop: int) -> NDArray[Any]:
        return as_indicators(
            rows.bits()[start:stop, self.latent[self.names[rows.group]]]
        )

    def across(self, shares: Shares) -> dict[str, Tensor]:
        tables = {}
        for (g, h), share in shares.get("pairs", {}).items():
            edges = self.pairs[self.names[g], self.names[h]]
            if edges:
                first, second = map(torch.from_numpy, _edge_columns(edges))
                cells = share.reshape(share.shape[0] // 2, 2, share.shape[1] // 2, 2)
                tables[block_name((g, h))] = cells[first, :, second]
        return tables

    def read(
        self, sums: Mapping[str, Tensor], noise: Mapping[str, float]
    ) -> dict[Any, Array]:
        """By the two latent attributes, numbered over all holders, the first has the
        rows; leaves by (holder, edge).
        """
        starts = dict(
            zip(
                self.names,
                accumulate(map(len, self.latent.values()), initial=0),
                strict=False,
            )
        )
        tables: dict[Any, Array] = {}
        for (first, second), edges in self.pairs.items():
            released = sums.get(block_name(self._block(first, second)))
            keys: list[Any] = [
                (starts[first] + a, starts[second] + b) for a, b in edges
            ]
            if first == second:
                keys += [(first, leaf) for leaf in self._leaves(first)]
            if released is not None:
                tables |= dict(zip(keys, released.double().numpy(), strict=True))
        return tables


def pair_tables(bits: Bits, pairs: Sequence[Edge]) -> Tensor:
    """The two-way tables of these pairs of binary attributes: (pairs, 2, 2)."""
    first, second = _edge_columns(pairs)
    return torch.from_numpy(_co_occurrences(bits)[first, :, second])


def _co_occurrences(bits: Bits) -> NDArray[np.int64]:
    """How often each value of one bit meets each of another: (bits, 2, bits, 2)."""
    width = bits.shape[1]
    levels: Any = bits  # 0 and 1
    return gram_matrix(levels, [2] * width).numpy().reshape(width, 2, width, 2)


def _edge_columns(pairs: Sequence[Edge]) -> NDArray[np.int64]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def leaf_edges(groups: Groups) -> list[Edge]:
    return [(members[0], leaf) for members in groups for leaf in members[1:]]


def split_edges(
    edges: Sequence[Edge], widths: Mapping[str, int]
) -> dict[tuple[str, str], list[Edge]]:
    """Edges of latent attributes by their two parties, in order; attributes are then
    counted within their party.
    """
    owners = [
        (party, first_index)
        for party, width in widths.items()
        for first_index in range(width)
    ]
    parts = {two: list[Edge]() for two in combinations_with_replacement(widths, 2)}
    for edge in edges:
        (first, first_index), (second, second_index) = (
            owners[node] for node in sorted(edge)
        )
        parts[first, second].append((first_index, second_index))
    return parts

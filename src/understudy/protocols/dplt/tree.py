"""The pieces of a latent tree over binary attributes: coding, grouping, scores, spanning tree, and the network.

See `dplt` for how they come together and for what each costs. Nothing here adds noise.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codes
from understudy.models.tables.bayes import BayesNet, Coded
from understudy.privacy.secure.ring import Bits

Edge = tuple[int, int]
Choose = Callable[[Tensor, int], int]  # scores and their sensitivity → the place of the chosen one
Array = NDArray[np.float64]


def digits(levels: int) -> int:
    """How many binary attributes a column of so many levels becomes."""
    return (levels - 1).bit_length()


def to_bits(codes: Codes, sizes: Sequence[int]) -> Bits:
    """Levels in binary, the highest digit first, column after column: (rows, all digits)."""
    columns = [(codes[:, [column]] >> np.arange(digits(size))[::-1]) & 1 for column, size in enumerate(sizes)]
    return np.concatenate(columns, axis=1).astype(np.bool_)


def both(bits: Bits) -> Bits:
    """Each bit as a pair (is 0, is 1), side by side: (rows, 2 · bits)."""
    return np.stack([~bits, bits], -1).reshape(len(bits), 2 * bits.shape[1])


def association(bits: Bits) -> Tensor:
    """⌊n·|cov|⌋ of every two bits, from n₁₁, n₁ and m₁: int64, (bits, bits), 0 on the diagonal.

    Guarantee: one person moves each by at most 1 (add/remove). Write f = (n₁₁n₀₀ − n₁₀n₀₁)/n. As n₁₁ grows, f
    changes at the rate (n₀₀ − f)/n = (1 − p)(1 − q) with p, q the shares of ones; at n₀₀ at pq, at n₁₀ at −(1 − p)q,
    at n₀₁ at −p(1 − q). All these lie within [−1, 1], so f moves by at most 1 where a cell moves by 1; so does |f|;
    and two numbers at most 1 apart have whole parts at most 1 apart.
    Edges: nobody → 0, as for one person.
    """
    counted = bits.astype(np.float64)  # counts stay below 2⁵³
    n, ones, together = len(bits), bits.sum(0, dtype=np.int64), (counted.T @ counted).astype(np.int64)
    scores = np.abs(together * n - np.outer(ones, ones)) // max(1, n)
    np.fill_diagonal(scores, 0)
    return torch.from_numpy(scores)


def latents(bits: int, size: int) -> int:
    """How many groups so many bits make."""
    return -(-bits // size)


def group(scores: Tensor, size: int, choose: Choose) -> list[list[int]]:
    """All bits in groups of `size`, the last perhaps smaller; the first of each group is its latent attribute.

    A group's first is chosen by the sum of its size − 1 highest scores with bits that are left, then its others by
    their score with it. Scores of sensitivity 1 make such a sum one of sensitivity size − 1.
    """
    left, groups = list(range(len(scores))), list[list[int]]()
    while left:
        others = min(size, len(left)) - 1
        among = scores[left][:, left].topk(others).values.sum(1)
        new = [left.pop(choose(among, others) if others else 0)]
        while len(new) < size and left:
            # Where all that is left goes into the group there is no choice to make.
            new.append(left.pop(choose(scores[new[0], left], 1) if len(left) > size - len(new) else 0))
        groups.append(new)
    return groups


def index_tree(scores: Tensor, choose: Choose) -> list[Edge]:
    """A spanning tree of latent attributes with these scores (Prim), from the first on; each edge is a choice."""
    joined, left, edges = [0], list(range(1, len(scores))), list[Edge]()
    while left:
        among = scores[joined][:, left].flatten()
        place = choose(among, 1) if len(among) > 1 else 0
        one, other = joined[place // len(left)], left[place % len(left)]
        edges.append((min(one, other), max(one, other)))
        joined.append(other)
        left.remove(other)
    return edges


def choices(bits: int, size: int, *, index: bool) -> int:
    """How often `group`, and `index_tree` with `index`, choose among several: this depends on public sizes alone."""
    count, width = 0, latents(bits, size)

    def choose(scores: Tensor, sensitivity: int) -> int:
        nonlocal count
        count += 1
        return 0

    group(torch.zeros(bits, bits, dtype=torch.int64), size, choose)
    if index:
        index_tree(torch.zeros(width, width, dtype=torch.int64), choose)
    return count


def information(tables: Array) -> Array:
    """Mutual information, in nats, of noisy tables of counts: (…, 2, 2) → (…). A negative count is taken as 0."""
    counts = np.maximum(tables, 0)
    share = counts / np.maximum(counts.sum((-2, -1), keepdims=True), 1)
    apart = share.sum(-1, keepdims=True) * share.sum(-2, keepdims=True)
    log = np.log(share, out=np.zeros_like(share), where=share > 0)
    log -= np.log(apart, out=np.zeros_like(share), where=apart > 0)
    return np.asarray((share * log).sum((-2, -1)))


def spanning_tree(weights: Array) -> list[Edge]:
    """A maximum spanning tree (Prim); −∞ is no edge. Edges from the first node outwards: (known, new)."""
    edges, reach = list[Edge](), weights[0].copy()
    origin, inside = np.zeros(len(weights), dtype=np.int64), np.zeros(len(weights), dtype=np.bool_)
    inside[0] = True
    for _ in range(len(weights) - 1):
        new = int(np.where(inside, -np.inf, reach).argmax())
        edges.append((int(origin[new]), new))
        inside[new] = True
        closer = weights[new] > reach
        reach, origin = np.where(closer, weights[new], reach), np.where(closer, new, origin)
    return edges


def is_tree(edges: Sequence[Edge], nodes: int) -> bool:
    """Whether these edges, each from a node that was reached to a new one, beginning at 0, reach every node once."""
    reached = {0}
    for known, new in edges:
        if known not in reached or new in reached or not 0 <= new < nodes:
            return False
        reached.add(new)
    return len(reached) == nodes


def leaves_of(groups: Sequence[Sequence[int]]) -> list[Edge]:
    """Each leaf after its group's latent attribute."""
    return [(members[0], leaf) for members in groups for leaf in members[1:]]


def split_edges(edges: Sequence[Edge], widths: Mapping[str, int]) -> dict[tuple[str, str], list[Edge]]:
    """Edges of latent attributes, numbered over all parties, by the two parties that they are of, in their order.

    Attributes are then counted within their party, and that of the party that comes first stands first. Every two
    parties are there, a party with itself too, and keep the order of the edges.
    """
    whose = [(party, place) for party, width in widths.items() for place in range(width)]
    names = list(widths)
    parts: dict[tuple[str, str], list[Edge]] = {
        (one, other): [] for i, one in enumerate(names) for other in names[i:]
    }
    for edge in edges:
        (one, place), (other, there) = (whose[node] for node in sorted(edge))
        parts[one, other].append((place, there))
    return parts


def network_of(sizes: Sequence[int], tables: Mapping[Edge, Array], root: int) -> BayesNet:
    """The tree with these noisy tables of counts, by (parent, child): rows are the parent's values."""
    starts = list(accumulate(map(digits, sizes), initial=0))
    columns = [
        Coded(size, tuple(range(start, start + digits(size))))
        for size, start in zip(sizes, starts, strict=False)
    ]
    parents: list[tuple[int, ...]] = [()] * starts[-1]
    for parent, child in tables:
        parents[child] = (parent,)
    net = BayesNet([2] * starts[-1], parents, columns)
    around = [
        table if parent == root else table.T
        for (parent, child), table in tables.items()
        if root in (parent, child)
    ]
    net.table(root).copy_(torch.from_numpy(odds(np.sum(around, axis=0).sum(1)[None])))
    for (_, child), table in tables.items():
        net.table(child).copy_(torch.from_numpy(odds(table)))
    return net


def odds(table: Array) -> Array:
    """Noisy counts as odds, row by row: (rows, 2). Where a row has none above 0, those of all rows, or even ones."""
    counts = np.maximum(table, 0)
    everyone = np.maximum(table.sum(0), 0)
    rest = everyone if everyone.sum() > 0 else np.ones_like(everyone)
    return np.where(counts.sum(1, keepdims=True) > 0, counts, rest)

"""What an oracle would choose, merge or believe, by the real rows: the perfect parts of
`reading.py`.
"""

import math
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from borrowed import script
from numpy.typing import NDArray

LABELS = 10  # pairs with the target
Codes = NDArray[np.int64]
Pairs = frozenset[tuple[int, int]]


def everything(columns: int) -> Pairs:
    return frozenset(combinations(range(columns), 2))


def counts(codes: Codes, sizes: list[int]) -> torch.Tensor:
    """The Gram matrix of one-hot rows, on and above the diagonal."""
    found: torch.Tensor = script("joint", "fit").release(codes, sizes, 0.0, 0)
    return found


def information(table: NDArray[np.float64]) -> float:
    """Mutual information of the first axis and the others together, of counts, in nats,
    less its bias.
    """
    flat = table.reshape(len(table), -1)
    flat = flat[flat.sum(1) > 0][:, flat.sum(0) > 0]
    total = flat.sum()
    expected = flat.sum(1, keepdims=True) @ flat.sum(0, keepdims=True) / total
    held = flat > 0
    found = float((flat[held] * np.log(flat[held] / expected[held])).sum() / total)
    return found - (flat.shape[0] - 1) * (flat.shape[1] - 1) / (2 * float(total))


def strongest_pairs(codes: Codes, sizes: list[int], target: int) -> Pairs:
    """A tree of the pairs that tell most of each other, and the ten that tell most of
    the target.
    """
    told = told_by_pairs(codes, sizes)
    with_it = sorted(
        (pair for pair in told if target in pair), key=lambda pair: -told[pair]
    )
    return tree(codes, sizes) | frozenset(with_it[:LABELS])


def told_by_pairs(codes: Codes, sizes: list[int]) -> dict[tuple[int, int], float]:
    gram = counts(codes, sizes).numpy()
    starts = np.cumsum([0, *sizes])
    return {
        (i, j): information(gram[starts[i] : starts[i + 1], starts[j] : starts[j + 1]])
        for i, j in combinations(range(len(sizes)), 2)
    }


def tree(codes: Codes, sizes: list[int]) -> Pairs:
    """The pairs of a tree, or of several, that tell most of each other (Chow and Liu,
    1968).
    """
    part = list(range(len(sizes)))
    kept = set()
    for (i, j), value in sorted(
        told_by_pairs(codes, sizes).items(), key=lambda item: -item[1]
    ):
        if value > 0 and part[i] != part[j]:
            kept.add((i, j))
            old = part[j]
            new = part[i]
            part = [new if p == old else p for p in part]
    return frozenset(kept)


def along_tree(gram: torch.Tensor, sizes: list[int], edges: Pairs) -> torch.Tensor:
    """All pairs, in shares, as a tree with these tables has them; independent where no
    way leads between them.
    """
    starts = np.cumsum([0, *sizes])
    columns = len(sizes)
    block = [slice(starts[j], starts[j + 1]) for j in range(columns)]
    ways = gram.diagonal().clamp(min=1e-9)
    near: dict[int, dict[int, torch.Tensor]] = {j: {} for j in range(columns)}
    for i, j in edges:
        table = gram[block[i], block[j]].clamp(min=1e-9)
        near[i][j] = table / table.sum(1, keepdim=True)
        near[j][i] = table.T / table.T.sum(1, keepdim=True)
    made = torch.outer(ways, ways)
    for i in range(columns):
        known = {i: torch.diag(ways[block[i]])}
        queue = [i]
        for before in queue:
            for j, step in near[before].items():
                if j not in known:
                    known[j] = known[before] @ step
                    queue.append(j)
        for j in known:
            if j != i:
                made[block[i], block[j]] = known[j]
    return made


def strongest_of_three(
    codes: Codes, sizes: list[int], target: int, wanted: int
) -> list[tuple[int, int]]:
    """The pairs of columns that together tell more of the target than both alone, by
    the real rows.
    """
    alone = {
        j: information(table_of(codes, sizes, (target, j)))
        for j in range(len(sizes))
        if j != target
    }
    gain = {
        pair: information(table_of(codes, sizes, (target, *pair)))
        - alone[pair[0]]
        - alone[pair[1]]
        for pair in combinations(alone, 2)
    }
    return sorted(gain, key=lambda pair: -gain[pair])[:wanted]


def table_of(
    codes: Codes, sizes: list[int], columns: tuple[int, ...]
) -> NDArray[np.float64]:
    shape = [sizes[column] for column in columns]
    flat = np.ravel_multi_index([codes[:, column] for column in columns], shape)
    return np.bincount(flat, minlength=math.prod(shape)).reshape(shape).astype(float)


def shrunk(
    gram: torch.Tensor,
    true: torch.Tensor,
    sizes: list[int],
    noise: torch.Tensor,
    spared: int | None = None,
) -> Any:
    """Every pair as near to the truth as a mean of itself and of independent columns
    can be, and how near that is.

    Those with a column that is spared are as they were released.
    """
    starts = np.cumsum([0, *sizes])
    ways = true.diagonal()
    people = float(true.diagonal()[: sizes[0]].sum())
    made = true.clone()
    left = torch.full_like(noise, math.inf)
    for i in range(len(sizes)):
        a = slice(starts[i], starts[i + 1])
        left[a, a] = noise[a, a]
        made[a, a] = gram[a, a]
        for j in range(i + 1, len(sizes)):
            b = slice(starts[j], starts[j + 1])
            if spared in (i, j):
                made[a, b], left[a, b] = gram[a, b], noise[a, b]
                continue
            apart = torch.outer(ways[a], ways[b]) / people
            noisy = gram[a, b] - apart
            truth = true[a, b] - apart
            factor = float(
                ((noisy * truth).sum() / noisy.square().sum().clamp(min=1e-9)).clamp(
                    0, 1
                )
            )
            made[a, b] = apart + factor * noisy
            left[a, b] = max(
                float((made[a, b] - true[a, b]).square().mean()) ** 0.5, 0.5
            )
    return made, left  # read on and above the diagonal


def grouped(
    codes: Codes, size: int, levels: int, named: bool, target: bool
) -> NDArray[np.int64]:
    """The group of each level."""
    if target or size <= levels:
        return np.arange(size)
    often = np.bincount(codes, minlength=size).astype(float)
    if named:
        rank = np.argsort(np.argsort(-often, kind="stable"), kind="stable")
        return np.minimum(rank, levels - 1)
    middle = (often.cumsum() - often / 2) / often.sum()
    return np.unique(
        np.minimum((middle * levels).astype(int), levels - 1), return_inverse=True
    )[1]


def parted(
    coarse: Codes, real: Codes, merged: list[NDArray[np.int64]], seed: int
) -> Codes:
    """Levels within each group as often as real people have them."""
    rng = np.random.default_rng([seed, 40])
    found = np.empty_like(coarse)
    for j, group in enumerate(merged):
        often = np.bincount(real[:, j], minlength=len(group)) + 1e-9
        for g in range(int(group.max()) + 1):
            rows = coarse[:, j] == g
            levels = np.flatnonzero(group == g)
            odds = often[levels] / often[levels].sum()
            found[rows, j] = rng.choice(levels, int(rows.sum()), p=odds)
    return found

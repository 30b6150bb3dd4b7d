"""Which pairs of columns of a wide table are worth a second measurement.

By a mixture that was fitted to a first, very noisy measurement of all pairs: it pools what many pairs say together, and
so tells strong pairs from noise where a single two-way table cannot. A pair's strength is the total variation
distance between its two-way table and the product of its one-way tables.

Pairs that are measured again anyhow are left out of both, and tie their columns.

1. A spanning tree of largest total strength, so that every column is tied to the others (Chow and Liu 1968; McKenna,
   Miklau, Sheldon, JPC 2021, MST, choose by noisy scores likewise).
2. The strongest of the other pairs, until the wanted number is reached.

Guarantee: reads the fitted mixture alone, so the choice is post-processing of the first release.
Edges: a number below that of the tree's pairs → the strongest of the tree; above all that may be chosen → ConfigError.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor

from understudy.ground.check import in_range
from understudy.models.tables.given_rules import Ruled, Tie
from understudy.models.tables.mixture import MixtureOfProducts


def strongest_pairs(
    mixture: MixtureOfProducts, wanted: int, *, besides: Tensor | None = None, ties: Sequence[Tie] = ()
) -> Tensor:
    """The numbers of the columns of each pair, the lower first: (wanted, 2), int64, in rising order.

    `besides` (n, 2): pairs that are not to be chosen. `ties`: rules that the mixture was fitted given.
    """
    strength = pair_strength(mixture, ties).cpu().numpy()
    upper = np.triu(np.ones_like(strength, dtype=bool), 1)
    free = upper.copy()
    if besides is not None:
        known = tuple(besides.numpy().T)
        strength[known], free[known] = 2, False  # more than any distance
    in_range(1, int(free.sum()), wanted=wanted)
    tree = minimum_spanning_tree(np.where(upper, strength.max() + 1 - strength, 0)).toarray() > 0
    order = np.argsort(-(strength + tree * (strength.max() + 1))[free], kind="stable")[:wanted]
    pairs = np.argwhere(free)[np.sort(order)]
    return torch.from_numpy(pairs.astype(np.int64))


def pair_strength(mixture: MixtureOfProducts, ties: Sequence[Tie] = ()) -> Tensor:
    """Total variation distance of every two-way table from independence: (columns, columns)."""
    with torch.no_grad():
        odds = mixture.odds().double()
        gram = Ruled.of(odds, mixture.sizes, [tie.to(odds.device, odds.dtype) for tie in ties]).gram()
    ways = gram.diagonal()
    column = torch.repeat_interleave(torch.tensor(mixture.sizes, device=gram.device))
    apart = (gram - torch.outer(ways, ways)).abs() * (column[:, None] != column)
    member = torch.nn.functional.one_hot(column).double()
    return member.T @ apart @ member / 2

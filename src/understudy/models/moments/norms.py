"""The bound on norms that a release of how long rows are buys: a quantile of them, by what noise and people there are.

Every row adds to the sums of its class at most the bound b, and so the noise on their squared distance is that of
`classes` · `features` numbers of (b · noise)² each. Rows that are longer are pulled in, and the sums move by no more
than what they are longer by, all together; evenly over classes that is excess²/classes. The bound is where both
together are least. Means are shrunk by what in them is noise afterwards, so that noise weighs less than it did:
`SHRUNK`, chosen on USPS, Sine and Energy.

The counts have noise of their own: the excess is taken to be larger than it seems by one deviation. So where few
people or a small share leave them uncertain, the bound stays where it was.

Guarantee: reads released numbers alone.
"""

import torch

from understudy.models.moments.released import CELLS, Released

SHRUNK = 0.3


def bought_norm(lengths: Released, *, numbers: int, classes: int, noise: float) -> float:
    """As a part of the bound that the cells go up to: above 0, at most 1.

    `numbers`: of all classes' sums together; `noise`: the deviation on each, as a part of what a row may add.
    """
    bounds = torch.arange(1, CELLS + 1, dtype=torch.float64) / CELLS
    # (bound, cell): by how much the longest rows of a cell are longer
    over = (bounds - bounds[:, None]).clamp(min=0)
    excess = (over @ lengths["people"]).clamp(min=0) + lengths["people_noise"] * over.square().sum(1).sqrt()
    lost = SHRUNK * numbers * (noise * bounds).square() + excess.square() / classes
    return float(bounds[lost.argmin()])

"""The bound on norms where a holder of images or series buys its own: how long its rows are is released with the means.

The holder counts them, adds noise, and takes the bound from that by the public rule (`models/moments/norms.py`); the
server reads the same from what was released. So nobody has to be told it.
"""

from dataclasses import replace

import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame
from understudy.models.moments.norms import bought_norm
from understudy.models.moments.released import CELLS, SCALE, read_lengths


def pulled_to(frame: Frame, lengths: Tensor, loud: float, sigma: float) -> Frame:
    """The frame with the norm that noisy counts of lengths say; `loud`: the σ on these, `sigma`: on the means."""
    found = read_lengths(lengths, torch.full((CELLS,), loud))
    norm = bought_norm(found, numbers=frame.features, classes=1, noise=sigma / SCALE)
    return replace(frame, norm=frame.norm * norm)


def split(sums: Tensor, bought: bool) -> tuple[Tensor, Tensor]:
    """What the holder released, as counts of lengths, which are none where nothing was bought, and the rest."""
    return (sums[:CELLS], sums[CELLS:]) if bought else (sums[:0], sums)

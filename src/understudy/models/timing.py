"""How fast this machine multiplies matrices, by which fits are forecast."""

import time

import torch

UNIT = 512  # width of the two matrices whose product is the unit of a fit's work


def unit_seconds() -> float:
    """Seconds of a product of two matrices on this machine, whatever else it does
    now.
    """
    one = torch.ones(UNIT, UNIT)
    taken = []
    for _ in range(4):
        begun = time.thread_time()
        _ = one @ one
        taken.append(time.thread_time() - begun)
    return min(taken)

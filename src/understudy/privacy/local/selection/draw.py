"""Exact draws for a whole cohort at once: counts, subsets, and choices inside and outside of each top-k set.

Every draw refuses and draws again. Refusal looks at nothing but classes and collisions, so relabelling the
members of a class relabels the result: all outcomes of one pattern are equally likely, exactly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.privacy.local.reporter import fine
from understudy.privacy.noise import Device, Rng


def categorical(law: Tensor, n: int, rng: Rng, device: Device) -> Tensor:
    """n draws from {0, …, len(law) − 1} with the probabilities `law` (float64): (n,).

    The smallest probabilities lie next to 0, where floats are dense, so that each holds to a relative
    len(law) · 2⁻⁵²; only those near 2⁻¹⁰⁶ do not.
    """
    order = law.argsort(stable=True)
    steps = law[order].cumsum(0)[:-1].to(device)  # what lies above the last step is the likeliest outcome
    return order.to(device)[torch.searchsorted(steps, fine(rng, n, device=device), right=True)]


def repeats(picks: Tensor) -> Tensor:
    """True where an entry equals an earlier one of its row."""
    ordered, place = picks.sort(dim=1, stable=True)
    return torch.zeros_like(picks, dtype=torch.bool).scatter_(
        1, place[:, 1:], ordered[:, 1:] == ordered[:, :-1]
    )


def distinct(rng: Rng, high: int, rows: int, size: int, device: Device) -> Tensor:
    """`size` of {0, …, high − 1} for every row, without repetition, in random order: (rows, size)."""
    picks = rng.integers(high, rows, size, device=device)
    while (again := repeats(picks)).any():
        picks[again] = rng.integers(high, int(again.sum()), device=device)
    return picks


def subset(rng: Rng, high: int, rows: int, size: int, device: Device) -> Tensor:
    """The same for a large `size`, in ascending order: time and memory grow with `high`, not with its sort.

    Each pass throws as many darts as places are missing, so a row never gets one too many.
    """
    fewer = min(size, high - size)
    hit = torch.zeros(rows, high, dtype=torch.bool, device=device)
    while (missing := fewer - hit.view(torch.uint8).sum(1, dtype=torch.int32)).any():
        row = torch.arange(rows, device=device).repeat_interleave(missing)
        hit.view(-1)[row * high + rng.integers(high, len(row), device=device)] = True
    return (hit if size == fewer else ~hit).nonzero()[:, 1].view(rows, size)


@dataclass(frozen=True)
class TopSets:
    """The top-k set of every row, by its smaller side: the top set itself, or all others if those are fewer.

    Edges: ties at the border fall to either side, but exactly k indices are in.
    """

    few: Tensor  # (n, min(k, d − k)) indices
    in_few: Tensor  # (n, d)
    few_is_top: bool

    @classmethod
    def of(cls, scores: Tensor, top: int) -> "TopSets":
        dims = scores.shape[1]
        few_is_top = 2 * top <= dims
        few = scores.topk(min(top, dims - top), dim=1, largest=few_is_top, sorted=False).indices
        return cls(few, torch.zeros_like(scores, dtype=torch.bool).scatter_(1, few, True), few_is_top)

    def pick(self, inside: Tensor, rng: Rng, *, repeat: bool = False) -> Tensor:
        """An index for each slot of `inside` (n, h): from the row's top set where True, else from outside.

        Guarantee: uniform over all such rows, without an index twice unless `repeat`.
        Edges: the order of a row is that of `inside`: who sends it as it is sends `inside` too.
        Time grows like k ln k as h nears k.
        """
        (dims, size), device = (self.in_few.shape[1], self.few.shape[1]), inside.device
        from_few = inside == self.few_is_top
        picks = torch.empty_like(inside, dtype=torch.int64)
        again = torch.ones_like(inside)
        while again.any():
            row = again.nonzero()[:, 0]
            listed = self.few[row, rng.integers(size, len(row), device=device)]
            picks[again] = torch.where(from_few[again], listed, rng.integers(dims, len(row), device=device))
            again = ~from_few & self.in_few.gather(1, picks)
            if not repeat:
                again |= repeats(picks)
        return picks

"""A smooth law of numbers, and spikes in it, by noisy counts of a tree of cells: what the tails are read by.

Far out a cell holds fewer people than its noise hides, and so does every cell beside it; but laws hardly bend there. On
the scale of asinh((x − c)/s), which is even within s of c and logarithmic beyond, with c the median or zero, the
logarithm f of the density is a number for each of some even bins, and what is least is

    Σ over all counts of (count − people by f)² / 2σ²  +  κ Σ log(1 + (f″/τ)²)  +  ε Σ (1 − exp(−people of a bin / σ))

The second term lets f be a line nearly everywhere, as of a Pareto tail, and bend where that pays (Student's law of what
bends); by the third a bin with hardly anybody in it has nobody. A leaf that stands out of the law by far is a spike,
and has its people by itself.

Guarantee: reads released counts alone.
Edges: the larger part of what is counted where no law is smooth comes from the counts (`fine_tables`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.reach import to_simplex

_BIN = 0.25  # length of a bin on that scale
_MOST_BINS = 96
_BENDS, _BEND = 1.5, 0.3  # κ, τ
_NOBODY = 0.5  # ε
_FEW, _FALL = 1.5, 1.35  # with fewer deviations of people beyond, the exponent of a tail, at least
_SURE = 0.3  # σ: so well the number of people is known, at best
_STEPS, _STOP = 40, 0.01  # steps of Newton's method, at most, and what the last one gains
_ROUNDS = 3  # of looking for spikes
_NODES = 8192  # a layer of more says little about a smooth law


class Counted(NamedTuple):
    """People between leaves: from each of `places` (n + 1,) to the next; `noise` is its deviation, (n,) or one."""

    places: Tensor
    counts: Tensor
    noise: Tensor | float


def clearly(nodes: int, alone: Tensor) -> Tensor:
    """How many deviations above what is expected one of so many nodes stands out: noise alone rarely does, and hardly
    ever where a node is `alone`, with nobody else about it.
    """
    return math.sqrt(2 * math.log(max(nodes, 2))) + torch.where(alone, 1.2, 0.0)


def smooth_law(
    layers: Sequence[Tensor],
    fan: int,
    noise: float,
    total: float,
    edges: Tensor,
    sure: float = 0.0,
    also: Sequence[Counted] = (),
) -> Tensor:
    """The people of each leaf, `total` in all, by noisy counts (`fine_tables.layers_of`); `edges` (leaves + 1,).

    `sure`: the deviation of the total. Who were too many in it would else be in tails, where noise hides that nobody
    is. `also`: what else was counted of the same people.
    """
    at, sure = edges.double().numpy(), max(sure, _SURE * noise)
    counted = [*also]
    for depth, layer in enumerate(layers):
        places = torch.arange(len(layer) + 1) * fan ** (len(layers) - 1 - depth)
        if len(layer) <= _NODES:
            counted.append(Counted(places.clamp(max=len(at) - 1), layer.double(), noise))
    found = [_Law(layers[-1], counted, noise, total, sure, scale) for scale in _scales(layers, fan, total, at)]
    best = min(found, key=lambda law: law.fit())
    for _ in range(_ROUNDS):
        spikes = best.standing_out()
        same = torch.equal(spikes > 0, best.spikes > 0)
        best.spikes = spikes
        if same:
            break
        best.fit()
    for side in (1, -1):
        if side * at[-1 if side > 0 else 0] > 0:  # towards zero there is no tail
            best.fall(side)
    people = best.leaves() + best.spikes
    return people * (total / people.sum().clamp(min=1e-9))


def _scales(layers: Sequence[Tensor], fan: int, total: float, edges: NDArray[np.float64]) -> list[Tensor]:
    """Where the edges lie on the scales that are tried: about the median, and about zero."""
    depth = max((d for d, layer in enumerate(layers) if len(layer) <= 2 * fan**2), default=0)
    places = np.append(np.arange(len(layers[depth])) * fan ** (len(layers) - 1 - depth), len(edges) - 1)
    rough = to_simplex(layers[depth].double()[None], torch.tensor([total], dtype=torch.float64))[0].numpy()
    below = np.append(0, np.cumsum(rough)) / max(rough.sum(), 1e-9)
    tenth, quarter, middle, three, last = np.interp((0.1, 0.25, 0.5, 0.75, 0.9), below, edges[places])
    least = max(float(np.diff(edges).min()), 1e-9 * (edges[-1] - edges[0]))
    about = max(three - middle, middle - quarter, least) / 2
    small = max(min(abs(tenth), abs(last), abs(middle)) / 2, least, 1e-6 * abs(middle))
    return [torch.from_numpy(np.arcsinh(place)) for place in ((edges - middle) / about, edges / small)]


class _Law:
    """One scale's law: `logs` of the people in each bin, and the people in leaves that are spikes."""

    def __init__(
        self, leaves: Tensor, counted: Sequence[Counted], noise: float, total: float, sure: float, scale: Tensor
    ) -> None:
        self.counted, self.noise, self.total, self.sure, self.scale = counted, noise, total, sure, scale
        first, last = float(scale[0]), float(scale[-1])
        bins = max(8, min(_MOST_BINS, math.ceil((last - first) / _BIN)))
        self.bins = torch.linspace(first, last, bins + 1, dtype=torch.float64)
        self.parts = [self._shares(one.places) for one in counted]
        self.heard = [
            torch.as_tensor(one.noise, dtype=torch.float64).pow(-2).expand(len(one.counts)) for one in counted
        ]
        square = [share.T @ (heard[:, None] * share) for share, heard in zip(self.parts, self.heard, strict=True)]
        self.square = torch.stack(square).sum(0) + 1 / sure**2
        self.bend = torch.eye(bins, dtype=torch.float64).diff(n=2, dim=0)
        self.logs = torch.full((bins,), math.log(max(total, 1.0) / bins), dtype=torch.float64)
        self.last, self.spikes = leaves.double(), torch.zeros(len(leaves), dtype=torch.float64)

    def _shares(self, places: Tensor) -> Tensor:
        """The share of each bin that lies from each of these places to the next."""
        below = ((self.scale[places][:, None] - self.bins[:-1]) / (self.bins[1] - self.bins[0])).clamp(0, 1)
        return below.diff(dim=0)

    def leaves(self) -> Tensor:
        """The people of each leaf that is no spike."""
        below = np.append(0, np.cumsum(self.logs.exp().numpy()))
        return torch.from_numpy(np.diff(np.interp(self.scale.numpy(), self.bins.numpy(), below)))

    def fall(self, side: int) -> None:
        """Far out to this side, where hardly more people are left than the noise hides, the law falls outwards."""
        logs, middle = (part if side > 0 else part.flip(0) for part in (self.logs, side * self.bins[1:-1]))
        beyond = logs.exp().flip(0).cumsum(0).flip(0)
        far = int(torch.nonzero((beyond[1:] >= _FEW * self.noise) | (middle < 1))[-1:].sum())
        least = _FALL * float(self.bins[1] - self.bins[0]) * torch.arange(len(logs))
        logs = torch.cat([logs[:far], (logs + least)[far:].cummin(0).values - least[far:]])
        self.logs = logs if side > 0 else logs.flip(0)

    def standing_out(self) -> Tensor:
        more = self.last - self.leaves()
        about = torch.searchsorted(self.bins, (self.scale[:-1] + self.scale[1:]) / 2).clamp(1, len(self.logs)) - 1
        alone = self.logs.exp()[about] < self.noise
        return torch.where(more > clearly(len(more), alone) * self.noise, more, 0.0)

    def fit(self) -> float:
        """Newton's method, step by step shorter where it does not help; what is left of all three terms."""
        linear = torch.zeros_like(self.logs)
        below = torch.cat([self.spikes.new_zeros(1), self.spikes.cumsum(0)])
        for one, share, heard in zip(self.counted, self.parts, self.heard, strict=True):
            linear += share.T @ (heard * (one.counts - below[one.places].diff()))
        linear += (self.total - float(self.spikes.sum())) / self.sure**2
        damp, now = 1e-3, self._off(self.logs, linear)
        for _ in range(_STEPS):
            people, bends = self.logs.exp(), self.bend @ self.logs
            curve = self.bend.T @ ((2 * _BENDS / (_BEND**2 + bends**2))[:, None] * self.bend)
            few = people / self.noise
            slope = people * (self.square @ people - linear) + curve @ self.logs + _NOBODY * few * torch.exp(-few)
            hessian = people[:, None] * self.square * people + curve
            for _ in range(8):
                damped = hessian + damp * torch.diag(hessian.diagonal() + 1e-3)
                logs = self.logs - torch.linalg.solve(damped, slope).clamp(-2, 2)
                if (off := self._off(logs, linear)) < now:
                    break
                damp *= 4
            else:
                return now
            gain, now, self.logs, damp = now - off, off, logs, max(damp / 3, 1e-9)
            if gain < _STOP:
                break
        return now

    def _off(self, logs: Tensor, linear: Tensor) -> float:
        people, bends = logs.exp(), self.bend @ logs
        nobody = (1 - torch.exp(-people / self.noise)).sum()
        left = people @ self.square @ people / 2 - linear @ people
        return float(left + _BENDS * torch.log1p((bends / _BEND) ** 2).sum() + _NOBODY * nobody)

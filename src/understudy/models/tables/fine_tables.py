"""One-way tables of many cells out of noisy trees: what a person's value is, as finely as the noise lets it be told.

The fine cells of a column are the leaves of a tree (`fan` children a node), and every layer of it was counted under
noise: a range of cells is then a few nodes, not thousands of leaves, each with its own noise.

- *Upwards*, a node is the mean of its own count and of its children's sum, weighted by 1/variance (Hay, Rastogi,
  Miklau, Suciu, VLDB 2010, §4.2).
- *Downwards*, the children of a node are projected onto the non-negative tables with the node's count: so noise on
  empty regions does not add up. (Clipping negative leaves gives every empty leaf half of its noise.)
- *What noise alone can explain* is read by a smooth law of all leaves: children are drawn to its shares of their
  parent, the more so the fewer people it expects there beside the noise, but for those that stand out of it. Ends
  beyond which fewer people are left than a part of one deviation are cut: nobody is drawn there. Of a long list of
  categories those that stand out have what was counted, and all others together the rest, evenly.

*The smooth law.* Far out a cell holds fewer people than its noise hides, and so does every cell beside it; but laws
hardly bend there. On the scale of asinh((x − c)/s), which is even within s of c and logarithmic beyond, with c the
median or zero, the logarithm f of the density is a number for each of some even bins, and what is least is

    Σ over all counts of (count − people by f)² / 2σ²  +  κ Σ log(1 + (f″/τ)²)  +  ε Σ (1 − exp(−people of a bin / σ))

The second term lets f be a line nearly everywhere, as of a Pareto tail, and bend where that pays (Student's law of what
bends); by the third a bin with hardly anybody in it has nobody. A leaf that stands out by far is a spike, and has its
people by itself.

*Its ends.* Ages, rates and codes end all at once, within a bin. Past an end nobody is drawn: with P people past it by
the law, and B within a bin before it, these P are put among B, and by all counts that is less likely by a factor of
exp(s − log⁺(P/ρB)) at most: what does not fall steeply needs evidence, and so do more than θ of what B go on to. Of
such ends the innermost is taken that is nearly as likely (s) as the likeliest. Zero, as an end of counts, and powers of
ten from 1 on, as of rates, have a larger s; where many are shortly before one, so that no tail begins there, or by
themselves on it, it is an end wherever counts past it are as likely (s) with nobody there.

Differs from the paper: its second pass is least squares and may be negative.
Guarantee: reads released counts alone.
Edges: a total below 1 counts as 1, and then all is noise; leaves need not fill the last node.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.fine import to_simplex

_CLEAR = 3.0  # deviations of its noise by which a node's count stands out
_ROUNDS = 3  # of looking for what stands out of its siblings, or of a smooth law
_UNLIKE = 0.5  # of what a smooth law expects in a node, so much it may be off by
_LOST = 0.15  # deviations: with fewer people beyond, an end is cut
# of the smooth law
_BIN = 0.25  # length of a bin on that scale
_MOST_BINS = 96
_BENDS, _BEND = 1.5, 0.3  # κ, τ
_NOBODY = 0.5  # ε
_FEW, _FALL = 1.5, 1.35  # with fewer deviations of people beyond, the exponent of a tail, at least
_SURE = 0.3  # σ: so well the number of people is known, at best
_STEPS, _STOP = 40, 0.01  # steps of Newton's method, at most, and what the last one gains
# of its ends
_PAST, _MOST_ENDS = 0.1, 128  # of all people, past an end at most; how many ends are tried
_STEEP, _THIN, _SLACK, _ROUND = 0.05, 0.5, 1.5, 4.0  # ρ, θ, and s of an end, and of a round one
_FLAT, _CELLS = 0.2, 8  # of the highest density, so that no tail begins there, and cells before such an end
_MOST_NODES = 8192  # a layer of more says little about a smooth law


class Counted(NamedTuple):
    """People between leaves: from each of `places` (n + 1,) to the next; `noise` is its deviation, (n,) or one."""

    places: Tensor
    counts: Tensor
    noise: Tensor | float


def layer_sizes(leaves: int, fan: int) -> list[int]:
    """How many nodes each layer has, from the top: up to 2 `fan`, then `fan` times as many, and at last the leaves."""
    sizes = [leaves]
    while sizes[0] > 2 * fan:
        sizes.insert(0, -(-sizes[0] // fan))
    return sizes


def layers_of(counts: Tensor, fan: int) -> list[Tensor]:
    """The tree above these leaves (leaves,): the count of each node, layer by layer from the top."""
    layers = [counts]
    for size in reversed(layer_sizes(len(counts), fan)[:-1]):
        layers.insert(0, _children(layers[0], size, fan, 0).sum(1))
    return layers


def fine_table(
    layers: Sequence[Tensor], fan: int, *, noise: float, missing: Tensor | None = None, total: float | None = None,
    sure: float = 0.0, ordered: bool = True, listed: bool = False, edges: Tensor | None = None,
    also: Sequence[Counted] = (),
) -> Tensor:  # fmt: skip
    """The people in each leaf, `total` in all where that is known, but for a deviation `sure`, and last those without a
    value where `missing` was counted.

    `layers` are noisy counts as `layers_of` has them. Leaves without an order are taken as they were counted, or are
    `listed`: a long list. `edges` (leaves + 1,): the values between which ordered ones lie (without: evenly apart).
    `also`: what else was counted of ordered ones.
    """
    top = layers[0].double() if missing is None else torch.cat([layers[0].double(), missing.double().reshape(1)])
    people = max(float(top.sum()) if total is None else total, 1.0)
    if listed:
        return _standing_out(top, noise, people)
    if not ordered or not noise:
        leaves = top if len(layers) == 1 else torch.cat([layers[-1].double(), top[len(layers[0]) :]])
        return to_simplex(leaves[None], leaves.new_tensor([people]))[0]
    absent = top[len(layers[0]) :].clamp(0, people)
    there = max(people - float(absent.sum()), 1.0)
    values = torch.arange(len(layers[-1]) + 1.0) if edges is None else edges
    law = smooth_law(layers, fan, noise, there, values, sure, also)
    return torch.cat([_without_ends(_by_counts(layers, fan, noise, there, law), _LOST * noise), absent])


def _by_counts(layers: Sequence[Tensor], fan: int, noise: float, total: float, law: Tensor) -> Tensor:
    """The people in each leaf by a smooth law, and by what was counted where that says more."""
    means, variances, expected = [layer.double() for layer in layers], [1.0] * len(layers), [law]
    for depth in range(len(layers) - 2, -1, -1):
        below = fan * variances[depth + 1]  # of the children's sum, in units of one count's
        sums = _children(means[depth + 1], len(means[depth]), fan, 0).sum(1)
        means[depth] = (below * means[depth] + sums) / (1 + below)
        variances[depth] = below / (1 + below)
        expected.insert(0, _children(expected[0], len(means[depth]), fan, 0).sum(1))
    nodes, out = law.new_tensor([total]), torch.zeros(1, dtype=torch.bool)
    for layer, variance, smooth in zip(means, variances, expected, strict=True):
        size = len(layer) if len(nodes) == 1 and layer is means[0] else fan
        counted, even = (_children(part, len(nodes), size, empty) for part, empty in ((layer, -torch.inf), (smooth, 0)))
        drawn, standing = _drawn_to_law(counted, nodes, noise * variance**0.5, even, out)
        nodes, out = to_simplex(drawn, nodes).flatten()[: len(layer)], standing.flatten()[: len(layer)]
    return nodes


def _drawn_to_law(children: Tensor, parents: Tensor, noise: float, law: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Children at their shares by the law, and which stand out of it: of a parent that is `out` itself, of its few."""
    there, alone = children.isfinite(), (parents < 2 * noise) | (len(parents) == 1)
    past = (law == 0) & (law > 0).any(1, keepdim=True)  # an end
    clear, few = clearly(children.numel(), alone[:, None] | past), clearly(children.shape[1] * int(out.sum()), past)
    clear = torch.where(out[:, None], few, clear) * noise
    counted, others = torch.where(there, children, 0), there
    for _ in range(_ROUNDS + 1):
        long = torch.where(others, law, 0)
        left = (parents - torch.where(others, 0, counted).sum(1)).clamp(min=0)
        smooth = long * (left / long.sum(1).clamp(min=1e-300))[:, None]
        others = others & (counted - smooth <= clear)
    unlike = (_UNLIKE * smooth) ** 2
    drawn = smooth + unlike / (unlike + noise**2) * (counted - smooth)
    found = torch.where(there, torch.where(others, drawn, counted).clamp(min=0), 0)
    # Those who are left over are where the others are: a projection would put as many of them in empty nodes.
    more = (parents / found.sum(1).clamp(min=1e-9)).clamp(min=1)[:, None]
    return torch.where(there, found * more, -torch.inf), there & ~others


def _without_ends(leaves: Tensor, lost: float) -> Tensor:
    """The same people without the first and the last leaves that have so few of them together."""
    below, above = leaves.cumsum(0), leaves.flip(0).cumsum(0).flip(0)
    kept = torch.where((below > lost) & (above > lost), leaves, 0)
    return kept * (leaves.sum() / kept.sum()) if kept.sum() > 0 else leaves


def _standing_out(counts: Tensor, noise: float, people: float) -> Tensor:
    """Counts that stand out of the noise, and the rest of the people evenly on all others."""
    seen = counts > _CLEAR * noise
    rest = people - float(counts[seen].sum())
    if rest <= 0 or bool(seen.all()):
        return to_simplex(counts[None], counts.new_tensor([people]))[0]
    return torch.where(seen, counts, rest / float((~seen).sum()))


def _children(layer: Tensor, parents: int, fan: int, empty: float | bool) -> Tensor:
    """A layer by its parents, (parents, fan); the last parent may have fewer."""
    padded = layer.new_full((parents * fan,), empty)
    padded[: len(layer)] = layer
    return padded.view(parents, fan)


def clearly(nodes: int, alone: Tensor) -> Tensor:
    """How many deviations of noise one of so many nodes must stand out by; by more where it is `alone`."""
    return math.sqrt(2 * math.log(max(nodes, 2))) + torch.where(alone, 1.2, 0.0)


def smooth_law(
    layers: Sequence[Tensor], fan: int, noise: float, total: float, edges: Tensor, sure: float = 0.0,
    also: Sequence[Counted] = (),
) -> Tensor:  # fmt: skip
    """The people of each leaf, `total` in all, by noisy counts (`layers_of`); `edges` (leaves + 1,).

    `sure`: the deviation of the total. Who were too many in it would else be in tails, where noise hides that nobody
    is. `also`: what else was counted of the same people.
    """
    at, sure = edges.double().numpy(), max(sure, _SURE * noise)
    counted = [*also]
    for depth, layer in enumerate(layers):
        places = torch.arange(len(layer) + 1) * fan ** (len(layers) - 1 - depth)
        if len(layer) <= _MOST_NODES:
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
    people = people * (total / people.sum().clamp(min=1e-9))
    return best.ended(best.ended(people, 1, edges), -1, edges)


def _turned(part: Tensor, side: int) -> Tensor:
    return part if side > 0 else part.flip(0)


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
        noises = [torch.as_tensor(one.noise, dtype=torch.float64) for one in counted]
        self.heard = [own.pow(-2).expand(len(one.counts)) for own, one in zip(noises, counted, strict=True)]
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

    def ended(self, people: Tensor, side: int, edges: Tensor) -> Tensor:
        """The same people, but nobody past the end to this side, if there is one."""
        parts = (people, torch.where(self.spikes > 0, 0, people))
        held, smooth = (torch.nn.functional.pad(_turned(part, side).cumsum(0), (1, 0)) for part in parts)
        scale, values, beyond = side * _turned(self.scale, side), side * _turned(edges.double(), side), held[-1] - held
        powers = values.log10()
        tens = (values == 0) | ((powers - powers.round()).abs() < 1e-9) & (powers > -0.5)
        tens = torch.nn.functional.pad(tens, (1, -1)) if side > 0 else tens  # the last cell within is that number
        ends = torch.nonzero((beyond > 0) & (beyond < torch.where(tens, 2 * _PAST, _PAST) * held[-1]))
        some = torch.linspace(0, max(len(ends) - 1, 0), min(len(ends), _MOST_ENDS)).long()
        ends = torch.cat([ends[some], ends[tens[ends[:, 0]]]])  # (ends, 1)
        begin = torch.searchsorted(scale, scale[ends] - _BIN).minimum(ends - 2).clamp(min=0)
        past, before = beyond[ends], held[ends] - held[begin]
        # Who were past it are among those shortly before it, but no spikes, unless there is little else.
        first = int(begin.min()) if len(ends) else 0  # before it nothing changes
        among = torch.where(past < smooth[ends] - smooth[begin], smooth[first:], held[first:])
        among = (among - among.gather(1, begin - first)).clamp(min=0)
        share = among / among.gather(1, ends - first).clamp(min=1e-9)
        more = torch.where(torch.arange(first, len(held)) < ends, past * share, beyond[first:])
        gain, outside = torch.zeros(2, *ends.shape, dtype=torch.float64)
        for one, heard in zip(self.counted, self.heard, strict=True):
            places = one.places if side > 0 else len(people) - one.places.flip(0)
            off, after = _turned(one.counts, side) - held[places].diff(), places[1:] > first
            moved = more[:, (places - first).clamp(min=0)].diff()[:, after]
            speaks = _turned(heard, side)[after] * moved * (off[after] - moved / 2)
            gain += speaks.sum(1, keepdim=True)
            outside += torch.where(places[:-1][after] >= ends, speaks, 0).sum(1, keepdim=True)
        steep, tens = past / before.clamp(min=1e-9), tens[ends]
        thin = tens | (past * (scale[ends] - scale[begin]) < _THIN * before * (scale[-1] - scale[ends]))
        slack = torch.where(tens, _ROUND, _SLACK)
        likely = (steep < 1) & (past < _PAST * held[-1])
        likely &= gain > (steep / _STEEP).log().clamp(min=0) - torch.where(thin, slack, -slack)
        near, spike = smooth[ends] - smooth[begin], (held - smooth).diff(prepend=held[:1])[ends]
        bins = torch.from_numpy(np.interp(self.bins, self.scale, edges)).diff()
        many = near > _FLAT * (self.logs.exp() / bins).max() * (values[ends] - values[begin])
        sharp = tens & (many | (spike > past)) & (outside > -_SLACK)
        likely |= (sharp := sharp & (ends > _CELLS) & (values[ends - 1] != 0))  # 0 and 1 tell nothing of who is above
        if not likely.any():
            return people
        likely &= sharp | (gain > gain[likely].max() - slack)
        best = int(torch.where(likely, ends, len(held)).argmin())
        return _turned(torch.cat([held[:first], held[first:] + more[best]]).diff(), side)

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

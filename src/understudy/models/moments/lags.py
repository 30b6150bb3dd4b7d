"""Lag autocovariances of series, from noisy second moments of their coefficients.

The autocovariance of a channel at lag k is the mean of E[x(t) x(t + k)] over t. It is a
linear function of the second moments, and the mean over equal lags has far less noise
than one of them: σ √(1 / T) where an eigenvalue is told from noise above 2 σ √d. So a
release tells the memory of series where its directions do not.

`fill_tail` gives the variance beside the directions to single coefficients of each
channel, none below 0, such that power (lag 0) and lag 1 are those of the release. A
stationary series is told by its autocovariances alone, and the cosine transform nearly
diagonalizes their matrix (Ahmed, Natarajan, Rao 1974): so variances of coefficients are
all that is missing.

- The power of each channel, and its roughness (power less lag 1), are shrunk towards
  the mean of all channels by the share of their spread that is noise (Efron, Morris
  1973), and that mean towards none (James, Stein 1961): noise alone is not drawn.
- Of all variances of that power and roughness those are taken that are nearest to the
  residual ones, by least squares (Lawson, Hanson 1974).

`memory` says what lag 1 is in the release and in what is drawn.

Guarantee: reads released numbers alone, and is the same for the same numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.frame import UNIT, Frame
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.moments.released import Released

_EXACT = 1e3  # how much more power and roughness weigh than a coefficient's residual
_WARY = 4.0  # times its variance: by less, a mean of channels is noise

# deviation of lag 1, as `report.marks.OFF`: a difference that is not close
UNTOLD = 0.1


def fill_tail(
    residual: Tensor,
    noise: float,
    frame: Frame,
) -> Tensor:
    """Variances of coefficients (features,) that give each channel the power and the
    roughness of these `residual` second moments (features, features), under noise of
    this deviation beside the diagonal.
    """
    from scipy.optimize import nnls

    channels = frame.channels
    moments = _channel_moments(residual, channels)
    frequencies = moments.shape[1]
    matrices = _power_and_roughness(frame)[:, :frequencies, :frequencies]
    released = np.einsum("kfg,cfg->ck", matrices, moments)
    noise_variances = 2 * noise**2 * np.square(matrices).sum((1, 2))
    targets = _without_noise(released, noise_variances)
    weight = _EXACT * frame.shape[0]
    constraints = weight * np.diagonal(matrices, axis1=1, axis2=2)
    design = np.concatenate([np.eye(frequencies), constraints])
    tail = torch.zeros(len(residual), dtype=torch.float64)
    by_channel = tail[: frequencies * channels].view(frequencies, channels)
    for channel, target in enumerate(targets):
        power = target[0]
        if power > 0:
            variances = np.diagonal(moments[channel])
            goal = np.concatenate([variances, weight * target])
            scale = max(float(np.abs(variances).max()), 1e-300)
            nearest, _ = nnls(design, goal / scale)
            by_channel[:, channel] = torch.from_numpy(nearest * scale)
    return tail


def _channel_moments(residual: Tensor, channels: int) -> NDArray[np.float64]:
    """The second moments of each channel by itself: (channels, frequencies,
    frequencies).
    """
    frequencies = len(residual) // channels
    end = frequencies * channels
    grid = residual[:end, :end].reshape(
        frequencies,
        channels,
        frequencies,
        channels,
    )
    diagonals = grid.diagonal(dim1=1, dim2=3)
    return np.asarray(diagonals.permute(2, 0, 1))


def _power_and_roughness(frame: Frame) -> NDArray[np.float64]:
    """Of a channel's second moments the sums of products with these matrices are its
    power, and its power less lag 1: (2, frequencies, frequencies).
    """
    steps = frame.shape[0]
    channels = frame.channels
    waves = frame.matrix()[::channels, ::channels] * UNIT
    power = waves @ waves.T / steps
    if steps == 1:
        return power[None]
    next_step = waves[:, :-1] @ waves[:, 1:].T / (steps - 1)
    lag_1 = (next_step + next_step.T) / 2
    return np.stack([power, power - lag_1])


def _without_noise(
    released: NDArray[np.float64],
    noise_variances: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Power and roughness (channels, 2) shrunk towards the mean of all channels, and
    that towards none.
    """
    if not noise_variances.any():
        return released
    channels = len(released)
    mean = released.mean(0)
    beside = released - mean
    spread = np.square(beside).sum(0) / max(channels - 1, 1)
    between = (spread - noise_variances).clip(min=0)
    shared = np.square(mean)
    signal = (shared - _WARY * noise_variances / channels).clip(min=0)
    shrunk_mean = mean * signal / shared.clip(min=1e-300)
    shrunk_beside = beside * between / (between + noise_variances)
    return np.asarray(shrunk_mean + shrunk_beside)


def lag_1(
    second: Tensor,
    back: Tensor,
    channels: int,
) -> Tensor:
    """The correlation of a value with the next one, channel by channel, by second
    moments of coefficients about each channel's level; `back` (features, values) turns
    them back.
    """
    turned = second @ back
    squares = (turned * back).sum(0)
    products = (turned[:, :-channels] * back[:, channels:]).sum(0)
    power = squares.view(-1, channels).mean(0)
    product = products.view(-1, channels).mean(0)
    return product / power


def lag_1_noise(
    second: Tensor,
    back: Tensor,
    channels: int,
    noise: float,
) -> float:
    """The deviation of the channels' mean of `lag_1` where every second moment has
    noise of this deviation, √2 of it on the diagonal. To the first order.
    """
    squares = ((second @ back) * back).sum(0)
    power = squares.view(-1, channels).mean(0)
    lag = lag_1(second, back, channels)
    steps = back.view(len(back), -1, channels)
    count = steps.shape[1]
    both_sides = 2 * (count - 1)
    neighbours = torch.zeros_like(steps)
    neighbours[:, 1:] += steps[:, :-1] / both_sides
    neighbours[:, :-1] += steps[:, 1:] / both_sides
    change = neighbours - lag * steps / count
    relative_change = change / (power * channels)
    slope = relative_change.flatten(1) @ back.T
    return math.sqrt(2) * noise * float(slope.norm())


@dataclass(frozen=True)
class Memory:
    """Lag 1 of series, the mean of all channels: what was released, the deviation of
    its noise, and what the network draws before its values are mapped to histograms.
    `furthest` is the channel in which these two differ most, of several.
    """

    released: float
    noise: float
    drawn: float
    furthest: "Memory | None" = None
    channel: str = ""

    @property
    def sentence(self) -> str:
        if not math.isfinite(self.drawn):
            return "Drawn series are constant."
        of_drawn = (
            f"Drawn series have a correlation of about {self.drawn:.2f} from one "
            "value to the next"
        )
        if not math.isfinite(self.released + self.noise):
            return f"{of_drawn}; the release does not tell that of real ones."
        if self.noise > UNTOLD:
            return f"{of_drawn}; noise hides that of real ones (±{self.noise:.2f})."
        mean = (
            f"{of_drawn}; the release says {self.released:.2f}{self._deviation} of "
            "real ones."
        )
        one = self.furthest
        if one is None:
            return mean
        return (
            f"{mean} Furthest of the channels is {one.channel}: {one.drawn:.2f}, and "
            f"{one.released:.2f}{one._deviation} by the release."
        )

    @property
    def _deviation(self) -> str:
        return f" ± {self.noise:.2g}" if self.noise else ""


def memory(
    network: CellGaussians,
    pooled: Released,
    people: Tensor,
    means: Tensor,
    names: Sequence[str] = (),
) -> Memory:
    """Of a release of second moments about the `means` (classes, features) of so many
    `people` (classes,), and of the network fitted to it; `names` of its channels.
    Guarantee: reads released numbers alone.
    """
    frame = network.frame
    channels = frame.channels
    total = float(people.sum())
    back = torch.from_numpy(frame.matrix())
    between = _about_level(means, people / total, channels)
    released = pooled["moments"] / total + between
    drawn = _second_moments(network)
    noise = float(pooled["moments_noise"]) / total
    of_released = lag_1(released, back, channels)
    of_drawn = lag_1(drawn, back, channels)
    deviation = lag_1_noise(released, back, channels, noise)
    furthest = None
    if len(names) > 1:
        place = int((of_drawn - of_released).abs().argmax())
        furthest = Memory(
            released=float(of_released[place]),
            # of the mean of so many channels whose noise is apart
            noise=deviation * math.sqrt(channels),
            drawn=float(of_drawn[place]),
            channel=names[place],
        )
    return Memory(
        released=float(of_released.mean()),
        noise=deviation,
        drawn=float(of_drawn.mean()),
        furthest=furthest,
    )


@torch.no_grad()
def _second_moments(network: CellGaussians) -> Tensor:
    """Of the coefficients that it draws, about the level of each channel."""
    shares = (network.shares / network.shares.sum()).double()
    factors = network.factors.double()
    inner = torch.einsum(
        "c,cij,ckj->ik",
        shares,
        factors,
        factors,
    )
    basis = network.basis.double()
    tail_variances = network.tail.double().square()
    within = basis @ inner @ basis.T + tail_variances.diag()
    means = network.means.double()
    return within + _about_level(means, shares, network.frame.channels)


def _about_level(
    means: Tensor,
    shares: Tensor,
    channels: int,
) -> Tensor:
    """Second moments of means about the level of each channel, its slowest
    coefficient.
    """
    overall = shares @ means
    swings = means.clone()
    swings[:, :channels] -= overall[:channels]
    weighted = shares[:, None] * swings
    return swings.T @ weighted

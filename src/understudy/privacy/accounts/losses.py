"""Privacy losses as dp_accounting computes them, all at once instead of one after the other.

Its loops over losses are most of the time that a price takes. What is here gives its numbers to the last digits, from
its own distributions.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as plds
from dp_accounting.pld.privacy_loss_mechanism import (
    AdditiveNoisePrivacyLoss,
    AdjacencyType,
    DiscreteGaussianPrivacyLoss,
    GaussianPrivacyLoss,
)
from scipy import fft
from scipy.special import log_ndtr, ndtr, ndtri

Floats = npt.NDArray[np.float64]

_TAIL = 1e-15  # of the mass, cut off and counted as an endless loss
_CHERNOFF = np.arange(1, 21)  # orders of the bound, over the length of the list
_RISE = 1e-12  # of δ with ε, by rounding
_SHORT = 1000  # losses that dp_accounting multiplies out


class _Normal:
    """Noise of this deviation: what dp_accounting asks of scipy's `norm`, which takes long to make and to ask."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation

    def cdf(self, x: Any) -> Any:
        return ndtr(np.divide(x, self._deviation))

    def logcdf(self, x: Any) -> Any:
        return log_ndtr(np.divide(x, self._deviation))

    def ppf(self, chance: float) -> float:
        return float(ndtri(chance)) * self._deviation


class _Gaussian(GaussianPrivacyLoss):  # type: ignore[misc]
    def __init__(self, noise: float, rate: float, kind: Any) -> None:
        self._standard_deviation, self._gaussian_random_variable = noise, _Normal(noise)
        self._pessimistic_estimate, self._log_mass_truncation_bound = True, -50
        AdditiveNoisePrivacyLoss.__init__(self, 1, False, rate, kind)


def discrete_gaussian(sigma: float, sensitivity: int, grid: float) -> Any:
    """The privacy loss distribution of discrete Gaussian noise: `from_discrete_gaussian_mechanism`, quickly."""
    noise = DiscreteGaussianPrivacyLoss(sigma, sensitivity)
    ends = noise.connect_dots_bounds()
    losses = sensitivity * (-0.5 * sensitivity - np.arange(ends.lower_x, ends.upper_x + 1)) / sigma**2 / grid
    dots = np.unique(np.concatenate([np.floor(losses), np.ceil(losses)])).astype(np.int64)
    last = -0.5 * sensitivity - dots * grid * sigma**2 / sensitivity  # with a loss so large
    last = np.floor(np.clip(last, ends.lower_x - 1, ends.upper_x)).astype(np.int64)
    return plds.PrivacyLossDistribution(_connected(grid, dots, _divergence(noise, dots * grid, last)))


def gaussian(noise: float, grid: float) -> Any:
    """That of Gaussian noise: `from_gaussian_mechanism`, quickly."""
    return plds.PrivacyLossDistribution(_sampled(1.0, noise, grid, AdjacencyType.REMOVE))


def sampled_gaussian(rate: float, noise: float, grid: float) -> Any:
    """That of Gaussian noise on a Poisson sample, at a rate below 1, likewise."""
    sides = (_sampled(rate, noise, grid, kind) for kind in (AdjacencyType.REMOVE, AdjacencyType.ADD))
    return plds.PrivacyLossDistribution(*sides)


def _sampled(rate: float, sigma: float, grid: float, kind: Any) -> Any:
    noise = _Gaussian(sigma, rate, kind)
    ends = noise.connect_dots_bounds()
    low, high = math.floor(ends.epsilon_lower / grid), math.ceil(ends.epsilon_upper / grid)
    dots, side = np.arange(low, high + 1), 1 if kind == AdjacencyType.REMOVE else -1
    epsilons = dots * grid
    # No loss is below this edge for who left, or above it for who joined.
    edge = math.log1p(-rate) if rate < 1 else -math.inf
    lost = side * epsilons  # of who left
    # Without sampling it were log(1 + (e^lost − 1)/q).
    with np.errstate(all="ignore"):
        plain = lost - math.log(rate) + np.log1p(-np.exp(edge - lost))
    plain[np.isnan(plain) | np.isclose(lost, edge, rtol=1e-9, atol=0)] = -math.inf
    last = (side < 0) - 0.5 - side * plain * sigma**2
    deltas = np.where(
        lost > edge, _divergence(noise, epsilons, last), -np.expm1(epsilons) if side > 0 else 0.0
    )
    return _connected(grid, dots, deltas)


def _connected(grid: float, dots: npt.NDArray[np.int64], deltas: Floats) -> Any:
    """Masses at the dots (times the grid) that have these δ there, and more between them (Doroshenko et al., Alg. 1):
    `create_pmf_pessimistic_connect_dots`, without a dictionary of them.

    Edges: a δ that rises with ε by more than rounding → ValueError.
    """
    if (np.diff(deltas) > _RISE).any():
        raise ValueError("δ rises with ε.")
    deltas = np.minimum.accumulate(deltas)
    gaps, steps = np.diff(dots) * grid, np.diff(deltas)
    masses = np.zeros(int(dots[-1] - dots[0]) + 1)
    masses[dots - dots[0]] = np.append(1 - deltas[0], steps / np.expm1(-gaps))
    masses[dots[:-1] - dots[0]] += steps / np.expm1(gaps)
    return pld_pmf.DensePLDPmf(grid, int(dots[0]), np.maximum(masses, 0), float(deltas[-1]), True)


def _divergence(noise: Any, epsilons: npt.NDArray[Any], last: npt.NDArray[Any]) -> Floats:
    """δ at each ε, where what is up to `last` has a loss above it."""
    with np.errstate(over="ignore"):
        deltas = noise.mu_upper_cdf(last) - np.exp(epsilons + noise.mu_lower_log_cdf(last))
    return np.asarray(np.clip(np.nan_to_num(deltas, nan=1.0), 0, 1))


def folded(parts: Sequence[tuple[Any, int]]) -> Any:
    """The privacy loss distribution of so many uses of each: `self_compose` and `compose`, quickly.

    Guarantee: losses beyond the list have a mass of at most 10⁻¹⁵, which is counted as endless.
    Edges: distributions on different grids → ValueError.
    """
    if len({distribution._pmf_remove._discretization for distribution, _ in parts}) > 1:
        raise ValueError("losses on different grids cannot be added.")
    symmetric = all(distribution._symmetric for distribution, _ in parts)
    sides = ("_pmf_remove",) if symmetric else ("_pmf_remove", "_pmf_add")
    return plds.PrivacyLossDistribution(
        *(_folded([(getattr(distribution, side), times) for distribution, times in parts]) for side in sides)
    )


def _folded(parts: Sequence[tuple[Any, int]]) -> Any:
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    sparse = not any(isinstance(losses, pld_pmf.DensePLDPmf) for losses, _ in parts)
    if sparse and sum(times * math.log(losses.size) for losses, times in parts) <= math.log(_SHORT):
        return reduce(
            lambda one, other: one.compose(other, _TAIL), (one.self_compose(times) for one, times in parts)
        )
    parts = [(_dense(losses), times) for losses, times in parts]
    lists = [(losses._probs, times) for losses, times in parts]
    low, high = _kept(lists)
    size = max(high - low + 1, *(len(masses) for masses, _ in lists))
    length = fft.next_fast_len(size, real=True)  # beyond it masses wrap around
    with np.errstate(divide="ignore"):
        finite = sum(times * float(np.log1p(-losses._infinity_mass)) for losses, times in parts)
    spectrum = reduce(np.multiply, (fft.rfft(masses, length) ** times for masses, times in lists))
    return pld_pmf.DensePLDPmf(
        parts[0][0]._discretization,
        sum(times * losses._lower_loss for losses, times in parts) + low,
        np.roll(fft.irfft(spectrum, length), -low)[: high - low + 1],
        _TAIL - math.expm1(finite),
        True,
    )


def _sides(distribution: Any) -> list[Any]:
    """The losses of who left, and of who joined where they are others."""
    sides = [distribution._pmf_remove, distribution._pmf_add]
    return sides[:1] if distribution._symmetric else sides


def _dense(losses: Any) -> Any:
    """A mass for every loss between the least and the largest."""
    if isinstance(losses, pld_pmf.DensePLDPmf):
        return losses
    places, masses = _listed(losses._loss_probs)
    low = int(places.min())
    dense = np.zeros(int(places.max()) - low + 1)
    dense[places - low] = masses
    return pld_pmf.DensePLDPmf(
        losses._discretization, low, dense, losses._infinity_mass, losses._pessimistic_estimate
    )


def _listed(masses: dict[int, float]) -> tuple[npt.NDArray[np.int64], Floats]:
    return np.fromiter(masses, np.int64, len(masses)), np.fromiter(masses.values(), np.float64, len(masses))


def _kept(lists: Sequence[tuple[Floats, int]]) -> tuple[int, int]:
    """The places in lists that were folded so often beyond which at most `_TAIL` lies, by Chernoff's bound."""
    longest, last = max(len(masses) for masses, _ in lists), sum(n * (len(masses) - 1) for masses, n in lists)
    with np.errstate(all="ignore"):
        above, below = (
            (sum(n * np.log(_moments(masses, sign / longest)) for masses, n in lists) + math.log(2 / _TAIL))
            * (longest / _CHERNOFF)
            for sign in (1, -1)
        )
    high = min([last, *(math.ceil(place) + 1 for place in above if math.isfinite(place))])
    low = max([0, *(math.floor(-place) - 1 for place in below if math.isfinite(place))])
    return low, high


def _moments(masses: Floats, by: float) -> Floats:
    """Σ masses · e^(by · j · place) for each order j; in place, as a list of losses may be long."""
    step = np.exp(by * np.arange(len(masses)))
    power, found = np.ones_like(masses), []
    for _ in _CHERNOFF:
        power *= step
        found.append(power @ masses)
    return np.array(found)


def least_epsilon(distribution: Any, delta: float) -> float:
    """The least ε at which δ is enough: `get_epsilon_for_delta`, quickly."""
    return max(_least_epsilon(side, delta) for side in _sides(distribution))


def _least_epsilon(losses: Any, delta: float) -> float:
    """δ(ε) = P(loss is endless) + Σ p (1 − e^(ε − loss)) over losses above ε, from the largest down: those up to 0
    have no part in any ε.
    """
    if losses._infinity_mass > delta:
        return math.inf
    if isinstance(losses, pld_pmf.DensePLDPmf):
        places, masses = np.arange(losses._lower_loss, losses._lower_loss + losses.size), losses._probs
    else:
        places, masses = _listed(losses._loss_probs)
        order = places.argsort()
        places, masses = places[order], masses[order]
    first = int(np.searchsorted(places, 0, "right"))
    lost, masses = places[first:][::-1] * losses._discretization, masses[first:][::-1]
    upper = np.cumsum(np.concatenate([[losses._infinity_mass], masses]))  # of the losses before each
    lower = np.cumsum(np.concatenate([[0.0], np.exp(-lost) * masses]))
    with np.errstate(all="ignore"):
        there = (upper > delta) & (lower > 0) & (np.log((upper - delta) / lower) >= np.append(lost, 0))
    last = int(there.argmax()) if there.any() else len(lost)
    # Where e^−loss is 0 the loss itself is a bound.
    unseen = (upper[1 : last + 1] >= delta) & (lower[1 : last + 1] == 0)
    if unseen.any():
        return float(lost[unseen.argmax()])
    if upper[last] <= lower[last] + delta:
        return 0.0
    return math.log((upper[last] - delta) / lower[last])

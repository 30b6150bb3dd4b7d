"""Privacy losses as dp_accounting computes them, all at once instead of one after the other.

Its loops over losses, over orders and over terms are most of the time that a price takes. What is here gives its
numbers to the last digits, from its own distributions and by its own "connect the dots".
"""

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as plds
from dp_accounting.pld.privacy_loss_mechanism import (
    AdjacencyType,
    DiscreteGaussianPrivacyLoss,
    GaussianPrivacyLoss,
)
from scipy import fft
from scipy.special import gammaln

Floats = npt.NDArray[np.float64]

_TAIL = 1e-15  # of the mass, cut off and counted as an endless loss
_CHERNOFF = np.arange(1, 21)  # orders of the bound, over the length of the list
_SHORT = 1000  # losses that dp_accounting multiplies out


def discrete_gaussian(sigma: float, sensitivity: int, grid: float) -> Any:
    """The privacy loss distribution of discrete Gaussian noise: `from_discrete_gaussian_mechanism`, quickly."""
    noise = DiscreteGaussianPrivacyLoss(sigma, sensitivity)
    ends = noise.connect_dots_bounds()
    losses = sensitivity * (-0.5 * sensitivity - np.arange(ends.lower_x, ends.upper_x + 1)) / sigma**2 / grid
    dots = np.unique(np.concatenate([np.floor(losses), np.ceil(losses)])).astype(np.int64)
    last = -0.5 * sensitivity - dots * grid * sigma**2 / sensitivity  # with a loss so large
    last = np.floor(np.clip(last, ends.lower_x - 1, ends.upper_x)).astype(np.int64)
    deltas = _divergence(noise, dots * grid, last)
    return plds.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(grid, dots, deltas))


def sampled_gaussian(rate: float, noise: float, grid: float) -> Any:
    """That of Gaussian noise on a Poisson sample, at a rate below 1: `from_gaussian_mechanism`, quickly."""
    sides = (_sampled(rate, noise, grid, kind) for kind in (AdjacencyType.REMOVE, AdjacencyType.ADD))
    return plds.PrivacyLossDistribution(*sides)


def _sampled(rate: float, sigma: float, grid: float, kind: Any) -> Any:
    noise = GaussianPrivacyLoss(sigma, sampling_prob=rate, adjacency_type=kind)
    ends = noise.connect_dots_bounds()
    low, high = math.floor(ends.epsilon_lower / grid), math.ceil(ends.epsilon_upper / grid)
    epsilons, side = np.arange(low, high + 1) * grid, 1 if kind == AdjacencyType.REMOVE else -1
    edge = math.log1p(-rate)  # no loss is further down than this for who left, or further up for who joined
    lost = side * epsilons  # of who left
    # Without sampling it were log(1 + (e^lost − 1)/q).
    with np.errstate(all="ignore"):
        plain = lost - math.log(rate) + np.log1p(-np.exp(math.log1p(-rate) - lost))
    plain[np.isnan(plain) | np.isclose(lost, edge, rtol=1e-9, atol=0)] = -math.inf
    last = (side < 0) - 0.5 - side * plain * sigma**2
    deltas = np.where(
        lost > edge, _divergence(noise, epsilons, last), -np.expm1(epsilons) if side > 0 else 0.0
    )
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, low, high, deltas)


def _divergence(noise: Any, epsilons: npt.NDArray[Any], last: npt.NDArray[Any]) -> Floats:
    """δ at each ε, where what is up to `last` has a loss above it."""
    with np.errstate(over="ignore"):
        deltas = noise.mu_upper_cdf(last) - np.exp(epsilons + noise.mu_lower_log_cdf(last))
    return np.asarray(np.clip(np.nan_to_num(deltas, nan=1.0), 0, 1))


def repeated(distribution: Any, times: int) -> Any:
    """The privacy loss distribution of so many uses: `self_compose`, quickly.

    Guarantee: losses beyond the list have a mass of at most 10⁻¹⁵, which is counted as endless.
    """
    if times == 1:
        return distribution
    sides = (
        [distribution._pmf_remove]
        if distribution._symmetric
        else [distribution._pmf_remove, distribution._pmf_add]
    )
    return plds.PrivacyLossDistribution(*(_repeated(side, times) for side in sides))


def _repeated(losses: Any, times: int) -> Any:
    if not isinstance(losses, pld_pmf.DensePLDPmf):
        if times * math.log(losses.size) <= math.log(_SHORT):
            return losses.self_compose(times)
        losses = losses.to_dense_pmf()
    masses = losses._probs
    low, high = _kept(masses, times)
    length = fft.next_fast_len(max(high - low + 1, len(masses)), real=True)  # beyond it masses wrap around
    folded = fft.irfft(fft.rfft(masses, length) ** times, length)
    return pld_pmf.DensePLDPmf(
        losses._discretization,
        times * losses._lower_loss + low,
        np.roll(folded, -low)[: high - low + 1],
        _TAIL - math.expm1(times * math.log1p(-losses._infinity_mass)),
        losses._pessimistic_estimate,
    )


def _kept(masses: Floats, times: int) -> tuple[int, int]:
    """The places in a list that was folded so often beyond which at most `_TAIL` lies, by Chernoff's bound."""
    longest = len(masses)
    step = np.exp(np.arange(longest) / longest)
    with np.errstate(all="ignore"):
        above, below = (
            (times * np.log(_moments(masses, by)) + math.log(2 / _TAIL)) * (longest / _CHERNOFF)
            for by in (step, 1 / step)
        )
    high = min([(longest - 1) * times, *(math.ceil(place) + 1 for place in above if math.isfinite(place))])
    low = max([0, *(math.floor(-place) - 1 for place in below if math.isfinite(place))])
    return low, high


def _moments(masses: Floats, step: Floats) -> Floats:
    """Σ masses · step^j for each order j; in place, as a list of losses may be long."""
    power, found = np.ones_like(masses), []
    for _ in _CHERNOFF:
        power *= step
        found.append(power @ masses)
    return np.array(found)


def sampled_divergence(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
    """The Rényi divergence of Gaussian noise on a Poisson sample, at whole orders α and a rate q between 0 and 1.

    Mironov, Talwar, Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism" (2019), §3.3:
    log Σ_k C(α, k) (1 − q)^(α−k) q^k e^((k² − k)/2σ²), over α − 1.
    """
    alpha, k = np.array(orders)[:, None], np.arange(max(orders) + 1)
    terms = _log_binomials(orders) + k * math.log(rate) + (alpha - k) * math.log1p(-rate)
    terms += (k * k - k) / (2 * noise**2)
    most = terms.max(1, keepdims=True)
    total = most + np.log(np.exp(terms - most).sum(1, keepdims=True))  # (orders, 1)
    return np.asarray((total / (alpha - 1))[:, 0])


@cache
def _log_binomials(orders: tuple[float, ...]) -> Floats:
    """log C(α, k): (orders, most + 1), −∞ where k is above α."""
    alpha, k = np.array(orders)[:, None], np.arange(max(orders) + 1)
    return np.asarray(gammaln(alpha + 1) - gammaln(k + 1) - gammaln(np.maximum(alpha - k + 1, 0)))

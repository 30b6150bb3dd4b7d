"""Privacy losses, Rényi divergences, Gaussian noise's own ε as dp_accounting has them
to the digit, all at once.

On one x86-64 core a distribution takes a 5th to a 48th of dp_accounting's time, its
folding a 9th to a 19th, its ε a 12th, a divergence a 7th to a 240th: so the noise of a
run takes a tenth of one price by PLDAccountant (`make guard`).
"""

import math
from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as plds
from dp_accounting.pld import privacy_loss_mechanism as plm
from scipy import fft
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, ndtr, ndtri

Floats = npt.NDArray[np.float64]

_TAIL = 1e-15  # of the mass, cut off and counted as an endless loss
_CHERNOFF = np.arange(1, 21)  # orders of the bound, over the length of the list
_RISE = 1e-12  # of δ with ε, by rounding
_SHORT = 1000  # losses that dp_accounting multiplies out
_FEW_TERMS = 64
_MOST_TERMS = 1000  # of a series
_SMALL = 30.0  # in logarithms: terms so far below their sum end it


class _Normal:
    """Noise of this deviation: what dp_accounting asks of scipy's `norm`, which takes
    long to make and to ask.
    """

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation

    def cdf(self, x: Any) -> Any:
        return ndtr(np.divide(x, self._deviation))

    def logcdf(self, x: Any) -> Any:
        return log_ndtr(np.divide(x, self._deviation))

    def ppf(self, chance: float) -> float:
        return float(ndtri(chance)) * self._deviation


class _Gaussian(plm.GaussianPrivacyLoss):  # type: ignore[misc]
    def __init__(self, noise: float, rate: float, kind: Any) -> None:
        self._standard_deviation = noise
        self._gaussian_random_variable = _Normal(noise)
        self._pessimistic_estimate = True
        self._log_mass_truncation_bound = -50
        plm.AdditiveNoisePrivacyLoss.__init__(self, 1, False, rate, kind)


def discrete_gaussian(sigma: float, sensitivity: int, grid: float) -> Any:
    """The privacy loss distribution of discrete Gaussian noise:
    `from_discrete_gaussian_mechanism`, quickly.
    """
    noise = plm.DiscreteGaussianPrivacyLoss(sigma, sensitivity)
    ends = noise.connect_dots_bounds()
    x = np.arange(ends.lower_x, ends.upper_x + 1)
    losses = sensitivity * (-0.5 * sensitivity - x) / sigma**2 / grid
    rounded = np.concatenate([np.floor(losses), np.ceil(losses)])
    dots = np.unique(rounded).astype(np.int64)
    # with a loss so large
    last = -0.5 * sensitivity - dots * grid * sigma**2 / sensitivity
    last = np.floor(np.clip(last, ends.lower_x - 1, ends.upper_x)).astype(np.int64)
    deltas = _divergence(noise, dots * grid, last)
    return plds.PrivacyLossDistribution(_connected(grid, dots, deltas))


def gaussian(noise: float, grid: float) -> Any:
    """That of Gaussian noise: `from_gaussian_mechanism`, quickly."""
    return plds.PrivacyLossDistribution(
        _sampled(1.0, noise, grid, plm.AdjacencyType.REMOVE)
    )


def sampled_gaussian(rate: float, noise: float, grid: float) -> Any:
    """That of Gaussian noise on a Poisson sample, at a rate below 1, likewise."""
    removed = _sampled(rate, noise, grid, plm.AdjacencyType.REMOVE)
    added = _sampled(rate, noise, grid, plm.AdjacencyType.ADD)
    return plds.PrivacyLossDistribution(removed, added)


def _sampled(rate: float, sigma: float, grid: float, kind: Any) -> Any:
    noise = _Gaussian(sigma, rate, kind)
    ends = noise.connect_dots_bounds()
    low = math.floor(ends.epsilon_lower / grid)
    high = math.ceil(ends.epsilon_upper / grid)
    dots = np.arange(low, high + 1)
    side = 1 if kind == plm.AdjacencyType.REMOVE else -1
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
        lost > edge,
        _divergence(noise, epsilons, last),
        -np.expm1(epsilons) if side > 0 else 0.0,
    )
    return _connected(grid, dots, deltas)


def _connected(grid: float, dots: npt.NDArray[np.int64], deltas: Floats) -> Any:
    """Masses at the dots (times the grid) that have these δ there, and more between
    (Doroshenko et al., Alg. 1): `create_pmf_pessimistic_connect_dots`, at once. Edges:
    a δ that rises with ε beyond rounding → ValueError.
    """
    if (np.diff(deltas) > _RISE).any():
        raise ValueError("δ rises with ε.")
    deltas = np.minimum.accumulate(deltas)
    gaps = np.diff(dots) * grid
    steps = np.diff(deltas)
    masses = np.zeros(int(dots[-1] - dots[0]) + 1)
    masses[dots - dots[0]] = np.append(1 - deltas[0], steps / np.expm1(-gaps))
    masses[dots[:-1] - dots[0]] += steps / np.expm1(gaps)
    return pld_pmf.DensePLDPmf(
        grid,
        int(dots[0]),
        np.maximum(masses, 0),
        float(deltas[-1]),
        True,
    )


def _divergence(
    noise: Any,
    epsilons: npt.NDArray[Any],
    last: npt.NDArray[Any],
) -> Floats:
    """δ at each ε, where what is up to `last` has a loss above it."""
    with np.errstate(over="ignore"):
        lower = np.exp(epsilons + noise.mu_lower_log_cdf(last))
        deltas = noise.mu_upper_cdf(last) - lower
    return np.asarray(np.clip(np.nan_to_num(deltas, nan=1.0), 0, 1))


def folded(parts: Sequence[tuple[Any, int]]) -> Any:
    """The privacy loss distribution of so many uses of each: `self_compose` and
    `compose`. Guarantee: losses beyond the list have a mass of at most 10⁻¹⁵, counted
    as endless. Edges: different grids → ValueError.
    """
    grids = {distribution._pmf_remove._discretization for distribution, _ in parts}
    if len(grids) > 1:
        raise ValueError("losses on different grids cannot be added.")
    is_symmetric = all(distribution._symmetric for distribution, _ in parts)
    sides = []
    for side in ("_pmf_remove",) if is_symmetric else ("_pmf_remove", "_pmf_add"):
        one_sided = [
            (getattr(distribution, side), times) for distribution, times in parts
        ]
        sides.append(_folded(one_sided))
    return plds.PrivacyLossDistribution(*sides)


def _folded(parts: Sequence[tuple[Any, int]]) -> Any:
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    if _is_short(parts):
        composed = [losses.self_compose(times) for losses, times in parts]
        return reduce(lambda left, right: left.compose(right, _TAIL), composed)
    parts = [(_dense(losses), times) for losses, times in parts]
    lists = [(losses._probs, times) for losses, times in parts]
    low, high = _retained_range(lists)
    kept = high - low + 1
    size = max(kept, *(len(masses) for masses, _ in lists))
    length = fft.next_fast_len(size, real=True)  # beyond it masses wrap around
    with np.errstate(divide="ignore"):
        finite = sum(
            times * float(np.log1p(-losses._infinity_mass)) for losses, times in parts
        )
    spectra = [fft.rfft(masses, length) ** times for masses, times in lists]
    masses = fft.irfft(reduce(np.multiply, spectra), length)
    lowest = sum(times * losses._lower_loss for losses, times in parts)
    return pld_pmf.DensePLDPmf(
        parts[0][0]._discretization,
        lowest + low,
        np.roll(masses, -low)[:kept],
        _TAIL - math.expm1(finite),
        True,
    )


def _is_short(parts: Sequence[tuple[Any, int]]) -> bool:
    """Whether the losses are so few that dp_accounting multiplies them out."""
    if any(isinstance(losses, pld_pmf.DensePLDPmf) for losses, _ in parts):
        return False
    log_losses = sum(times * math.log(losses.size) for losses, times in parts)
    return log_losses <= math.log(_SHORT)


def _dense(losses: Any) -> Any:
    """A mass for every loss between the least and the largest."""
    if isinstance(losses, pld_pmf.DensePLDPmf):
        return losses
    positions, masses = _listed(losses._loss_probs)
    low = int(positions.min())
    dense = np.zeros(int(positions.max()) - low + 1)
    dense[positions - low] = masses
    return pld_pmf.DensePLDPmf(
        losses._discretization,
        low,
        dense,
        losses._infinity_mass,
        losses._pessimistic_estimate,
    )


def _listed(masses: dict[int, float]) -> tuple[npt.NDArray[np.int64], Floats]:
    """The losses, in units of the grid, and the mass of each."""
    losses = np.fromiter(masses, np.int64, len(masses))
    return losses, np.fromiter(masses.values(), np.float64, len(masses))


def _retained_range(lists: Sequence[tuple[Floats, int]]) -> tuple[int, int]:
    """The first and the last position in lists that were folded so often, beyond which
    at most `_TAIL` lies, by Chernoff's bound.
    """
    last = sum(n * (len(masses) - 1) for masses, n in lists)
    upper = [math.ceil(position) + 1 for position in _chernoff_bounds(lists, 1)]
    lower = [math.floor(-position) - 1 for position in _chernoff_bounds(lists, -1)]
    return max([0, *lower]), min([last, *upper])


def _chernoff_bounds(lists: Sequence[tuple[Floats, int]], sign: int) -> list[float]:
    """Chernoff's bounds on the position, times `sign`, beyond which half of `_TAIL`
    lies: those of all orders that are finite.
    """
    longest = max(len(masses) for masses, _ in lists)
    with np.errstate(all="ignore"):
        log_moments = sum(
            n * np.log(_moments(masses, sign / longest)) for masses, n in lists
        )
        bounds = (log_moments + math.log(2 / _TAIL)) * (longest / _CHERNOFF)
    return [float(bound) for bound in bounds if math.isfinite(bound)]


def _moments(masses: Floats, scale: float) -> Floats:
    """Σ masses · e^(scale · j · position) for each order j; computed in place, as a
    list of losses may be long.
    """
    step = np.exp(scale * np.arange(len(masses)))
    power = np.ones_like(masses)
    moments = []
    for _ in _CHERNOFF:
        power *= step
        moments.append(power @ masses)
    return np.array(moments)


def least_epsilon(distribution: Any, delta: float) -> float:
    """The least ε at which δ is enough: `get_epsilon_for_delta`, quickly."""
    return max(_least_epsilon(losses, delta) for losses in _sides(distribution))


def _sides(distribution: Any) -> list[Any]:
    """The losses of who left, and where they differ of who joined."""
    if distribution._symmetric:
        return [distribution._pmf_remove]
    return [distribution._pmf_remove, distribution._pmf_add]


def _least_epsilon(losses: Any, delta: float) -> float:
    """δ(ε) = P(loss is endless) + Σ p (1 − e^(ε − loss)) over losses above ε, from the
    largest down.
    """
    if losses._infinity_mass > delta:
        return math.inf
    lost, masses = _falling_losses(losses)
    # of the losses before each
    upper = np.cumsum(np.concatenate([[losses._infinity_mass], masses]))
    lower = np.cumsum(np.concatenate([[0.0], np.exp(-lost) * masses]))
    with np.errstate(all="ignore"):
        epsilons = np.log((upper - delta) / lower)
        is_above = (upper > delta) & (lower > 0)
        reaches = is_above & (epsilons >= np.append(lost, 0))
    last = int(reaches.argmax()) if reaches.any() else len(lost)
    # Where e^−loss is 0 the loss itself is a bound.
    seen = slice(1, last + 1)
    is_unseen = (upper[seen] >= delta) & (lower[seen] == 0)
    if is_unseen.any():
        return float(lost[is_unseen.argmax()])
    if upper[last] <= lower[last] + delta:
        return 0.0
    return math.log((upper[last] - delta) / lower[last])


def _falling_losses(losses: Any) -> tuple[Floats, Floats]:
    """The losses above 0, the largest first, and their masses."""
    if isinstance(losses, pld_pmf.DensePLDPmf):
        lowest = losses._lower_loss
        positions = np.arange(lowest, lowest + losses.size)
        masses = losses._probs
    else:
        positions, masses = _listed(losses._loss_probs)
        order = positions.argsort()
        positions = positions[order]
        masses = masses[order]
    first = int(np.searchsorted(positions, 0, "right"))
    above = positions[first:] * losses._discretization
    return above[::-1], masses[first:][::-1]


def largest_delta(distribution: Any) -> float:
    """δ at ε = 0: P(loss is endless) + Σ p (1 − e^−loss) over losses above 0."""
    sides = _sides(distribution)
    return max(float(losses.get_delta_for_epsilon(0.0)) for losses in sides)


def gaussian_distance(noise: float) -> float:
    """The total variation of two normal distributions a distance of 1 apart: 2Φ(1/2σ) −
    1.
    """
    return float(2 * ndtr(0.5 / noise) - 1) * (1 + 1e-12)


def converted(divergence: Floats, orders: Floats, delta: float) -> float:
    """The least ε at δ > 0 by divergences ≥ 0 of these orders α: `compute_epsilon`, all
    orders at once. Canonne, Kamath, Steinke 2020, Prop. 12; and 0 where δ ≥ √(1 −
    e^−KL) (α near 1 is left out, and of no use).
    """
    large = orders > 1.01
    alpha = orders[large]
    lost = divergence[large]
    if np.any(delta**2 + np.expm1(-divergence) > 0):
        return 0.0
    epsilons = lost + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)
    return max(0.0, float(epsilons.min()))


def gaussian_epsilon(noise: float, delta: float) -> float:
    """The ε of Gaussian noise at 0 < δ < 1 (Balle and Wang 2018, Thm 8):
    `get_epsilon_gaussian`, quickly.
    """
    log_delta = math.log(delta)

    def excess(epsilon: float) -> float:
        edge = epsilon * noise + 0.5 / noise
        x = log_ndtr(1 / noise - edge)
        y = epsilon + log_ndtr(-edge)
        log_difference = x + np.log1p(-np.exp(y - x)) if y <= x else -np.inf
        return float(log_difference) - log_delta

    if excess(0.0) < 0:
        return 0.0
    low = 0.0
    high = 1.0
    while excess(high) > 0:
        low = high
        high = high * 10
    return float(brentq(excess, low, high, xtol=1e-12))


def gaussian_bound(noise: float, delta: float) -> float:
    """The analytic ε (Balle and Wang 2018); where its root finder is too coarse, that
    of zCDP (Bun, Steinke 2016).
    """
    if 1e-4 <= noise <= 1e8:
        with np.errstate(all="ignore"):
            return gaussian_epsilon(noise, delta) + 1e-12  # its root finder's tolerance
    return (0.5 / noise + math.sqrt(-2 * math.log(delta))) / noise * (1 + 1e-12)


def sampled_divergence(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
    """The Rényi divergence of Gaussian noise on a Poisson sample, at orders α above 1
    and a rate q between 0 and 1. Mironov, Talwar, Zhang, "Rényi Differential Privacy of
    the Sampled Gaussian Mechanism" (2019), §3.3. Edges: an order whose series does not
    end → infinity: it is left out, which only raises ε.
    """
    alpha = np.array(orders)
    divergences = np.empty(len(orders))
    is_whole = alpha == np.floor(alpha)
    # all sums of a table are as long as that of its largest order
    is_large = alpha > _FEW_TERMS
    kinds = (
        (_series, ~is_whole),
        (_sums, is_whole & is_large),
        (_sums, is_whole & ~is_large),
    )
    for log_moments, chosen in kinds:
        if chosen.any():
            own = alpha[chosen]
            moments = log_moments(rate, noise, tuple(own))
            divergences[chosen] = moments / (own - 1)
    return divergences


def _sums(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
    """log Σ_k C(α, k) (1 − q)^(α−k) q^k e^((k² − k)/2σ²), for whole orders."""
    alpha = np.array(orders)[:, None]
    k = np.arange(max(orders) + 1)
    sampled = k * math.log(rate)
    others = (alpha - k) * math.log1p(-rate)
    terms = _log_binomials(orders) + sampled + others
    terms += (k * k - k) / (2 * noise**2)
    largest = terms.max(1)
    sums = np.exp(terms - largest[:, None]).sum(1)
    return np.asarray(largest + np.log(sums))


def _series(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
    """The same for others: two series, of what lies below and above z₀, both of terms
    that all count as positive.
    """
    alpha = np.array(orders)
    results = np.full(len(orders), np.inf)
    edge = noise**2 * math.log(1 / rate - 1) + 0.5
    below = above = last = before = np.full(len(orders), -np.inf)
    log_rate = math.log(rate)
    log_rest = math.log1p(-rate)
    twice_variance = 2 * noise**2
    for i in range(_MOST_TERMS):
        j = alpha - i
        binomial = gammaln(alpha + 1) - gammaln(i + 1) - gammaln(j + 1)
        low = binomial + i * log_rate + j * log_rest
        low += (i * i - i) / twice_variance + log_ndtr((edge - i) / noise)
        high = binomial + j * log_rate + i * log_rest
        high += (j * j - j) / twice_variance + log_ndtr((j - edge) / noise)
        below = np.logaddexp(below, low)
        above = np.logaddexp(above, high)
        total = np.logaddexp(below, above)
        is_falling = (low < last) & (high < before)
        is_small = np.maximum(low, high) < total - _SMALL
        is_new = is_falling & is_small & np.isinf(results)
        results = np.where(is_new, total, results)
        if np.isfinite(results).all():
            break
        last = low
        before = high
    return results


@cache
def _log_binomials(orders: tuple[float, ...]) -> Floats:
    """log C(α, k): (orders, most + 1), −∞ where k is above α."""
    alpha = np.array(orders)[:, None]
    k = np.arange(max(orders) + 1)
    return np.asarray(
        gammaln(alpha + 1) - gammaln(k + 1) - gammaln(np.maximum(alpha - k + 1, 0))
    )

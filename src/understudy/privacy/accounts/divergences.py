"""Rényi divergences, and Gaussian noise's own ε, as dp_accounting computes them, all orders and terms at once.

Its loops over orders and over terms take most of the time of a quick price. What is here gives its numbers to the last
digits.
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr

Floats = npt.NDArray[np.float64]

_FEW_TERMS = 64
_MOST_TERMS = 1000  # of a series
_SMALL = 30.0  # in logarithms: terms so far below their sum end it


def converted(divergence: Floats, orders: Floats, delta: float) -> float:
    """The least ε at δ > 0 by divergences ≥ 0 of these orders α: `compute_epsilon`, all orders at once.

    Canonne, Kamath, Steinke 2020, Prop. 12; and 0 where δ ≥ √(1 − e^−KL) (α near 1 is left out, and of no use).
    """
    large = orders > 1.01
    alpha, lost = orders[large], divergence[large]
    if np.any(delta**2 + np.expm1(-divergence) > 0):
        return 0.0
    found = lost + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)
    return max(0.0, float(found.min()))


def gaussian_epsilon(noise: float, delta: float) -> float:
    """The ε of Gaussian noise at 0 < δ < 1 (Balle and Wang 2018, Thm 8): `get_epsilon_gaussian`, quickly."""
    most = math.log(delta)

    def excess(epsilon: float) -> float:
        edge = epsilon * noise + 0.5 / noise
        x, y = log_ndtr(1 / noise - edge), epsilon + log_ndtr(-edge)
        return float(x + np.log1p(-np.exp(y - x)) if y <= x else -np.inf) - most

    if excess(0.0) < 0:
        return 0.0
    low, high = 0.0, 1.0
    while excess(high) > 0:
        low, high = high, high * 10
    return float(brentq(excess, low, high, xtol=1e-12))


def gaussian_bound(noise: float, delta: float) -> float:
    """The analytic ε (Balle and Wang 2018); where its root finder is too coarse, that of zCDP (Bun, Steinke 2016)."""
    if 1e-4 <= noise <= 1e8:
        with np.errstate(all="ignore"):
            return gaussian_epsilon(noise, delta) + 1e-12  # its root finder's tolerance
    return (0.5 / noise + math.sqrt(-2 * math.log(delta))) / noise * (1 + 1e-12)


def sampled_divergence(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
    """The Rényi divergence of Gaussian noise on a Poisson sample, at orders α above 1 and a rate q between 0 and 1.

    Mironov, Talwar, Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism" (2019), §3.3.
    Edges: an order whose series does not end → infinity: it is left out, which only raises ε.
    """
    alpha, found = np.array(orders), np.empty(len(orders))
    broken = alpha != np.floor(alpha)
    large = alpha > _FEW_TERMS  # all sums of a table are as long as that of its largest order
    parts = ((_series, broken), (_sums, ~broken & large), (_sums, ~broken & ~large))
    for part, some in parts:
        if some.any():
            found[some] = part(rate, noise, tuple(alpha[some])) / (alpha[some] - 1)
    return found


def _sums(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
    """log Σ_k C(α, k) (1 − q)^(α−k) q^k e^((k² − k)/2σ²), for whole orders."""
    alpha, k = np.array(orders)[:, None], np.arange(max(orders) + 1)
    terms = _log_binomials(orders) + k * math.log(rate) + (alpha - k) * math.log1p(-rate)
    terms += (k * k - k) / (2 * noise**2)
    most = terms.max(1)
    return np.asarray(most + np.log(np.exp(terms - most[:, None]).sum(1)))


def _series(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
    """The same for others: two series, of what lies below and above z₀, both of terms that all count as positive."""
    alpha, found = np.array(orders), np.full(len(orders), np.inf)
    edge = noise**2 * math.log(1 / rate - 1) + 0.5
    below = above = last = before = np.full(len(orders), -np.inf)
    for i in range(_MOST_TERMS):
        j = alpha - i
        binomial = gammaln(alpha + 1) - gammaln(i + 1) - gammaln(j + 1)
        low = binomial + i * math.log(rate) + j * math.log1p(-rate)
        low += (i * i - i) / (2 * noise**2) + log_ndtr((edge - i) / noise)
        high = binomial + j * math.log(rate) + i * math.log1p(-rate)
        high += (j * j - j) / (2 * noise**2) + log_ndtr((j - edge) / noise)
        below, above = np.logaddexp(below, low), np.logaddexp(above, high)
        total = np.logaddexp(below, above)
        done = (low < last) & (high < before) & (np.maximum(low, high) < total - _SMALL)
        found = np.where(done & np.isinf(found), total, found)
        if np.isfinite(found).all():
            break
        last, before = low, high
    return found


@cache
def _log_binomials(orders: tuple[float, ...]) -> Floats:
    """log C(α, k): (orders, most + 1), −∞ where k is above α."""
    alpha, k = np.array(orders)[:, None], np.arange(max(orders) + 1)
    return np.asarray(gammaln(alpha + 1) - gammaln(k + 1) - gammaln(np.maximum(alpha - k + 1, 0)))

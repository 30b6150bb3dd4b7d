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


def sampled_divergence(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
    """The Rényi divergence of Gaussian noise on a Poisson sample, at whole orders α and a rate q between 0 and 1.

    Mironov, Talwar, Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism" (2019), §3.3:
    log Σ_k C(α, k) (1 − q)^(α−k) q^k e^((k² − k)/2σ²), over α − 1.
    """
    found = np.empty(len(orders))
    large = np.array(orders) > _FEW_TERMS  # a sum is as long as the largest order beside it
    for some in (large, ~large):
        if some.any():
            found[some] = _divergences(rate, noise, tuple(np.array(orders)[some]))
    return found


def _divergences(rate: float, noise: float, orders: tuple[float, ...]) -> Floats:
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

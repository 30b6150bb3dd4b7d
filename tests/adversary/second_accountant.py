"""A second accountant, which shares nothing with the first: two distributions, written
out and multiplied.

For every kind of event that a ledger can hold, `pairs` gives what is seen with a person
and without them as two lists of log-probabilities, in both directions. Continuous noise
is cut into bins, and where lists grow long, outcomes of about the same loss are counted
as one. Both only throw away what could have been seen, so that the ε of these lists is
a lower bound of the true one, whatever their length.
"""

import math
from functools import reduce

import dp_accounting as dp
import numpy as np
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from scipy.special import log_ndtr, logsumexp

from understudy.privacy.accounts.accounting import DiscreteGaussian, PureDp, Reveals

# log-probabilities of the same outcomes, with the person and without
Pair = tuple[np.ndarray, np.ndarray]
BINS = 250


def log_mass(edges, log_cdf):
    """log of the mass between neighbouring edges, for a symmetric law about 0, without
    cancellation in its tails.
    """
    low = edges[:-1]
    high = edges[1:]
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = log_cdf(low)
        above = log_cdf(high)
        return np.where(
            np.isneginf(below), above, above + np.log1p(-np.exp(below - above))
        )


def shifted(scale, log_cdf, reach) -> list[Pair]:
    """A number that is moved by 1, under continuous noise."""
    edges = np.concatenate(
        [[-np.inf], np.linspace(-reach * scale, 1 + reach * scale, BINS), [np.inf]]
    )
    pair = log_mass((edges - 1) / scale, log_cdf), log_mass(edges / scale, log_cdf)
    return [pair, pair[::-1]]


def log_laplace_cdf(x):
    return np.where(x < 0, x - math.log(2), np.log1p(-np.exp(-np.abs(x)) / 2))


def counted(log_weight, shift, reach) -> list[Pair]:
    """A whole number that is moved by `shift`, under whole-number noise of these
    weights.
    """
    # what lies beyond is left out: that has a weight below e⁻⁶⁰
    z = np.arange(-reach - shift, reach + 1)
    weights = log_weight(z)
    pair = log_weight(z - shift) - logsumexp(weights), weights - logsumexp(weights)
    return [pair, pair[::-1]]


def mixed(rate, inner: list[Pair]) -> list[Pair]:
    """With the person: drawn or not. The first of the inner pairs is that of adding."""
    with_person, without = inner[0]
    if rate == 0:
        return [(without, without)]
    pair = (
        np.logaddexp(math.log1p(-rate) + without, math.log(rate) + with_person)
        if rate < 1
        else with_person,
        without,
    )
    return [pair, pair[::-1]]


def joint(one: Pair, other: Pair) -> Pair:
    p, q = ((a[:, None] + b).ravel() for a, b in zip(one, other, strict=True))
    if len(p) <= 2 * BINS:
        return p, q
    with np.errstate(invalid="ignore"):
        loss = np.nan_to_num(p - q, nan=0.0)  # of what cannot be: anywhere
    order = np.argsort(loss)
    matter = loss[(np.maximum(p, q) > -40) & (np.abs(loss) < 1e3)]
    cuts = np.unique(
        np.searchsorted(loss[order], np.linspace(matter.min(), matter.max(), 4 * BINS))
    )
    cuts = np.concatenate([[0], cuts[(cuts > 0) & (cuts < len(p))]])
    return tuple(np.logaddexp.reduceat(side[order], cuts) for side in (p, q))


def composed(parts: list[list[Pair]]) -> list[Pair]:
    """Each part with its directions; a person is added to all of them, or taken from
    all.
    """
    ways = max(map(len, parts), default=1)
    one = (np.zeros(1), np.zeros(1))
    return [
        reduce(joint, (part[way % len(part)] for part in parts), one)
        for way in range(ways)
    ]


def response(each) -> Pair:
    odds = np.array([each, 0.0]) - np.logaddexp(0, each)
    return odds, odds[::-1]


def pairs(event) -> list[Pair]:
    match event:
        case dp.NoOpDpEvent():
            return [(np.zeros(1), np.zeros(1))]
        case dp.NonPrivateDpEvent():
            return [(np.array([0, -np.inf]), np.array([-np.inf, 0]))]
        case dp.GaussianDpEvent():
            return shifted(event.noise_multiplier, log_ndtr, 12)
        case dp.LaplaceDpEvent():
            return shifted(event.noise_multiplier, log_laplace_cdf, 3)
        case DiscreteLaplaceDpEvent():
            reach = math.ceil(60 / event.noise_parameter)
            return counted(
                lambda z: -np.abs(z) * event.noise_parameter, event.sensitivity, reach
            )
        case DiscreteGaussian():
            reach = math.ceil(11 * event.sigma) + event.sensitivity
            return counted(
                lambda z: -((z / event.sigma) ** 2) / 2, event.sensitivity, reach
            )
        case PureDp():
            return [response(event.epsilon)]
        case dp.ZCDpEvent():
            # what such a mechanism may be: Gaussian noise, and randomized response of ε
            # = ξ
            parts = [[response(event.xi)]]
            if event.rho:
                parts.append(shifted((2 * event.rho) ** -0.5, log_ndtr, 12))
            return composed(parts)
        case Reveals():
            with np.errstate(divide="ignore"):
                shown = np.log([event.delta, 0.0, 1 - event.delta])
            return [(shown, shown[[1, 0, 2]])]
        case dp.PoissonSampledDpEvent():
            return mixed(event.sampling_probability, pairs(event.event))
        case dp.ComposedDpEvent():
            return composed([pairs(part) for part in event.events])
        case dp.SelfComposedDpEvent():
            return composed([pairs(event.event)] * event.count)
    raise NotImplementedError(
        f"{type(event).__name__} needs a second computation of its price."
    )


def delta_of(pair: Pair, eps: float) -> float:
    p, q = pair
    with np.errstate(invalid="ignore", over="ignore"):
        gain = np.where(np.isneginf(q), 1.0, -np.expm1(np.minimum(eps + q - p, 0)))
    return float(np.sum(np.exp(p) * np.where(np.isneginf(p), 0, gain)))


def least_epsilon(seen: list[Pair], delta: float) -> float:
    """By bisection, from below: ε at which the worse direction still shows more
    than δ.
    """
    worst = 0.0
    for pair in seen:
        if delta_of(pair, math.inf) > delta:
            return math.inf
        with np.errstate(invalid="ignore"):
            max_loss = float(
                np.nanmax(np.where(np.isneginf(pair[1]), 0, pair[0] - pair[1]))
            )
        low = 0.0
        high = max(max_loss, 0.0)
        for _ in range(45):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if delta_of(pair, middle) > delta else (low, middle)
            )
        worst = max(worst, low)
    return worst

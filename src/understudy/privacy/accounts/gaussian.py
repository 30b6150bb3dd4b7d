"""Gaussian accounting that needs no library: what whole-number noise takes off a
variance, and the ε of a Gaussian mechanism in closed form.

Balle, Wang, "Improving the Gaussian mechanism for differential privacy" (ICML 2018),
Theorem 8. `losses.gaussian_epsilon` solves the same equation to 10⁻¹² by scipy, for
prices; what stands here checks a stated price in a process that loads no accountant.
"""

import math

# Discrete Gaussian noise of variance σ² costs no more than continuous noise of variance
# σ² − 9: the proof in `privacy/secure/moments.py` smooths by a scale of 3.
SMOOTHING_SCALE = 3.0
SMOOTHING_VARIANCE = SMOOTHING_SCALE**2

MAX_EPSILON = 500.0
_BISECTIONS = 100


def closed_form_epsilon(multiplier: float, delta: float) -> float:
    """The ε of a Gaussian mechanism with this noise multiplier, at δ; infinity where it
    is above `MAX_EPSILON`.
    """
    lower = 0.0
    upper = MAX_EPSILON
    if not multiplier or not 0 < delta < 1:
        return math.inf
    if _gaussian_delta(multiplier, upper) > delta:
        return math.inf
    for _ in range(_BISECTIONS):
        middle = (lower + upper) / 2
        if _gaussian_delta(multiplier, middle) > delta:
            lower = middle
        else:
            upper = middle
    return upper


def _gaussian_delta(multiplier: float, epsilon: float) -> float:
    half_sensitivity = 0.5 / multiplier
    shift = epsilon * multiplier
    upper_tail = _normal_cdf(half_sensitivity - shift)
    return upper_tail - math.exp(epsilon) * _normal_cdf(-half_sensitivity - shift)


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))

"""The budget ρ of the least Gaussian noise that is (ε, δ)-private: the noise that ours
has.
"""

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr


def gaussian_rho(epsilon: float, delta: float) -> float:
    """ρ = 1 / 2σ² at sensitivity 1.

    Balle and Wang, "Improving the Gaussian mechanism for differential privacy" (ICML
    2018), Theorem 8.
    """

    def excess(sigma: float) -> float:
        far = -0.5 / sigma - epsilon * sigma
        near = 0.5 / sigma - epsilon * sigma
        return float(ndtr(near) - math.exp(epsilon + log_ndtr(far)) - delta)

    sigma = brentq(excess, 1e-3, 1e4 / epsilon, xtol=1e-12)
    return 1 / (2 * sigma**2)

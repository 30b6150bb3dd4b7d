"""Randomness and noise: generators, whole-number noise for counts, Poisson samples, the
exponential mechanism.
"""

from understudy.privacy.noise.discrete import (
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    Exponential,
    rounded_up,
)
from understudy.privacy.noise.rng import (
    Device,
    FastRng,
    Normals,
    Rng,
    SecureRng,
    poisson_samples,
)

__all__ = [
    "Device",
    "DiscreteGaussianNoise",
    "DiscreteLaplaceNoise",
    "Exponential",
    "FastRng",
    "Normals",
    "Rng",
    "SecureRng",
    "poisson_samples",
    "rounded_up",
]

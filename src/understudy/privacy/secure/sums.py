"""Sums of which the server sees the total alone, with noise that no holder knows enough of to take off.

Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (CCS 2017), §4.0.1: every two
holders share a random pad that one adds and the other takes off; the pads cancel in the sum of all and hide
everything else. Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism" (ICML 2021), Thm 9 and
Cor. 10, for the noise.
Paper → code: PRG(s_uv) → `Channel.pad`; n → parties; Cor. 10's τ → `closeness`.
Differs from the papers: no shares of keys are kept for the case that a holder goes away. One that goes before the
sum is asked for is left out and the pads are agreed anew; one that goes later ends the sum, since recovering its
pads would let a server that lies about who went away unmask a holder's counts.

Noise. Of M holders up to t (`colluding`) may pool what they know, also with the server: their shares protect nobody
from them. Each holder adds a discrete Gaussian of scale σ/√(M − t). The M − t others' shares then add up to
variance σ², and their sum is a discrete Gaussian of scale σ but for a factor of e^±τ in every probability, with
τ ≤ 10 Σ_{k<n} exp(−2π²s²k/(k+1)) for n shares of scale s (Cor. 10; Thm 9 alone gives half of it: 5 for each of the
n − 1 additions). Where fewer than t pool, the further shares are independent noise on top, which costs nothing.
*Price.* One person moves each of c cells by 1, and no other. Let P, Q be the c moved cells with and without that
person under one discrete Gaussian of scale σ each, and P′, Q′ under sums of shares. As P′ ≤ e^(cτ)P, Q′ ≥ e^(−cτ)Q,

    P′(S) − e^(ε+2cτ) Q′(S) ≤ e^(cτ) (P(S) − e^ε Q(S)) ≤ e^(cτ) δ:

the sum is (ε + 2cτ, e^(cτ) δ)-DP where c discrete Gaussians are (ε, δ)-DP. With s ≥ 4 the exponents are below 10⁻⁵⁵ for
a million cells and 100,000 holders: far below the rounding of any ε that is printed. Where t = M − 1, each share is
the whole σ and no such term arises.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.privacy.noise import rounded_up
from understudy.privacy.secure.channel import Channel
from understudy.privacy.secure.ring import Ring, Words

_LEAST = 4.0  # of a share's scale, where several shares must look like one discrete Gaussian


def blind(words: Words, channels: Iterable[Channel], ring: Ring, *, stream: int, about: bytes = b"") -> Words:
    """The words under a pad with each peer; over all ends that were told the same `about` them, pads add up to zero.

    Guarantee: with at least one channel whose peer does not help the onlooker, the result is uniform to it, whatever
    the words. Edges: no channels → the words as they are; a stream is for one message alone.
    """
    for channel in channels:
        words = words + channel.pad(ring, stream, *words.shape, about=about)
    return words


def noise_share(sigma: Fraction, parties: int, *, colluding: int = 1) -> Fraction:
    """The scale of one holder's noise, so that σ remains against any `colluding` of the `parties`.

    Guarantee: see the module.
    Edges: a single holder adds σ; of no noise each adds none; colluding ≥ parties → ConfigError.
    """
    whole(parties=parties, colluding=colluding)
    if parties > 1 and colluding >= parties:
        raise ConfigError(
            f"colluding must be below the number of parties, {parties}, not {colluding}: against all others "
            f"together it is {parties - 1}. Nothing was charged."
        )
    if (honest := parties - colluding) <= 1 or not sigma:
        return sigma
    return rounded_up(max(float(sigma) / math.sqrt(honest) * (1 + 1e-12), _LEAST))


def closeness(scale: float, shares: int) -> float:
    """Cor. 10: log-probabilities of a sum of shares are this near to those of one discrete Gaussian.

    Edges: proven for scales from 1/2 on; smaller → infinity.
    """
    if scale < 0.5:
        return math.inf
    return 10 * math.fsum(math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in range(1, shares))

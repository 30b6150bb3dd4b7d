"""Sums of which the server sees the total alone, with noise that no holder knows enough of to take off; and products of
two holders' rows in two shares that tell nothing alone. Step by step, and who sees what: docs/secure_products.md.

Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (CCS 2017), §4.0.1, for the
pads; Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism" (ICML 2021), Thm 9 and Cor. 10, for the
noise; Beaver, "Efficient multiparty protocols using circuit randomization" (CRYPTO 1991), for a matrix product.
Paper → code: PRG(s_uv) → `Channel.pad`; n → parties; R, S → `Ring.uniform(seed, chunk)`; C₁ → the last stream of the
first seed; C₂ → `Dealer.correction`.
Differs from the papers: no shares of keys are kept for the case that a holder goes away; R, S and C₁ are expanded from
32-byte seeds, people come in chunks whose masks are made when they are needed, and C₂ alone is sent as numbers, so that
memory and the dealer's messages do not grow with people.

*Noise.* Of M holders up to t (`colluding`) may pool what they know. Each holder adds a discrete Gaussian of scale
σ/√(M − t). The M − t others' shares then add up to variance σ², and their sum is a discrete Gaussian of scale σ but for
a factor of e^±τ in every probability, with τ ≤ 10 Σ_{k<n} exp(−2π²s²k/(k+1)) for n shares of scale s (Cor. 10; Thm 9
alone gives half of it: 5 for each of the n − 1 additions). Further shares are independent noise on top.
*Price.* One person moves each of c cells by 1, and no other. Let P, Q be the c moved cells with and without that
person under one discrete Gaussian of scale σ each, and P′, Q′ under sums of shares. As P′ ≤ e^(cτ)P, Q′ ≥ e^(−cτ)Q,

    P′(S) − e^(ε+2cτ) Q′(S) ≤ e^(cτ) (P(S) − e^ε Q(S)) ≤ e^(cτ) δ:

the sum is (ε + 2cτ, e^(cτ) δ)-DP where c discrete Gaussians are (ε, δ)-DP. With s ≥ 4 the exponents are below 10⁻⁵⁵ for
a million cells and 100,000 holders: far below the rounding of any ε that is printed. Where t = M − 1, each share is
the whole σ and no such term arises.

Guarantee: what a holder gets from the dealer and from the other is uniform and independent of the other's matrix.
Edges: the dealer could unmask X − R and Y − S, so these travel under keys that it does not have (`channel`); a
share alone tells the dealer RᵀY, so a share leaves its holder only blinded (`blind`). A dealer that pools what
it knows with one holder learns the other's rows.
"""

import math
import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError, MessageError
from understudy.privacy.noise import rounded_up
from understudy.privacy.secure.channel import Channel
from understudy.privacy.secure.ring import SEED, Bits, Ring, Words

_CORRECTION = 2**64 - 1  # the stream of C₁; the streams from 0 on are the masks of the chunks
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
    """The scale of one holder's noise, so that σ remains against any `colluding` of the `parties`. Guarantee: see the
    module. Edges: a single holder adds σ; of no noise each adds none; colluding ≥ parties → ConfigError.
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


class Dealer:
    """Correlated randomness for one product: `seeds` for the two holders, then the second one's `correction`."""

    def __init__(self, ring: Ring, widths: tuple[int, int], seeds: tuple[bytes, bytes] | None = None) -> None:
        self.ring, self.widths = ring, widths
        self.seeds = seeds or (os.urandom(SEED), os.urandom(SEED))
        self._product = np.zeros(widths, dtype=ring.dtype)
        self._chunks = 0

    def deal(self, people: int) -> None:
        """Go through the masks of one more chunk of people."""
        r, s = (
            self.ring.uniform(seed, self._chunks, people, width)
            for seed, width in zip(self.seeds, self.widths, strict=True)
        )
        self._product += self.ring.product(r, s)
        self._chunks += 1

    def correction(self) -> Words:
        """C₂ = RᵀS − C₁, over the chunks so far."""
        return self._product - self.ring.uniform(self.seeds[0], _CORRECTION, *self.widths)


class Factor:
    """One holder's side of a product: mask each chunk for the other, take the other's, and end with a share. Guarantee:
    see the module; the masks of a chunk are used once, since chunks are counted here. Edges: a chunk of another shape,
    or one taken before the own one was masked → MessageError, nothing changes.
    """

    def __init__(self, ring: Ring, seed: bytes, *, first: bool, width: int, peer_width: int) -> None:
        self.ring, self.seed, self.first = ring, seed, first
        self.width, self.peer_width = width, peer_width
        self.masked = self.taken = 0  # chunks
        shape = (width, peer_width) if first else (peer_width, width)
        self._total = np.zeros(shape, dtype=ring.dtype)

    def mask(self, x: Bits | Words) -> Words:
        """X − R of the next chunk: (n, width)."""
        if x.ndim != 2 or x.shape[1] != self.width:
            raise MessageError(f"a chunk of {self.width} columns was due, not {x.shape}. Nothing was sent.")
        masked = self.ring.words(x) - self.ring.uniform(self.seed, self.masked, *x.shape)
        self.masked += 1
        return masked

    def take(self, other: Words, x: Bits | Words) -> None:
        """Multiply the other's masked chunk with the same people here."""
        if other.shape != (len(x), self.peer_width) or self.taken >= self.masked:
            raise MessageError(
                f"a masked chunk of {(len(x), self.peer_width)} was due, not {other.shape}. Nothing was computed."
            )
        if self.first:
            self._total += self.ring.product(self.ring.uniform(self.seed, self.taken, *x.shape), other)
        else:
            self._total += self.ring.product(other, x)
        self.taken += 1

    def share(self, correction: Words | None = None) -> Words:
        """This side's share of XᵀY: (first's width, second's width). The second holder brings the correction."""
        if (correction is None) != self.first or self.taken != self.masked:
            raise MessageError("the product is not complete. Nothing was sent.")
        if correction is None:
            correction = self.ring.uniform(self.seed, _CORRECTION, *self._total.shape)
        elif correction.shape != self._total.shape:
            raise MessageError(
                f"a correction of {self._total.shape} was due, not {correction.shape}. Nothing was sent."
            )
        return self._total + correction

    def state_dict(self) -> dict[str, Any]:
        return {"masked": self.masked, "taken": self.taken, "total": self.ring.signed(self._total)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.masked, self.taken = int(state["masked"]), int(state["taken"])
        total: torch.Tensor = state["total"]
        self._total = self.ring.words(total)

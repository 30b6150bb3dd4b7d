"""Whole numbers modulo a prime below 2³²: sums that hide, and products that can be checked.

Additive shares need a group; a check by random products (`sketch`) needs that no two numbers but zero multiply to zero,
which 2³² does not give. A prime below 2³² keeps every product below 2⁶⁴. Matrix products are made of doubles, by
limbs of 16 bits, whose sums over up to 2²¹ terms are exact.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.errors import ConfigError
from understudy.privacy.noise.aes import BLOCK, keystream

Numbers = NDArray[np.uint64]  # of the field

PRIME = 2**32 - 5  # the largest below 2³²
_LIMB = 16  # bits
_MOST = 1 << 21  # terms of a sum of products of limbs, below 2⁵³


@cache
def _is_prime(number: int) -> bool:
    return all(number % d for d in range(2, math.isqrt(number) + 1))


@dataclass(frozen=True)
class Field:
    """The whole numbers modulo `prime`, as uint64 arrays of numbers below it."""

    prime: int = PRIME

    def __post_init__(self) -> None:
        if not 2 < self.prime < 2**32 or not _is_prime(self.prime):
            raise ConfigError(f"{self.prime} is not an odd prime below 2^32.")

    @property
    def limit(self) -> int:
        """32 random bits below this are uniform modulo the prime; others are drawn again."""
        return 2**32 - 2**32 % self.prime

    def numbers(self, signed: NDArray[Any] | Tensor) -> Numbers:
        """Signed whole numbers, taken modulo the prime."""
        array = signed.numpy() if isinstance(signed, Tensor) else signed
        return (array.astype(np.int64) % np.int64(self.prime)).astype(np.uint64)

    def signed(self, numbers: Numbers) -> Tensor:
        """The whole numbers nearest to zero that these stand for: int64."""
        values = numbers.astype(np.int64)
        return torch.from_numpy(np.where(values > self.prime // 2, values - self.prime, values))

    def times(self, a: Numbers, b: Numbers) -> Numbers:
        """Products, number by number."""
        return a * b % np.uint64(self.prime)

    def minus(self, a: Numbers, b: Numbers) -> Numbers:
        return (a + (np.uint64(self.prime) - b)) % np.uint64(self.prime)

    def dot(self, a: NDArray[np.unsignedinteger[Any]], b: NDArray[np.unsignedinteger[Any]]) -> Numbers:
        """The matrix product, exactly: (n, k), (k, m) → (n, m). Edges: more than 2²¹ terms → ConfigError."""
        if a.shape[1] > _MOST:
            raise ConfigError(f"a sum of {a.shape[1]:,} products is longer than {_MOST:,}.")
        width, prime = b.shape[1], np.uint64(self.prime)
        right = np.hstack([limb for _, limb in _limbs(b)])
        total = np.zeros((len(a), width), dtype=np.uint64)
        for shift, limb in _limbs(a):
            parts = (limb @ right).astype(np.uint64) % prime
            for more, part in ((0, parts[:, :width]), (_LIMB, parts[:, width:])):
                total += part * np.uint64(2 ** (shift + more) % self.prime) % prime
        return total % prime

    def uniform(self, seed: bytes, stream: int, *shape: int) -> Numbers:
        """Uniform numbers: stream number `stream` of a 32-byte seed, as `Ring.uniform` has it.

        Guarantee: without the seed, indistinguishable from random while AES-256 is a pseudo-random permutation: what
        does not fit the prime evenly is left out, not wrapped around.
        """
        needed, block, found = math.prod(shape), stream << 64, [np.empty(0, np.uint32)]
        while needed > 0:
            blocks = -(-4 * needed // BLOCK)
            words = keystream(seed, block, blocks * BLOCK).view("<u4")
            found.append(words[words < self.limit][:needed])
            needed, block = needed - len(found[-1]), block + blocks
        return (np.concatenate(found).astype(np.uint64) % np.uint64(self.prime)).reshape(shape)


FIELD = Field()


def _limbs(a: NDArray[np.unsignedinteger[Any]]) -> list[tuple[int, NDArray[np.float64]]]:
    mask = a.dtype.type(2**_LIMB - 1)
    return [(0, (a & mask).astype(np.float64)), (_LIMB, (a >> a.dtype.type(_LIMB)).astype(np.float64))]

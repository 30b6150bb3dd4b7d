"""Whole numbers modulo 2³², 2⁶⁴ or a prime: uniform masks from a seed, and exact matrix
products at speed.

A uniform mask hides a number perfectly only where addition wraps around, so masked
counts live here. Processors multiply matrices of doubles far faster than matrices of
integers; a product is therefore cut into limbs so small that every partial sum stays
below 2⁵³, where doubles are exact, and is put together modulo 2ᵇ.

    b bits × 0/1     limbs of 32 bits       1 product of doubles for b = 32, 2 for b =
                                            64
    b bits × b bits  limbs of 16 bits       3 products for b = 32, 10 for b = 64

Masks are the keystream of AES-256-CTR under a 32-byte seed, cut into 2⁶⁴ streams of 2⁶⁸
bytes by the upper half of the counter: whoever has the seed makes any stream again
without the ones before it.

A check by random products (`sketch`) needs that no two numbers but zero multiply to
zero, which 2³² does not give. A prime below 2³² (`Field`) keeps every product below
2⁶⁴; sums of up to 2²¹ products of limbs of 16 bits are exact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.privacy.noise.ciphers import BLOCK, keystream

Words = NDArray[np.unsignedinteger[Any]]  # numbers of a ring
Numbers = NDArray[np.uint64]  # of a field
Bits = NDArray[np.bool_]

SEED = 32  # bytes
PRIME = 2**32 - 5  # the largest below 2³²
_LIMB = 16  # bits
_MAX_TERMS = 1 << 21  # of a sum of products of limbs, below 2⁵³
# rows multiplied at a time: 2¹³ · 2³² and 2¹³ · 2¹⁶ · 2¹⁶ stay below 2⁵³
_CHUNK_ROWS = 1 << 13


@dataclass(frozen=True)
class Ring:
    """The whole numbers modulo 2^`bits`, as unsigned numpy arrays of 32 or 64 bits: the
    upper ones of a word mean nothing, and are gone in whatever is sent or read.
    """

    bits: int = 32

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 2 <= self.bits <= 64:
            raise ConfigError(f"bits must lie between 2 and 64, not {self.bits!r}.")

    @classmethod
    def holding(cls, largest: float) -> "Ring":
        """The smaller ring in which all numbers from −largest to largest differ."""
        return cls(32 if largest < 2**31 else 64)

    @classmethod
    def least(cls, largest: float) -> "Ring":
        """The smallest ring in which they do."""
        return cls(1 + math.ceil(math.log2(largest + 1)))

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<u4" if self.bits <= 32 else "<u8")

    @property
    def _unused(self) -> int:
        """Bits of a word."""
        return 8 * self.dtype.itemsize - self.bits

    def words(self, numbers: NDArray[Any] | Tensor) -> Words:
        """Signed or unsigned whole numbers, taken modulo 2^bits."""
        array = numbers.numpy() if isinstance(numbers, Tensor) else numbers
        return array.astype(self.dtype)

    def signed(self, words: Words) -> Tensor:
        """The numbers between −2^(bits−1) and 2^(bits−1) that these words stand for:
        int64.
        """
        signed = np.dtype(f"<i{self.dtype.itemsize}")
        shifted = (words << self.dtype.type(self._unused)).view(signed)
        numbers = shifted >> signed.type(self._unused)
        return torch.from_numpy(numbers.astype(np.int64))

    def to_bytes(self, words: Words) -> bytes:
        used = self.dtype.type(2**self.bits - 1)
        data: bytes = (words.astype(self.dtype, copy=False) & used).tobytes()
        return data

    def from_bytes(self, data: bytes, *shape: int) -> Words:
        """The inverse of `to_bytes`. Edges: another size than `shape` needs →
        MessageError.
        """
        size = math.prod(shape) * self.dtype.itemsize
        if len(data) != size:
            raise MessageError(
                f"{len(data):,} bytes came where {size:,} were due.",
                effect=Effect.NOTHING_COMPUTED,
            )
        return np.frombuffer(data, dtype=self.dtype).reshape(shape)

    def uniform(
        self,
        seed: bytes,
        stream: int,
        *shape: int,
    ) -> Words:
        """Uniform words: stream number `stream` of the seed. Guarantee: without the
        seed, indistinguishable from random while AES-256 is a pseudo-random
        permutation. Edges: the same seed and stream give the same words, so a mask must
        be used for one message alone.
        """
        if len(seed) != SEED:
            raise ConfigError(f"a seed has {SEED} bytes, not {len(seed)}.")
        size = math.prod(shape) * self.dtype.itemsize
        data = keystream(seed, stream << 64, size)
        return data.view(self.dtype).reshape(shape)

    def product(self, a: Words, b: Words | Bits) -> Words:
        """aᵀb modulo 2^bits, exactly, in bounded memory; `b`: words or booleans. (n,
        p), (n, q) → (p, q).
        """
        total = np.zeros((a.shape[1], b.shape[1]), dtype=self.dtype)
        limb_bits = 32 if b.dtype == np.bool_ else 16
        for start in range(0, len(a), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            right_limbs = list(_limbs(b[rows], self.bits, limb_bits))
            for left_shift, left in _limbs(a[rows], self.bits, limb_bits):
                for right_shift, right in right_limbs:
                    shift = left_shift + right_shift
                    if shift < self.bits:
                        products = (left.T @ right).astype(np.uint64)
                        words = products.astype(self.dtype)
                        total += words << self.dtype.type(shift)
        return total


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
        """32 random bits below this are uniform modulo the prime; others are drawn
        again.
        """
        return 2**32 - 2**32 % self.prime

    def numbers(self, signed: NDArray[Any] | Tensor) -> Numbers:
        """Signed whole numbers, taken modulo the prime."""
        array = signed.numpy() if isinstance(signed, Tensor) else signed
        residues = array.astype(np.int64) % np.int64(self.prime)
        return residues.astype(np.uint64)

    def signed(self, numbers: Numbers) -> Tensor:
        """The whole numbers nearest to zero that these stand for: int64."""
        values = numbers.astype(np.int64)
        is_negative = values > self.prime // 2
        signed = np.where(is_negative, values - self.prime, values)
        return torch.from_numpy(signed)

    def times(self, a: Numbers, b: Numbers | np.uint64) -> Numbers:
        return a * b % np.uint64(self.prime)

    def minus(self, a: Numbers, b: Numbers) -> Numbers:
        prime = np.uint64(self.prime)
        return (a + (prime - b)) % prime

    def dot(self, a: Words, b: Words) -> Numbers:
        """The matrix product, exactly: (n, k), (k, m) → (n, m). Edges: more than 2²¹
        terms → ConfigError.
        """
        if a.shape[1] > _MAX_TERMS:
            raise ConfigError(
                f"a sum of {a.shape[1]:,} products is longer than {_MAX_TERMS:,}."
            )
        width = b.shape[1]
        prime = np.uint64(self.prime)
        right = np.hstack([limb for _, limb in _limbs(b, 2 * _LIMB, _LIMB)])
        total = np.zeros((len(a), width), dtype=np.uint64)
        for shift, limb in _limbs(a, 2 * _LIMB, _LIMB):
            products = (limb @ right).astype(np.uint64) % prime
            by_low = products[:, :width]
            by_high = products[:, width:]
            low_weight = np.uint64(2**shift % self.prime)
            high_weight = np.uint64(2 ** (shift + _LIMB) % self.prime)
            total += by_low * low_weight % prime
            total += by_high * high_weight % prime
        return total % prime

    def uniform(
        self,
        seed: bytes,
        stream: int,
        *shape: int,
    ) -> Numbers:
        """Uniform numbers: stream number `stream` of a 32-byte seed, as `Ring.uniform`
        has it. Guarantee: without the seed, indistinguishable from random while AES-256
        is a pseudo-random permutation: what does not fit the prime evenly is left out,
        not wrapped around.
        """
        needed = math.prod(shape)
        block = stream << 64
        accepted = [np.empty(0, np.uint32)]
        while needed > 0:
            blocks = -(-4 * needed // BLOCK)
            words = keystream(seed, block, blocks * BLOCK).view("<u4")
            fitting = words[words < self.limit][:needed]
            accepted.append(fitting)
            needed -= len(fitting)
            block += blocks
        numbers = np.concatenate(accepted).astype(np.uint64)
        residues = numbers % np.uint64(self.prime)
        return residues.reshape(shape)


FIELD = Field()


def _limbs(
    a: Words | Bits,
    bits: int,
    size: int,
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """a = Σ 2^shift · limb, with limbs of `size` bits as doubles."""
    if a.dtype == np.bool_:
        yield 0, a.astype(np.float64)
        return
    number = a.dtype.type
    mask = number(2**size - 1)
    for shift in range(0, bits, size):
        limb = (a >> number(shift)) & mask
        yield shift, limb.astype(np.float64)

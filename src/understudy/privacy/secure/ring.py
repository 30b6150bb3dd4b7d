"""Whole numbers modulo 2³² or 2⁶⁴: uniform masks from a seed, and exact matrix products at floating-point speed.

A uniform mask hides a number perfectly only where addition wraps around, so masked counts live here. Processors
multiply matrices of doubles far faster than matrices of integers; a product is therefore cut into limbs so
small that every partial sum stays below 2⁵³, where doubles are exact, and is put together modulo 2ᵇ.

    b bits × 0/1     limbs of 32 bits       1 product of doubles for b = 32, 2 for b = 64
    b bits × b bits  limbs of 16 bits       3 products for b = 32, 10 for b = 64

Masks are the keystream of AES-256-CTR under a 32-byte seed, cut into 2⁶⁴ streams of 2⁶⁸ bytes by the upper half
of the counter: whoever has the seed makes any stream again without the ones before it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.errors import ConfigError, MessageError
from understudy.privacy.noise.aes import keystream

Words = NDArray[np.unsignedinteger[Any]]  # numbers of a ring
Bits = NDArray[np.bool_]

SEED = 32  # bytes
_BLOCK = 1 << 13  # rows multiplied at a time: 2¹³ · 2³² and 2¹³ · 2¹⁶ · 2¹⁶ stay below 2⁵³


@dataclass(frozen=True)
class Ring:
    """The whole numbers modulo 2^`bits`, as unsigned numpy arrays."""

    bits: int = 32

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise ConfigError(f"bits must be 32 or 64, not {self.bits!r}.")

    @classmethod
    def holding(cls, largest: float) -> "Ring":
        """The smaller ring in which every number from −largest to largest has a place of its own."""
        return cls(32 if largest < 2**31 else 64)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"<u{self.bits // 8}")

    def words(self, numbers: NDArray[Any] | Tensor) -> Words:
        """Signed or unsigned whole numbers, taken modulo 2^bits."""
        array = numbers.numpy() if isinstance(numbers, Tensor) else numbers
        return array.astype(self.dtype)

    def negative(self, words: Words) -> Words:
        """What added to the words gives zero."""
        return np.asarray(~words + self.dtype.type(1))

    def signed(self, words: Words) -> Tensor:
        """The numbers between −2^(bits−1) and 2^(bits−1) that these words stand for: int64."""
        return torch.from_numpy(words.view(f"<i{self.bits // 8}").astype(np.int64))

    def to_bytes(self, words: Words) -> bytes:
        return words.astype(self.dtype, copy=False).tobytes()

    def from_bytes(self, data: bytes, *shape: int) -> Words:
        """The inverse of `to_bytes`. Edges: another size than `shape` needs → MessageError."""
        if len(data) != (size := math.prod(shape) * self.dtype.itemsize):
            raise MessageError(f"{len(data):,} bytes came where {size:,} were due. Nothing was computed.")
        return np.frombuffer(data, dtype=self.dtype).reshape(shape)

    def uniform(self, seed: bytes, stream: int, *shape: int) -> Words:
        """Uniform words: stream number `stream` of the seed.

        Guarantee: without the seed, indistinguishable from random while AES-256 is a pseudo-random permutation.
        Edges: the same seed and stream give the same words, so a mask must be used for one message alone.
        """
        if len(seed) != SEED:
            raise ConfigError(f"a seed has {SEED} bytes, not {len(seed)}.")
        data = keystream(seed, stream << 64, math.prod(shape) * self.dtype.itemsize)
        return data.view(self.dtype).reshape(shape)

    def product(self, a: Words, b: Words | Bits) -> Words:
        """aᵀb modulo 2^bits, exactly; `b` are words, or 0/1 as booleans: (n, p), (n, q) → (p, q).

        Edges: no rows → zeros. Memory beyond the result is bounded, whatever n.
        """
        total = np.zeros((a.shape[1], b.shape[1]), dtype=self.dtype)
        size = 32 if b.dtype == np.bool_ else 16
        for start in range(0, len(a), _BLOCK):
            rows = slice(start, start + _BLOCK)
            right = list(self._limbs(b[rows], size))
            for i, x in self._limbs(a[rows], size):
                for j, y in right:
                    if i + j < self.bits:
                        part = (x.T @ y).astype(np.uint64).astype(self.dtype)
                        total += part << self.dtype.type(i + j)
        return total

    def _limbs(self, a: Words | Bits, size: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """a = Σ 2^shift · limb, with limbs of `size` bits as doubles."""
        if a.dtype == np.bool_:
            yield 0, a.astype(np.float64)
            return
        mask = self.dtype.type(2**size - 1)
        for shift in range(0, self.bits, size):
            yield shift, ((a >> self.dtype.type(shift)) & mask).astype(np.float64)

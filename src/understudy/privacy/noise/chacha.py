"""The ChaCha20 keystream in tensor operations, so that noise for a GPU is made on the GPU.

Nir, Langley, "ChaCha20 and Poly1305 for IETF Protocols" (RFC 8439), §2.1–2.4.
Paper → code: quarter round → `_quarter_rounds` (four at once), block function → `ChaCha20.words`.
Differs from the RFC: the block counter has 64 bits (words 12 and 13, as in Bernstein's ChaCha), because
2³² blocks of 64 bytes are too few for a long run; the nonce keeps words 14 and 15. The first 2³² blocks
are those of RFC 8439 with a nonce whose first four bytes are zero.

Written by hand because no library makes a stream cipher's keystream on a CUDA device: `cryptography` and
libsodium fill host memory, cuRAND's generators are not cryptographic, and torchcsprng is no longer built.
Every step is an integer tensor operation of a fixed shape without a word to the host: the same code runs on
any device and inside a captured CUDA graph, whose every replay moves the counter on, on the device. Where Triton
is there, a GPU does the same in one kernel (`chacha_kernel`).
"""

import struct

import torch
from torch import Tensor

from understudy.privacy.noise.aes import NeverCopied
from understudy.privacy.noise.chacha_kernel import fused


class ChaCha20(NeverCopied):
    """A ChaCha20 keystream on one device.

    Guarantee: the words are RFC 8439's keystream, each block is handed out once.
    Edges: a draw takes whole blocks of 16 words and throws the rest away; the counter is `counter` (1,),
    int64, on the device: write to it in place to move in the stream, also between replays of a graph.
    """

    def __init__(self, key: bytes, *, nonce: int = 0, counter: int = 0, device: torch.device | str = "cpu"):
        self._start = torch.empty(14, 1, dtype=torch.int32, device=device)  # the state without its counter
        self.counter = torch.empty(1, dtype=torch.int64, device=device)
        self.restart(key, nonce=nonce, counter=counter)

    def restart(self, key: bytes, *, nonce: int = 0, counter: int = 0) -> None:
        """Continue elsewhere, in the same tensors: a captured graph follows."""
        words = struct.unpack("<14i", struct.pack("<16s32sq", b"expand 32-byte k", key, nonce))
        self._start.copy_(torch.tensor(words, dtype=torch.int32)[:, None])
        self.counter.fill_(counter)

    def words(self, n: int) -> Tensor:
        """The next n 32-bit words of the keystream: int32, (n,)."""
        blocks = -(-n // 16)
        if (fill := fused(self.counter.device)) is not None:
            fill(out := self._start.new_empty(16 * blocks), self._start, self.counter)
            self.counter += blocks
            return out[:n]
        ticks = self.counter + torch.arange(blocks, device=self.counter.device)
        self.counter += blocks
        # An int64 seen as two int32 is the little-endian pair of words that the state wants.
        start = torch.cat(
            [
                self._start[:12].expand(12, blocks),
                ticks.view(torch.int32).view(blocks, 2).T,
                self._start[12:].expand(2, blocks),
            ]
        )  # (16, blocks)
        a, b, c, d = start.view(4, 4, blocks)
        for _ in range(10):
            a, b, c, d = _quarter_rounds(a, b, c, d)
            a, b, c, d = _quarter_rounds(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
            b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
        return (torch.cat([a, b, c, d]) + start).T.reshape(-1)[:n]


def _quarter_rounds(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """RFC 8439 §2.1 on four columns (or diagonals) of every block at once. Each argument: (4, blocks)."""
    for left, right in ((16, 12), (8, 7)):
        a = a + b
        d = _rotate(d ^ a, left)
        c = c + d
        b = _rotate(b ^ c, right)
    return a, b, c, d


def _rotate(x: Tensor, bits: int) -> Tensor:
    """Rotate 32-bit words left. `>>` drags the sign along, so its copies are masked away."""
    return (x << bits).bitwise_or_((x >> (32 - bits)).bitwise_and_((1 << bits) - 1))

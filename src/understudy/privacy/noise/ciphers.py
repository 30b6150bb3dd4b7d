"""Keystreams: AES-256-CTR (NIST SP 800-38A §6.5) on the host, by `cryptography`;
ChaCha20 in tensor operations, so that noise for a GPU is made on the GPU.

Nir, Langley, "ChaCha20 and Poly1305 for IETF Protocols" (RFC 8439), §2.1–2.4.
Paper → code: quarter round → `_quarter_rounds` (four at once), block function →
`ChaCha20.words`.
Differs from the RFC: the block counter has 64 bits (words 12 and 13, as in Bernstein's
ChaCha), because 2³² blocks of 64 bytes are too few for a long run; the nonce keeps
words 14 and 15. The first 2³² blocks are those of RFC 8439 with a nonce whose first
four bytes are zero.

Written by hand because no library makes a stream cipher's keystream on a CUDA device:
`cryptography` and libsodium fill host memory, cuRAND's generators are not
cryptographic, and torchcsprng is no longer built. Every step is an integer tensor
operation of a fixed shape without a word to the host: the same code runs on any device
and inside a captured CUDA graph, whose every replay moves the counter on, on the
device. In tensor operations a draw is some 540 small kernels, whatever its size, and at
a GPU's speed their launches are most of the time that noise takes: where Triton is
there and can compile, a GPU does the same, word for word, in one kernel.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:
    triton = None


Fill = Callable[[Tensor, Tensor, Tensor], None]
_Rows = tuple[Tensor, Tensor, Tensor, Tensor]  # of four words each
_BLOCK = 256  # cipher blocks of one program
BLOCK = 16  # bytes of the cipher
SMALL = 1 << 14  # bytes that a cipher is kept for: to set one up takes as long
_ZEROS = memoryview(bytes(12 << 14))  # a piece that stays in a core's cache


class NeverCopied:
    """A stream of randomness that is in one place. Guarantee: copy, deepcopy and pickle
    are refused.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: two under one key "
            "would make the same noise twice."
        )


def _encryptor(key: bytes, block: int) -> Any:
    """AES-256-CTR under this key, from `block` on."""
    counter = modes.CTR(block.to_bytes(BLOCK, "big"))
    cipher = Cipher(algorithms.AES(key), counter)
    return cipher.encryptor()


def keystream(key: bytes, block: int, size: int) -> NDArray[np.uint8]:
    """`size` bytes of the stream of this key, from `block` on. Guarantee: without the
    key, indistinguishable from random while AES-256 is a pseudo-random permutation.
    Edges: a block that is used twice hides nothing; who uses which is the caller's to
    count.
    """
    out = np.empty(size, np.uint8)
    encryptor = _encryptor(key, block)
    for start in range(0, size, len(_ZEROS)):
        piece = out[start : start + len(_ZEROS)]
        plaintext = _ZEROS[: len(piece)]
        encryptor.update_into(plaintext, piece.data)
    return out


def keystream_at(key: bytes, blocks: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """These blocks of that stream, numbered by (…, 2), the upper and lower half of
    their numbers: (…, 16) bytes.
    """
    counters = blocks.astype(">u8").tobytes()
    # of counters that all differ, which is what CTR is
    cipher = Cipher(algorithms.AES(key), modes.ECB())
    stream = cipher.encryptor().update(counters)
    shape = *blocks.shape[:-1], BLOCK
    return np.frombuffer(stream, np.uint8).reshape(shape)


class Keystream(NeverCopied):
    """The same stream for small reads (up to SMALL bytes) one after another, by one
    reader: the cipher goes on.
    """

    def __init__(self) -> None:
        self._next: tuple[bytes, int] | None = None  # where the cipher stands

    def read(self, key: bytes, block: int, size: int) -> NDArray[np.uint8]:
        """`size` bytes of the stream of this key, from `block` on; whole blocks are
        used up.
        """
        if self._next != (key, block):
            self._encryptor = _encryptor(key, block)
        # who is interrupted here sets a cipher up again
        blocks = -(-size // BLOCK)
        self._next = None
        plaintext = _ZEROS[: blocks * BLOCK]
        stream = self._encryptor.update(plaintext)
        self._next = key, block + blocks
        return np.frombuffer(bytearray(stream), np.uint8, size)


class ChaCha20(NeverCopied):
    """A ChaCha20 keystream on one device. Guarantee: the words are RFC 8439's
    keystream, each block is handed out once.
    Edges: a draw takes whole blocks of 16 words and throws the rest away; the counter
    is `counter` (1,), int64, on the device: write to it in place to move in the stream,
    also between replays of a graph.
    """

    def __init__(
        self,
        key: bytes,
        *,
        nonce: int = 0,
        counter: int = 0,
        device: torch.device | str = "cpu",
    ):
        # the state without its counter
        self._start = torch.empty(
            14,
            1,
            dtype=torch.int32,
            device=device,
        )
        self.counter = torch.empty(1, dtype=torch.int64, device=device)
        self.restart(key, nonce=nonce, counter=counter)

    def restart(self, key: bytes, *, nonce: int = 0, counter: int = 0) -> None:
        """Continue elsewhere, in the same tensors: a captured graph follows."""
        state = struct.pack(
            "<16s32sq",
            b"expand 32-byte k",
            key,
            nonce,
        )
        words = torch.tensor(struct.unpack("<14i", state), dtype=torch.int32)
        self._start.copy_(words[:, None])
        self.counter.fill_(counter)

    def words(self, n: int) -> Tensor:
        """The next n 32-bit words of the keystream: int32, (n,)."""
        blocks = -(-n // 16)
        fill = fused(self.counter.device)
        if fill is None:
            keystream_blocks = self._blocks(blocks)
        else:
            keystream_blocks = self._start.new_empty(16 * blocks)
            fill(keystream_blocks, self._start, self.counter)
        self.counter += blocks
        return keystream_blocks[:n]

    def _blocks(self, blocks: int) -> Tensor:
        """RFC 8439 §2.3 in tensor operations, for the next blocks: (16 · blocks,)."""
        start = self._start_states(blocks)
        a, b, c, d = start.view(4, 4, blocks)
        for _ in range(10):
            a, b, c, d = _double_round(a, b, c, d)
        mixed = torch.cat([a, b, c, d])
        return (mixed + start).T.reshape(-1)

    def _start_states(self, blocks: int) -> Tensor:
        """The next blocks' states before the first round: (16, blocks)."""
        numbers = self.counter + torch.arange(blocks, device=self.counter.device)
        # An int64 seen as two int32 is the little-endian pair of words that the state
        # wants.
        counters = numbers.view(torch.int32).view(blocks, 2).T
        constants_and_key = self._start[:12].expand(12, blocks)
        nonce = self._start[12:].expand(2, blocks)
        return torch.cat([constants_and_key, counters, nonce])


def _double_round(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> _Rows:
    """RFC 8439 §2.3: a round of columns, then one of diagonals."""
    a, b, c, d = _quarter_rounds(a, b, c, d)
    a, b, c, d = _quarter_rounds(
        a,
        b.roll(-1, 0),
        c.roll(-2, 0),
        d.roll(-3, 0),
    )
    return a, b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)


def _quarter_rounds(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> _Rows:
    """RFC 8439 §2.1 on four columns (or diagonals) of every block at once. Each
    argument: (4, blocks).
    """
    for bits_of_d, bits_of_b in ((16, 12), (8, 7)):
        a = a + b
        d = _rotate(d ^ a, bits_of_d)
        c = c + d
        b = _rotate(b ^ c, bits_of_b)
    return a, b, c, d


def _rotate(x: Tensor, bits: int) -> Tensor:
    """Rotate 32-bit words left. `>>` drags the sign along, so its copies are masked
    away.
    """
    mask = (1 << bits) - 1
    low = (x >> (32 - bits)).bitwise_and_(mask)
    high = x << bits
    return high.bitwise_or_(low)


@cache
def fused(device: torch.device) -> Fill | None:
    """What fills `out` (16 · blocks,) int32 from the state's 14 fixed words and its
    counter; None: not here.
    """
    if triton is None or device.type != "cuda":
        return None
    try:
        words = torch.zeros(30, dtype=torch.int32, device=device)
        counter = torch.zeros(1, dtype=torch.int64, device=device)
        _fill(words[:16], words[16:], counter)
        torch.cuda.synchronize(device)
    except Exception:  # no compiler, an old card: whatever it is, the slower way works
        return None
    return _fill


def _fill(out: Tensor, start: Tensor, counter: Tensor) -> None:
    blocks = out.numel() // 16
    programs = triton.cdiv(blocks, _BLOCK)
    _chacha20[(programs,)](
        out,
        start,
        counter,
        blocks,
        BLOCK=_BLOCK,
    )


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _turn(x, bits: tl.constexpr):  # type: ignore[no-untyped-def]
        return (x << bits) | (x >> (32 - bits))

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _quarter(a, b, c, d):  # type: ignore[no-untyped-def]
        """RFC 8439 §2.1."""
        a += b
        d = _turn(d ^ a, 16)
        c += d
        b = _turn(b ^ c, 12)
        a += b
        d = _turn(d ^ a, 8)
        c += d
        b = _turn(b ^ c, 7)
        return a, b, c, d

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _word(start, index: tl.constexpr, like):  # type: ignore[no-untyped-def]
        return like * 0 + tl.load(start + index).to(tl.uint32, bitcast=True)

    # no size is built in: one kernel for all of them, since a first run waits for the
    # compiler
    @triton.jit(do_not_specialize=["blocks"])  # type: ignore[untyped-decorator, unused-ignore]
    def _chacha20(out, start, counter, blocks, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        """RFC 8439 §2.3 with a 64-bit counter, one block of the cipher in each lane."""
        lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tick = tl.load(counter) + lane
        c12 = (tick & 0xFFFFFFFF).to(tl.uint32)
        c13 = (tick >> 32).to(tl.uint32)
        s0 = _word(start, 0, c12)
        s1 = _word(start, 1, c12)
        s2 = _word(start, 2, c12)
        s3 = _word(start, 3, c12)
        s4 = _word(start, 4, c12)
        s5 = _word(start, 5, c12)
        s6 = _word(start, 6, c12)
        s7 = _word(start, 7, c12)
        s8 = _word(start, 8, c12)
        s9 = _word(start, 9, c12)
        s10 = _word(start, 10, c12)
        s11 = _word(start, 11, c12)
        s14 = _word(start, 12, c12)
        s15 = _word(start, 13, c12)
        x0 = s0
        x1 = s1
        x2 = s2
        x3 = s3
        x4 = s4
        x5 = s5
        x6 = s6
        x7 = s7
        x8 = s8
        x9 = s9
        x10 = s10
        x11 = s11
        x12 = c12
        x13 = c13
        x14 = s14
        x15 = s15
        for _ in range(10):
            x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
            x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
            x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
            x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
            x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
            x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
            x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
            x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
        to = out + 16 * lane
        real = lane < blocks
        tl.store(to + 0, (x0 + s0).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 1, (x1 + s1).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 2, (x2 + s2).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 3, (x3 + s3).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 4, (x4 + s4).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 5, (x5 + s5).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 6, (x6 + s6).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 7, (x7 + s7).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 8, (x8 + s8).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 9, (x9 + s9).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 10, (x10 + s10).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 11, (x11 + s11).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 12, (x12 + c12).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 13, (x13 + c13).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 14, (x14 + s14).to(tl.int32, bitcast=True), mask=real)
        tl.store(to + 15, (x15 + s15).to(tl.int32, bitcast=True), mask=real)

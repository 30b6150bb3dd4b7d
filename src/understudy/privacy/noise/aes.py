"""The keystream of AES-256-CTR (NIST SP 800-38A §6.5) on the host, by `cryptography`."""

from typing import NoReturn, SupportsIndex

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

BLOCK = 16  # bytes of the cipher
SMALL = 1 << 14  # bytes that a cipher is kept for: to set one up takes as long
_ZEROS = memoryview(bytes(12 << 14))  # a piece that stays in a core's cache


class NeverCopied:
    """A stream of randomness that is in one place. Guarantee: copy, deepcopy and pickle are refused."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: two under one key would make the same noise twice. "
            "Nothing was drawn."
        )


def keystream(key: bytes, block: int, size: int) -> NDArray[np.uint8]:
    """`size` bytes of the stream of this key, from `block` on.

    Guarantee: without the key, indistinguishable from random while AES-256 is a pseudo-random permutation.
    Edges: a block that is used twice hides nothing; who uses which is the caller's to count.
    """
    out = np.empty(size, np.uint8)
    encryptor = Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(BLOCK, "big"))).encryptor()
    for start in range(0, size, len(_ZEROS)):
        piece = out[start : start + len(_ZEROS)]
        encryptor.update_into(_ZEROS[: len(piece)], piece.data)
    return out


def keystream_at(key: bytes, blocks: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """The blocks of that stream at these places, (…, 2) as their upper and lower half: (…, 16) bytes."""
    counters = blocks.astype(">u8").tobytes()
    cipher = Cipher(algorithms.AES(key), modes.ECB())  # of counters that all differ, which is what CTR is
    stream = cipher.encryptor().update(counters)
    return np.frombuffer(stream, np.uint8).reshape(*blocks.shape[:-1], BLOCK)


class Keystream(NeverCopied):
    """The same stream for small reads that follow one another: the cipher goes on where it stopped.

    Guarantee: `read` gives what `keystream` gives.
    Edges: up to SMALL bytes, and one reader at a time.
    """

    def __init__(self) -> None:
        self._next: tuple[bytes, int] | None = None  # where the cipher stands

    def read(self, key: bytes, block: int, size: int) -> NDArray[np.uint8]:
        """`size` bytes of the stream of this key, from `block` on; whole blocks are used up."""
        if self._next != (key, block):
            self._encryptor = Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(BLOCK, "big"))).encryptor()
        blocks, self._next = -(-size // BLOCK), None  # who is interrupted here sets a cipher up again
        stream = self._encryptor.update(_ZEROS[: blocks * BLOCK])
        self._next = key, block + blocks
        return np.frombuffer(bytearray(stream), np.uint8, size)

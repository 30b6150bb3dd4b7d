"""The same product under Paillier's encryption, on gmpy2: what `encrypted.py` would
cost with a scheme whose plaintexts hold a whole row.

    pip install gmpy2
    [QUICK=1] python benchmarks/secure_product/paillier.py

A key of 3,072 bits (128 bits of security, NIST SP 800-57). The 150 counts of one level
lie side by side in one plaintext, 20 bits each, so that a person is one ciphertext. The
first holder randomises it as Damgård, Jurik and Nielsen (2010) do, by a power of one
public element with an exponent of 448 bits, from a table of its powers. The second
multiplies the ciphertexts of the people of each level, adds a fresh encryption of a
mask, and keeps the mask, which hides a sum to within 2⁻⁷⁰. The difference of both
shares is each count, plus a carry of 0 or 1 (`off` is the root mean square of that).

Times are processor time of one thread; QUICK=1 leaves paillier.csv alone.
"""

import argparse
import resource
import secrets
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent))

import numpy as np
from bench import COLUMNS, exact, one_hot

from common.options import options, quick
from common.rows import write

HERE = Path(__file__).parent
PEOPLE = [200] if quick() else [10_000, 100_000]
KEY_BITS = 3_072
EXPONENT_BITS = 448
SLOT_BITS = 20  # counts of fewer than 2²⁰ people
SLOTS = 1 << (SLOT_BITS * COLUMNS)


class Key:
    """A key pair; `n` and `element` are public."""

    def __init__(self, bits: int = KEY_BITS) -> None:
        import gmpy2

        primes = set[int]()
        while len(primes) < 2:
            odd = secrets.randbits(bits // 2) | (3 << (bits // 2 - 2)) | 1
            primes.add(int(gmpy2.next_prime(odd)))
        p, q = primes
        self.n = gmpy2.mpz(p * q)
        self.square = self.n**2
        self._order = gmpy2.lcm(p - 1, q - 1)
        self._inverse = gmpy2.invert(self._order, self.n)
        start = secrets.randbelow(int(self.n))
        self.element = gmpy2.powmod(start, 2 * self.n, self.square)

    def decrypt(self, ciphertext: Any) -> int:
        import gmpy2

        power = gmpy2.powmod(ciphertext, self._order, self.square)
        return int((power - 1) // self.n * self._inverse % self.n)


class Randomiser:
    """Encryptions under a public key, from a table of the powers of its element."""

    def __init__(self, key: Key) -> None:
        import gmpy2

        self._key = key
        self._powers = []
        base = key.element
        for _ in range(EXPONENT_BITS // 8):
            row = [gmpy2.mpz(1)]
            for _ in range(255):
                row.append(row[-1] * base % key.square)
            self._powers.append(row)
            base = row[-1] * base % key.square

    def encrypt(self, plaintext: int) -> Any:
        key = self._key
        out = 1 + plaintext * key.n
        exponent = secrets.token_bytes(EXPONENT_BITS // 8)
        for row, digit in zip(self._powers, exponent, strict=True):
            out = out * row[digit] % key.square
        return out


def packed(row: np.ndarray[Any, Any]) -> int:
    return sum(1 << (SLOT_BITS * int(column)) for column in np.flatnonzero(row))


def unpacked(share: int) -> np.ndarray[Any, Any]:
    mask = (1 << SLOT_BITS) - 1
    return np.array([share >> (SLOT_BITS * k) & mask for k in range(COLUMNS)])


def measure(people: int, key: Key) -> dict[str, Any]:
    x = one_hot(people, 1)
    y = one_hot(people, 2)
    begin = time.process_time()
    first = Randomiser(key)
    words = [first.encrypt(packed(row)) for row in x]
    first_s = time.process_time() - begin

    begin = time.process_time()
    second = Randomiser(key)
    masks = [secrets.randbelow(int(key.n) - SLOTS) for _ in range(COLUMNS)]
    answers = [second.encrypt(mask) for mask in masks]
    for person, levels in enumerate(y):
        for level in np.flatnonzero(levels):
            answers[level] = answers[level] * words[person] % key.square
    second_s = time.process_time() - begin

    begin = time.process_time()
    shares = [key.decrypt(answer) for answer in answers]
    first_s += time.process_time() - begin
    pairs = zip(shares, masks, strict=True)
    counts = np.array([unpacked(share) - unpacked(mask) for share, mask in pairs])
    off = (counts.T - exact(x, y)) % (1 << SLOT_BITS)
    assert off.max() <= 1, "a count is off by more than a carry"
    size = 2 * KEY_BITS // 8
    return {
        "people": people,
        "columns": f"{COLUMNS}+{COLUMNS}",
        "first_s": round(first_s, 2),
        "second_s": round(second_s, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "sent_mb_there": round(people * size / 1e6, 1),
        "sent_mb_back": round(COLUMNS * size / 1e6, 1),
        "off": round(float(np.sqrt(np.square(off, dtype=float).mean())), 3),
    }


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=HERE / "paillier.csv")


def main() -> None:
    args = parser().parse_args()
    key = Key()
    rows = []
    for people in PEOPLE:
        rows.append(measure(people, key))
        print(rows[-1], flush=True)
    write(args.out, rows, list(rows[0]))


if __name__ == "__main__":
    main()

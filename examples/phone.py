"""One person's upload to two aggregators, without the rest of this project: numpy and `cryptography` alone.

    python examples/phone.py ticket.json 3,0,17,1 upload.bin [--ledger ledger.jsonl] [--most 2.0] [--to https://…]

The ticket is what a run tells people: {"run", "config", "schemas", "key", "sizes"}. The levels are the person's own,
one for each column, from 0. The price goes into the ledger before anything is written or sent; a second upload in one
run, and one that takes the sum of ε above --most, is refused. `docs/people.md` has the format, byte by byte: an app in
another language follows it. Compare the fingerprint of the key, which is printed, with the aggregator's own word.
"""

import argparse
import hashlib
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PRIME, REPEATS = 2**32 - 5, 2
Array = np.ndarray[Any, Any]


def keystream(seed: bytes, block: int, size: int) -> bytes:
    """AES-256-CTR from a block of the counter on."""
    cipher = Cipher(algorithms.AES(seed), modes.CTR(block.to_bytes(16, "big"))).encryptor()
    return cipher.update(bytes(size))


def numbers(seed: bytes, stream: int, count: int) -> Array:
    """So many numbers below the prime: words of a stream that are, in their order."""
    found, block = np.empty(0, np.uint64), stream << 64
    while len(found) < count:
        blocks = -(-4 * (count - len(found)) // 16)
        words = np.frombuffer(keystream(seed, block, 16 * blocks), "<u4").astype(np.uint64)
        found, block = np.concatenate([found, words[words < PRIME]]), block + blocks
    return found[:count]


def line(key: bytes, seed: bytes, count: int) -> Array:
    """G: so many numbers of a 16-byte seed, by AES-128 under the upload's key."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    low, high = np.frombuffer(seed, "<u8")

    def hashed(counters: Array) -> Array:
        plain = np.stack([np.full_like(counters, high), high ^ low ^ counters], axis=1).astype("<u8")
        cipher_text = np.frombuffer(cipher.update(plain.tobytes()), "<u8").reshape(-1, 2)
        return (cipher_text ^ plain).view("<u4").ravel().astype(np.uint64)

    words = hashed(np.arange(-(-count // 4), dtype=np.uint64))[:count]
    for place in np.flatnonzero(words >= PRIME):
        stream = np.uint64(place // 4)
        while words[place] >= PRIME:
            stream += np.uint64(2**32)
            words[place] = hashed(np.array([stream]))[place % 4]
    return words


def upload(sizes: list[int], levels: list[int], public: bytes, context: bytes) -> bytes:
    """The upload of a person with these levels."""
    order = sorted(range(len(sizes)), key=lambda column: -sizes[column])
    tables = len(sizes) * (len(sizes) + 1) // 2
    key, first, second = os.urandom(16), os.urandom(32), os.urandom(32)
    drawn = keystream(second, 0, 16 * sum(sizes) + -(-sum(sizes) // 8))
    seeds = [drawn[16 * n : 16 * n + 16] for n in range(sum(sizes))]
    bits = np.unpackbits(np.frombuffer(drawn[16 * sum(sizes) :], np.uint8), count=sum(sizes))
    shape = (-1, tables, REPEATS)
    mine, theirs = numbers(first, 1, 3 * tables * REPEATS), numbers(second, 1, 4 * tables * REPEATS)
    kappa, a, b = (x + y for x, y in zip(mine.reshape(shape), theirs.reshape(shape), strict=False))
    kappa, a, b = kappa % PRIME, a % PRIME, b % PRIME
    c = (a * a % PRIME + b + PRIME - kappa * a % PRIME + PRIME - theirs.reshape(shape)[3]) % PRIME
    corrections, level, table = [], 0, 0
    for place, column in enumerate(order):
        others = order[place + 1 :]
        width = 1 + sum(sizes[other] for other in others)
        held, start = np.zeros((1 + REPEATS, width), np.uint64), 0
        for other in (column, *others):
            at = start + (levels[other] if other != column else 0)
            held[:, at] = [1, *kappa[table]]
            start, table = start + (1 if other == column else sizes[other]), table + 1
        own, new = level + levels[column], os.urandom(16)
        count = held.size
        said = held.ravel() + line(key, new, count) + np.uint64(PRIME) - line(key, seeds[own], count)
        corrections.append((said if bits[own] else np.uint64(3 * PRIME) - said) % PRIME)
        seeds[own], bits[own], level = new, 1 - bits[own], level + sizes[column]
    common = np.concatenate(corrections).astype("<u4").tobytes()
    bound = context + key + hashlib.sha256(common).digest()
    words = c.astype("<u4").tobytes()
    return (
        key
        + common
        + sealed(public, second, bound)
        + first
        + b"".join(seeds)
        + np.packbits(bits).tobytes()
        + words
    )


def sealed(public: bytes, data: bytes, bound: bytes) -> bytes:
    """For the second aggregator's eyes alone."""
    once = X25519PrivateKey.generate()
    own = once.public_key().public_bytes_raw()
    shared = once.exchange(X25519PublicKey.from_public_bytes(public))
    cipher = ChaCha20Poly1305(HKDF(SHA256(), 32, own + public, b"understudy envelope 1").derive(shared))
    return own + cipher.encrypt(bytes(12), data, bound)


def context_of(ticket: dict[str, Any]) -> bytes:
    """What the second aggregator must have been told alike: the run, its settings, all schemas, and its own key."""
    told = json.dumps([ticket["run"], ticket["config"], ticket["schemas"], ticket["key"]], sort_keys=True)
    return hashlib.sha256(b"understudy upload 1 " + told.encode()).digest()


def fingerprint(ticket: dict[str, Any]) -> str:
    """What can be read over the telephone."""
    text = json.dumps({ticket["config"]["aggregator"]: ticket["key"]})
    digest = hashlib.sha256(text.encode()).hexdigest()
    return "-".join(digest[place : place + 4] for place in range(0, 32, 4))


def pay(ledger: Path, ticket: dict[str, Any], most: float) -> None:
    """The price of this upload, on the disk before anything is sent."""
    entries = [json.loads(text) for text in ledger.read_text().splitlines()] if ledger.exists() else []
    price = {"run": ticket["run"], "epsilon": ticket["config"]["epsilon"], "delta": ticket["config"]["delta"]}
    if any(entry["run"] == ticket["run"] for entry in entries):
        raise SystemExit("You have uploaded in this run. Nothing was sent.")
    if sum(entry["epsilon"] for entry in [*entries, price]) > most:
        raise SystemExit(f"With this upload ε would be above {most:g} in all. Nothing was sent.")
    with ledger.open("a") as file:
        file.write(json.dumps(price) + "\n")
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ticket", type=Path)
    parser.add_argument("levels", help="one for each column, from 0, with commas between")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ledger", type=Path, default=Path("ledger.jsonl"))
    parser.add_argument("--most", type=float, default=2.0, help="what all uploads may cost")
    parser.add_argument("--to", help="an address that takes the upload (HTTP POST)")
    args = parser.parse_args()
    ticket = json.loads(args.ticket.read_text())
    levels, public = [int(text) for text in args.levels.split(",")], bytes.fromhex(ticket["key"])
    if len(levels) != len(ticket["sizes"]) or not all(
        0 <= n < size for n, size in zip(levels, ticket["sizes"], strict=True)
    ):
        raise SystemExit("The levels do not fit the columns. Nothing was sent.")
    print("the second aggregator's key:", fingerprint(ticket))
    pay(args.ledger, ticket, args.most)
    data = upload(ticket["sizes"], levels, public, context_of(ticket))
    args.out.write_bytes(data)
    if args.to:
        urllib.request.urlopen(urllib.request.Request(args.to, data=data), timeout=60).close()
    price = ticket["config"]["epsilon"]
    print(f"{len(data):,} bytes, ε = {price:g} against either aggregator, none against both together")


if __name__ == "__main__":
    main()

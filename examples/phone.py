"""One person's upload to two aggregators, without the rest of this project: numpy and `cryptography` alone.

    python examples/phone.py ticket.json 3,0,17,1 upload.bin [--ledger ledger.jsonl] [--most 2.0]
    python examples/phone.py https://study.example.org:8700 3,0,17,1 upload.bin --code … [--ca authority.pem]

The ticket is what a run tells people: {"run", "config", "schemas", "key", "sizes"}; a file, or the address of who
collects uploads, which then gets the upload, too. The levels are the person's own, one for each column, from 0. The
price goes into the ledger before anything is written or sent; a second upload in one run, and one that takes the sum of
ε above --most, is refused. Where the upload was made and did not arrive, the same command sends it again.
`docs/people.md` has the format, byte by byte: an app in another language follows it. Give the aggregator's key
(`--key`), or compare its fingerprint, which is printed, with the aggregator's own word: who could put another key into
the ticket could read the upload.
"""

import argparse
import hashlib
import json
import os
import ssl
import urllib.error
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


def made_before(ledger: Path, ticket: dict[str, Any], most: float, *files: Path) -> bytes | None:
    """The upload that was made in this run, if it is still here. Nothing, if there was none and it is within --most."""
    entries = [json.loads(text) for text in ledger.read_text().splitlines()] if ledger.exists() else []
    for entry in entries:
        if entry["run"] == ticket["run"]:
            for data in (file.read_bytes() for file in files if file.exists()):
                if hashlib.sha256(data).hexdigest() == entry["upload"]:
                    return data
            raise SystemExit("You have uploaded in this run. Nothing was sent.")
    if sum(entry["epsilon"] for entry in entries) + ticket["config"]["epsilon"] > most:
        raise SystemExit(f"With this upload ε would be above {most:g} in all. Nothing was sent.")
    return None


def pay(ledger: Path, ticket: dict[str, Any], data: bytes) -> None:
    """The price of this upload, on the disk before anything is sent."""
    price = {"run": ticket["run"], "epsilon": ticket["config"]["epsilon"], "delta": ticket["config"]["delta"]}
    keep(ledger, (json.dumps(price | {"upload": hashlib.sha256(data).hexdigest()}) + "\n").encode(), "ab")


def keep(file: Path, data: bytes, mode: str = "wb") -> None:
    with file.open(mode) as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


class Receiver:
    """Who collects uploads, over HTTPS."""

    def __init__(self, address: str, code: str, ca: str | None) -> None:
        self.address, self.code, self.trusted = (
            address.rstrip("/"),
            code,
            ssl.create_default_context(cafile=ca),
        )

    def ask(self, place: str, data: bytes | None = None) -> bytes:
        """Read what lies there, or put these bytes there."""
        headers = {"Authorization": f"Bearer {self.code}", "Content-Type": "application/octet-stream"}
        method = "GET" if data is None else "PUT"
        request = urllib.request.Request(f"{self.address}/v1/{place}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.trusted) as answer:
                return bytes(answer.read(1 << 24))
        except urllib.error.HTTPError as refusal:
            said = refusal.read(1000).decode(errors="replace")
            raise SystemExit(f"Refused, {refusal.code}: {said}") from None
        except OSError as error:
            raise SystemExit(
                f"{self.address} was not reached ({error}). The same command tries again."
            ) from None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ticket", help="a file, or the address of who collects")
    parser.add_argument("levels", help="one for each column, from 0, with commas between")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ledger", type=Path, default=Path("ledger.jsonl"))
    parser.add_argument("--most", type=float, default=2.0, help="what all uploads may cost")
    parser.add_argument("--key", help="the second aggregator's key: nothing is sealed to another")
    parser.add_argument("--code", default="", help="the code that you were given")
    parser.add_argument("--ca", help="certificates to trust, if not the system's")
    args = parser.parse_args()
    to = Receiver(args.ticket, args.code, args.ca) if args.ticket.startswith("https://") else None
    ticket = json.loads(Path(args.ticket).read_text() if to is None else to.ask("ticket"))
    levels, public = [int(text) for text in args.levels.split(",")], bytes.fromhex(ticket["key"])
    if len(levels) != len(ticket["sizes"]) or not all(
        0 <= n < size for n, size in zip(levels, ticket["sizes"], strict=True)
    ):
        raise SystemExit("The levels do not fit the columns. Nothing was sent.")
    if args.key not in (None, ticket["key"]):
        raise SystemExit("This is not the second aggregator's key. Nothing was sent.")
    print("the second aggregator's key:", fingerprint(ticket))
    context, draft = context_of(ticket), args.out.with_name(f"{args.out.name}.draft")
    data = made_before(args.ledger, ticket, args.most, args.out, draft)
    if data is None:
        data = upload(ticket["sizes"], levels, public, context)
        keep(draft, data)  # so that what is paid for is there, whenever this is cut off
        pay(args.ledger, ticket, data)
    keep(args.out, data)
    draft.unlink(missing_ok=True)
    if to is not None:
        to.ask(f"uploads/{context.hex()}", data)
    price = ticket["config"]["epsilon"]
    print(f"{len(data):,} bytes, ε = {price:g} against either aggregator, none against both together")


if __name__ == "__main__":
    main()

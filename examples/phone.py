"""One person's upload, without the rest of this project: numpy and `cryptography`
alone.

    python examples/phone.py ticket.json 3,0,17,1 upload.bin
        [--ledger ledger.jsonl] [--max-epsilon 2.0]
    python examples/phone.py https://study.example.org:8700 3,0,17,1 upload.bin
        --code … [--ca authority.pem]

The ticket is what a run tells people; a file, or the address of who collects uploads,
which then gets the upload, too. With {"run", "config", "schemas", "key", "sizes"} the
upload is in two shares for two aggregators; with the sets of columns of a round,
{"columns", "groups", "listed", "weights", …}, it is one report that is private by
itself: nobody need be trusted, and there is no key. The levels are the person's own,
one for each column, from 0. The price goes into the ledger before anything is written
or sent; a second upload in one run, and one that takes the sum of ε above --max-epsilon
or that of δ above --delta, is refused. Where the upload was made and did not arrive,
the same command sends it again. Say by --sizes how many levels each column has: levels
that do not fit a ticket are refused, and who makes up tickets would learn from that
where they lie; with --sizes such a ticket is refused whatever the levels are.
`docs/people.md` has both formats, byte by byte: an app in another language follows
them. For two shares, give the aggregator's key (`--key`), or compare its fingerprint,
which is printed, with the aggregator's own word: who could put another key into the
ticket could read the upload.
"""

import argparse
import hashlib
import json
import math
import os
import secrets
import ssl
import urllib.error
import urllib.parse
import urllib.request
from fractions import Fraction
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PRIME = 2**32 - 5
REPEATS = 2
Array = np.ndarray[Any, Any]


def keystream(seed: bytes, block: int, size: int) -> bytes:
    """AES-256-CTR from a block of the counter on."""
    cipher = Cipher(
        algorithms.AES(seed), modes.CTR(block.to_bytes(16, "big"))
    ).encryptor()
    return cipher.update(bytes(size))


def numbers(seed: bytes, stream: int, count: int) -> Array:
    """So many numbers below the prime: words of a stream that are, in their order."""
    found = np.empty(0, np.uint64)
    block = stream << 64
    while len(found) < count:
        blocks = -(-4 * (count - len(found)) // 16)
        words = np.frombuffer(keystream(seed, block, 16 * blocks), "<u4").astype(
            np.uint64
        )
        found = np.concatenate([found, words[words < PRIME]])
        block = block + blocks
    return found[:count]


def line(key: bytes, seed: bytes, count: int) -> Array:
    """G: so many numbers of a 16-byte seed, by AES-128 under the upload's key."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    low, high = np.frombuffer(seed, "<u8")

    def hashed(counters: Array) -> Array:
        plain = np.stack(
            [np.full_like(counters, high), high ^ low ^ counters], axis=1
        ).astype("<u8")
        cipher_text = np.frombuffer(cipher.update(plain.tobytes()), "<u8").reshape(
            -1, 2
        )
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
    key = os.urandom(16)
    first = os.urandom(32)
    second = os.urandom(32)
    drawn = keystream(second, 0, 16 * sum(sizes) + -(-sum(sizes) // 8))
    seeds = [drawn[16 * n : 16 * n + 16] for n in range(sum(sizes))]
    bits = np.unpackbits(
        np.frombuffer(drawn[16 * sum(sizes) :], np.uint8), count=sum(sizes)
    )
    shape = (-1, tables, REPEATS)
    mine = numbers(first, 1, 3 * tables * REPEATS)
    theirs = numbers(second, 1, 4 * tables * REPEATS)
    kappa, a, b = (
        x + y for x, y in zip(mine.reshape(shape), theirs.reshape(shape), strict=False)
    )
    kappa = kappa % PRIME
    a = a % PRIME
    b = b % PRIME
    c = (
        a * a % PRIME + b + PRIME - kappa * a % PRIME + PRIME - theirs.reshape(shape)[3]
    ) % PRIME
    corrections = []
    level = 0
    table = 0
    for place, column in enumerate(order):
        others = order[place + 1 :]
        width = 1 + sum(sizes[other] for other in others)
        held = np.zeros((1 + REPEATS, width), np.uint64)
        start = 0
        for other in (column, *others):
            at = start + (levels[other] if other != column else 0)
            held[:, at] = [1, *kappa[table]]
            start = start + (1 if other == column else sizes[other])
            table = table + 1
        own = level + levels[column]
        new = os.urandom(16)
        count = held.size
        said = (
            held.ravel()
            + line(key, new, count)
            + np.uint64(PRIME)
            - line(key, seeds[own], count)
        )
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
    cipher = ChaCha20Poly1305(
        HKDF(SHA256(), 32, own + public, b"understudy envelope 1").derive(shared)
    )
    return own + cipher.encrypt(bytes(12), data, bound)


def context_of(ticket: dict[str, Any]) -> bytes:
    """What the second aggregator must have been told alike: the run, its settings, all
    schemas, and its own key.
    """
    told = json.dumps(
        [ticket["run"], ticket["config"], ticket["schemas"], ticket["key"]],
        sort_keys=True,
    )
    return hashlib.sha256(b"understudy upload 1 " + told.encode()).digest()


def fingerprint(ticket: dict[str, Any]) -> str:
    """What can be read over the telephone."""
    text = json.dumps({ticket["config"]["aggregator"]: ticket["key"]})
    digest = hashlib.sha256(text.encode()).hexdigest()
    return "-".join(digest[place : place + 4] for place in range(0, 32, 4))


# A report that is private by itself


def one_of(weights: list[int]) -> int:
    """A place, each as often as its weight says."""
    drawn = secrets.randbelow(sum(weights))
    return next(place for place, end in enumerate(accumulate(weights)) if drawn < end)


def cell_of(ticket: dict[str, Any], number: int, levels: list[int]) -> tuple[int, int]:
    """The cell of the person's row in a set of columns, and how many there are."""
    columns = ticket["columns"][number]
    listed = ticket["listed"][number]
    ends = list(accumulate(ticket["sizes"], initial=0))
    groups = [ticket["groups"][ends[column] : ends[column + 1]] for column in columns]
    own = [group[levels[column]] for group, column in zip(groups, columns, strict=True)]
    if listed:
        return (listed.index(own) if own in listed else len(listed)), len(listed) + 1
    cell = 0
    cells = 1
    for group, place in zip(groups, own, strict=True):
        cell = cell * (max(group) + 1) + place
        cells = cells * (max(group) + 1)
    return cell, cells


def well_formed(ticket: dict[str, Any]) -> bool:
    """Whether every row has a cell in every set, by what the ticket says alone: a
    number that no cell has, or an error that only some rows meet, would tell the row at
    no price.
    """
    sizes = ticket["sizes"]
    sets = ticket["columns"]
    if not all(
        type(number) is int for number in (*sizes, *ticket["groups"], *chain(*sets))
    ):
        return False
    ends = list(accumulate(sizes, initial=0))
    parts = [sorted(set(ticket["groups"][a:b])) for a, b in pairwise(ends)]
    return (
        min(sizes) > 0
        and len(ticket["groups"]) == ends[-1]
        and all(part == list(range(len(part))) for part in parts)
        and all(
            columns and 0 <= min(columns) <= max(columns) < len(sizes)
            for columns in sets
        )
        and len(sets) == len(ticket["listed"]) == len(ticket["weights"])
    )


def shape(cells: int, epsilon: float) -> tuple[int, int, bool, int]:
    """Of a report on so many cells: how many it names, by how many bytes each, whether
    by numbers, and its length.
    """
    size = max(1, round(cells / (1 + math.exp(epsilon))))
    digits = 1 if cells <= 256 else 2
    by_number = size * digits < math.ceil(cells / 8) or size == 1
    return size, digits, by_number, size * digits if by_number else math.ceil(cells / 8)


def randomized(cell: int, cells: int, epsilon: float) -> bytes:
    """Subset selection: some cells, the person's own among them as often as ε
    allows.
    """
    size, digits, by_number, length = shape(cells, epsilon)
    lift = Fraction(math.nextafter(math.nextafter(math.exp(epsilon), 0), 0))
    kept = math.floor(size * lift / (size * lift + cells - size) * 2**62)
    others = [
        other + (other >= cell)
        for other in secrets.SystemRandom().sample(range(cells - 1), size)
    ]
    named = sorted([*others[1:], cell] if secrets.randbelow(2**62) < kept else others)
    if by_number:
        return b"".join(one.to_bytes(digits, "big") for one in named)
    bits = np.zeros(8 * length, np.uint8)
    bits[named] = 1
    return np.packbits(bits).tobytes()


def report(ticket: dict[str, Any], levels: list[int]) -> bytes:
    """A report about a set of columns that is drawn here, as long as the longest of the
    round.
    """
    epsilon = ticket["config"]["epsilon_total"]
    good = well_formed(ticket)
    sizes = [
        cell_of(ticket, number, levels)[1]
        for number in range(len(ticket["columns"]))
        if good
    ]
    if not sizes or min(sizes) < 2 or max(sizes) > 2**16:
        raise SystemExit(
            "The ticket's sets are none that can be reported on. Nothing was sent."
        )
    longest = max(shape(cells, epsilon)[3] for cells in sizes)
    number = one_of(ticket["weights"])
    sent = randomized(*cell_of(ticket, number, levels), epsilon)
    return os.urandom(16) + number.to_bytes(2, "big") + sent.ljust(longest, b"\0")


def report_context(ticket: dict[str, Any]) -> bytes:
    """What a report is made for."""
    return hashlib.sha256(
        b"understudy report 1 " + json.dumps(ticket, sort_keys=True).encode()
    ).digest()


def price_of(ticket: dict[str, Any]) -> dict[str, float]:
    """What an upload costs: with δ in two shares, without it where a report is private
    by itself.
    """
    config = ticket["config"]
    alone = "columns" in ticket
    epsilon, delta = (
        (config["epsilon_total"], 0.0)
        if alone
        else (config["epsilon"], config["delta"])
    )
    if not (0 < epsilon < math.inf and 0 <= delta < 1):
        raise SystemExit(f"ε = {epsilon}, δ = {delta} is no price. Nothing was sent.")
    return {"epsilon": epsilon, "delta": delta}


def made_before(
    ledger: Path, ticket: dict[str, Any], most: dict[str, float], *files: Path
) -> bytes | None:
    """The upload that was made in this run, if it is still here. Nothing, if there was
    none and it is within `most`.
    """
    entries = (
        [json.loads(text) for text in ledger.read_text().splitlines()]
        if ledger.exists()
        else []
    )
    for entry in entries:
        if entry["run"] == ticket["run"]:
            for data in (file.read_bytes() for file in files if file.exists()):
                if hashlib.sha256(data).hexdigest() == entry["upload"]:
                    return data
            raise SystemExit("You have uploaded in this run. Nothing was sent.")
    price = price_of(ticket)
    for key, sign in (("epsilon", "ε"), ("delta", "δ")):
        if sum(entry[key] for entry in entries) + price[key] > most[key]:
            raise SystemExit(
                f"With this upload {sign} would be above {most[key]:g} in all. "
                "Nothing was sent."
            )
    return None


def pay(ledger: Path, ticket: dict[str, Any], data: bytes) -> None:
    """The price of this upload, on the disk before anything is sent."""
    price = {"run": ticket["run"], **price_of(ticket)}
    keep(
        ledger,
        (
            json.dumps(price | {"upload": hashlib.sha256(data).hexdigest()}) + "\n"
        ).encode(),
        "ab",
    )


def keep(file: Path, data: bytes, mode: str = "wb") -> None:
    with file.open(mode) as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


class Receiver:
    """Who collects uploads, over HTTPS; in a try-out on this machine also without."""

    def __init__(self, address: str, code: str, ca: str | None) -> None:
        parts = urllib.parse.urlsplit(address)
        near = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
        if parts.scheme != "https" and not near:
            raise SystemExit(
                f"{address} could be read on the way: it has to be https. Nothing was "
                "sent."
            )
        self.address = address.rstrip("/")
        self.code = code
        self.trusted = ssl.create_default_context(cafile=ca)

    def ask(self, place: str, data: bytes | None = None) -> bytes:
        """Read what lies there, or put these bytes there."""
        headers = {
            "Authorization": f"Bearer {self.code}",
            "Content-Type": "application/octet-stream",
        }
        method = "GET" if data is None else "PUT"
        request = urllib.request.Request(
            f"{self.address}/v1/{place}", data, headers, method=method
        )
        try:
            with urllib.request.urlopen(
                request, timeout=60, context=self.trusted
            ) as answer:
                return bytes(answer.read(1 << 24))
        except urllib.error.HTTPError as refusal:
            said = refusal.read(1000).decode(errors="replace")
            raise SystemExit(f"Refused, {refusal.code}: {said}") from None
        except OSError as error:
            raise SystemExit(
                f"{self.address} was not reached ({error}). The same command tries "
                "again."
            ) from None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ticket", help="a file, or the address of who collects")
    parser.add_argument(
        "levels", help="one for each column, from 0, with commas between"
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--ledger", type=Path, default=Path("ledger.jsonl"))
    parser.add_argument(
        "--max-epsilon", type=float, default=2.0, help="what all uploads may cost: ε"
    )
    parser.add_argument(
        "--delta", type=float, default=1e-5, help="and δ, which two shares have"
    )
    parser.add_argument(
        "--sizes",
        help="how many levels each column has, as you know it: for no other ticket",
    )
    parser.add_argument(
        "--key", help="the second aggregator's key: nothing is sealed to another"
    )
    parser.add_argument("--code", default="", help="the code that you were given")
    parser.add_argument("--ca", help="certificates to trust, if not the system's")
    args = parser.parse_args()
    to = Receiver(args.ticket, args.code, args.ca) if "://" in args.ticket else None
    ticket = json.loads(
        Path(args.ticket).read_text() if to is None else to.ask("ticket")
    )
    levels = [int(text) for text in args.levels.split(",")]
    alone = "columns" in ticket
    if (
        args.sizes is not None
        and [int(text) for text in args.sizes.split(",")] != ticket["sizes"]
    ):
        raise SystemExit("This ticket is about other columns. Nothing was sent.")
    if len(levels) != len(ticket["sizes"]) or not all(
        0 <= n < size for n, size in zip(levels, ticket["sizes"], strict=True)
    ):
        raise SystemExit("The levels do not fit the columns. Nothing was sent.")
    if not alone and args.key not in (None, ticket["key"]):
        raise SystemExit("This is not the second aggregator's key. Nothing was sent.")
    if not alone:
        print("the second aggregator's key:", fingerprint(ticket))
    context = report_context(ticket) if alone else context_of(ticket)
    draft = args.out.with_name(f"{args.out.name}.draft")
    most = {"epsilon": args.max_epsilon, "delta": args.delta}
    data = made_before(args.ledger, ticket, most, args.out, draft)
    if data is None:
        public = b"" if alone else bytes.fromhex(ticket["key"])
        data = (
            report(ticket, levels)
            if alone
            else upload(ticket["sizes"], levels, public, context)
        )
        keep(draft, data)  # so that what is paid for is there, whenever this is cut off
        pay(args.ledger, ticket, data)
    keep(args.out, data)
    draft.unlink(missing_ok=True)
    if to is not None:
        to.ask(f"uploads/{context.hex()}", data)
    whom = "everybody" if alone else "either aggregator, none against both together"
    print(f"{len(data):,} bytes, ε = {price_of(ticket)['epsilon']:g} against {whom}")


if __name__ == "__main__":
    main()

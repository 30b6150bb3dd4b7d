"""The product of two holders' one-hot tables without a dealer, beside the dealt one of
the same tables: time, bytes and memory of the one who encrypts and of the one who adds
up.

    [QUICK=1] python benchmarks/secure_product/encrypted.py

The tables and what is timed are those of `bench.py`: processor time of one thread,
messages handed over in memory, every product compared with that of numpy. `first_s`
encrypts and decrypts, `second_s` adds up and answers; `server_s` deals. `flood` is log2
of the wider flood, `rho` log2 of the price of both in zCDP, `off` the root mean square
of what counts are off by. QUICK=1 uses few people and leaves encrypted.csv alone.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy
sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parent))

import bench
import numpy as np
from bench import CHUNK, COLUMNS, exact, one_hot

from common.options import options, quick
from common.rows import write
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.lwe import (
    WORDS,
    Adder,
    Encryptor,
    Room,
    dimension_for,
)
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import KeyPair, connect

HERE = Path(__file__).parent
PEOPLE = [2_000] if quick() else [10_000, 100_000, 1_000_000]
CASES = [(way, people) for people in PEOPLE for way in ("dealt", "encrypted")]
NOISE = 10_000  # what counts hold beside the people: 100 deviations of a cell's noise


def measure(way: str, people: int) -> dict[str, Any]:
    return encrypted(people) if way == "encrypted" else dealt(people)


def dealt(people: int) -> dict[str, Any]:
    row = bench.measure(people, 32)
    return {
        "people": people,
        "columns": row["columns"],
        "products": "dealt",
        "bits": row["bits"],
        "first_s": row["first_s"],
        "second_s": row["second_s"],
        "server_s": row["dealer_s"],
        "seal_s": row["seal_s"],
        "peak_mb": row["peak_mb"],
        "sent_mb_there": row["sent_mb_each_way"],
        "sent_mb_back": row["sent_mb_each_way"],
        "flood": None,
        "rho": None,
        "off": 0.0,
    }


def encrypted(people: int) -> dict[str, Any]:
    x = one_hot(people, 1)
    y = one_hot(people, 2)
    true = exact(x, y)
    ring = Ring.least(people + NOISE)
    room = Room(ring.bits, (COLUMNS, COLUMNS), dimension_for(ring.bits, COLUMNS))
    seconds = dict.fromkeys(("first_s", "second_s", "seal_s"), 0.0)
    sent = {"there": 0, "back": 0}

    @contextmanager
    def timed(who: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        seconds[who] += time.process_time() - begin

    keys = {name: KeyPair() for name in ("first", "second")}
    public = {name: pair.public for name, pair in keys.items()}
    out = connect("first", keys["first"], public, context=b"bench")["second"]
    back = connect("second", keys["second"], public, context=b"bench")["first"]

    def passed(data: bytes, *, there: bool) -> bytes:
        with timed("seal_s"):
            line, end = (out, back) if there else (back, out)
            sealed = line.seal(data)
            sent["there" if there else "back"] += len(sealed)
            return end.open(sealed)

    with timed("first_s"):
        first = Encryptor(
            os.urandom(32), b"bench" * 6, ring.bits, COLUMNS, room.dimension
        )
        public_key = WORDS.to_bytes(first.public_key())
    second = Adder(b"bench" * 6, {"first": room})
    for start in range(0, people, CHUNK):
        place = b"%d" % start
        with timed("first_s"):
            words = first.encrypt(place, x[start : start + CHUNK])
        data = passed(WORDS.to_bytes(words), there=True)
        rows = y[start : start + CHUNK]
        with timed("second_s"):
            words = WORDS.from_bytes(data, len(rows), COLUMNS)
            second.add(place, {"first": words}, rows)
    data = passed(public_key, there=True)
    with timed("second_s"):
        key = WORDS.from_bytes(data, room.dimension, COLUMNS)
        answer, second_share = second.answer("first", key, SecureRng())
    data = passed(answer, there=False)
    with timed("first_s"):
        first_share = first.share(data, room)
    total = ring.signed(ring.words(first_share + second_share)).numpy()
    off = float(np.sqrt(np.square(total - true, dtype=float).mean()))
    assert off < 1.1 * room.spread
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "people": people,
        "columns": f"{COLUMNS}+{COLUMNS}",
        "products": "encrypted",
        "bits": ring.bits,
        "first_s": round(seconds["first_s"], 2),
        "second_s": round(seconds["second_s"], 2),
        "server_s": 0.0,
        "seal_s": round(seconds["seal_s"], 2),
        "peak_mb": round(peak / 1024, 1),
        "sent_mb_there": round(sent["there"] / 1e6, 1),
        "sent_mb_back": round(sent["back"] / 1e6, 1),
        "flood": max(room.flood, room.own_flood),
        "rho": round(float(np.log2(room.rho)), 1),
        "off": round(off, 3),
    }


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=HERE / "encrypted.csv")


def main() -> None:
    args = parser().parse_args()
    rows = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for row in (pool.apply(measure, case) for case in CASES):
            rows.append(row)
            print(row, flush=True)
    write(args.out, rows, list(rows[0]))


if __name__ == "__main__":
    main()

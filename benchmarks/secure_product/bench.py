"""The secure product of two holders' one-hot tables: time and memory of the dealer and
of both holders.

    make bench NAME=secure_product [QUICK=1]

Rows are generated: 150 one-hot columns at each of two holders, in blocks of ten levels.
Times are processor time of one thread, so that other work on the machine does not blur
them: the dealer's, each holder's, and `seconds` for the three together. Messages are
handed over in memory; `seal_s` is the extra time of encrypting and decrypting them end
to end. Every product is compared with that of numpy. `peak_mb` is the peak memory of a
process in which the dealer, both holders and both whole tables live, interpreter and
libraries included. QUICK=1 uses few people and leaves ours.csv alone.
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

import numpy as np

from common.options import options, quick
from common.rows import write
from understudy.privacy.secure.ring import Bits, Ring
from understudy.privacy.secure.sums import Dealer, Factor, KeyPair, connect

HERE = Path(__file__).parent
QUICK = quick()
CASES = (
    [(2_000, 32), (2_000, 64)]
    if QUICK
    else [(10_000, 32), (100_000, 32), (100_000, 64), (1_000_000, 32)]
)
COLUMNS = 150
LEVELS = 10
CHUNK = 1 << 15


def one_hot(people: int, seed: int) -> Bits:
    codes = np.random.default_rng(seed).integers(0, LEVELS, (people, COLUMNS // LEVELS))
    out = np.zeros((people, COLUMNS // LEVELS, LEVELS), dtype=np.bool_)
    np.put_along_axis(out, codes[..., None], True, axis=2)
    return out.reshape(people, COLUMNS)


def exact(x: Bits, y: Bits) -> np.ndarray[Any, Any]:
    total = np.zeros((COLUMNS, COLUMNS), dtype=np.int64)
    for start in range(0, len(x), CHUNK):
        a, b = (part[start : start + CHUNK].astype(np.float64) for part in (x, y))
        total += (a.T @ b).astype(np.int64)
    return total


def measure(people: int, bits: int) -> dict[str, Any]:
    x = one_hot(people, 1)
    y = one_hot(people, 2)
    true = exact(x, y)
    ring = Ring(bits)
    seconds = dict.fromkeys(("dealer_s", "first_s", "second_s", "seal_s"), 0.0)

    @contextmanager
    def timed(who: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        seconds[who] += time.process_time() - begin

    dealer = Dealer(ring, (COLUMNS, COLUMNS))
    first = Factor(ring, dealer.seeds[0], first=True, width=COLUMNS, peer_width=COLUMNS)
    second = Factor(
        ring, dealer.seeds[1], first=False, width=COLUMNS, peer_width=COLUMNS
    )
    keys = {name: KeyPair() for name in ("first", "second")}
    public = {name: pair.public for name, pair in keys.items()}
    out = connect("first", keys["first"], public, context=b"bench")["second"]
    back = connect("second", keys["second"], public, context=b"bench")["first"]
    sent = 0
    for start in range(0, people, CHUNK):
        a = x[start : start + CHUNK]
        b = y[start : start + CHUNK]
        with timed("first_s"):
            masked_a = first.mask(a)
        with timed("second_s"):
            masked_b = second.mask(b)
        with timed("seal_s"):
            for line, end, words in ((out, back, masked_a), (back, out, masked_b)):
                sealed = line.seal(ring.to_bytes(words))
                end.open(sealed)
                sent += len(sealed)
        with timed("first_s"):
            first.take(masked_b, a)
        with timed("second_s"):
            second.take(masked_a, b)
        with timed("dealer_s"):
            dealer.deal(len(a))
    total = ring.signed(first.share() + second.share(dealer.correction())).numpy()
    assert np.array_equal(total, true)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "people": people,
        "columns": f"{COLUMNS}+{COLUMNS}",
        "bits": bits,
        **{name: round(value, 2) for name, value in seconds.items()},
        "seconds": round(
            sum(seconds[name] for name in ("dealer_s", "first_s", "second_s")), 2
        ),
        "peak_mb": round(peak / 1024, 1),
        "sent_mb_each_way": round(sent / 2e6, 1),
        "exact": True,
    }


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=HERE / "ours.csv")


def main() -> None:
    args = parser().parse_args()
    rows = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for row in pool.starmap(measure, CASES, chunksize=1):
            rows.append(row)
            print(row, flush=True)
    write(args.out, rows, list(rows[0]))


if __name__ == "__main__":
    main()

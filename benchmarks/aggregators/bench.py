"""Two aggregators: what an upload costs a person, and what the check and the sums cost
the two who add up.

    make bench NAME=aggregators [QUICK=1]

People have random levels of 15 columns with 151 levels, as many as Adult has in
benchmarks/joint. Times are processor time of one thread, so that other work on the
machine does not blur them: of a host that makes all uploads, of each aggregator from
bytes to sums, which work at the same time in a real run, and of a single person's
upload (`client_ms`, by the clock, the median of 30). Uploads are made, checked and
added up batch by batch; `peak_mb` is the peak memory of a process in which a host and
both aggregators live, interpreter and libraries included. Every sum is compared with
that of numpy, and one person in a thousand lies. QUICK=1 uses few people and leaves
ours.csv alone.
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch

from common.options import options, quick
from common.rows import write
from understudy.privacy.secure.counts import gram_matrix
from understudy.privacy.secure.ring import Field
from understudy.privacy.secure.sketch import Sketch
from understudy.privacy.secure.sums import KeyPair
from understudy.privacy.secure.table_shares import Cells
from understudy.protocols.aggregators.upload import Format

HERE = Path(__file__).parent
QUICK = quick()
SIZES = (9, 9, 10, 16, 16, 7, 15, 6, 5, 2, 4, 4, 4, 42, 2)
PEOPLE = [500] if QUICK else [10_000, 50_000, 100_000]
BATCH = 1_000
LIARS = 1_000


def levels(people: int, seed: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, people) for size in SIZES], axis=1).astype(
        np.int32
    )


def drawn(people: int, form: Format) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random bytes for so many uploads."""
    return np.frombuffer(os.urandom(people * form.randomness), np.uint8).reshape(
        people, -1
    )


def measure(people: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    field = Field()
    cells = Cells(SIZES)
    pair = KeyPair()
    form = Format(cells, field)
    context = bytes(32)
    prime = np.uint64(field.prime)
    seconds = dict.fromkeys(("host_s", "first_s", "second_s"), 0.0)

    @contextmanager
    def timed(who: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        seconds[who] += time.process_time() - begin

    totals = [np.zeros(cells.count, np.uint64)] * 2
    exact = torch.zeros(cells.levels, cells.levels, dtype=torch.int64)
    refused = 0
    for start in range(0, people, BATCH):
        codes = levels(min(BATCH, people - start), start)
        with timed("host_s"):
            rows = form.write(
                codes, drawn(len(codes), form), pair.public, context
            ).numpy()
        rows[::LIARS, form.head + 40] ^= 1  # a seed that is another than was dealt
        with timed("first_s"):
            first = form.first(rows)
        with timed("second_s"):
            second, opened = form.second(rows[:, : form.head], pair, context)
        sketch = Sketch(cells, os.urandom(32), field)
        said = []
        judged = []
        for who, share in (("first_s", first), ("second_s", second)):
            with timed(who):
                said.append(sketch.look(share))
        z, y = ((said[0][part] + said[1][part]) % prime for part in (0, 1))
        for who, share in (("first_s", first), ("second_s", second)):
            with timed(who):
                judged.append(sketch.judge(share, z, y))
        passed = sketch.passed(*judged) & opened
        for side, (who, share) in enumerate((("first_s", first), ("second_s", second))):
            with timed(who):
                *_, failed = sketch.look(share.select(np.flatnonzero(~passed)))
                totals[side] = (
                    totals[side] + field.minus(said[side][2], failed)
                ) % prime
        exact += gram_matrix(codes[passed], SIZES)
        refused += int((~passed).sum())
    starts = np.cumsum([0, *SIZES])
    for one, other, table in cells.tables(field.signed(sum(totals) % prime).numpy()):
        true = exact[starts[one] : starts[one + 1], starts[other] : starts[other + 1]]
        assert np.array_equal(
            table[:, 0] if one == other else table,
            true.diagonal() if one == other else true,
        )
    assert refused == len(range(0, people, BATCH))
    return {
        "people": people,
        "cells": cells.count,
        "upload_bytes": form.size,
        "second_bytes": form.head,
        "client_ms": round(client(form, pair), 2),
        **{name: round(value, 1) for name, value in seconds.items()},
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "refused": refused,
        "exact": True,
    }


def client(form: Format, pair: KeyPair) -> float:
    """Milliseconds of one person's upload."""
    taken = []
    codes = levels(30, 1)
    for place in range(len(codes)):
        begin = time.perf_counter()
        form.write(codes[place : place + 1], drawn(1, form), pair.public, bytes(32))
        taken.append(time.perf_counter() - begin)
    return 1000 * statistics.median(taken)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "ours.csv")
    parser.add_argument("--people", type=int, nargs="*", default=PEOPLE)
    return parser


def main() -> None:
    args = parser().parse_args()
    rows = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for row in pool.imap(measure, args.people, chunksize=1):
            rows.append(row)
            print(row, flush=True)
            write(args.out, rows, list(rows[0]))


if __name__ == "__main__":
    main()

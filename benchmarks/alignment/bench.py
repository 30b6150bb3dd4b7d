"""Alignment: what it takes to find the people whom two holders share, and what an
exponentiation takes.

    make bench NAME=alignment [QUICK=1]

Two holders of n whole-number ids each, half of them shared, in one process (`align`).
`cpu_s` is the processor time of both holders and the server together, which other work
on the machine hardly blurs; `wall_s` is what a clock showed. `all_cores` has a thread
for each core, `one_core` one. `no_curve` has texts for ids, and hashes and exclusive or
where the curve would be, which protects nothing: it is for the memory of sets that
would take hours. The libraries: X25519 in PyNaCl and in cryptography, the least
processor time of several turns, and whether a call lets go of the interpreter's lock,
without which threads use one core. `peak_mb` is of the whole process, interpreter and
libraries included. QUICK=1 takes few ids and leaves ours.csv alone.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.append(str(Path(__file__).parents[1]))

from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from nacl.bindings import crypto_scalarmult, crypto_scalarmult_base

from common.aligned import align, without_curve
from common.options import options, quick
from common.rows import write
from understudy.privacy.secure import set_intersection

HERE = Path(__file__).parent
QUICK = quick()
SMALL, LARGE, POINTS, TIMES = (
    (200, 500, 50, 2) if QUICK else (10_000, 100_000, 1_000, 8)
)
MILLION = 1_000 if QUICK else 1_000_000
FIELDS = ["what", "ids", "cpu_s", "wall_s", "peak_mb", "cpu_us", "lets_go"]


def aligned(what: str, ids: int) -> dict[str, Any]:
    held: dict[str, Iterable[object]] = {
        "clinic": range(ids),
        "insurer": range(ids // 2, ids // 2 + ids),
    }
    cores = 1 if what == "one_core" else os.cpu_count()
    with ExitStack() as stack:
        stack.enter_context(
            patch.object(set_intersection.os, "cpu_count", lambda: cores)
        )
        if what == "no_curve":
            held = {name: (f"p{one:09}" for one in some) for name, some in held.items()}
            stack.enter_context(without_curve())
        wall = time.perf_counter()
        cpu = time.process_time()
        rows = align(held)
        wall = time.perf_counter() - wall
        cpu = time.process_time() - cpu
    assert set(rows["clinic"]) == set(range(ids // 2, ids))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "what": what,
        "ids": ids,
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "peak_mb": round(peak),
    }


def library(what: str, ids: int) -> dict[str, Any]:
    secret = os.urandom(32)
    points = [crypto_scalarmult_base(os.urandom(32)) for _ in range(ids)]
    key = X25519PrivateKey.from_private_bytes(secret)
    work: dict[str, Callable[[bytes], bytes]] = {
        "pynacl": lambda point: crypto_scalarmult(secret, point),
        "cryptography": lambda point: key.exchange(
            X25519PublicKey.from_public_bytes(point)
        ),
    }
    assert work["pynacl"](points[0]) == work["cryptography"](points[0])

    cpu = []
    for _ in range(TIMES):
        begin = time.process_time()
        for point in points:
            work[what](point)
        cpu.append(time.process_time() - begin)
    return {
        "what": what,
        "ids": ids,
        "cpu_us": round(min(cpu) / ids * 1e6, 1),
        "lets_go": lets_go(lambda: work[what](points[0])),
    }


def lets_go(call: Callable[[], bytes]) -> bool:
    """Whether another thread gets on during the call, where the interpreter takes the
    lock from nobody.
    """
    order: list[int] = []

    def repeat(who: int) -> None:
        for _ in range(200):
            call()
            order.append(who)

    before = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(repeat, (0, 1)))
    finally:
        sys.setswitchinterval(before)
    return sum(left != right for left, right in pairwise(order)) > 1


CASES: list[tuple[Callable[[str, int], dict[str, Any]], str, int]] = [
    (library, "pynacl", POINTS),
    (library, "cryptography", POINTS),
    (aligned, "one_core", SMALL),
    (aligned, "all_cores", SMALL),
    (aligned, "all_cores", LARGE),
    (aligned, "no_curve", MILLION),
]


def measured(
    case: tuple[Callable[[str, int], dict[str, Any]], str, int],
) -> dict[str, Any]:
    measure, what, ids = case
    return measure(what, ids)


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=HERE / "ours.csv")


def main() -> None:
    args = parser().parse_args()
    rows: list[dict[str, Any]] = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for row in pool.imap(measured, CASES, chunksize=1):
            rows.append(row)
            print(row, flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()

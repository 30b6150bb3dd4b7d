"""Scale on cores: one holder's table, opened and counted for both releases of `gram` by
so many processes.

    python -m benchmarks.scale.cores --cores 1,2,4,8,16 [--rows 10000000] [--folder /var/tmp] [--out cores.csv]

From the root of a checkout. Rows are made up as in `bench.py`, and written to a Parquet
file for the moment. For each number of cores the table is opened (every cell and every
id is checked), its fine cells are counted, and its pairs on 20 levels a column: by the
same functions as in a run, without noise and fit. All must give the same sums to the
last count, by their `digest`. Processes are started before the clock is (`start_s`:
what that takes, and a table of 1,000 rows). `us_core`: microseconds a row and core, of
all three; `linear`: how much faster than one core, over the number of cores. `ceiling`:
the same of work that shares nothing, arrays of numpy that every process has (below):
more than that no program gets here. Of the clock's seconds of all three passes the
process that asks has spent `ask_s` until the first was asked, `wait_s` waiting for
answers, `take_s` opening and adding them, `after_s` after the last one, and `own_s` of
its processor. Where pyarrow, pandas or another requirement is missing, arrays of numpy
stand for the file, which every process has in its memory before the clock starts:
levels are looked up, and pairs counted by the source of `gram_matrix` (`source` says
so). This needs numpy and torch alone.
"""

import argparse
import ast
import csv
import hashlib
import math
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
FIELDS = [
    "machine",
    "source",
    "rows",
    "columns",
    "cores",
    "parts",
    "open_s",
    "fine_s",
    "pairs_s",
    "us_core",
    "linear",
    "ceiling",
    "start_s",
    "ask_s",
    "wait_s",
    "take_s",
    "after_s",
    "own_s",
    "digest",
]
LEVELS = 20
BATCH = 1 << 18
CEILING = 48 * BATCH  # rows


def of_file(path: Path, cores: int) -> dict[str, Any]:
    """Seconds of each pass over a Parquet file, as a run makes it."""
    from bench import schema
    from passes import passes

    from understudy.data.reading import stores
    from understudy.data.reading.sources import TableSource
    from understudy.data.reading.spread import Cores, counted_by

    spent = dict.fromkeys(("ask_s", "wait_s", "take_s"), 0.0)

    class Watched(Cores):
        def __call__(self, task: Any) -> Iterator[bytes]:
            clock = [time.perf_counter()]
            own = super()
            answers = iter(own.__call__(task))

            def spend(what: str) -> None:
                clock.append(time.perf_counter())
                spent[what] += clock[-1] - clock[-2]

            spend("ask_s")
            for answer in answers:
                spend("wait_s")
                yield answer
                spend("take_s")
            spend("wait_s")

    os.environ["UNDERSTUDY_PROCESSES"], stores.SPREAD = str(cores), 0
    parts = 1 if cores == 1 else stores.pieces_of(TableSource(table=str(path)), 20)
    begun = time.perf_counter()
    marks = list[list[float]]()

    def clock() -> list[float]:
        if not marks:
            spent.update(dict.fromkeys(spent, 0.0))
        marks.append([time.perf_counter(), time.process_time()])
        return marks[-1]

    with counted_by(Watched(parts)):
        seconds, digest = passes(schema(), path, path.with_name("small.parquet"), clock)
    spent |= {
        "after_s": seconds[:, 0].sum() - sum(spent.values()),
        "own_s": seconds[:, 1].sum(),
    }
    spent |= {"start_s": marks[0][0] - begun}
    return (
        dict(
            zip(
                ("open_s", "fine_s", "pairs_s"),
                seconds[:, 0].round(2).tolist(),
                strict=True,
            )
        )
        | {what: round(float(taken), 2) for what, taken in spent.items()}
        | {"digest": digest, "parts": parts}
    )


def counting_source() -> dict[str, Any]:
    """`gram_matrix` and what it calls, without the package."""
    text = (ROOT / "src/understudy/privacy/secure/counts.py").read_text(
        encoding="utf-8"
    )
    wanted = {
        "gram_matrix",
        "_packs",
        "_tuples",
        "_by_column",
        "_pack_tables",
        "_packs_within",
        "_width",
        "_MAX_CELLS",
        "_CHUNK_ROWS",
        "_MAX_PACK_WIDTH",
    }
    body = [
        node
        for node in ast.parse(text).body
        if getattr(node, "name", None) in wanted
        or (
            isinstance(node, ast.Assign)
            and getattr(node.targets[0], "id", None) in wanted
        )
    ]
    lazy = ast.parse("from __future__ import annotations").body
    names: dict[str, Any] = {
        "np": np,
        "torch": torch,
        "math": math,
        "accumulate": accumulate,
    }
    names |= {"combinations": combinations, "pairwise": pairwise}
    names["NDArray"] = type(
        "NDArray", (), {"__class_getitem__": classmethod(lambda cls, item: cls)}
    )
    exec(compile(ast.Module([*lazy, *body], []), "counts.py", "exec"), names)  # noqa: S102 (our own source)
    return names


def of_arrays(work: tuple[int, Any]) -> tuple[list[float], Any]:
    """In one process: so many batches of made-up numbers, checked, coded and
    counted.
    """
    batches, ready = work
    torch.set_num_threads(1)
    gram_matrix = counting_source()["gram_matrix"]
    rng = np.random.default_rng(0)
    sizes = [LEVELS] * 20
    words = [rng.integers(0, LEVELS, BATCH).astype(np.int8) for _ in range(8)]
    whole = [rng.poisson(10 * (n + 1), BATCH) for n in range(8)]
    reals = [rng.normal(0, 1 + n, BATCH).clip(-100, 100) for n in range(4)]
    edges = np.sort(rng.normal(0, 30, 8190))
    lookup = np.arange(LEVELS, dtype=np.int32)
    groups = np.arange(10_001, dtype=np.int32) * LEVELS // 10_001
    ids = np.arange(BATCH)
    codes = np.empty((20, BATCH), dtype=np.int32)
    gram_matrix(np.zeros((2, 20), dtype=np.int32), sizes)
    ready.wait()
    seconds = [time.perf_counter()]
    sums = np.zeros((20 * LEVELS, 20 * LEVELS), dtype=np.int64)
    for _ in range(batches):
        fine = all(
            cells.min() >= 0 and cells.max() < 10_001 for cells in whole
        ) and all(abs(cells).max() <= 100 for cells in reals)
        if not fine or len(np.unique(ids)) < BATCH:
            raise SystemExit("a number is out of bounds, or an id is there twice")
    seconds.append(time.perf_counter())
    for again in range(2):
        for _ in range(batches):
            for n, cells in enumerate(words):
                np.take(lookup, cells, out=codes[n])
            for n, cells in enumerate(whole):
                np.take(groups, cells, out=codes[8 + n])
            for n, cells in enumerate(reals):
                codes[16 + n] = np.searchsorted(edges, cells) * LEVELS // 8191
            if again:
                sums += gram_matrix(codes.T, sizes).numpy()
            else:
                for column in codes:
                    np.bincount(column, minlength=LEVELS)
        seconds.append(time.perf_counter())
    return np.diff(seconds).tolist(), sums


def by_arrays(rows: int, cores: int) -> dict[str, Any]:
    """The longest seconds of all processes, and a digest of their sums."""
    context = multiprocessing.get_context("spawn")
    batches = -(-rows // BATCH)
    shares = [batches * (n + 1) // cores - batches * n // cores for n in range(cores)]
    with context.Manager() as manager, context.Pool(cores) as pool:
        ready = manager.Barrier(cores)
        found = pool.map(of_arrays, [(share, ready) for share in shares], chunksize=1)
    seconds = np.max([one for one, _ in found], axis=0).round(2).tolist()
    digest = hashlib.sha256(sum(sums for _, sums in found).tobytes()).hexdigest()[:12]
    return dict(zip(("open_s", "fine_s", "pairs_s"), seconds, strict=True)) | {
        "digest": digest
    }


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own.add_argument("--cores", default="1,2", help="numbers of processes, with commas")
    own.add_argument("--rows", type=int, default=10_000_000)
    own.add_argument(
        "--source",
        choices=("parquet", "numpy"),
        help="what is counted; by what is installed, if unsaid",
    )
    own.add_argument(
        "--folder", type=Path, help="where the rows are written for the moment"
    )
    own.add_argument(
        "--ceiling",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure it",
    )
    own.add_argument("--out", type=Path, help="the CSV file to write")
    return own


def is_installed() -> bool:
    sys.path[:0] = [
        str(ROOT / "src"),
        str(ROOT / "benchmarks"),
        str(ROOT / "benchmarks" / "scale"),
    ]
    try:
        import bench  # noqa: F401

        import understudy.protocols.gram.protocol
        import understudy.protocols.joint.parts  # noqa: F401
    except ImportError as error:
        print(f"without a Parquet file: {error}", flush=True)
        return False
    return True


def main() -> None:
    args = parser().parse_args()
    source = args.source or ("parquet" if is_installed() else "numpy")
    rows: list[dict[str, Any]] = []
    alone = 0.0
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "rows.parquet"
        if source == "parquet" and is_installed():
            import bench

            bench.generate(path, args.rows)
            bench.generate(path.with_name("small.parquet"), 1000)
        for cores in map(int, args.cores.split(",")):
            found = (
                of_file(path, cores)
                if source == "parquet"
                else by_arrays(args.rows, cores)
            )
            taken = found["open_s"] + found["fine_s"] + found["pairs_s"]
            row = {
                "machine": platform.machine(),
                "source": source,
                "rows": args.rows,
                "columns": 20,
                "cores": cores,
            }
            row |= found | {"us_core": round(taken * cores / args.rows * 1e6, 3)}
            row["linear"] = round(
                (rows[0] if rows else row)["us_core"] / row["us_core"], 3
            )
            if source == "parquet" and args.ceiling:
                all_of = sum(
                    by_arrays(CEILING, cores)[f"{one}_s"]
                    for one in ("open", "fine", "pairs")
                )
                alone = alone or all_of * cores
                row["ceiling"] = round(alone / (all_of * cores), 3)
            rows.append(row)
            print(row, flush=True)
    if len({row["digest"] for row in rows}) > 1:
        raise SystemExit("the sums differ")
    if args.out is not None:
        with args.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()

"""Scale: one holder's table of 10⁵ to 10⁸ rows and 20 columns, from files or a database
to a generator.

    make bench NAME=scale [QUICK=1]
    python benchmarks/scale/bench.py --only parquet --rows 100000000 --cores 16 --device cuda --folder /var/tmp
    python benchmarks/scale/bench.py --only made --rows 1000000000 --cores 16 --device cuda --folder /var/tmp

Made-up rows (an id, eight lists of categories, eight whole numbers, four reals) are
written in batches to a folder for the moment (`--folder`), and read back by a process
of its own: `open_s` checks every cell and id, `count_s` has both releases of `gram`,
fine tables and pairs, and `fit_s` is the fit, which sees no row. Seconds are of the
processor, or, where `cores` are more than one, of the clock; `wall_s` is what a clock
showed for all of it. `peak_mb` is of that whole process, interpreter and libraries
included, `each_mb` the most of any process that counts for it. More than ten million
rows are a folder of files. Rows that are `made` are on no disk: whoever is asked about
a part makes it up from its number, at every reading again, and answers as an engine's
worker does; `made_s` are the seconds of all processors that this took, over the number
of cores (it is in the others, too). Marks of ids are in a file still, 8 bytes each.
`pairs` counts the 190 tables of pairs alone, of rows that are levels already: as `gram`
does (`here`), and by DuckDB from a file of such rows, all in one question (`sql`).
`engine` opens a folder of ten Parquet files and counts it twice, for fine tables and
for pairs, without noise and fit, by two workers: processes here, a Dask LocalCluster,
or Spark or Ray on this machine, where they are installed. Seconds of the processor are
those of all of them once they have imported what they need, `wall_s` is the clock's,
and a digest of the sums is printed. `columns` is `gram` over two holders of ten columns
each of the same people, row by row, up to a short fit: levels are held in memory
(`memory`), or in a file without a name (`file`). There `peak_mb` is of what no file has
(RssAnon). QUICK=1 takes few rows and leaves ours.csv alone. What stands in the CSV is
not measured again.
"""

import argparse
import multiprocessing
import os
import platform
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, ClassVar

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.options import options, quick
from common.rows import read, said, write
from understudy.api.train import train
from understudy.data.reading import files, written
from understudy.data.reading.sources import EngineFrame, TableSource
from understudy.data.schema import Categorical, Integer, Real, Schema
from understudy.ground import processes
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.counts import gram_matrix
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
ROWS = [2_000] if QUICK else [100_000, 1_000_000, 10_000_000]
MANY = (100_000_000, 1_000_000_000)  # only where they are asked for by --rows
SETTINGS: dict[str, Any] = {"components": 8, "steps": 5} if QUICK else {}
SIZES = [3 + 3 * n for n in range(8)]  # of the lists of categories
LEVELS = [*SIZES, *[20] * 12]  # of all columns, where pairs alone are counted
BATCH = 100_000
PART = 1 << 18  # rows that are made up at a time
WORKERS = 2  # of an engine
ONE_FILE = 10_000_000  # rows: more of them are in a folder of files
FIELDS = [
    "machine",
    "cores",
    "device",
    "what",
    "source",
    "rows",
    "columns",
    "open_s",
    "count_s",
    "fit_s",
    "wall_s",
    "peak_mb",
    "each_mb",
    "made_s",
]


def schema() -> Schema:
    """Public, with bounds that are far too wide, as a holder without a look at the rows
    would draw them.
    """
    words = (
        Categorical(
            name=f"word{n}", categories=tuple(f"value {k}" for k in range(size))
        )
        for n, size in enumerate(SIZES)
    )
    whole = (Integer(name=f"whole{n}", low=0, high=10_000) for n in range(8))
    reals = (Real(name=f"real{n}", low=-100.0, high=100.0) for n in range(4))
    return Schema(person="id", columns=(*words, *whole, *reals))


def made(first: int, rows: int) -> pa.Table:
    """So many rows, and the ids from `first` on."""
    rng = np.random.default_rng(first)
    kind = rng.random(rows)  # what all columns of a row have in common
    columns: dict[str, Any] = {"id": np.arange(first, first + rows)}
    for n, size in enumerate(SIZES):
        level = ((kind + rng.random(rows)) / 2 * size).astype(np.int64)
        columns[f"word{n}"] = pa.DictionaryArray.from_arrays(
            level, [f"value {k}" for k in range(size)]
        ).cast(pa.string())
    for n in range(8):
        columns[f"whole{n}"] = rng.poisson(10 * (n + 1) * (1 + kind))
    for n in range(4):
        columns[f"real{n}"] = rng.normal(kind, 1 + n).clip(-100, 100)
    return pa.table(columns)


# Rows that nobody keeps


@lru_cache(maxsize=1)
def quantiles() -> tuple[Any, Any]:
    """Of whole numbers by column and what a row has in common, (8, 64, 1024), and of
    reals, (65536,).
    """
    rng = np.random.default_rng(0)
    kind = (np.arange(64) + 0.5) / 64
    counts = [
        np.sort(rng.poisson(10 * (n + 1) * (1 + kind[:, None]), (64, 1024)))
        for n in range(8)
    ]
    return np.stack(counts), rng.normal(size=1 << 16)


def made_up(part: int, rows: int) -> pa.Table:
    """Nearly the law of `made`, looked up in quantiles: ids follow each other from one
    part to the next.
    """
    rng = np.random.Generator(np.random.SFC64([0, part]))
    kind = rng.random(rows, dtype=np.float32)
    counts, normal = quantiles()

    def draws() -> Any:
        return rng.integers(0, 1 << 16, rows, dtype=np.uint16)

    columns: dict[str, Any] = {"id": np.arange(part * PART, part * PART + rows)}
    for n, size in enumerate(SIZES):
        level = (
            (kind * np.float32(1 << 16) + draws()) * np.float32(size / (1 << 17))
        ).astype(np.int8)
        columns[f"word{n}"] = pa.DictionaryArray.from_arrays(
            level, [f"value {k}" for k in range(size)]
        )
    place = (kind * np.float32(64)).astype(np.int32) << 10
    for n in range(8):
        columns[f"whole{n}"] = counts[n].ravel()[place + (draws() >> 6)]
    for n in range(4):
        columns[f"real{n}"] = kind + (1 + n) * normal[draws()]
    return pa.table(columns)


def part_answered(task: Path, number: int, rows: int) -> tuple[bytes, float]:
    """What a part has to say, and the seconds in which it was made up."""
    from understudy.data.reading.spread import answer_of

    begun = time.process_time()
    table = made_up(number, rows)
    taken = time.process_time() - begun
    return answer_of(task.read_bytes(), number, table), taken


class MadeUp(EngineFrame):
    """So many rows, each part made up and counted by one of so many processes."""

    header: ClassVar[list[str]] = ["id", *(column.name for column in schema().columns)]
    n_parts = 0

    def __init__(self, rows: int, folder: Path, cores: int) -> None:
        self._rows = rows
        self._folder = folder
        self.made_s = 0.0
        self.n_parts = -(-rows // PART)
        self._cores = cores
        self._pool = ProcessPoolExecutor(cores, multiprocessing.get_context("spawn"))

    def __call__(self, task: Any) -> Iterator[bytes]:
        told = self._folder / str(task.head["task"])
        told.write_bytes(task.to_bytes())
        sizes = [
            min(PART, self._rows - number * PART) for number in range(self.n_parts)
        ]
        waiting: deque[Any] = deque()
        # so many are made before one is taken
        for number in range(self.n_parts + 2 * self._cores):
            if number < self.n_parts:
                waiting.append(
                    self._pool.submit(part_answered, told, number, sizes[number])
                )
            if waiting and number >= 2 * self._cores:
                answer, seconds = waiting.popleft().result()
                self.made_s += seconds / self._cores
                yield answer
        told.unlink()

    def narrowed(self, columns: list[str]) -> EngineFrame:
        return self

    def tables(self, columns: list[str]) -> Iterator[Any]:
        yield from (
            made_up(number, PART).select(columns) for number in range(self.n_parts)
        )


def generate(path: Path, rows: int, start: int = 0) -> None:
    """A Parquet file of made-up rows, never more of them in memory than a batch."""
    writer = None
    for first in range(start, start + rows, BATCH):
        batch = made(first, min(BATCH, start + rows - first))
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_table(batch)
    assert writer is not None
    writer.close()


def stored(folder: Path, source: str, rows: int) -> TableSource:
    """The table as a file, or in a database of its own."""
    path = folder / f"{rows}.parquet"
    if rows > ONE_FILE:
        path = folder / str(rows)
        path.mkdir()
        each = rows // 100
        with multiprocessing.get_context("spawn").Pool(
            processes.process_count()
        ) as pool:
            pool.starmap(
                generate,
                [(path / f"{n:03}.parquet", each, n * each) for n in range(100)],
                chunksize=1,
            )
    elif not path.exists():
        generate(path, rows)
    if source == "parquet":
        return TableSource(table=str(path))
    base = folder / f"{rows}.duckdb"
    import duckdb

    with duckdb.connect(str(base)) as connection:
        connection.sql(f"create table people as select * from '{path}'")
    return TableSource(table=f"duckdb:///{base}", query="select * from people")


def whole(
    source: TableSource | EngineFrame | tuple[int, Path], cores: int, device: str
) -> dict[str, Any]:
    """From the table to a generator; or from so many rows that are made up, with a
    folder for what is asked of them.
    """
    os.environ[processes.VARIABLE] = str(cores)
    if isinstance(source, tuple):
        frame = MadeUp(*source, cores)
        return whole(frame, cores, device) | {"made_s": round(frame.made_s, 1)}
    clock = time.process_time if cores == 1 else time.perf_counter
    begun = time.perf_counter()
    marks = [clock()]
    budget = Budget(1.0, 1e-9)
    federation = Federation.rehearsal(
        {"one": source}, {"one": schema()}, budget=budget, seed=1
    )
    marks.append(clock())

    def note(progress: Any) -> None:
        if len(marks) == 2:  # heard first when both releases are there
            marks.append(clock())

    others = [*map(peak, children())]
    train("gram", federation, watch=note, device=device, **SETTINGS)
    marks.append(clock())
    others += map(peak, children())
    seconds = [round(b - a, 1) for a, b in pairwise(marks)]
    return dict(zip(("open_s", "count_s", "fit_s"), seconds, strict=True)) | {
        "wall_s": round(time.perf_counter() - begun, 1),
        "peak_mb": peak(),
        "each_mb": max(others, default=""),
    }


def children() -> list[str]:
    """The processes that this one has started and that are still there."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            if f"PPid:\t{os.getpid()}\n" in status.read_text():
                found.append(status.parent.name)
    return found


def levels(rows: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, size, rows) for size in LEVELS], axis=1).astype(
        np.int32
    )


def pairs_here(folder: Path, rows: int) -> dict[str, Any]:
    """All pairs of rows that are levels already, as `gram` counts them."""
    codes = levels(rows)
    begun = time.process_time()
    gram_matrix(codes, LEVELS)
    return {"count_s": round(time.process_time() - begun, 2)}


def pairs_sql(folder: Path, rows: int) -> dict[str, Any]:
    """The same by DuckDB, on one core."""
    import duckdb

    path = folder / f"{rows}-levels.parquet"
    names = [f"c{n}" for n in range(len(LEVELS))]
    pq.write_table(pa.table(dict(zip(names, levels(rows).T, strict=True))), path)
    sets = ", ".join(f"({a}, {b})" for a, b in combinations(names, 2))
    with duckdb.connect() as connection:
        connection.sql("set threads to 1")
        begun = time.process_time()
        connection.sql(
            f"select count(*), {', '.join(names)} from '{path}' group by grouping "
            f"sets ({sets})"
        ).fetchall()
    return {"count_s": round(time.process_time() - begun, 2)}


@contextmanager
def by_dask(rows: int) -> Iterator[Callable[[Path], Any]]:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    # threads are there at once
    own = {"n_workers": WORKERS, "threads_per_worker": 1, "processes": rows > BATCH}
    with LocalCluster(**own, dashboard_address=None) as cluster, Client(cluster):
        yield dd.read_parquet


@contextmanager
def by_spark(rows: int) -> Iterator[Callable[[Path], Any]]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    made_by = SparkSession.builder.master(f"local[{WORKERS}]").config(
        "spark.ui.enabled", "false"
    )
    # a file is a partition
    session = made_by.config(
        "spark.sql.files.openCostInBytes", str(1 << 27)
    ).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield lambda place: session.read.parquet(str(place))
    session.stop()


@contextmanager
def by_ray(rows: int) -> Iterator[Callable[[Path], Any]]:
    import ray

    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield lambda place: ray.data.read_parquet(str(place))
    ray.shutdown()


@contextmanager
def by_processes(rows: int) -> Iterator[Callable[[Path], Any]]:
    from understudy.data.reading.spread import Cores, counted_by

    os.environ[processes.VARIABLE] = str(WORKERS)
    with counted_by(Cores(10)):
        yield lambda place: place


def engine(by: Callable[[int], Any], folder: Path, rows: int) -> dict[str, Any]:
    """A folder of ten Parquet files, opened and counted for both releases."""
    import psutil
    from passes import passes

    def clock() -> list[float]:
        """What all of them took of the processor, and the time."""
        everybody = [psutil.Process(), *psutil.Process().children(recursive=True)]
        return [sum(sum(one.cpu_times()[:2]) for one in everybody), time.perf_counter()]

    with by(rows) as source:
        taken, digest = passes(
            schema(), source(in_ten(folder, rows)), source(in_ten(folder, 1000)), clock
        )
    print(f"sums {digest}", flush=True)
    (opened, fine, pairs), clocked = taken.T.tolist()
    return {
        "open_s": round(opened, 1),
        "count_s": round(fine + pairs, 1),
        "wall_s": round(sum(clocked), 1),
    }


def in_ten(folder: Path, rows: int) -> Path:
    place = folder / f"{rows}-in-ten"
    place.mkdir()
    for n in range(10):
        pq.write_table(made(n * rows // 10, rows // 10), place / f"{n}.parquet")
    return place


def columns(large: int, folder: Path, rows: int) -> dict[str, Any]:
    """Two holders of columns of the same people; more bytes of levels than `large` are
    in a file.
    """
    path = folder / f"{rows}-both.parquet"
    most = [0]
    done = threading.Event()
    generate(path, rows)
    os.environ[processes.VARIABLE], files.LONG, written._LARGE = "1", 0, large

    def watched() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], peak("self", "RssAnon"))

    watching = threading.Thread(target=watched)
    watching.start()
    begun = time.perf_counter()
    taken = time.process_time()
    halves = {
        "one": Schema(columns=schema().columns[::2]),
        "two": Schema(columns=schema().columns[1::2]),
    }
    tables = dict.fromkeys(halves, str(path))
    budget = Budget(1.0, 1e-9)
    federation = Federation.rehearsal(
        tables, halves, budget=budget, seed=1, same_people=True
    )
    settings = {"products": "dealt", "components": 8, "steps": 5}
    train("gram", federation, device="cpu", **settings)
    seconds = {
        "count_s": round(time.process_time() - taken, 1),
        "wall_s": round(time.perf_counter() - begun, 1),
    }
    done.set()
    watching.join()
    return seconds | {"peak_mb": most[0]}


def peak(process: str = "self", line: str = "VmHWM") -> int:
    """The most that a process ever had in memory, in MB (Linux); nothing of the one
    that started it. Or another line of its status.
    """
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(one.split()[1]) // 1024 for one in lines if one.startswith(line))


def cases(
    folder: Path, only: int | None
) -> list[tuple[dict[str, Any], Callable[..., dict[str, Any]], tuple[Any, ...]]]:
    """What is measured, by whom, and from what."""
    found: list[Any] = []
    for rows in (*ROWS, *(MANY if only in MANY else ())):
        found.append(
            ({"what": "gram", "source": "parquet", "rows": rows, "columns": 20}, whole)
        )
    if only is not None:
        found.append(
            ({"what": "gram", "source": "made", "rows": only, "columns": 20}, whole)
        )
    found.append(
        (
            {
                "what": "gram",
                "source": "duckdb",
                "rows": ROWS[len(ROWS) // 2],
                "columns": 20,
            },
            whole,
        )
    )
    for source, measure in (("here", pairs_here), ("sql", pairs_sql)):
        found.append(
            (
                {
                    "what": "pairs",
                    "source": source,
                    "rows": ROWS[len(ROWS) // 2],
                    "columns": 20,
                },
                measure,
            )
        )
    engines = {
        "dask": by_dask,
        "pyspark": by_spark,
        "ray": by_ray,
        "processes": by_processes,
    }
    for source, by in engines.items():
        if source != "processes" and find_spec(source) is None:
            continue
        case = {
            "what": "engine",
            "source": source,
            "rows": ROWS[len(ROWS) // 2],
            "columns": 20,
            "cores": WORKERS,
        }
        found.append((case, partial(engine, by)))
    for source, large in (("memory", 1 << 62), ("file", 0)):
        case = {
            "what": "columns",
            "source": source,
            "rows": 2 * ROWS[len(ROWS) // 2],
            "columns": 20,
            "cores": 1,
        }
        found.append((case, partial(columns, large)))
    return [(case, measure, (folder, case["rows"])) for case, measure in found]


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "ours.csv")
    parser.add_argument(
        "--folder", type=Path, help="where the rows are written for the moment"
    )
    parser.add_argument(
        "--only",
        default="",
        help="parquet, made, duckdb, here, sql, dask, pyspark, ray, processes, "
        "memory or file",
    )
    parser.add_argument("--rows", type=int, help="this many alone")
    parser.add_argument(
        "--cores", type=int, default=1, help="processes that open and count"
    )
    parser.add_argument("--device", default="cpu", help="where the fit is done")
    return parser


def main() -> None:
    args = parser().parse_args()
    rows = read(args.out)
    machine = {
        "machine": platform.machine(),
        "cores": args.cores,
        "device": args.device,
    }
    known = {
        (
            row["machine"],
            int(row["cores"]),
            row["what"],
            row["source"],
            int(row["rows"]),
        )
        for row in rows
    }
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for case, measure, given in cases(Path(folder), args.rows):
            own = machine | case
            here = tuple(
                own[key] for key in ("machine", "cores", "what", "source", "rows")
            )
            if here in known or args.only not in ("", case["source"]):
                continue
            if args.rows not in (None, case["rows"]):
                continue
            if measure is whole:
                own_rows = case["rows"], Path(folder)
                source = (
                    own_rows
                    if case["source"] == "made"
                    else stored(Path(folder), case["source"], case["rows"])
                )
                given = (source, args.cores, args.device)
            # whose peak is its own
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                rows.append(own | pool.submit(measure, *given).result())
            print(said(rows[-1]), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()

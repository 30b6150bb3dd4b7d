"""A grid of cells that can be stopped and gone on with: what the benchmarks of many
runs have in common.

A cell is one run. It is known by the text of some columns, the key; a cell whose key
stands in the CSV file already is not run again, and each finished one is written at
once. Cells run in processes of their own, one that fails leaves the others alone, and
several commands may add to one file.

    GRID = Grid(fields=FIELDS, key=("dataset", "method", "seed"))
    GRID.run(measure, jobs(args), args)     # args of `grid_options`; measure: a job →
                                            its row, or rows
"""

import argparse
import fcntl
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from common.options import options
from common.rows import Row, read, said, write

Job = TypeVar("Job")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The columns of a benchmark's file, and what tells its cells apart.

    `order` sorts the file, which else keeps the order of finishing. `columns` gives a
    job's key columns, where the job is not a dict that has them; `name` its name in
    print, where that is not the key. `alone`: a fresh process for each cell, so that
    its peak memory is its own.
    """

    fields: Sequence[str]
    key: Sequence[str]
    order: Callable[[Row], Any] | None = None
    columns: Callable[[Any], Row] = dict
    name: Callable[[Any], str] | None = None
    alone: bool = False

    def left(self, jobs: Iterable[Job], out: Path | None) -> list[Job]:
        """The jobs whose cells the file does not hold."""
        done = {self._key(row) for row in read(out)}
        return [job for job in jobs if self._key(self.columns(job)) not in done]

    def title(self, job: Any) -> str:
        return (
            self.name(job)
            if self.name
            else "/".join(filter(None, self._key(self.columns(job))))
        )

    def run(
        self,
        measure: Callable[[Job], Row | list[Row]],
        jobs: Iterable[Job],
        args: argparse.Namespace,
    ) -> None:
        """Measure what is left to do; with `--list`, only say what that is."""
        todo = self.left(jobs, args.out)
        if args.list:
            print("\n".join(self.title(job) for job in todo))
            return
        print(f"{len(todo)} cells to do", flush=True)
        failed = 0
        with ProcessPoolExecutor(
            args.jobs,
            # a forked process cannot use the GPU
            mp_context=multiprocessing.get_context("spawn"),
            max_tasks_per_child=1 if self.alone else None,
        ) as pool:
            running = {pool.submit(measure, job): job for job in todo}
            for future in as_completed(running):
                error = future.exception()
                if error is not None:
                    failed += 1
                    _complain(self.title(running[future]), error)
                    continue
                found = future.result()
                rows = found if isinstance(found, list) else [found]
                for row in rows:
                    print(said(row), flush=True)
                self.add(rows, args.out)
        if failed:
            sys.exit(f"{failed} cells failed; the same command tries them again.")

    def add(self, rows: list[Row], out: Path | None) -> None:
        """Write these rows into the file, at their place."""
        if out is None:
            return
        with _turn(out.parent):
            every = read(out) + rows
            write(
                out, sorted(every, key=self.order) if self.order else every, self.fields
            )

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row[column]) for column in self.key)


def by_text(*columns: str) -> Callable[[Row], list[str]]:
    """An order of rows, the same for those read from the file and for those just
    measured.
    """
    return lambda row: [str(row.get(column, "")) for column in columns]


def grid_options(
    doc: str | None, *, out: Path | None = None, device: str = "auto"
) -> argparse.ArgumentParser:
    """The options of every grid; a benchmark adds its own."""
    parser = options(doc, out=out, data=True, device=device)
    parser.add_argument(
        "--jobs", "--workers", type=int, default=1, help="cells at a time"
    )
    parser.add_argument(
        "--list", action="store_true", help="only print the cells that are left to do"
    )
    return parser


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process at a time in this folder."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _complain(name: str, error: BaseException) -> None:
    print(f"{name} failed: {error}", file=sys.stderr, flush=True)
    # which says all there is to say, such as which file is missing
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)

"""What a round of VDGAN costs a party: one private critic, or thousands of teachers
that vote.

    make bench NAME=vd_gan [QUICK=1]

Two parties of about Census's one-hot widths (138 and 144) and 10⁵ people, rows at
random: the time does not depend on what they say. DPSGD at its defaults (10 critic
steps of 1,000 people, 1,000 synthetic rows), PATE at its own (5 steps of 10 people a
teacher, 64 synthetic rows). Both train in this process, as a user would call them, with
the ledger in memory and secure noise. Times are milliseconds of one core, CPU time of
one thread, so that other work on the machine does not blur them; the median of the
rounds after the first. `share` says where a PATE party's time goes. QUICK=1 takes few
people and teachers, and leaves ours.csv alone.
"""

import argparse
import os
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

# before torch: a later set_num_threads does not reach every thread pool
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd

from common.options import options, quick
from common.rows import said, write
from understudy.data.schema import Boolean, Schema
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.pate import GradientVote
from understudy.protocols.core.base import Progress
from understudy.protocols.papers.vd_gan import pate as vd_gan_pate
from understudy.protocols.papers.vd_gan import protocol as vd_gan
from understudy.protocols.papers.vd_gan.pate import Teachers
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

HERE = Path(__file__).parent
QUICK = quick()
PEOPLE, ROUNDS = (2_000, 3) if QUICK else (100_000, 4)
TEACHERS = (50,) if QUICK else (1000, 2000)
# yes/no: two slots each
COLUMNS = {"party0": 10, "party1": 12} if QUICK else {"party0": 69, "party1": 72}
PARTS = {
    "training": (Teachers, "train"),
    "slopes": (Teachers, "gradients"),
    "votes": (GradientVote, "tally"),
    "noise": (GradientVote, "decide"),
}


def federation() -> Federation:
    draw = np.random.default_rng(0)
    tables = {
        name: pd.DataFrame(
            draw.random((PEOPLE, count)) < 0.3,
            columns=[f"{name}_{i}" for i in range(count)],
        )
        for name, count in COLUMNS.items()
    }
    schemas = {
        name: Schema(columns=tuple(Boolean(name=c) for c in t))
        for name, t in tables.items()
    }
    return Federation.rehearsal(tables, schemas, budget=Budget(8.0, 1e-6))


def timed(
    cls: type, name: str, spent: dict[str, float], label: str
) -> Callable[[], None]:
    """Count the CPU time of a method, of a generator's steps too; returns what undoes
    it.
    """
    original = getattr(cls, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        result = original(*args, **kwargs)
        spent[label] += time.process_time() - start
        return steps(result) if isinstance(result, Iterator) else result

    def steps(iterator: Iterator[Any]) -> Iterator[Any]:
        while True:
            start = time.process_time()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                spent[label] += time.process_time() - start
            yield item

    setattr(cls, name, wrapper)
    return lambda: setattr(cls, name, original)


def measure(module: ModuleType, held: Federation, **settings: Any) -> dict[str, Any]:
    """Milliseconds of a round at one party, and the parts of it."""
    config = module.Config(rounds=ROUNDS, device="cpu", **settings)
    parties = LocalParties(
        {
            name: module.PROTOCOL.build(
                name,
                holder.table,
                holder.ledger,
                run=config.protocol,
                budget=holder.budget,
            )
            for name, holder in held.holders.items()
        }
    )
    marks: list[float] = []
    spent: dict[str, float] = defaultdict(float)

    def watch(_: Progress) -> None:
        marks.append(time.process_time())
        if len(marks) == 1:
            spent.clear()  # the first round also encodes the rows

    undo = [timed(cls, name, spent, label) for label, (cls, name) in PARTS.items()]
    module.train(config, parties, held.schemas, watch=watch)
    for restore in undo:
        restore()
    gaps = [b - a for a, b in pairwise(marks)]
    total = marks[-1] - marks[0]
    return {
        "protocol": config.protocol,
        "teachers": settings.get("teachers", ""),
        "rows": config.rows,
        "round_ms": round(1000 * statistics.median(gaps) / len(COLUMNS), 1),
        "share": " ".join(
            f"{label} {100 * spent[label] / total:.0f}%"
            for label in PARTS
            if label in spent
        ),
    }


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=HERE / "ours.csv")


def main() -> None:
    args = parser().parse_args()
    warnings.simplefilter("ignore")
    cases = [
        (vd_gan, {}),
        *((vd_gan_pate, {"teachers": teachers}) for teachers in TEACHERS),
    ]
    results: list[dict[str, Any]] = []
    for module, settings in cases:
        row = measure(module, federation(), **settings)
        row["ratio"] = round(row["round_ms"] / (results or [row])[0]["round_ms"], 1)
        results.append(row)
        print(said(row), flush=True)
    write(args.out, results, list(results[0]))


if __name__ == "__main__":
    main()

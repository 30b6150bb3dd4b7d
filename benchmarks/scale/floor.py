"""Error over people: a population of a known law, 10³ to 10⁸ of it, and what `gram` at
ε = 1 makes of them.

    python -m benchmarks.scale.floor [--people 1000,…] [--methods …] [--device cuda] [--folder …] [--out …]

From the root of a checkout. The law (`people`) has 30 columns: ten lists, a chain of
causes among them; ten whole numbers and nine reals, some of them skewed; and an
outcome. Three effects need three columns at once: one list is the parity of two others,
but for one person in five; one number rises with another one in half of the groups, and
falls in the others; and the outcome depends on two columns that by themselves say
little of it. Bins are declared. Figures are of 300,000 synthetic rows beside a million
fresh ones of the law, in fifths of a number: mean distance of all pairs (`two`), of 200
sets of three that were drawn once (`three`), of the three that have an effect
(`planted`), and the AUC of boosting on the outcome. `law` is 300,000 fresh rows in
place of synthetic ones: what no method passes.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

sys.path.append(str(Path(__file__).parents[1]))

from common.options import command, quick
from common.rows import read, said, write
from understudy.api.train import train
from understudy.data.reading.sources import TableSource
from understudy.data.schema import Categorical, Integer, Real, Schema
from understudy.ground.processes import process_count
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
FIELDS = ["method", "people", "two", "three", "planted", "auc", "fit_s", "machine"]
BATCH = 1 << 18
DRAWN, FRESH, LEARNED = (
    (2_000, 4_000, 2_000) if quick() else (300_000, 1_000_000, 50_000)
)
LISTS = range(10)
WHOLE = range(10)
REALS = range(9)
SIZES = [2, 2, 2, 3, 4, 5, 6, 8, 10, 12]
PLANTED = (
    ("list0", "list1", "list2"),
    ("list3", "whole0", "real0"),
    ("list1", "whole1", "outcome"),
)
METHODS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "nothing searched": {"searched_triples": 0},
    "16 triples with the outcome": {
        "public": True,
        "searched_triples": 0,
        "target_triples": 16,
    },
    "the 3 triples named": {"searched_triples": 0, "triples": PLANTED},
    "2,048 parts": {"components": 2048},
    "4,096 parts": {"components": 4096},
    "4,800 steps": {"steps": 4800},
}


def people(first: int, rows: int) -> pd.DataFrame:
    """So many of the population, from `first` on: the same ones each time."""
    rng = np.random.default_rng([7, first])
    kind = rng.random(rows)
    own = rng.random((rows, 12))
    lists = [
        ((kind + own[:, n]) / 2 * size).astype(np.int64) for n, size in enumerate(SIZES)
    ]
    lists[2] = (lists[0] + lists[1] + (own[:, 2] < 0.2)) % 2
    for n in range(4, 10):  # each follows from the one before it, three times in four
        lists[n] = np.where(
            own[:, n] < 0.75, lists[n - 1] * SIZES[n] // SIZES[n - 1], lists[n]
        )
    whole = [rng.poisson(2 * (n + 1) * (1 + kind)) for n in WHOLE]
    whole[9] = np.where(own[:, 10] < 0.5, 0, rng.geometric(0.02, rows))
    reals = [rng.normal(kind * n, 1) for n in REALS]
    turned = np.where(lists[3] > 0, 1.0, -1.0)
    reals[0] = turned * (whole[0] - 3) + rng.normal(size=rows)
    for n in (6, 7, 8):
        reals[n] = np.exp(reals[n] / 3)
    likely = (
        1.2 * np.where(lists[1] > 0, 1, -1) * np.sign(whole[1] - 5.5)
        + 0.5 * (lists[5] - 2)
        + 0.3 * reals[3]
        - 1
    )
    outcome = rng.random(rows) < 1 / (1 + np.exp(-likely))
    named = {f"list{n}": lists[n] for n in LISTS} | {
        f"whole{n}": whole[n].clip(0, 300) for n in WHOLE
    }
    named |= {f"real{n}": reals[n].clip(-40, 100) for n in REALS} | {
        "outcome": outcome.astype(np.int64)
    }
    return pd.DataFrame({"id": np.arange(first, first + rows), **named})


def schema() -> Schema:
    """Lists by their codes, numbers with bounds and no bins."""
    lists = [
        Categorical(name=f"list{n}", categories=tuple(map(str, range(SIZES[n]))))
        for n in LISTS
    ]
    whole = [Integer(name=f"whole{n}", low=0, high=300) for n in WHOLE]
    reals = [Real(name=f"real{n}", low=-40.0, high=100.0) for n in REALS]
    return Schema(
        person="id",
        columns=(
            *lists,
            *whole,
            *reals,
            Categorical(name="outcome", categories=("0", "1")),
        ),
    )


class Law:
    """What rows are compared with: fresh people, in fifths of every number."""

    def __init__(self) -> None:
        known = people(1 << 40, min(FRESH, 200_000)).drop(columns="id")
        self.names = [str(name) for name in known]
        self.cuts = {
            name: np.unique(np.quantile(known[name], [0.2, 0.4, 0.6, 0.8]))
            for name in self.names
        }
        parts = [
            self.codes(people(1 << 41 | n, min(BATCH, FRESH - n)))
            for n in range(0, FRESH, BATCH)
        ]
        self.fresh = np.concatenate(parts)
        sets = np.random.default_rng(1).permuted(
            np.tile(np.arange(len(self.names)), (200, 1)), axis=1
        )[:, :3]
        where = {name: n for n, name in enumerate(self.names)}
        self.sets = {
            "two": list(combinations(range(len(self.names)), 2)),
            "three": [tuple(one) for one in sets],
            "planted": [tuple(where[name] for name in one) for one in PLANTED],
        }
        self.tables = {
            which: [self.shares(self.fresh, one) for one in sets]
            for which, sets in self.sets.items()
        }
        self.test = people(1 << 42, LEARNED)

    def codes(self, rows: pd.DataFrame) -> NDArray[np.int8]:
        cells = rows[self.names].astype(float)
        levels = [
            cells[name]
            if name.startswith(("list", "outcome"))
            else np.searchsorted(self.cuts[name], cells[name], "right")
            for name in self.names
        ]
        return np.stack(levels, axis=1).astype(np.int8)

    def shares(
        self, codes: NDArray[np.int8], columns: tuple[int, ...]
    ) -> NDArray[np.float64]:
        place = np.zeros(len(codes), np.int64)
        for column in columns:
            place = place * 12 + codes[:, column]
        return np.bincount(place, minlength=12 ** len(columns)) / len(codes)

    def error(self, rows: pd.DataFrame) -> dict[str, float]:
        codes = self.codes(rows)
        found = {
            which: float(
                np.mean(
                    [
                        np.abs(self.shares(codes, one) - true).sum() / 2
                        for one, true in zip(sets, self.tables[which], strict=True)
                    ]
                )
            )
            for which, sets in self.sets.items()
        }
        learned = rows.iloc[:LEARNED][self.names].astype(float)
        model = HistGradientBoostingClassifier(random_state=0).fit(
            learned.drop(columns="outcome"), learned["outcome"]
        )
        chance = model.predict_proba(
            self.test[self.names].drop(columns="outcome").astype(float)
        )[:, 1]
        return found | {"auc": float(roc_auc_score(self.test["outcome"], chance))}


def written(path: Path, first: int, many: int) -> None:
    """A file of so many people; never more than a batch of them in memory."""
    writer = None
    for start in range(first, first + many, BATCH):
        rows = people(start, min(BATCH, first + many - start))
        rows = rows.astype(
            {
                name: str
                for name in map(str, rows)
                if name.startswith(("list", "outcome"))
            }
        )
        batch = pa.Table.from_pandas(rows, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_table(batch)
    assert writer is not None
    writer.close()


def folder_of(path: Path, many: int) -> TableSource:
    """So many people in files of a few batches, which processes write at the same
    time.
    """
    path.mkdir()
    starts = range(0, many, 4 * BATCH)
    files = [
        (path / f"{n:04}.parquet", one, min(4 * BATCH, many - one))
        for n, one in enumerate(starts)
    ]
    if len(files) == 1:
        written(*files[0])
    else:
        with multiprocessing.get_context("spawn").Pool(
            min(process_count(), len(starts))
        ) as pool:
            pool.starmap(written, files, chunksize=1)
    return TableSource(table=str(path))


def synthetic(
    source: TableSource, many: int, how: dict[str, Any], device: str
) -> tuple[pd.DataFrame, float]:
    """Rows by a method, and the seconds of its fit: of the processor, on a GPU of the
    clock.
    """
    clock = time.process_time if device == "cpu" else time.perf_counter
    settings: dict[str, Any] = {"components": 8, "steps": 5} if quick() else {}
    settings |= {key: value for key, value in how.items() if key != "public"}
    settings |= {"public_people": many} if how.get("public") else {}
    federation = Federation.rehearsal(
        {"one": source}, {"one": schema()}, budget=Budget(1.0, 1e-9), seed=1
    )
    marks: list[float] = []
    result = train(
        "gram",
        federation,
        watch=lambda _: marks.append(clock()),
        target="outcome",
        device=device,
        **settings,
    )
    fitted = clock() - marks[0]
    return result.generator.sample(DRAWN, seed=1), fitted


def parser() -> argparse.ArgumentParser:
    parser = command(__doc__)
    usual = "1000,10000,100000,1000000,10000000"
    parser.add_argument(
        "--people",
        default=usual,
        type=lambda text: [int(float(one)) for one in text.split(",")],
    )
    parser.add_argument("--methods", nargs="*", default=[*METHODS], choices=METHODS)
    parser.add_argument("--device", default="cpu", help="where the fit is done")
    parser.add_argument(
        "--folder", type=Path, help="where the rows are written for the moment"
    )
    parser.add_argument(
        "--out", type=Path, default=None if quick() else HERE / "floor.csv"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    rows = read(args.out)
    known = {(row["method"], int(row["people"])) for row in rows}
    law = Law()

    def keep(method: str, many: int, figures: dict[str, float]) -> None:
        machine = "cpu" if args.device == "cpu" else torch.cuda.get_device_name()
        found = {key: f"{value:.4f}" for key, value in figures.items()}
        rows.append({"method": method, "people": many} | found | {"machine": machine})
        print(said(rows[-1]), flush=True)
        write(args.out, rows, FIELDS)

    if ("law", DRAWN) not in known:
        parts = [
            people(1 << 43 | n, min(BATCH, DRAWN - n)) for n in range(0, DRAWN, BATCH)
        ]
        keep("law", DRAWN, law.error(pd.concat(parts, ignore_index=True)))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for many in args.people:
            due = [method for method in args.methods if (method, many) not in known]
            source = folder_of(Path(folder) / str(many), many) if due else None
            for method in due:
                assert source is not None
                drawn, seconds = synthetic(source, many, METHODS[method], args.device)
                keep(method, many, law.error(drawn) | {"fit_s": seconds})


if __name__ == "__main__":
    main()

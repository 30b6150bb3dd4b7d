"""The rivals of 2026, run by us, beside `gram` as it is today: the same rows, the same
(ε, δ), the same figures.

    python benchmarks/rivals/install.py                     # once: the environments that rivals need (see there)
    make bench NAME=rivals DATA=<folder> [QUICK=1]
    python benchmarks/rivals/bench.py --data <folder> --only ε=1/ --methods AIM MST --budget-minutes 60 --limit 300

A cell is one table, method, holding, noise, ε and seed; its name is
dataset/method/holding/noise/ε/seed. Each finished one is added to `--out`, and cells
that are there already are skipped: a run that is cut short, or whose minutes are spent,
is gone on with by the same command. `--only` takes texts that must all be in a cell's
name.

    Gram, Gram+target       ours with today's defaults, without and with the column to
                            predict named; by one holder, two holders of columns, three
                            of rows, in a rehearsal
    Gram+target+people      the same, and the number of people is public
                            (`public_people`), as over columns it always is
    Gram+target+threes      one holder, and three-way tables are searched
                            (`searched_triples`) however few people
    AIM, MST, AIM-GDP, SWIFT   by dpsynth on mbi, its authors' settings; all data in one
                               place
    AIM (dpmm), MST (dpmm)  by dpmm, its settings; all data in one place
    AIM (pgm), MST (pgm)    the authors' scripts of private-pgm on mbi, their settings;
                            all data in one place
    Tab-PE                  private evolution, its authors' settings; all data in one
                            place
    FLAIM                   AugFLAIM by its authors' code, its settings; three holders
                            of rows
    real, independent       the rows themselves, and every column shuffled by itself:
                            neither is private

Rivals get codes and the number of levels of each column, which are the declared bins
and levels of the schema; ours gets the schema, and buys levels where none are declared
(ties, missing, levels60), as its defaults do; rivals have even bins there. `own`: (ε,
δ) by a rival's own accounting; `equal`: the budget ρ of the Gaussian noise that (ε, δ)
allows exactly, as ours has it. Where the rival's accounting is exact there is only
`own`. A rival that needs more than `--limit` seconds of CPU is stopped, and its row
says so. `seconds` are CPU seconds of the method alone, `peak_mb` the most memory of its
process, libraries included.
"""

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from install import ENVIRONMENTS, HOME, missing
from measures import FIGURES, measured
from rival_tables import NAMES, opened

from common import publication
from common.grid import Grid, grid_options
from common.options import quick
from common.public_tables import Public
from common.publication import DELTA
from common.rows import read, said, write
from common.splits import iid_rows, random_columns
from understudy.api.train import train
from understudy.data.column import Binned
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Ordinal
from understudy.privacy.noise.rng import FastRng
from understudy.runs.federation import Federation

QUICK = quick()
HERE = Path(__file__).parent
EPSILONS = (1.0, 0.2, 0.5, 2.0, 0.1, 8.0)
SEEDS = 3
OURS = ("Gram+target", "Gram", "Gram+target+people", "Gram+target+threes")
HOLDINGS = ("one holder", "two of columns", "three of rows")
ENDS = ("real", "independent")
PLACE = "one place"
# the adapter, and whether equal noise is another noise
RIVALS: dict[str, tuple[str, bool]] = {
    "MST": ("dpsynth", True),
    "AIM": ("dpsynth", True),
    "AIM-GDP": ("dpsynth", False),
    "SWIFT": ("dpsynth", False),
    "Tab-PE": ("tab_pe", False),
    "MST (dpmm)": ("dpmm", True),
    "AIM (dpmm)": ("dpmm", True),
    "MST (pgm)": ("private_pgm", True),
    "AIM (pgm)": ("private_pgm", True),
    "FLAIM": ("flaim", True),
}
OVER_ROWS = ("FLAIM",)  # rivals that have three holders of rows


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run. `epsilon` is None where nothing is private."""

    dataset: str
    method: str
    holding: str
    noise: str
    epsilon: float | None
    seed: int

    @property
    def name(self) -> str:
        priced = publication.price(self.epsilon)
        return f"{self.dataset}/{self.method}/{self.holding}/{self.noise}/{priced}/seed={self.seed}"


FIELDS = [
    *Cell.__dataclass_fields__,
    "delta",
    "people",
    "columns",
    "width",
    "outcome",
    "limit",
    "seconds",
    "peak_mb",
    "machine",
    *FIGURES,
]
GRID = Grid(
    fields=FIELDS,
    key=tuple(Cell.__dataclass_fields__),
    columns=publication.plain,
    name=lambda cell: cell.name,
)


def cells(datasets: list[str], seeds: int) -> Iterator[Cell]:
    """Everything that is compared, what matters most first: the first seed, ε = 1, then
    .2.
    """
    for seed in range(seeds):
        for dataset, method in product(datasets, ENDS):
            yield Cell(
                dataset=dataset,
                method=method,
                holding=PLACE,
                noise="none",
                epsilon=None,
                seed=seed,
            )
        for epsilon, dataset in product(EPSILONS, datasets):
            head: dict[str, Any] = {
                "dataset": dataset,
                "epsilon": epsilon,
                "seed": seed,
            }
            for holding, method in product(HOLDINGS, OURS):
                alone = (holding == HOLDINGS[0]) or not method.endswith("+threes")
                if alone and (holding, method) != (
                    "two of columns",
                    "Gram+target+people",
                ):
                    yield Cell(method=method, holding=holding, noise="own", **head)
            for method, (_, equal) in RIVALS.items():
                for noise in ("own", "equal") if equal else ("own",):
                    holding = HOLDINGS[2] if method in OVER_ROWS else PLACE
                    yield Cell(method=method, holding=holding, noise=noise, **head)


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    """One cell: publish, then hold the synthetic rows against the real ones."""
    warnings.simplefilter("ignore")
    table = opened(cell.dataset, args["data"], cell.seed)
    made, cost = published(cell, table, args)
    known: dict[str, Any] = (
        {}
        if made is None
        else publication.rounded(measured(table, made, cell.seed), FIGURES)
    )
    size = {
        "people": len(table.train),
        "columns": len(table.schema.names),
        "width": Codec(table.schema).width,
    }
    paid = {"delta": DELTA if cell.epsilon else "", "machine": args.get("machine", "")}
    return (
        dict.fromkeys(FIELDS, "") | publication.plain(cell) | size | paid | cost | known
    )


def published(
    cell: Cell, table: Public, args: dict[str, Any]
) -> tuple[pd.DataFrame | None, dict[str, Any]]:
    """As many synthetic rows as there are real ones, or none; and what they cost."""
    if cell.method == "real":
        return table.train, {"outcome": "ok"}
    if cell.method == "independent":
        return publication.end_of_scale(
            cell.method, table.train, table.schema, cell.seed
        ), {"outcome": "ok"}
    if cell.method in RIVALS:
        return by_rival(cell, table, args["limit"])
    return by_us(cell, table)


def by_us(cell: Cell, table: Public) -> tuple[pd.DataFrame, dict[str, Any]]:
    settings: dict[str, Any] = {"seed": cell.seed, "device": "cpu"}
    if "+target" in cell.method:
        settings["target"] = table.target
    if "+people" in cell.method:
        settings["public_people"] = len(table.train)
    if "+threes" in cell.method:
        settings["searched_triples"] = 8
    federation = federated(cell, table)
    start = time.process_time()
    result = train("gram", federation, **settings)
    rows = result.generator.sample(len(table.train), seed=cell.seed)[
        list(table.schema.names)
    ]
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return rows, {"outcome": "ok", "seconds": round(seconds, 1), "peak_mb": round(peak)}


def federated(cell: Cell, table: Public) -> Federation:
    """The holders of the cell, in a rehearsal."""
    budget = publication.budget(cell.epsilon)
    if cell.holding == "two of columns":
        held = random_columns(table.schema.names, ["one", "other"], seed=cell.seed)
        frames = {name: table.train[list(names)] for name, names in held.items()}
        schemas = {
            name: table.schema.select(list(names)) for name, names in held.items()
        }
        return Federation.rehearsal(
            frames, schemas, budget=budget, seed=cell.seed, same_people=True
        )
    names = [f"host {n + 1}" for n in range(HOLDINGS.index(cell.holding) + 1)]
    hosts = iid_rows(len(table.train), names, seed=cell.seed)
    frames = {name: table.train.iloc[rows] for name, rows in hosts.items()}
    return Federation.rehearsal(
        frames, dict.fromkeys(frames, table.schema), budget=budget, seed=cell.seed
    )


def by_rival(
    cell: Cell, table: Public, limit: int
) -> tuple[pd.DataFrame | None, dict[str, Any]]:
    """The adapter's process gets codes and the domain, and leaves codes; it may use
    `limit` seconds of CPU.
    """
    adapter = RIVALS[cell.method][0]
    codec = Codec(table.schema)
    names = list(table.schema.names)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pd.DataFrame(codec.codes(table.train), columns=names).to_csv(
            folder / "rows.csv", index=False
        )
        task = {
            "domain": dict(zip(names, codec.sizes, strict=True)),
            "target": table.target,
            "method": cell.method,
            "ordered": [
                column.name
                for column in table.schema.columns
                if isinstance(column, Binned | Ordinal)
            ],
            "epsilon": cell.epsilon,
            "delta": DELTA,
            "equal": cell.noise == "equal",
            "seed": cell.seed,
        }
        (folder / "task.json").write_text(json.dumps(task))
        ended = subprocess.run(
            [
                HOME / ENVIRONMENTS[adapter] / "bin" / "python",
                HERE / "adapters" / "run.py",
                adapter,
                folder,
            ],
            env=os.environ | {"RIVALS": str(HOME), "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_CPU, (limit, limit + 5)
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if ended.returncode < 0:
            return None, {"outcome": f"over {limit} s", "limit": limit}
        if ended.returncode or not (folder / "made.csv").exists():
            print(ended.stdout[-3000:], file=sys.stderr, flush=True)
            return None, {
                "outcome": f"failed: {ended.stdout.strip().splitlines()[-1][:120]}",
                "limit": limit,
            }
        codes = pd.read_csv(folder / "made.csv")[names].to_numpy(np.int32)
        cost = json.loads((folder / "cost.json").read_text())
    return codec.decode(codes, FastRng(cell.seed)), {
        "outcome": "ok",
        "limit": limit,
    } | cost


def asked_for(args: argparse.Namespace) -> Iterator[Cell]:
    for cell in cells(args.datasets, args.seeds):
        if args.methods and cell.method not in args.methods:
            continue
        if all(text in cell.name + "/" for text in args.only) and not any(
            text in cell.name for text in args.but
        ):
            yield cell


def run(args: argparse.Namespace) -> None:
    """Each cell in a process of its own, `--jobs` at a time, until the minutes are
    spent.
    """
    if args.again and args.out is not None:
        short = [
            r
            for r in read(args.out)
            if r["outcome"] != "ok" and int(r["limit"]) <= args.limit
        ]
        write(args.out, [row for row in read(args.out) if row not in short], FIELDS)
    todo = GRID.left(asked_for(args), args.out)
    end = time.monotonic() + 60 * args.budget_minutes
    if args.list:
        print("\n".join(cell.name for cell in todo))
        return
    lacking = {
        cell.method: why
        for cell in todo
        if cell.method in RIVALS and (why := missing(RIVALS[cell.method][0]))
    }
    for method, why in lacking.items():
        print(f"{method}: left out, as {why}", flush=True)
    todo = [cell for cell in todo if cell.method not in lacking]
    print(f"{len(todo)} cells to do", flush=True)
    # with threads none is forked
    context = multiprocessing.get_context("fork" if args.jobs == 1 else "forkserver")
    context.set_forkserver_preload(
        ["understudy.protocols.gram.fit", "understudy.api.train", "measures"]
    )
    lock = threading.Lock()

    def done(cell: Cell) -> bool:
        if time.monotonic() > end:
            return False
        if GRID.left([cell], args.out):  # else another command has done it meanwhile
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                row = pool.submit(measure, cell, vars(args)).result()
            with lock:
                print(said(row), flush=True)
                GRID.add([row], args.out)
        return True

    with ThreadPoolExecutor(args.jobs) as threads:
        left = [*threads.map(done, todo)].count(False)
    if left:
        print(f"{args.budget_minutes:g} minutes are spent; {left} cells are left.")


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "rivals.csv", device="cpu")
    parser.add_argument(
        "--datasets", nargs="*", default=["parity3@200"] if QUICK else list(NAMES)
    )
    parser.add_argument(
        "--methods",
        nargs="*",
        default=["Gram+target", "Gram"] if QUICK else [],
        help="these alone",
    )
    parser.add_argument(
        "--only", nargs="*", default=["ε=1/", "one holder"] if QUICK else []
    )
    parser.add_argument(
        "--but",
        nargs="*",
        default=[],
        help="texts, none of which may be in a cell's name",
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else SEEDS)
    parser.add_argument(
        "--limit",
        type=int,
        default=300,
        help="CPU seconds that a rival may use for a cell",
    )
    parser.add_argument(
        "--budget-minutes",
        type=float,
        default=1e9,
        help="no cell is begun after so many minutes",
    )
    parser.add_argument(
        "--machine",
        default="",
        help="what the rows say of it, if it is not the usual one",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="once more what failed or ran over a limit up to this one",
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    run(args)


if __name__ == "__main__":
    main()

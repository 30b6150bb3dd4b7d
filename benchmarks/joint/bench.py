"""Joint publication: what a synthetic table tells within and across holders, beside central methods at the same ε.

    make bench NAME=joint DATA=<folder> [QUICK=1]
    python benchmarks/joint/bench.py --data data --jobs 2 --only columns/2/ε=1 --out benchmarks/joint/ours.csv

A cell is one table, method, partition, number of holders, ε and seed. Cells are independent of each other: each
finished one is added to `--out`, and cells that are there already are skipped. `--only` takes texts that must all be
in a cell's name, which is dataset/method/partition/holders/ε/seed; `--list` prints the names. What matters most comes
first: the first seed, ε of 1 and 8, two holders of columns; so a run that is cut short leaves the rest undone.

    Gram           over columns and rows, 2, 4 and 8 holders; mixed: two groups of columns, two holders of rows in each
    VertiGAN, VertiGAN+gram, VDGAN-DPSGD, DPLT   over columns, 2 holders; ε is each party's
    MST, AIM       all data in one place; rows made by central.py (see there), read from `--central`
    independent    every column shuffled by itself, not private
    bootstrap      the real rows, drawn with replacement, not private

Synthetic rows, as many as real ones, are held against the real ones (2-, 3- and 4-way AVD within a holder's columns,
across holders and over all, CMD) and classifiers that learned from them against the fifth that was held out. Of Census
the first 100,000 people of the seed's order are taken, as in benchmarks/vertical.
`seconds` is the whole run by the wall clock; `up_mb` and `down_mb` are per holder.
"""

import argparse
import csv
import json
import math
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pandas as pd
from tables import NAMES, Public, load

from understudy.data.codec import Codec
from understudy.data.partition import iid_rows, random_columns
from understudy.evaluate.downstream import Examples, classification_scores, scores_of
from understudy.evaluate.fidelity import evaluate_tables
from understudy.evaluate.marginals import bootstrap, shuffled
from understudy.federation import Federation
from understudy.privacy.budget import Budget
from understudy.run import train

DELTA, EPSILONS, HOLDERS, MOST = 1e-5, (1.0, 8.0, 0.5, 2.0), (2, 4, 8), 100_000
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "Gram": ("gram", {}),
    "VertiGAN": ("verti-gan", {}),
    "VertiGAN+gram": ("verti-gan", {"coupling": "gram"}),
    "VDGAN-DPSGD": ("vd-gan-dpsgd", {}),
    "DPLT": ("dplt", {"plus": False}),
}
PERSON = "person"
MIXED = (
    "toy",
    "randhie",
    "adult",
    "adult_pgm",
    "bank",
)  # alignment takes minutes where people must be found by id
CENTRAL, ENDS, MODELS = ("MST", "AIM"), ("independent", "bootstrap"), ("mlp", "boosting")
FIGURES = (
    *(f"avd{k}{scope}" for k in (2, 3, 4) for scope in ("", "_within", "_cross")),
    *(f"cmd{scope}" for scope in ("", "_within", "_cross")),
    *(f"{kind}_{model}_{score}" for kind in ("tstr", "trtr") for model in MODELS for score in ("acc", "f1", "auc")),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run. `epsilon` is None where nothing is private."""

    dataset: str
    method: str
    partition: str
    holders: int
    epsilon: float | None
    seed: int

    @property
    def name(self) -> str:
        epsilon = "no DP" if self.epsilon is None else f"ε={self.epsilon:g}"
        return f"{self.dataset}/{self.method}/{self.partition}/{self.holders}/{epsilon}/seed={self.seed}"


FIELDS = [
    *Cell.__dataclass_fields__, "delta", "people", "columns", "width", "seconds", "up_mb", "down_mb", *FIGURES,
]  # fmt: skip


def cells(datasets: list[str], seeds: int) -> Iterator[Cell]:
    """Everything that is compared, what matters most first."""
    two: dict[str, Any] = {"partition": "columns", "holders": 2}
    cuts = [(p, h) for h in HOLDERS for p in ("columns", "rows")]
    for seed in range(seeds):
        heads: list[dict[str, Any]] = [{"dataset": dataset, "seed": seed} for dataset in datasets]
        yield from (Cell(method=method, epsilon=None, **two, **head) for head in heads for method in ENDS)
        for prices in (EPSILONS[:2], EPSILONS[2:]):
            for method in ("Gram", *CENTRAL):
                yield from (Cell(method=method, epsilon=e, **two, **head) for e in prices for head in heads)
            for partition, holders in cuts[1:]:
                cut: dict[str, Any] = {"partition": partition, "holders": holders}
                yield from (Cell(method="Gram", epsilon=e, **cut, **head) for e in prices for head in heads)
            for method in list(METHODS)[1:]:
                yield from (Cell(method=method, epsilon=e, **two, **head) for e in prices for head in heads)
            cut = {"partition": "mixed", "holders": 4}
            few = [head for head in heads if head["dataset"] in MIXED]
            yield from (Cell(method="Gram", epsilon=e, **cut, **head) for e in prices for head in few)


def owners(cell: Cell, table: Public) -> dict[str, str]:
    """The holder of each column, or the group; over rows, and for central methods, that of a split in two."""
    holders = cell.holders if cell.partition == "columns" else 2
    split = random_columns(table.schema.names, [f"holder {n + 1}" for n in range(holders)], seed=cell.seed)
    return {column: name for name, columns in split.items() for column in columns}


def publish(
    cell: Cell, table: Public, owner: dict[str, str], args: dict[str, Any]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A synthetic table as large as the real one, and what it cost."""
    codec, people = Codec(table.schema), len(table.train)
    if cell.method in ENDS:
        codes, rng = codec.codes(table.train), np.random.default_rng([cell.seed, 1])
        mixed = shuffled(codes, people, rng) if cell.method == "independent" else None
        return codec.decode(codes[bootstrap(people, people, rng)] if mixed is None else mixed), {}
    if cell.method in CENTRAL:
        file = central_file(cell, args)
        took = dict(line.split(",") for line in (file.parent / "seconds.csv").read_text().split())
        return codec.decode(pd.read_csv(file).to_numpy(np.int32)), {"seconds": took.get(file.stem, "")}
    protocol, settings = METHODS[cell.method]
    if protocol != "dplt":
        settings = settings | {"device": args["device"], "seed": cell.seed}
    if protocol != "dplt" and protocol != "gram" and args["rounds"]:
        settings |= {"rounds": args["rounds"], "batch": 100}
    federation = federated(cell, table, owner)
    start = time.perf_counter()
    result = train(protocol, federation, **settings)
    seconds = time.perf_counter() - start
    lines = list(result.transcript.lines.values())
    sent = {"up_mb": sum(line.up_bytes for line in lines), "down_mb": sum(line.down_bytes for line in lines)}
    rows = result.generator.sample(people, seed=cell.seed)[list(table.schema.names)]
    each = {key: round(value / cell.holders / 1e6, 4) for key, value in sent.items()}
    return rows, {"seconds": round(seconds, 1), **each}


def federated(cell: Cell, table: Public, owner: dict[str, str]) -> Federation:
    """The holders of the cell, in a rehearsal."""
    budget = Budget(math.inf, 0.0) if cell.epsilon is None else Budget(cell.epsilon, DELTA)
    groups = {name: [c for c, o in owner.items() if o == name] for name in sorted(set(owner.values()))}
    frames: dict[str, pd.DataFrame]
    if cell.partition == "columns":
        frames = {name: table.train[held] for name, held in groups.items()}
        schemas = {name: table.schema.select(held) for name, held in groups.items()}
    elif cell.partition == "rows":
        hosts = iid_rows(len(table.train), [f"host {n + 1}" for n in range(cell.holders)], seed=cell.seed)
        frames = {name: table.train.iloc[rows] for name, rows in hosts.items()}
        schemas = dict.fromkeys(frames, table.schema)
    else:
        known = table.train.assign(**{PERSON: np.arange(len(table.train))})
        frames, schemas = {}, {}
        for number, (group, held) in enumerate(groups.items()):
            names = [f"{group}, {half}" for half in range(1, cell.holders // len(groups) + 1)]
            for name, rows in iid_rows(len(known), names, seed=cell.seed + number).items():
                frames[name] = known.iloc[rows][[PERSON, *held]]
                schemas[name] = replace(table.schema.select(held), person=PERSON)
    same = cell.partition != "rows"
    return Federation.rehearsal(frames, schemas, budget=budget, seed=cell.seed, same_people=same)


def central_file(cell: Cell, args: dict[str, Any]) -> Path:
    name = f"{cell.dataset}-{cell.seed}-{cell.method}-{cell.epsilon:g}.csv"
    return Path(args["central"] or ".") / name


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    """One cell: publish, then hold the synthetic rows against the real ones."""
    warnings.simplefilter("ignore")
    table = opened(cell.dataset, args["data"], cell.seed)
    owner = owners(cell, table)
    made, cost = publish(cell, table, owner, args)
    found = evaluate_tables(
        table.train, made, table.schema, owners=owner, ways=(2, 3, 4), models=MODELS, seed=cell.seed
    )
    figures = {figure.name: figure.value for figure in found.figures}
    if cell.partition == "rows":
        figures = {name: value for name, value in figures.items() if not name.endswith(("_within", "_cross"))}
    scores = {"tstr": learned(made, table, cell.seed, args["learn"])}
    scores["trtr"] = written(args.get("out"), cell) or real_scores(
        cell.dataset, args["data"], cell.seed, args["learn"]
    )
    figures |= {f"{kind}_{name}": value for kind, own in scores.items() for name, value in own.items()}
    known = {name: "" if (value := figures.get(name)) is None else round(value, 4) for name in FIGURES}
    size = {"people": len(table.train), "columns": len(owner), "width": Codec(table.schema).width}
    plain = {key: "" if value is None else value for key, value in asdict(cell).items()}
    return dict.fromkeys(FIELDS, "") | plain | size | {"delta": DELTA if cell.epsilon else ""} | cost | known


def opened(dataset: str, folder: Path, seed: int) -> Public:
    return load(dataset, folder, seed).first(MOST)


def written(path: Path | None, cell: Cell) -> dict[str, float | None]:
    """The scores of real rows that another cell of the same table and seed has left in the file."""
    if path is None or not path.exists():
        return {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if (row["dataset"], row["seed"]) == (cell.dataset, str(cell.seed)) and row[FIGURES[-1]]:
                known = {
                    name.removeprefix("trtr_"): row[name] for name in FIGURES if name.startswith("trtr_")
                }
                return {name: float(value) if value else None for name, value in known.items()}
    return {}


@lru_cache(maxsize=32)
def real_scores(dataset: str, folder: Path, seed: int, most: int) -> dict[str, float | None]:
    """The scores of models that learned from real rows: once for all cells of a table that a process measures."""
    table = opened(dataset, folder, seed)
    return learned(table.train, table, seed, most)


def learned(rows: pd.DataFrame, table: Public, seed: int, most: int) -> dict[str, float | None]:
    """Scores on the held-out rows of models that learned to tell the target from at most `most` of these rows."""
    codec, rng = Codec(table.schema), np.random.default_rng([seed, 0])
    place = table.schema.names.index(table.target)
    sizes = [size for column, size in enumerate(codec.sizes) if column != place]
    train, test = (
        Examples(np.delete(codes, place, axis=1), codes[:, place].astype(np.int64)).sample(most, rng)
        for codes in (codec.codes(frame[list(table.schema.names)]) for frame in (rows, table.test))
    )
    score = partial(classification_scores, test.target)
    scores: dict[str, float | None] = {}
    for model in MODELS:
        found, _ = scores_of(model, train, test.features, sizes, codec.sizes[place], seed, score)
        scores |= {f"{model}_{name}": v if isinstance(v, float) else None for name, v in found.items()}
    return scores


def export(datasets: list[str], seeds: int, args: argparse.Namespace) -> None:
    """The training rows as codes, and how many levels each column has: what central.py reads."""
    args.export.mkdir(parents=True, exist_ok=True)
    for dataset in datasets:
        for seed in range(seeds):
            table = opened(dataset, args.data, seed)
            codec, names = Codec(table.schema), list(table.schema.names)
            file = args.export / f"{dataset}-{seed}.csv"
            pd.DataFrame(codec.codes(table.train), columns=names).to_csv(file, index=False)
            file.with_suffix(".json").write_text(json.dumps(dict(zip(names, codec.sizes, strict=True))))
            print(file, flush=True)


def finished(path: Path | None) -> set[str]:
    """The names of the cells that a file holds already."""
    if path is None or not path.exists():
        return set()
    with path.open(newline="") as file:
        return {
            Cell(
                dataset=row["dataset"], method=row["method"], partition=row["partition"],
                holders=int(row["holders"]), epsilon=float(row["epsilon"]) if row["epsilon"] else None,
                seed=int(row["seed"]),
            ).name
            for row in csv.DictReader(file)
        }  # fmt: skip


def write(path: Path, row: dict[str, Any]) -> None:
    """Add a row, with a header before the first."""
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def options(quick: bool) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DATA") or "data"))
    parser.add_argument("--datasets", nargs="*", default=["toy"] if quick else list(NAMES))
    parser.add_argument("--only", nargs="*", default=["/Gram/", "/2/", "ε=8"] if quick else [])
    parser.add_argument("--seeds", type=int, default=1 if quick else 3)
    parser.add_argument(
        "--rounds", type=int, default=5 if quick else 0, help="of VertiGAN and VDGAN; 0: their own"
    )
    parser.add_argument("--learn", type=int, default=20_000, help="rows that downstream models train on")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--central", type=Path, default=None, help="folder that central.py filled")
    parser.add_argument("--export", type=Path, default=None, help="write rows for central.py there, and end")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def main() -> None:
    args = options(os.environ.get("QUICK", "") not in ("", "0"))
    if args.export is not None:
        export(args.datasets, args.seeds, args)
        return
    done = finished(args.out)
    todo = [
        cell
        for cell in cells(args.datasets, args.seeds)
        if all(text in cell.name for text in args.only)
        and cell.name not in done
        and (cell.method not in CENTRAL or central_file(cell, vars(args)).exists())
    ]
    if args.list:
        print("\n".join(cell.name for cell in todo))
        return
    print(f"{len(todo)} cells to do, {len(done)} done before", flush=True)
    with ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(measure, cell, vars(args)): cell for cell in todo}
        for future in as_completed(running):
            cell = running[future]
            try:
                row = future.result()
            except Exception as error:  # one cell's failure is not the others'
                print(f"{cell.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            print(f"{cell.name}  " + "  ".join(f"{k}={row[k]}" for k in ("seconds", *FIGURES)), flush=True)
            if args.out is not None:
                write(args.out, row)


if __name__ == "__main__":
    main()

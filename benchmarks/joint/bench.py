"""Joint publication: what a synthetic table tells within and across holders, beside
central methods at the same ε.

    make bench NAME=joint DATA=<folder> [QUICK=1]
    python benchmarks/joint/bench.py --data data --jobs 2 --only columns/2/ε=1 --out benchmarks/joint/ours.csv

A cell is one table, method, partition, number of holders, ε and seed. Cells are
independent of each other: each finished one is added to `--out`, and cells that are
there already are skipped. `--only` takes texts that must all be in a cell's name, which
is dataset/method/partition/holders/ε/seed; `--list` prints the names. What matters most
comes first: the first seed, ε of 1 and 8, two holders of columns; so a run that is cut
short leaves the rest undone.

    Gram           over columns and rows, 2, 4 and 8 holders; mixed: two groups of
                   columns, two holders of rows in each
    Gram+target    over columns, 2 holders, and all rows at one: the column that
                   classifiers are to predict is named
    VertiGAN, VertiGAN+gram, VDGAN-DPSGD, DPLT   over columns, 2 holders; ε is each
                                                 party's
    MST, AIM       all data in one place; rows made by central.py (see there), read from
                   `--central`
    MST-equal, AIM-equal   the same with the noise that Gram has (`central.py
                           --equal-noise`)
    independent    every column shuffled by itself, not private
    bootstrap      the real rows, drawn with replacement, not private

Synthetic rows, as many as real ones, are held against the real ones (2-, 3- and 4-way
AVD within a holder's columns, across holders and over all, CMD; what is kept of the
strongest pairs, and their distance: `common/strong_pairs.py`) and classifiers that
learned from them against the fifth that was held out. Of Census the first 100,000
people of the seed's order are taken, as in benchmarks/vertical. `seconds` is the whole
run by the wall clock; `up_mb` and `down_mb` are per holder.
"""

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from tables import CUTS, NAMES, Public, load

from common import publication, strong_pairs
from common.grid import Grid, grid_options
from common.options import quick
from common.publication import DELTA, ENDS
from common.rows import read
from common.splits import iid_rows, random_columns
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.fidelity import evaluate_tables
from understudy.runs.federation import Federation

QUICK = quick()
EPSILONS = (1.0, 8.0, 0.5, 2.0, 0.2)
HOLDERS = (2, 4, 8)
MOST = 100_000
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "Gram": ("gram", {"fine": 0.0}),  # all methods on the same levels
    "Gram+target": ("gram", {"fine": 0.0}),
    "VertiGAN": ("verti-gan", {}),
    "VertiGAN+gram": ("verti-gan", {"coupling": "gram"}),
    "VDGAN-DPSGD": ("vd-gan-dpsgd", {}),
    "DPLT": ("dplt", {"plus": False}),
}
PERSON = "person"
# alignment takes minutes where people must be found by id
MIXED = ("toy", "randhie", "adult", "adult_pgm", "bank")
CENTRAL = ("MST", "AIM", "MST-equal", "AIM-equal")
MODELS = ("mlp", "boosting")
FIGURES = (
    *publication.scoped(("avd2", "avd3", "avd4", "cmd")),
    *strong_pairs.FIGURES,
    *publication.downstream(MODELS, ("acc", "f1", "brier", "auc")),
)


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
        priced = publication.price(self.epsilon)
        return f"{self.dataset}/{self.method}/{self.partition}/{self.holders}/{priced}/seed={self.seed}"


FIELDS = [
    *Cell.__dataclass_fields__,
    "delta",
    "people",
    "columns",
    "width",
    "seconds",
    "up_mb",
    "down_mb",
    *FIGURES,
]
GRID = Grid(
    fields=FIELDS,
    key=tuple(Cell.__dataclass_fields__),
    columns=publication.plain,
    name=lambda cell: cell.name,
)


def cells(datasets: list[str], seeds: int) -> Iterator[Cell]:
    """Everything that is compared, what matters most first; of tables cut to few people
    Gram and central methods.
    """
    two: dict[str, Any] = {"partition": "columns", "holders": 2}
    one: dict[str, Any] = {"partition": "rows", "holders": 1}
    few = [name for name in datasets if "@" in name]
    for seed, dataset, epsilon in product(range(seeds), few, EPSILONS):
        for method in ("Gram", "Gram+target", *CENTRAL):
            yield Cell(
                dataset=dataset, method=method, epsilon=epsilon, seed=seed, **two
            )
        yield Cell(
            dataset=dataset, method="Gram+target", epsilon=epsilon, seed=seed, **one
        )
    datasets = [name for name in datasets if name not in few]
    cuts = [(p, h) for h in HOLDERS for p in ("columns", "rows")]
    for seed in range(seeds):
        heads: list[dict[str, Any]] = [
            {"dataset": dataset, "seed": seed} for dataset in datasets
        ]
        yield from (
            Cell(method=method, epsilon=None, **two, **head)
            for head in heads
            for method in ENDS
        )
        for prices in (EPSILONS[:2], EPSILONS[2:]):
            for method in ("Gram", *CENTRAL):
                yield from (
                    Cell(method=method, epsilon=e, **two, **head)
                    for e in prices
                    for head in heads
                )
            for partition, holders in cuts[1:]:
                cut: dict[str, Any] = {"partition": partition, "holders": holders}
                yield from (
                    Cell(method="Gram", epsilon=e, **cut, **head)
                    for e in prices
                    for head in heads
                )
            for method in list(METHODS)[1:]:
                yield from (
                    Cell(method=method, epsilon=e, **two, **head)
                    for e in prices
                    for head in heads
                )
            yield from (
                Cell(method="Gram+target", epsilon=e, **one, **head)
                for e in prices
                for head in heads
            )
            cut = {"partition": "mixed", "holders": 4}
            known = [head for head in heads if head["dataset"] in MIXED]
            yield from (
                Cell(method="Gram", epsilon=e, **cut, **head)
                for e in prices
                for head in known
            )


def owners(cell: Cell, table: Public) -> dict[str, str]:
    """The holder of each column, or the group; over rows, and for central methods, that
    of a split in two.
    """
    holders = cell.holders if cell.partition == "columns" else 2
    split = random_columns(
        table.schema.names, [f"holder {n + 1}" for n in range(holders)], seed=cell.seed
    )
    return {column: name for name, columns in split.items() for column in columns}


def publish(
    cell: Cell, table: Public, owner: dict[str, str], args: dict[str, Any]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A synthetic table as large as the real one, and what it cost."""
    if cell.method in ENDS:
        return publication.end_of_scale(
            cell.method, table.train, table.schema, cell.seed
        ), {}
    if cell.method in CENTRAL:
        file = central_file(cell, args)
        took = dict(
            line.split(",")
            for line in (file.parent / "seconds.csv").read_text().split()
        )
        codes = pd.read_csv(file).to_numpy(np.int32)
        return Codec(table.schema).decode(codes), {"seconds": took.get(file.stem, "")}
    protocol, settings = METHODS[cell.method]
    if protocol != "dplt":
        settings = settings | {"device": args["device"], "seed": cell.seed}
    if cell.method == "Gram+target":
        settings |= {"target": table.target, "public_people": len(table.train)}
    if protocol != "dplt" and protocol != "gram" and args["rounds"]:
        settings |= {"rounds": args["rounds"], "batch": 100}
    federation = federated(cell, table, owner)
    start = time.perf_counter()
    result = train(protocol, federation, **settings)
    seconds = time.perf_counter() - start
    rows = result.generator.sample(len(table.train), seed=cell.seed)[
        list(table.schema.names)
    ]
    return rows, {
        "seconds": round(seconds, 1),
        **publication.sent(result, cell.holders),
    }


def federated(cell: Cell, table: Public, owner: dict[str, str]) -> Federation:
    """The holders of the cell, in a rehearsal."""
    groups = {
        name: [c for c, o in owner.items() if o == name]
        for name in sorted(set(owner.values()))
    }
    frames: dict[str, pd.DataFrame]
    if cell.partition == "columns":
        frames = {name: table.train[held] for name, held in groups.items()}
        schemas = {name: table.schema.select(held) for name, held in groups.items()}
    elif cell.partition == "rows":
        hosts = iid_rows(
            len(table.train),
            [f"host {n + 1}" for n in range(cell.holders)],
            seed=cell.seed,
        )
        frames = {name: table.train.iloc[rows] for name, rows in hosts.items()}
        schemas = dict.fromkeys(frames, table.schema)
    else:
        known = table.train.assign(**{PERSON: np.arange(len(table.train))})
        frames = {}
        schemas = {}
        for number, (group, held) in enumerate(groups.items()):
            names = [
                f"{group}, {half}" for half in range(1, cell.holders // len(groups) + 1)
            ]
            for name, rows in iid_rows(
                len(known), names, seed=cell.seed + number
            ).items():
                frames[name] = known.iloc[rows][[PERSON, *held]]
                schemas[name] = replace(table.schema.select(held), person=PERSON)
    same = cell.partition != "rows"
    return Federation.rehearsal(
        frames,
        schemas,
        budget=publication.budget(cell.epsilon),
        seed=cell.seed,
        same_people=same,
    )


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
        table.train,
        made,
        table.schema,
        owners=owner,
        ways=(2, 3, 4),
        models=MODELS,
        seed=cell.seed,
    )
    figures = {figure.name: figure.value for figure in found.figures}
    if cell.partition == "rows":
        figures = {
            name: value
            for name, value in figures.items()
            if not name.endswith(("_within", "_cross"))
        }
    scores = {"tstr": learned(made, table, cell.seed, args["learn"])}
    scores["trtr"] = written(args.get("out"), cell) or real_scores(
        cell.dataset, args["data"], cell.seed, args["learn"]
    )
    figures |= {
        f"{kind}_{name}": value
        for kind, own in scores.items()
        for name, value in own.items()
    }
    codec = Codec(table.schema)
    names = list(table.schema.names)
    held = [codec.codes(frame[names]) for frame in (table.train, made)]
    figures |= strong_pairs.strong_pairs(*held, codec.sizes).figures
    size = {
        "people": len(table.train),
        "columns": len(owner),
        "width": codec.width,
    }
    paid = {"delta": DELTA if cell.epsilon else ""}
    known = publication.rounded(figures, FIGURES)
    return (
        dict.fromkeys(FIELDS, "") | publication.plain(cell) | size | paid | cost | known
    )


def opened(dataset: str, folder: Path, seed: int) -> Public:
    """The table of that name, or its first people: "credit@2000"."""
    name, _, most = dataset.partition("@")
    return load(name, folder, seed).first(int(most or MOST))


def written(path: Path | None, cell: Cell) -> dict[str, float | None]:
    """The scores of real rows that another cell of the same table and seed has left in
    the file.
    """
    for row in read(path):
        if (row["dataset"], row["seed"]) == (cell.dataset, str(cell.seed)) and row[
            FIGURES[-1]
        ]:
            known = {
                name.removeprefix("trtr_"): row[name]
                for name in FIGURES
                if name.startswith("trtr_")
            }
            return {
                name: float(value) if value else None for name, value in known.items()
            }
    return {}


@lru_cache(maxsize=32)
def real_scores(
    dataset: str, folder: Path, seed: int, most: int
) -> dict[str, float | None]:
    """The scores of models that learned from real rows: once for all cells of a table
    that a process measures.
    """
    table = opened(dataset, folder, seed)
    return learned(table.train, table, seed, most)


def learned(
    rows: pd.DataFrame, table: Public, seed: int, most: int
) -> dict[str, float | None]:
    """Scores on the held-out rows of models that learned to tell the target from at
    most `most` of these rows.
    """
    codec = Codec(table.schema)
    rng = np.random.default_rng([seed, 0])
    place = table.schema.names.index(table.target)
    sizes = [size for column, size in enumerate(codec.sizes) if column != place]
    train, test = (
        Examples(
            np.delete(codes, place, axis=1), codes[:, place].astype(np.int64)
        ).sample(most, rng)
        for codes in (
            codec.codes(frame[list(table.schema.names)]) for frame in (rows, table.test)
        )
    )
    score = partial(classification_scores, test.target)
    scores: dict[str, float | None] = {}
    for model in MODELS:
        found, *_ = score_model(
            model, train, test.features, sizes, codec.sizes[place], seed, score
        )
        scores |= {
            f"{model}_{name}": v if isinstance(v, float) else None
            for name, v in found.items()
        }
    return scores


def export(datasets: list[str], seeds: int, args: argparse.Namespace) -> None:
    """The training rows as codes, and how many levels each column has: what central.py
    reads.
    """
    args.export.mkdir(parents=True, exist_ok=True)
    for dataset in datasets:
        for seed in range(seeds):
            table = opened(dataset, args.data, seed)
            codec = Codec(table.schema)
            names = list(table.schema.names)
            file = args.export / f"{dataset}-{seed}.csv"
            pd.DataFrame(codec.codes(table.train), columns=names).to_csv(
                file, index=False
            )
            file.with_suffix(".json").write_text(
                json.dumps(dict(zip(names, codec.sizes, strict=True)))
            )
            print(file, flush=True)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument(
        "--datasets", nargs="*", default=["toy"] if QUICK else [*NAMES, *CUTS]
    )
    parser.add_argument(
        "--only", nargs="*", default=["/Gram/", "/2/", "ε=8"] if QUICK else []
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument(
        "--rounds",
        type=int,
        default=5 if QUICK else 0,
        help="of VertiGAN and VDGAN; 0: their own",
    )
    parser.add_argument(
        "--learn", type=int, default=20_000, help="rows that downstream models train on"
    )
    parser.add_argument(
        "--central", type=Path, default=None, help="folder that central.py filled"
    )
    parser.add_argument(
        "--export",
        type=Path,
        default=None,
        help="write rows for central.py there, and end",
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.export is not None:
        export(args.datasets, args.seeds, args)
        return
    asked = (
        cell
        for cell in cells(args.datasets, args.seeds)
        if all(text in cell.name for text in args.only)
        and (cell.method not in CENTRAL or central_file(cell, vars(args)).exists())
    )
    GRID.run(partial(measure, args=vars(args)), asked, args)


if __name__ == "__main__":
    main()

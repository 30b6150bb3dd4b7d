"""Vertical publication: what each method learns within a party and across parties, at
which price.

    make bench NAME=vertical DATA=<folder> [QUICK=1]
    python benchmarks/vertical/bench.py --data data --jobs 2 --only main/adult --out benchmarks/vertical/ours.csv

A cell is one study, one table, one method, one ε and one seed. Cells are independent of
each other: each finished one is added to `--out`, and cells that are there already are
skipped. `--only` takes texts that must all be in a cell's name, which is
study/dataset/method/ε/variation/seed; `--list` prints the names.

    main      every method on every table, two parties with half of the columns each, ε
              ∈ {0.5, 2, 8}
    rows      VertiGAN with 10³, 10⁴ and 10⁵ people (VertiGAN paper, §6.4.1)
    split     shares 0.1, 0.3 and 0.5 of the columns, at random or with correlated
              columns together (§6.4.2)
    parties   2, 4, 8 and 16 parties, likewise (§6.4.3)
    upload    the largest 25, 50, 75 and 100 % of the gradient's entries sent (§7.2)
    teachers  VDGAN-PATE with 500 to 4000 teachers (thesis of Y. Zhang, §5.5.2)

Settings are the VertiGAN paper's (1500 rounds × 10 critic steps × batch 1000;
VDGAN-PATE: its own defaults), people are never resampled, and ε is that of each party;
`epsilon_person` composes it over the parties, which hold the same people. `independent`
(every column shuffled by itself) and `bootstrap` (the training rows, drawn with
replacement) are the two ends of the scale; neither is private.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from common import publication
from common.grid import Grid, grid_options
from common.options import quick
from common.public_tables import FILES, Public, load
from common.publication import DELTA, ENDS
from common.splits import cramers_v, random_columns
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.evaluate.attacks.neighbours import neighbourhood
from understudy.evaluate.utility.distance import Attacked
from understudy.evaluate.utility.fidelity import evaluate_tables
from understudy.runs.federation import Federation
from understudy.runs.registry import PROTOCOLS
from understudy.runs.result import Result

QUICK = quick()
EPSILONS = (0.5, 2.0, 8.0)
MOST = 100_000
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "VertiGAN": ("verti-gan", {}),
    "VDGAN-DPSGD": ("vd-gan-dpsgd", {}),
    "VDGAN-PATE": ("vd-gan-pate", {}),
    "DPLT": ("dplt", {"plus": False}),
    "DPLT+": ("dplt", {"plus": True}),
    "Gram": ("gram", {"fine": 0.0}),  # all methods on the same levels
    "central GAN": ("central-gan", {}),
}
UNPRIVATE = ("VertiGAN", "VDGAN-DPSGD", "VDGAN-PATE", "central GAN")
IN_ROUNDS = ("VertiGAN", "VDGAN-DPSGD", "VDGAN-PATE", "central GAN")
MODELS = ("mlp", "adaboost")
WAYS = (2, 3, 4, 5, 6)
OUTLIERS = (0.0, 0.5, 1.0)  # their share of the attack's targets (thesis, §5.4.2)
FIGURES = (
    *publication.scoped(("avd2", "avd4", "cmd")),
    *publication.downstream(MODELS, ("acc", "auc")),
    "mia_acc",
    "mia_control",
    *publication.scoped(("avd3", "avd5", "avd6")),
    *(
        f"mia_{kind}_{100 * share:.0f}"
        for share in OUTLIERS
        for kind in ("acc", "control")
    ),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run. `epsilon` is None where nothing is private."""

    study: str
    dataset: str
    method: str
    epsilon: float | None
    seed: int
    rows: int = MOST
    parties: int = 2
    split: str = "random"
    share: float = 0.5
    upload: float = 1.0
    teachers: int = 2000

    @property
    def name(self) -> str:
        changed = [f"{key}={getattr(self, key)}" for key in VARIED[self.study]]
        priced = publication.price(self.epsilon)
        return "/".join(
            (
                self.study,
                self.dataset,
                self.method,
                priced,
                *changed,
                f"seed={self.seed}",
            )
        )


VARIED: dict[str, tuple[str, ...]] = {
    "main": (),
    "rows": ("rows",),
    "split": ("split", "share"),
    "parties": ("parties", "split"),
    "upload": ("upload",),
    "teachers": ("teachers",),
}
FIELDS = [
    *Cell.__dataclass_fields__,
    "delta",
    "epsilon_person",
    "people",
    "width",
    "rounds",
    "batch",
    "seconds",
    "up_mb",
    "down_mb",
    *FIGURES,
    "machine",
    "date",
]
GRID = Grid(
    fields=FIELDS,
    key=tuple(Cell.__dataclass_fields__),
    columns=publication.plain,
    name=lambda cell: cell.name,
)


def cells(
    datasets: list[str], seeds: int, epsilons: tuple[float, ...] = EPSILONS
) -> Iterator[Cell]:
    """Everything that the studies ask for."""
    for seed in range(seeds):
        for dataset in datasets:
            head: dict[str, Any] = {"dataset": dataset, "seed": seed}
            for method in ENDS:
                yield Cell(study="main", method=method, epsilon=None, **head)
            for method, (protocol, _) in METHODS.items():
                if protocol in PROTOCOLS:
                    prices = (*epsilons, None) if method in UNPRIVATE else epsilons
                    yield from (
                        Cell(study="main", method=method, epsilon=e, **head)
                        for e in prices
                    )
        for dataset in [name for name in ("census",) if name in datasets]:
            for rows in (1_000, 10_000, 100_000):
                for e in epsilons:
                    yield Cell(
                        study="rows",
                        dataset=dataset,
                        method="VertiGAN",
                        epsilon=e,
                        seed=seed,
                        rows=rows,
                    )
        for dataset in [name for name in ("a9a", "census") if name in datasets]:
            head = {"dataset": dataset, "seed": seed}
            for split in ("random", "correlated"):
                for share in (0.1, 0.3, 0.5):
                    yield Cell(
                        study="split",
                        method="VertiGAN",
                        epsilon=8.0,
                        split=split,
                        share=share,
                        **head,
                    )
                for count in (2, 4, 8, 16):
                    yield Cell(
                        study="parties",
                        method="VertiGAN",
                        epsilon=8.0,
                        split=split,
                        parties=count,
                        **head,
                    )
            for method in ("VDGAN-DPSGD", "VDGAN-PATE", "DPLT"):  # thesis, Fig. 5.11
                for count in (2, 3, 4):
                    yield Cell(
                        study="parties",
                        method=method,
                        epsilon=8.0,
                        parties=count,
                        **head,
                    )
            for upload in (0.25, 0.5, 0.75, 1.0):
                for e in (2.0, 8.0):
                    yield Cell(
                        study="upload",
                        method="VertiGAN",
                        epsilon=e,
                        upload=upload,
                        **head,
                    )
            for teachers in (500, 1000, 2000, 4000):
                yield Cell(
                    study="teachers",
                    method="VDGAN-PATE",
                    epsilon=8.0,
                    teachers=teachers,
                    **head,
                )


def owners(cell: Cell, table: Public) -> dict[str, tuple[str, ...]]:
    """Which columns each party holds. `correlated`: neighbours in a tree of 1 −
    Cramér's V, average linkage.
    """
    names = [f"party{number + 1}" for number in range(cell.parties)]
    shares = dict.fromkeys(names, 1.0)
    if cell.parties == 2:
        shares = {names[0]: cell.share, names[1]: 1 - cell.share}
    columns = table.schema.names
    if cell.split == "random":
        return random_columns(columns, shares, seed=cell.seed)
    distance = 1 - cramers_v(table.train.iloc[:20_000], table.schema)
    order = [
        columns[i]
        for i in leaves_list(linkage(squareform(distance, checks=False), "average"))
    ]
    ends = np.round(
        np.cumsum([0, *shares.values()]) / sum(shares.values()) * len(order)
    ).astype(int)
    return {
        name: tuple(order[a:b])
        for name, a, b in zip(names, ends, ends[1:], strict=False)
    }


def publish(
    cell: Cell, table: Public, split: dict[str, tuple[str, ...]], args: dict[str, Any]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A synthetic table as large as the real one, and what it cost."""
    if cell.method in ENDS:
        return publication.end_of_scale(
            cell.method, table.train, table.schema, cell.seed
        ), {}
    people = len(table.train)
    protocol, settings = METHODS[cell.method]
    settings = (
        settings | {"device": args["device"]} if protocol != "dplt" else dict(settings)
    )
    if cell.method in IN_ROUNDS:
        settings |= {
            "seed": cell.seed,
            "private": cell.epsilon is not None,
            "checkpoint_every": 10**6,
        }
        settings |= {"rounds": args["rounds"]} if args["rounds"] else {}
        settings |= (
            {"batch": args["batch"]}
            if args["batch"] and protocol != "vd-gan-pate"
            else {}
        )
    if protocol == "verti-gan":
        settings["upload"] = cell.upload
    if protocol == "vd-gan-pate":  # ten people each, at least
        settings["teachers"] = min(cell.teachers, max(1, people // 10))
    held = {"all": table.schema.names} if protocol == "central-gan" else split
    federation = Federation.rehearsal(
        {name: table.train[list(columns)] for name, columns in held.items()},
        {name: table.schema.select(columns) for name, columns in held.items()},
        budget=publication.budget(cell.epsilon),
        seed=cell.seed,
    )
    start = time.perf_counter()
    result = train(protocol, federation, **settings)
    seconds = time.perf_counter() - start
    rows = result.generator.sample(people, seed=cell.seed)[list(table.schema.names)]
    return rows, {"seconds": round(seconds, 1), **_spent(result, cell, len(held))}


def _spent(result: Result, cell: Cell, parties: int) -> dict[str, Any]:
    return {
        "rounds": result.generator.card["rounds"],
        "batch": result.generator.card["config"].get("batch", ""),
        "epsilon_person": ""
        if cell.epsilon is None
        else round(result.privacy.epsilon(), 4),
        **publication.sent(result, parties),
    }


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    """One cell: publish, then hold the synthetic rows against the real ones."""
    warnings.simplefilter("ignore")
    table = load(cell.dataset, args["data"], cell.seed).first(cell.rows)
    split = owners(cell, table)
    made, cost = publish(cell, table, split, args)
    party = {column: name for name, columns in split.items() for column in columns}
    found = evaluate_tables(
        table.train,
        made,
        table.schema,
        holdout=table.test,
        target=table.target,
        owners=party,
        task="classification",
        ways=WAYS,
        models=MODELS,
        seed=cell.seed,
        rows=args["learn"],
    )
    figures = {figure.name: figure.value for figure in found.figures}
    figures |= {
        figure.name.replace("tstr", "trtr"): figure.best
        for figure in found.figures
        if "tstr" in figure.name
    }
    codec = Codec(table.schema)
    codes = (
        codec.codes(frame) for frame in (table.train, table.test, made.iloc[:10_000])
    )
    attacked = Attacked.from_codes(*codes)
    for share in (None, *OUTLIERS):
        attack = neighbourhood(attacked, outliers=share, seed=cell.seed)
        targets = "" if share is None else f"_{100 * share:.0f}"
        guessed = attack["acc"]
        figures[f"mia_acc{targets}"] = guessed.attack.value
        figures[f"mia_control{targets}"] = guessed.control.value
    width = {
        "people": len(table.train),
        "width": codec.width,
        "delta": "" if cell.epsilon is None else DELTA,
    }
    known = publication.rounded(figures, FIGURES)
    where = {"machine": args.get("machine", ""), "date": date.today().isoformat()}
    return (
        dict.fromkeys(FIELDS, "")
        | publication.plain(cell)
        | width
        | cost
        | known
        | where
    )


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument(
        "--datasets", nargs="*", default=["toy"] if QUICK else list(FILES)
    )
    parser.add_argument(
        "--only", nargs="*", default=["main", "ε=8", "VertiGAN"] if QUICK else []
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument(
        "--rounds", type=int, default=5 if QUICK else 0, help="0: each method's own"
    )
    parser.add_argument(
        "--batch", type=int, default=100 if QUICK else 0, help="0: each method's own"
    )
    parser.add_argument(
        "--learn", type=int, default=10_000, help="rows that downstream models train on"
    )
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    every = cells(args.datasets, args.seeds, tuple(args.epsilons))
    asked = (cell for cell in every if all(text in cell.name for text in args.only))
    GRID.run(partial(measure, args=vars(args)), asked, args)


if __name__ == "__main__":
    main()

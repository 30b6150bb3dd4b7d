"""What a union of two holders' people costs beside their intersection, and what it
brings: `gram` over columns at the same ε.

    make bench NAME=union DATA=<folder> [QUICK=1]
    python benchmarks/union/bench.py --data data --only bank/ --out benchmarks/union/ours.csv

Each of two holders has a half of a table's columns, of a share of its people: "90/20"
is nine tenths at the first and a fifth at the second, so that 18 % are at both.
`presence` says whose people these are:

    random   whom a holder has depends on nothing
    skewed   whom a holder has depends on its first column: people in the upper half of
             its levels are there twice as often as others

A cell is a table, shares, presence, a target named or not, and a seed. It trains both
alignments (`intersection_…`, `union_…`) and holds 20,000 synthetic people of each
against real ones:

    both_avd2     2-way distance among people at both holders, mean of up to 100 pairs of
                  columns; `_within` a holder, `_cross` holders
    own_avd2      2-way distance among all people of a holder, in its columns, mean of
                  both holders. Of an intersection these are the same 20,000, who are
                  all that it has; of a union those whom the holder has
    auc           of gradient boosting that learned from synthetic people at both, on
                  real ones who were held out
    seconds       of processor time, for training

Levels are as declared, the same for both, and ε is all that is released of a person at
both holders together. Ids are compared by hashes in the place of a curve
(`common/aligned.py`): who is found is the same, and it takes no minutes. Masks are dealt,
which gives the counts that encrypted rows give. The table is its first people in the
seed's order.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common import publication
from common.aligned import without_curve
from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.public_tables import Public
from common.publication import DELTA, plain
from common.splits import random_columns
from joint import tables
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Codes, Marginals
from understudy.models.tables.presence import presence_name
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
HOLDERS = ("first", "second")
MAY_CHOOSE = ("adult", "credit")  # settings may be chosen on these
REPORTED = ("bank", "census")
SHARES = {"90/20": (0.9, 0.2), "70/70": (0.7, 0.7), "40/40": (0.4, 0.4)}
SKEWED = "70/70"
PEOPLE = 8_000
DRAWN = 20_000
EPSILON = 1.0
PERSON = "person"
ALIGNMENTS = ("intersection", "union")
FIGURES = ("both_avd2", "both_avd2_within", "both_avd2_cross", "own_avd2", "auc")
Present = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One pair of runs. `target`: whether the column to predict is named."""

    dataset: str
    shares: str
    presence: str
    target: bool
    seed: int

    @property
    def name(self) -> str:
        named = "target" if self.target else "no target"
        return f"{self.dataset}/{self.shares}/{self.presence}/{named}/seed={self.seed}"


KEY = tuple(Cell.__dataclass_fields__)
FIELDS = [
    *KEY,
    "epsilon",
    "delta",
    "columns",
    "people",
    "people_at_both",
    *(
        f"{alignment}_{name}"
        for name in (*FIGURES, "seconds")
        for alignment in ALIGNMENTS
    ),
]
GRID = Grid(
    fields=FIELDS,
    key=KEY,
    order=by_text(*KEY),
    columns=plain,
    name=lambda cell: cell.name,
)


def cells(datasets: list[str], seeds: int) -> Iterator[Cell]:
    """Every cell, the first seeds first."""
    ways = [
        *((shares, "random") for shares in SHARES),
        (SKEWED, "skewed"),
    ]
    for seed, target, (shares, presence), dataset in product(
        range(seeds), (False, True), ways, datasets
    ):
        yield Cell(
            dataset=dataset,
            shares=shares,
            presence=presence,
            target=target,
            seed=seed,
        )


def present(cell: Cell, codes: Codes, first_columns: Mapping[str, int]) -> Present:
    """Whom of the table's people each holder has."""
    rng = np.random.default_rng([cell.seed, 11])
    at = {}
    for name, share in zip(HOLDERS, SHARES[cell.shares], strict=True):
        chance = np.full(len(codes), share)
        if cell.presence == "skewed":
            levels = codes[:, first_columns[name]]
            twice = 1.0 + (levels > np.median(levels))
            chance = np.minimum(1.0, share * twice / twice.mean())
        at[name] = rng.random(len(codes)) < chance
    return at


def federated(
    table: Public,
    held: Mapping[str, tuple[str, ...]],
    at: Present,
    seed: int,
) -> Federation:
    """Two holders of columns, each with its people, in a rehearsal."""
    known = table.train.assign(**{PERSON: np.arange(len(table.train))})
    frames = {
        name: known.loc[at[name], [PERSON, *columns]] for name, columns in held.items()
    }
    schemas = {
        name: replace(table.schema.select(columns), person=PERSON)
        for name, columns in held.items()
    }
    return Federation.rehearsal(
        frames,
        schemas,
        budget=publication.budget(EPSILON),
        seed=seed,
    )


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    """Both alignments of one cell."""
    warnings.simplefilter("ignore")
    table = tables.load(cell.dataset, args["data"], cell.seed).first(args["people"])
    names = list(table.schema.names)
    held = random_columns(names, HOLDERS, seed=cell.seed)
    first_columns = {name: names.index(columns[0]) for name, columns in held.items()}
    at = present(cell, level_numbers(table.train, table.schema), first_columns)
    both = np.logical_and.reduce([*at.values()])
    row = plain(cell) | {
        "epsilon": EPSILON,
        "delta": DELTA,
        "columns": len(names),
        "people": len(both),
        "people_at_both": int(both.sum()),
    }
    for alignment in ALIGNMENTS:
        drawn, seconds = published(cell, table, held, at, alignment)
        figures = distances(table, drawn, held, at, cell.seed)
        figures["auc"] = area(drawn["both"], table, cell.seed)
        row |= {
            f"{alignment}_{name}": round(value, 5) for name, value in figures.items()
        }
        row[f"{alignment}_seconds"] = round(seconds, 1)
    return row


def level_numbers(rows: pd.DataFrame, schema: Schema) -> Codes:
    """These rows in the schema's columns."""
    return Codec(schema).codes(rows[list(schema.names)].convert_dtypes())


def published(
    cell: Cell,
    table: Public,
    held: Mapping[str, tuple[str, ...]],
    at: Present,
    alignment: str,
) -> tuple[dict[str, pd.DataFrame], float]:
    """Synthetic people at both holders, and at each; and the processor time."""
    settings = {"target": table.target} if cell.target else {}
    with without_curve():
        federation = federated(table, held, at, cell.seed)
        start = time.process_time()
        result = train(
            "gram",
            federation,
            alignment=alignment,
            products="dealt",
            fine=0.0,
            seed=cell.seed,
            device="cpu",
            **settings,
        )
        seconds = time.process_time() - start
    draw = partial(result.generator.sample, DRAWN, seed=cell.seed)
    if alignment == "intersection":
        rows = draw()
        return dict.fromkeys(("both", *HOLDERS), rows), seconds
    there = {name: f"{presence_name(name)} == true" for name in HOLDERS}
    drawn = {name: draw(where=said) for name, said in there.items()}
    drawn["both"] = draw(where=" and ".join(there.values()))
    return drawn, seconds


def distances(
    table: Public,
    drawn: Mapping[str, pd.DataFrame],
    held: Mapping[str, tuple[str, ...]],
    at: Present,
    seed: int,
) -> dict[str, float]:
    """The 2-way distances of a cell, by name."""
    owner = {name: holder for holder, columns in held.items() for name in columns}
    owners = [owner[name] for name in table.schema.names]
    both = np.logical_and.reduce([*at.values()])
    pair = compared(table.train[both], drawn["both"], table.schema, seed, owners)
    found = {
        f"both_avd2{suffix}": value(pair, scope)
        for suffix, scope in (("", "all"), ("_within", "within"), ("_cross", "cross"))
    }
    own = [
        compared(
            table.train[at[holder]],
            drawn[holder],
            table.schema.select(columns),
            seed,
        )
        for holder, columns in held.items()
    ]
    return found | {"own_avd2": float(np.mean([value(one) for one in own]))}


def compared(
    real: pd.DataFrame,
    made: pd.DataFrame,
    schema: Schema,
    seed: int,
    owners: list[str] | None = None,
) -> Marginals:
    """Both tables in the columns of this schema."""
    return Marginals(
        level_numbers(real, schema),
        level_numbers(made, schema),
        Codec(schema).sizes,
        owners=owners,
        ends=(),
        seed=seed,
    )


def value(pair: Marginals, scope: str = "all") -> float:
    """The 2-way distance of this scope."""
    found = pair.avd(2, scope=scope).value
    assert found is not None
    return found


def area(made: pd.DataFrame, table: Public, seed: int) -> float:
    """The AUC, on people held out, of boosting that learned from these rows."""
    place = table.schema.names.index(table.target)
    sizes = list(Codec(table.schema).sizes)
    classes = sizes.pop(place)
    learned, held_out = (
        Examples(
            np.delete(codes, place, axis=1),
            codes[:, place].astype(np.int64),
        )
        for codes in (level_numbers(rows, table.schema) for rows in (made, table.test))
    )
    scores, *_ = score_model(
        "boosting",
        learned,
        held_out.features,
        sizes,
        classes,
        seed,
        partial(classification_scores, held_out.target),
    )
    found = scores["auc"]
    assert isinstance(found, float)
    return found


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "ours.csv", device="cpu")
    parser.add_argument(
        "--datasets",
        nargs="*",
        default=["toy"] if QUICK else [*MAY_CHOOSE, *REPORTED],
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=["70/70/random/no target"] if QUICK else [],
        help="texts that must all be in a cell's name",
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument(
        "--people", type=int, default=600 if QUICK else PEOPLE, help="of a table"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    asked = (
        cell
        for cell in cells(args.datasets, args.seeds)
        if all(text in cell.name for text in args.only)
    )
    GRID.run(partial(measure, args=vars(args)), asked, args)


if __name__ == "__main__":
    main()

"""People with many rows: how near synthetic people with their events come to real ones,
and what others can do.

    make bench NAME=visits DATA=<folder>
    python benchmarks/visits/bench.py --data <folder> --jobs 6 --only ε=1 --out benchmarks/visits/ours.csv

A cell is one data set, method, ε and seed; its name is dataset/method/ε/seed, and
`--only` takes texts that must all be in it. One holder has all rows; δ = 1e-5; as many
people are drawn as there are:

    visits        the protocol: people and events from one release, ε for a person with
                  all rows
    aggregates    one row a person by `gram`, with sums of numbers and the last of other
                  columns: what one does today
    rows          every event as if it were a person, by `gram`: ε is that of an event.
                  A person's is up to `most_events` times as large
    rows_split    the same at ε/most_events, which holds for a person
    independent   one-way tables alone, under the same noise: every column by itself
    bootstrap     real people, drawn with replacement: what chance alone does. Not
                  private

`avd_person`, `avd_events`, `avd_across`, `avd_next` and `avd_later` are mean distances
of two-way tables of the declared columns, in which a person weighs 1: of a person, of
an event, of both, of an event and the next, of a column and itself two events later;
`avd_second` is the last where every event weighs the same. `mean_error` and `q90_error`
are those of the sum of a person's first column of `Case.totals`, as a share;
`mean_error_2` and `q90_error_2` of the second. `again_auc` is the AUC of a model that
learned from the synthetic events who comes again, `again_real` of one that learned from
real ones.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
from beside import BESIDE
from cases import NAMES, Case, load

from common import publication
from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.visits import VisitCodes, VisitLayout, count_visits, read_visits
from understudy.evaluate.utility.visits import evaluate_visits, sum_per_person
from understudy.runs.federation import Federation

QUICK = quick()
EPSILONS = (1.0, 0.5, 2.0, 8.0)
METHODS = ("visits", *BESIDE)
FREE = ("bootstrap",)
UNIT = 27_720
DISTANCES = {
    "person": "avd_person",
    "event": "avd_events",
    "across": "avd_across",
    "next": "avd_next",
    "later": "avd_later",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    dataset: str
    method: str
    epsilon: float | None
    seed: int

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.method}/{publication.price(self.epsilon)}/seed={self.seed}"


KEY = tuple(Cell.__dataclass_fields__)
FIELDS = [
    *KEY,
    *DISTANCES.values(),
    "mean_error",
    "q90_error",
    "mean_error_2",
    "q90_error_2",
    "avd_second",
    "again_auc",
    "again_real",
    "seconds",
]
GRID = Grid(
    fields=FIELDS,
    key=KEY,
    order=by_text(*KEY),
    columns=publication.plain,
    name=lambda cell: cell.name,
)


def cells(datasets: list[str], seeds: int) -> Iterator[Cell]:
    """Everything that is compared, ε of 1 first."""
    for seed in range(seeds):
        for epsilon in EPSILONS:
            for dataset in datasets:
                for method in METHODS:
                    if method not in FREE:
                        yield Cell(
                            dataset=dataset, method=method, epsilon=epsilon, seed=seed
                        )
                    elif epsilon == EPSILONS[0]:
                        yield Cell(
                            dataset=dataset, method=method, epsilon=None, seed=seed
                        )


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    """One cell: draw as many people as there are, and hold them against the real
    ones.
    """
    warnings.simplefilter("ignore")
    case = load(cell.dataset, args["data"], 0, args["people"])
    start = time.perf_counter()
    if cell.method == "visits":
        made = by_visits(case, cell, args)
    else:
        made = BESIDE[cell.method](case, cell.epsilon, cell.seed, args["settings"])
    seconds = time.perf_counter() - start
    return (
        publication.plain(cell)
        | figures(case, made, cell.seed)
        | {"seconds": round(seconds, 1)}
    )


def by_visits(case: Case, cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    """People and events by the protocol."""
    held = Federation.rehearsal(
        {"holder": dict(case.frames)},
        {"holder": case.schema},
        budget=publication.budget(cell.epsilon),
        seed=cell.seed,
    )
    result = train(
        "visits",
        held,
        **({"device": args["device"], "seed": cell.seed} | args["settings"]),
    )
    people, events = result.generator.visits(len(case.frames["people"]), seed=cell.seed)
    return {"people": people, "events": events, "whole": True}


def figures(case: Case, made: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What can be said of what a method made: people and their events, or sums of
    people, or events of nobody.
    """
    found: dict[str, Any] = {}
    real = read_visits(dict(case.frames), case.schema).codes()
    if "codes" in made or "events" in made:
        frames = {part: made[part] for part in ("people", "events") if part in made}
        codes = (
            made["codes"]
            if "codes" in made
            else read_visits(frames, case.schema).codes()
        )
        found |= distances(case, real, codes, made.get("tables", tuple(DISTANCES)))
    sums = made.get("sums") or {
        name: sum_per_person(made, case.schema, name)[0]
        for name in case.totals
        if "events" in made
    }
    for mark, name in zip(("", "_2"), case.totals, strict=False):
        if name in sums:
            total, _ = sum_per_person(case.frames, case.schema, name)
            found[f"mean_error{mark}"] = round(
                abs(float(sums[name].mean() / total.mean()) - 1), 4
            )
            q90 = float(sums[name].quantile(0.9) / total.quantile(0.9))
            found[f"q90_error{mark}"] = round(abs(q90 - 1), 4)
    if "events" in made:
        found["avd_second"] = round(second(case, real, codes), 4)
    if made.get("whole"):
        judged = evaluate_visits(case.frames, frames, case.schema, seed=seed)
        again = next(figure for figure in judged if figure.name == "tstr_again_auc")
        if again.value is not None and again.ceiling is not None:
            found |= {
                "again_auc": round(again.value, 4),
                "again_real": round(again.ceiling, 4),
            }
    return found


def distances(
    case: Case, real: VisitCodes, other: VisitCodes, kinds: tuple[str, ...]
) -> dict[str, float]:
    """Mean distances of two-way tables of the declared columns, kind by kind."""
    layout, (own, mine) = VisitLayout.from_schema(case.schema), declared(case)
    before, after = (
        layout.split(count_visits(codes, layout, UNIT).astype(np.float64))
        for codes in (real, other)
    )
    apart: dict[str, list[float]] = {}
    for block in layout.blocks:
        kind, a, b = block
        most = own if kind in ("person", "across") else mine
        if kind in kinds and a < most and b < (own if kind == "person" else mine):
            if a == b and kind in ("person", "event"):
                continue
            one = before[block] / before[block].sum()
            two = after[block] / max(after[block].sum(), 1)
            apart.setdefault(DISTANCES[kind], []).append(
                float(np.abs(one - two).sum() / 2)
            )
    return {name: round(float(np.mean(found)), 4) for name, found in apart.items()}


def second(case: Case, real: VisitCodes, other: VisitCodes) -> float:
    """The mean distance of tables of a column and itself two events later."""
    layout, (_, mine) = VisitLayout.from_schema(case.schema), declared(case)
    found = []
    for column in range(mine):
        tables = []
        for codes in (real, other):
            later = np.flatnonzero(codes.order >= 2)
            pairs = (
                codes.events[later - 2, column] * layout.events[column]
                + codes.events[later, column]
            )
            counts = np.bincount(pairs, minlength=layout.events[column] ** 2)
            tables.append(counts / max(counts.sum(), 1))
        found.append(float(np.abs(tables[0] - tables[1]).sum() / 2))
    return float(np.mean(found))


def declared(case: Case) -> tuple[int, int]:
    """How many columns of people, and of events but the time, the schema declares."""
    assert case.schema.people is not None
    return len(case.schema.people.names), len(case.schema.events.names) - 1


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=Path(__file__).parent / "ours.csv", device="cpu")
    parser.add_argument(
        "--datasets", nargs="*", default=["markov1"] if QUICK else list(NAMES)
    )
    parser.add_argument("--people", type=int, default=800 if QUICK else None)
    parser.add_argument("--only", nargs="*", default=["ε=1/"] if QUICK else [])
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    return parser


def main() -> None:
    args = parser().parse_args()
    asked = (
        cell
        for cell in cells(args.datasets, args.seeds)
        if all(text in cell.name for text in args.only)
    )
    settings = {"steps": 60} if QUICK else {}
    GRID.run(partial(measure, args=vars(args) | {"settings": settings}), asked, args)


if __name__ == "__main__":
    main()

"""How often the 95 % interval of a mean, or of a quantile, holds that of the rows, and
how wide it is.

    python benchmarks/answers/coverage.py --rehearsals 400 --figures mean --jobs 16

Five laws in one table, each column leaning on one hidden number, on which a category of
four leans too. Bounds are declared and too wide, or not declared, and then found
(`--bounds`); levels are bought; `gram`, ε = 1, δ = 1e-5, one holder, and hardly a fit:
what was released is all that counts. Every rehearsal has rows and noise of its own.
Each figure is asked for all people, and for those of one category (`given`).

    covered   % of rehearsals whose interval holds the figure of the rows
    off       mean of released over real, less 1, in %; that of a 0 is empty
    width     median width of the interval, in % of the real figure

Ten rehearsals are a cell of the grid. `--each` names the file of their intervals, from
which the same command goes on after a stop; another file, or another name, begins anew.
At the end the summary's rows of one name (`--named`) are replaced in `--out`, and
others stay. It needs no data. QUICK=1 takes two rehearsals and writes nothing unless
told to.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import gamma

from common import publication
from common.grid import Grid, grid_options
from common.options import quick
from common.rows import Row, read, said, write
from understudy.api.train import train
from understudy.data.schema import Categorical, Integer, Real, Schema
from understudy.generators.generator import Generator
from understudy.runs.federation import Federation

FIELDS = (
    "interval",
    "bounds",
    "people",
    "figure",
    "law",
    "given",
    "rehearsals",
    "covered",
    "off",
    "width",
)
# seeds of a cell: from the first to the last
KEY = ("interval", "bounds", "people", "first", "last")
ENDS = ("real", "released", "low", "high")
GRID = Grid(fields=(*KEY, "seed", "figure", "law", "given", *ENDS), key=KEY)
BATCH = 10  # rehearsals in a cell
GIVEN = ("", "group == 'd'")
SCHEMA = Schema(
    columns=(
        Categorical(name="group", categories=tuple("abcd")),
        Real(name="normal", low=-100, high=300, decimals=1),
        Real(name="atoms", low=0, high=5_000, decimals=1),
        Real(name="exponential", low=0, high=50_000, decimals=2),
        Integer(name="pareto_or_0", low=0, high=1_000_000),
        Real(name="lognormal", low=0, high=100_000, decimals=2),
    )
)
UNBOUNDED = Schema(
    columns=(
        Categorical(name="group", categories=tuple("abcd")),
        Real(name="normal", decimals=1),
        Real(name="atoms", decimals=1),
        Real(name="exponential", decimals=2),
        Integer(name="pareto_or_0"),
        Real(name="lognormal", decimals=2),
    )
)
SCHEMAS = {"declared": SCHEMA, "found": UNBOUNDED}
LAWS = SCHEMA.names[1:]
FIGURES = {
    "mean": pd.Series.mean,
    "median": pd.Series.median,
    "95 % quantile": lambda cells: cells.quantile(0.95),
}


def drawn(people: int, seed: int) -> pd.DataFrame:
    """Rows of the five laws; 60 % of `pareto_or_0` are 0, the others from 100 on with
    the exponent 1.7. `atoms`: 10 % are 0, and of the others 20 % are 50, 10 % are 100,
    and the rest follow a gamma law.
    """
    rng = np.random.default_rng([seed, people])
    group = rng.integers(0, 4, people)
    hidden = 0.8 * rng.normal(size=people) + 0.5 * (group - 1.5)
    spread = np.sqrt(0.36 * (0.64 + 0.3125) + 0.64)
    normal = (0.6 * hidden[:, None] + 0.8 * rng.normal(size=(people, 5))) / spread
    rank = ndtr(normal)
    pareto = np.floor(100 * (np.minimum(1 - rank[:, 3], 0.4) / 0.4) ** (-1 / 1.7))
    columns = (
        np.round(100 + 15 * normal[:, 0], 1),
        _with_atoms(rank[:, 1], np.random.default_rng([seed, people, 7])),
        np.round(-300 * np.log1p(-rank[:, 2]), 2),
        np.where(rank[:, 3] < 0.6, 0, np.minimum(pareto, 1_000_000)).astype(np.int64),
        np.round(20 * np.exp(1.2 * normal[:, 4]), 2),
    )
    return pd.DataFrame(
        {"group": np.array(list("abcd"))[group]} | dict(zip(LAWS, columns, strict=True))
    )


def _with_atoms(
    rank: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    rank = np.clip(
        (np.floor(9_000 * rank) + rng.random(len(rank))) / 9_000, 1e-9, 1 - 1e-9
    )
    smooth = np.round(
        gamma.ppf(np.clip((rank - 0.1) / 0.9, 1e-9, 1 - 1e-9), 2, scale=40), 1
    )
    chance = rng.random(len(rank))
    others = np.where(chance < 0.2, 50, np.where(chance < 0.3, 100, smooth))
    return np.where(rank < 0.1, 0, others)


def rehearsed(rows: pd.DataFrame, seed: int, bounds: str = "declared") -> Generator:
    """A generator that was hardly fitted: its release is what counts."""
    held = Federation.rehearsal(
        {"holder": rows},
        {"holder": SCHEMAS[bounds]},
        budget=publication.budget(1.0),
        seed=seed,
    )
    made: Generator = train("gram", held, components=2, steps=1, seed=seed).generator
    return made


def intervals(rows: pd.DataFrame, asked: Generator) -> Iterator[Row]:
    """For each figure, law and condition: that of the rows, the released one, and its
    interval.
    """
    for given, law in product(GIVEN, LAWS):
        some = rows.query(given) if given else rows
        made = asked.figures(law, where=given or None).set_index("figure")
        for name, figure in FIGURES.items():
            released, low, high = map(float, made.loc[f"{name} of {law}", [*ENDS[1:]]])
            about = {"figure": name, "law": law, "given": given}
            yield about | dict(
                zip(ENDS, (float(figure(some[law])), released, low, high), strict=True)
            )


def cells(args: argparse.Namespace) -> Iterator[Row]:
    """Batches of rehearsals; the first ones of all bounds and numbers of people come
    first.
    """
    beyond = args.first + args.rehearsals
    for first in range(args.first, beyond, BATCH):
        last = min(first + BATCH, beyond) - 1
        for people, bounds in product(args.people, args.bounds):
            yield dict(zip(KEY, (args.named, bounds, people, first, last), strict=True))


def measure(cell: Row) -> list[Row]:
    """The intervals of a cell's rehearsals."""
    warnings.simplefilter("ignore")  # of a fit of one step
    found = []
    for seed in range(cell["first"], cell["last"] + 1):
        rows = drawn(cell["people"], seed)
        made = intervals(rows, rehearsed(rows, seed, cell["bounds"]))
        found += [cell | {"seed": seed} | row for row in made]
    return found


def summary(found: pd.DataFrame) -> Iterator[Row]:
    """A row for each figure. One that was not released is not covered, and counts in
    nothing else.
    """
    asked = ["interval", "bounds", "people", "figure", "law", "given"]
    for key, some in found.groupby(asked, sort=False):
        real, released, low, high = some[[*ENDS]].to_numpy(dtype=np.float64).T
        figures = {"covered": 100 * np.mean((low <= real) & (real <= high))}
        if (real != 0).all():
            figures["off"] = 100 * np.nanmean(released / real - 1)
            figures["width"] = 100 * np.nanmedian((high - low) / real)
        written = {name: f"{value:.1f}" for name, value in figures.items()}
        yield dict(zip(asked, key, strict=True)) | {"rehearsals": len(some)} | written


def parser() -> argparse.ArgumentParser:
    found = grid_options(__doc__, out=Path(__file__).parent / "coverage.csv")
    each = None if quick() else Path("runs") / "coverage.csv"
    found.add_argument(
        "--each", type=Path, default=each, help="the CSV file of all intervals"
    )
    people = [500] if quick() else [5_000, 20_000, 100_000]
    found.add_argument("--people", type=int, nargs="+", default=people)
    found.add_argument("--rehearsals", type=int, default=2 if quick() else 400)
    found.add_argument(
        "--first", type=int, default=0, help="the first rehearsal's seed"
    )
    found.add_argument("--bounds", nargs="+", default=list(SCHEMAS), choices=SCHEMAS)
    found.add_argument(
        "--figures",
        nargs="+",
        default=list(FIGURES),
        choices=FIGURES,
        help="those that are written",
    )
    found.add_argument(
        "--named",
        default="now",
        help="what the rows are called in the column `interval`",
    )
    return found


def main() -> None:
    args = parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        each = args.each or Path(folder) / "each.csv"
        each.parent.mkdir(parents=True, exist_ok=True)
        asked = list(cells(args))
        GRID.run(measure, asked, argparse.Namespace(**vars(args) | {"out": each}))
        if args.list:
            return
        kept = pd.DataFrame(read(each))
    wanted = {tuple(map(str, cell.values())) for cell in asked}
    of_asked = pd.MultiIndex.from_frame(kept[[*KEY]]).isin(wanted)
    made = list(summary(kept[of_asked & kept["figure"].isin(args.figures)]))
    for row in made:
        print(said(row), flush=True)
    replaced = {
        (args.named, bounds, str(people))
        for people, bounds in product(args.people, args.bounds)
    }
    others = [
        row
        for row in read(args.out)
        if (row["interval"], row["bounds"], row["people"]) not in replaced
        or row["figure"] not in args.figures
    ]
    write(args.out, [*others, *made], FIELDS)


if __name__ == "__main__":
    main()

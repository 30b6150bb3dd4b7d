"""How often the 95 % interval of a mean, or of a quantile, holds that of the rows, and how wide it is.

    python benchmarks/answers/coverage.py --people 5000 20000 --rehearsals 260 --named now

Five laws in one table, each column leaning on one hidden number, on which a category of four leans too. Bounds are
declared and too wide, or not declared, and then found (`--bounds`); levels are bought; `gram`, ε = 1, δ = 1e-5, one
holder, and hardly a fit: what was released is all that counts. Every rehearsal has rows and noise of its own. Each
figure is asked for all people, and for those of one category (`given`).

    covered   % of rehearsals whose interval holds the figure of the rows
    off       mean of released over real, less 1, in %; that of a 0 is empty
    width     median width of the interval, in % of the real figure

Rows of one name (`--named`) are replaced, others stay. QUICK=1 takes two rehearsals and writes nothing unless told to.
"""

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import gamma

from common import publication
from common.options import options, quick
from common.rows import read, said, write
from understudy.api.train import train
from understudy.data.schema import Categorical, Integer, Real, Schema
from understudy.generators.generator import Generator
from understudy.runs.federation import Federation

FIELDS = ("interval", "bounds", "people", "figure", "law", "given", "rehearsals", "covered", "off", "width")
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
FIGURES = {"mean": pd.Series.mean, "median": pd.Series.median, "95 % quantile": lambda cells: cells.quantile(0.95)}
Each = dict[tuple[str, str, str], tuple[float, ...]]


def drawn(people: int, seed: int) -> pd.DataFrame:
    """Rows of the five laws; 60 % of `pareto_or_0` are 0, the others from 100 on with the exponent 1.7. `atoms`: 10 %
    are 0, and of the others 20 % are 50, 10 % are 100, and the rest follow a gamma law."""
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
    return pd.DataFrame({"group": np.array(list("abcd"))[group]} | dict(zip(LAWS, columns, strict=True)))


def _with_atoms(rank: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    rank = np.clip((np.floor(9_000 * rank) + rng.random(len(rank))) / 9_000, 1e-9, 1 - 1e-9)
    smooth = np.round(gamma.ppf(np.clip((rank - 0.1) / 0.9, 1e-9, 1 - 1e-9), 2, scale=40), 1)
    chance = rng.random(len(rank))
    others = np.where(chance < 0.2, 50, np.where(chance < 0.3, 100, smooth))
    return np.where(rank < 0.1, 0, others)


def rehearsed(rows: pd.DataFrame, seed: int, bounds: str = "declared") -> Generator:
    """A generator that was hardly fitted: its release is what counts."""
    held = Federation.rehearsal(
        {"holder": rows}, {"holder": SCHEMAS[bounds]}, budget=publication.budget(1.0), seed=seed
    )
    made: Generator = train("gram", held, components=2, steps=1, seed=seed).generator
    return made


def intervals(rows: pd.DataFrame, asked: Generator) -> Each:
    """For each figure, law and condition: that of the rows, the released one, and its interval."""
    found = {}
    for given in GIVEN:
        some = rows.query(given) if given else rows
        for law in LAWS:
            made = asked.figures(law, where=given or None).set_index("figure")
            for name, figure in FIGURES.items():
                ends = map(float, made.loc[f"{name} of {law}", ["released", "low", "high"]])
                found[name, law, given] = (float(figure(some[law])), *ends)
    return found


def summary(each: list[Each], about: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each of them. One that was not released is not covered, and counts in nothing else."""
    rows = []
    for name, law, given in each[0]:
        real, released, low, high = np.array([one[name, law, given] for one in each]).T
        figures = {"covered": 100 * np.mean((low <= real) & (real <= high))}
        if (real != 0).all():
            figures |= {"off": 100 * np.nanmean(released / real - 1), "width": 100 * np.nanmedian((high - low) / real)}
        said = {k: f"{v:.1f}" for k, v in figures.items()}
        rows.append(about | {"figure": name, "law": law, "given": given} | said)
    return rows


def parser() -> argparse.ArgumentParser:
    found = options(__doc__, out=Path(__file__).parent / "coverage.csv")
    found.add_argument("--people", type=int, nargs="+", default=[500] if quick() else [5_000, 20_000])
    found.add_argument("--rehearsals", type=int, default=2 if quick() else 260)
    found.add_argument("--first", type=int, default=0, help="the first rehearsal's seed")
    found.add_argument("--bounds", nargs="+", default=list(SCHEMAS), choices=SCHEMAS)
    found.add_argument("--figures", nargs="+", default=list(FIGURES), choices=FIGURES, help="those that are written")
    found.add_argument("--named", default="now", help="what the rows are called in the column `interval`")
    return found


def main() -> None:
    args = parser().parse_args()
    for people, bounds in product(args.people, args.bounds):
        each = []
        for seed in range(args.first, args.first + args.rehearsals):
            rows = drawn(people, seed)
            each.append(intervals(rows, rehearsed(rows, seed, bounds)))
        about = {"interval": args.named, "bounds": bounds, "people": people, "rehearsals": args.rehearsals}
        made = summary(each, about)
        for row in made:
            print(said(row), flush=True)
        new = (args.named, bounds, str(people))
        others = [
            row
            for row in read(args.out)
            if (row["interval"], row["bounds"], row["people"]) != new or row["figure"] not in args.figures
        ]
        made = [row for row in made if row["figure"] in args.figures]
        write(args.out, [*others, *made], FIELDS)


if __name__ == "__main__":
    main()

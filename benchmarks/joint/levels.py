"""Are pairs better measured on fewer levels than are declared, where people or ε are
few?

    DATA=<folder> python benchmarks/joint/levels.py [--tables adult …] [--ways today …] [--bins round 16] [--jobs 16]

`gram` of one holder with a target, simulated: whole-number noise of the right size on
the exact tables, then a fit. `bins`: numbers are declared in round ones, as in the
other benchmarks (5 to 17), or in 16 of about equal weight.

    declared  all pairs as declared, and those of the target once more (`again_share`); so read before 2026-11-18
    read      the same, and where √(people/σ) is below 4, other pairs are merged to so
              many levels before they are read (`tables/noisy_tables.py`): costs
              nothing. As built, below 3: at 3 adult gains nothing, nor bank at 4
    first k   the target's pairs as declared, for all that they have today; by their
              sums all columns are cut to k levels (neighbours of about equal weight;
              the commonest categories and the rest), and all other pairs are measured
              on these, and read likewise. "first": k = √(people/σ), as of bought levels
    only      no other pair is measured: the target's have it all, others are drawn to
              independence
    one k     one-way tables as declared first, for two fifths of the budget; by them
              columns are cut to k levels, then as "first" on these. Rows are drawn
              within a level by the one-way table
    plain k   the same, and on these levels all is as declared

But for `declared` and `plain` the fit is to the target's pairs as they are read, and to
what the others say of fewer levels, within these by one-way tables; it takes 300 steps.
`avd2`, `avd3`: mean distances of tables of two and three columns, in declared levels,
`avd2_target` of pairs with the target; boosting learns from drawn rows, as many as
people and 10,000 at least, and is tested on rows that were held out. At the end stand
the means over the seeds. Adult and bank chose the way; the others had no part in it.
QUICK=1: one small table.
"""

import argparse
import math
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from few import DELTA
from fit import Codes, release
from numpy.typing import NDArray
from tables import Public, load
from torch import Tensor
from torch.nn.functional import one_hot

from common.options import options, quick
from common.rows import said, write
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Ordinal
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Marginals
from understudy.models.simplex import to_simplex
from understudy.models.tables import fit_gram as fitting
from understudy.models.tables import noisy_tables
from understudy.models.tables.fitted_levels import RAREST, Coarse
from understudy.models.tables.merged_levels import (
    level_count,
    merged_neighbours,
    merged_rare,
)
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import NoisyMarginals, read_tables
from understudy.models.tables.priors import with_margins
from understudy.models.tables.target import with_effects
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.gram.settings import again_share

QUICK = quick()
KEY = ("dataset", "bins", "people", "epsilon", "way", "seed")
FIGURES = ("avd2", "avd3", "avd2_target", "f1", "auc")
CHOSEN = ("adult", "bank")
APART = ("credit", "randhie", "diabetes")
WAYS = (
    "declared",
    "read",
    "first",
    "first 3",
    "first 5",
    "first 8",
    "only",
    "one 4",
    "one 6",
    "plain 4",
)
CASES = (
    (1_000, 1.0),
    (4_000, 0.2),
    (1_500, 1.0),
    (2_000, 1.0),
    (4_000, 1.0),
    (33_000, 0.2),
)
DECLARED = 16
ROWS = 10_000
STEPS = 10 if QUICK else 300
MOST_PULL = 21
ONE_WAY = 0.4


def declared(table: Public, bins: str) -> tuple[Codes, list[int], list[bool]]:
    """All rows, those to learn from first, by level; how many levels, and which columns
    are ordered.
    """
    frame = pd.concat([table.train, table.test])
    codes = []
    sizes = []
    ordered = []
    for column in table.schema.columns:
        own = (
            Codec(table.schema.select([column.name]))
            .codes(frame)[:, 0]
            .astype(np.int64)
        )
        size = column.size
        if hasattr(column, "bins") and bins == "16":
            cuts = np.quantile(
                frame[column.name], np.linspace(0, 1, DECLARED + 1)[1:-1]
            )
            own = np.unique(
                np.searchsorted(np.unique(cuts), frame[column.name], side="right"),
                return_inverse=True,
            )[1]
            size = int(own.max()) + 1
        codes.append(own)
        sizes.append(size)
        ordered.append(hasattr(column, "bins") or isinstance(column, Ordinal))
    return np.stack(codes, 1), sizes, ordered


class Simulated:
    """One release of one table, and the fit to it."""

    def __init__(
        self,
        rows: Codes,
        sizes: list[int],
        ordered: list[bool],
        target: int,
        epsilon: float,
        seed: int,
    ):
        self.ordered = ordered
        self.target = target
        self.seed = seed
        budget = (
            calibrate(
                lambda s: {DiscreteGaussian(sigma=s): 1}, epsilon=epsilon, delta=DELTA
            )
            ** -2
        )
        self._on(rows, sizes, budget)

    def _on(
        self,
        rows: Codes,
        sizes: list[int],
        budget: float,
        one_way: Tensor | None = None,
    ) -> None:
        """Within this budget; `one_way`: noisy counts of all levels and the variance of
        each, (2, width).
        """
        self.rows = rows
        self.sizes = sizes
        self.budget = budget
        self.one_way = one_way
        self.people = len(rows)
        self.columns = len(sizes)
        self.cells = math.comb(self.columns, 2) + (
            self.columns if one_way is None else 0
        )
        alone = (self.cells / self.budget) ** 0.5
        share = again_share(self.people, alone)
        self.first, self.second = (
            alone / (1 - share) ** 0.5,
            alone * ((self.columns - 1) / self.cells / share) ** 0.5,
        )

    def fitted(self, way: str) -> MixtureOfProducts:
        gram, noise = self.today()
        kind, _, named = way.partition(" ")
        if kind in ("one", "plain"):
            return self.parted(int(named), "first" if kind == "one" else "declared")
        levels = int(named) if named else level_count(self.people, self.first)
        if kind in ("declared", "read") or levels >= DECLARED:
            steps = STEPS if QUICK else 1200
            limits = noisy_tables.read_on_fewer.__kwdefaults__
            limits["most_levels"] = 3 if kind == "read" else 0
            return fitting.fit_gram(
                gram,
                self.sizes,
                noise=noise,
                people=self.people,
                target=self.target,
                steps=steps,
                seed=self.seed,
            )
        with_it = self.with_target(self.sizes)
        # The target's pairs have what they have today, and one-way tables nothing of
        # their own.
        known = (
            self.budget
            if kind == "only"
            else (self.columns - 1) * float(noise[with_it].mean()) ** -2
        )
        first = (
            math.comb(self.columns - 1, 2) / max(self.budget - known, 1e-12)
        ) ** 0.5
        second = ((self.columns - 1) / known) ** 0.5
        gram = release(self.rows, self.sizes, second, self.seed + 1_000)
        noise = with_it.double() * second
        noise[noise == 0] = math.inf
        gram, noise = self.with_one_way(gram, noise)
        heard = with_it | torch.eye(len(noise), dtype=torch.bool)
        told = read_tables(
            gram,
            self.sizes,
            noise=torch.where(heard, noise, math.inf),
            people=self.people,
        )
        near = torch.outer(told.ways, told.ways)
        precision = torch.tensor(MOST_PULL * (self.people / self.first) ** 2)
        if levels > 1 and kind != "only":
            ways, near, precision = self.coarse(told, gram, noise, levels, first)
            told = replace(told, ways=ways)
        return self.fit(told, near, precision)

    def today(self) -> tuple[Tensor, Tensor]:
        """The matrix as it is released today, and the noise of its cells."""
        twice = self.with_target(self.sizes)
        weights = (self.first**-2, self.second**-2)
        one, other = (
            release(self.rows, self.sizes, sigma, self.seed + late)
            for sigma, late in ((self.first, 0), (self.second, 1_000))
        )
        both = (one * weights[0] + other * weights[1]) / sum(weights)
        return self.with_one_way(
            torch.where(twice, both, one),
            torch.where(twice, sum(weights) ** -0.5, self.first),
        )

    def with_one_way(self, gram: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        if self.one_way is None:
            return gram, noise.double()
        return gram.diagonal_scatter(self.one_way[0]), noise.double().diagonal_scatter(
            self.one_way[1].sqrt()
        )

    def parted(self, levels: int, way: str) -> MixtureOfProducts:
        """One-way tables first, all pairs on fewer levels, and these parted again."""
        variance = self.columns / (ONE_WAY * self.budget)
        sizes = self.sizes
        counts = [
            np.bincount(codes, minlength=size)
            for codes, size in zip(self.rows.T, sizes, strict=True)
        ]
        true = torch.from_numpy(np.concatenate(counts)).double()
        noise = (
            np.random.default_rng([self.seed, 5])
            .normal(0, variance**0.5, len(true))
            .round()
        )
        one_way = true + torch.from_numpy(noise)
        groups = self.groups(one_way, levels)
        member, fewer = self.member(groups)
        rows = np.stack(
            [group[codes] for group, codes in zip(groups, self.rows.T, strict=True)], 1
        )
        summed = torch.stack([member.T @ one_way, variance * member.sum(0)])
        self._on(rows, fewer, (1 - ONE_WAY) * self.budget, summed)
        fitted = self.fitted(way)
        held = self.people * fitted.odds().mean(0).double()
        own = torch.zeros(len(one_way), dtype=torch.float64)
        for level in range(sum(fewer)):
            at = member[:, level] > 0
            own[at] = (
                to_simplex(one_way[at][None], held[level : level + 1].clamp(min=1e-3))[
                    0
                ]
                + 1e-6
            )
        return Coarse(
            tuple(fewer),
            tuple(sizes),
            member.argmax(1),
            own / (member @ (member.T @ own)),
        ).parted(fitted)

    def groups(self, ways: Tensor, levels: int) -> list[NDArray[Any]]:
        """The level that each declared level of each column is in, by one-way tables in
        counts.
        """
        found = []
        for j, own in enumerate(torch.split(ways, self.sizes)):
            group = np.arange(len(own))
            own = to_simplex(own[None], own.new_tensor([float(self.people)]))[0]
            if len(own) > levels and j != self.target:
                group = (
                    merged_neighbours(own, levels)
                    if self.ordered[j]
                    else merged_rare(own, 0.0, levels)
                )
            found.append(group)
        return found

    def member(self, groups: list[NDArray[Any]]) -> tuple[Tensor, list[int]]:
        """Which level each declared level is in, (declared, levels), and how many a
        column has.
        """
        sizes = [int(group.max()) + 1 for group in groups]
        starts = np.cumsum([0, *sizes[:-1]])
        every = np.concatenate(
            [group + start for group, start in zip(groups, starts, strict=True)]
        )
        return one_hot(torch.from_numpy(every)).double(), sizes

    def with_target(self, sizes: list[int]) -> Tensor:
        column = torch.repeat_interleave(torch.tensor(sizes)) == self.target
        return column[:, None] ^ column

    def coarse(
        self,
        told: NoisyMarginals,
        gram: Tensor,
        noise: Tensor,
        levels: int,
        first: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One-way tables and all pairs, by what pairs say of fewer levels, and how
        precise the latter are.
        """
        groups = self.groups(told.ways * self.people, levels)
        member, sizes = self.member(groups)
        known = torch.where(noise.isfinite(), noise, 0).square()
        summed, variance = (
            member.T @ (part.triu() + part.triu(1).T) @ member for part in (gram, known)
        )
        rows = np.stack([group[self.rows[:, j]] for j, group in enumerate(groups)], 1)
        with_it = self.with_target(sizes)
        summed = torch.where(with_it, summed, release(rows, sizes, first, self.seed))
        spread = (
            torch.where(with_it, variance, first**2).sqrt().fill_diagonal_(math.inf)
        )
        read = read_tables(summed, sizes, noise=spread, people=self.people)
        ways = told.ways + 1e-9
        shares = member * (ways / (member @ (member.T @ ways)))[:, None]
        near = (
            shares
            @ with_margins(
                read.plain(read.target).clamp(min=0), read.ways[:, None], read.columns
            )
            @ shares.T
        )
        pairs = (
            read.columns.T
            @ read.precision
            @ read.columns
            / torch.outer(*2 * (read.columns.sum(0),))
        )
        many = member @ member.sum(0)
        return (
            shares @ read.ways,
            near,
            told.columns @ pairs @ told.columns.T * torch.outer(many, many),
        )

    def fit(
        self, told: NoisyMarginals, near: Tensor, precision: Tensor
    ) -> MixtureOfProducts:
        """The mixture, as `fit_gram` makes it, with other pairs drawn to what they are
        near to.
        """
        other = (told.weight == 0) & (told.columns @ told.columns.T == 0)
        tables = replace(
            told,
            least=0.0,
            target=torch.where(other, told.basis.T @ near @ told.basis, told.target),
            precision=torch.where(other, precision, told.precision),
        )
        mixture = MixtureOfProducts(self.sizes, 512)
        generator = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            deviation = fitting._begin.__kwdefaults__["jitter"]
            jitter = deviation * torch.randn(512, mixture.width, generator=generator)
            mixture.logits.copy_(tables.ways.clamp(min=RAREST).log() + jitter)
        fitted = fitting._descend(mixture, tables, STEPS, 0.2, None, target=self.target)
        uniform = partial(torch.rand, generator=generator, dtype=torch.float64)
        return with_effects(fitted, self.target, [], uniform, tables)


def run(
    dataset: str,
    bins: str,
    people: int,
    epsilon: float,
    way: str,
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table = load(dataset, folder, seed)
    codes, sizes, ordered = declared(table, bins)
    target = table.schema.names.index(table.target)
    rows = codes[: len(table.train)][:people]
    test = codes[len(table.train) :]
    fitted = Simulated(rows, sizes, ordered, target, epsilon, seed).fitted(way)
    drawn = np.asarray(
        fitted.levels(max(len(rows), ROWS), FastRng(seed).uniform), dtype=np.int64
    )
    marginals = Marginals(rows.astype(np.int32), drawn.astype(np.int32), sizes, ends=())
    found = {f"avd{k}": marginals.avd(k).value for k in (2, 3)}
    others = [j for j in range(len(sizes)) if j != target]
    found["avd2_target"] = float(
        np.mean([apart(rows, drawn, sizes, j, target) for j in others])
    )
    rest = [sizes[j] for j in others]
    rng = np.random.default_rng(0)
    learn, real = (
        Examples(np.delete(part, target, 1).astype(np.int32), part[:, target]).sample(
            2 * ROWS, rng
        )
        for part in (drawn, test)
    )
    score = partial(classification_scores, real.target)
    scores, *_ = score_model(
        "boosting", learn, real.features, rest, sizes[target], 0, score
    )
    found |= {name: float(scores[name]) for name in ("f1", "auc")}
    setting = dict(
        zip(KEY, (dataset, bins, len(rows), epsilon, way, seed), strict=True)
    )
    return setting | {name: round(value, 4) for name, value in found.items()}


def apart(rows: Codes, drawn: Codes, sizes: list[int], one: int, other: int) -> float:
    """The distance of one pair."""
    shape = (sizes[one], sizes[other])
    flat = [
        np.ravel_multi_index((part[:, one], part[:, other]), shape)
        for part in (rows, drawn)
    ]
    real, made = (
        np.bincount(cells, minlength=math.prod(shape)) / len(cells) for cells in flat
    )
    return float(abs(real - made).sum() / 2)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "levels.csv", data=True)
    parser.add_argument(
        "--tables", nargs="+", default=["toy"] if QUICK else [*CHOSEN, *APART]
    )
    parser.add_argument(
        "--ways",
        nargs="+",
        default=["declared", "read", "first", "one 6"],
        choices=WAYS,
    )
    parser.add_argument(
        "--bins",
        nargs="+",
        default=["round"] if QUICK else ["16", "round"],
        choices=["round", "16"],
    )
    parser.add_argument(
        "--cases", nargs="+", type=int, default=[0] if QUICK else range(len(CASES))
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    jobs = [
        (dataset, bins, *CASES[case], way, seed, args.data)
        for case, bins, seed, dataset, way in product(
            args.cases, args.bins, range(args.seeds), args.tables, args.ways
        )
    ]
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(run, *zip(*jobs, strict=True)):
            rows.append(row)
            print(said(row), flush=True)
            write(args.out, rows, (*KEY, *FIGURES))
    found = pd.DataFrame(rows).groupby(
        ["bins", "people", "epsilon", "dataset", "way"], sort=False
    )[list(FIGURES)]
    print(found.mean().round(4).to_string())


if __name__ == "__main__":
    main()

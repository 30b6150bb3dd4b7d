"""Why `gram` loses where it loses: the noise, the choice of tables, the levels, or the
fit.

    DATA=<folder> python benchmarks/rivals/reading.py [--cases few-adult …] [--arms noise …] [--device cuda] [--jobs 12]

`gram` of one holder with a target and declared levels, simulated as in
benchmarks/joint/three.py: whole-number noise of the same size on the exact tables, then
the same fit. Each arm puts something perfect in the place of one part:

    as it is     today's defaults
    no noise     the same tables without noise, the same fit
    choice       an oracle chooses by the real rows. Few people, small ε, wide: of all
                 pairs only a tree of the strongest and the ten strongest with the
                 target are measured, and share the budget; other pairs are taken to be
                 as the tree has them. Order, thresholds: the four tables of three
                 columns with the target that say the most beyond their pairs
    levels 3, 5, 8   columns have so many levels at most, by the real rows: neighbours
                     of about equal weight, or of
                 categories the commonest and the rest. Drawn levels are parted as real people are
    shrinkage    a perfect reading of the same noisy tables: every pair is drawn towards
                 independence by the factor that brings it nearest to the truth, and is
                 fitted as exactly as its error then allows
    spared       the same, but pairs with the target stay as they were released
    more rows    as it is, no noise and shrinkage once more, with 20,000 rows drawn
                 however few the people are
    pairs alone  not a fit: logistic regression on real rows, one-hot. Of all laws with the true pairs the one of most
                 entropy predicts so: what pairs can tell at best, and what their perfect fit would give
    independent  real columns, each shuffled by itself
    real         boosting on the real rows

Boosting learns from drawn rows, as many as real ones and 20,000 at most, and is tested
on rows held out. `avd2` and `avd3` are mean distances of tables of two and three
columns from the people's.
"""

import argparse
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import stress
import torch
from borrowed import script
from oracles import (
    Codes,
    Pairs,
    along_tree,
    counts,
    everything,
    grouped,
    parted,
    shrunk,
    strongest_of_three,
    strongest_pairs,
    table_of,
    tree,
)
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder

from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.public_tables import Public
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Categorical
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Marginals, shuffle_columns
from understudy.models.tables import fit_gram as fitting
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.fitted_levels import RAREST
from understudy.models.tables.loss import Triple, WideTable
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import read_tables
from understudy.models.tables.strongest import strongest_triples
from understudy.models.tables.target import with_effects
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.gram.settings import again_share

HERE = Path(__file__).parent
QUICK = quick()
DELTA = 1e-5
CASES: dict[str, tuple[str, str, int | None, float]] = {  # family, table, people, ε
    "few-adult": ("few people", "adult", 1_000, 1.0),
    "few-bank": ("few people", "bank", 1_000, 1.0),
    "small-adult": ("small ε", "adult", None, 0.1),
    "small-bank": ("small ε", "bank", 4_000, 0.2),
    "order-3": ("order", "parity3", None, 1.0),
    "order-4": ("order", "parity4", None, 1.0),
    "rule": ("thresholds", "rule9", None, 1.0),
    "f1-bank": ("thresholds", "bank", None, 1.0),
    "wide": ("wide", "wide200", None, 1.0),
}
# levels of every column
FEWEST = {"parity3": 2, "parity4": 2, "wide200": 2, "rule9": 5}
BY_TRIPLES = ("order", "thresholds")
LEVELS = {"levels 3": 3, "levels 5": 5, "levels 8": 8}
MORE = ", more rows"
ARMS = (
    "as it is",
    "no noise",
    "choice",
    *LEVELS,
    "shrinkage",
    "spared",
    "pairs alone",
    "independent",
    "real",
    *(
        arm + MORE
        for arm in ("as it is", "no noise", "choice", "levels 3", "shrinkage", "spared")
    ),
)
KEY = ("case", "arm", "seed")
FIELDS = (
    *KEY,
    "family",
    "dataset",
    "people",
    "epsilon",
    "noise",
    "tables",
    "avd2",
    "avd3",
    "f1",
    "auc",
    "seconds",
)
GRID = Grid(fields=FIELDS, key=KEY, order=by_text("case", "arm", "seed"))
MANY = 10_000
CHOSEN = 4
LEARN = 20_000
STEPS = 30 if QUICK else 1200


def opened(name: str, folder: Path, seed: int) -> Public:
    if name in stress.NAMES:
        return stress.load(name, None, seed)
    found: Public = script("joint", "tables").load(name, folder, seed)
    return found


def measure(job: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    family, name, people, epsilon = CASES[job["case"]]
    table = opened(name, job["data"], job["seed"])
    arm = job["arm"].removesuffix(MORE)
    seed = job["seed"]
    codec = Codec(table.schema)
    target = table.schema.names.index(table.target)
    every, test = (
        codec.codes(frame).astype(np.int64) for frame in (table.train, table.test)
    )
    real = every[: people or len(every)]
    sizes = list(codec.sizes)
    start = time.process_time()
    found = {}
    if arm == "pairs alone":
        found = logistic(every, test, target)
    else:
        made = real
        facts = {}
        if arm in LEVELS:
            named = [isinstance(column, Categorical) for column in table.schema.columns]
            merged = [
                grouped(real[:, j], sizes[j], LEVELS[arm], named[j], j == target)
                for j in range(len(sizes))
            ]
            few = np.stack([group[real[:, j]] for j, group in enumerate(merged)], 1)
            coarse, facts = drawn(
                "as it is",
                family,
                few,
                few,
                [int(g.max()) + 1 for g in merged],
                target,
                job,
            )
            made = parted(coarse, real, merged, seed)
        elif arm == "independent":
            made = shuffle_columns(real, len(real), np.random.default_rng(seed))
        elif arm != "real":
            made, facts = drawn(arm, family, real, every, sizes, target, job)
        if arm != "real":
            marginals = Marginals(
                real.astype(np.int32), made.astype(np.int32), sizes, ends=()
            )
            found = {f"avd{k}": marginals.avd(k).value for k in (2, 3)}
        found |= facts | learned(made, test, sizes, target)
    rounded = {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in found.items()
    }
    setting = {
        "family": family,
        "dataset": name,
        "people": len(real),
        "epsilon": epsilon,
    }
    return (
        {key: job[key] for key in KEY}
        | setting
        | rounded
        | {"seconds": round(time.process_time() - start, 1)}
    )


def drawn(
    arm: str,
    family: str,
    real: Codes,
    every: Codes,
    sizes: list[int],
    target: int,
    job: dict[str, Any],
) -> tuple[Codes, dict[str, Any]]:
    """Rows as `gram` would draw them, one part of it made perfect; and what was
    released.
    """
    epsilon = CASES[job["case"]][3]
    seed = job["seed"]
    columns = len(sizes)
    people = len(real)
    kept = everything(columns)
    if arm == "choice" and family not in BY_TRIPLES:
        kept = strongest_pairs(every, sizes, target)
    cells = columns + len(kept)
    alone = calibrate(
        lambda s: {DiscreteGaussian(sigma=s): cells}, epsilon=epsilon, delta=DELTA
    )
    share = again_share(people, alone)
    wanted = CHOSEN if people >= MANY and columns > 2 else 0
    with_it = sum(target in pair for pair in kept)
    first = alone / (1 - share) ** 0.5
    second = alone * ((with_it + wanted) / cells / share) ** 0.5
    if arm == "no noise":
        first = second = 0.0
    counted = counts(real, sizes)
    rng = np.random.default_rng([seed, 39])
    one, other = (
        counted + whole_noise(rng, counted.shape, sigma) for sigma in (first, second)
    )
    column = torch.repeat_interleave(torch.tensor(sizes))
    twice = (column[:, None] == target) ^ (column == target)
    both = (
        (one / first**2 + other / second**2) / (1 / first**2 + 1 / second**2)
        if first
        else one
    )
    noise = torch.where(
        twice, (1 / first**2 + 1 / second**2) ** -0.5 if first else 0.0, first
    ).double()
    gram = torch.where(twice, both, one)
    measured = torch.zeros(columns, columns, dtype=torch.bool)
    for pair in [*kept, *((j, j) for j in range(columns))]:
        measured[pair] = measured[pair[::-1]] = True
    noise = torch.where(measured[column[:, None], column], noise, math.inf)
    if arm in ("shrinkage", "spared"):
        gram, noise = shrunk(
            gram, counted, sizes, noise, target if arm == "spared" else None
        )
    if arm == "choice" and family in BY_TRIPLES:
        chosen = strongest_of_three(every, sizes, target, wanted)
    else:
        told = read_tables(
            one,
            sizes,
            noise=torch.where(noise.isfinite(), max(first, 1e-3), math.inf),
            people=people,
        )
        others = (
            [*combinations([c for c in range(columns) if c != target], 2)]
            if wanted
            else []
        )
        found = (
            strongest_triples(
                told, sizes, target, wanted, among=others, noise=max(second, 1e-3)
            )
            if wanted
            else []
        )
        chosen = [(int(a), int(b)) for a, b in found]
    triples = [three_way(real, sizes, (*pair, target), second, rng) for pair in chosen]
    if arm == "choice" and family not in BY_TRIPLES:
        usual = calibrate(
            lambda s: {DiscreteGaussian(sigma=s): columns * (columns + 1) // 2},
            epsilon=epsilon,
            delta=DELTA,
        )
        fitted = fit_to_tree(
            gram, sizes, noise, people, tree(every, sizes), usual, triples, target, job
        )
    else:
        fitted = fit_gram(
            gram.to(job["device"]),
            sizes,
            noise=noise.to(job["device"]),
            people=people,
            triples=[
                Triple(t.columns, t.table.to(job["device"]), t.noise) for t in triples
            ],
            steps=STEPS,
            seed=seed,
            target=target,
        ).to("cpu")
    rows = LEARN if job["arm"].endswith(MORE) else people
    made = np.asarray(fitted.levels(rows, FastRng(seed).uniform), dtype=np.int64)
    return made, {"noise": round(first, 2), "tables": cells + with_it + len(triples)}


def fit_to_tree(
    gram: torch.Tensor,
    sizes: list[int],
    noise: torch.Tensor,
    people: int,
    edges: Pairs,
    usual: float,
    triples: list[Triple],
    target: int,
    job: dict[str, Any],
) -> MixtureOfProducts:
    """`fit_gram`, which leaves pairs that were not measured as they came, with these
    drawn to what the tree says.
    """
    told = read_tables(gram, sizes, noise=noise, people=people)
    near = told.plain(told.target) + torch.diag(told.ways)
    unread = (told.weight == 0) & ((1 - told.columns @ told.columns.T) > 0)
    implied = told.basis.T @ along_tree(near, sizes, edges) @ told.basis
    tables = replace(
        told,
        target=torch.where(unread, implied, told.target),
        precision=torch.where(unread, (people / usual) ** 2, told.precision),
    )
    mixture = MixtureOfProducts(sizes, 512)
    generator = torch.Generator().manual_seed(job["seed"])
    with torch.no_grad():
        jitter = fitting._JITTER * torch.randn(512, mixture.width, generator=generator)
        mixture.logits.copy_(tables.ways.clamp(min=RAREST).log() + jitter)
    count = len(triples) + int(tables.most.triu(1).count_nonzero())
    wide = [
        WideTable.from_triple(triple, mixture.sizes, tables.people, count, [])
        for triple in triples
    ]
    fitted = fitting._descend(mixture, tables, STEPS, 0.2, None, wide, (), target)
    together = [[c for c in triple.columns if c != target] for triple in triples]
    uniform = partial(torch.rand, generator=generator, dtype=torch.float64)
    return with_effects(fitted, target, together, uniform, tables)


def whole_noise(rng: np.random.Generator, shape: Any, sigma: float) -> torch.Tensor:
    return torch.tensor(rng.normal(0, sigma, tuple(shape)).round()).triu()


def three_way(
    codes: Codes,
    sizes: list[int],
    columns: tuple[int, int, int],
    sigma: float,
    rng: np.random.Generator,
) -> Triple:
    table = table_of(codes, sizes, columns)
    return Triple(
        columns, torch.tensor(table + rng.normal(0, sigma, table.shape).round()), sigma
    )


def learned(
    made: Codes, test: Codes, sizes: list[int], target: int
) -> dict[str, float]:
    """Macro F1 and AUC of boosting, on real rows."""
    rest = [size for j, size in enumerate(sizes) if j != target]
    rng = np.random.default_rng(0)
    rows, real = (
        Examples(np.delete(codes, target, 1).astype(np.int32), codes[:, target]).sample(
            LEARN, rng
        )
        for codes in (made, test)
    )
    score = partial(classification_scores, real.target)
    found, *_ = score_model(
        "boosting", rows, real.features, rest, sizes[target], 0, score
    )
    return {name: float(found[name]) for name in ("f1", "auc")}


def logistic(every: Codes, test: Codes, target: int) -> dict[str, float]:
    """The same of logistic regression on one-hot columns, from all real rows of the
    table.
    """
    encoder = OneHotEncoder(handle_unknown="ignore")
    x = encoder.fit_transform(np.delete(every, target, 1))
    model = LogisticRegression(max_iter=300, C=1.0).fit(x, every[:, target])
    odds = model.predict_proba(encoder.transform(np.delete(test, target, 1)))
    found = classification_scores(test[:, target], odds)
    return {name: float(found[name]) for name in ("f1", "auc")}


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in range(args.seeds):
        for case in args.cases:
            for arm in args.arms:
                if LEVELS.get(arm, 0) >= FEWEST.get(CASES[case][1], 99):
                    continue  # the table has no more levels
                if arm.endswith(MORE) and CASES[case][2] is None:
                    continue  # the people are as many
                yield {
                    "case": case,
                    "arm": arm,
                    "seed": seed,
                    "data": args.data,
                    "device": args.device,
                }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "reading.csv", device="cpu")
    parser.add_argument(
        "--cases",
        nargs="+",
        default=["order-3"] if QUICK else list(CASES),
        choices=list(CASES),
    )
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()

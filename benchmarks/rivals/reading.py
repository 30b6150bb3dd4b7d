"""Why `gram` loses where it loses: the noise, the choice of tables, the levels, or the fit.

    DATA=<folder> python benchmarks/rivals/reading.py [--cases few-adult …] [--arms noise …] [--device cuda] [--jobs 12]

`gram` of one holder with a target and declared levels, simulated as in benchmarks/joint/three.py: whole-number noise of
the same size on the exact tables, then the same fit. Each arm puts something perfect in the place of one part:

    as it is     today's defaults
    no noise     the same tables without noise, the same fit
    choice       an oracle chooses by the real rows. Few people, small ε, wide: of all pairs only a tree of the
                 strongest and the ten strongest with the target are measured, and share the budget; other pairs are
                 taken to be as the tree has them. Order, thresholds: the four tables of three columns with the
                 target that say the most beyond their pairs
    levels 3, 5, 8   columns have so many levels at most, by the real rows: neighbours of about equal weight, or of
                 categories the commonest and the rest. Drawn levels are parted as real people are
    shrinkage    a perfect reading of the same noisy tables: every pair is drawn towards independence by the factor that
                 brings it nearest to the truth, and is fitted as exactly as its error then allows
    spared       the same, but pairs with the target stay as they were released
    more rows    as it is, no noise and shrinkage once more, with 20,000 rows drawn however few the people are
    pairs alone  not a fit: logistic regression on real rows, one-hot. Of all laws with the true pairs the one of most
                 entropy predicts so: what pairs can tell at best, and what their perfect fit would give
    independent  real columns, each shuffled by itself
    real         boosting on the real rows

Boosting learns from drawn rows, as many as real ones and 20,000 at most, and is tested on rows held out. `avd2` and
`avd3` are mean distances of tables of two and three columns from the people's.
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
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder

from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.public_tables import Public
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Categorical
from understudy.evaluate.utility.downstream import Examples, classification_scores, scores_of
from understudy.evaluate.utility.marginals import Marginals, shuffled
from understudy.models.tables import fit_gram as fitting
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.loss import Triple, WideTable
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import read_tables
from understudy.models.tables.strongest import strongest_triples
from understudy.models.tables.target import with_effects
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.gram.settings import again_share

HERE, QUICK, DELTA = Path(__file__).parent, quick(), 1e-5
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
FEWEST = {"parity3": 2, "parity4": 2, "wide200": 2, "rule9": 5}  # levels of every column
BY_TRIPLES = ("order", "thresholds")
LEVELS = {"levels 3": 3, "levels 5": 5, "levels 8": 8}
MORE = ", more rows"
ARMS = (
    "as it is", "no noise", "choice", *LEVELS, "shrinkage", "spared", "pairs alone", "independent", "real",
    *(arm + MORE for arm in ("as it is", "no noise", "choice", "levels 3", "shrinkage", "spared")),
)  # fmt: skip
KEY = ("case", "arm", "seed")
FIELDS = (*KEY, "family", "dataset", "people", "epsilon", "noise", "tables", "avd2", "avd3", "f1", "auc", "seconds")
GRID = Grid(fields=FIELDS, key=KEY, order=by_text("case", "arm", "seed"))
MANY, CHOSEN, LABELS, LEARN = 10_000, 4, 10, 20_000
STEPS = 30 if QUICK else 1200

Codes = NDArray[np.int64]
Pairs = frozenset[tuple[int, int]]


def opened(name: str, folder: Path, seed: int) -> Public:
    if name in stress.NAMES:
        return stress.load(name, None, seed)
    found: Public = script("joint", "tables").load(name, folder, seed)
    return found


def measure(job: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    family, name, people, epsilon = CASES[job["case"]]
    table, arm, seed = opened(name, job["data"], job["seed"]), job["arm"].removesuffix(MORE), job["seed"]
    codec, target = Codec(table.schema), table.schema.names.index(table.target)
    every, test = (codec.codes(frame).astype(np.int64) for frame in (table.train, table.test))
    real, sizes = every[: people or len(every)], list(codec.sizes)
    start, found = time.process_time(), {}
    if arm == "pairs alone":
        found = logistic(every, test, target)
    else:
        made, facts = real, {}
        if arm in LEVELS:
            named = [isinstance(column, Categorical) for column in table.schema.columns]
            merged = [grouped(real[:, j], sizes[j], LEVELS[arm], named[j], j == target) for j in range(len(sizes))]
            few = np.stack([group[real[:, j]] for j, group in enumerate(merged)], 1)
            coarse, facts = drawn("as it is", family, few, few, [int(g.max()) + 1 for g in merged], target, job)
            made = parted(coarse, real, merged, seed)
        elif arm == "independent":
            made = shuffled(real, len(real), np.random.default_rng(seed))
        elif arm != "real":
            made, facts = drawn(arm, family, real, every, sizes, target, job)
        if arm != "real":
            marginals = Marginals(real.astype(np.int32), made.astype(np.int32), sizes, ends=())
            found = {f"avd{k}": marginals.avd(k).value for k in (2, 3)}
        found |= facts | learned(made, test, sizes, target)
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}
    setting = {"family": family, "dataset": name, "people": len(real), "epsilon": epsilon}
    return {key: job[key] for key in KEY} | setting | rounded | {"seconds": round(time.process_time() - start, 1)}


def drawn(
    arm: str, family: str, real: Codes, every: Codes, sizes: list[int], target: int, job: dict[str, Any]
) -> tuple[Codes, dict[str, Any]]:
    """Rows as `gram` would draw them, one part of it made perfect; and what was released."""
    epsilon, seed, columns, people = CASES[job["case"]][3], job["seed"], len(sizes), len(real)
    kept = everything(columns)
    if arm == "choice" and family not in BY_TRIPLES:
        kept = strongest_pairs(every, sizes, target)
    cells = columns + len(kept)
    alone = calibrate(lambda s: {DiscreteGaussian(sigma=s): cells}, epsilon=epsilon, delta=DELTA)
    share, wanted = again_share(people, alone), CHOSEN if people >= MANY and columns > 2 else 0
    with_it = sum(target in pair for pair in kept)
    first, second = alone / (1 - share) ** 0.5, alone * ((with_it + wanted) / cells / share) ** 0.5
    if arm == "no noise":
        first = second = 0.0
    counted, rng = counts(real, sizes), np.random.default_rng([seed, 39])
    one, other = (counted + whole_noise(rng, counted.shape, sigma) for sigma in (first, second))
    column = torch.repeat_interleave(torch.tensor(sizes))
    twice = (column[:, None] == target) ^ (column == target)
    both = (one / first**2 + other / second**2) / (1 / first**2 + 1 / second**2) if first else one
    noise = torch.where(twice, (1 / first**2 + 1 / second**2) ** -0.5 if first else 0.0, first).double()
    gram = torch.where(twice, both, one)
    measured = torch.zeros(columns, columns, dtype=torch.bool)
    for pair in [*kept, *((j, j) for j in range(columns))]:
        measured[pair] = measured[pair[::-1]] = True
    noise = torch.where(measured[column[:, None], column], noise, math.inf)
    if arm in ("shrinkage", "spared"):
        gram, noise = shrunk(gram, counted, sizes, noise, target if arm == "spared" else None)
    if arm == "choice" and family in BY_TRIPLES:
        chosen = strongest_of_three(every, sizes, target, wanted)
    else:
        told = read_tables(one, sizes, noise=torch.where(noise.isfinite(), max(first, 1e-3), math.inf), people=people)
        others = [*combinations([c for c in range(columns) if c != target], 2)] if wanted else []
        found = strongest_triples(told, sizes, target, wanted, among=others, noise=max(second, 1e-3)) if wanted else []
        chosen = [(int(a), int(b)) for a, b in found]
    triples = [three_way(real, sizes, (*pair, target), second, rng) for pair in chosen]
    if arm == "choice" and family not in BY_TRIPLES:
        usual = calibrate(
            lambda s: {DiscreteGaussian(sigma=s): columns * (columns + 1) // 2}, epsilon=epsilon, delta=DELTA
        )
        fitted = fit_to_tree(gram, sizes, noise, people, tree(every, sizes), usual, triples, target, job)
    else:
        fitted = fit_gram(
            gram.to(job["device"]), sizes, noise=noise.to(job["device"]), people=people,
            triples=[Triple(t.columns, t.table.to(job["device"]), t.noise) for t in triples],
            steps=STEPS, seed=seed, target=target,
        ).to("cpu")  # fmt: skip
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
    """`fit_gram`, which leaves pairs that were not measured as they came, with these drawn to what the tree says."""
    told = read_tables(gram, sizes, noise=noise, people=people)
    near = told.plain(told.target) + torch.diag(told.ways)
    unread = (told.weight == 0) & ((1 - told.columns @ told.columns.T) > 0)
    implied = told.basis.T @ along_tree(near, sizes, edges) @ told.basis
    tables = replace(
        told,
        target=torch.where(unread, implied, told.target),
        precision=torch.where(unread, (people / usual) ** 2, told.precision),
    )
    mixture, generator = MixtureOfProducts(sizes, 512), torch.Generator().manual_seed(job["seed"])
    with torch.no_grad():
        jitter = fitting._JITTER * torch.randn(512, mixture.width, generator=generator)
        mixture.logits.copy_(tables.ways.clamp(min=fitting._RAREST).log() + jitter)
    count = len(triples) + int(tables.most.triu(1).count_nonzero())
    wide = [WideTable.of(triple, mixture.sizes, tables.people, count, []) for triple in triples]
    fitted = fitting._descend(mixture, tables, STEPS, 0.2, None, wide, (), target)
    together = [[c for c in triple.columns if c != target] for triple in triples]
    uniform = partial(torch.rand, generator=generator, dtype=torch.float64)
    return with_effects(fitted, target, together, uniform, tables)


def everything(columns: int) -> Pairs:
    return frozenset(combinations(range(columns), 2))


def counts(codes: Codes, sizes: list[int]) -> torch.Tensor:
    """The Gram matrix of one-hot rows, on and above the diagonal."""
    found: torch.Tensor = script("joint", "fit").release(codes, sizes, 0.0, 0)
    return found


def whole_noise(rng: np.random.Generator, shape: Any, sigma: float) -> torch.Tensor:
    return torch.tensor(rng.normal(0, sigma, tuple(shape)).round()).triu()


def information(table: NDArray[np.float64]) -> float:
    """Mutual information of the first axis and the others together, of counts, in nats, less its bias."""
    flat = table.reshape(len(table), -1)
    flat = flat[flat.sum(1) > 0][:, flat.sum(0) > 0]
    total = flat.sum()
    expected = flat.sum(1, keepdims=True) @ flat.sum(0, keepdims=True) / total
    held = flat > 0
    found = float((flat[held] * np.log(flat[held] / expected[held])).sum() / total)
    return found - (flat.shape[0] - 1) * (flat.shape[1] - 1) / (2 * float(total))


def strongest_pairs(codes: Codes, sizes: list[int], target: int) -> Pairs:
    """A tree of the pairs that tell most of each other, and the ten that tell most of the target."""
    told = told_by_pairs(codes, sizes)
    with_it = sorted((pair for pair in told if target in pair), key=lambda pair: -told[pair])
    return tree(codes, sizes) | frozenset(with_it[:LABELS])


def told_by_pairs(codes: Codes, sizes: list[int]) -> dict[tuple[int, int], float]:
    gram, starts = counts(codes, sizes).numpy(), np.cumsum([0, *sizes])
    return {
        (i, j): information(gram[starts[i] : starts[i + 1], starts[j] : starts[j + 1]])
        for i, j in combinations(range(len(sizes)), 2)
    }


def tree(codes: Codes, sizes: list[int]) -> Pairs:
    """The pairs of a tree, or of several, that tell most of each other (Chow and Liu, 1968)."""
    part, kept = list(range(len(sizes))), set()
    for (i, j), value in sorted(told_by_pairs(codes, sizes).items(), key=lambda item: -item[1]):
        if value > 0 and part[i] != part[j]:
            kept.add((i, j))
            old, new = part[j], part[i]
            part = [new if p == old else p for p in part]
    return frozenset(kept)


def along_tree(gram: torch.Tensor, sizes: list[int], edges: Pairs) -> torch.Tensor:
    """All pairs, in shares, as a tree with these tables has them; independent where no way leads between them."""
    starts, columns = np.cumsum([0, *sizes]), len(sizes)
    block = [slice(starts[j], starts[j + 1]) for j in range(columns)]
    ways = gram.diagonal().clamp(min=1e-9)
    near: dict[int, dict[int, torch.Tensor]] = {j: {} for j in range(columns)}
    for i, j in edges:
        table = gram[block[i], block[j]].clamp(min=1e-9)
        near[i][j] = table / table.sum(1, keepdim=True)
        near[j][i] = table.T / table.T.sum(1, keepdim=True)
    made = torch.outer(ways, ways)
    for i in range(columns):
        known = {i: torch.diag(ways[block[i]])}
        queue = [i]
        for before in queue:
            for j, step in near[before].items():
                if j not in known:
                    known[j] = known[before] @ step
                    queue.append(j)
        for j in known:
            if j != i:
                made[block[i], block[j]] = known[j]
    return made


def strongest_of_three(codes: Codes, sizes: list[int], target: int, wanted: int) -> list[tuple[int, int]]:
    """The pairs of columns that together tell more of the target than both alone, by the real rows."""
    alone = {j: information(table_of(codes, sizes, (target, j))) for j in range(len(sizes)) if j != target}
    gain = {
        pair: information(table_of(codes, sizes, (target, *pair))) - alone[pair[0]] - alone[pair[1]]
        for pair in combinations(alone, 2)
    }
    return sorted(gain, key=lambda pair: -gain[pair])[:wanted]


def table_of(codes: Codes, sizes: list[int], columns: tuple[int, ...]) -> NDArray[np.float64]:
    shape = [sizes[column] for column in columns]
    flat = np.ravel_multi_index([codes[:, column] for column in columns], shape)
    return np.bincount(flat, minlength=math.prod(shape)).reshape(shape).astype(float)


def three_way(
    codes: Codes, sizes: list[int], columns: tuple[int, int, int], sigma: float, rng: np.random.Generator
) -> Triple:
    table = table_of(codes, sizes, columns)
    return Triple(columns, torch.tensor(table + rng.normal(0, sigma, table.shape).round()), sigma)


def shrunk(
    gram: torch.Tensor, true: torch.Tensor, sizes: list[int], noise: torch.Tensor, spared: int | None = None
) -> Any:
    """Every pair as near to the truth as a mean of itself and of independent columns can be, and how near that is.

    Those with a column that is spared are as they were released.
    """
    starts = np.cumsum([0, *sizes])
    ways, people = true.diagonal(), float(true.diagonal()[: sizes[0]].sum())
    made, left = true.clone(), torch.full_like(noise, math.inf)
    for i in range(len(sizes)):
        a = slice(starts[i], starts[i + 1])
        left[a, a] = noise[a, a]
        made[a, a] = gram[a, a]
        for j in range(i + 1, len(sizes)):
            b = slice(starts[j], starts[j + 1])
            if spared in (i, j):
                made[a, b], left[a, b] = gram[a, b], noise[a, b]
                continue
            apart = torch.outer(ways[a], ways[b]) / people
            noisy, truth = gram[a, b] - apart, true[a, b] - apart
            factor = float(((noisy * truth).sum() / noisy.square().sum().clamp(min=1e-9)).clamp(0, 1))
            made[a, b] = apart + factor * noisy
            left[a, b] = max(float((made[a, b] - true[a, b]).square().mean()) ** 0.5, 0.5)
    return made, left  # read on and above the diagonal


def grouped(codes: Codes, size: int, levels: int, named: bool, target: bool) -> NDArray[np.int64]:
    """The group of each level."""
    if target or size <= levels:
        return np.arange(size)
    often = np.bincount(codes, minlength=size).astype(float)
    if named:
        rank = np.argsort(np.argsort(-often, kind="stable"), kind="stable")
        return np.minimum(rank, levels - 1)
    middle = (often.cumsum() - often / 2) / often.sum()
    return np.unique(np.minimum((middle * levels).astype(int), levels - 1), return_inverse=True)[1]


def parted(coarse: Codes, real: Codes, merged: list[NDArray[np.int64]], seed: int) -> Codes:
    """Levels within each group as often as real people have them."""
    rng, found = np.random.default_rng([seed, 40]), np.empty_like(coarse)
    for j, group in enumerate(merged):
        often = np.bincount(real[:, j], minlength=len(group)) + 1e-9
        for g in range(int(group.max()) + 1):
            rows, levels = coarse[:, j] == g, np.flatnonzero(group == g)
            odds = often[levels] / often[levels].sum()
            found[rows, j] = rng.choice(levels, int(rows.sum()), p=odds)
    return found


def learned(made: Codes, test: Codes, sizes: list[int], target: int) -> dict[str, float]:
    """Macro F1 and AUC of boosting, on real rows."""
    rest, rng = [size for j, size in enumerate(sizes) if j != target], np.random.default_rng(0)
    rows, real = (
        Examples(np.delete(codes, target, 1).astype(np.int32), codes[:, target]).sample(LEARN, rng)
        for codes in (made, test)
    )
    score = partial(classification_scores, real.target)
    found, _ = scores_of("boosting", rows, real.features, rest, sizes[target], 0, score)
    return {name: float(found[name]) for name in ("f1", "auc")}


def logistic(every: Codes, test: Codes, target: int) -> dict[str, float]:
    """The same of logistic regression on one-hot columns, from all real rows of the table."""
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
                yield {"case": case, "arm": arm, "seed": seed, "data": args.data, "device": args.device}


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "reading.csv", device="cpu")
    parser.add_argument("--cases", nargs="+", default=["order-3"] if QUICK else list(CASES), choices=list(CASES))
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()

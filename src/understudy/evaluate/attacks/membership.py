"""Membership inference by Monte-Carlo neighbourhoods: was this person among the training rows?

Hilprecht, Härterich, Bernau (PoPETs 2019), as in Jiang et al., "VertiGAN" (PoPETs 2023), §6.5, Eq. 20, and
Zhang, master's thesis (TUM 2022), §5.2.2, Eq. 5.3–5.4: f(x) = the share of synthetic rows within τ of x,
τ = the median over all targets of the distance to the nearest synthetic row; the better half of the targets
by f are called members.
Paper → code: m → targets, n → rows of the synthetic table, τ and t → radius, d → `Space` (Hamming unless
another is given), f → score "share"; Hilprecht's other estimate −(1/n)·Σ log(d + η) over the neighbourhood →
score "log"; minus the nearest distance (Chen et al., "GAN-Leaks", CCS 2020) → score "nearest".

Outliers (thesis, §5.4.2: 0, 50 or 100 % of the targets): the thesis does not say how it found them. Ours are
the `OUTLYING` share of all real rows with the largest mean distance to the real rows, which the level counts
give exactly, without comparing pairs. `outliers=None` draws targets blindly, as VertiGAN's paper does.
Differs from the papers: the outsiders hold as many outliers as the members, or outliers would give themselves
away against any table (`matched=False` draws them blindly, as in the thesis); the synthetic table is replaced
by real rows that are neither, as a control; AUC and TPR at 1 % FPR besides.
Test: other choices of the members among the targets, outliers among outliers; counted is what the attack adds to
its control.

Guarantee: none; the result is a function of real rows, meant for their holder. Edges: fewer targets than
wished for → as many as there are, said in the note; none → the reason. At most half of the held-out rows
become targets, the rest is the control's table, unless a `reference` is given.
"""

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.attacks.attack import Attack, ranking
from understudy.evaluate.figure import What
from understudy.evaluate.utility import Codes, Distances, Rows, Space, lacking, tables
from understudy.ground.check import in_range, one_of, whole

Picks = NDArray[np.int64]

SCORES = ("share", "log", "nearest")
OUTLYING = 0.05
ETA = 1e-3  # keeps log(d + η) finite at d = 0, on distances between 0 and 1


def neighbourhood(
    train: Codes,
    holdout: Codes,
    synthetic: Codes,
    *,
    reference: Codes | None = None,
    space: Space | None = None,
    targets: int = 1000,
    outliers: float | None = None,
    matched: bool = True,
    score: str = "share",
    seed: int = 0,
) -> Attack:
    """Attack up to `targets` training rows and as many held-out ones through the synthetic table.

    `holdout` are rows from the same population that no training saw; `outliers` is the share of outliers
    among the targets. Measures: `acc` (½ = nothing learned), `auc`, `tpr_at_1pct`.
    """
    whole(targets=targets)
    one_of(SCORES, score=score)
    in_range(0, 1, outliers=outliers or 0)
    odd_ones = None if outliers is None else round(100 * outliers)
    what = What("mia", part="" if score == "share" else score, outliers=odd_ones)
    given = {"train": train, "holdout": holdout, "synthetic": synthetic}
    space, given = tables(space, **given, **({} if reference is None else {"reference": reference}))
    if reason := lacking(given, holdout=2 if reference is None else 1):
        return Attack.absent(what, reason)
    train, holdout, synthetic = (given[table] for table in ("train", "holdout", "synthetic"))
    rng = np.random.default_rng([seed, 0])
    odd = np.split(_outlying(np.concatenate([train, holdout]), space, rng), [len(train)])
    shares = (outliers, outliers if matched else None)
    room = len(holdout) if reference is not None else len(holdout) // 2
    count = min(targets, room, *map(_most, odd, shares))
    if not count:
        return Attack.absent(
            what, f"{len(train)} training and {len(holdout)} held-out rows hold no such target."
        )
    inside, outside = (_pick(mask, count, share, rng) for mask, share in zip(odd, shares, strict=True))
    people = np.concatenate([train[inside], holdout[outside]])
    other = given.get("reference", np.delete(holdout, outside, axis=0))
    hits, radius = _scores(people, synthetic, space, score)
    control, control_radius = _scores(people, other, space, score)
    note = (
        f"{count:,} members and {count:,} outsiders against {len(synthetic):,} synthetic rows, radius "
        f"{radius:.3f}; control: {len(other):,} real rows, radius {control_radius:.3f}"
    )
    kinds = None if outliers is None else np.concatenate([odd[0][inside], odd[1][outside]])
    measures = ranking(*_halves(hits), control=_halves(control), strata=kinds, seed=seed)
    return Attack(what=what, measures=measures, note=note, control=count)


def _scores(people: Codes, table: Codes, space: Space, score: str) -> tuple[NDArray[np.float64], float]:
    """The score of every person, members first, and the radius between 0 and 1."""
    rows = Rows(table, space)
    nearest = rows.nearest(people)
    radius = float(np.median(nearest))
    if score == "nearest":
        return -nearest.astype(float), radius / space.width

    def share(distances: Distances, _: slice) -> NDArray[np.float64]:
        return np.asarray(np.count_nonzero(distances <= radius, axis=1) / rows.count)

    def weighted(distances: Distances, _: slice) -> NDArray[np.float64]:
        near = distances <= radius
        logs = np.log(distances / space.width + ETA, where=near, out=np.zeros(near.shape))
        return np.asarray(-logs.mean(axis=1))

    return np.concatenate([*rows.each(people, share if score == "share" else weighted)]), radius / space.width


def _outlying(real: Codes, space: Space, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which real rows are outliers: those furthest, on average, from the real rows; ties fall by lot."""
    far = np.zeros(len(real), dtype=np.int64)
    for j, size in enumerate(space.sizes):
        far += space.far(j, np.bincount(real[:, j], minlength=size))[real[:, j]]
    order = np.lexsort((rng.random(len(real)), -far))
    outlying = np.zeros(len(real), dtype=bool)
    outlying[order[: max(1, round(OUTLYING * len(real)))]] = True
    return outlying


def _most(odd: NDArray[np.bool_], share: float | None) -> int:
    """How many targets there can be, if this share of them shall be outliers."""
    if share is None:
        return len(odd)
    rooms = [(odd.sum(), share), ((~odd).sum(), 1 - share)]
    return min(int(room / part + 1e-9) for room, part in rooms if part)


def _pick(odd: NDArray[np.bool_], count: int, share: float | None, rng: np.random.Generator) -> Picks:
    if share is None:
        return rng.choice(len(odd), count, replace=False)
    outliers = round(share * count)
    parts = ((np.flatnonzero(odd), outliers), (np.flatnonzero(~odd), count - outliers))
    return np.concatenate([rng.choice(places, k, replace=False) for places, k in parts])


def _halves(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    members, outsiders = np.split(scores, 2)
    return members, outsiders

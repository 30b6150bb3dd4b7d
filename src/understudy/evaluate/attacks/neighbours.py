"""Nearest neighbours: was this person among the training rows, and do synthetic rows
stand closer to these rows?

Membership by Monte-Carlo neighbourhoods (`neighbourhood`): Hilprecht, Härterich, Bernau
(PoPETs 2019), as in Jiang et al., "VertiGAN" (PoPETs 2023), §6.5, Eq. 20, and Zhang,
master's thesis (TUM 2022), §5.2.2, Eq. 5.3–5.4: f(x) = the share of synthetic rows
within τ of x, τ = the median over all targets of the distance to the nearest synthetic
row; the better half of the targets by f are called members.
Paper → code: m → targets, n → rows of the synthetic table, τ and t → radius, d →
`Space` (Hamming unless another is given), f → score "share"; minus the nearest distance
(Chen et al., "GAN-Leaks", CCS 2020) → score "nearest". Outliers (thesis, §5.4.2: 0, 50
or 100 % of the targets): the thesis does not say how it found them. Ours are the
`OUTLYING` share of all real rows with the largest mean distance to the real rows, which
the level counts give exactly, without comparing pairs.
Differs from the papers: the outsiders hold as many outliers as the members, or outliers
would give themselves away against any table; the synthetic table is replaced by real
rows that are neither, as a control; AUC and TPR at 1 % FPR besides. Test: other choices
of the members among the targets, outliers among outliers; counted is what the attack
adds to its control. At most half of the held-out rows become targets, the rest is the
control's table.

Closeness (`neighbours`): DCR, the distance to the closest record, of every synthetic
row to training rows, and NNDR, the ratio of the distances to the nearest and to the
second nearest training row (near 0: one person is imitated and nobody else is near; 1
where both are equal, also at distance 0). The share of synthetic rows that stand closer
to the training rows is Platzer and Reutterer's (Frontiers in Big Data 2021). ½ = no
memorisation, 1 = every row imitates a training row.
Differs from that paper: the two real tables need not be of one size, for a copy would
then go unseen wherever its original was left out. With t training and h held-out rows,
exchangeable rows reach t/(t + h); the share s is shown as (s/t) / (s/t + (1 − s)/h),
which is ½ there and 1 at 1. The control does the same with every held-out row in place
of a synthetic one, against all other real rows. Test: other choices of the training
rows among all real rows, each with what falls to it. `copies` is the share of people
whose very row stands in the synthetic table: of training people, of held-out people
(control), and of training people where the columns of as many rows are drawn on their
own (baseline, computed and not drawn). Rows of held-out people in the place of
synthetic ones would be no control: a generator that keeps to what is common hits more
people than real rows do, those who took part and the others alike. Intervals: many
synthetic rows may have one and the same nearest real row, and then they are no
independent trials. Exact, with Kish's effective number of trials, by the synthetic rows
that fall to each real row.
"""

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.attacks.attack import Attack, Measure, ranking
from understudy.evaluate.attacks.rates import (
    Floats,
    Rate,
    clopper_pearson,
    effective_trials,
    mean_p_value,
    permutation_p_values,
    sum_statistics,
)
from understudy.evaluate.figure import Figure, FigureKey
from understudy.evaluate.utility.distance import Attacked, Distances, EncodedRows, Space
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import in_range, one_of, whole

SCORES = ("share", "nearest")
OUTLIER_SHARE = 0.05
FIGURES = ("dcr", "dcr_p5", "nndr", "nndr_p5")


def neighbourhood(
    tables: Attacked,
    *,
    targets: int = 1000,
    outliers: float | None = None,
    score: str = "share",
    seed: int = 0,
) -> Attack:
    """Attack up to `targets` training rows and as many held-out ones; `outliers`: their
    share among the targets.
    """
    whole(targets=targets)
    one_of(SCORES, score=score)
    in_range(0, 1, outliers=outliers or 0)
    outlier_percent = None if outliers is None else round(100 * outliers)
    key = FigureKey(
        "mia",
        part="" if score == "share" else score,
        outliers=outlier_percent,
    )
    reason = tables.missing_reason(holdout=2)
    if reason:
        return Attack.absent(key, reason)
    train = tables.train
    holdout = tables.holdout
    synthetic = tables.synthetic
    space = tables.space
    rng = np.random.default_rng([seed, 0])
    outliers_by_group = np.split(
        _find_outliers(np.concatenate([train, holdout]), space, rng),
        [len(train)],
    )
    count = min(
        targets,
        len(holdout) // 2,
        *(_max_targets(mask, outliers) for mask in outliers_by_group),
    )
    if not count:
        return Attack.absent(
            key,
            f"{len(train)} training and {len(holdout)} held-out rows hold no such "
            "target.",
        )
    inside, outside = (
        _sample_indices(mask, count, outliers, rng) for mask in outliers_by_group
    )
    people = np.concatenate([train[inside], holdout[outside]])
    control_table = np.delete(holdout, outside, axis=0)
    hits, radius = _score_people(people, synthetic, space, score)
    control, control_radius = _score_people(people, control_table, space, score)
    note = (
        f"{count:,} members and {count:,} outsiders against {len(synthetic):,} "
        f"synthetic rows, radius {radius:.3f}; control: {len(control_table):,} real "
        f"rows, radius {control_radius:.3f}"
    )
    kinds = None
    if outliers is not None:
        in_train, in_holdout = outliers_by_group
        kinds = np.concatenate([in_train[inside], in_holdout[outside]])
    members = slice(None, count)
    outsiders = slice(count, None)
    controls = control[members], control[outsiders]
    measures = ranking(
        hits[members],
        hits[outsiders],
        controls,
        strata=kinds,
        seed=seed,
    )
    return Attack(
        key=key,
        measures=measures,
        note=note,
        control=count,
    )


def _score_people(
    people: Codes,
    table: Codes,
    space: Space,
    score: str,
) -> tuple[Floats, float]:
    """The score of every person, members first, and the radius between 0 and 1."""
    rows = EncodedRows(table, space)
    nearest = rows.nearest(people)
    radius = float(np.median(nearest))
    if score == "nearest":
        return -nearest.astype(float), radius / space.width

    def share(distances: Distances, _: slice) -> Floats:
        return np.asarray(np.count_nonzero(distances <= radius, axis=1) / rows.count)

    return np.concatenate([*rows.map_distances(people, share)]), radius / space.width


def _find_outliers(
    real: Codes,
    space: Space,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Which real rows are outliers: those furthest, on average, from the real rows;
    ties fall by lot.
    """
    mean_distances = np.zeros(len(real), dtype=np.int64)
    for j, size in enumerate(space.sizes):
        mean_distances += space.distance_sums(
            j,
            np.bincount(real[:, j], minlength=size),
        )[real[:, j]]
    order = np.lexsort((rng.random(len(real)), -mean_distances))
    outlying = np.zeros(len(real), dtype=bool)
    outlying[order[: max(1, round(OUTLIER_SHARE * len(real)))]] = True
    return outlying


def _max_targets(is_outlier: NDArray[np.bool_], share: float | None) -> int:
    """How many targets there can be, if this share of them shall be outliers."""
    if share is None:
        return len(is_outlier)
    rooms = [(is_outlier.sum(), share), ((~is_outlier).sum(), 1 - share)]
    return min(int(room / part + 1e-9) for room, part in rooms if part)


def _sample_indices(
    is_outlier: NDArray[np.bool_],
    count: int,
    share: float | None,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    if share is None:
        return rng.choice(len(is_outlier), count, replace=False)
    outliers = round(share * count)
    parts = (
        (np.flatnonzero(is_outlier), outliers),
        (np.flatnonzero(~is_outlier), count - outliers),
    )
    return np.concatenate(
        [rng.choice(indices, k, replace=False) for indices, k in parts]
    )


def _closer_rate(
    rows: int,
    weights: Floats,
    train: int,
    holdout: int,
) -> Rate:
    """The share of so many rows that is closer to the training rows, ½ where nothing is
    memorised.
    """
    trials = effective_trials(rows, weights)
    share = min(1.0, float(weights[:train].sum() / weights.sum()))
    rate = clopper_pearson(share * trials, trials)
    return Rate(
        *(
            (s / train) / (s / train + (1 - s) / holdout)
            for s in (rate.value, rate.low, rate.high)
        )
    )


def neighbours(
    tables: Attacked,
    *,
    max_rows: int = 5_000,
    seed: int = 0,
) -> tuple[Attack, tuple[Figure, ...]]:
    """Whether synthetic rows are closer to training rows than to held-out ones, and how
    close against unseen rows.
    """
    whole(most=max_rows)
    train = tables.train
    holdout = tables.holdout
    synthetic = tables.synthetic
    reason = tables.missing_reason(train=2, holdout=2)
    if reason:
        absent = tuple(
            Figure.absent(FigureKey(name), reason, better="higher") for name in FIGURES
        )
        return Attack.absent(FigureKey("closer_to_train"), reason), absent
    rng = np.random.default_rng([seed, 0])
    pool = EncodedRows(np.concatenate([train, holdout]), tables.space)
    sampled_synthetic, sampled_holdout = (
        np.sort(rng.choice(len(rows), min(max_rows, len(rows)), replace=False))
        for rows in (synthetic, holdout)
    )
    t = len(train)
    h = len(holdout)
    synthetic_distances, weights = _nearest_distances(
        synthetic[sampled_synthetic],
        pool,
        t,
    )
    control_distances, control_weights = _nearest_distances(
        holdout[sampled_holdout],
        pool,
        t,
        own_index=t + sampled_holdout,
    )
    by_luck = permutation_p_values(
        sum_statistics(weights),
        np.arange(t + h) < t,
        seed=seed,
    )[0]
    shares = (
        _closer_rate(len(sampled_synthetic), weights, t, h),
        _closer_rate(
            len(sampled_holdout),
            control_weights,
            t,
            h - 1,
        ),
    )
    measures = (
        Measure(
            "share",
            *shares,
            Rate.from_exact(0.5),
            by_luck,
        ),
        _measure_copies(train, holdout, synthetic),
    )
    note = (
        f"{len(sampled_synthetic):,} of {len(synthetic):,} synthetic rows against "
        f"{t:,} training and {h:,} held-out rows; control: {len(sampled_holdout):,} "
        "held-out rows"
    )
    closer = Attack(
        key=FigureKey("closer_to_train"),
        measures=measures,
        note=note,
        control=h,
    )
    ends = zip(
        FIGURES,
        _summarize_distances(synthetic_distances),
        _summarize_distances(control_distances),
        strict=True,
    )
    figures = (
        Figure(
            FigureKey(name),
            value=value,
            ceiling=end,
            better="higher",
        )
        for name, value, end in ends
    )
    return closer, tuple(figures)


def _nearest_distances(
    rows: Codes,
    pool: EncodedRows,
    train: int,
    own_index: NDArray[np.int64] | None = None,
) -> tuple[Floats, Floats]:
    """How far each row is from the two nearest training rows, (rows, 2), and how many
    fall to each real one.
    """

    def work(distances: Distances, part: slice) -> tuple[Floats, Floats]:
        rows_of_block = np.arange(len(distances))
        infinity = np.iinfo(distances.dtype).max
        if own_index is not None:
            distances[rows_of_block, own_index[part]] = (
                infinity  # no row is its own neighbour
            )
        near = distances == distances.min(axis=1, keepdims=True)
        row, real = np.nonzero(near)
        falls = np.bincount(
            real,
            weights=(1 / near.sum(axis=1))[row],
            minlength=pool.count,
        )
        nearest = distances[:, :train].argmin(axis=1)
        first = distances[rows_of_block, nearest]
        distances[rows_of_block, nearest] = infinity
        two_nearest = np.stack((first, distances[:, :train].min(axis=1)), axis=1)
        return two_nearest / pool.space.width, np.asarray(falls, dtype=float)

    blocks = []
    weights = np.zeros(pool.count)
    for block, falls in pool.map_distances(rows, work):
        blocks.append(block)
        weights += falls
    return np.concatenate(blocks), weights


def _measure_copies(
    train: Codes,
    holdout: Codes,
    synthetic: Codes,
) -> Measure:
    """The share of people whose row stands in the synthetic table."""
    rows, row_ids = np.unique(
        np.concatenate([train, holdout, synthetic]),
        axis=0,
        return_inverse=True,
    )
    train_ids, holdout_ids, synthetic_ids = np.split(
        row_ids,
        [len(train), len(train) + len(holdout)],
    )
    is_copied = np.bincount(synthetic_ids, minlength=len(rows)) > 0

    def rate(ids: NDArray[np.int64]) -> Rate:
        trials = effective_trials(len(ids), np.bincount(ids[is_copied[ids]]))
        return clopper_pearson(float(is_copied[ids].mean()) * trials, trials)

    p = mean_p_value(
        is_copied[train_ids].astype(float),
        is_copied[holdout_ids].astype(float),
    )
    # a training person's row among as many rows whose columns are drawn on their own,
    # as they occur
    shares = [
        np.bincount(column, minlength=train.max() + 1) / len(synthetic)
        for column in synthetic.T
    ]
    chances = np.stack(
        [share[train[:, j]] for j, share in enumerate(shares)],
        axis=1,
    ).prod(axis=1)
    by_chance = Rate.from_exact(float(np.mean(1 - (1 - chances) ** len(synthetic))))
    return Measure(
        "copies",
        rate(train_ids),
        rate(holdout_ids),
        by_chance,
        p,
    )


def _summarize_distances(distances: Floats) -> list[float]:
    """The values of `FIGURES` for rows with these distances to their two nearest
    training rows.
    """
    ratios = np.divide(
        distances[:, 0],
        distances[:, 1],
        where=distances[:, 1] > 0,
        out=np.ones(len(distances)),
    )
    middles_and_edges: list[float] = (
        np.quantile([distances[:, 0], ratios], (0.5, 0.05), axis=1).T.ravel().tolist()
    )
    return middles_and_edges

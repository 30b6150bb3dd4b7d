"""Nearest neighbours of the synthetic rows: do they stand closer to the training rows than to unseen ones?

DCR, the distance to the closest record, of every synthetic row to training and to held-out rows, and NNDR,
the ratio of the distances to the nearest and to the second nearest training row (near 0: one person is
imitated and nobody else is near; 1 where both are equal, also at distance 0).
The share of synthetic rows that stand closer to the training rows is Platzer and Reutterer's (Frontiers in
Big Data 2021). ½ = no memorisation, 1 = every row imitates a training row.
Differs from that paper: the two real tables need not be of one size, for a copy would then go unseen wherever
its original was left out. With t training and h held-out rows, exchangeable rows reach t/(t + h); the share s
is shown as (s/t) / (s/t + (1 − s)/h), which is ½ there and 1 at 1. Where several real rows are equally near,
each counts by its part. The control does the same with every held-out row in place of a synthetic one,
against all other real rows.

`copies` is the share of people whose very row stands in the synthetic table: of training people, of held-out people
(control), and of training people where the columns of as many rows are drawn on their own (baseline, computed and
not drawn). Rows of held-out people in the place of synthetic ones would be no control: a generator that keeps to
what is common hits more people than real rows do, those who took part and the others alike.

Intervals: many synthetic rows may have one and the same nearest real row, and then they are no independent
trials. Exact, with Kish's effective number of trials, by the synthetic rows that fall to each real row.
Test: other choices of the training rows among all real rows, each with what falls to it.

Guarantee: none; the result is a function of real rows, meant for their holder. Edges: too few rows → the
reason; above `most` synthetic or held-out rows, that many are drawn by the seed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.attacks.attack import Attack, Measure
from understudy.evaluate.attacks.chance import luck, more, sums
from understudy.evaluate.attacks.rates import Rate, effective, exact
from understudy.evaluate.figure import Figure, What
from understudy.evaluate.utility.distance import Distances, Rows, Space, lacking, tables
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import whole

Floats = NDArray[np.float64]

FIGURES = ("dcr", "dcr_p5", "nndr", "nndr_p5")


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """`closer` is the attack; the figures are medians and 5th percentiles against what unseen real rows reach.

    `train` and `holdout` hold each synthetic row's distance to the closest record, between 0 and 1, for
    histograms; `unseen` that of held-out rows to the training rows.
    """

    closer: Attack
    figures: tuple[Figure, ...]
    train: Floats
    holdout: Floats
    unseen: Floats

    def to_dict(self) -> dict[str, Any]:
        """The attack and the figures in plain types."""
        return {"closer": self.closer.to_dict(), "figures": {f.name: f.value for f in self.figures}}


@dataclass(frozen=True, eq=False)
class _Look:
    """Where rows stand to the real ones: the two nearest in train, the nearest in holdout, and whom they fall to."""

    train: Floats  # (rows, 2)
    holdout: Floats
    weights: Floats  # (pool,)

    def closer(self, train: int, holdout: int) -> Rate:
        """The share that is closer to the training rows, ½ where nothing is memorised."""
        trials = effective(len(self.train), self.weights)
        share = min(1.0, float(self.weights[:train].sum() / self.weights.sum()))
        rate = exact(share * trials, trials)
        return Rate(
            *((s / train) / (s / train + (1 - s) / holdout) for s in (rate.value, rate.low, rate.high))
        )


def neighbours(
    train: Codes,
    holdout: Codes,
    synthetic: Codes,
    *,
    space: Space | None = None,
    most: int = 5_000,
    seed: int = 0,
) -> Neighbours:
    """Compare the synthetic rows' distances to training rows with those to held-out rows."""
    whole(most=most)
    space, given = tables(space, train=train, holdout=holdout, synthetic=synthetic)
    train, holdout, synthetic = given.values()
    if reason := lacking(given, train=2, holdout=2):
        none = np.empty(0)
        absent = tuple(Figure.absent(What(name), reason, better="higher") for name in FIGURES)
        closer = Attack.absent(What("closer_to_train"), reason)
        return Neighbours(closer=closer, figures=absent, train=none, holdout=none, unseen=none)
    rng = np.random.default_rng([seed, 0])
    pool = Rows(np.concatenate([train, holdout]), space)
    drawn, held = (
        np.sort(rng.choice(len(rows), min(most, len(rows)), replace=False)) for rows in (synthetic, holdout)
    )
    fake = _look(synthetic[drawn], pool, len(train))
    real = _look(holdout[held], pool, len(train), themselves=len(train) + held)
    t, h = len(train), len(holdout)
    took_part = np.arange(t + h) < t
    measures = (
        Measure(
            "share",
            fake.closer(t, h),
            real.closer(t, h - 1),
            Rate.known(0.5),
            luck(sums(fake.weights), took_part, seed=seed)[0],
        ),
        _copies(train, holdout, synthetic),
    )
    note = (
        f"{len(drawn):,} of {len(synthetic):,} synthetic rows against {t:,} training and "
        f"{h:,} held-out rows; control: {len(held):,} held-out rows"
    )
    return Neighbours(
        closer=Attack(what=What("closer_to_train"), measures=measures, note=note, control=h),
        figures=_figures(fake.train, real.train),
        train=fake.train[:, 0],
        holdout=fake.holdout,
        unseen=real.train[:, 0],
    )


def _look(rows: Codes, pool: Rows, train: int, themselves: NDArray[np.int64] | None = None) -> _Look:
    def work(distances: Distances, part: slice) -> tuple[Floats, Floats]:
        here, beyond = np.arange(len(distances)), np.iinfo(distances.dtype).max
        if themselves is not None:
            distances[here, themselves[part]] = beyond  # no row is its own neighbour
        near = distances == distances.min(axis=1, keepdims=True)
        row, real = np.nonzero(near)
        falls = np.bincount(real, weights=(1 / near.sum(axis=1))[row], minlength=pool.count)
        nearest = distances[:, :train].argmin(axis=1)
        first = distances[here, nearest]
        distances[here, nearest] = beyond
        ends = (first, distances[:, :train].min(axis=1), distances[:, train:].min(axis=1))
        return np.stack(ends, axis=1) / pool.space.width, np.asarray(falls, dtype=float)

    found, weights = [], np.zeros(pool.count)
    for block, falls in pool.each(rows, work):
        found.append(block)
        weights += falls
    ends = np.concatenate(found)
    return _Look(ends[:, :2], ends[:, 2], weights)


def _copies(train: Codes, holdout: Codes, synthetic: Codes) -> Measure:
    """The share of people whose row stands in the synthetic table."""
    rows, place = np.unique(np.concatenate([train, holdout, synthetic]), axis=0, return_inverse=True)
    people, others, made = np.split(place, [len(train), len(train) + len(holdout)])
    there = np.bincount(made, minlength=len(rows)) > 0

    def rate(who: NDArray[np.int64]) -> Rate:
        trials = effective(len(who), np.bincount(who[there[who]]))
        return exact(float(there[who].mean()) * trials, trials)

    p = more(there[people].astype(float), there[others].astype(float))
    return Measure("copies", rate(people), rate(others), _by_chance(train, synthetic), p)


def _by_chance(train: Codes, synthetic: Codes) -> Rate:
    """How often a training person's row is among as many rows whose columns are drawn on their own, as they occur."""
    shares = [np.bincount(column, minlength=train.max() + 1) / len(synthetic) for column in synthetic.T]
    chances = np.stack([share[train[:, j]] for j, share in enumerate(shares)], axis=1).prod(axis=1)
    return Rate.known(float(np.mean(1 - (1 - chances) ** len(synthetic))))


def _figures(fake: Floats, real: Floats) -> tuple[Figure, ...]:
    """Medians and 5th percentiles for the synthetic rows, beside those of unseen real rows."""
    return tuple(
        Figure(What(name), value=value, ceiling=ceiling, better="higher")
        for name, value, ceiling in zip(FIGURES, _summary(fake), _summary(real), strict=True)
    )


def _summary(two: Floats) -> list[float]:
    """The values of `FIGURES` for rows with these distances to their two nearest training rows."""
    ratios = np.divide(two[:, 0], two[:, 1], where=two[:, 1] > 0, out=np.ones(len(two)))
    middles_and_edges: list[float] = np.quantile([two[:, 0], ratios], (0.5, 0.05), axis=1).T.ravel().tolist()
    return middles_and_edges

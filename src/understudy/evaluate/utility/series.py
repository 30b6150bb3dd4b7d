"""Series: fidelity (MMD), diversity (coverage), usefulness (next-step error), memory
(autocorrelation).

Jiang, dissertation (TUM 2024), §5.6.2. Arrays are (series, steps, channels), L = steps,
W = channels. MMD: Eq. 2.14, the unbiased estimate of the squared distance of two
samples under a kernel; it may fall below 0. Coverage: Naeem et al., "Reliable Fidelity
and Diversity Metrics" (ICML 2020), the measure behind the dissertation's coverage
ratio: the share of real series that have a synthetic one within the distance of their
k-th nearest real neighbour. Next step: a one-layer LSTM, mean absolute error on series
held out.
Paper → code: N → rows, k → neighbours.
Differs from the papers: Gaussian kernel, its bandwidth the median distance between real
series; a tie counts as covered, so that repeated series do not give 0; every figure
stands between two ends, and at most `ROWS` series of each table are compared, which is
said. Edges: fewer than four series, one step alone or values that are not finite →
figures with a reason. Of people's events (`lag_figures`): correlations of ranks one,
two and five events apart, of values as they came.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import cdist, pdist
from torch import nn

from understudy.data.column import Integer, Real
from understudy.data.encoding.values import Places
from understudy.data.visits import VisitSchema
from understudy.evaluate.figure import Better, Figure, FigureKey
from understudy.evaluate.utility.marginals import bootstrap, shuffle_columns
from understudy.ground.check import positive, whole
from understudy.ground.errors import ConfigError
from understudy.models.kernels.clients import Adam
from understudy.models.network import first_weights

Series = NDArray[np.floating[Any]]
"""(series, steps, channels)"""

FIGURES: dict[str, Better] = {
    "mmd": "lower",
    "coverage": "higher",
    "next_step_mae": "lower",
    "autocorrelation": "lower",
    "dcr": "higher",
}
MAX_ROWS = 2_000  # of each table that are compared
_DCR_ROWS = 1_000  # rows whose nearest are looked for


def median_distance(real: Series) -> float:
    return float(np.median(pdist(_flatten(real))))


def mmd(real: Series, synthetic: Series, *, bandwidth: float) -> float:
    """Unbiased squared MMD (Eq. 2.14) under exp(−d²/2h²), h the bandwidth, for tables
    of any sizes from two rows.
    """
    positive(bandwidth=bandwidth)
    a = _flatten(real) / bandwidth
    b = _flatten(synthetic) / bandwidth
    among = (
        2 * np.exp(-pdist(x, "sqeuclidean") / 2).sum() / (len(x) * (len(x) - 1))
        for x in (a, b)
    )
    return float(sum(among) - 2 * np.exp(-cdist(a, b, "sqeuclidean") / 2).mean())


def coverage(real: Series, synthetic: Series, *, neighbours: int = 5) -> float:
    """The share of real series with a synthetic one as near as their k-th nearest real
    neighbour.
    """
    whole(neighbours=neighbours)
    a = _flatten(real)
    b = _flatten(synthetic)
    k = min(neighbours, len(a) - 1)
    # the nearest is the series itself
    radius = np.partition(cdist(a, a), k, axis=1)[:, k]
    return float((cdist(a, b).min(axis=1) <= radius).mean())


def expected_coverage(real: int, synthetic: int, neighbours: int = 5) -> float:
    """The mean coverage of two samples of one distribution (Naeem et al., Lemma 2)."""
    i = np.arange(1, min(neighbours, real - 1) + 1)
    return float(1 - np.prod((real - i) / (real + synthetic - i)))


def nearest_distance(rows: Series, others: Series | None = None) -> float:
    """The median distance of a row from the nearest of the others; without others, from
    the nearest row but itself.
    """
    a = _flatten(rows)
    distances = cdist(a, a if others is None else _flatten(others))
    if others is None:
        np.fill_diagonal(distances, np.inf)
    return float(np.median(distances.min(axis=1)))


def autocorrelation(series: Series, lags: int) -> NDArray[np.float64]:
    """A channel's correlation with itself 1 … lags steps later, of all series: (lags,
    channels); 0 of a constant.
    """
    centred = np.asarray(series, dtype=float) - np.mean(series, axis=(0, 1))
    power = (centred**2).mean(axis=(0, 1))
    moments = np.array(
        [
            (centred[:, lag:] * centred[:, :-lag]).mean(axis=(0, 1))
            for lag in range(1, lags + 1)
        ]
    )
    return np.asarray(moments / np.where(power > 0, power, 1))


def autocorrelation_difference(real: Series, synthetic: Series) -> float:
    lags = max(1, real.shape[1] // 2)
    return float(
        np.abs(autocorrelation(real, lags) - autocorrelation(synthetic, lags)).mean()
    )


def next_step_mae(
    train: Series,
    test: Series,
    *,
    hidden: int = 32,
    steps: int = 1_000,
    batch: int = 128,
    seed: int = 0,
) -> float:
    """Mean absolute error on `test` of an LSTM (one layer, Adam at 0.005, absolute
    loss) that says the next step.
    """
    whole(hidden=hidden, steps=steps, batch=batch)
    rows, truth = (
        torch.as_tensor(np.asarray(x), dtype=torch.float32) for x in (train, test)
    )
    with first_weights(seed):
        lstm = nn.LSTM(rows.shape[2], hidden, batch_first=True)
        head = nn.Linear(hidden, rows.shape[2])
        weights = [*lstm.parameters(), *head.parameters()]
        adam = Adam(weights, lr=0.005)
        for _ in range(steps):
            # (batch, L, W)
            x = rows[torch.randint(len(rows), (min(batch, len(rows)),))]
            adam.step(
                torch.autograd.grad(
                    (head(lstm(x[:, :-1])[0]) - x[:, 1:]).abs().mean(), weights
                )
            )
    with torch.no_grad():
        errors = [
            (head(lstm(x[:, :-1])[0]) - x[:, 1:]).abs().mean(dim=(1, 2))
            for x in torch.split(truth, 1024)
        ]
    return float(torch.cat(errors).mean())


def evaluate_series(
    real: Series,
    synthetic: Series,
    *,
    holdout: Series | None = None,
    steps: int = 1_000,
    seed: int = 0,
) -> tuple[Figure, ...]:
    """The figures of a real and a synthetic set of series, each between two ends from
    real series.

    MMD and autocorrelation: floor = real against real (halves; a bootstrap), ceiling =
    every cell shuffled over the series. Coverage: floor = shuffled, ceiling = expected
    of the same distribution. Next step: floor = trained on real series, ceiling =
    saying the mean. Nearest real row: floor = a copy of one, ceiling = how far real
    rows are from each other.
    """
    tables = [
        np.asarray(t, dtype=float)
        for t in (real, synthetic, real if holdout is None else holdout)
    ]
    if any(t.ndim != 3 or t.shape[1:] != tables[0].shape[1:] for t in tables):
        shapes = " and ".join(str(t.shape) for t in tables[: 2 + (holdout is not None)])
        raise ConfigError(
            "series are (series, steps, channels) of equal steps and channels, not "
            f"{shapes}."
        )
    reason = _incomparable_reason(tables)
    if reason:
        return tuple(
            Figure.absent(FigureKey(name), reason, better=better)
            for name, better in FIGURES.items()
        )
    rng = np.random.default_rng([seed, 0])
    train, synthetic_rows, test = tables
    if holdout is None:
        order = rng.permutation(len(train))
        cut = max(1, len(train) // 5)
        train, test = train[order[cut:]], train[order[:cut]]
    real_sample, synthetic_sample, shuffled, note = _sample_rows(
        tables[0], synthetic_rows, "series", rng
    )
    resampled = real_sample[bootstrap(len(real_sample), len(synthetic_sample), rng)]
    value, floor, ceiling = (
        autocorrelation_difference(real_sample, rows)
        for rows in (synthetic_sample, resampled, shuffled)
    )
    mmd_figure, coverage_figure, dcr_figure = _distance_figures(
        real_sample, synthetic_sample, shuffled, note
    )
    # (channels,) each
    memory = [autocorrelation(rows, 1)[0] for rows in (tables[0], synthetic_rows)]
    worst = int(np.abs(memory[1] - memory[0]).argmax())
    compared = float(memory[0][worst]), float(memory[1][worst])
    channel_words = (
        f"channel {worst + 1} and itself one step later: real {compared[0]:.3f}, "
        f"synthetic {compared[1]:.3f}"
    )
    return (
        mmd_figure,
        coverage_figure,
        _next_step_figure(train, synthetic_rows, test, steps, seed),
        Figure(
            FigureKey("autocorrelation"),
            value=value,
            floor=floor,
            ceiling=ceiling,
            note=f"{note}; {channel_words}",
            compared=compared,
        ),
        dcr_figure,
    )


def evaluate_distances(
    real: Series, synthetic: Series, *, seed: int = 0
) -> tuple[Figure, ...]:
    """MMD, coverage and the nearest real rows, of rows of any shape: images, too,
    between the same ends.
    """
    if len(real) < 4 or len(synthetic) < 2:
        reason = f"{len(real)} real and {len(synthetic)} synthetic rows are too few."
        names = ("mmd", "coverage", "dcr")
        return tuple(
            Figure.absent(FigureKey(name), reason, better=FIGURES[name])
            for name in names
        )
    return _distance_figures(
        *_sample_rows(real, synthetic, "rows", np.random.default_rng([seed, 0]))
    )


def _sample_rows(
    real: Series, synthetic: Series, row_words: str, rng: np.random.Generator
) -> tuple[Series, Series, Series, str]:
    """Some rows of either table, real cells shuffled over the rows, and what is said of
    that.
    """
    tables = [np.asarray(t, dtype=float) for t in (real, synthetic)]
    real_sample, synthetic_sample = (
        t[rng.permutation(len(t))[:MAX_ROWS]] for t in tables
    )
    shuffled = shuffle_columns(
        real_sample.reshape(len(real_sample), -1), len(synthetic_sample), rng
    ).reshape(synthetic_sample.shape)
    note = (
        f"{len(real_sample):,} of {len(real):,} real and {len(synthetic_sample):,} of "
        f"{len(synthetic):,} synthetic {row_words}"
    )
    return real_sample, synthetic_sample, shuffled, note


def _distance_figures(
    real: Series, synthetic: Series, shuffled: Series, note: str
) -> tuple[Figure, ...]:
    """MMD; coverage; how far drawn rows are from the nearest real one: far below real
    rows' own distances, copies.
    """
    width = median_distance(real) or float(pdist(_flatten(real)).mean())
    mmd_figure = Figure.absent(
        FigureKey("mmd"), "all real series are alike, so there is no bandwidth."
    )
    if width:
        half = len(real) // 2
        pairs = ((real, synthetic), (real[:half], real[half:]), (real, shuffled))
        value, floor, ceiling = (mmd(a, b, bandwidth=width) for a, b in pairs)
        mmd_note = f"{note}; rbf kernel, bandwidth {width:.4g}"
        mmd_figure = Figure(
            FigureKey("mmd"), value=value, floor=floor, ceiling=ceiling, note=mmd_note
        )
    value = coverage(real, synthetic)
    floor = coverage(real, shuffled)
    best = expected_coverage(len(real), len(synthetic))
    coverage_figure = Figure(
        FigureKey("coverage"),
        value=value,
        floor=floor,
        ceiling=best,
        better="higher",
        note=note,
    )
    real_sample = real[:_DCR_ROWS]
    value = nearest_distance(synthetic[:_DCR_ROWS], real_sample)
    usual = nearest_distance(real_sample)
    dcr_figure = Figure(
        FigureKey("dcr"),
        value=value,
        floor=0.0,
        ceiling=usual,
        better="higher",
        note=note,
    )
    return mmd_figure, coverage_figure, dcr_figure


def _next_step_figure(
    train: Series, synthetic: Series, test: Series, steps: int, seed: int
) -> Figure:
    tstr, trtr = (
        next_step_mae(rows, test, steps=steps, seed=seed) for rows in (synthetic, train)
    )
    naive = float(np.abs(test[:, 1:] - train.mean(axis=(0, 1))).mean())
    repeat = float(np.abs(np.diff(test, axis=1)).mean())
    note = (
        f"trained on {len(synthetic):,} synthetic and {len(train):,} real series, "
        f"tested on {len(test):,} "
        f"real ones; repeating the last step has an error of {repeat:.4f}"
    )
    return Figure(
        FigureKey("next_step_mae"), value=tstr, floor=trtr, ceiling=naive, note=note
    )


def _incomparable_reason(tables: list[Series]) -> str:
    """Why nothing can be computed, or nothing."""
    real, synthetic, test = tables
    if len(real) < 4 or len(synthetic) < 2 or not len(test):
        return (
            f"{len(real)} real, {len(synthetic)} synthetic and {len(test)} held-out "
            "series are too few."
        )
    if real.shape[1] < 2 or not real.shape[2]:
        return (
            f"series of {real.shape[1]} steps and {real.shape[2]} channels have no "
            "next step."
        )
    if not all(np.isfinite(t).all() for t in tables):
        return "some values are not finite."
    return ""


def _flatten(series: Series) -> NDArray[np.float64]:
    return np.asarray(series, dtype=float).reshape(len(series), -1)


# People's events in order: how much a number remembers

LAGS = (1, 2, 5)
_MIN_PAIRS = 30  # so many pairs of events at least, or their correlation says nothing
_Ranks = NDArray[np.float64]


def lag_figures(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: VisitSchema,
    rng: np.random.Generator,
) -> tuple[Figure, ...]:
    """How far the memory of each number is off, where events have an order; the floor
    is a bootstrap of real people.
    """
    figures = []
    time = schema.time
    tables = [
        rows.sort_values([schema.person, time], kind="stable")
        for rows in (real, synthetic)
        if time is not None
    ]
    owners = [pd.factorize(rows[schema.person])[0] for rows in tables]
    for column in schema.events.columns if tables else ():
        if not isinstance(column, Integer | Real) or column.name == time:
            continue
        ranks = [
            stats.rankdata(rows[column.name].astype(float), nan_policy="omit")
            for rows in tables
        ]
        for lag in LAGS:
            key = FigureKey("lag", lag, column=column.name)
            pairs = [
                _lagged_pairs(*real_correlation, lag)
                for real_correlation in zip(ranks, owners, strict=True)
            ]
            if min(len(pair_owners) for _, _, pair_owners in pairs) < _MIN_PAIRS:
                figures.append(
                    Figure.absent(
                        key, f"fewer than {_MIN_PAIRS} pairs of events are {lag} apart."
                    )
                )
                continue
            (x, y, owner), people = pairs[0], int(owners[0].max()) + 1
            weights = np.bincount(bootstrap(people, people, rng), minlength=people)[
                owner
            ]
            real_correlation = _correlation(x, y)
            synthetic_correlation = _correlation(*pairs[1][:2])
            resampled_correlation = _correlation(x, y, weights)
            note = f"real {real_correlation:.2f}, synthetic {synthetic_correlation:.2f}"
            difference = abs(synthetic_correlation - real_correlation)
            floor = abs(resampled_correlation - real_correlation)
            figures.append(
                Figure(
                    key,
                    value=difference,
                    floor=floor,
                    ceiling=abs(real_correlation),
                    note=note,
                    compared=(real_correlation, synthetic_correlation),
                )
            )
    return tuple(figures)


def _lagged_pairs(
    ranks: _Ranks, owner: Places, lag: int
) -> tuple[_Ranks, _Ranks, Places]:
    """The ranks of a person's events, those of events so many later, and whose they
    are, where both are known.
    """
    first = ranks[:-lag]
    second = ranks[lag:]
    known = np.flatnonzero((owner[:-lag] == owner[lag:]) & ~np.isnan(first + second))
    return first[known], second[known], owner[known]


def _correlation(x: _Ranks, y: _Ranks, weights: Places | None = None) -> float:
    """Pearson's, 0 where one of both never changes."""
    spread = np.cov(x, y, fweights=weights)
    scale = float(np.sqrt(spread[0, 0] * spread[1, 1]))
    return float(spread[0, 1]) / scale if scale else 0.0

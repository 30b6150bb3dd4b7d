"""How much a number remembers: correlations of a person's events one, two and five apart, of values as they came."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from understudy.data.column import Integer, Real
from understudy.data.places import Places
from understudy.data.visits import VisitSchema
from understudy.evaluate.figure import Figure, What
from understudy.evaluate.utility.marginals import bootstrap

LAGS = (1, 2, 5)
_PAIRS = 30  # so many pairs of events at least, or their correlation says nothing
_Ranks = NDArray[np.float64]


def lag_figures(
    real: pd.DataFrame, synthetic: pd.DataFrame, schema: VisitSchema, rng: np.random.Generator
) -> tuple[Figure, ...]:
    """How far the memory of each number is off, where events have an order; the floor is a bootstrap of real people."""
    found, time = [], schema.time
    tables = [rows.sort_values([schema.person, time], kind="stable") for rows in (real, synthetic) if time is not None]
    owners = [pd.factorize(rows[schema.person])[0] for rows in tables]
    for column in schema.events.columns if tables else ():
        if not isinstance(column, Integer | Real) or column.name == time:
            continue
        ranks = [stats.rankdata(rows[column.name].astype(float), nan_policy="omit") for rows in tables]
        for far in LAGS:
            what = What("lag", far, column=column.name)
            pairs = [_pairs(*own, far) for own in zip(ranks, owners, strict=True)]
            if min(len(place) for _, _, place in pairs) < _PAIRS:
                found.append(Figure.absent(what, f"fewer than {_PAIRS} pairs of events are {far} apart."))
                continue
            (x, y, who), people = pairs[0], int(owners[0].max()) + 1
            again = np.bincount(bootstrap(people, people, rng), minlength=people)[who]
            own, made, other = _correlation(x, y), _correlation(*pairs[1][:2]), _correlation(x, y, again)
            note = f"real {own:.2f}, synthetic {made:.2f}"
            found.append(Figure(what, value=abs(made - own), floor=abs(other - own), ceiling=abs(own), note=note))
    return tuple(found)


def _pairs(ranks: _Ranks, owner: Places, far: int) -> tuple[_Ranks, _Ranks, Places]:
    """The ranks of a person's events, those of events so many later, and whose they are, where both are known."""
    first, second = ranks[:-far], ranks[far:]
    at = np.flatnonzero((owner[:-far] == owner[far:]) & ~np.isnan(first + second))
    return first[at], second[at], owner[at]


def _correlation(x: _Ranks, y: _Ranks, weights: Places | None = None) -> float:
    """Pearson's, 0 where one of both never changes."""
    spread = np.cov(x, y, fweights=weights)
    scale = float(np.sqrt(spread[0, 0] * spread[1, 1]))
    return float(spread[0, 1]) / scale if scale else 0.0

"""AIM and MST by their authors' scripts, `mechanisms/` of private-pgm, with their
settings, on mbi.

All pairs of columns of at most 10,000 cells are AIM's workload, as in its script; 80
MB, 1,000 iterations. What counts as a number is said anew here: at their commit mbi
asks chex, which no longer means numbers that jax traces. So is what a group of rows
has: pandas leaves out the columns that it is grouped by, since its third version.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import aim
import chex
import jax
import mbi
import mechanism
import mst
import numpy as np
import pandas as pd
from equal_noise import gaussian_rho
from pandas.core.groupby import DataFrameGroupBy

MOST_CELLS = 10_000
chex.Numeric = jax.Array | np.ndarray | np.generic | float | int


def with_its_columns(
    groups: DataFrameGroupBy, function: Callable[[pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame:
    """`apply` as it was: of whole rows, and a group has a name."""
    made = []
    for name, rows in groups:
        group = rows.copy()
        object.__setattr__(group, "name", name)
        made.append(function(group))
    return pd.concat(made)


DataFrameGroupBy.apply = with_its_columns


def synthesise(
    rows: pd.DataFrame, domain: dict[str, int], task: dict[str, Any]
) -> pd.DataFrame:
    if task["equal"]:
        mechanism.cdp_rho = mst.cdp_rho = gaussian_rho
    data = mbi.Dataset(rows, mbi.Domain.fromdict(domain))
    if task["method"].startswith("MST"):
        return mst.MST(data, task["epsilon"], task["delta"]).df
    pairs = [
        pair for pair in combinations(domain, 2) if data.domain.size(pair) <= MOST_CELLS
    ]
    run = aim.AIM(task["epsilon"], task["delta"], prng=np.random)
    return run.run(data, [(pair, 1.0) for pair in pairs])[1].df

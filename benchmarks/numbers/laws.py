"""Columns of a known law, as incomes, prices, costs, ages and temperatures often are,
in one table.

    pareto          whole numbers from 500 on, exponent 1.5: half lie below 800, one in
                    1,000 above 50,000
    heaped          ages as people tell them: two of three are rounded to tens, one of
                    the rest to fives
    log_normal      prices with two decimals, half below 20, one in 1,000 above 800
    zero_inflated   costs: 0 for seven of ten, else exponential with mean 300
    bimodal         one decimal, around −8 or around 21

Their ranks depend on one hidden number and on a number of their own; the class to
predict depends on the hidden one.
"""

import numpy as np
import pandas as pd
from scipy.special import ndtr

SHARED = 0.6  # of each rank's variance: what the columns have in common
MEANS = {"pareto": 1_500.0, "log_normal": 20 * np.exp(0.72), "zero_inflated": 90.0}


def drawn(rows: int, seed: int = 0) -> pd.DataFrame:
    """So many rows of the five columns and the class."""
    rng = np.random.default_rng([seed, 20])
    hidden = rng.normal(size=rows)
    normal = np.sqrt(SHARED) * hidden[:, None] + np.sqrt(1 - SHARED) * rng.normal(
        size=(rows, 5)
    )
    rank = ndtr(normal)
    age = 18 + 72 * rank[:, 1] ** 1.5
    told = rng.random(rows)
    to = np.where(told < 2 / 3, 10, np.where(told < 7 / 9, 5, 1))
    return pd.DataFrame(
        {
            "pareto": np.floor(500 * (1 - rank[:, 0]) ** (-1 / 1.5)).astype(np.int64),
            "heaped": (np.rint(age / to) * to).astype(np.int64),
            "log_normal": np.round(20 * np.exp(1.2 * normal[:, 2]), 2),
            "zero_inflated": np.rint(
                -300 * np.log1p(-np.maximum(0, (rank[:, 3] - 0.7) / 0.3))
            ).astype(np.int64),
            "bimodal": np.round(
                np.where(rng.random(rows) < 0.4, -8, 21) + 3 * normal[:, 4], 1
            ),
            "class": rng.random(rows) < 1 / (1 + np.exp(-2 * hidden)),
        }
    )

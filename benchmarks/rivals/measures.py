"""What is measured of a synthetic table, whoever made it: on the levels of the schema,
and on numbers as they are.

avd1, avd2, avd3     distance of the shares of levels of one, two, three columns, up to
                     100 sets of columns
boosting_…, linear_… AUC, macro-F1 and Brier score (half the squared error of the classes' probabilities) of
                     gradient boosting and of logistic regression that learned from synthetic rows, on real rows
                     that were held out
impossible           the share of rows that the table's law forbids, where it is known
ks                   the largest difference of two columns' distribution functions of
                     numbers, mean of the columns
"""

from functools import partial

import numpy as np
import pandas as pd
from rival_tables import impossible_share

from common.public_tables import Public
from understudy.data.column import Binned
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.values import numbers_of
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Marginals
from understudy.evaluate.utility.values import ks_and_wasserstein

WAYS = (1, 2, 3)
MODELS = ("boosting", "linear")
SCORES = ("auc", "f1", "brier")
FIGURES = (
    *(f"avd{k}" for k in WAYS),
    *(f"{model}_{score}" for model in MODELS for score in SCORES),
    "impossible",
    "ks",
)


def measured(
    table: Public, made: pd.DataFrame, seed: int, learn: int = 20_000
) -> dict[str, float | None]:
    """Every figure of FIGURES; None where there is none. Models learn from at most
    `learn` rows.
    """
    codec = Codec(table.schema)
    real, fake, test = (
        codec.codes(frame[list(table.schema.names)])
        for frame in (table.train, made, table.test)
    )
    counts = Marginals(real, fake, codec.sizes, ends=(), seed=seed)
    found: dict[str, float | None] = {f"avd{k}": counts.avd(k).value for k in WAYS}
    place = table.schema.names.index(table.target)
    rng = np.random.default_rng([seed, 0])
    sizes = [size for j, size in enumerate(codec.sizes) if j != place]
    train, held = (
        Examples(
            np.delete(codes, place, axis=1), codes[:, place].astype(np.int64)
        ).sample(learn, rng)
        for codes in (fake, test)
    )

    score = partial(classification_scores, held.target)
    for model in MODELS:
        scores, *_ = score_model(
            model, train, held.features, sizes, codec.sizes[place], seed, score
        )
        for name in SCORES:
            value = scores.get(name)
            found[f"{model}_{name}"] = value if isinstance(value, float) else None
    return found | {"impossible": impossible_share(table, made), "ks": _ks(table, made)}


def _ks(table: Public, made: pd.DataFrame) -> float | None:
    gaps = []
    for column in table.schema.columns:
        if isinstance(column, Binned):
            both = (
                numbers_of(column, frame[column.name]) for frame in (table.train, made)
            )
            real, fake = (values[~np.isnan(values)] for values in both)
            gaps.append(
                ks_and_wasserstein(real, fake)[0] if len(real) and len(fake) else 1.0
            )
    return float(np.mean(gaps)) if gaps else None

"""How far synthetic rows are from real ones, in figures of the people's benchmark."""

from functools import partial

import numpy as np
import pandas as pd
from people_tables import Data

from understudy.data.encoding.codec import Codec
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Marginals

SCORES = ("auc", "f1", "brier")


def figures(
    data: Data, rows: pd.DataFrame, models: tuple[str, ...]
) -> dict[str, float]:
    """How far synthetic rows are from real ones, and what a model learns from them."""
    codec = Codec(data.schema)
    real, test, made = (codec.codes(frame) for frame in (data.train, data.test, rows))
    marginals = Marginals(real, made, codec.sizes)
    out = {f"avd{k}": marginals.avd(k).value for k in (2, 3)}
    place = data.schema.names.index(data.target)
    rest = [column for column in range(len(codec.sizes)) if column != place]
    made_rows, test_rows = (
        Examples(codes[:, rest], codes[:, place].astype(np.int64)).sample(
            20_000, np.random.default_rng(0)
        )
        for codes in (made, test)
    )
    score = partial(classification_scores, test_rows.target)
    for model, suffix in (("boosting", ""), ("mlp", "_mlp")):
        if model in models:
            sizes = [codec.sizes[column] for column in rest]
            scores, *_ = score_model(
                model,
                made_rows,
                test_rows.features,
                sizes,
                codec.sizes[place],
                0,
                score,
            )
            out |= {f"{name}{suffix}": scores[name] for name in SCORES}
    return {
        name: round(float(value), 4)
        for name, value in out.items()
        if isinstance(value, float)
    }

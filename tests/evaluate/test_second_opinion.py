"""Another library's figures are its own, agree with ours where both measure the same,
and never crash.
"""

import sys

import numpy as np
import pandas as pd
import pytest

from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.data.schema import Categorical, Real, Schema
from understudy.evaluate.utility.marginals import Marginals
from understudy.evaluate.utility.second_opinion import second_opinion

pytest.importorskip("sdmetrics")
LEVELS = Schema(
    columns=tuple(Categorical(name=name, categories=("x", "y", "z")) for name in "abc")
)


def rows(n: int, seed: int) -> pd.DataFrame:
    draws = np.random.default_rng(seed).choice(
        ["x", "y", "z"], size=(n, 3), p=[0.5, 0.3, 0.2]
    )
    return pd.DataFrame(draws, columns=list("abc"))


def test_on_levels_sdmetrics_is_one_minus_our_avd() -> None:
    real = rows(300, 1)
    synthetic = rows(200, 2)
    figures = {
        figure.name: figure.value for figure in second_opinion(real, synthetic, LEVELS)
    }
    codes = Codec(LEVELS).codes
    ours = Marginals(codes(real), codes(synthetic), Codec(LEVELS).sizes)
    assert figures["sdmetrics_tv_complement"] == pytest.approx(
        1 - ours.avd(1, sets=np.array([[0], [1], [2]])).value
    )
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    assert figures["sdmetrics_contingency_similarity"] == pytest.approx(
        1 - ours.avd(2, sets=pairs).value
    )


@pytest.mark.long
def test_a_copy_is_told_from_the_real_rows_by_no_classifier_and_has_no_new_row():
    frame, schema = toy(rows=120, seed=1)
    figures = {f.name: f for f in second_opinion(frame, frame.copy(), schema)}
    assert figures["sdmetrics_ks_complement"].value == 1
    assert figures["sdmetrics_logistic_detection"].value == pytest.approx(1, abs=0.15)
    assert figures["sdmetrics_new_row_synthesis"].value == 0


def test_columns_that_do_not_vary_give_reasons() -> None:
    schema = Schema(columns=(Real(name="flat", low=0, high=1, bins=4),))
    frame = pd.DataFrame({"flat": [0.5] * 10})
    figures = {f.name: f for f in second_opinion(frame, frame, schema)}
    assert figures["sdmetrics_tv_complement"].reason
    assert figures["sdmetrics_correlation_similarity"].reason


def test_without_the_library_every_figure_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sdmetrics", None)
    assert all(
        "understudy[sdmetrics]" in figure.reason
        for figure in second_opinion(rows(9, 1), rows(9, 2), LEVELS)
    )

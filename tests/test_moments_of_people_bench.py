"""The benchmark of moments from people: the report's law, and cells on a handful of
digits.
"""

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from understudy.privacy.local.naming import NearestCodes

Load = Callable[..., ModuleType]


@pytest.fixture(scope="module")
def bench(load_bench: Load) -> ModuleType:
    return load_bench("people", "moments")


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_simulated_report_is_that_of_the_protocol_with_as_many_codewords_as_one_likes(
    bench: ModuleType, epsilon: float
) -> None:
    near, named, length = bench.nearest(epsilon)
    assert named / near / ((1 - named) / (1 - near)) == pytest.approx(math.exp(epsilon))
    assert 0.95 * length < NearestCodes.best(epsilon).length <= length * 1.001


def test_simulated_reports_are_on_the_mean_the_vector_and_as_long_as_the_formula_says(
    bench: ModuleType,
) -> None:
    own = np.zeros((20_000, 8))
    own[:, 2] = 1
    found = bench.reported(own, 2.0, np.random.default_rng(0))
    np.testing.assert_allclose(
        found.mean(0), own[0], atol=6 / bench.nearest(2.0)[2] / math.sqrt(20_000)
    )
    assert np.square(found[:, 0]).mean() == pytest.approx(
        1 / bench.nearest(2.0)[2] ** 2, rel=0.05
    )


@pytest.mark.parametrize(
    "method",
    ["class means", "two groups", "shared-moments", "shared-moments, by class"],
)
def test_a_cell_says_how_often_a_rule_is_right(bench: ModuleType, method: str) -> None:
    args = bench.parser().parse_args(
        ["--only", "digits", "--methods", method, "--epsilons", "8", "--seeds", "1"]
    )
    args.data = Path()
    args.most = 600
    (job,) = bench.jobs(args)
    row = bench.measure(job)
    assert set(row) <= set(bench.FIELDS)
    assert row["people"] == 480
    assert 0.1 < row["accuracy"] <= 1

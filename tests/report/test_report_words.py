"""Figures as text: a price is never understated."""

import math

import pytest

from understudy.privacy.accounts.budget import shown
from understudy.report.words import (
    at_price,
    format_bytes,
    join_words,
    percent,
    power_of_ten,
    signed,
)


@pytest.mark.parametrize("epsilon", [None, math.inf])
def test_no_guarantee_is_said_in_words(epsilon: float | None) -> None:
    assert shown(epsilon) == "no guarantee"


def test_small_things_are_written_short() -> None:
    assert [power_of_ten(d) for d in (1e-5, 2.5e-6, 0.0)] == ["10⁻⁵", "2.5·10⁻⁶", "0"]
    assert at_price(1.0, 1e-5) == "ε\u00a0=\u00a01 at δ\u00a0=\u00a010⁻⁵"
    assert [format_bytes(n) for n in (0, 999, 1_500, 2_500_000, 3e9)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 MB",
        "3.0 GB",
    ]
    assert [percent(s) for s in (0, 0.001, 0.126, 1)] == ["0", "<1", "13", "100"]
    assert signed(-0.5) == "−0.50"
    assert [join_words(x) for x in ([], ["a"], ["a", "b", "c"])] == [
        "",
        "a",
        "a, b and c",
    ]

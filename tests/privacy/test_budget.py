"""A budget is checked once and cannot change."""

import dataclasses
import math

import pytest

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget


def test_a_budget_is_frozen_and_reads_as_a_limit() -> None:
    budget = Budget(2.0, 1e-5)
    assert budget.against == "anyone"
    assert str(budget) == "ε=2 at δ=1e-05 against anyone"
    assert Budget(**budget.to_dict()) == budget
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.epsilon = 3.0  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [
        (0, 1e-5),
        (-1, 1e-5),
        (math.nan, 1e-5),
        (1, -1e-9),
        (1, 1),
        (1, math.nan),
        (1, True),
        (1, 1e-5, "nobody"),
    ],
)
def test_a_budget_that_limits_nothing_is_refused(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError):
        Budget(*wrong)  # type: ignore[arg-type]


def test_pure_and_unlimited_budgets_exist() -> None:
    assert Budget(1.0, 0).delta == 0
    assert Budget(math.inf, 0).epsilon == math.inf

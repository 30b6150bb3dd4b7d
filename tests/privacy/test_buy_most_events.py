"""A bound on events is bought: near the quantile, at the stated price, and moved by
nobody more than that.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.visits import Visits, VisitSchema, read_visits
from understudy.ground.errors import BudgetExceeded, ConfigError, PrivacyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.buy_most_events import buy_most_events, candidates, scores
from understudy.privacy.noise import SecureRng
from visit_cases import clinic, frames

CEILING = clinic(most_events=4096)


def people_with(numbers: list[int]) -> Visits:
    total = sum(numbers)
    return Visits(
        person_codes=np.zeros((len(numbers), 2), dtype=np.int32),
        events=np.zeros((total, 2), dtype=np.int32),
        times=np.zeros(total, dtype=np.int64),
        starts=np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64),
        people=np.arange(len(numbers)),
        schema=CEILING,
        source="made up",
    )


@settings(max_examples=50)
@given(
    numbers=st.lists(st.integers(0, 5000), min_size=1, max_size=12),
    percent=st.integers(1, 99),
    gone=st.integers(0, 11),
)
def test_one_person_moves_no_score_by_more_than_the_sensitivity(
    numbers: list[int], percent: int, gone: int
) -> None:
    bounds = candidates(CEILING)
    without = [n for place, n in enumerate(numbers) if place != gone % len(numbers)]
    one, other = (
        scores(people_with(each), bounds, percent) for each in (numbers, without)
    )
    assert int((one - other).abs().max()) <= max(percent, 100 - percent)


def test_the_bound_is_near_the_quantile_and_paid_for() -> None:
    rng = np.random.default_rng(1)
    numbers = rng.poisson(4, 3000).tolist()
    ledger = Ledger.rehearsal(holder="a", budget=Budget(1.0, 1e-6))
    found = buy_most_events(
        people_with(numbers), ledger, epsilon=1.0, run="r", rng=SecureRng.from_seed(1)
    )
    assert found.most_events in (7, 8, 9)
    assert ledger.spent() == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(BudgetExceeded):
        buy_most_events(
            people_with(numbers),
            ledger,
            epsilon=0.1,
            run="r",
            rng=SecureRng.from_seed(2),
        )


def test_choices_of_neighbours_differ_by_no_more_than_epsilon() -> None:
    """Exactly, by the law of the mechanism on a small grid."""
    epsilon = 0.7
    percent = 90
    bounds = (1, 2, 4)

    def law(numbers: list[int]) -> np.ndarray:
        found = scores(people_with(numbers), bounds, percent).double().numpy()
        odds = np.exp(epsilon * (found - found.max()) / (2 * percent))
        return np.asarray(odds / odds.sum())

    for other in ([0], [1], [2], [3], [9]):
        ratio = law([1, 1, 2, 3]) / law([1, 1, 2, 3, *other])
        assert np.abs(np.log(ratio)).max() <= epsilon + 1e-12


def test_what_cannot_be_bought_costs_nothing(tmp_path: Path) -> None:
    people = people_with([1, 2])
    with Ledger(tmp_path / "a.ledger", holder="a", budget=Budget(1.0, 1e-6)) as real:
        with pytest.raises(PrivacyError, match="repeated or guessed"):
            buy_most_events(
                people, real, epsilon=0.5, run="r", rng=SecureRng.from_seed(1)
            )
        for bad in (
            {"epsilon": 0.0},
            {"epsilon": math.nan},
            {"epsilon": 0.5, "percent": 100},
        ):
            with pytest.raises(ConfigError):
                buy_most_events(people, real, **bad, run="r", rng=SecureRng())  # type: ignore[arg-type]
        assert real.spent() == 0


def test_the_command_writes_a_schema_with_the_bound(tmp_path: Path) -> None:
    who, events = frames()
    (tmp_path / "tables").mkdir()
    who.to_csv(tmp_path / "tables" / "people.csv", index=False)
    events.to_csv(tmp_path / "tables" / "events.csv", index=False)
    CEILING.save(tmp_path / "schema.toml")
    words = ["schema", "buy-events", tmp_path / "tables", tmp_path / "schema.toml"]
    words += [
        "--ledger",
        tmp_path / "a.ledger",
        "--epsilon",
        "2",
        "--out",
        tmp_path / "bought.toml",
    ]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    bought = VisitSchema.load(tmp_path / "bought.toml")
    assert 1 <= bought.most_events <= 4096
    assert (
        read_visits(tmp_path / "tables", bought).codes().numbers.max()
        <= bought.most_events
    )
    with Ledger(tmp_path / "a.ledger") as ledger:
        assert ledger.spent() == pytest.approx(2.0, rel=1e-4)

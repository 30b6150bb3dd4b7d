"""What the console says of a contract's price to one person agrees with what a finished run says."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from console_cases import contract, holder, visitor

import understudy as us
from understudy.privacy.accounts.budget import GUESSED_BY, Budget, right_at
from understudy.services.console.holder import HolderHome, Offered


def offered(home: Path, **more: object) -> Offered:
    (one,) = HolderHome(holder(home, contract(**more))).offered()  # type: ignore[arg-type]
    return one


@pytest.mark.filterwarnings("ignore::understudy.ground.errors.UtilityWarning")
def test_a_contract_forecasts_the_guess_that_a_finished_run_of_its_price_states(tmp_path: Path) -> None:
    one = offered(tmp_path / "home", epsilon=2.0)
    share, by = one.guess
    assert by == "forecast"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ill": rng.integers(0, 2, 300).astype(bool), "paid": rng.integers(0, 9, 300)})
    schema = us.Schema(columns=(us.Boolean(name="ill"), us.Integer(name="paid", low=0, high=8, bins=9)))
    budget = Budget(2.0, one.price.delta)
    federation = us.Federation.rehearsal({"clinic": frame}, {"clinic": schema}, budget=budget, seed=0)
    finished = us.train("gram", federation, steps=20).privacy.guesses()
    assert finished <= share + 0.005 < finished + 0.03
    assert share < right_at(2.0, one.price.delta) - 0.1


def test_a_price_whose_noise_the_settings_do_not_tell_is_bounded_by_the_price_alone(tmp_path: Path) -> None:
    one = offered(tmp_path, epsilon=2.0, protocol="verti-gan")
    assert one.guess == (right_at(2.0, one.price.delta), "bound")


def test_the_page_of_a_contract_says_from_what_its_guess_follows(tmp_path: Path) -> None:
    with visitor(holder(tmp_path, contract(epsilon=2.0))) as steward:
        assert GUESSED_BY["forecast"] in steward.see()

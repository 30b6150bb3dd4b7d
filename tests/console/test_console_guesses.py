"""What the console says of a contract's price to one person agrees with what a finished
run says.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from console_cases import contract, holder, visitor
from scipy.stats import norm

import understudy as us
from understudy.privacy.accounts.accounting import distance, planned_gaussians
from understudy.privacy.accounts.budget import GUESSED_BY, Budget, best_guess
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.training import needed_multiplier
from understudy.services.console.holder import HolderHome, Offered


def offered(home: Path, **more: object) -> Offered:
    (one,) = HolderHome(holder(home, contract(**more))).offered()  # type: ignore[arg-type]
    return one


@pytest.mark.filterwarnings("ignore::understudy.ground.errors.UtilityWarning")
def test_a_contract_forecasts_the_guess_that_a_finished_run_of_its_price_states(
    tmp_path: Path,
) -> None:
    one = offered(tmp_path / "home", epsilon=2.0)
    share = one.guess.share
    assert one.guess.by == "forecast"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"ill": rng.integers(0, 2, 300).astype(bool), "paid": rng.integers(0, 9, 300)}
    )
    schema = us.Schema(
        columns=(us.Boolean(name="ill"), us.Integer(name="paid", low=0, high=8, bins=9))
    )
    budget = Budget(2.0, one.price.delta)
    federation = us.Federation.rehearsal(
        {"clinic": frame}, {"clinic": schema}, budget=budget, seed=0
    )
    finished = us.train("gram", federation, steps=20).privacy.guess().share
    assert finished <= share + 0.005 < finished + 0.03
    assert share < best_guess(2.0, one.price.delta).share - 0.1


def test_a_price_whose_noise_the_settings_do_not_tell_is_bounded_by_the_price_alone(
    tmp_path: Path,
) -> None:
    one = offered(tmp_path, epsilon=2.0, protocol="verti-gan")
    assert one.guess == best_guess(2.0, one.price.delta)


# the price that a run costs at most, and its settings
KNOWN: dict[str, tuple[float, float, dict[str, object]]] = {
    "verti-gan": (2.0, 1e-6, {"sampling": "shared", "rounds": 40}),
    "vd-gan-pate": (2.0, 1e-6, {"rounds": 20}),
    "sgde": (1.5, 1e-6, {"steps": 20}),
    "gen-fl": (4.0, 1e-5, {"share": 0.0, "rounds": 5}),
    "two-aggregators": (1.0, 1e-6, {"aggregator": "insurer"}),
}


@pytest.mark.parametrize("protocol", KNOWN)
def test_a_guess_follows_from_the_mechanism_where_settings_tell_it(
    tmp_path: Path, protocol: str
) -> None:
    epsilon, delta, settings = KNOWN[protocol]
    one = offered(tmp_path, epsilon=2.0, protocol=protocol, **settings)
    gaussian = planned_gaussians(epsilon, delta)
    assert gaussian is not None
    assert one.guess.by == "forecast"
    assert (
        0.5
        < one.guess.share
        <= best_guess(distance=distance(gaussian)).share
        < best_guess(epsilon, delta).share
    )


def test_the_guess_at_who_is_with_a_silo_is_exact_for_one_step_of_its_training(
    tmp_path: Path,
) -> None:
    """A person is in the one batch at the rate, and is then guessed as often as two
    bells overlap.
    """
    one = offered(tmp_path, epsilon=1.0, protocol="sgde", steps=1, rate=0.2)
    noise = needed_multiplier(Recipe(steps=1, rate=0.2), Budget(1.0, one.price.delta))
    exact = 0.5 + 0.1 * (2 * norm.cdf(0.5 / noise) - 1)
    assert exact - 1e-12 <= one.guess.share <= exact + 1e-3


def test_the_page_of_a_contract_says_from_what_its_guess_follows(
    tmp_path: Path,
) -> None:
    with visitor(holder(tmp_path, contract(epsilon=2.0))) as steward:
        assert GUESSED_BY["forecast"] in steward.see()

"""Who is asked, who lies, and what a report looks like: the pieces of every protocol
over rows.
"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import raises
from understudy.ground.errors import BudgetExceeded, ConfigError, Effect, PartyError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.cross_device.reporting import (
    ESTIMATION,
    SELECTION,
    Poison,
    Reporting,
    form_of,
    from_message,
    to_message,
)
from understudy.protocols.cross_device.rounds import Cohorts
from understudy.protocols.papers.sign_ds import protocol as sign_ds


@settings(max_examples=60)
@given(
    people=st.integers(1, 12),
    rounds=st.integers(1, 12),
    max_reports=st.integers(1, 6),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_every_round_finds_a_full_cohort_and_nobody_is_asked_more_often_than_max_reports(
    people: int, rounds: int, max_reports: int, seed: int, data: st.DataObject
) -> None:
    """Also where the people's reports are exactly as many as the rounds need."""
    most = people * min(max_reports, rounds) // rounds
    clients_per_round = data.draw(st.integers(1, most)) if most else None
    if clients_per_round is None:
        return
    cohorts = Cohorts(
        {"all": people},
        rounds=rounds,
        clients_per_round=clients_per_round,
        max_reports=max_reports,
        seed=seed,
    )
    asked = np.zeros(people, dtype=int)
    for round in range(1, rounds + 1):
        (who,) = cohorts.pick(round).values()
        assert len(set(who.tolist())) == clients_per_round
        asked[who] += 1
        assert asked.max() <= max_reports
    assert (asked == cohorts.asked).all()


def test_how_people_are_spread_over_parties_does_not_change_who_is_asked() -> None:
    how = {"rounds": 20, "clients_per_round": 7, "max_reports": 4, "seed": 3}
    one = Cohorts({"all": 40}, **how)
    three = Cohorts({"a": 11, "b": 1, "c": 28}, **how)
    first = {"a": 0, "b": 11, "c": 12}
    for round in range(1, 21):
        spread = [first[name] + who for name, who in three.pick(round).items()]
        assert torch.equal(torch.cat(spread), one.pick(round)["all"])
    assert three.most() == {
        "a": one.asked[:11].max(),
        "b": one.asked[11],
        "c": one.asked[12:].max(),
    }


def test_cohorts_are_uniform_where_nothing_stands_against_it() -> None:
    counts = np.zeros(10)
    for seed in range(600):
        counts[
            Cohorts(
                {"all": 10}, rounds=5, clients_per_round=3, max_reports=5, seed=seed
            ).pick(1)["all"]
        ] += 1
    assert np.abs(counts - 180).max() < 5 * np.sqrt(600 * 0.3 * 0.7)


@pytest.mark.parametrize(
    ("people", "how", "words"),
    [
        (
            1000,
            {"rounds": 500, "clients_per_round": 250, "max_reports": 1},
            "Missing: 124,000. Raise max_reports to 125, or",
        ),
        (
            100,
            {"rounds": 10, "clients_per_round": 250, "max_reports": 99},
            "there are 100. Missing: 150. Ask fewer",
        ),
    ],
)
def test_too_few_people_are_counted_before_anything_is_asked(
    people: int, how: dict[str, int], words: str
) -> None:
    with raises(ConfigError, effect=Effect.NOTHING_CHARGED) as error:
        Cohorts({"all": people}, **how, seed=0)
    assert words in str(error.value)


def test_the_advised_cap_is_the_smallest_that_works() -> None:
    for max_reports, works in ((124, False), (125, True)):
        try:
            Cohorts(
                {"all": 1000},
                rounds=500,
                clients_per_round=250,
                max_reports=max_reports,
                seed=0,
            )
            assert works
        except ConfigError:
            assert not works


def test_rounds_that_were_lost_end_a_run_that_has_nobody_to_spare() -> None:
    cohorts = Cohorts({"all": 4}, rounds=2, clients_per_round=2, max_reports=1, seed=0)
    cohorts.pick(1)
    cohorts.pick(1)  # asked again after an interruption
    with pytest.raises(BudgetExceeded, match="0 people are below max_reports"):
        cohorts.pick(2)


def test_liars_are_an_exact_share_and_follow_from_the_seed() -> None:
    poison = Poison(share=0.2)
    assert int(poison.liars(50, 1).sum()) == 10
    assert torch.equal(poison.liars(50, 1), poison.liars(50, 1))
    assert not torch.equal(poison.liars(50, 1), poison.liars(50, 2))
    assert not Poison(share=0.0).liars(50, 1).any()


@pytest.mark.parametrize(
    "poison", [1, "flip", True, [], {"sort": "flip"}, {"share": "half"}, {1: 2}]
)
def test_a_server_that_says_something_else_than_who_lies_is_refused(
    poison: Any,
) -> None:
    with pytest.raises(ConfigError):
        sign_ds.Config(epsilon_total=1.0, poison=poison)


@pytest.mark.parametrize("kind", ["random", "flip"])
def test_lies_stand_in_the_liars_updates_alone(kind: str) -> None:
    true = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    told = true.clone()
    liars = torch.tensor([True, False, False, True, False, False])
    Poison(kind=kind, scale=2.0).spoil(told, liars, SecureRng.from_seed(1))
    assert torch.equal(told[~liars], true[~liars])
    torch.testing.assert_close(told[liars].norm(dim=1), 2 * true[liars].norm(dim=1))
    along = torch.cosine_similarity(told[liars], true[liars])
    assert (along < -0.99).all() if kind == "flip" else (along.abs() < 0.6).all()


def test_a_zero_update_stays_a_zero_update_when_a_liar_has_learned_nothing() -> None:
    told = torch.zeros(2, 5)
    Poison().spoil(told, torch.tensor([True, True]), SecureRng.from_seed(1))
    assert not told.any()


@pytest.mark.parametrize("reporter", [*SELECTION, *ESTIMATION])
def test_every_reporter_charges_its_epsilon_and_its_reports_survive_the_line(
    reporter: str,
) -> None:
    settings = Reporting(
        reporter=reporter, epsilon_total=12.0, max_reports=2, rate=0.5, chosen=2
    )
    mechanism = settings.mechanism(60, clip=0.1)
    assert mechanism.event == PureDp(6.0)
    updates = torch.randn(7, 60)
    rng = SecureRng.from_seed(2)
    first = mechanism.report(updates[:4], rng)
    second = mechanism.report(updates[4:], rng)
    read = from_message(to_message([first, second]), form_of(mechanism), 7)
    torch.testing.assert_close(read.total(), first.total() + second.total())


def test_bare_updates_have_no_price() -> None:
    mechanism = Reporting(reporter="none").mechanism(3)
    updates = torch.randn(4, 3)
    read = from_message(
        to_message([mechanism.report(updates, SecureRng())]), form_of(mechanism), 4
    )
    torch.testing.assert_close(read.total(), updates.double().sum(0))
    assert type(mechanism.event).__name__ == "NonPrivateDpEvent"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: None,
        lambda m: m | {"values": m["values"].double()},
        lambda m: m | {"values": m["values"][:-1]},
        lambda m: m | {"indices": None},
        lambda m: m | {"indices": m["indices"] + 60},
        lambda m: m | {"indices": m["indices"] - 60},
        lambda m: m | {"indices": m["indices"].repeat(1, 2)},
    ],
)
def test_a_reply_that_is_no_report_is_not_used(spoil: object) -> None:
    mechanism = Reporting(epsilon=4.0, chosen=2).mechanism(60)
    message = to_message([mechanism.report(torch.randn(5, 60), SecureRng())])
    with pytest.raises(PartyError, match="each of 5 people"):
        from_message(spoil(message), form_of(mechanism), 5)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "either epsilon"),
        ({"epsilon": 1.0, "epsilon_total": 2.0}, "either epsilon"),
        ({"reporter": "none", "epsilon": 1.0}, "neither epsilon"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": 1.0, "max_reports": 0}, "max_reports must be"),
        ({"epsilon": 1.0, "top": 1.5}, "top must lie"),
        ({"epsilon": 1.0, "reporter": "em-mdx"}, 'Did you mean "em-mds"?'),
    ],
)
def test_settings_without_sense_are_refused(
    more: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Reporting(**more)  # type: ignore[arg-type]
    assert words in str(error.value)

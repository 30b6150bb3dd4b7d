"""The statement says what the accountant says, for every party, person and onlooker,
and never less.
"""

import dataclasses
import json
import math

import dp_accounting as dp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import PureDp, epsilon
from understudy.privacy.accounts.budget import Budget, shown, shown_left
from understudy.privacy.accounts.statement import (
    OUTSIDE,
    PartyPrivacy,
    PrivacyStatement,
)

PURE = Budget(4.0, 0.0)
STEP = dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(2.0))


def party(name: str, spend: dict[dp.DpEvent, int], **more: object) -> PartyPrivacy:
    plain = {
        "budget": PURE,
        "outsider": spend,
        "insider": spend,
        "noise": "AES-256-CTR",
        "people": 1200,
    }
    return PartyPrivacy(name=name, **(plain | more))  # type: ignore[arg-type]


CLINIC = party("clinic", {PureDp(0.25): 8}, rounds=4)
INSURER = party("insurer", {PureDp(0.125): 4}, insider={PureDp(0.5): 3})
BOTH = PrivacyStatement(parties=(CLINIC, INSURER), run="blue")


def test_a_persons_price_is_composed_over_the_parties_that_hold_them() -> None:
    assert BOTH.epsilon("clinic", "server") == 2.0
    assert BOTH.epsilon("insurer", "outsider") == 0.5
    assert (
        BOTH.epsilon("insurer", "server")
        == BOTH.epsilon("insurer", "another_party")
        == 1.5
    )
    assert BOTH.epsilon(against="outsider") == 2.5
    assert BOTH.epsilon(against="server") == 3.5
    # the insurer looks at the clinic
    assert BOTH.epsilon(against="another_party") == 2.0


def test_a_person_who_is_with_one_party_pays_the_dearest_party_at_most() -> None:
    apart = dataclasses.replace(BOTH, same_people=False)
    assert [
        apart.epsilon(against=who) for who in ("outsider", "server", "another_party")
    ] == [2.0, 2.0, 2.0]


def test_the_composed_price_is_at_the_largest_delta_and_below_the_sum() -> None:
    one = party("one", {STEP: 300}, budget=Budget(8.0, 1e-5))
    two = party("two", {STEP: 200}, budget=Budget(8.0, 1e-6))
    both = PrivacyStatement(parties=(one, two))
    composed = both.epsilon()
    assert both.delta == 1e-5
    assert composed == epsilon({STEP: 500}, 1e-5)
    assert (
        max(both.epsilon("one"), both.epsilon("two"))
        < composed
        < both.epsilon("one") + both.epsilon("two")
    )


def test_an_insider_never_learns_less_than_an_outsider() -> None:
    odd = party("odd", {PureDp(1.0): 2}, insider={PureDp(0.1): 1})
    assert PrivacyStatement(parties=(odd,)).epsilon(against="server") == 2.0


def test_the_text_names_everything_a_privacy_officer_asks_for() -> None:
    text = str(dataclasses.replace(BOTH, unguarded=("the picture on page 2",)))
    for words in (
        "Privacy of run blue",
        "add or remove one person",
        "privacy loss distributions, dp_accounting 0.6",
        "an outsider who sees the release",
        "the server",
        "another party",
        "ε=4 at δ=0 against anyone",
        "8 ×",
        "a pure mechanism, ε=0.25",
        "to the server and other parties",
        "noise: AES-256-CTR",
        "A person over all parties, at δ=0 (the parties hold the same people, so "
        "their prices compose)",
        "the picture on page 2",
        *OUTSIDE,
    ):
        assert words in text
    clinic = next(line for line in text.splitlines() if line.startswith("  clinic"))
    header = next(line for line in text.splitlines() if line.startswith("  party"))
    for title, value in {
        "people": "1,200",
        "ε of the run": "2",
        "ε of a round": "0.5",
        "rounds": "4",
    }.items():
        assert clinic[header.index(title) :].split()[0] == value
    assert (
        "another party"
        not in str(PrivacyStatement(parties=(CLINIC,))).split("Outside")[0]
    )


def test_the_file_holds_the_same_figures_as_the_text_and_no_infinity() -> None:
    bare = party("bare", {dp.NonPrivateDpEvent(): 1}, budget=Budget(math.inf, 0.0))
    values = json.loads(
        json.dumps(
            dataclasses.replace(BOTH, parties=(CLINIC, bare)).to_dict(), allow_nan=False
        )
    )
    clinic, none = values["parties"]
    assert clinic["epsilon"] == {"outsider": 2.0, "server": 2.0, "another_party": 2.0}
    assert clinic["epsilon_round"]["server"] == 0.5
    assert clinic["uses"]["insider"][0]["count"] == 8
    assert none["epsilon"]["outsider"] is none["budget"]["epsilon"] is None
    assert values["person"]["epsilon"] == {
        "outsider": None,
        "server": None,
        "another_party": None,
    }
    assert values["outside"] == list(OUTSIDE)
    assert "no guarantee" in str(PrivacyStatement(parties=(bare,)))


@given(st.floats(1e-300, 1e300))
@example(1.99999)
@example(12345.6)
def test_printed_figures_are_rounded_up(value: float) -> None:
    assert value <= float(shown(value)) * (1 + 1e-12)
    assert float(shown(value)) <= value * 1.0011
    assert value * 0.9989 <= float(shown_left(value)) <= value * (1 + 1e-12)


@pytest.mark.parametrize("value", [5e-324, 1e-310, 9.9e-301])
def test_an_epsilon_next_to_nothing_is_not_shown_as_nothing(value: float) -> None:
    assert float(shown(value)) == 1e-300
    assert shown_left(value) == "0"


def test_a_statement_about_nobody_is_refused() -> None:
    with pytest.raises(ConfigError):
        PrivacyStatement(parties=())
    with pytest.raises(ConfigError):
        party("clinic", {}, rounds=0)
    with pytest.raises(ConfigError):
        BOTH.epsilon(against="nobody")


def test_charges_for_one_joint_release_are_paid_once_by_a_person() -> None:
    joint = dataclasses.replace(BOTH, one_release=True)
    assert [
        joint.epsilon(against=who) for who in ("outsider", "server", "another_party")
    ] == [2.0, 2.0, 2.0]
    assert joint.epsilon("insurer", "server") == BOTH.epsilon("insurer", "server")
    assert "charges are for the same release" in str(joint)
    assert joint.to_dict()["person"]["one_release"] is True


def test_a_number_of_people_that_was_not_disclosed_is_not_shown() -> None:
    unsaid = PrivacyStatement(parties=(party("one", {PureDp(1.0): 1}, people=None),))
    assert "not disclosed" in str(unsaid)
    assert unsaid.to_dict()["parties"][0]["people"] is None

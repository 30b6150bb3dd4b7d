"""A figure of quality on an offer: what it costs, what it counts, who can ask for it,
and which cards are refused.
"""

import math
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent
from test_sgde_gram import BUDGET, POOL, SCHEMA, rows

from refusals import raises
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PrivacyError,
    UnderstudyError,
)
from understudy.models.offered import OfferedGram
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.papers.sgde import counted as judging
from understudy.protocols.papers.sgde.counted import PairCounts
from understudy.protocols.papers.sgde.offer import pack_offer, unpack_offer
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.sgde.party import (
    FIGURE,
    Push,
    SgdeParty,
    Subscribe,
    train_offers,
)
from understudy.protocols.papers.sgde.sums import quality_figure

pytestmark = pytest.mark.usefixtures("short_fits")

ASKED = 1.0
KIND = {"kind": "gram", "quality_epsilon": ASKED}


def party(
    ledger: Ledger | None = None, *, budget: Budget = BUDGET, **more: Any
) -> SgdeParty:
    held = read_table(rows(400), SCHEMA)
    book = ledger or Ledger.rehearsal("s", budget)
    return SgdeParty(
        "s", held, book, run="r", budget=budget, rng=SecureRng.from_seed(1), **more
    )


def subscribe(**settings: Any) -> Subscribe:
    return Subscribe(
        requirements=POOL.to_dict(), config=asdict(Recipe(**KIND)) | settings
    )


@cache
def made() -> tuple[Generator, Ledger]:
    ledger = Ledger.rehearsal("s", BUDGET)
    (offer,) = train_offers(
        "s",
        read_table(rows(400), SCHEMA),
        ledger,
        POOL,
        budget=BUDGET,
        run="r",
        recipe=Recipe(**KIND),
        rng=SecureRng.from_seed(1),
    )
    return offer, ledger


def test_the_figure_is_a_part_of_the_offers_price_and_has_a_line_of_its_own_in_the_ledger():
    offer, ledger = made()
    quality = offer.card["quality"]
    network = offer.network
    assert isinstance(network, OfferedGram)
    assert {event.sigma: count for event, count in ledger.spend().items()} == {
        network.noise[0]: 4,
        network.noise[1]: 6,
        quality["noise"]: 2,
    }
    assert offer.card["epsilon"] == pytest.approx(epsilon(ledger.spend(), 1e-5))
    assert 3.9 < offer.card["epsilon"] <= BUDGET.epsilon
    assert 0.98 * ASKED < quality["epsilon"] <= ASKED
    assert [entry.description for entry in ledger.entries()].count(FIGURE) == 1


def test_the_figure_is_near_what_a_classifier_of_the_rows_has() -> None:
    quality = made()[0].card["quality"]
    frame = rows(400)
    best = frame.groupby("one")["class"].transform(lambda own: own.mode()[0])
    truth = float((best == frame["class"]).mean())
    assert quality["low"] < truth < quality["high"]
    assert abs(quality["people"] - 400) < 6 * quality["noise"]


@pytest.mark.long
def test_without_noise_the_counts_are_those_of_people_and_somebody_with_many_rows_counts_once():
    schema = replace(SCHEMA, person="id")
    frame = rows(60)
    frame["id"] = [f"p{number}" for number in range(60)]
    many = pd.concat(
        [frame, *[frame[:1].assign(**{"class": "right"})] * 30], ignore_index=True
    )
    held = read_table(frame, schema)
    (offer,) = PairCounts(POOL, Recipe(kind="gram"), None).make(
        held, SecureRng.from_seed(0)
    )
    assert isinstance(offer, OfferedGram)
    alone = judging.release_figure(offer, held, POOL, 0.0, SecureRng.from_seed(0))
    assert alone == judging.release_figure(
        offer,
        read_table(many, schema, one_row_each=False),
        POOL,
        0.0,
        SecureRng.from_seed(0),
    )
    right, people = alone
    assert people == 60
    fewer = judging.release_figure(
        offer, read_table(frame[1:], schema), POOL, 0.0, SecureRng.from_seed(0)
    )
    assert (right - fewer[0], people - fewer[1]) in ((0, 1), (1, 1))


@pytest.mark.parametrize(
    "asked", [0, -1.0, math.nan, math.inf, 1e-300, 1e300, True, "1"]
)
def test_a_figure_at_an_extreme_price_is_refused_and_nothing_is_charged(
    asked: Any,
) -> None:
    one = party()
    with pytest.raises(UnderstudyError):
        one.answer(subscribe(quality_epsilon=asked))
    with pytest.raises(UnderstudyError):
        one.answer(Push())
    assert not one.ledger.spend()


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"quality_epsilon": 2.1}, PrivacyError, "leaves too little for the offer"),
        ({"quality_epsilon": 50.0}, PrivacyError, "leaves too little for the offer"),
        ({"kind": "marginals"}, ConfigError, 'for kind="gram" or kind="moments" alone'),
        ({"kind": "beta-vae"}, ConfigError, 'for kind="gram" or kind="moments" alone'),
        ({"private": False}, ConfigError, "under noise"),
    ],
)
def test_a_figure_that_cannot_be_paid_beside_the_offer_is_refused_before_anything_is_charged(
    settings: dict[str, Any], error: type[Exception], said: str
) -> None:
    one = party()
    with pytest.raises(error, match=said):
        one.answer(subscribe(**settings))
    assert not one.ledger.spend()


def test_the_whole_price_must_be_within_the_ledger_before_anything_is_charged() -> None:
    ledger = Ledger.rehearsal("s", Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceeded):
        party(ledger).answer(subscribe())
    assert not ledger.spend()


def test_a_pool_that_asks_for_a_figure_that_was_not_agreed_to_gets_none() -> None:
    one = party(agreed=asdict(Recipe(kind="gram")))
    with pytest.raises(
        MessageError, match="another quality_epsilon than was agreed to"
    ):
        one.answer(subscribe())
    assert not one.ledger.spend()


def test_what_was_spent_since_the_pool_was_joined_is_found_before_the_figure_is_charged():
    one = party()
    one.answer(subscribe())
    one.ledger.charge(GaussianDpEvent(2.0), run="another", description="something else")
    spent = one.ledger.spend()
    with pytest.raises(BudgetExceeded):
        one.answer(Push())
    assert one.ledger.spend() == spent


@pytest.mark.long
def test_a_second_figure_is_refused_also_by_a_party_that_was_put_back() -> None:
    one = party(Ledger.rehearsal("s", Budget(20.0, 1e-5)))  # which could pay for more
    one.answer(subscribe())
    before = one.state_dict()
    one.answer(Push())
    spent = one.ledger.spend()
    with pytest.raises(UnderstudyError):
        one.answer(Push())
    one.load_state_dict(before)
    with pytest.raises(PrivacyError, match="once in a run"):
        one.answer(Push())
    assert one.ledger.spend() == spent


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"accuracy": 0.99}, ArtefactError, "its counts give"),
        ({"low": 0.86}, ArtefactError, "its counts give"),
        ({"high": 0.87}, ArtefactError, "its counts give"),
        ({"right": 600}, ArtefactError, "nobody can have counted"),
        ({"right": -600}, ArtefactError, "nobody can have counted"),
        ({"right": 300.0}, ArtefactError, "no figure"),
        ({"right": True}, ArtefactError, "no figure"),
        ({"people": 10**400}, ArtefactError, "no figure"),
        ({"accuracy": math.nan}, ArtefactError, "no figure"),
        ({"noise": math.inf}, ArtefactError, "no figure"),
        ({"noise": 0}, PrivacyError, "worth ε=inf"),
        ({"noise": 1.0}, PrivacyError, "is worth ε="),
        ({"noise": 5e-324}, PrivacyError, "worth ε=inf"),
        ({"epsilon": 0.1}, PrivacyError, "is worth ε="),
        ({"epsilon": None}, ArtefactError, "no figure"),
        ({"delta": 0.5}, PrivacyError, "is worth ε="),
        ({"delta": 0.0}, PrivacyError, "worth ε=inf"),
        ({"more": 1}, ConfigError, "quality has"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(
    changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    offer = pack_offer(dict(made()[0].card), made()[0].network)  # type: ignore[arg-type]
    assert unpack_offer(POOL, offer).card["quality"]
    offer["card"]["quality"] = {**offer["card"]["quality"], **changes}
    with pytest.raises(error, match=said):
        unpack_offer(POOL, offer)


def test_a_figure_that_is_left_off_the_card_or_is_of_other_people_or_another_offer_is_refused():
    def refused(card: dict[str, Any], error: type[Exception], said: str) -> None:
        with pytest.raises(error, match=said):
            unpack_offer(POOL, pack_offer(card, made()[0].network))  # type: ignore[arg-type]

    card = dict(made()[0].card)
    own = {key: card["quality"][key] for key in ("noise", "epsilon", "delta")}
    refused(
        card | {"quality": quality_figure(8000, 9000, **own)},
        ArtefactError,
        "another number of people",
    )
    refused(card | {"quality": "very good"}, ConfigError, "quality has")
    free = {**card, "epsilon": 3.0}
    refused(free, PrivacyError, "is worth ε=")
    refused(
        {key: value for key, value in card.items() if key != "quality"}
        | {"epsilon": 4.2},
        PrivacyError,
        "ε",
    )


def test_whatever_stands_in_a_figure_is_refused_in_words() -> None:
    card = made()[0].card
    counts = made()[0].network
    strange = (
        None,
        "",
        [],
        {},
        -1,
        1 << 52,
        -(1 << 52),
        10**400,
        1e308,
        -1e308,
        5e-324,
        1e-310,
        math.nan,
        -math.inf,
    )
    for name, value in product(card["quality"], strange):
        if card["quality"][name] != value:
            lie = {**card, "quality": {**card["quality"], name: value}}
            with raises(UnderstudyError, effect=Effect.NOTHING_EXCHANGED):
                unpack_offer(POOL, pack_offer(lie, counts))  # type: ignore[arg-type]


def test_the_interval_holds_every_share_that_the_noise_explains_and_no_other() -> None:
    rng = np.random.default_rng(0)
    for people in rng.integers(25, 500, 200).tolist():
        right = int(rng.integers(-20, people + 20))
        said = quality_figure(right, people, noise=10.0, epsilon=1.0, delta=1e-5)
        assert 0 <= said["low"] <= said["accuracy"] <= said["high"] <= 1
        for share in np.linspace(0, 1, 101):
            if min(abs(share - said["low"]), abs(share - said["high"])) > 1e-3:
                explained = abs(right - share * people) <= 19.6 * math.hypot(1, share)
                assert (said["low"] <= share <= said["high"]) == explained
    for few in (-5, 0, 19):
        said = quality_figure(3, few, noise=10.0, epsilon=1.0, delta=1e-5)
        assert (said["low"], said["high"]) == (0, 1)

"""A figure of quality on an offer of moments: images and series, what it costs, whom it
counts, what is refused.
"""

import math
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from test_sgde_moments import BUDGET, POOL, RECIPE, SERIES, halves, people, waves

from refusals import raises
from understudy.data.encoding.population import Population
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    Effect,
    PrivacyError,
    UnderstudyError,
)
from understudy.models.offered import OfferedMoments
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.papers.sgde import counted as judging
from understudy.protocols.papers.sgde.kinds import SiloRows
from understudy.protocols.papers.sgde.offer import (
    Requirements,
    pack_offer,
    unpack_offer,
)
from understudy.protocols.papers.sgde.party import (
    FIGURE,
    Push,
    SgdeParty,
    Subscribe,
    train_offers,
)
from understudy.protocols.papers.sgde.pool import pool
from understudy.protocols.papers.sgde.sums import quality_figure

ASKED = 1.0
FIGURED = replace(RECIPE, quality_epsilon=ASKED)


def made(
    data: Any, required: Requirements = POOL, budget: Budget = BUDGET
) -> tuple[Generator, Ledger]:
    ledger = Ledger.rehearsal("s", budget)
    (offer,) = train_offers(
        "s",
        data,
        ledger,
        required,
        budget=budget,
        run="r",
        recipe=FIGURED,
        rng=SecureRng.from_seed(1),
    )
    return offer, ledger


@pytest.mark.parametrize(
    ("data", "required"), [(people(300), POOL), (waves(300, 0), SERIES)]
)
def test_the_figure_and_the_sums_are_within_one_budget_and_the_figure_has_its_own_line(
    data: Any, required: Requirements
) -> None:
    offer, ledger = made(data, required)
    quality = offer.card["quality"]
    spend = ledger.spend()
    ((sums, once),) = [
        (event, n) for event, n in spend.items() if isinstance(event, GaussianDpEvent)
    ]
    ((figure, twice),) = [
        (event, n)
        for event, n in spend.items()
        if not isinstance(event, GaussianDpEvent)
    ]
    assert (once, twice, figure.sigma) == (1, 2, quality["noise"])
    assert offer.card["epsilon"] == pytest.approx(epsilon(spend, BUDGET.delta))
    assert 7.9 < offer.card["epsilon"] <= BUDGET.epsilon
    assert (
        0.98 * ASKED < quality["epsilon"] == epsilon({figure: 2}, BUDGET.delta) <= ASKED
    )
    assert [entry.description for entry in ledger.entries()].index(FIGURE) < len(
        list(ledger.entries())
    ) - 1
    network = offer.network
    assert isinstance(network, OfferedMoments)
    reaches = (
        4096 * math.sqrt(19 / 16),
        *(scale**2 / math.sqrt(2) for scale in network.scales),
    )
    moved = sum(
        (reach / sigma) ** 2
        for reach, sigma in zip(reaches, network.noise, strict=True)
    )
    assert moved <= 1 / sums.noise_multiplier**2  # its noise is that of what is left


def test_the_figure_is_near_what_the_classifier_of_a_pull_has_on_these_rows() -> None:
    offer, _ = made(people(300))
    assert offer.card["quality"]["low"] < 1.0
    assert offer.card["quality"]["accuracy"] > 0.85
    assert (
        abs(offer.card["quality"]["people"] - 300) < 6 * offer.card["quality"]["noise"]
    )


def test_a_person_counts_once_with_the_first_row_and_moves_each_count_by_one_at_most():
    offer = made(people(200))[0].network
    assert isinstance(offer, OfferedMoments)
    x, y = halves(40, 3)
    all_of = judging.count_right(
        offer, SiloRows.from_held(Population.from_arrays(x, y, classes=2)).rows, POOL
    )
    assert all_of.tolist() == [40, 40]
    lies = np.concatenate([y, 1 - y])
    twice = Population.from_arrays(
        np.concatenate([x, x]),
        lies,
        classes=2,
        people=[f"p{n}" for n in [*range(40), *range(40)]],
    )
    assert judging.count_right(
        offer, SiloRows.from_held(twice).rows, POOL
    ).tolist() == [
        40,
        40,
    ]
    fewer = Population.from_arrays(
        x[1:], np.where(np.arange(39) < 5, 1 - y[1:], y[1:]), classes=2
    )
    assert judging.count_right(
        offer, SiloRows.from_held(fewer).rows, POOL
    ).tolist() == [
        34,
        39,
    ]


def test_series_are_judged_in_declared_units() -> None:
    offer, _ = made(waves(300, 0), SERIES)
    held = waves(50, 5)
    counts = judging.count_right(offer.network, held, SERIES)  # type: ignore[arg-type]
    rows = SERIES.schema.unscaled(held.values)  # type: ignore[union-attr]
    truth = (
        Generator.from_parts(pool([offer], SERIES, {}))
        .classifier()
        .score(rows, np.array(["no", "yes"])[held.classes])
    )
    assert counts.tolist() == [round(50 * truth), 50]
    assert truth > 0.8


def test_what_is_said_of_a_row_does_not_depend_on_who_else_is_there() -> None:
    """A network that mixes the rows of a batch, as rounding may."""
    network = SimpleNamespace(
        forward=lambda weights, x: torch.stack([x[:, 0] - x.mean(), 0 * x[:, 0]], 1)
    )
    mixed: Any = SimpleNamespace(
        network=network,
        weights=None,
        features=SimpleNamespace(expand=lambda rows: rows),
    )
    rows = torch.tensor([[0.1], [0.5], [0.9]])
    assert (
        judging._likeliest(mixed, rows)[:2].tolist()
        == judging._likeliest(mixed, rows[:2]).tolist()
    )
    assert judging._likeliest(mixed, rows[:0]).shape == (0,)


def test_a_pool_without_classes_has_no_figure_and_nothing_is_charged() -> None:
    bare = replace(SERIES.schema, label=None, classes=())  # type: ignore[type-var]
    required = Requirements(schema=bare, target="", epsilon=8.0)
    one = SgdeParty(
        "s", waves(20, 0, bare), Ledger.rehearsal("s", BUDGET), run="r", budget=BUDGET
    )
    with raises(ConfigError, effect=Effect.NOTHING_CHARGED, match="no two of them"):
        one.answer(Subscribe(requirements=required.to_dict(), config=asdict(FIGURED)))
    with pytest.raises(UnderstudyError):
        one.answer(Push())
    assert not one.ledger.spend()
    offer, _ = made(people(100))
    card = {**offer.card, "target": ""}
    with pytest.raises(ConfigError, match="no figures of quality"):
        unpack_offer(required, pack_offer(card, offer.network))  # type: ignore[arg-type]


def test_a_second_figure_is_refused_and_costs_nothing() -> None:
    ledger = Ledger.rehearsal("s", Budget(40.0, 1e-5))
    for again in (False, True):
        party = SgdeParty(
            "s", people(60), ledger, run="r", budget=BUDGET, rng=SecureRng.from_seed(1)
        )
        party.answer(Subscribe(requirements=POOL.to_dict(), config=asdict(FIGURED)))
        if not again:
            party.answer(Push())
            spent = ledger.spend()
        else:
            with pytest.raises(PrivacyError, match="once in a run"):
                party.answer(Push())
    assert ledger.spend() == spent


def test_figures_that_cannot_be_are_refused() -> None:
    offer, _ = made(people(300))
    card = dict(offer.card)
    own = {key: card["quality"][key] for key in ("noise", "epsilon", "delta")}

    def refused(lie: dict[str, Any], error: type[Exception], said: str) -> None:
        with pytest.raises(error, match=said):
            unpack_offer(POOL, pack_offer(lie, offer.network))  # type: ignore[arg-type]

    assert unpack_offer(POOL, pack_offer(card, offer.network)).card["quality"]  # type: ignore[arg-type]
    refused(
        card | {"quality": quality_figure(8000, 9000, **own)},
        ArtefactError,
        "another number of people",
    )
    refused(
        card | {"quality": card["quality"] | {"noise": 0}}, PrivacyError, "worth ε=inf"
    )
    refused(
        card | {"quality": card["quality"] | {"accuracy": 0.1}},
        ArtefactError,
        "its counts give",
    )

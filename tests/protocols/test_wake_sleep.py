"""Wake-sleep: every report is paid for, the decoder alone is reported on, and rows come
out like those of people.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import phones
import pytest
import torch
from phones import check_participations, likeness, of, of_two_kinds, uncharged, uneven

from understudy.api.train import train
from understudy.data.arrays import ArrayTable
from understudy.data.images import ImageSchema
from understudy.data.schema import Boolean, Schema
from understudy.ground.errors import ConfigError, PartyError
from understudy.models.nets.wae import decoder_size, first_model
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.cross_device.host import BeginTraining, Round
from understudy.protocols.papers.fed_wae import wake_sleep
from understudy.protocols.papers.fed_wae.wake_sleep import Config

SMALL = {
    "epsilon": 2.0,
    "rounds": 6,
    "clients_per_round": 5,
    "max_reports": 3,
    "hidden": 6,
    "latent": 3,
    "dreams": 2,
    "first_dreams": 4,
    "dream_batch": 16,
    "device": "cpu",
}


def begun(table: pd.DataFrame, schema: Schema, **settings: Any) -> Any:
    return phones.begun("wake-sleep", wake_sleep, of(table, schema), SMALL | settings)


def kinds(count: int) -> tuple[pd.DataFrame, Schema]:
    """People with two rows of two kinds, one of which is rare; a rare column goes with
    neither.
    """
    rng = np.random.default_rng(0)
    frame, schema = of_two_kinds(rng.random(2 * count) < 0.25, rng)
    rare = Boolean(name="rare")
    frame.insert(6, "rare", rng.random(2 * count) < 0.05)
    return frame, replace(
        schema, columns=(*schema.columns[:6], rare, *schema.columns[6:])
    )


LEARNING = {
    "rounds": 50,
    "clients_per_round": 40,
    "hidden": 12,
    "latent": 2,
    "first_dreams": 50,
    "dream_batch": 64,
    "device": "cpu",
}


@pytest.mark.long
def test_at_epsilon_8_it_learns_both_kinds_and_their_shares_and_at_almost_none_nothing():
    frame, schema = kinds(2000)
    told, untold = (
        train(
            "wake-sleep",
            of(frame, schema, budget=Budget(8.0, 0.0)),
            **LEARNING,
            epsilon_total=epsilon,
        )
        for epsilon in (8.0, 0.001)
    )
    assert told.privacy.epsilon() == 8.0
    drawn = told.generator.sample(2000, seed=0)
    assert likeness(drawn) > 0.75
    assert 0.05 < (drawn["letter"] == "a").mean() < 0.45, (
        "a quarter of all rows are of the rarer kind"
    )
    assert drawn["rare"].mean() < 0.2
    assert likeness(untold.generator.sample(2000, seed=0)) < 0.3


def test_the_ledger_holds_each_participation_at_its_price_and_nobody_is_asked_more_often_than_max_reports():
    federation = of(*uneven(), budget=Budget(6.0, 0.0))
    result = train("wake-sleep", federation, **SMALL)
    check_participations(federation, result, reports=6 * 5, max_reports=3)


def test_a_report_is_about_the_decoder_and_depends_on_the_persons_own_rows_alone():
    frame, schema = uneven()
    others = frame.copy()
    others.loc[others["id"] != 4, "smoker"] ^= True

    def told(table: pd.DataFrame) -> torch.Tensor:
        party = begun(table, schema, reporter="none", epsilon=None)
        weights = first_model(party.network, FastRng(0))
        message = party.answer(
            Round(round=1, people=torch.tensor([2, 4]), weights=weights)
        ).reports.value
        values: torch.Tensor = message["values"]
        assert values.shape == (2, decoder_size(party.network))
        return values

    one = told(frame)
    two = told(others)
    assert torch.equal(one[1], two[1])
    assert not torch.equal(one[0], two[0])


def test_the_kept_decoder_is_the_mean_of_the_last() -> None:
    """With an average over one round of six it is the last decoder itself; over all of
    them it is another.
    """
    last, early, mean = (
        train(
            "wake-sleep", of(*uneven()), **SMALL | {"average": share}
        ).generator.network
        for share in (1 / 6, 0.0, 1.0)
    )
    pairs = list(
        zip(last.parameters(), early.parameters(), mean.parameters(), strict=True)
    )
    assert all(torch.equal(one, other) for one, other, _ in pairs)
    assert not any(torch.equal(one, other) for one, _, other in pairs)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": 2}, "epochs, learning_rate and optimizer cannot be chosen"),
        ({"optimizer": "adam"}, "epochs, learning_rate and optimizer cannot be chosen"),
        ({"dreams": 0}, "dreams must be a whole number"),
        ({"dream_learning_rate": 0.0}, "dream_learning_rate"),
        ({"average": -0.1}, "average"),
        ({"max_reports": 1}, "Raise max_reports to 2"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_charged(
    settings: dict[str, Any], words: str
) -> None:
    federation = of(*uneven(), budget=Budget(6.0, 0.0))
    with pytest.raises(ConfigError, match=words):
        train("wake-sleep", federation, **SMALL | settings)
    assert uncharged(federation)


def test_images_and_networks_for_other_rows_are_refused() -> None:
    images = ArrayTable.from_array(np.zeros((9, 8, 8)), ImageSchema(height=8, width=8))
    with pytest.raises(ConfigError, match="for images there is fed-wae"):
        train("wake-sleep", of(images), **SMALL)
    federation = of(*uneven())
    (party,) = federation.parties("wake-sleep", run="r").values()
    config = Config(**SMALL)
    other = config.network_for(common_rule({"x": kinds(1)[1]}))
    with pytest.raises(PartyError, match="does not fit these rows"):
        party.answer(BeginTraining(config=vars(config), network=other.describe()))

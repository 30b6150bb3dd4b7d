"""DP-Fed-WAE: every report is paid for by the person who gives it, and the decoder
draws rows like theirs.
"""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import phones
import pytest
import torch
from phones import FREE, check_participations, of, of_two_kinds, uncharged, uneven
from sklearn.datasets import load_digits

from understudy.api.train import run_file, train
from understudy.data.arrays import ArrayTable
from understudy.data.encoding.population import Population, population_of
from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.data.schema import Schema
from understudy.data.series import SeriesSchema
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    PartyError,
    PrivacyError,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.cross_device.host import BeginTraining, Round
from understudy.protocols.papers.fed_wae import protocol as fed_wae
from understudy.protocols.papers.fed_wae.protocol import Config
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile

SMALL = {
    "epsilon": 2.0,
    "rounds": 6,
    "clients_per_round": 5,
    "max_reports": 3,
    "epochs": 2,
    "hidden": 6,
    "latent": 3,
    "device": "cpu",
}
PIXELS = ImageSchema(height=8, width=8, low=0, high=16)


def people(table: pd.DataFrame, schema: Schema) -> Population:
    return population_of(read_table(table, schema, one_row_each=False))


def begun(data: Any, schema: Any = None, **settings: Any) -> Any:
    return phones.begun("fed-wae", fed_wae, of(data, schema), SMALL | settings)


def test_the_ledger_holds_each_participation_at_its_price_and_nobody_is_asked_more_often_than_max_reports():
    federation = of(*uneven(), budget=Budget(6.0, 0.0))
    result = train("fed-wae", federation, **SMALL)
    check_participations(federation, result, reports=6 * 5, max_reports=3)


def test_people_with_one_row_and_with_seven_and_mixed_columns_train_together() -> None:
    frame, schema = uneven()
    result = train(
        "fed-wae", of(frame, schema), **SMALL | {"reporter": "none", "epsilon": None}
    )
    drawn = result.generator.sample(50, seed=0)
    pd.testing.assert_series_equal(
        drawn.dtypes,
        read_table(frame.assign(id=range(60)), schema).frame.dtypes.drop("id"),
    )
    assert not people(drawn.assign(id=0), schema).rows.isnan().any()
    assert result.privacy.epsilon() == math.inf


def test_a_persons_update_depends_on_the_persons_own_rows_alone() -> None:
    frame, schema = uneven()
    others = frame.copy()
    others.loc[others["id"] != 4, "smoker"] ^= True

    def told(table: pd.DataFrame) -> torch.Tensor:
        party = begun(table, schema, reporter="none", epsilon=None)
        weights = party.network.init(FastRng(0))
        message = party.answer(
            Round(round=1, people=torch.tensor([2, 4]), weights=weights)
        ).reports.value
        values: torch.Tensor = message["values"]
        return values

    one = told(frame)
    two = told(others)
    assert torch.equal(one[1], two[1])
    assert not torch.equal(one[0], two[0])


def test_a_person_without_images_reports_like_any_other() -> None:
    images = load_digits().images[:6]
    rows = ArrayTable(
        PIXELS.scaled(images), np.arange(3), np.array([0, 4, 4, 6]), PIXELS, "digits"
    )
    ask = {"round": 1, "people": torch.arange(3)}
    bare = begun(rows, reporter="none", epsilon=None)
    weights = bare.network.init(FastRng(0))
    assert bare.answer(Round(**ask, weights=weights)).reports.value["values"].any(
        1
    ).tolist() == [True, False, True]
    private = begun(rows).answer(Round(**ask, weights=weights)).reports.value
    assert private["values"].abs().tolist() == [[1], [1], [1]]


def test_a_person_with_more_rows_than_the_limit_trains_on_some_of_them() -> None:
    frame, schema = toy(rows=60, seed=3)
    party = begun(
        frame.assign(id=[0] * 57 + [1] * 3),
        schema,
        max_rows_per_person=8,
        reporter="none",
        epsilon=None,
    )
    seen = Counter()
    for _ in range(30):
        x, _, mask = party.population.gather(torch.arange(2), max_rows=8, rng=party.rng)
        assert x.shape[1] == 8
        assert mask.sum(1).tolist() == [8, 3]
        seen.update(map(tuple, x[0].tolist()))
    assert len(seen) > 30, "other rows in other rounds"
    ask = Round(round=1, people=torch.arange(2), weights=party.network.init(FastRng(0)))
    assert party.answer(ask).reports.value["values"].any(1).all()


def easy(
    count: int, seed: int = 0, *, skewed: bool = False
) -> tuple[pd.DataFrame, Schema]:
    """People with two rows, of two kinds at random; skewed: each person has rows of one
    kind alone.
    """
    rng = np.random.default_rng(seed)
    kind = (
        np.repeat(rng.integers(0, 2, count), 2)
        if skewed
        else rng.integers(0, 2, 2 * count)
    )
    return of_two_kinds(kind == 1, rng)


def likeness(generator: Generator) -> float:
    return phones.likeness(generator.sample(500, seed=0))


LEARNING = {
    "rounds": 20,
    "clients_per_round": 100,
    "max_reports": 1,
    "top": 0.25,
    "epochs": 3,
    "learning_rate": 0.01,
    "global_rate": 12.0,
    "hidden": 12,
    "latent": 2,
    "device": "cpu",
}


def test_it_learns_two_kinds_of_rows_at_epsilon_8_and_nothing_at_almost_none() -> None:
    frame, schema = easy(2000)
    told, untold = (
        train(
            "fed-wae",
            of(frame, schema, budget=Budget(8.0, 0.0)),
            **LEARNING,
            epsilon_total=epsilon,
        )
        for epsilon in (8.0, 0.001)
    )
    assert told.privacy.epsilon() == 8.0
    assert likeness(told.generator) > 0.7
    assert likeness(untold.generator) < 0.3


def test_people_with_rows_of_one_kind_alone_teach_both() -> None:
    frame, schema = easy(1000, skewed=True)
    plain = LEARNING | {
        "reporter": "none",
        "clients_per_round": 50,
        "epochs": 5,
        "global_rate": 3.0,
    }
    generator = train("fed-wae", of(frame, schema), **plain).generator
    assert likeness(generator) > 0.7
    assert 0.2 < (generator.sample(500, seed=1)["letter"] == "a").mean() < 0.8


def test_liars_undo_it() -> None:
    frame, schema = easy(2000)
    poison = {"kind": "flip", "share": 0.6}
    result = train(
        "fed-wae",
        of(frame, schema, budget=Budget(8.0, 0.0)),
        **LEARNING,
        epsilon_total=8.0,
        poison=poison,
    )
    assert likeness(result.generator) < 0.3


def test_pretraining_begins_from_public_rows_or_from_even_ones() -> None:
    federation = of(*easy(30))
    public, _ = easy(200, seed=1)
    settings = LEARNING | {
        "reporter": "none",
        "rounds": 1,
        "clients_per_round": 1,
        "pretrain": 40,
        "global_rate": 1e-9,
    }
    settings |= {"learning_rate": 0.04}

    def generator(**more: Any) -> Generator:
        return train("fed-wae", federation, **settings | more).generator

    assert likeness(generator(public=public)) > 0.7
    even = generator().sample(2000, seed=0)
    assert even.filter(like="x").mean().sub(0.5).abs().max() < 0.15
    assert even["letter"].value_counts(normalize=True).sub(1 / 3).abs().max() < 0.15
    with pytest.raises(ConfigError, match="takes no public rows"):
        train("lopub", federation, public=public, epsilon_total=1.0)


def test_images_come_out_as_images(tmp_path: Path) -> None:
    digits = load_digits().images[:400]
    rows = ArrayTable.from_array(digits, PIXELS, people=np.arange(400) // 2)
    result = train(
        "fed-wae",
        of(rows),
        reporter="none",
        rounds=15,
        clients_per_round=20,
        max_reports=2,
        epochs=5,
        learning_rate=0.01,
        channels=4,
        latent=4,
        global_rate=3.0,
        device="cpu",
    )
    result.generator.save(tmp_path)
    drawn = Generator.load(tmp_path).images(100, seed=0)
    assert drawn.shape == (100, 8, 8)
    assert 0 <= drawn.min() <= drawn.max() <= 16
    error = np.abs(drawn.mean(0) - digits.mean(0)).mean()
    assert error < 0.5 * np.abs(8 - digits.mean(0)).mean(), (
        "no nearer to the mean image than grey is"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_reports": 1}, "Missing: 15. Raise max_reports to 2"),
        (
            {"reporter": "sub-mds", "rate": 0.5, "epsilon": 0.5},
            "share=0.8 is out of reach",
        ),
        ({"reporter": "sub-mds", "rate": 0.02}, "top must be below rate"),
        ({"hidden": 0.5}, "hidden must be a whole number"),
        ({"pretrain": -1}, "pretrain"),
        ({"optimizer": "adams"}, 'Did you mean "adam"?'),
        (
            {"epsilon": 2.5},
            "3 reports of one person cost ε=7.5 at δ=0, but this run may cost ε=6",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_charged(
    settings: dict[str, Any], words: str
) -> None:
    federation = of(*uneven(), budget=Budget(6.0, 0.0))
    with pytest.raises((ConfigError, BudgetExceeded)) as error:
        train("fed-wae", federation, **SMALL | settings)
    assert words in str(error.value)
    assert uncharged(federation)


def test_rows_that_it_is_not_for_are_refused() -> None:
    frame, schema = uneven()
    series = SeriesSchema.from_dict(
        {"length": 3, "series": "s", "channels": {"x": {"low": 0, "high": 1}}}
    )
    labelled = Population.from_arrays(np.zeros((9, 4)), [0] * 9, classes=2)
    odd = ArrayTable.from_array(np.zeros((9, 6, 6)), ImageSchema(height=6, width=6))
    for data, words in (
        (
            ArrayTable.from_array(np.zeros((9, 3, 1)), series),
            "for series there is fed-stdg",
        ),
        (labelled, "people from arrays with classes"),
        (odd, "sides that 4 divides"),
    ):
        with pytest.raises(ConfigError, match=words):
            train("fed-wae", of(data), **SMALL)
    with pytest.raises(ConfigError, match="no classes to learn"):
        train(
            "sign-ds",
            of(people(frame, schema)),
            epsilon=2.0,
            rounds=1,
            clients_per_round=1,
        )
    federation = Federation.rehearsal(
        {"one": frame, "two": frame},
        {"one": schema, "two": schema.drop(["income"])},
        budget=FREE,
        same_people=False,
    )
    with pytest.raises(ConfigError, match="one and two"):
        train("fed-wae", federation, **SMALL)


def test_a_party_refuses_a_network_for_other_rows() -> None:
    federation = of(*uneven())
    (party,) = federation.parties("fed-wae", run="r").values()
    config = Config(**SMALL)
    other = config.network_for(common_rule({"x": easy(1)[1]}))
    with pytest.raises(PartyError, match="does not fit these rows"):
        party.answer(BeginTraining(config=vars(config), network=other.describe()))


def test_liars_are_refused_where_the_ledger_is_real(tmp_path: Path) -> None:
    frame, schema = uneven()
    federation = Federation(
        {"phones": frame},
        {"phones": schema},
        budget=Budget(8.0, 0.0),
        ledgers=tmp_path,
        same_people=False,
    )
    with pytest.raises(PrivacyError, match="poisoned clients are for rehearsals"):
        train("fed-wae", federation, **SMALL, poison={"kind": "flip"})


def test_a_run_file_leaves_a_generator_a_true_ledger_and_rows(tmp_path: Path) -> None:
    frame, schema = uneven()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    schema.save(tmp_path / "schema.toml")
    party = {
        "table": "rows.csv",
        "schema": "schema.toml",
        "epsilon": 6.0,
        "delta": 1e-6,
    }
    body = {
        "protocol": "fed-wae",
        "out": "out",
        "rows": 40,
        "settings": SMALL,
        "parties": {"phones": party},
    }
    result, out = run_file(RunFile.from_dict(body, folder=tmp_path))
    assert len(pd.read_parquet(out / "synthetic.parquet")) == 40
    assert Generator.load(out).card["privacy"] == result.privacy.to_dict()
    with Ledger(tmp_path / "ledgers" / "phones.ledger") as ledger:
        assert ledger.spent() == result.privacy.epsilon() <= 6.0

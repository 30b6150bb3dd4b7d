"""A generator of people with their events: two tables whose keys fit, ordered in time,
on disk and back.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.encoding.codec import Codec
from understudy.data.visits import VisitCodes, VisitSchema, read_visits
from understudy.data.visits.reading import number_bounds, visit_frames
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError, ConfigError, UnderstudyError
from understudy.models.visits.chains import MixtureOfChains
from understudy.privacy.noise import FastRng
from visit_cases import clinic


def generator(schema: VisitSchema, seed: int = 0) -> Generator:
    """Any odds at all, as the schema has its levels."""
    sizes = (Codec(part).sizes for part in (schema.person_schema, schema.event_schema))
    chains = MixtureOfChains(
        *sizes,
        number_bounds(schema),
        ordered=schema.ordered,
        kinds=5,
        chains=2,
        states=4,
    )
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in chains.parameters():
            weights.copy_(torch.randn(weights.shape, generator=random))
    return Generator(
        chains.requires_grad_(False).eval(), schema, {"protocol": "visits"}
    )


@pytest.mark.parametrize(
    "schema",
    [
        clinic(),
        clinic(time=None),
        replace(clinic(), people=None),
        replace(clinic(time=None), people=None),
        clinic(most_events=50),
    ],
    ids=["both", "no order", "events alone", "neither", "numbers in bins"],
)
def test_what_is_drawn_can_be_read_by_the_schema_and_every_event_has_a_person(
    schema: VisitSchema,
) -> None:
    people, events = generator(schema).visits(300, seed=1)
    assert people[schema.person].tolist() == list(range(300))
    assert events[schema.person].isin(people[schema.person]).all()
    both = {"events": events} | ({} if schema.people is None else {"people": people})
    again = read_visits(both, schema)
    assert again.numbers.max() <= schema.most_events
    if schema.people is not None:
        assert again.rows == 300
        assert (again.numbers == 0).any()


def test_levels_survive_the_way_to_tables_and_back_and_times_rise() -> None:
    schema = clinic(gaps=(0, 1, 2, 4))
    codes = generator(schema).network.draw(400, FastRng(3).uniform)  # type: ignore[attr-defined]
    people, events = visit_frames(codes, schema, FastRng(4))
    again = read_visits({"people": people, "events": events}, schema).codes()
    for name in ("people", "starts"):
        assert np.array_equal(getattr(again, name), getattr(codes, name)), name
    assert np.array_equal(again.events[:, :-1], codes.events[:, :-1])
    last = pd.Timestamp("2020-01-31")
    late = (events["day"] == last).to_numpy()
    assert np.array_equal(again.events[~late, -1], codes.events[~late, -1]), (
        "but for what would come too late"
    )
    assert (events.groupby("patient")["day"].diff().dropna() >= pd.Timedelta(0)).all()
    assert events["day"].max() == last


def test_nobody_and_people_without_events_are_drawn_as_tables_of_the_right_columns():
    schema = clinic()
    people, events = generator(schema).visits(0)
    assert (list(people), list(events)) == (
        ["patient", "sex", "smoker"],
        ["patient", "day", "severity", "ward"],
    )
    none = VisitCodes(
        np.array([[0, 1, 4, 0]], np.int32), np.zeros((0, 3), np.int32), np.array([0, 0])
    )
    people, events = visit_frames(none, schema, FastRng(0))
    assert (len(people), len(events)) == (1, 0)
    assert events["day"].dtype == "datetime64[ns]"


def test_a_saved_generator_draws_the_same_people(tmp_path: Path) -> None:
    made = generator(clinic())
    again = Generator.load(made.save(tmp_path / "g"))
    for one, other in zip(
        made.visits(50, seed=2), again.visits(50, seed=2), strict=True
    ):
        pd.testing.assert_frame_equal(one, other)
    tidy, (people, events) = again.sample(50, seed=2), again.visits(50, seed=2)
    without = ~people["patient"].isin(events["patient"])
    assert len(tidy) == len(events) + without.sum()
    assert tidy["day"].isna().sum() == without.sum()


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": [[0, 0], [1, 1], [2, 2], [3, 4]]},
        {"ordered": False},
        {"people": [2, 2, 4, 5]},
        {"states": 5},
    ],
    ids=str,
)
def test_a_generator_that_claims_other_rows_than_its_schema_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    folder = generator(clinic()).save(tmp_path / "g")
    card = json.loads((folder / "card.json").read_text())
    card["network"] |= change
    (folder / "card.json").write_text(json.dumps(card))
    with pytest.raises(ArtefactError, match="damaged"):
        Generator.load(folder)


def test_a_condition_on_people_is_met_by_all_and_has_the_law_of_those_who_meet_it():
    made = generator(clinic(most_events=5))
    where = "smoker == true and number_of_events >= 2 and first_day < '2020-01-10'"
    people, events = made.visits(3_000, where=where, seed=1)
    numbers = events.groupby("patient").size()
    assert people["smoker"].all()
    assert len(numbers) == 3_000
    assert numbers.min() >= 2
    assert (events.groupby("patient")["day"].first() < pd.Timestamp("2020-01-10")).all()
    everybody, all_events = made.visits(40_000, seed=2)
    counted = (
        all_events.groupby("patient").size().reindex(everybody.index, fill_value=0)
    )
    first = all_events.groupby("patient")["day"].first().reindex(everybody.index)
    meets = everybody["smoker"] & (counted >= 2) & (first < pd.Timestamp("2020-01-10"))
    assert people.attrs["probability"] == pytest.approx(meets.mean(), rel=0.05)
    assert numbers.mean() == pytest.approx(counted[meets].mean(), rel=0.03)
    mine = all_events[all_events["patient"].isin(everybody.index[meets])]
    assert events["severity"].mean() == pytest.approx(mine["severity"].mean(), abs=0.05)
    assert (people["sex"] == "f").mean() == pytest.approx(
        (everybody["sex"][meets] == "f").mean(), abs=0.04
    )


def test_people_without_events_can_be_asked_for_and_a_condition_without_an_order_is_met():
    people, events = generator(clinic()).visits(
        50, where="number_of_events == 0", seed=0
    )
    assert (len(people), len(events)) == (50, 0)
    assert (
        generator(clinic()).sample(5, where="smoker == true").attrs["answer"] == "exact"
    )
    people, events = generator(clinic(time=None)).visits(
        50, where="number_of_events == 2", seed=0
    )
    assert set(events.groupby("patient").size()) == {2}


def test_what_cannot_be_asked_is_refused_by_name() -> None:
    made = generator(clinic())
    with pytest.raises(UnderstudyError, match="weight"):
        made.visits(5, where="weight > 1")
    with pytest.raises(ConfigError, match="probability 0"):
        made.visits(5, where="smoker == true and smoker == false")
    with pytest.raises(ConfigError, match="condition"):
        made.sample(5, weights={"sex": {"f": 1.0}})
    with pytest.raises(ArtefactError, match="no series"):
        made.series(5)


def test_the_command_draws_people_who_meet_a_condition_into_two_files(
    tmp_path: Path,
) -> None:
    folder = generator(clinic()).save(tmp_path / "g")
    asked = ["sample", str(folder), "-n", "20", "--where", "sex == 'f'", "--seed", "1"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "drawn")])
    assert done.exit_code == 0, done.output
    assert "probability" in done.stderr
    assert set(pd.read_csv(tmp_path / "drawn" / "people.csv")["sex"]) == {"f"}
    assert CliRunner().invoke(app, asked).exit_code == 0

"""The page of people with their events: what is compared, the words for it, and what
everyone may see.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

from understudy.api.train import run_file
from understudy.data.schema import Integer, Schema
from understudy.data.visits import VisitSchema
from understudy.evaluate.figure import Figure, FigureKey
from understudy.evaluate.utility.visits import INTEGRITY, NUMBER
from understudy.ground.errors import ConfigError, UtilityWarning
from understudy.report.page import write_report
from understudy.report.people import (
    PeopleComparison,
    compare_people,
    open_people,
    people_findings,
)
from understudy.runs.runfile import RunFile
from visit_cases import beside_visits, clinic, frames, split_rows, study_of, two_kinds

pytestmark = pytest.mark.usefixtures("short_training", "light_masks")

SETTINGS = {"kinds": 2, "states": 2, "steps": 5, "device": "cpu"}


def saved(home: Path, tables: dict[str, Any], schemas: dict[str, Any]) -> RunFile:
    """Each holder's files, and a run file that names them."""
    parties = {}
    for name, held in tables.items():
        folder = home / name
        folder.mkdir(parents=True)
        schemas[name].save(folder / "schema.toml")
        for part, rows in (held if isinstance(held, dict) else {"rows": held}).items():
            rows.to_csv(folder / f"{part}.csv", index=False)
        table = name if isinstance(held, dict) else f"{name}/rows.csv"
        parties[name] = {
            "table": table,
            "schema": f"{name}/schema.toml",
            "epsilon": 2.0,
            "delta": 1e-5,
        }
    body = {
        "protocol": "visits",
        "out": "out",
        "settings": SETTINGS,
        "parties": parties,
    }
    (home / "run.toml").write_text(tomli_w.dumps(body))
    return RunFile.load(home / "run.toml")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two holders with people of their own."""
    tables = {}
    for name, seed in (("north", 0), ("south", 1)):
        who, events = frames(seed=seed)
        tables[name] = {"people": who, "events": events}
    return run_file(
        saved(tmp_path_factory.mktemp("rows"), tables, dict.fromkeys(tables, clinic()))
    )[1]


def test_the_holders_page_compares_people_and_events_of_all_holders(rows: Path) -> None:
    text = write_report(rows).read_text()
    for said in (
        "Pairs of an event’s columns",
        "A column and itself two events later",
        "The number of events",
        "Sum of “severity” a person, 90 % quantile",
        "does another event follow?",
        "Every synthetic event has a person",
        "Keys of events</a> all fit",
        "were not run",
        "Synthetic people",
    ):
        assert said in text, said
    assert "this report compares only tables" not in text
    assert "Correlations" not in text


def test_with_people_held_out_beyond_the_bounds_too_membership_is_attacked_on_the_page(
    rows: Path,
) -> None:
    who, events = frames(seed=7)
    events.loc[events.index[0], "severity"] = 99
    text = write_report(rows, holdout={"people": who, "events": events}).read_text()
    assert "2 attacks were tried" in text


def test_the_page_for_everyone_shows_drawn_columns_and_no_real_row(rows: Path) -> None:
    text = write_report(rows, publish=True).read_text()
    assert "severity" in text
    assert "other real people</li>" not in text
    assert 'class="real"' not in text


def test_in_a_vertical_partition_people_whom_all_holders_have_are_compared(
    tmp_path: Path,
) -> None:
    tables, schemas = beside_visits()
    _, out = run_file(saved(tmp_path, tables, schemas))
    text = write_report(out).read_text()
    assert "Pairs of an event’s columns" in text
    assert "income" in text
    alone = write_report(
        out, parties=["clinic"], out=tmp_path / "alone.html"
    ).read_text()
    assert "do not have all columns" in alone


def test_with_events_at_two_holders_there_is_a_block_for_each_kind_and_one_across(
    tmp_path: Path,
) -> None:
    tables, schemas = two_kinds()
    _, out = run_file(saved(tmp_path, tables, schemas))
    text = write_report(out).read_text()
    for said in (
        "<h3>People, and one kind of events with another</h3>",
        "A column of events and one of claims",
        "eys of events (events and claims) all fit.",
        "<h3>Claims</h3>",
        "<h3>Claims: what a person has in all</h3>",
        "Sum of “fee” a person, mean",
        "Numbers of events (claims)</a>",
        "does another event follow? (claims)",
        "Synthetic claims",
    ):
        assert said in text, said
    assert text.count("Every synthetic event has a person") >= 2
    assert 'class="real"' in text
    shown = write_report(out, publish=True).read_text()
    assert "fee" in shown
    assert 'class="real"' not in shown
    alone = write_report(
        out, parties=["clinic", "registry"], out=tmp_path / "alone.html"
    ).read_text()
    assert "do not have all columns" in alone


def test_events_without_a_table_of_people_are_compared_too(tmp_path: Path) -> None:
    _, events = frames()
    schema = replace(clinic(), people=None)
    body = saved(tmp_path, {"clinic": {"events": events}}, {"clinic": schema})
    with pytest.warns(
        UtilityWarning, match="people without an event cannot be counted"
    ):
        _, out = run_file(body)
    text = write_report(out).read_text()
    assert "Pairs of an event’s columns" in text
    assert "cannot be read" not in text


def test_over_a_grid_people_whom_a_holder_of_every_column_has_are_compared() -> None:
    tables, schemas = beside_visits()
    schema = study_of(schemas).schema
    held, described = split_rows(tables, schemas, clinic=2, bank=2)
    apart = open_people(held, described, schema)
    one = open_people(tables, schemas, schema)
    for part, rows in one.items():
        order = [schema.person, *rows.columns.drop(schema.person)]
        found, expected = (
            frame[order].sort_values(order, ignore_index=True)
            for frame in (apart[part], rows)
        )
        pd.testing.assert_frame_equal(found, expected)
    twice = held | {"bank1": pd.concat([held["bank1"], held["bank0"].head(1)])}
    with pytest.raises(ConfigError, match="bank0, bank1"):
        open_people(twice, described, schema)


def test_the_page_of_a_run_file_over_a_grid_compares_people_and_events(
    tmp_path: Path,
) -> None:
    _, out = run_file(saved(tmp_path, *split_rows(*beside_visits(), clinic=2, bank=2)))
    text = write_report(out).read_text()
    assert "Pairs of an event’s columns" in text
    assert "income" in text


def test_holders_of_rows_may_have_the_same_ids_for_other_people() -> None:
    who, events = frames()
    held = {"people": who, "events": events}
    both = open_people({"a": held, "b": held}, {"a": clinic(), "b": clinic()}, clinic())
    assert both["people"]["patient"].is_unique
    assert len(both["people"]) == 2 * len(who)
    numbers = both["events"].groupby("patient").size().sort_values().to_numpy()
    assert np.array_equal(
        numbers, np.sort(np.tile(events.groupby("patient").size(), 2))
    )


def test_words_follow_from_figures() -> None:
    good = Figure(FigureKey("avd", 2, "events"), value=0.02, floor=0.015, ceiling=0.3)
    number = Figure(NUMBER, value=0.01, floor=0.01, ceiling=0.2)
    whole = Figure(INTEGRITY, value=1.0, ceiling=1.0, better="higher")
    sums = Figure(FigureKey("total_mean", column="cost"), value=0.12, floor=0.0)
    people = PeopleComparison(
        figures=(good, number, sums, whole), attacks=(), shares=()
    )
    said = {finding.subject: finding for finding in people_findings(people)}
    assert said["pairs of an event's columns"].mark == "good"
    assert said["numbers of events"].mark == "good"
    assert said["sums and averages of people"].mark == "partly"
    assert "12 %" in said["sums and averages of people"].detail
    assert said["keys of events"].mark == "good"
    worse = replace(
        people, figures=(replace(good, value=0.29), replace(whole, value=0.9))
    )
    said = {finding.subject: finding for finding in people_findings(worse)}
    assert said["pairs of an event's columns"].mark == "poor"
    assert said["keys of events"].mark == "poor"


def lab_events(people: int, *, memory: bool, seed: int = 0) -> pd.DataFrame:
    """Eight visits each: the severity of the last lasts, or does not."""
    rng = np.random.default_rng(seed)
    levels = np.sort(rng.integers(0, 4, (people, 1))) + np.zeros((1, 8), dtype=int)
    levels = levels if memory else rng.integers(0, 4, (people, 8))
    days = np.datetime64("2020-01-01") + np.tile(np.arange(8), people).astype(
        "timedelta64[D]"
    )
    patient = np.repeat(np.arange(people), 8)
    return pd.DataFrame(
        {"patient": patient, "day": days, "severity": levels.ravel(), "ward": "a"}
    )


def test_a_column_whose_numbers_are_off_and_memory_that_is_lost_are_never_called_close():
    who = pd.DataFrame({"patient": np.arange(400), "sex": "f", "smoker": False})
    # 0 and 1 are one bin
    bins = Integer(name="severity", low=0, high=3, bins=(0, 2, 3))
    schema = clinic(most_events=8)
    columns = [
        bins if column.name == "severity" else column
        for column in schema.events.columns
    ]
    schema = replace(schema, events=Schema(columns=tuple(columns)))
    real = {"people": who, "events": lab_events(400, memory=True)}

    def said(events: pd.DataFrame) -> dict[str, Any]:
        return {
            found.subject: found
            for found in people_findings(
                compare_people(real, real | {"events": events}, schema)
            )
        }

    same = said(lab_events(400, memory=True, seed=1))
    assert (
        same["single columns of events"].mark == same["memory of events"].mark == "good"
    )
    inside = real["events"].assign(
        severity=real["events"]["severity"].where(real["events"]["severity"] != 1, 0)
    )
    found = said(inside)
    assert found["pairs of an event and the next"].mark == "good"
    assert found["single columns of events"].mark != "good"
    assert "severity" in found["single columns of events"].detail
    assert found["single columns of people"].mark == "good"
    lost = said(lab_events(400, memory=False))
    assert lost["single columns of events"].mark == "good"
    assert lost["memory of events"].mark == "poor"
    assert "“severity” and itself" in lost["memory of events"].detail


def test_people_without_an_event_at_a_holder_are_compared_where_it_lists_them() -> None:
    tables, schemas = two_kinds(300)
    claims = tables["insurer"]["events"]
    some = claims[claims["member"] % 5 == 0]  # most people have no claim
    tables["insurer"] = {
        "people": tables["insurer"]["people"][["member"]],
        "events": some,
    }
    # their ids alone are read
    schemas["insurer"] = replace(schemas["insurer"], people=None)
    schema = study_of(schemas).schema
    held = [
        tables["registry"]["patient"],
        tables["clinic"]["people"]["patient"],
        tables["insurer"]["people"]["member"],
    ]
    everybody = set.intersection(*(set(ids.astype(str)) for ids in held))
    found = open_people(tables, schemas, schema)
    assert set(found["people"]["patient"]) == everybody
    own = {
        figure.name: figure for figure in compare_people(found, found, schema).figures
    }
    assert own["avd1_number (claims)"].value == 0.0
    assert len(found["claims"]) == some["member"].astype(str).isin(everybody).sum()


def test_one_pair_of_an_event_s_columns_that_is_lost_among_many_is_named_and_never_close():
    rng = np.random.default_rng(3)
    names = [f"n{i}" for i in range(8)]
    schema = VisitSchema(
        person="patient",
        most_events=3,
        people=None,
        events=Schema(
            columns=tuple(Integer(name=name, low=0, high=1) for name in names)
        ),
    )

    def drawn(*, linked: bool) -> dict[str, pd.DataFrame]:
        cells = {name: rng.integers(0, 2, 4_500) for name in names}
        cells["n7"] = cells["n0"] if linked else cells["n7"]
        return {
            "events": pd.DataFrame({"patient": np.repeat(np.arange(1_500), 3)} | cells)
        }

    real = drawn(linked=True)
    for linked in (True, False):
        said = {
            found.subject: found
            for found in people_findings(
                compare_people(real, drawn(linked=linked), schema)
            )
        }
        line = said["pairs of an event's columns"]
        assert (line.mark == "good") is linked, line
        assert line.worst is not None
        if not linked:
            assert "“n0” × “n7”" in line.detail
            assert line.worst.name == "“n0” × “n7”"

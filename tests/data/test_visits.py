"""Tables of people and events: read, brought together, cut, and refused where they do
not fit.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.kinds import load_schema, read_rows
from understudy.data.reading.sources import TableSource
from understudy.data.schema import Schema
from understudy.data.visits import Visits, VisitSchema, count_visits, read_visits
from understudy.data.visits.counts import VisitLayout
from understudy.ground.errors import ConfigError, SchemaError, UtilityWarning
from understudy.privacy.noise import FastRng
from visit_cases import clinic, frames


def read(schema: VisitSchema | None = None, people: int = 60) -> Visits:
    who, events = frames(people)
    return read_visits({"people": who, "events": events}, schema or clinic())


def test_each_persons_events_come_together_in_the_order_of_time() -> None:
    who, events = frames()
    visits = read()
    assert visits.times is not None
    for i, person in enumerate(who["patient"]):
        mine = events[events["patient"] == person].sort_values("day", kind="stable")
        own = slice(visits.starts[i], visits.starts[i + 1])
        assert visits.events[own, 0].tolist() == mine["severity"].tolist()
        days = (mine["day"] - pd.Timestamp("1970-01-01")).dt.days
        assert visits.times[own].tolist() == days.tolist()


def test_what_counts_of_a_person_is_cut_to_the_first_events() -> None:
    who, events = frames()
    schema = clinic()
    codes = read().codes()
    assert codes.numbers.max() == 3
    for i, person in enumerate(who["patient"]):
        mine = (
            events[events["patient"] == person]
            .sort_values("day", kind="stable")
            .head(3)
        )
        own = slice(codes.starts[i], codes.starts[i + 1])
        assert codes.events[own, 0].tolist() == mine["severity"].tolist()
        assert codes.people[i, -1] == len(mine)
        gaps = mine["day"].diff().dt.days
        column: Any = schema.event_schema.columns[-1]
        expected = [
            column.levels
            if pd.isna(gap)
            else np.searchsorted(column.edges[1:-1], gap, side="right")
            for gap in gaps
        ]
        assert codes.events[own, -1].tolist() == expected
        first = (
            4
            if mine.empty
            else np.searchsorted([8, 16, 24], mine["day"].iloc[0].day, side="right")
        )
        assert codes.people[i, -2] == first


def test_events_that_are_drawn_are_a_uniform_part_of_a_persons_own() -> None:
    events = pd.DataFrame(
        {
            "patient": [1] * 4,
            "day": ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"],
            "severity": [0, 1, 2, 3],
            "ward": ["a"] * 4,
        }
    )
    who = pd.DataFrame({"patient": [1, 2], "sex": ["f", "m"], "smoker": [True, False]})
    visits = read_visits(
        {"people": who, "events": events}, clinic(most_events=2, cut="draw")
    )
    rng = FastRng(3)
    seen = [tuple(visits.codes(rng).events[:, 0].tolist()) for _ in range(600)]
    assert all(a < b for a, b in seen), "in the order of time, none twice"
    counts = pd.Series(seen).value_counts()
    assert len(counts) == 6
    assert counts.min() > 60
    with pytest.raises(ConfigError, match="randomness"):
        visits.codes()


@pytest.mark.parametrize("cut", ["first", "draw"])
def test_no_other_persons_rows_change_what_a_person_counts(cut: str) -> None:
    """Whoever is taken away, what is left counts as before but for that person's own
    part.
    """
    visits = read(clinic(cut=cut, most_events=5))  # nobody has more: nothing is drawn
    layout = VisitLayout.from_schema(visits.schema)
    whole = count_visits(visits.codes(), layout, 60)
    alone = [
        count_visits(visits.take(np.array([i])).codes(), layout, 60)
        for i in range(visits.rows)
    ]
    assert np.array_equal(np.sum(alone, axis=0), whole)


def test_two_events_at_one_time_keep_the_order_of_the_file() -> None:
    who = pd.DataFrame({"patient": [1], "sex": ["f"], "smoker": [True]})
    events = pd.DataFrame(
        {
            "patient": [1, 1, 1],
            "day": ["2020-01-05", "2020-01-02", "2020-01-05"],
            "severity": [3, 1, 2],
            "ward": "a",
        }
    )
    codes = read_visits({"people": who, "events": events}, clinic()).codes()
    assert codes.events[:, 0].tolist() == [1, 3, 2]
    assert clinic().event_schema.columns[-1].labels[codes.events[2, -1]] == "0"


def test_events_alone_make_their_people_and_say_that_others_cannot_be_counted() -> None:
    _, events = frames()
    schema = VisitSchema(
        person="patient", events=clinic().events, most_events=3, time="day"
    )
    with pytest.warns(
        UtilityWarning, match="people without an event cannot be counted"
    ):
        visits = read_rows(events, schema)
    assert sorted(visits.people) == sorted(events["patient"].unique())
    codes = visits.codes()
    assert codes.people.shape == (visits.rows, 2)
    assert (codes.people[:, -1] >= 1).all()


def test_ids_of_people_alone_let_those_without_events_count(tmp_path: Path) -> None:
    who, events = frames()
    schema = VisitSchema(
        person="patient", events=clinic().events, most_events=3, time="day"
    )
    quiet = set(who["patient"]) - set(events["patient"])
    assert quiet
    who.to_csv(tmp_path / "people.csv", index=False)
    events.to_csv(tmp_path / "events.csv", index=False)
    for source in ({"people": who[["patient"]], "events": events}, tmp_path):
        visits = read_visits(source, schema)
        assert set(visits.people) == set(who["patient"])
        assert set(visits.people[visits.numbers == 0]) == quiet
        assert visits.codes().people.shape == (len(who), 2)
    with pytest.raises(SchemaError, match="is nobody"):
        read_visits({"people": who[["patient"]].iloc[1:], "events": events}, schema)


def test_without_a_time_there_is_neither_gap_nor_order() -> None:
    who, events = frames()
    schema = VisitSchema(
        person="patient",
        people=clinic().people,
        events=Schema(columns=clinic().events.columns[1:]),
        most_events=3,
    )
    codes = read_visits({"people": who, "events": events}, schema).codes()
    assert codes.people.shape[1] == 3
    assert codes.events.shape[1] == 2
    person = who["patient"].iloc[np.flatnonzero(codes.numbers == 3)[0]]
    i = int(np.flatnonzero(who["patient"] == person)[0])
    mine = events[events["patient"] == person]["severity"].head(3)
    assert (
        codes.events[codes.starts[i] : codes.starts[i + 1], 0].tolist() == mine.tolist()
    )


def test_a_bound_that_nobody_reaches_cuts_nothing() -> None:
    codes = read(clinic(most_events=200)).codes()
    all_of_them = read()
    assert np.array_equal(codes.numbers, all_of_them.numbers)


def test_a_folder_with_two_files_is_a_holders_table(tmp_path: Path) -> None:
    who, events = frames()
    who.to_csv(tmp_path / "people.csv", index=False, sep=";")
    events.to_parquet(tmp_path / "events.parquet")
    clinic().save(tmp_path / "schema.toml")
    schema = load_schema(tmp_path / "schema.toml")
    for source in (
        tmp_path,
        str(tmp_path),
        TableSource(table=str(tmp_path), missing=("?",)),
    ):
        visits = read_rows(source, schema)
        assert isinstance(visits, Visits)
        assert np.array_equal(visits.codes().people, read().codes().people)
    events.to_csv(tmp_path / "events.csv", index=False)
    with pytest.raises(SchemaError, match="which one"):
        read_rows(tmp_path, schema)


def test_ids_are_the_same_people_whether_text_or_numbers() -> None:
    who, events = frames()
    events["patient"] = events["patient"].astype(str)
    codes = read_visits({"people": who, "events": events}, clinic()).codes()
    assert np.array_equal(codes.events, read().codes().events)


BROKEN: list[
    tuple[str, Callable[[pd.DataFrame, pd.DataFrame], tuple[Any, Any]], str]
] = [
    (
        "an event without a person",
        lambda who, events: (who.iloc[1:], events),
        '"100" at row .* is nobody',
    ),
    (
        "an event without an id",
        lambda who, events: (who, events.assign(patient=None)),
        "no id",
    ),
    (
        "a person who comes twice",
        lambda who, events: (pd.concat([who, who.head(1)]), events),
        "earlier row",
    ),
    ("no events at all", lambda who, events: (who, events.head(0)), "no rows"),
    ("nobody at all", lambda who, events: (who.head(0), events), "no rows"),
    (
        "a time that is no date",
        lambda who, events: (who, events.assign(day="soon")),
        "is not a date",
    ),
    (
        "a time outside its bounds",
        lambda who, events: (who, events.assign(day="2021-05-05")),
        "above the declared",
    ),
    (
        "a time that is missing",
        lambda who, events: (who, events.assign(day=None)),
        "not nullable",
    ),
    (
        "a level that is not declared",
        lambda who, events: (who, events.assign(ward="z")),
        "not one of the declared",
    ),
    (
        "no such column",
        lambda who, events: (who, events.drop(columns="ward")),
        "no such column",
    ),
]


@pytest.mark.parametrize(
    ("change", "said"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_tables_that_do_not_fit_are_refused(
    change: Callable[[pd.DataFrame, pd.DataFrame], tuple[Any, Any]], said: str
) -> None:
    who, events = change(*frames())
    with pytest.raises(SchemaError, match=said):
        read_visits({"people": who, "events": events}, clinic())


def test_tables_that_the_schema_does_not_describe_are_refused() -> None:
    who, events = frames()
    with pytest.raises(SchemaError, match="no table of people"):
        read_visits(events, clinic())
    with pytest.raises(SchemaError, match="event"):
        read_visits({"people": who, "evnts": events}, clinic())
    with pytest.raises(SchemaError, match="visits"):
        read_rows({"people": who, "events": events}, clinic().events)


def test_bins_of_the_number_of_events_are_declared_as_those_of_gaps_are() -> None:
    schema = clinic(most_events=12, numbers=[0, 1, 2, 5], gaps=[0, 7])
    assert schema.person_schema.columns[-1].edges.tolist() == [0, 1, 2, 5, 13]
    assert VisitSchema.from_dict(schema.to_dict()) == schema
    binned = clinic(most_events=12).binned(
        {"number_of_events": (0, 1, 4, 12), "day_gap": (0, 2, 30)}
    )
    assert (binned.numbers, binned.gaps) == ((0, 1, 4), (0, 2))
    for wrong in ([0, 2], [0], [1, 2], [0, 1, 5, 3], [0, 1, 12], "01", 3):
        with pytest.raises(SchemaError):
            clinic(most_events=12, numbers=wrong)

"""What is counted of people with many rows: the tables against a plain loop, and by how
much one person moves them.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import raises
from understudy.data.visits import VisitCodes, VisitLayout, VisitSchema, count_visits
from understudy.data.visits.counts import AHEAD, parts
from understudy.ground.errors import Effect, SchemaError
from visit_cases import clinic, random_codes

LAYOUT = VisitLayout((2, 3, 7), (3, 2), ordered=True)


def by_hand(
    codes: VisitCodes, layout: VisitLayout, unit: int
) -> dict[tuple[str, int, int], np.ndarray]:
    """The same tables, person by person and event by event."""
    tables = {block: np.zeros(layout.shape(block)) for block in layout.blocks}
    average = unit
    for i, person in enumerate(codes.people):
        mine = codes.events[codes.starts[i] : codes.starts[i + 1]]
        n = len(mine)
        for kind, a, b in layout.blocks:
            table = tables[kind, a, b]
            unit = layout.unit_of(kind, average)
            if kind == "person":
                table[(person[a],) if a == b else (person[a], person[b])] += unit
            elif kind in AHEAD:
                ahead = AHEAD[kind]
                for t in range(n - ahead):
                    share = unit * (t + 1) // (n - ahead) - unit * t // (n - ahead)
                    table[mine[t, a], mine[t + ahead, b]] += share
            else:
                for t in range(n):
                    share = unit * (t + 1) // n - unit * t // n
                    first = person[a] if kind == "across" else mine[t, a]
                    at = (
                        (mine[t, a],)
                        if kind == "event" and a == b
                        else (first, mine[t, b])
                    )
                    table[at] += share
    return tables


@pytest.mark.parametrize("unit", [1, 7, 2520])
def test_counts_equal_a_loop_over_people_and_events(unit: int) -> None:
    rng = np.random.default_rng(1)
    codes = random_codes(rng, LAYOUT, rng.integers(0, 7, 40))
    found = LAYOUT.split(count_visits(codes, LAYOUT, unit))
    for block, table in by_hand(codes, LAYOUT, unit).items():
        assert np.array_equal(found[block], table), block


def test_without_an_order_nothing_is_counted_of_consecutive_events() -> None:
    layout = VisitLayout((2, 3), (3,), ordered=False)
    assert not [block for block in layout.blocks if block[0] == "next"]
    codes = random_codes(np.random.default_rng(2), layout, np.array([0, 3, 1]))
    assert count_visits(codes, layout, 10).shape == (layout.size,)


@settings(max_examples=60)
@given(
    n=st.integers(0, 5000),
    unit=st.sampled_from([1, 2, 60, 2520, 27_720, 2**15]),
    same=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_one_person_moves_all_tables_by_no_more_than_reach(
    n: int, unit: int, same: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    others = random_codes(rng, LAYOUT, rng.integers(0, 4, 3))
    one = random_codes(rng, LAYOUT, np.array([n]))
    events = np.zeros_like(one.events) if same else one.events
    both = VisitCodes(
        np.concatenate([others.people, one.people]),
        np.concatenate([others.events, events]),
        np.concatenate([others.starts, [others.starts[-1] + n]]),
    )
    moved = count_visits(both, LAYOUT, unit) - count_visits(others, LAYOUT, unit)
    assert (moved >= 0).all()
    assert math.sqrt(int(np.square(moved).sum())) <= LAYOUT.sensitivity(unit)
    for kind, table in (
        (block[0], table) for block, table in LAYOUT.split(moved).items()
    ):
        enough = n >= {"person": 0, "next": 2, "later": 3, "far": 5}.get(kind, 1)
        assert table.sum() == (LAYOUT.unit_of(kind, unit) if enough else 0), kind


def test_the_bound_is_reached_by_a_person_whose_events_are_all_alike() -> None:
    codes = VisitCodes(
        np.zeros((1, 3), dtype=np.int32),
        np.zeros((6, 2), dtype=np.int32),
        np.array([0, 6], dtype=np.int64),
    )
    moved = count_visits(codes, LAYOUT, 60)
    assert math.sqrt(int(np.square(moved).sum())) == pytest.approx(
        LAYOUT.sensitivity(60)
    )


def test_events_far_apart_cost_the_other_tables_nothing() -> None:
    for layout in (
        LAYOUT,
        VisitLayout((4, 13), (24, 3, 5), ordered=True),
        replace(LAYOUT, even=True),
    ):
        # nobody has five events: none are far apart
        before = replace(layout, people=(*layout.people[:-1], 5))
        assert {kind for kind, _, _ in layout.blocks} - {
            kind for kind, _, _ in before.blocks
        } == {"far"}
        own = [layout.unit_of(kind, 27_720) for kind in layout.apart]
        assert own[0] == own[1]
        assert sum(unit**2 for unit in own) <= (1 + 1e-9) * (27_720 * 2) ** 2
    even = replace(LAYOUT, even=True)
    once = replace(LAYOUT, even=True, people=(2, 3, 5))
    assert even.sensitivity(27_720) <= once.sensitivity(27_720)


def test_parts_of_a_unit_add_up_to_it_for_any_number_of_events() -> None:
    for n in (1, 2, 3, 7, 11, 4096):
        order = np.arange(n)
        for unit in (1, 60, 2520):
            share = parts(order, np.full(n, n), unit)
            assert share.sum() == unit
            assert 0 <= share.min() <= share.max() <= -(-unit // n)


def test_a_level_outside_its_column_is_refused() -> None:
    good = random_codes(np.random.default_rng(0), LAYOUT, np.array([1, 2]))
    for wrong in (-1, 3):
        events = good.events.copy()
        events[0, 0] = wrong
        with raises(SchemaError, effect=Effect.NOTHING_COMPUTED):
            count_visits(VisitCodes(good.people, events, good.starts), LAYOUT, 10)


def test_an_event_of_nobody_cannot_be_put_among_codes() -> None:
    good = random_codes(np.random.default_rng(0), LAYOUT, np.array([1, 2]))
    for starts in ([0, 1, 2], [1, 2, 3], [0, 2, 1, 3]):
        with pytest.raises(SchemaError):
            VisitCodes(good.people, good.events, np.array(starts, dtype=np.int64))


def test_a_schema_of_visits_comes_back_from_a_file(tmp_path: Path) -> None:
    for schema in (
        clinic(),
        clinic(time=None, cut="draw"),
        clinic(gaps=(0, 1, 8), most_events=100),
    ):
        for name in ("schema.toml", "schema.json"):
            schema.save(tmp_path / name)
            assert VisitSchema.load(tmp_path / name) == schema


def test_columns_that_follow_from_the_schema_are_public_levels() -> None:
    schema = clinic()
    assert schema.person_schema.names == (
        "sex",
        "smoker",
        "first_day",
        "number_of_events",
    )
    assert schema.event_schema.names == ("severity", "ward", "day_gap")
    layout = VisitLayout.from_schema(schema)
    assert layout.people == (2, 2, 4 + 1, 4)
    # gaps of 0, 1, 2–3, 4–7, 8–15, 16–30 days, and none
    assert layout.events == (4, 2 + 1, 6 + 1)
    assert clinic(gaps=(0, 1, 8)).event_schema.column("day_gap").labels == (
        "0",
        "1–7",
        "8–30",
    )
    many = clinic(most_events=1000).person_schema.column("number_of_events")
    assert many.labels[:17] == (*map(str, range(16)), "16–19")
    assert many.labels[-1].endswith("–1000")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"most_events": 0}, "most_events"),
        ({"most_events": 5000}, "most_events"),
        ({"most_events": True}, "most_events"),
        ({"cut": "last"}, "cut"),
        ({"time": "severe"}, "severity"),
        ({"time": "ward"}, "orders the events"),
        ({"gaps": (1, 2)}, "begin"),
        ({"gaps": (0, 40)}, "increase"),
        ({"time": None, "gaps": (0, 1)}, "no column holds the time"),
        ({"person": "sex"}, "sex"),
    ],
)
def test_a_schema_of_visits_that_cannot_be_meant_is_refused(
    changed: dict[str, object], said: str
) -> None:
    with pytest.raises(SchemaError, match=said):
        replace(clinic(), **changed)  # type: ignore[arg-type]


def test_one_name_stands_for_one_column() -> None:
    given = clinic().to_dict()
    given["events"]["columns"][1]["name"] = "smoker"
    with pytest.raises(SchemaError, match="two meanings"):
        VisitSchema.from_dict(given)
    with pytest.raises(SchemaError, match="most_evens"):
        VisitSchema.from_dict(clinic().to_dict() | {"most_evens": 3})

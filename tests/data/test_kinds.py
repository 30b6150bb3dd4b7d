"""Every kind of rows by its one object: told from the others, made up, aligned, encoded
and drawn.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.encoding.population import population_of
from understudy.data.images import ImageSchema
from understudy.data.kinds import (
    ARRAYS,
    BROUGHT,
    FLAT,
    TABLE,
    MixedSchema,
    kind_of,
    schema_from,
    sizes_of,
)
from understudy.data.schema import Boolean, Categorical, Integer, Real, Schema
from understudy.data.series import SeriesSchema
from understudy.data.visits import VisitSchema
from understudy.generators.samplers import SAMPLERS
from understudy.generators.sampling import Sampler
from understudy.privacy.noise.rng import FastRng

COLUMNS = (
    Boolean(name="ill"),
    Categorical(name="colour", categories=("red", "blue", "green")),
)
SCHEMAS: dict[str, Any] = {
    "table": Schema(columns=COLUMNS, person="id"),
    "image": ImageSchema(height=2, width=3, label="digit", classes=(0, 1, 2)),
    "series": SeriesSchema(
        channels=(Real(name="pulse", low=0, high=200),), length=4, series="stay"
    ),
    "visits": VisitSchema(
        person="id",
        most_events=4,
        people=Schema(columns=COLUMNS),
        events=Schema(columns=(Integer(name="cost", low=0, high=9),)),
    ),
}


def test_there_is_a_case_for_every_kind_and_each_is_found_by_its_schema() -> None:
    assert SCHEMAS.keys() == BROUGHT.keys()
    for name, schema in SCHEMAS.items():
        assert schema_from(schema.to_dict()) == schema
        assert [kind.name for kind in BROUGHT.values() if kind.describes(schema)] == [
            name
        ]
        assert kind_of(schema).describes(schema)
    assert [*FLAT.among(SCHEMAS)] == ["table", "image", "series"]
    assert [*ARRAYS.among(SCHEMAS)] == ["image", "series"]


@pytest.mark.parametrize("name", BROUGHT)
def test_of_people_who_are_made_up_one_differs_from_all_others_who_are_alike(
    name: str,
) -> None:
    kind = BROUGHT[name]
    schema = SCHEMAS[name]
    rows = kind.made_up(schema, 5)
    assert kind.holds(rows)
    assert not any(other.holds(rows) for other in BROUGHT.values() if other is not kind)
    assert rows.rows == 5
    one, *others = (_cells(rows.take(np.array([who]))) for who in range(5))
    assert all(np.array_equal(other, others[0]) for other in others)
    assert not np.array_equal(one, others[0])
    alike = kind.made_up(schema, 3, canary=None)
    assert all(
        np.array_equal(_cells(alike.take(np.array([who]))), others[0])
        for who in range(3)
    )


def _cells(rows: Any) -> np.ndarray[Any, Any]:
    """All that a person has, in one line."""
    if hasattr(rows, "frame"):
        return rows.frame.to_numpy().ravel()
    return np.concatenate(
        [rows.person_codes.ravel(), rows.events.ravel()]
        if hasattr(rows, "person_codes")
        else [rows.values.ravel()]
    )


@pytest.mark.parametrize("name", BROUGHT)
def test_a_roster_has_a_place_for_every_person(name: str) -> None:
    roster = BROUGHT[name].roster(BROUGHT[name].made_up(SCHEMAS[name], 4))
    assert roster.rows == 4
    assert kind_of(roster.schema) is TABLE


@pytest.mark.parametrize("name", FLAT.among(SCHEMAS))
def test_rows_come_back_from_their_numbers(name: str) -> None:
    schema = SCHEMAS[name]
    kind = kind_of(schema)
    rows = kind.made_up(schema, 4)
    numbers = kind.encode(rows, kind.roster(rows))
    assert numbers.shape == (4, kind.width(schema))
    drawn = kind.decode(schema, numbers, FastRng(0), "argmax")
    if isinstance(drawn, pd.DataFrame):
        assert drawn.equals(rows.frame)
    else:
        assert np.allclose(drawn, schema.unscaled(rows.values))
    assert population_of(rows).people == 4


def test_parts_side_by_side_have_the_sizes_of_all() -> None:
    parts = FLAT.among(SCHEMAS)
    mixed = MixedSchema(parts=parts)
    assert sizes_of(mixed) == tuple(
        size for part in parts.values() for size in kind_of(part).sizes(part)
    )
    assert len(mixed.names) == 2 + 6 + 4
    assert set(mixed.owners.values()) == parts.keys()


def test_every_kind_that_can_be_brought_can_be_drawn() -> None:
    assert BROUGHT.keys() < SAMPLERS.keys()
    for schema in SCHEMAS.values():
        assert issubclass(SAMPLERS[schema.kind], Sampler)

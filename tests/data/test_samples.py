from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats.contingency import association

from understudy.data import samples
from understudy.data.column import Binned, Real
from understudy.data.encoding.codec import Codec
from understudy.data.samples import overlap_people, rand_health, toy
from understudy.data.schema import join
from understudy.data.table import check_table, read_table
from understudy.ground.errors import ConfigError


def test_every_row_of_the_experiment_fits_its_public_schema() -> None:
    tables, schemas = rand_health()
    assert list(tables) == list(schemas) == ["clinic", "insurer"]
    for party, schema in schemas.items():
        schema.require_public()
        assert check_table(tables[party], schema) == []
        assert 7 <= len(schema.columns) <= 9
        frame = read_table(tables[party], schema).frame
        assert [name for name in schema.names if frame[name].isna().any()] == [
            column.name for column in schema.columns if column.nullable
        ]
        assert Codec(schema).encode(frame).shape == (len(frame), Codec(schema).width)
    kinds = {column.kind for schema in schemas.values() for column in schema.columns}
    assert kinds == {"categorical", "ordinal", "boolean", "integer", "real"}


def test_all_years_fit_too_so_the_bounds_were_not_fitted_on_the_rows_shown() -> None:
    years = samples._readable(pd.read_csv(samples._randhie()))
    assert len(years) == 20_190
    for schema in (samples.CLINIC, samples.INSURER):
        found = check_table(years, schema)
        # a person has a row for every year
        assert {v.column for v in found if v.error} == {"zper"}


def test_without_bins_numbers_have_the_same_bounds_and_as_many_decimals_as_they_are_said_to_have():
    tables, schemas = rand_health(bins=False)
    _, binned = rand_health()
    for party, schema in schemas.items():
        schema.require_public()
        assert check_table(tables[party], schema) == []
        for column, other in zip(schema.columns, binned[party].columns, strict=True):
            if not isinstance(column, Binned):
                assert column == other
                continue
            assert column.bins is None
            assert (column.edges[0], column.edges[-1]) == (
                other.edges[0],
                other.edges[-1],
            )
            if isinstance(column, Real):
                cells = tables[party][column.name]
                assert column.decimals is not None
                assert cells.round(column.decimals).equals(cells)


def test_the_holders_share_most_people_in_another_order() -> None:
    tables, schemas = rand_health()
    clinic, insurer = (tables[party]["zper"].to_numpy() for party in tables)
    both = np.intersect1d(clinic, insurer)
    assert 0.85 < len(both) / len(np.union1d(clinic, insurer)) < 0.90
    assert len(both) < min(len(clinic), len(insurer))
    order = [ids[np.isin(ids, both)] for ids in (clinic, insurer)]
    assert not np.array_equal(*order)
    again, _ = rand_health()
    for party in tables:
        pd.testing.assert_frame_equal(again[party], tables[party])
    # What a joint table is for: visits at the clinic go with spending at the insurer.
    joint = join(schemas)
    codes = Codec(joint).codes(tables["clinic"].merge(tables["insurer"], on="zper"))
    visits, spent = (
        codes[:, joint.names.index(name)] for name in ("visits", "outpatient")
    )
    assert association(pd.crosstab(visits, spent).to_numpy(), method="cramer") > 0.4


def test_without_statsmodels_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samples, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'understudy\[demo\]'"):
        rand_health()


def test_toy_tables_fit_their_schema_and_are_seeded() -> None:
    for person in ("id", None):
        frame, schema = toy(rows=500, seed=3, person=person)
        assert check_table(frame, schema) == []
        assert {column.kind for column in schema.columns} == {
            "categorical",
            "ordinal",
            "boolean",
            "integer",
            "real",
            "date",
        }
        pd.testing.assert_frame_equal(read_table(frame, schema).frame, frame)
        pd.testing.assert_frame_equal(toy(rows=500, seed=3, person=person)[0], frame)
        assert not toy(rows=500, seed=4, person=person)[0].equals(frame)
    assert read_table(*toy(rows=1)).rows == 1
    with pytest.raises(ConfigError, match="rows"):
        toy(rows=0)


def test_the_columns_of_a_toy_table_go_together() -> None:
    frame, schema = toy(rows=2000)
    columns = Codec(schema).codes(frame).T
    tables = [pd.crosstab(a, b).to_numpy() for a, b in combinations(columns, 2)]
    v = np.array([association(table, method="cramer") for table in tables])
    assert v.min() > 0.15


def test_people_overlap_as_their_shares_say() -> None:
    frame = pd.DataFrame({"id": np.repeat(np.arange(2000), 2)})  # two rows a person
    held = overlap_people(
        frame, "id", {"clinic": 0.8, "insurer": 0.5, "all": 1.0, "none": 0.0}, seed=0
    )
    people = {party: set(frame["id"].iloc[rows]) for party, rows in held.items()}
    assert [len(people[party]) for party in held] == [1600, 1000, 2000, 0]
    assert all(
        len(rows) == 2 * len(people[party]) == len(set(rows))
        for party, rows in held.items()
    )
    assert len(people["clinic"] & people["insurer"]) / 2000 == pytest.approx(
        0.4, abs=0.04
    )
    assert not np.array_equal(held["all"], np.sort(held["all"]))
    again = overlap_people(frame, "id", {"clinic": 0.8}, seed=0)
    assert np.array_equal(again["clinic"], held["clinic"])
    with pytest.raises(ConfigError):
        overlap_people(frame, "id", {"a": 1.1}, 0)

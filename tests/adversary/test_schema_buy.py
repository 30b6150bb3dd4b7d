"""A purchase counts cells: whatever one person's cells hold, nobody else's are read in
another way.

The counts under the noise are sums over people of one cell per look, if and only if
adding a person adds at most one value to what each column is read as, and takes none
away. So that is what is looked for here: a table, and the same with one person more,
who tries everything.
"""

import csv
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.column import OTHER
from understudy.data.reading.files import Source
from understudy.privacy import buy_schema as module
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.buy_schema import Quote, buy_schema, quote
from understudy.privacy.noise.rng import SecureRng

KINDS = {kind: kind for kind in ("categorical", "integer", "real", "date")}
NEAR = 2**53
CODES = [NEAR, NEAR + 1]


@cache
def offer(kinds: tuple[tuple[str, str], ...]) -> Quote | None:
    """The quote, which depends on no row, made once."""
    return quote(dict(kinds), epsilon=1, delta=1e-6)


def read_as(
    source: Source, kinds: dict[str, str], person: str | None = "id"
) -> dict[str, Counter[Any]]:
    """What a purchase reads in each column: the values that its counts are counts
    of.
    """
    read: dict[str, Counter[Any]] = {}

    def spy(name: str, kind: str, values: Any, *rest: Any) -> None:
        # and nothing is bought: there is no noise here
        read[name] = Counter(values.tolist())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_buy", spy)
        patch.setattr(module, "quote", lambda kinds, **_: offer(tuple(kinds.items())))
        ledger = Ledger.rehearsal("clinic", Budget(1, 1e-6))
        rng = SecureRng.from_seed(0)
        kinds = kinds | {"always": "boolean"}
        buy_schema(
            source,
            kinds,
            ledger,
            epsilon=1,
            delta=1e-6,
            run="r",
            rng=rng,
            person=person,
        )
    return read


def moves(
    without: dict[str, Counter[Any]], with_person: dict[str, Counter[Any]]
) -> dict[str, tuple[int, int]]:
    """In each column how many values the person adds, and how many go."""
    return {
        name: (
            (with_person[name] - without[name]).total(),
            (without[name] - with_person[name]).total(),
        )
        for name in without
    }


def parquet(path: Path, columns: dict[str, pa.Array]) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


# What was seen to happen


def test_one_missing_value_does_not_merge_codes_near_two_to_the_53(
    tmp_path: Path,
) -> None:
    codes = [code for code in CODES for _ in range(400)]

    def file(more: list[int | None]) -> Path:
        values = codes + more
        return parquet(
            tmp_path / f"{len(values)}.parquet",
            {
                "id": pa.array(range(len(values))),
                "code": pa.array(values, pa.int64()),
                "always": pa.array([True] * len(values)),
            },
        )

    before = read_as(file([]), {"code": "categorical"})
    after = read_as(file([None]), {"code": "categorical"})
    assert before == after == {"code": Counter({str(NEAR): 400, str(NEAR + 1): 400})}


def test_one_missing_id_does_not_merge_people_near_two_to_the_53(
    tmp_path: Path,
) -> None:
    ids = [NEAR + n for n in range(9)]

    def file(more: list[int | None]) -> Path:
        people = ids + more
        return parquet(
            tmp_path / f"{len(people)}.parquet",
            {
                "id": pa.array(people, pa.int64()),
                "x": pa.array([1.5] * len(people)),
                "always": pa.array([True] * len(people)),
            },
        )

    assert (
        read_as(file([]), {"x": "real"})
        == read_as(file([None]), {"x": "real"})
        == {"x": Counter({1.5: 9})}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_one_list_does_not_drop_a_column(kind: str) -> None:
    value = "2020-02-02" if kind == "date" else 7
    frame = pd.DataFrame(
        {
            "id": range(10),
            "x": pd.Series([value] * 9 + [[value]], dtype=object),
            "always": True,
        }
    )
    assert read_as(frame, {"x": kind})["x"].total() == 9


@pytest.mark.parametrize(
    "stranger", [True, 1.0, np.int8(1), Decimal("1.0"), Fraction(1)], ids=repr
)
def test_what_is_equal_to_a_number_does_not_give_it_another_name(
    stranger: object,
) -> None:
    """The first of equal objects would otherwise speak for all: one `True` before a
    thousand 1s.
    """
    frame = pd.DataFrame(
        {
            "id": range(9),
            "x": pd.Series([stranger] + [1] * 8, dtype=object),
            "always": True,
        }
    )
    assert read_as(frame, {"x": "categorical"})["x"]["1"] >= 8


def test_equal_moments_are_each_on_their_own_day() -> None:
    here = datetime(2020, 1, 1, 0, 30, tzinfo=UTC)
    there = pd.Timestamp(here).tz_convert("America/New_York")
    frame = pd.DataFrame(
        {
            "id": range(6),
            "x": pd.Series([there] + [here] * 5, dtype=object),
            "always": True,
        }
    )
    days = read_as(frame, {"x": "date"})["x"]
    assert sorted(days.values()) == [1, 5]


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        ("categorical", b"\xff\xfe"),
        ("real", b"1\xe9"),
        ("date", b"2020\xff"),
        ("categorical", b"a" * 200_000),
    ],
)
def test_a_cell_that_is_not_utf_8_is_that_cell_s_matter(
    kind: str, cell: bytes, tmp_path: Path
) -> None:
    value = b"2020-02-02" if kind == "date" else b"7"
    lines = [b"id,x,always", *(b"%d,%s,true" % (n, value) for n in range(9))]
    plain = tmp_path / "plain.csv"
    strange = tmp_path / "strange.csv"
    plain.write_bytes(b"\n".join(lines) + b"\n")
    strange.write_bytes(
        b"\n".join([lines[0], b"99,%s,true" % cell, *lines[1:]]) + b"\n"
    )
    more, less = moves(read_as(plain, {"x": kind}), read_as(strange, {"x": kind}))["x"]
    assert (more <= 1, less) == (True, 0)


def test_a_moment_beyond_every_calendar_is_that_cell_s_matter(tmp_path: Path) -> None:
    for unit in ("ms", "us", "ns"):
        for zone in (None, "Asia/Tokyo"):
            moments = pa.array([0, 1, 2**62, -(2**62), None], pa.timestamp(unit, zone))
            columns = {
                "id": pa.array(range(5)),
                "x": moments,
                "y": moments,
                "z": moments,
                "always": pa.array([True] * 5),
            }
            read = read_as(
                parquet(tmp_path / "t.parquet", columns),
                {"x": "date", "y": "categorical", "z": "real"},
            )
            assert read["x"].total() >= 2
            assert read["y"].total() >= 2
            assert read["z"].total() == 0


def test_both_codes_are_bought_beside_a_gap(tmp_path: Path) -> None:
    values = [*CODES * 900, None]
    file = parquet(tmp_path / "t.parquet", {"code": pa.array(values, pa.int64())})
    ledger = Ledger.rehearsal("clinic", Budget(1, 1e-6))
    rng = SecureRng.from_seed(1)
    schema = buy_schema(
        file, {"code": "categorical"}, ledger, epsilon=1, delta=1e-6, run="r", rng=rng
    )
    assert schema.columns[0].categories == (str(NEAR), str(NEAR + 1), OTHER)  # type: ignore[attr-defined]


# What else may happen

SINGLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(NEAR - 3, NEAR + 3),
    st.floats(),
    st.text(),
    st.binary(),
    st.sampled_from(
        [
            "1",
            "01",
            "1.0",
            " 1",
            "1e400",
            "inf",
            "nan",
            "NA",
            "",
            "True",
            "2020-01-01",
            "1_0",
            "\ud800",
        ]
    ),
    st.decimals(allow_nan=True),
    st.sampled_from([Decimal("sNaN"), Decimal("1E+999999"), 10**5000, -(10**5000)]),
    st.fractions(),
    st.complex_numbers(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.times(),
    st.timedeltas(),
    st.sampled_from(
        [
            pd.NA,
            pd.NaT,
            np.datetime64("NaT"),
            np.datetime64("2020-01-01"),
            np.float32(0.1),
            np.int64(7),
            np.bool_(True),
            time(1),
            timedelta(1),
            date.max,
            datetime.min,
            object(),
            type,
            np.array([1.0]),
            np.array([]),
        ]
    ),
)
ANYTHING = st.one_of(
    SINGLE,
    st.lists(SINGLE, max_size=2),
    st.dictionaries(st.text(max_size=1), SINGLE, max_size=1),
    st.sets(st.integers()),
    st.tuples(SINGLE),
)


def check(without: Source, with_person: Source, kinds: dict[str, str]) -> None:
    for name, (more, less) in moves(
        read_as(without, kinds), read_as(with_person, kinds)
    ).items():
        assert more <= 1, name
        assert less == 0, name


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(SINGLE, max_size=5),
    person=st.fixed_dictionaries(dict.fromkeys(KINDS, ANYTHING)),
    who=ANYTHING,
    first=st.booleans(),
)
def test_one_person_moves_one_count_whatever_a_frame_holds(
    rows: list[Any], person: dict[str, Any], who: Any, first: bool
) -> None:
    """`who` may be any id, also one that is nobody's; the others are numbered."""

    def frame(ids: list[Any], cells: dict[str, list[Any]]) -> pd.DataFrame:
        columns = {"id": ids, **cells}
        made = {
            name: pd.Series(values, dtype=object) for name, values in columns.items()
        }
        return pd.DataFrame({**made, "always": True})

    others: list[Any] = [f"person {n}" for n in range(len(rows))]
    cells = {name: [*rows] for name in KINDS}
    more = {
        name: [person[name], *rows] if first else [*rows, person[name]]
        for name in KINDS
    }
    check(
        frame(others, cells),
        frame([who, *others] if first else [*others, who], more),
        KINDS,
    )


TEXT = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=6),
    st.sampled_from(
        [
            "1",
            "01",
            "1.0",
            "x",
            "NA",
            "",
            "1e999",
            "2020-01-01",
            f"{NEAR + 1}",
            "True",
            '"',
            "a,b",
            "é",
        ]
    ),
    st.integers().map(str),
    st.floats().map(repr),
    st.dates().map(str),
)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(TEXT, max_size=5),
    person=st.fixed_dictionaries(dict.fromkeys(KINDS, TEXT)),
    first=st.booleans(),
)
def test_one_person_moves_one_count_whatever_a_csv_file_holds(
    rows: list[str], person: dict[str, str], first: bool
) -> None:
    others = [[str(n), *[cell] * len(KINDS), "true"] for n, cell in enumerate(rows)]
    one = ["new", *person.values(), "true"]
    with TemporaryDirectory() as folder:
        files = []
        for name, lines in (
            ("without", others),
            ("with", [one, *others] if first else [*others, one]),
        ):
            files.append(Path(folder) / f"{name}.csv")
            with files[-1].open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([["id", *KINDS, "always"], *lines])
        check(files[0], files[1], KINDS)


TYPED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (
        pa.int64(),
        st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from(CODES)),
    ),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "double": (
        pa.float64(),
        st.one_of(st.floats(), st.sampled_from([float(NEAR), 1.0, -0.0, 0.0])),
    ),
    "float": (pa.float32(), st.floats(width=32)),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=4)),
    "bytes": (pa.binary(), st.binary(max_size=4)),
    "bool": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "moment": (pa.timestamp("us", "Europe/Paris"), st.integers(-(2**62), 2**62)),
    "milliseconds": (pa.timestamp("ms"), st.integers(-(2**62), 2**62)),
    "decimal": (pa.decimal128(20, 2), st.decimals(-(10**9), 10**9, places=2)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 3), max_size=2)),
    "code": (pa.dictionary(pa.int32(), pa.int64()), st.sampled_from(CODES)),
    "length": (pa.duration("us"), st.integers(-(2**62), 2**62)),
}


@settings(max_examples=30, deadline=None)
@given(data=st.data(), kind=st.sampled_from([*TYPED]), first=st.booleans())
def test_one_person_moves_one_count_whatever_a_parquet_file_holds(
    data: st.DataObject, kind: str, first: bool
) -> None:
    type_, values = TYPED[kind]
    cell = st.one_of(st.none(), values)
    rows = data.draw(st.lists(cell, max_size=5))
    one = data.draw(cell)
    ids = [NEAR + n for n in range(len(rows))]

    def file(path: Path, ids: list[int | None], cells: list[Any]) -> Path:
        column = pa.array(cells, type_)
        always = pa.array([True] * len(ids))
        return parquet(
            path,
            {
                "id": pa.array(ids, pa.int64()),
                **dict.fromkeys(KINDS, column),
                "always": always,
            },
        )

    who = data.draw(st.sampled_from([None, -1]))
    with TemporaryDirectory() as folder:
        without = file(Path(folder) / "without.parquet", [*ids], rows)
        with_person = file(
            Path(folder) / "with.parquet",
            [who, *ids] if first else [*ids, who],
            [one, *rows] if first else [*rows, one],
        )
        check(without, with_person, KINDS)

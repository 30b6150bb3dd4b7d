"""The shape of a source never travels with synthetic rows: dtypes, categories, indices,
attributes, metadata.
"""

import pickle
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import understudy as us
from understudy.data.reading.storage import storages_of, store
from understudy.data.schema import (
    Boolean,
    Categorical,
    Column,
    Datetime,
    Integer,
    Real,
    Schema,
)
from understudy.runs.result import Result

pytestmark = [
    pytest.mark.usefixtures("short_fits", "short_training"),
    pytest.mark.filterwarnings(
        "ignore::understudy.ground.errors.PrivacyWarning",
        "ignore::understudy.ground.errors.UtilityWarning",
    ),
]
PEOPLE = 600
SECRET = "zq-the-only-mauve"
NUMBER = 918_273_645
DAY = pd.Timestamp("1987-06-05 04:03:02")
COLOURS = np.where(np.arange(PEOPLE) % 3 == 0, "red", "blue").astype(object)
WORDS = np.append(COLOURS[1:], SECRET)
NUMBERS = np.append(np.arange(1, PEOPLE) % 40, NUMBER)
CODES = np.append(np.arange(1, PEOPLE) % 3, NUMBER)
DAYS = pd.date_range("2020-01-01", periods=PEOPLE, freq="h")
STAMPS = pd.Series([*DAYS[1:], DAY])
CATEGORY = pd.CategoricalDtype(["red", SECRET, "blue"])
SMALL: dict[str, Any] = {"components": 2, "steps": 2}


def words(dtype: Any) -> Callable[[], pd.DataFrame]:
    return lambda: pd.DataFrame(
        {"colour": pd.Series(WORDS).astype(dtype), "n": NUMBERS % 7}
    )


def numbers(dtype: Any) -> Callable[[], pd.DataFrame]:
    return lambda: pd.DataFrame(
        {"colour": COLOURS, "n": pd.Series(NUMBERS).astype(dtype)}
    )


def moments(
    change: Callable[["pd.Series[Any]"], "pd.Series[Any]"],
) -> Callable[[], pd.DataFrame]:
    return lambda: pd.DataFrame({"colour": COLOURS, "seen": change(STAMPS)})


def filtered() -> pd.DataFrame:
    """The person is gone, and their category stays in the dtype."""
    frame = words("category")()
    return frame[frame["colour"] != SECRET]


def indexed() -> pd.DataFrame:
    frame = words(object)()
    frame.index = pd.Index([f"{SECRET}-{row}" for row in range(PEOPLE)], name=SECRET)
    return frame


def multi_indexed() -> pd.DataFrame:
    frame = words(object)()
    frame.index = pd.MultiIndex.from_arrays([WORDS, NUMBERS], names=[SECRET, "n"])
    return frame


def attributed() -> pd.DataFrame:
    frame = words(object)()
    frame.attrs["first"] = {"name": SECRET, "number": NUMBER}
    frame["colour"].attrs["who"] = SECRET
    frame.columns.name = SECRET
    return frame


def arrow(kind: pa.DataType, **metadata: str) -> pa.Table:
    colours = pa.array(WORDS, pa.string()).cast(kind)
    fields = [pa.field("colour", kind, metadata=metadata), pa.field("n", pa.int64())]
    return pa.table(
        [colours, pa.array(NUMBERS)], schema=pa.schema(fields, metadata=metadata)
    )


def pandas_metadata() -> pa.Table:
    """An index and attributes, as pandas writes them into a table's metadata."""
    return pa.Table.from_pandas(attributed().set_index(pd.Index(WORDS, name=SECRET)))


def polars(kind: Any) -> pl.DataFrame:
    return pl.DataFrame({"colour": pl.Series(list(WORDS)).cast(kind), "n": NUMBERS})


def decimals() -> pd.DataFrame:
    prices = [Decimal("12.50"), Decimal("7.25")] * (PEOPLE // 2 - 1) + [
        Decimal("12.50"),
        Decimal(NUMBER) / 100,
    ]
    return pd.DataFrame(
        {"colour": COLOURS[: len(prices)], "price": pd.Series(prices, dtype=object)}
    )


def sparse() -> pd.DataFrame:
    kind = pd.SparseDtype("int64", fill_value=NUMBER)
    return pd.DataFrame(
        {"colour": COLOURS, "n": pd.arrays.SparseArray(NUMBERS, dtype=kind)}
    )


FRAMES: dict[str, Callable[[], Any]] = {
    "object": words(object),
    "category": words(CATEGORY),
    "ordered category": words(
        pd.CategoricalDtype(["red", SECRET, "blue"], ordered=True)
    ),
    "unused category": filtered,
    "category of numbers": lambda: pd.DataFrame(
        {"colour": COLOURS, "n": pd.Series(CODES).astype("category")}
    ),
    "category of Arrow text": lambda: pd.DataFrame(
        {
            "colour": pd.Series(WORDS, dtype="string[pyarrow]").astype("category"),
            "n": NUMBERS,
        }
    ),
    "string": words("string[python]"),
    "string[pyarrow]": words("string[pyarrow]"),
    "Arrow text": words(pd.ArrowDtype(pa.large_string())),
    "Arrow dictionary in pandas": lambda: pd.DataFrame(
        {
            "colour": pd.Series(pa.array(WORDS).dictionary_encode(), dtype=DICTIONARY),
            "n": NUMBERS,
        }
    ),
    "Arrow dictionary": lambda: arrow(pa.dictionary(pa.int32(), pa.string())),
    "Arrow metadata": lambda: arrow(pa.string(), note=SECRET),
    "pandas metadata": pandas_metadata,
    "polars Categorical": lambda: polars(pl.Categorical),
    "polars Enum": lambda: polars(pl.Enum(["red", SECRET, "blue", "nobody's"])),
    "Int64": numbers("Int64"),
    "int32": numbers("int32"),
    "uint64": numbers("uint64"),
    "float32": numbers("float32"),
    "Float64": numbers("Float64"),
    "Arrow integer": numbers(pd.ArrowDtype(pa.int64())),
    "sparse": sparse,
    "nullable boolean": lambda: words(CATEGORY)().assign(
        ill=pd.array([True, None] * (PEOPLE // 2), "boolean")
    ),
    "objects of booleans": lambda: words(CATEGORY)().assign(
        ill=np.array([True, None, False] * (PEOPLE // 3), object)
    ),
    "datetime": moments(lambda days: days),
    "seconds": moments(lambda days: days.astype("datetime64[s]")),
    "time zone": moments(lambda days: days.dt.tz_localize("Asia/Tokyo")),
    "category of days": moments(lambda days: days.dt.normalize().astype("category")),
    "decimals": decimals,
    "index": indexed,
    "several indices": multi_indexed,
    "attributes": attributed,
}
DICTIONARY = pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
SEEN = (
    "category",
    "unused category",
    "string",
    "Arrow dictionary",
    "polars Enum",
    "sparse",
    "Int64",
)


def marks() -> list[bytes]:
    """What only one person has: as text, and as numbers are kept."""
    texts = [SECRET, str(NUMBER), f"{NUMBER / 100:.2f}", str(DAY.date())]
    return [
        *(text.encode(coding) for text in texts for coding in ("utf-8", "utf-16-le")),
        *(struct.pack(form, NUMBER) for form in ("<q", "<d")),
    ]


def tables_in(path: Path) -> bytes:
    """What an Arrow file holds, without its compression: cells, lists of words, and
    metadata.
    """
    if path.suffix not in (".parquet", ".feather"):
        return path.read_bytes()
    reader = (
        pyarrow.parquet.read_table
        if path.suffix == ".parquet"
        else pyarrow.feather.read_table
    )
    table = reader(path)
    return (
        pickle.dumps(table)
        + str(table.schema.metadata).encode()
        + str(table.schema).encode()
    )


def written(
    result: Result, sample: pd.DataFrame, home: Path
) -> Iterator[tuple[str, bytes]]:
    """Everything that can be handed on: the rows, the files of them, the run's folder
    and its public page.
    """
    yield "pickle", pickle.dumps(sample)
    yield "generator", pickle.dumps(result.generator)
    yield (
        "attrs",
        repr(
            (
                sample.attrs,
                sample.index,
                sample.columns,
                *(sample[c].attrs for c in sample),
            )
        ).encode(),
    )
    yield "dtypes", pickle.dumps(list(sample.dtypes))
    public = home / "public"
    public.mkdir()
    sample.to_csv(public / "sample.csv", index=False)
    sample.to_parquet(public / "sample.parquet")
    sample.to_feather(public / "sample.feather")
    result.report(public / "page.html", publish=True)
    for path in [*public.iterdir(), *(home / "run").rglob("*")]:
        if path.is_file():
            yield path.name, tables_in(path)


CASES = [
    *((name, "dtypes") for name in FRAMES),
    *((name, how) for name in SEEN for how in ("declared", "seen")),
]
OPTIONS: dict[str, dict[str, Any]] = {
    "dtypes": {},
    "declared": {"kinds": {"colour": "categorical", "n": "integer"}},
    "seen": {"names_and_kinds_are_public": True},
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "how"), CASES)
def test_nothing_of_one_person_is_in_what_a_sample_is_made_of(
    name: str, how: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    result = us.synthesize(
        FRAMES[name](),
        epsilon=1,
        ledgers=tmp_path,
        folder=run,
        rows=50,
        **SMALL,
        **OPTIONS[how],
    )
    sample = result.sample(200, seed=1)
    leaks = [
        (place, mark)
        for place, data in written(result, sample, tmp_path)
        for mark in marks()
        if mark in data
    ]
    assert not leaks


@pytest.mark.long
@pytest.mark.parametrize("name", SEEN)
def test_nothing_of_one_person_is_left_in_what_was_fitted(
    name: str, tmp_path: Path
) -> None:
    made = us.Synthesizer(epsilon=1, ledgers=tmp_path / "ledgers", settings=SMALL)
    made.fit(FRAMES[name]())
    places = {"sample": made.sample(200, seed=1), "estimator": made}
    told = {place: pickle.dumps(one) for place, one in places.items()}
    told["words"] = repr(made).encode()
    files = made.save(tmp_path / "made").rglob("*")
    told |= {path.name: path.read_bytes() for path in files if path.is_file()}
    assert not [
        (place, mark)
        for place, data in told.items()
        for mark in marks()
        if mark in data
    ]


def parquet(path: Path) -> None:
    """Lists of words, an index and notes, as a Parquet file keeps them."""
    pyarrow.parquet.write_table(
        arrow(pa.dictionary(pa.int32(), pa.string()), who=SECRET), path
    )


FILES: dict[str, Callable[[Path], None]] = {
    "dictionary.parquet": parquet,
    "index.parquet": lambda path: indexed().assign(n=NUMBERS).to_parquet(path),
    "comma.csv": lambda path: words(object)().to_csv(
        path, index=False, encoding="utf-8-sig"
    ),
    "semicolon.csv": lambda path: words(object)().to_csv(
        path, index=False, sep=";", lineterminator="\r\n"
    ),
    "quoted.csv": lambda path: (
        words(object)().sort_values("colour").to_csv(path, index=False, quoting=1)
    ),
    "packed.csv.gz": lambda path: words(object)().to_csv(path, index=False),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_nothing_of_one_person_is_in_what_a_file_becomes(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "rows").mkdir()
    FILES[name](tmp_path / "rows" / name)
    result = us.synthesize(
        tmp_path / "rows" / name,
        epsilon=1,
        ledgers=tmp_path / "ledgers",
        folder=tmp_path / "run",
        rows=50,
        kinds={"colour": "categorical", "n": "integer"},
        **SMALL,
    )
    sample = result.sample(200, seed=1)
    files = written(result, sample, tmp_path)
    assert not [
        (place, mark) for place, data in files for mark in marks() if mark in data
    ]


def test_a_public_schema_lists_all_that_a_frame_hands_out(tmp_path: Path) -> None:
    colours = Categorical(name="colour", categories=("blue", "red"))
    schema = Schema(columns=(colours, Integer(name="n", low=0, high=9)))
    run = tmp_path / "run"
    result = us.synthesize(
        filtered(),
        epsilon=1,
        schema=schema,
        ledgers=tmp_path,
        folder=run,
        rows=50,
        **SMALL,
    )
    sample = result.sample(200, seed=1)
    files = written(result, sample, tmp_path)
    assert not [
        (place, mark) for place, data in files for mark in marks() if mark in data
    ]


def test_the_order_of_a_source_does_not_come_back(tmp_path: Path) -> None:
    """Neither that of its rows nor that of its categories."""
    rows = pd.DataFrame(
        {
            "colour": pd.Categorical(COLOURS, categories=["red", "blue"]),
            "n": NUMBERS % 7,
        }
    )
    for name, frame in {"a": rows, "b": rows.sort_values("n"), "c": rows[::-1]}.items():
        result = us.synthesize(frame, epsilon=2, ledgers=tmp_path, name=name, **SMALL)
        sample = result.sample(200, seed=1)
        assert sample["colour"].cat.categories.tolist() == ["blue", "red", "(other)"]
        assert not sample["n"].dropna().is_monotonic_increasing
        assert not sample["n"].dropna().is_monotonic_decreasing
        assert sample.index.equals(pd.RangeIndex(200))


def test_a_category_is_of_the_values_that_were_bought_and_other_survives(
    tmp_path: Path,
) -> None:
    rare = np.array(
        [f"{SECRET}-{row}" if row % 5 == 0 else "red" for row in range(PEOPLE)],
        dtype=object,
    )
    frame = pd.DataFrame({"colour": pd.Categorical(rare, ordered=True)})
    result = us.synthesize(frame, epsilon=2, ledgers=tmp_path, **SMALL)
    sample = result.sample(400, seed=1)["colour"]
    assert sample.dtype == pd.CategoricalDtype(["red", "(other)"], ordered=False)
    assert set(sample.dropna()) == {"red", "(other)"}
    plain = result.generator.sample(400, seed=1)["colour"]
    assert sample.astype(object).equals(plain)


@pytest.mark.parametrize("name", FRAMES)
def test_one_person_changes_nothing_about_how_columns_are_stored(name: str) -> None:
    source = FRAMES[name]()
    frame = source if isinstance(source, pd.DataFrame) else pa.table(source).to_pandas()
    without = frame.iloc[:-1]
    listed = {
        c: without[c].astype(object).astype("category")
        for c in frame
        if frame[c].dtype == "category"
    }
    assert (
        storages_of(frame)
        == storages_of(without)
        == storages_of(without.assign(**listed))
    )


ALLOWED = [
    "bool",
    "boolean",
    "bool[pyarrow]",
    "int64",
    "Int64",
    "int64[pyarrow]",
    "float64",
    "Float64",
    "double[pyarrow]",
    "string",
    "str",
    "object",
    "None",
]


@pytest.mark.parametrize("name", FRAMES)
def test_a_storage_is_one_of_a_short_list_and_carries_no_value(name: str) -> None:
    source = FRAMES[name]()
    frame = source if isinstance(source, pd.DataFrame) else pa.table(source).to_pandas()
    for storage in storages_of(frame).values():
        assert str(storage.dtype) in ALLOWED
        assert storage.kind in (
            "",
            "category",
            "text",
            "objects",
            "boolean",
            "integer",
            "real",
        )
        assert not any(mark in pickle.dumps(storage) for mark in marks())


@pytest.mark.parametrize(
    ("came", "kind", "back"),
    [
        (pd.Series([1, 2], dtype="int8"), "integer", "int64"),
        (pd.Series([1, 2], dtype="uint16"), "integer", "int64"),
        (pd.Series([1, None], dtype="Int8"), "integer", "Int64"),
        (pd.Series([1.5, 2], dtype="float32"), "real", "float64"),
        (pd.Series([1, 2], dtype="int64"), "real", "float64"),  # fractions were drawn
        (
            pd.Series(["a", "b"], dtype="string[pyarrow]"),
            "categorical",
            "string[pyarrow]",
        ),
        (pd.Series([1, 2], dtype="category"), "categorical", "category"),
        (pd.Series([True, False], dtype=pd.SparseDtype("bool")), "boolean", "bool"),
        (
            pd.Series([1, 2]).astype(pd.ArrowDtype(pa.int16())),
            "integer",
            "int64[pyarrow]",
        ),
        (
            pd.Series(pd.to_datetime(["2020-01-01"]).tz_localize("Asia/Tokyo")),
            "datetime",
            "datetime64[ns]",
        ),
    ],
    ids=str,
)
def test_columns_come_back_in_the_widest_dtype_of_their_library(
    came: Any, kind: str, back: str
) -> None:
    column = Schema(columns=(COLUMNS[kind],))
    drawn = pd.DataFrame({"x": DRAWN[kind]})
    assert store(drawn, column, storages_of(came.to_frame("x")))["x"].dtype == back


COLUMNS: dict[str, Column] = {
    "integer": Integer(name="x"),
    "real": Real(name="x"),
    "boolean": Boolean(name="x"),
    "categorical": Categorical(name="x", categories=("a", "(other)")),
    "datetime": Datetime(name="x"),
}
DRAWN = {
    "integer": [1, 2],
    "real": [1.5, 2.0],
    "boolean": [True, False],
    "categorical": ["a", "(other)"],
    "datetime": pd.to_datetime(["2020-01-01 10:00", "2020-01-02 11:00"]).astype(
        "datetime64[ns]"
    ),
}


@pytest.mark.parametrize("dtype", [object, "string[python]", "string[pyarrow]"])
def test_digits_that_came_as_text_come_back_as_text(dtype: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "ward": np.where(np.arange(PEOPLE) % 3, "1", "2"),
            "ill": ["0", "1"] * (PEOPLE // 2),
        },
        dtype=dtype,
    )
    result = us.synthesize(
        frame, epsilon=2, ledgers=tmp_path, names_and_kinds_are_public=True, **SMALL
    )
    sample = result.sample(100, seed=1)
    assert [cells.dtype for _, cells in sample.items()] == [
        cells.dtype for _, cells in frame.items()
    ]
    assert set(sample["ill"].dropna()) <= {"0", "1"}
    assert all(isinstance(value, str) for value in sample["ward"].dropna())
    beds = pd.DataFrame({"ward": pd.Series(["1", "2"], dtype=dtype), "beds": [30, 12]})
    assert sample.merge(beds, on="ward")["beds"].isin([30, 12]).all()


def test_numbers_that_came_as_objects_come_back_as_numbers(tmp_path: Path) -> None:
    ages = pd.Series([30, None, 41, 50] * (PEOPLE // 4), dtype=object)
    frame = pd.DataFrame({"age": ages})
    result = us.synthesize(
        frame, epsilon=2, ledgers=tmp_path, kinds={"age": "integer"}, **SMALL
    )
    sample = result.sample(100, seed=1)["age"]
    assert sample.dtype == object
    assert {type(value) for value in sample} <= {int, type(None)}


def test_a_sample_keeps_what_is_said_of_its_rows(tmp_path: Path) -> None:
    result = us.synthesize(words("category")(), epsilon=2, ledgers=tmp_path, **SMALL)
    sample = result.sample(50, where="n >= 3", seed=1)
    assert sample.attrs == result.generator.sample(50, where="n >= 3", seed=1).attrs
    assert 0 < sample.attrs["probability"] < 1

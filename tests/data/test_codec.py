from datetime import date

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_strategies import Constant, Torch, tables

from refusals import raises
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.values import codes_of
from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.ground.errors import Effect, SchemaError

EVERY_KIND = Schema(
    person="id",
    columns=(
        Categorical(name="colour", categories=("red", "green"), nullable=True),
        Ordinal(name="grade", categories=(10, 20, 30), nullable=True),
        Categorical(name="dose", categories=(0.5, 1.0), nullable=True),
        Boolean(name="smoker"),
        Boolean(name="treated", nullable=True),
        Integer(name="age", low=0, high=110, bins=11),
        Integer(name="visits", low=0, high=3, nullable=True),
        Real(name="income", low=0, high=1, bins=4, nullable=True),
        Date(
            name="joined",
            low=date(2020, 1, 1),
            high=date(2020, 12, 31),
            bins=12,
            nullable=True,
        ),
    ),
)
CODEC = Codec(EVERY_KIND)
ALMOST_ONE = 1 - 2**-53


def all_codes(codec: Codec) -> np.ndarray:
    """Rows in which every level of every column occurs."""
    return np.arange(max(codec.sizes))[:, None] % np.array(codec.sizes)


@settings(deadline=None, max_examples=15)
@given(table=tables())
def test_encode_decode_encode_is_encode(
    table: tuple[Schema, np.ndarray, pd.DataFrame],
) -> None:
    schema, codes, frame = table
    codec = Codec(schema)
    assert (codec.codes(frame) == codes).all()
    encoded = codec.encode(frame)
    for rng in (None, Torch(), Constant(0.0), Constant(ALMOST_ONE)):
        again = codec.decode(encoded, rng)
        assert (codec.encode(again) == encoded).all()
        pd.testing.assert_series_equal(again.dtypes, frame[list(schema.names)].dtypes)


@settings(deadline=None, max_examples=12)
@given(table=tables())
def test_a_one_hot_row_has_one_one_in_every_block(
    table: tuple[Schema, np.ndarray, pd.DataFrame],
) -> None:
    schema, codes, frame = table
    codec = Codec(schema)
    encoded = codec.encode(frame)
    assert encoded.dtype == torch.float32
    assert encoded.shape == (len(frame), codec.width)
    assert codec.width == sum(codec.sizes) == codec.blocks[-1].stop
    for j, block in enumerate(codec.blocks):
        assert (encoded[:, block].argmax(1).numpy() == codes[:, j]).all()
        assert (encoded[:, block].sum(1) == 1).all()


@settings(deadline=None, max_examples=12)
@given(table=tables(), seed=st.integers(0, 2**16))
def test_a_row_is_encoded_by_itself(
    table: tuple[Schema, np.ndarray, pd.DataFrame], seed: int
) -> None:
    schema, _, frame = table
    codec = Codec(schema)
    some = np.random.default_rng(seed).permutation(len(frame))[: len(frame) // 2 + 1]
    assert (codec.codes(frame.iloc[some]) == codec.codes(frame)[some]).all()


def test_values_come_back_in_their_own_dtypes() -> None:
    kinds = CODEC.decode(all_codes(CODEC)).dtypes.astype(str).to_dict()
    assert kinds == {
        "colour": "object",
        "grade": "Int64",
        "dose": "float64",
        "smoker": "bool",
        "treated": "boolean",
        "age": "int64",
        "visits": "Int64",
        "income": "float64",
        "joined": "datetime64[ns]",
    }
    assert CODEC.decode(all_codes(CODEC)[:0]).dtypes.astype(str).to_dict() == kinds


def test_missing_is_the_last_slot_and_stays_missing() -> None:
    frame = CODEC.decode(np.array([CODEC.sizes]) - 1)
    assert frame.isna().iloc[0].tolist() == [
        column.nullable for column in EVERY_KIND.columns
    ]
    encoded = CODEC.encode(frame)
    assert all(encoded[0, block.stop - 1] == 1 for block in CODEC.blocks)


def test_a_bin_holds_its_lower_edge_and_the_last_one_also_high() -> None:
    real = Codec(Schema(columns=(Real(name="x", low=0, high=1, bins=4),)))
    values = [0, 0.2499, 0.25, 0.5, 0.75, 0.9999, 1]
    assert real.codes(pd.DataFrame({"x": values}))[:, 0].tolist() == [
        0,
        0,
        1,
        2,
        3,
        3,
        3,
    ]
    whole = Codec(
        Schema(columns=(Integer(name="x", low=0, high=9, bins=(0, 1, 5, 9)),))
    )
    assert whole.codes(pd.DataFrame({"x": range(10)}))[:, 0].tolist() == [
        0,
        1,
        1,
        1,
        1,
        2,
        2,
        2,
        2,
        2,
    ]
    day = Codec(
        Schema(
            columns=(
                Date(name="x", low=date(2020, 1, 1), high=date(2020, 1, 4), bins=2),
            )
        )
    )
    assert day.codes(pd.DataFrame({"x": pd.date_range("2020-01-01", periods=4)}))[
        :, 0
    ].tolist() == [0, 0, 1, 1]


def test_without_a_generator_a_value_is_the_middle_of_its_bin() -> None:
    frame = CODEC.decode(np.zeros((1, len(CODEC.sizes)), dtype=int))
    assert frame.loc[0, ["age", "visits", "income"]].tolist() == [5, 0, 0.125]
    assert frame.loc[0, "joined"] == pd.Timestamp("2020-01-16")


def test_values_are_drawn_evenly_inside_a_bin() -> None:
    n = 20_000
    frame = CODEC.decode(np.zeros((n, len(CODEC.sizes)), dtype=int), Torch())
    counts = frame["age"].value_counts()
    assert set(counts.index) == set(range(10))
    assert (counts - n / 10).abs().max() < 5 * np.sqrt(n * 0.09)
    assert frame["income"].between(0, 0.25).all()
    assert abs(frame["income"].mean() - 0.125) < 5 * 0.25 / np.sqrt(12 * n)
    # 366 days in 12 bins: the first holds 30
    assert frame["joined"].dt.day.nunique() == 30


def test_probabilities_decode_by_the_largest() -> None:
    rows = torch.rand(50, CODEC.width, generator=torch.Generator().manual_seed(0))
    codes = np.stack([rows[:, block].argmax(1).numpy() for block in CODEC.blocks], 1)
    pd.testing.assert_frame_equal(CODEC.decode(rows), CODEC.decode(codes))
    pd.testing.assert_frame_equal(
        CODEC.decode(rows.numpy()), CODEC.decode(torch.from_numpy(codes))
    )
    assert (CODEC.codes(CODEC.decode(rows.half().requires_grad_())) >= 0).all()


def test_sampling_inverts_the_cumulative_weights() -> None:
    codec = Codec(
        Schema(columns=(Categorical(name="x", categories=("a", "b", "c", "d")),))
    )
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0]])
    for draw, level in ((0.0, 1), (0.2499, 1), (0.25, 3), (0.9999, 3), (ALMOST_ONE, 3)):
        assert codec.sample_codes(weights, Constant(draw)).tolist() == [[level]]
    # A slot of weight 0 is never drawn, not even where rounding reaches the total.
    last_empty = torch.tensor([[0.1, 0.2, 0.3, 0.0]])
    assert codec.sample_codes(last_empty, Constant(ALMOST_ONE)).tolist() == [[2]]


def test_sampling_follows_the_weights_in_every_block() -> None:
    n = 40_000
    weights = torch.rand(CODEC.width, generator=torch.Generator().manual_seed(1))
    codes = CODEC.sample_codes(weights.repeat(n, 1), Torch())
    assert codes.dtype == np.int32
    for j, block in enumerate(CODEC.blocks):
        p = (weights[block] / weights[block].sum()).numpy()
        share = np.bincount(codes[:, j], minlength=len(p)) / n
        assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / n) + 1e-9).all()


def test_sampling_a_one_hot_row_returns_it() -> None:
    codes = all_codes(CODEC)
    assert (CODEC.sample_codes(CODEC.one_hot(codes), Torch()) == codes).all()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (
            "colour",
            "blue",
            'column "colour": the value at row 2 is blue, outside red, green',
        ),
        ("grade", 15, "is 15, outside 10 < 20 < 30"),
        ("smoker", None, "row 2 is missing"),
        ("age", 111, "is 111, outside 0 to 110"),
        ("age", -1, "is -1, outside"),
        ("age", 3.5, "is 3.5, outside"),
        ("age", "old", "not numbers"),
        ("income", 1.01, "outside 0 to 1"),
        ("income", np.inf, "outside 0 to 1"),
        ("joined", pd.Timestamp("2021-01-01"), "outside 2020-01-01 to 2020-12-31"),
        ("joined", "soon", "not dates"),
    ],
)
def test_a_value_outside_the_domain_is_an_error(
    column: str, value: object, message: str
) -> None:
    frame = CODEC.decode(all_codes(CODEC)[:3]).astype({column: object})
    frame.loc[1, column] = value
    with raises(SchemaError, effect=Effect.NOTHING_COMPUTED, match=f"{message}"):
        CODEC.codes(frame)


def test_wrong_shapes_and_numbers_are_errors() -> None:
    with pytest.raises(SchemaError, match='no column "colour"'):
        CODEC.codes(pd.DataFrame({"age": [3]}))
    with pytest.raises(SchemaError, match=r"shape \(rows, 9\)"):
        CODEC.decode(np.zeros((2, 3), dtype=int))
    with pytest.raises(SchemaError, match="outside its 3 levels"):
        CODEC.decode(np.full((2, 9), 3))
    with pytest.raises(SchemaError, match="outside its"):
        CODEC.one_hot(np.full((2, 9), -1))
    with pytest.raises(SchemaError, match=r"codes are integers"):
        CODEC.one_hot(np.zeros((2, 9)))
    with pytest.raises(SchemaError, match="have the shape"):
        CODEC.decode(torch.zeros(2, 3))
    rows = torch.ones(2, CODEC.width)
    rows[1, 4] = float("nan")
    with pytest.raises(SchemaError, match="not finite"):
        CODEC.decode(rows)
    rows[1, 4] = -1
    with pytest.raises(SchemaError, match="below 0"):
        CODEC.sample_codes(rows, Torch())
    with pytest.raises(SchemaError, match='"colour"'):
        CODEC.sample_codes(torch.zeros(2, CODEC.width), Torch())


def test_a_number_has_the_place_that_pandas_finds_for_it() -> None:
    numbers = np.array([3, 1, 2.5, -0.0, 2**53, np.nan, np.inf, -np.inf, -1, 1])
    for known in ((3, 1, 2), (2.5, -1.0, 0.0), (1,), (2**53, 1, -(2**53))):
        places = pd.Index(known, dtype=np.float64).get_indexer(pd.Index(numbers))
        column = Categorical(name="c", categories=known, nullable=True)
        here = places >= 0
        assert (
            codes_of(column, pd.Series(numbers[here])).tolist() == places[here].tolist()
        )
        for odd in numbers[~here & ~np.isnan(numbers)]:
            with pytest.raises(SchemaError, match="outside"):
                codes_of(column, pd.Series([odd]))
        assert codes_of(column, pd.Series([np.nan])) == [len(known)]


def test_no_rows_encode_to_no_rows() -> None:
    empty = CODEC.decode(np.zeros((0, 9), dtype=int))
    assert CODEC.encode(empty).shape == (0, CODEC.width)
    assert CODEC.sample_codes(torch.zeros(0, CODEC.width), Torch()).shape == (0, 9)

"""Whatever the declared bounds, a value inside them is scaled into [0, 1], and one
outside is refused in words.
"""

import datetime as dt
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from refusals import raises
from understudy.data.column import Binned, Datetime
from understudy.data.encoding.features import DeclaredFeatures, TableFeatures
from understudy.data.encoding.frame import Frame
from understudy.data.encoding.population import Population
from understudy.data.images import Images, ImageSchema
from understudy.data.schema import Boolean, Date, Real, Schema
from understudy.data.series import Series, SeriesSchema, read_series
from understudy.ground.errors import Effect, SchemaError

KINDS = ["image", "series"]
BOUNDS = [
    (-3e38, 3e38),
    (-1e300, 1e300),
    (0.0, 1e300),
    (1e9 + 30, 1e9 + 40),
    (2.0**60, 2.0**60 + 2.0**13),
    (0.0, 5e-322),
    (-1e-310, 1e-310),
    (0.1, 0.3),
    (-70000, 70000),
]


def schema_of(
    kind: str, low: float, high: float, **more: Any
) -> ImageSchema | SeriesSchema:
    if kind == "image":
        return ImageSchema(height=1, width=3, low=low, high=high, **more)
    channels = tuple(Real(name=name, low=low, high=high) for name in "abc")
    return SeriesSchema(channels=channels, length=2, series="s", **more)


def shaped(
    schema: ImageSchema | SeriesSchema, values: list[float], dtype: Any = np.float64
) -> np.ndarray:
    """One row for each value, which stands in all places."""
    return np.stack([np.full(schema.shape, value, dtype=dtype) for value in values])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_of_any_width_give_their_ends_and_what_is_between(
    kind: str, bounds: tuple[float, float]
) -> None:
    low, high = bounds
    schema = schema_of(kind, low, high)
    inside = [
        low,
        low + (high - low) / 4,
        high,
        np.nextafter(low, high),
        np.nextafter(high, low),
    ]
    scaled = schema.scaled(shaped(schema, inside))
    exact = [
        (Fraction(v) - Fraction(low)) / (Fraction(high) - Fraction(low)) for v in inside
    ]
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(
        scaled[:, 0].flatten()[::3], [float(e) for e in exact], rtol=2e-7, atol=1e-12
    )
    assert (schema.unscaled(scaled) >= low).all()
    assert (schema.unscaled(scaled) <= high).all()
    for value in (
        np.nextafter(low, -np.inf),
        np.nextafter(high, np.inf),
        np.inf,
        -np.inf,
        np.nan,
    ):
        with raises(SchemaError, effect=Effect.NOTHING_READ_FURTHER):
            schema.scaled(shaped(schema, [low, value]))


@given(
    kind=st.sampled_from(KINDS),
    bounds=st.sampled_from(BOUNDS),
    values=st.sampled_from(
        [np.float16, np.float32, np.float64, np.int64, np.uint8]
    ).flatmap(
        lambda dtype: arrays.arrays(
            dtype, (4,), elements=arrays.from_dtype(np.dtype(dtype))
        )
    ),
)
def test_a_value_of_any_type_is_scaled_into_the_unit_interval_or_refused_by_what_it_is(
    kind: str, bounds: tuple[float, float], values: np.ndarray
) -> None:
    """Types that are coarser than the bounds must neither let a value in nor keep one
    out.
    """
    schema = schema_of(kind, *bounds)
    rows = shaped(schema, list(values), values.dtype)
    if all(bounds[0] <= float(value) <= bounds[1] for value in values):
        scaled = schema.scaled(rows)
        assert np.isfinite(scaled).all()
        assert ((scaled >= 0) & (scaled <= 1)).all()
        table = (Images if kind == "image" else Series).from_array(rows, schema)
        frame = Frame.from_schema(schema, 4)
        assert (np.abs(frame.coefficients(table.values)) <= frame.reach).all()
        assert (frame.histograms(table.values, 8).sum(1) == np.prod(schema.shape)).all()
    else:
        with pytest.raises(SchemaError):
            schema.scaled(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.1, 1.1])
def test_rows_that_nobody_scaled_do_not_become_a_table(kind: str, value: float) -> None:
    schema = schema_of(kind, 0, 1)
    values = shaped(schema, [0.5, value], np.float32)
    with raises(SchemaError, effect=Effect.NOTHING_CHARGED):
        (Images if kind == "image" else Series)(
            values, np.arange(2), np.arange(3), schema, "by hand"
        )


def test_a_histogram_counts_every_value_whatever_it_is() -> None:
    schema = schema_of("image", 0, 1)
    odd = np.array([[[np.nan, np.inf, -np.inf]], [[0.0, 1.0, 0.5]]], dtype=np.float32)
    counts = Frame.from_schema(schema, 3).histograms(odd, 4)
    assert (counts.sum(1) == 3).all()
    assert (counts[1] == [1, 0, 1, 1]).all()


def test_what_a_classifier_reads_as_float32_is_finite_there() -> None:
    with pytest.raises(SchemaError, match="row 2"):
        Population.from_arrays(np.array([[0.0], [1e300]]), [0, 1], classes=2)
    images = ImageSchema(
        height=1, width=1, low=-3e38, high=3e38, label="y", classes=(0, 1)
    )
    rows = DeclaredFeatures(images).rows(np.array([[[-3e38]], [[3e38]]]))
    assert rows.flatten().tolist() == [0, 1]


DAYS = [
    dt.date(1678, 1, 1),
    dt.date(1969, 7, 20),
    dt.date(1970, 1, 1),
    dt.date(2100, 1, 1),
    dt.date(2261, 12, 31),
]


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("kind", [Date, Datetime])
def test_days_that_are_centuries_apart_are_features_like_any_others(
    kind: type[Date] | type[Datetime], nullable: bool
) -> None:
    at = (
        [dt.datetime.combine(day, dt.time(7)) for day in DAYS]
        if kind is Datetime
        else DAYS
    )
    day: Binned = kind(name="day", low=at[0], high=at[-1], nullable=nullable)  # type: ignore[arg-type]
    features = TableFeatures(Schema(columns=(day, Boolean(name="y"))), "y")
    cells = [*map(str, at), *([None] if nullable else [])]
    frame = pd.DataFrame({"day": cells, "y": [True] * len(cells)})
    found = features.rows(frame)[:, 0].numpy()
    wanted = [(one - DAYS[0]).days / (DAYS[-1] - DAYS[0]).days for one in DAYS]
    np.testing.assert_allclose(found[: len(at)], wanted, rtol=1e-6)
    assert np.isnan(found[len(at) :]).all()


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_time_of_a_series_may_be_any_day_that_a_calendar_has(unit: str) -> None:
    schema = SeriesSchema(
        channels=(Real(name="v", low=0, high=1),),
        length=2,
        series="s",
        time="t",
        step=86400.0,
    )
    days = pd.Series(np.array(["4000-01-01", "4000-01-02"], f"datetime64[{unit}]"))
    assert read_series(pd.DataFrame({"t": days, "v": 0.5, "s": 1}), schema).rows == 1
    far = pd.Series(np.array([0, 2**53], f"datetime64[{unit}]"))
    with pytest.raises(
        SchemaError, match=r"neither a number nor an ISO date|so there is a gap"
    ):
        read_series(pd.DataFrame({"t": far, "v": 0.5, "s": 1}), schema)

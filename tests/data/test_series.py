"""Series are read by their public schema, and what does not fit is refused by name."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.data.images import ImageSchema, read_images
from understudy.data.kinds import load_schema
from understudy.data.samples import sines
from understudy.data.schema import Real
from understudy.data.series import Series, SeriesSchema, read_series
from understudy.ground.errors import ConfigError, SchemaError

CHANNELS = (Real(name="pulse", low=0, high=200), Real(name="heat", low=30, high=45))
SCHEMA = SeriesSchema(
    channels=CHANNELS, length=3, series="stay", time="hour", step=1, person="who"
)
LONG = SeriesSchema(channels=CHANNELS, length=3, time="hour", step=1, stride=2)


def stays(*sizes: int, who: str = "ab") -> pd.DataFrame:
    """One stay after another; stay i belongs to the i-th of `who`, its pulses count up
    from 10·i.
    """
    parts = [
        pd.DataFrame(
            {
                "stay": i,
                "hour": range(size),
                "pulse": 10.0 * i + np.arange(size),
                "heat": 37.0,
                "who": who[i % len(who)],
            }
        )
        for i, size in enumerate(sizes)
    ]
    return pd.concat(parts, ignore_index=True)


def test_each_series_is_one_row_scaled_by_the_public_bounds() -> None:
    read = read_series(stays(3, 3, 3), SCHEMA)
    assert read.values.shape == (3, 3, 2)
    assert read.ids.tolist() == ["a", "b"]
    assert read.starts.tolist() == [0, 2, 3]
    assert read.people.tolist() == ["a", "a", "b"]
    pulses = read.values[..., 0] * 200
    np.testing.assert_allclose(
        pulses, [[0, 1, 2], [20, 21, 22], [10, 11, 12]], atol=1e-4
    )
    # a channel that never moves
    np.testing.assert_allclose(read.values[..., 1], 7 / 15, atol=1e-6)
    assert "37" not in repr(read)


def test_rows_of_different_series_may_be_mixed_in_the_file() -> None:
    frame = stays(3, 3)
    mixed = frame.sort_values(["hour", "stay"])
    assert np.array_equal(
        read_series(mixed, SCHEMA).values, read_series(frame, SCHEMA).values
    )


def test_an_array_that_is_cut_already_needs_a_length_and_channels_alone_and_so_do_series_of_a_person_each():
    plain = SeriesSchema(channels=CHANNELS, length=3)
    array = stays(3, 3)[["pulse", "heat"]].to_numpy().reshape(2, 3, 2)
    read = read_series(array, plain)
    assert (read.values.shape, len(read.ids)) == ((2, 3, 2), 2)
    assert "each series by itself" in str(plain)
    assert "each series a person" in str(replace(plain, rows_are_people=True))
    assert np.array_equal(
        read_series(stays(3, 3), replace(plain, person="who")).values, read.values
    )
    with pytest.raises(SchemaError, match="say its stride"):
        read_series(stays(3, 3), plain)


def test_csv_and_parquet_give_what_the_frame_gives(tmp_path: Path) -> None:
    frame = stays(3, 3, 3)
    frame.to_csv(tmp_path / "stays.csv", index=False)
    frame.to_parquet(tmp_path / "stays.parquet")
    for name in ("stays.csv", "stays.parquet"):
        assert np.array_equal(
            read_series(tmp_path / name, SCHEMA).values,
            read_series(frame, SCHEMA).values,
        )


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_windows_of_a_long_series_are_those_of_a_plain_loop(stride: int) -> None:
    frame = stays(17).drop(columns=["stay", "who"])
    read = read_series(frame, replace(LONG, stride=stride))
    wanted = [
        frame["pulse"].to_numpy()[at : at + 3] for at in range(0, 17 - 3 + 1, stride)
    ]
    np.testing.assert_allclose(read.values[..., 0] * 200, wanted, atol=1e-4)
    # one long series is one person, however often it is cut
    assert read.ids.tolist() == [0]


def test_no_window_goes_across_a_gap_and_what_is_left_is_not_used() -> None:
    # stretches 0–3 and 5–11
    frame = stays(12).drop(columns=["stay", "who"]).drop(index=[4])
    read = read_series(frame, LONG)
    starts = (read.values[:, 0, 0] * 200).round()
    assert starts.tolist() == [0, 5, 7, 9]


def test_a_person_with_a_long_series_is_one_person_with_all_windows() -> None:
    read = read_series(stays(7, 3, 5, who="abc"), replace(LONG, person="who"))
    assert read.ids.tolist() == ["a", "b", "c"]
    assert np.diff(read.starts).tolist() == [3, 1, 2]


def test_a_person_whose_series_is_too_short_for_a_window_stays_a_person() -> None:
    read = read_series(stays(7, 2, who="ab"), replace(LONG, person="who"))
    assert read.ids.tolist() == ["a", "b"]
    assert np.diff(read.starts).tolist() == [3, 0]


def test_windows_are_people_only_where_they_do_not_overlap() -> None:
    frame = stays(9).drop(columns=["stay", "who"])
    apart = replace(LONG, stride=3, windows_are_people=True)
    assert len(read_series(frame, apart).ids) == 3
    with pytest.raises(SchemaError, match="do not overlap"):
        replace(apart, stride=2)
    with pytest.raises(SchemaError, match="without a person"):
        replace(apart, person="who")


def test_times_may_be_dates_and_count_in_seconds(tmp_path: Path) -> None:
    frame = stays(3, 3)
    frame["hour"] = pd.to_datetime("2024-03-30") + pd.to_timedelta(
        frame["hour"], unit="h"
    )
    hourly = replace(SCHEMA, step=3600)
    wanted = read_series(stays(3, 3), SCHEMA).values
    assert np.array_equal(read_series(frame, hourly).values, wanted)
    zoned = frame.assign(
        hour=frame["hour"].dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    )
    assert np.array_equal(read_series(zoned, hourly).values, wanted)
    frame.to_csv(tmp_path / "dates.csv", index=False)
    assert np.array_equal(read_series(tmp_path / "dates.csv", hourly).values, wanted)
    with pytest.raises(SchemaError, match="gap"):
        read_series(frame, replace(SCHEMA, step=60))


def changed(row: int, **cells: object) -> pd.DataFrame:
    frame = stays(3, 3).astype({"hour": object, "pulse": object})
    for name, value in cells.items():
        frame.loc[row, name] = value
    return frame


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (stays(3, 2), 'series "1": it has 2 steps, and the schema says 3'),
        (stays(3, 4), 'series "1": it has 4 steps'),
        (changed(4, hour=0), 'series "1" at row 5: the time does not increase'),
        (
            changed(4, hour=1.5),
            'series "1" at row 5: a step of 1.5 instead of 1, so there is a gap',
        ),
        (changed(2, hour="soon"), "row 3 is neither a number nor an ISO date"),
        (changed(2, hour=None), "row 3 is neither a number nor an ISO date"),
        (
            changed(2, pulse=201),
            'column "pulse": value 201 at row 3 is above the declared high 200',
        ),
        (changed(2, pulse=None), 'column "pulse": row 3 has no value'),
        (changed(2, pulse=float("inf")), "not finite"),
        (changed(2, pulse="fast"), "is not a number"),
        (changed(2, who="b"), 'series "0" at row 3: it changes the person'),
        (changed(2, who=None), "has no id"),
        (stays(3).drop(columns="heat"), 'column "heat": the header has no such column'),
        (stays(3).iloc[:0], "no rows"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(frame: pd.DataFrame, said: str) -> None:
    with pytest.raises(SchemaError) as refusal:
        read_series(frame, SCHEMA, name="stays.csv")
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("stays.csv")


def test_a_series_without_a_single_window_is_refused() -> None:
    with pytest.raises(SchemaError, match="3 steps; the longest has 2"):
        read_series(stays(2).drop(columns=["stay", "who"]), LONG)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_a_schema_comes_back_from_its_file_as_it_was(
    tmp_path: Path, suffix: str
) -> None:
    for schema in (
        SCHEMA,
        LONG,
        replace(LONG, stride=3, windows_are_people=True, note="ward 5"),
    ):
        schema.save(tmp_path / f"schema{suffix}")
        assert load_schema(tmp_path / f"schema{suffix}") == schema


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"channels": ()}, "at least one channel"),
        ({"length": 1}, "length must be a whole number of at least 2"),
        ({"length": 2.5}, "length must be"),
        ({"stride": 0}, "stride must be"),
        ({"time": None}, "no column holds the time"),
        ({"time": "pulse"}, '"pulse" has two meanings'),
        ({"person": 5}, "person must name a column"),
        ({"windows_are_people": "yes"}, "true or false"),
    ],
)
def test_a_schema_without_sense_is_refused(
    change: dict[str, object], said: str
) -> None:
    with pytest.raises(SchemaError, match=said):
        replace(SCHEMA, **change)  # type: ignore[arg-type]


def test_a_step_that_is_no_positive_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="step must be above 0"):
        replace(SCHEMA, step=-1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kind = "serie"', 'Did you mean "series"'),
        ('kind = "series"\nlength = 3', "needs channels"),
        ('kind = "series"\nlength = 3\nlenght = 4', "unknown key"),
        ('kind = "series"\nlength = 3\n[channels.a]\nlow = 0', "needs low and high"),
        (
            'kind = "series"\nlength = 3\nstride = 1\n[channels.a]\nlow = 1\nhigh = 0',
            "not below",
        ),
    ],
)
def test_a_schema_file_that_cannot_be_used_is_named(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "ward.toml").write_text(text)
    with pytest.raises(SchemaError, match=said) as refusal:
        load_schema(tmp_path / "ward.toml")
    assert str(refusal.value).startswith("ward.toml")


def test_a_schema_says_in_a_few_words_who_one_person_is() -> None:
    assert str(SCHEMA).splitlines() == [
        "series of 3 steps, 2 channels, person who",
        "  pulse  0 to 200",
        "  heat   30 to 45",
    ]
    assert (
        replace(SCHEMA, person=None).one_person
        == "each series by itself, whoever it is of"
    )
    assert LONG.one_person == "all rows one person"
    assert (
        replace(LONG, stride=3, windows_are_people=True).one_person
        == "each window a person"
    )


def test_a_frame_of_values_reads_back_as_the_same_values() -> None:
    values = np.random.default_rng(0).random((5, 3, 2)).astype(np.float32)
    schema = replace(SCHEMA, person=None)
    read = read_series(schema.frame(values), schema)
    np.testing.assert_allclose(read.values, values, atol=1e-6)
    assert list(schema.frame(values[:0]).columns) == ["stay", "hour", "pulse", "heat"]


def test_arrays_are_held_to_the_same_bounds() -> None:
    values = np.full((2, 3, 2), 40.0)
    assert Series.from_array(values, SCHEMA, ["x", "x"]).starts.tolist() == [0, 2]
    assert len(Series.from_array(values, SCHEMA).ids) == 2
    values[1, 2, 1] = 46
    with pytest.raises(
        SchemaError, match='channel "heat": value 46 at step 3 of series 2'
    ):
        Series.from_array(values, SCHEMA)
    values[1, 2, 1] = np.nan
    with pytest.raises(SchemaError, match="value nan"):
        Series.from_array(values, SCHEMA)
    with pytest.raises(SchemaError, match="of the shape"):
        Series.from_array(values[:, :2], SCHEMA)
    with pytest.raises(ConfigError, match="people must name"):
        Series.from_array(values[:1], SCHEMA, ["x", "y"])


def test_an_array_that_is_cut_already_is_a_holders_table_unless_people_are_named_beside_it():
    values = np.full((2, 3, 2), 40.0)
    assert len(read_series(values, replace(SCHEMA, person=None)).ids) == 2
    with pytest.raises(SchemaError, match="an array alone does not"):
        read_series(values, SCHEMA)
    pictures = ImageSchema(height=2, width=2, low=0, high=1)
    assert len(read_images(np.zeros((3, 2, 2)), pictures).ids) == 3
    with pytest.raises(SchemaError, match="an array alone does not"):
        read_images(np.zeros((3, 2, 2)), replace(pictures, person="who"))


def test_a_channel_with_decimals_is_written_with_them_and_within_its_bounds(
    tmp_path: Path,
) -> None:
    channels = (
        Real(name="glucose", low=60.05, high=180, decimals=1),
        Real(name="free", low=0, high=1),
    )
    schema = SeriesSchema(channels=channels, length=4, series="stay")
    assert SeriesSchema.from_dict(schema.to_dict()) == schema
    assert schema.to_dict()["channels"]["free"] == {"low": 0, "high": 1}
    values = np.random.default_rng(0).random((50, 4, 2))
    values[0, :2, 0] = 0, 1
    drawn = schema.frame(values)
    assert drawn["glucose"].tolist() == [round(value, 1) for value in drawn["glucose"]]
    assert drawn["glucose"].between(60.05, 180).all()
    assert drawn["glucose"].iloc[:2].tolist() == [60.1, 180.0]
    np.testing.assert_allclose(
        drawn["glucose"], 60.05 + 119.95 * values[:, :, 0].ravel(), atol=0.051
    )
    np.testing.assert_allclose(drawn["free"], values[:, :, 1].ravel())
    with pytest.raises(SchemaError, match="may have decimals"):
        SeriesSchema.from_dict(
            {"length": 2, "channels": {"x": {"low": 0, "high": 1, "bins": 3}}}
        )


def test_sines_follow_the_recipe() -> None:
    waves, schema = sines(200, length=24, channels=3, seed=1)
    assert waves.shape == (200, 24, 3)
    assert schema.shape == (24, 3)
    assert np.array_equal(waves, sines(200, length=24, channels=3, seed=1)[0])
    # below π/2, so the angle is the sine's own
    angles = np.arcsin(2 * waves[:, :8].astype(float) - 1)
    steps = np.diff(angles, axis=1)
    # f·t + φ is straight
    np.testing.assert_allclose(steps, steps[:, :1] * np.ones((1, 7, 1)), atol=1e-3)
    assert steps.min() >= 0
    assert steps.max() <= 0.1
    assert angles[:, 0].min() >= 0
    assert angles[:, 0].max() <= 0.1
    assert abs(steps.mean() - 0.05) < 0.005

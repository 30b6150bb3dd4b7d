"""Random schemas, and random tables that fit them, for the tests of the data layer."""

from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import torch
from hypothesis import strategies as st

from understudy.data.column import (
    RESOLUTIONS,
    Boolean,
    Categorical,
    Column,
    Date,
    Datetime,
    Integer,
    Ordinal,
    Real,
)
from understudy.data.encoding.codec import Codec
from understudy.data.reading.cells import MISSING_WORDS
from understudy.data.schema import Schema


class Torch:
    """A seeded source of uniform numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)


class Constant:
    """A source that always gives the same number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def uniform(self, *shape: int) -> torch.Tensor:
        return torch.full(shape, self.value, dtype=torch.float64)


words = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x17F, exclude_characters="\x7f"),
    min_size=1,
).filter(lambda word: word not in MISSING_WORDS)
categories = st.one_of(
    st.lists(words, min_size=1, max_size=5, unique=True),
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=5, unique=True),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5, unique=True),
)


def _edges(low: object, high: object, between: list) -> tuple:
    return (low, *sorted({v for v in between if low < v < high}), high)


@st.composite
def _integer(draw: st.DrawFn) -> dict:
    low = draw(st.integers(-(2**40), 2**40))
    high = low + draw(st.integers(1, 10**6))
    edges = st.lists(st.integers(low, high), max_size=4).map(
        lambda inner: _edges(low, high, inner)
    )
    bins = st.one_of(st.none(), st.integers(1, min(20, high - low + 1)), edges)
    return {"low": low, "high": high, "bins": draw(bins)}


@st.composite
def _real(draw: st.DrawFn) -> dict:
    low = draw(st.floats(-1e9, 1e9))
    high = low + draw(st.floats(1e-3, 1e9))
    edges = st.lists(st.floats(low, high), max_size=4).map(
        lambda inner: _edges(low, high, inner)
    )
    keys = {
        "low": low,
        "high": high,
        "bins": draw(st.one_of(st.integers(1, 20), edges)),
    }
    decimals = draw(st.one_of(st.none(), st.integers(0, 6)))
    widths = np.diff(Real(name="x", **keys).edges)
    fits = decimals is not None and widths.min() > 2 * 10.0**-decimals
    written = draw(st.sampled_from((None, "0,0", "0 %", "0,0%")))
    return keys | {"decimals": decimals if fits else None, "written": written}


@st.composite
def _date(draw: st.DrawFn) -> dict:
    low = draw(st.dates(date(1700, 1, 1), date(2100, 1, 1)))
    high = date.fromordinal(low.toordinal() + draw(st.integers(1, 30_000)))
    edges = st.lists(st.dates(low, high), max_size=4).map(
        lambda inner: _edges(low, high, inner)
    )
    bins = st.one_of(st.none(), st.integers(1, min(20, (high - low).days + 1)), edges)
    written = st.sampled_from(("YYYY-MM-DD", "DD.MM.YYYY", "M/D/YYYY", "YYYY/MM/DD"))
    return {"low": low, "high": high, "bins": draw(bins), "written": draw(written)}


@st.composite
def _datetime(draw: st.DrawFn) -> dict:
    resolution = draw(st.sampled_from(tuple(RESOLUTIONS)))
    step = RESOLUTIONS[resolution]
    low = draw(st.integers(-(2**33) // step, 2**33 // step))
    count = draw(st.integers(1, 10**7 // step))
    start = datetime(1970, 1, 1)
    bounds = {
        "low": start + timedelta(seconds=low * step),
        "high": start + timedelta(seconds=(low + count) * step),
    }
    bins = draw(st.one_of(st.none(), st.integers(1, min(20, count + 1))))
    return bounds | {"resolution": resolution, "bins": bins}


labels = st.sampled_from(
    (
        ("False", "True"),
        ("false", "true"),
        ("No", "Yes"),
        ("N", "Y"),
        ("0", "1"),
        ("-1", "1"),
        ("nein", "ja"),
    )
)


KINDS = st.one_of(
    st.tuples(
        st.sampled_from((Categorical, Ordinal)),
        st.fixed_dictionaries({"categories": categories}),
    ),
    st.tuples(st.just(Boolean), st.fixed_dictionaries({"labels": labels})),
    st.tuples(st.just(Integer), _integer()),
    st.tuples(st.just(Real), _real()),
    st.tuples(st.just(Date), _date()),
    st.tuples(st.just(Datetime), _datetime()),
)  # here: what is made anew in each draw is looked through anew
NULLABLE = st.booleans()


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    kind, keys = draw(KINDS)
    return kind(name=name, nullable=draw(NULLABLE), **keys)


NAMES = st.lists(
    words.filter(lambda word: word != "person"), min_size=1, max_size=5, unique=True
)
PERSONS = st.sampled_from((None, "person"))
ORIGINS = st.sampled_from(("public", "rows"))
NOTES = st.text(max_size=8)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    return Schema(
        columns=tuple(draw(columns(name)) for name in draw(NAMES)),
        person=draw(PERSONS),
        origin=draw(ORIGINS),
        note=draw(NOTES),
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, np.ndarray, pd.DataFrame]:
    """A schema, codes, and a table that has these codes, with ids where the schema
    names a person.
    """
    schema = draw(schemas())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    codec = Codec(schema)
    codes = rng.integers(0, codec.sizes, (draw(st.integers(1, 30)), len(codec.sizes)))
    frame = codec.decode(codes, Torch(int(rng.integers(2**32))))
    if schema.person:
        frame.insert(0, schema.person, rng.permutation(len(frame)) + 1)
    return schema, codes, frame

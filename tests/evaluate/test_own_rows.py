"""What was made is held against the holder's own rows: a schema that cut them hides
nothing from the verdict.
"""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp

import understudy as us
from understudy.data.column import (
    OTHER,
    Boolean,
    Categorical,
    Column,
    Date,
    Integer,
    Real,
)
from understudy.data.reading.writing import coarsen
from understudy.data.schema import BOUGHT, Schema
from understudy.data.table import read_table
from understudy.evaluate.comparison import Comparison
from understudy.evaluate.holdings import UNLISTED
from understudy.ground.errors import SchemaError
from understudy.report.findings import Finding
from understudy.report.marks import OFF, column_mark
from understudy.report.page import write_evaluation_page
from understudy.report.verdict import verdict

PEOPLE = 600
RNG = np.random.default_rng(5)
TAIL = np.where(
    RNG.random(PEOPLE) < 0.5, 0, RNG.lognormal(4.5, 0.7, PEOPLE).astype(int)
)
CODES = RNG.choice(8, PEOPLE, p=[0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05])
TOWNS = np.array([f"t{n % 67}" for n in range(PEOPLE)], dtype=object)
DAYS = pd.date_range("1990-01-01", periods=PEOPLE).strftime("%d.%m.%Y")
LOW = date(1990, 1, 1)
HIGH = date(1990, 12, 31)

# a column as it came, what was bought for it, how many people that concerns, and
# whether it is far off
CASES: dict[str, tuple[Any, Column, int, bool]] = {
    "half zeros, a long tail": (
        TAIL,
        Integer(name="x", low=0, high=1),
        int((TAIL > 1).sum()),
        True,
    ),
    "codes, cut": (
        CODES,
        Integer(name="x", low=0, high=1),
        int((CODES > 1).sum()),
        True,
    ),
    "codes, as numbers": (CODES, Integer(name="x", low=0, high=7), 0, False),
    "67 texts": (
        TOWNS,
        Categorical(name="x", categories=("t0", "t1", OTHER)),
        PEOPLE - 18,
        True,
    ),
    "yes and no": (
        np.where(CODES > 1, "yes", "no").astype(object),
        Categorical(name="x", categories=("no", "yes", OTHER)),
        0,
        False,
    ),
    "0 and 1": (
        (CODES > 1).astype(int),
        Boolean(name="x", labels=("0", "1")),
        0,
        False,
    ),
    "one decimal": (
        RNG.normal(20, 5, PEOPLE).round(1),
        Real(name="x", low=0.0, high=64.0, decimals=1, ends=True),
        0,
        False,
    ),
    "reals below and above": (
        np.linspace(-9, 9, PEOPLE),
        Real(name="x", low=-1.0, high=1.0),
        534,
        True,
    ),
    "some below, a level each": (
        np.arange(PEOPLE) % 7 + 3,
        Integer(name="x", low=5, high=9),
        172,
        True,
    ),
    "a few above": (
        np.arange(PEOPLE),
        Integer(name="x", low=0, high=PEOPLE - 2, bins=4),
        1,
        False,
    ),
    "days as text": (
        DAYS,
        Date(name="x", low=LOW, high=HIGH, written="DD.MM.YYYY"),
        PEOPLE - 365,
        True,
    ),
    "no value where none may be": (
        np.where(CODES > 4, np.nan, CODES),
        Integer(name="x", low=0, high=7),
        int((CODES > 4).sum()),
        True,
    ),
}


SKEWED = RNG.lognormal(0.2, 1.0, PEOPLE).round(2)
RATE = RNG.beta(2, 5, PEOPLE).round(3)
ELEVEN = RNG.choice(
    [-3.4, -2.9, -1.8, -1.7, -1.1, -0.2, 0.1, 1.1, 1.4, 2.5, 4.0],
    PEOPLE,
    p=[0.3] + [0.07] * 10,
)
WORDS = np.where(RNG.random(PEOPLE) < 0.4, "no", "yes").astype(object)
UPPER = np.quantile(SKEWED, 0.9)
# a column as it came, what was made of it in place of that, and the schema, which holds
# both
FAULTS: dict[str, tuple[Any, Any, Column]] = {
    "an upper tail that is cut": (
        SKEWED,
        np.where(SKEWED > UPPER, np.median(SKEWED), SKEWED),
        Real(name="x", low=0.0, high=64.0, decimals=2),
    ),
    "rates above 1": (
        RATE,
        np.where(RNG.random(PEOPLE) < 0.15, 3.87, RATE),
        Real(name="x", low=0.0, high=4.0, decimals=3),
    ),
    "gaps where there are none": (
        RATE,
        np.where(RNG.random(PEOPLE) < 0.07, np.nan, RATE),
        Real(name="x", low=0, high=1, bins=4, nullable=True),
    ),
    "a third word in a column of two": (
        WORDS,
        np.where(RNG.random(PEOPLE) < 0.12, OTHER, WORDS),
        Categorical(name="x", categories=("no", "yes", OTHER)),
    ),
    "eleven values that are smeared": (
        ELEVEN,
        ELEVEN + RNG.uniform(-1.5, 1.5, PEOPLE),
        Real(name="x", low=-8.0, high=8.0),
    ),
    "zeros that became 1": (
        TAIL,
        np.where(TAIL == 0, 1, TAIL),
        Integer(name="x", low=0, high=1024),
    ),
}


def bought(*columns: Column) -> Schema:
    return Schema(columns=columns, note=f"{BOUGHT} 2026-01-01")


def judged(frame: pd.DataFrame, schema: Schema) -> tuple[Comparison, list[Finding]]:
    """The rows beside a table that is right in all that the schema can say."""
    nullable = tuple(replace(column, nullable=True) for column in schema.columns)
    plain = replace(schema, columns=nullable)
    seen = read_table(coarsen(frame[list(schema.names)], plain), plain).frame
    made = seen.dropna().sample(
        len(frame), replace=True, random_state=1, ignore_index=True
    )
    found = us.evaluate(frame, made, schema)
    return found, list(verdict(found, None))


@pytest.mark.parametrize("case", CASES)
def test_what_a_bought_schema_could_not_say_is_counted_and_never_called_good(
    case: str,
) -> None:
    values, column, people, far = CASES[case]
    frame = pd.DataFrame({"x": values})
    found, findings = judged(frame, bought(column))
    (shares,) = found.shares
    assert sum(loss.people for loss in found.losses) == people
    assert (column_mark(shares) == "good") is (not far)
    single = next(
        finding for finding in findings if finding.subject == "single columns"
    )
    assert (single.mark == "good") is (not far)
    assert bool(people) is (findings[0].badge == "cut")
    assert ("x" in str(found).splitlines()[0]) is bool(people)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_made_wrongly_within_the_schema_is_never_called_good(
    fault: str,
) -> None:
    real, made, column = FAULTS[fault]
    schema = bought(column)
    for values, good in (
        (made, False),
        (pd.Series(real).sample(PEOPLE, replace=True, random_state=2).array, True),
    ):
        found = us.evaluate(
            pd.DataFrame({"x": real}), pd.DataFrame({"x": values}), schema
        )
        (shares,) = found.shares
        single = next(
            finding
            for finding in verdict(found, None)
            if finding.subject == "single columns"
        )
        assert (column_mark(shares) == "good") is good
        assert (single.mark == "good") is good, single


@pytest.mark.long
def test_numbers_without_bounds_lie_between_the_ends_of_all_rows_and_nothing_is_lost():
    columns = (
        Integer(name="n"),
        Real(name="r", nullable=True),
        Date(name="d"),
        Integer(name="one"),
    )
    days = pd.Timestamp("1990-01-01") + pd.to_timedelta(np.arange(PEOPLE), unit="D")
    real = pd.DataFrame(
        {"n": TAIL, "r": np.where(CODES > 4, np.nan, SKEWED), "d": days, "one": 7}
    )
    found = us.evaluate(
        real,
        real.assign(n=2 * TAIL),
        Schema(columns=columns),
        holdout=real.assign(r=-SKEWED),
    )
    assert not found.losses
    assert [shares.ks for shares in found.shares] == pytest.approx(
        [ks_2samp(TAIL, 2 * TAIL).statistic, 0, 0, 0]
    )
    with pytest.raises(SchemaError, match="no row has a number"):
        us.evaluate(
            real.assign(r=np.nan), real.assign(r=np.nan), Schema(columns=columns)
        )


def test_a_column_is_off_by_all_its_rows_not_by_those_alone_that_are_put_beside_others():
    words = np.array(["a"] * 360 + ["b"] * 240, dtype=object)
    made = np.array(["a"] * 420 + ["b"] * 180, dtype=object)
    schema = bought(
        Categorical(name="x", categories=("a", "b")), Integer(name="y", low=0, high=7)
    )
    frames = [
        pd.DataFrame({"x": x, "y": (x == "b").astype(int)}) for x in (words, made)
    ]
    frames[1].iloc[0] = frames[1].iloc[-1]
    found = us.evaluate(*frames, schema)
    assert [shares.distance for shares in found.shares] == pytest.approx([59 / 600] * 2)
    frames[1].iloc[-9:] = frames[1].iloc[1]
    beyond = us.evaluate(*frames, schema)
    assert [shares.distance > OFF for shares in beyond.shares] == [True, True]
    assert "good" not in [column_mark(shares) for shares in beyond.shares]


def test_a_column_that_followed_from_another_and_no_longer_does_is_not_called_close():
    frame = pd.DataFrame({"x": CODES, "y": CODES % 3})
    schema = bought(Integer(name="x", low=0, high=7), Integer(name="y", low=0, high=2))
    loose = frame.assign(
        y=np.where(RNG.random(PEOPLE) < 0.5, RNG.permutation(frame["y"]), frame["y"])
    )
    for made, good in (
        (loose, False),
        (frame.sample(PEOPLE, replace=True, random_state=3), True),
    ):
        said = {
            finding.subject: finding.mark
            for finding in verdict(us.evaluate(frame, made, schema), None)
        }
        assert ("good" == said["pairs of columns"] == said["correlations"]) is good


def test_ks_is_that_of_the_rows_as_they_came() -> None:
    frame = pd.DataFrame({"x": TAIL})
    schema = bought(Integer(name="x", low=0, high=1))
    made = pd.DataFrame({"x": (TAIL > 0).astype(int)})
    found = us.evaluate(frame, made, schema)
    truth = ks_2samp(frame["x"], made["x"], method="asymp").statistic
    assert truth > 0.45
    assert found.evaluation.numbers["x"].figures[0].value == pytest.approx(truth)
    assert found.evaluation.numbers["x"].quantiles[-1] == pytest.approx(
        (np.quantile(TAIL, 0.95), 1)
    )


def test_columns_that_a_bought_schema_leaves_out_are_named_first_and_those_of_a_declared_one_are_not():
    frame = pd.DataFrame(
        {
            "x": CODES,
            "empty": [None] * PEOPLE,
            "notes": [f"n{n}" for n in range(PEOPLE)],
        }
    )
    column = Integer(name="x", low=0, high=7)
    _, findings = judged(frame, bought(column))
    assert findings[0].mark == "poor"
    assert "2 columns of your table" in findings[0].subject
    assert "“empty” and “notes”" in findings[0].detail
    found, _ = judged(frame, Schema(columns=(column,)))
    assert not found.losses


def test_texts_that_did_not_show_are_one_level_that_no_synthetic_row_has() -> None:
    found, _ = judged(
        pd.DataFrame({"x": TOWNS}),
        bought(Categorical(name="x", categories=("t0", "t1", OTHER))),
    )
    (shares,) = found.shares
    real, made = (
        dict(zip(shares.labels, part, strict=True))
        for part in (shares.real, shares.synthetic)
    )  # type: ignore[arg-type]
    assert real[OTHER] == made[UNLISTED] == 0
    assert real[UNLISTED] == pytest.approx(1 - 18 / PEOPLE)
    assert made[OTHER] > 0.9
    assert shares.figure is not None
    assert (shares.figure.value or 0) > OFF


def test_held_out_rows_may_lie_further_out_still() -> None:
    schema = bought(Integer(name="x", low=0, high=3))
    frame = pd.DataFrame({"x": CODES})
    others = pd.DataFrame({"x": [*range(40)] * 5})
    found = us.evaluate(frame, frame.clip(upper=3), schema, holdout=others)
    assert [loss.people for loss in found.losses] == [int((CODES > 3).sum())]
    assert found.evaluation.columns == ("x",)


def test_a_page_says_it_before_all_else_and_is_a_draft_of_nothing(
    tmp_path: Path,
) -> None:
    found, _ = judged(
        pd.DataFrame({"x": TAIL}), bought(Integer(name="x", low=0, high=1))
    )
    page = write_evaluation_page(found, tmp_path / "page.html").read_text()
    first = page.index("✕ cut")
    assert first < page.index("Single columns</a>")
    assert (
        f"{int((TAIL > 1).sum()):,} of 600 people lie above 1, up to {TAIL.max()}"
        in page
    )


def test_a_schema_of_other_rows_without_bounds_is_refused_by_the_name_of_a_column():
    rows = pd.DataFrame({"x": [1, 2, 3]})
    with pytest.raises(SchemaError, match='column "age"'):
        us.evaluate(rows, rows, Schema(columns=(Integer(name="age"),)))


def test_held_out_rows_may_have_texts_that_neither_the_schema_nor_the_real_rows_list():
    schema = Schema(columns=(Categorical(name="town", categories=("a", "b")),))
    real, unseen = (
        pd.DataFrame({"town": ["a", "b"] * 40 + [strange] * 5})
        for strange in ("c", "d")
    )
    found = us.evaluate(
        real, real.assign(town=["a", "b"] * 42 + ["a"]), schema, holdout=unseen
    )
    assert found.shares[0].column.categories == ("a", "b", UNLISTED)  # type: ignore[attr-defined]

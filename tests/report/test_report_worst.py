"""A line is as good as its worst part: no average hides a column, a pair or a model
that a reader would find wrong.
"""

import numpy as np
import pandas as pd
import pytest
from report_cases import columns_of

from understudy.data.schema import Boolean, Categorical, Integer, Real, Schema
from understudy.evaluate.comparison import Comparison, compare
from understudy.evaluate.holdings import SchemaLoss
from understudy.report.column_findings import schema_findings
from understudy.report.findings import Finding
from understudy.report.lines import verdict_lines
from understudy.report.marks import raw_mark
from understudy.report.verdict import verdict

ROWS = 4_000


def findings(found: Comparison) -> dict[str, Finding]:
    return {finding.subject: finding for finding in verdict(found, None)}


def forest(rows: int, seed: int, kinds: int = 30) -> pd.DataFrame:
    """An elevation, the one kind of soil that goes with it as a column of 0 and 1 each,
    a cover, and a slope.
    """
    rng = np.random.default_rng(seed)
    elevation = rng.normal(0, 1, rows)
    ranks = pd.Series(elevation + rng.normal(0, 0.5, rows)).rank(pct=True).to_numpy()
    soil = np.minimum((kinds * ranks).astype(int), kinds - 1)
    cover = np.where(elevation + rng.normal(0, 0.5, rows) > 0.3, "pine", "spruce")
    table = {
        "elevation": np.clip(elevation, -5, 5),
        "slope": rng.uniform(0, 1, rows),
        "cover": cover,
    }
    return pd.DataFrame(
        table | {f"soil_{k}": (soil == k).astype(int) for k in range(kinds)}
    )


FOREST = Schema(
    columns=(
        Real(name="elevation", low=-5, high=5, bins=8),
        Real(name="slope", low=0, high=1, bins=4),
        Categorical(name="cover", categories=("pine", "spruce")),
        *(Integer(name=f"soil_{k}", low=0, high=1) for k in range(30)),
    )
)


@pytest.mark.long
def test_dependence_that_is_lost_among_hundreds_of_nearly_constant_columns_is_never_called_none():
    real = forest(ROWS, 1)
    found = findings(compare(real, columns_of(forest(ROWS, 2), seed=3), FOREST))
    assert found["single columns"].mark == "good"
    for subject in ("pairs of columns", "correlations", "predictions of columns"):
        assert found[subject].mark == "poor", found[subject]
    pairs = found["pairs of columns"]
    assert "no dependence" not in pairs.statement
    assert "“elevation” × “cover”" in pairs.detail


def test_a_fresh_sample_of_nearly_constant_columns_is_close_in_every_line() -> None:
    found = findings(compare(forest(ROWS, 1), forest(ROWS, 2), FOREST))
    for subject in (
        "single columns",
        "pairs of columns",
        "correlations",
        "predictions of columns",
    ):
        assert found[subject].mark == "good", found[subject]


def normal(rows: int, seed: int, **strength: float) -> pd.DataFrame:
    """Ten numbers of one shared part; those that are named follow the first by so
    much.
    """
    rng = np.random.default_rng(seed)
    table = {"c0": rng.normal(size=rows)}
    for name in (f"c{i}" for i in range(1, 10)):
        share = strength.get(name, 0.8)
        table[name] = share * table["c0"] + np.sqrt(1 - share**2) * rng.normal(
            size=rows
        )
    return pd.DataFrame(table).clip(-5, 5)


NORMAL = Schema(
    columns=tuple(Real(name=f"c{i}", low=-5, high=5, bins=8) for i in range(10))
)


@pytest.mark.parametrize(
    ("kept", "close"), [(0.71, True), (0.66, True), (0.5, False), (0.1, False)]
)
def test_correlations_are_never_close_where_one_is_off_by_more_than_a_tenth(
    kept: float, close: bool
) -> None:
    real = normal(ROWS, 1, c9=0.71)
    made = normal(ROWS, 2, c9=kept)
    found = findings(compare(real, made, NORMAL))["correlations"]
    assert (found.mark == "good") is close, found
    true, drawn = (frame["c0"].corr(frame["c9"]) for frame in (real, made))
    assert found.worst is not None
    if not close:
        assert found.worst.name == "“c0” × “c9”"
        assert (found.worst.real, found.worst.synthetic) == (
            pytest.approx(true, abs=0.02),
            pytest.approx(drawn, abs=0.02),
        )
        assert (
            f"{found.worst.real:.2f} in the real rows, {found.worst.synthetic:.2f}"
            in found.detail
        )


def test_a_correlation_that_no_real_row_has_is_named_too() -> None:
    found = findings(compare(normal(ROWS, 1, c9=0.0), normal(ROWS, 2, c9=0.3), NORMAL))[
        "correlations"
    ]
    assert found.mark != "good"
    assert found.worst is not None
    assert found.worst.name == "“c0” × “c9”"


SCORE = Schema(columns=(Integer(name="score", low=0, high=100), Boolean(name="other")))


def scores(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"score": rng.integers(0, 101, rows), "other": rng.random(rows) < 0.5}
    )


@pytest.mark.parametrize(
    ("past", "value", "said"),
    [
        (1, 426, "its largest is 426, real 100"),
        (60, 130, "1.5 % of synthetic rows lie above the real maximum of 100"),
        (60, -30, "1.5 % of synthetic rows lie below the real minimum of 0"),
    ],
)
def test_a_column_that_runs_past_its_real_ends_is_never_close(
    past: int, value: int, said: str
) -> None:
    real = scores(ROWS, 1)
    made = scores(ROWS, 2)
    made.loc[: past - 1, "score"] = value
    wide = Schema(columns=(Integer(name="score", low=-50, high=500), SCORE.columns[1]))
    found = compare(real, made, wide)
    assert raw_mark(found.shares[0]) != "good"
    line = findings(found)["single columns"]
    assert line.mark != "good"
    assert said in line.detail
    assert raw_mark(compare(real, scores(ROWS, 3), wide).shares[0]) == "good"


def test_a_column_whose_deviation_doubled_is_never_close() -> None:
    rng = np.random.default_rng(4)
    schema = Schema(columns=(Real(name="cost", low=0, high=1e6),))
    real, made = (
        pd.DataFrame({"cost": np.exp(rng.normal(5, 1, ROWS))}) for _ in range(2)
    )
    assert raw_mark(compare(real, made, schema).shares[0]) == "good"
    tail = made.assign(
        cost=made["cost"].where(
            made["cost"] < made["cost"].quantile(0.97), 4 * made["cost"]
        )
    )
    # nothing beyond the range, and KS below .05
    tail = tail.clip(upper=float(real["cost"].max()))
    share = compare(real, tail, schema).shares[0]
    assert share.ks is not None
    assert share.ks < 0.05
    assert share.spread is not None
    assert share.spread.deviation[1] > 1.5 * share.spread.deviation[0]
    assert raw_mark(share) != "good"


def test_a_number_s_row_has_both_ends_both_tails_the_median_and_the_deviation_of_both_tables():
    real = scores(ROWS, 1)
    made = scores(ROWS, 2)
    spread = compare(real, made, SCORE).shares[0].spread
    assert spread is not None
    for share, (true, drawn) in spread.quantiles.items():
        assert (true, drawn) == (
            real["score"].quantile(share),
            made["score"].quantile(share),
        )
    assert {0.0, 0.01, 0.5, 0.99, 1.0} <= spread.quantiles.keys()
    assert spread.deviation == (
        pytest.approx(real["score"].std(ddof=0)),
        pytest.approx(made["score"].std(ddof=0)),
    )


def test_one_column_that_cannot_be_judged_does_not_make_all_of_them_so() -> None:
    rng = np.random.default_rng(5)
    schema = Schema(
        columns=(
            *(Integer(name=f"n{i}", low=0, high=20) for i in range(8)),
            Real(name="rare", low=0, high=1, nullable=True),
        )
    )

    def draw() -> pd.DataFrame:
        rare = np.where(rng.random(ROWS) < 0.004, rng.random(ROWS), np.nan)
        return pd.DataFrame(
            {f"n{i}": rng.integers(0, 21, ROWS) for i in range(8)} | {"rare": rare}
        )

    found = findings(compare(draw(), draw(), schema))
    line = found["single columns"]
    assert line.mark == "good"
    assert "“rare” cannot be judged" in line.detail
    assert "8 of 9" in line.statement


def test_every_line_is_there_as_data_with_its_mark_and_both_numbers() -> None:
    found = compare(normal(ROWS, 1, c9=0.71), normal(ROWS, 2, c9=0.3), NORMAL)
    lines = verdict_lines(found)
    by_line = {one.line: one for one in lines if one.line != "column"}
    assert {
        "single columns",
        "pairs of columns",
        "correlations",
        "predictions of columns",
    } <= by_line.keys()
    worst = by_line["correlations"]
    assert worst.mark != "good"
    assert worst.subject == "“c0” × “c9”"
    assert worst.real == pytest.approx(0.71, abs=0.05)
    assert worst.synthetic == pytest.approx(0.3, abs=0.05)
    columns = [one for one in lines if one.line == "column"]
    assert [one.subject for one in columns] == [f"c{i}" for i in range(10)]
    assert all(one.mark == "good" for one in columns)


def test_what_the_schema_could_not_say_counts_columns_and_not_what_is_said_of_them():
    def loss(column: str, people: int) -> SchemaLoss:
        return SchemaLoss(
            column=column,
            people=people,
            rows=1_000,
            words=f"{people} people lie outside",
        )

    both_ends = [loss(f"c{i}", 10 * i + end) for i in range(1, 8) for end in (1, 2)]
    (found,) = schema_findings(both_ends)
    assert found.subject == "7 columns of your table"
    named = {
        name for name in (f"c{i}" for i in range(1, 8)) if f"“{name}”" in found.detail
    }
    assert len(named) == 5
    assert found.detail.endswith("And 2 more columns.")
    (fewer,) = schema_findings(both_ends[:10])
    assert "more column" not in fewer.detail


def scales(rows: int, seed: int, *, lost: bool) -> pd.DataFrame:
    """Six pairs of columns that hang together, and a mood that depends a little on six
    of them, unless it is lost.
    """
    rng = np.random.default_rng(seed)
    first = rng.normal(0, 1, (rows, 6))
    second = 0.8 * first + 0.6 * rng.normal(0, 1, (rows, 6))
    mood = 0.35 * first.sum(1) + rng.normal(0, 1, rows)
    if lost:
        mood = rng.permutation(mood)
    table = {f"a{i}": first[:, i] for i in range(6)} | {
        f"b{i}": second[:, i] for i in range(6)
    }
    return pd.DataFrame(table | {"mood": mood}).clip(-5, 5)


SCALES = Schema(
    columns=tuple(
        Real(name=name, low=-5, high=5, bins=8) for name in scales(1, 0, lost=False)
    )
)


def test_predictions_are_not_good_where_one_column_among_many_is_lost() -> None:
    real = scales(ROWS, 1, lost=False)
    lost_one = findings(compare(real, scales(ROWS, 2, lost=True), SCALES))[
        "predictions of columns"
    ]
    assert lost_one.mark == "poor"
    assert "Furthest off is “mood”" in lost_one.detail
    assert "looked at 13 columns" in lost_one.detail
    fresh = findings(compare(real, scales(ROWS, 3, lost=False), SCALES))[
        "predictions of columns"
    ]
    assert fresh.mark == "good"
    assert "looked at 13 columns" in fresh.detail


def skewed(rows: int, seed: int, *, lost: float) -> pd.DataFrame:
    """Costs with a long tail, within three bins, that a yes goes with, and shares that
    fill two bins: of so many people what goes together is lost.
    """
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, 2))
    mixed = np.where(
        (rng.random(rows) < lost)[:, None], rng.permuted(hidden, axis=0), hidden
    )
    answers = hidden[:, 0] + rng.normal(0, 1, rows) > 0
    return pd.DataFrame(
        {
            "cost": np.minimum(np.exp(2 + 0.8 * mixed[:, 0]), 999),
            "answer": np.where(answers, "yes", "no"),
            "rate": np.clip(0.5 + 0.03 * hidden[:, 1], 0, 1),
            "score": np.clip(50 + mixed[:, 1] + 0.5 * rng.normal(size=rows), 0, 100),
            "other": rng.normal(0, 1, rows).clip(-5, 5),
        }
    )


SKEWED = Schema(
    columns=(
        Real(name="cost", low=0, high=1_000, bins=3),
        Categorical(name="answer", categories=("no", "yes")),
        Real(name="rate", low=0, high=1, bins=3),
        Real(name="score", low=0, high=100, bins=3),
        Real(name="other", low=-5, high=5, bins=3),
    )
)


@pytest.mark.parametrize("lost", [0.0, 0.5, 1.0])
def test_pairs_are_not_close_where_only_values_within_their_bins_lost_each_other(
    lost: float,
) -> None:
    real = skewed(ROWS, 1, lost=0.0)
    found = findings(compare(real, skewed(ROWS, 2, lost=lost), SKEWED))
    pairs = found["pairs of columns"]
    assert (pairs.mark == "good") is (lost == 0), pairs
    if lost:
        assert found["correlations"].mark != "good"
        assert pairs.worst is not None
        assert abs((pairs.worst.real or 0) - (pairs.worst.synthetic or 0)) > 0.1


def folded(rows: int, seed: int, *, lost: bool) -> pd.DataFrame:
    """An answer that no bin and no line shows: whether two numbers, each in one of
    eight stripes within its bins, are in stripes of the same kind.
    """
    rng = np.random.default_rng(seed)
    first, second, third = rng.uniform(0, 1, (3, rows))
    same = (np.floor(8 * first) + np.floor(2 * second)) % 2 == 0
    answers = np.where(rng.random(rows) < 0.95, same, ~same)
    if lost:
        answers = rng.permutation(answers)
    return pd.DataFrame(
        {
            "first": first,
            "second": second,
            "third": third,
            "answer": np.where(answers, "yes", "no"),
        }
    )


FOLDED = Schema(
    columns=(
        *(Real(name=name, low=0, high=1, bins=2) for name in ("first", "second")),
        Real(name="third", low=0, high=1, bins=2),
        Categorical(name="answer", categories=("no", "yes")),
    )
)


@pytest.mark.long
@pytest.mark.parametrize("target", [None, "answer"])
def test_what_only_boosting_on_values_learns_is_never_called_close_where_it_is_lost(
    target: str | None,
) -> None:
    real = folded(ROWS, 1, lost=False)
    subject = "predictions of " + (f"“{target}”" if target else "columns")
    for lost in (False, True):
        made = folded(ROWS, 2, lost=lost)
        found = findings(compare(real, made, FOLDED, target=target, models=("linear",)))
        assert (found[subject].mark == "good") is not lost, found[subject]

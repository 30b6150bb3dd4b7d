"""The strangers benchmark measures a table as it came, by the one line alone."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("short_fits")


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("strangers")


def test_a_cell_has_a_row_for_every_column_and_one_for_all(
    bench: ModuleType, tmp_path: Path
) -> None:
    (cell,) = bench.cells(["codes"], "now", [4.0], 1)
    small = {"components": 4, "steps": 2}
    rows = bench.measure(cell, {"data": tmp_path, "people": 400, "settings": small})
    names = [row["column"] for row in rows]
    assert names[:6] == ["kind", "satisfied", "school", "affairs", "share", "left"]
    assert set(names[6:-1]) >= {
        "single columns",
        "pairs of columns",
        "correlations",
        "predictions of “left”",
    }
    assert names[-1] == "(all)"
    assert {row["people"] for row in rows} == {400}
    assert all(0 <= row["ks"] <= 1 for row in rows[:5] if not row["left_out"])
    for line in rows[6:-1]:
        assert line["kind"] == "line"
        assert line["wrong_line"] == int(
            line["mark"] == "good"
            and line["off"] > (0.05 if "pred" in line["column"] else 0.1)
        )
    assert 0 <= rows[-1]["tstr_auc"] <= 1 >= rows[-1]["trtr_auc"] > 0.6
    out = tmp_path / "ours.csv"
    bench.GRID.add(rows, out)
    assert not bench.GRID.left([cell], out)


@pytest.mark.parametrize(
    ("real", "made", "found"),
    [
        (
            [1, 2, 3, 4],
            [1, 2, 3, 3],
            {"kind": "number", "ks": 0.25, "form": "", "mean": 0.9},
        ),
        (
            [1, 2, 3, 4],
            [1.0, None, 3, 4],
            {"form": "int64 as float64; gaps", "gap": 0.25},
        ),
        ([0.5, 1.5], [0.51, 1.5], {"form": "2 decimals for 1"}),
        (
            ["a", "b"],
            ["a", "(other)"],
            {"kind": "text", "tv": 0.5, "form": "new words: (other)"},
        ),
        (
            ["2001-02-03", "2001-02-05"],
            ["2001-02-03", "2001-02-04"],
            {"kind": "day", "ks": 0.5, "form": ""},
        ),
        (["2001-02-03"], ["03/02/01"], {"kind": "day", "ks": 1.0, "form": "days"}),
        ([None, None], [None, None], {"kind": "unsaid"}),
        (
            [0, 0, 10, 10],
            [0, 0, 10, 12],
            {"outside": 0.25, "beyond": 0.2, "p99_real": 10.0, "p99_made": 11.94},
        ),
        (
            [1.0, 1.0, 3.0, 3.0],
            [1.0, 1.0, 5.0, 5.0],
            {"deviation": 2.0, "atom_error": 0.5},
        ),
        ([7, 7, 7], [7, 7, 8], {"outside": 0.33333, "beyond": 1.0, "deviation": ""}),
    ],
)
def test_figures_of_a_column_by_hand(
    bench: ModuleType, real: list, made: list, found: dict
) -> None:  # type: ignore[type-arg]
    figures = bench.column_figures(pd.Series(real), pd.Series(made))
    assert {name: figures[name] for name in found} == found
    assert bench.column_figures(pd.Series(real), None)["left_out"] == 1


@pytest.mark.parametrize(("others", "error"), [(30, 0.0), (10, 0.2), (50, 0.2)])
def test_other_texts_stand_for_those_that_were_not_released(
    bench: ModuleType, others: int, error: float
) -> None:
    real = pd.Series(["Bonn"] * 70 + [f"village {k}" for k in range(30)])
    made = pd.Series(["Bonn"] * (100 - others) + ["(other)"] * others)
    assert bench.atom_figures(real, made, noise=1.0)["atom_error"] == pytest.approx(
        error
    )
    named = pd.Series(["Bonn"] * 70 + ["Ulm"] * 30)
    without = bench.atom_figures(named, pd.Series(["Bonn"] * 100), noise=1.0)
    assert without["atom_error"] == pytest.approx(0.3), (
        "nothing was drawn as other texts"
    )


def test_an_atoms_error_is_in_deviations_of_its_noise_and_of_the_draw(
    bench: ModuleType,
) -> None:
    real = pd.Series([1.4] * 40 + [0.0] * 60)
    made = pd.Series([1.4] * 20 + [1.5] * 20 + [0.0] * 60)
    found = bench.atom_figures(real, made, noise=3.0)
    # which nobody has: only the count's noise speaks for it
    assert found["atom"] == "1.5"
    assert found["atom_error"] == 0.2
    assert found["atom_sigmas"] == pytest.approx(0.2 / 0.03, abs=0.01)


def test_noise_moves_the_shares_of_a_column_with_few_values_more(
    bench: ModuleType,
) -> None:
    real = pd.Series([1.0] * 10 + [2.0] * 10)
    made = pd.Series([1.0] * 13 + [2.0] * 7)
    gaps = pd.Series([None] * 380, dtype=float)
    alone = bench.atom_figures(real, made, noise=3.0)
    among_gaps = bench.atom_figures(
        pd.concat([real, gaps]), pd.concat([made, gaps]), noise=3.0
    )
    assert alone == among_gaps
    expected = 0.15 / (0.15**2 + 0.5 * 0.5 / 20) ** 0.5
    assert alone["atom_sigmas"] == pytest.approx(expected, abs=0.01)


def test_the_truth_of_a_line_is_found_without_a_schema(
    bench: ModuleType, load_bench: Callable[..., ModuleType]
) -> None:
    truth = load_bench("strangers", "truth")
    rng = np.random.default_rng(3)
    one = rng.normal(size=4_000)
    real = pd.DataFrame(
        {"a": one, "b": one + rng.normal(size=4_000), "c": rng.normal(size=4_000)}
    )
    real["text"] = np.where(one > 0, "high", "low")
    real["copy"] = real["text"]
    shuffled = real.assign(
        b=rng.permutation(real["b"]), copy=rng.permutation(real["copy"])
    )
    words = truth.common_words(real[["text", "copy"]])

    def measure(frame: pd.DataFrame) -> object:
        return truth.Associations.measure(
            frame[["a", "b", "c"]], frame[["text", "copy"]], words
        )

    assert truth.worst_pair(measure(real), measure(real)) == truth.Truth()
    pair = truth.worst_pair(measure(real), measure(shuffled))
    assert pair.off == pytest.approx(1.0, abs=0.02)
    assert pair.worst.startswith("text and copy: 1.00 -> 0.0")
    correlation = truth.worst_correlation(measure(real), measure(shuffled))
    assert correlation.worst.startswith("a and b: 0.7")
    assert correlation.contradicts("good", "correlations")
    assert not correlation.contradicts("partly", "correlations")
    columns = [
        {"column": "id", "kind": "unsaid", "tv": 1.0},
        {"column": "a", "kind": "number", "ks": 0.2},
    ]
    assert truth.worst_column(columns) == truth.Truth(0.2, "a")


def test_a_model_is_compared_on_rows_held_out_whichever_column_it_predicts(
    bench: ModuleType, tmp_path: Path
) -> None:
    table = bench.load("codes", tmp_path)
    rng = np.random.default_rng(1)
    scrambled = table.train.apply(lambda column: rng.permutation(column))
    lost = bench.model_truth("school", table, scrambled, 0)
    assert lost.off > 0.15
    assert bench.model_truth("school", table, table.train, 0).off == 0


def test_a_model_tells_the_most_frequent_words_apart_and_takes_others_as_one(
    bench: ModuleType,
) -> None:
    words = [f"w{k:02d}" for k in range(40)]
    cells = np.repeat(words, np.arange(40, 0, -1))
    rows = pd.DataFrame({"word": cells, "size": np.arange(len(cells))})
    made = pd.DataFrame({"word": ["w00", "w39", "(other)", None], "size": range(4)})
    table = bench.Stranger(rows, rows, "")
    asked, synthetic = bench.with_few_classes("word", table, made)
    often = words[: bench.MOST_CLASSES - 1]
    for frame in (asked.train, asked.test):
        assert set(frame["word"]) == {*often, bench.RARE_WORDS}
        assert (frame["word"] == rows["word"]).equals(rows["word"].isin(often))
    rare = bench.RARE_WORDS
    assert list(synthetic["word"].fillna("")) == ["w00", rare, rare, ""]
    few = rows.assign(word=rows["word"].str[-1])
    asked, synthetic = bench.with_few_classes(
        "word", bench.Stranger(few, few, ""), made
    )
    assert asked.train is few
    assert synthetic is made


def test_a_model_takes_numbers_that_few_have_as_the_nearest_that_many_have(
    bench: ModuleType,
) -> None:
    values = np.repeat([-1.0, 0.0, 2.0, 9.0], [50, 49, 1, 1])
    rows = pd.DataFrame({"step": values, "size": np.arange(101)})
    made = pd.DataFrame({"step": [0.4, -7.0, None, 9.0], "size": range(4)})
    table = bench.Stranger(rows, rows, "")
    asked, synthetic = bench.with_few_classes("step", table, made)
    assert bench.features(asked.train, asked)[1].tolist() == [0] * 50 + [1] * 51
    assert synthetic["step"].fillna(-9).tolist() == [0, -1, -9, 0]


def test_columns_that_were_left_out_are_in_no_truth_but_their_own(
    bench: ModuleType, tmp_path: Path
) -> None:
    table = bench.load("codes", tmp_path)
    made = table.train.drop(columns="school")
    common = bench.with_columns_of(made, table)
    assert list(common.train) == list(common.test) == list(made)


def test_a_model_asks_whether_a_day_is_after_the_middle_one(bench: ModuleType) -> None:
    days = pd.date_range("2001-01-01", periods=101)
    rows = pd.DataFrame({"day": days.strftime("%d.%m.%Y"), "size": np.arange(101)})
    table = bench.Stranger(rows, rows, "")
    made = pd.DataFrame({"day": ["01.02.2001", None, "01.06.2001"], "size": range(3)})
    asked, synthetic = bench.with_few_classes("day", table, made)
    assert asked.target == "day"
    assert bench.features(asked.train, asked)[1].tolist() == [0] * 51 + [1] * 50
    assert bench.features(synthetic, asked)[1].tolist() == [0, 1]


def test_forty_tables_half_of_them_apart_and_the_generated_ones_have_the_law_that_is_said(
    bench: ModuleType, load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    tables = load_bench("strangers", "tables")
    show = load_bench("strangers", "show")
    assert len(tables.NAMES) == 40
    assert tables.CHOSEN == show.CHOSEN
    assert len(tables.CHOSEN) == 20
    assert set(tables.CHOSEN) < set(tables.NAMES)
    clinic = tables.load("clinic_5000", tmp_path).train
    assert (clinic["insulin"] == 0).mean() == pytest.approx(0.5, abs=0.03)
    assert clinic["insulin"].max() > 700
    traffic = tables.load("traffic", tmp_path).train
    assert (
        traffic["received"].max()
        > 1e6
        > 10
        > traffic["received"][traffic["received"] > 0].min()
    )
    assert traffic["service"].nunique() == 67
    assert traffic["errors"].between(0, 1).all()
    assert tables.load("calls", tmp_path).train["euribor"].nunique() == 11
    odd = tables.load("odd", tmp_path).train
    assert odd["nothing"].isna().all()
    assert np.array_equal(odd["pay"], odd["pay_again"])
    assert [
        tables.load(name, tmp_path).people for name in ("clinic", "codes", "costs")
    ] == [768, 3_464, 8_933]


def test_every_further_table_has_the_columns_that_it_is_for(
    bench: ModuleType, load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    further = load_bench("strangers", "further_tables")
    tables = load_bench("strangers", "tables")
    assert len(further.FURTHER) == 20
    assert len(set(further.MAY_CHOOSE) & set(further.FURTHER)) == 10
    every = {name: tables.load(name, tmp_path) for name in further.FURTHER}
    assert all(2_000 <= table.people <= 40_000 for table in every.values())
    assert {table.train.shape[1] for table in every.values()} <= set(range(5, 56))
    assert all(table.target in table.train for table in every.values())
    forest = every["forest"].train
    soils = forest.filter(like="soil_type_")
    assert soils.shape[1] == 40
    assert (soils.sum(axis=1) == 1).all()
    assert forest.shape[1] == 55
    market = every["market"].train["variation"]
    assert (market == 1.4).mean() == pytest.approx(0.394, abs=0.01)
    assert set(market) <= set(further.MARKET)
    chances = every["chances"].train.drop(columns="percent")
    assert chances.min().min() >= 0
    assert chances.max().max() <= 1
    assert set(every["cohorts"].train["survey_year"]) == {2013}
    assert every["registry"].train["token"].is_unique
    assert set(every["counts"].train["cars"]) == {0, 1, 2}
    assert every["ward"].train["lab_3"].isna().mean() == pytest.approx(0.02, abs=0.01)
    correlations = every["pairs"].train.corr(numeric_only=True)
    assert correlations.loc["height", "reach"] == pytest.approx(0.96, abs=0.01)
    assert correlations.loc["height", "weight"] == pytest.approx(0.71, abs=0.02)
    determined = every["determined"].train
    assert (
        determined["visits"]
        == determined["visits_spring"] + determined["visits_autumn"]
    ).all()
    assert set(every["answers"].train["sex"]) == {"1", "2"}
    assert bench.kind_of(every["moments"].train["half_clock"]) == "day"


def test_columns_alone_are_measured_at_the_edges_of_their_cells(
    load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    columns = load_bench("strangers", "columns")
    edges = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    values = np.array([1.0] * 50 + [3.0] * 50)
    found = columns.figures(values, edges, np.array([0.0, 45.0, 50.0, 5.0]))
    # 5 of 100 lie in the cell from 4 on, half a range above 3
    assert found["outside"] == 0.05
    assert found["beyond"] == 0.5
    assert found["ks"] == pytest.approx(0.05)
    (job,) = columns.jobs(["codes"], "now", 1)
    rows = columns.measure(job, tmp_path, 400)
    assert {row["column"] for row in rows} >= {"kind", "school", "affairs"}
    assert all(0 <= row["ks"] <= 1 and row["people"] <= 400 for row in rows)
    assert columns.GRID.title(job) == "codes/now/0"

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.data.table import read_table
from understudy.evaluate.utility.downstream import MODELS, SCORES
from understudy.evaluate.utility.fidelity import evaluate_tables
from understudy.ground.errors import ConfigError

SCHEMA = Schema(
    columns=(
        Categorical(name="plan", categories=("free", "paid", "family")),
        Ordinal(name="health", categories=(1, 2, 3, 4)),
        Integer(name="visits", low=0, high=9),
        Real(name="income", low=0.0, high=100.0, bins=5, nullable=True),
        Boolean(name="child"),
        Date(name="since", low="2020-01-01", high="2020-12-31", bins=4),
    )
)
OWNERS = dict.fromkeys(("plan", "health", "visits"), "clinic") | dict.fromkeys(
    ("income", "child", "since"), "insurer"
)
FAST = ("linear",)


def people(rows, seed):
    rng = np.random.default_rng(seed)
    rank = rng.random(rows)
    noisy = [np.clip(rank + rng.normal(0, 0.1, rows), 0, 0.999) for _ in range(6)]
    frame = pd.DataFrame(
        {
            "plan": np.array(["free", "paid", "family"])[(3 * noisy[0]).astype(int)],
            "health": 1 + (4 * noisy[1]).astype(int),
            "visits": (10 * noisy[2]).astype(int),
            "income": 100 * noisy[3],
            "child": noisy[4] > 0.5,
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta((366 * noisy[5]).astype(int), unit="D"),
        }
    )
    frame.loc[rng.random(rows) < 0.05, "income"] = np.nan
    return frame


def loose(frame, seed=0):
    """The same columns, each shuffled on its own."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {name: frame[name].to_numpy()[rng.permutation(len(frame))] for name in frame}
    )


def test_a_faithful_table_lies_near_the_good_ends_and_independent_columns_at_the_bad_ones():
    real = people(3000, 0)
    faithful, naive = (
        evaluate_tables(
            real,
            rows,
            SCHEMA,
            holdout=people(1000, 2),
            target="plan",
            owners=OWNERS,
            models=FAST,
        )
        for rows in (people(3000, 1), loose(real))
    )
    names = [f"avd{k}{s}" for k in (2, 3) for s in ("", "_within", "_cross")]
    for name in [
        *names,
        "cmd",
        "cmd_within",
        "cmd_cross",
        "tstr_linear_acc",
        "tstr_linear_auc",
    ]:
        good = faithful[name]
        bad = naive[name]
        middle = (good.floor + good.ceiling) / 2
        assert (good.value < middle) == (good.better == "lower")
        assert (bad.value > middle) == (bad.better == "lower")


def test_a_table_against_itself_has_no_distance():
    real = people(200, 3)
    evaluation = evaluate_tables(real, real, SCHEMA)
    assert [figure.name for figure in evaluation.figures] == [
        *("avd1", "avd2", "avd3", "avd4", "cmd"),
        *("ks", "wasserstein", "quantile_error", "zero_share", "spike_share"),
        *("pearson", "spearman", "cramers_v", "correlation_ratio", "rank_ratio"),
    ]
    assert [figure.value for figure in evaluation.figures] == pytest.approx(
        [0] * 15, abs=1e-12
    )
    assert evaluation.correlations.real.shape == (6, 6)


def test_rows_joined_wrongly_across_parties_show_in_the_cross_figures_alone():
    real = people(2000, 4)
    wrong = real.copy()
    wrong[["income", "child", "since"]] = (
        real[["income", "child", "since"]].sample(frac=1, random_state=0).to_numpy()
    )
    wrong = wrong.astype(real.dtypes.to_dict())
    evaluation = evaluate_tables(real, wrong, SCHEMA, owners=OWNERS)
    assert evaluation["avd2_within"].value == 0
    assert evaluation["avd2_cross"].value > 0.3
    assert evaluation["cmd_within"].value == pytest.approx(0, abs=1e-12)
    assert evaluation["cmd_cross"].value > 0.3


def test_every_figure_is_tidy_and_plain():
    evaluation = evaluate_tables(
        people(60, 5),
        people(50, 6),
        SCHEMA,
        holdout=people(40, 7),
        target="child",
        models=FAST,
    )
    names = [figure.name for figure in evaluation.figures]
    assert len(set(names)) == len(names)
    assert evaluation.sizes == {"real": 60, "synthetic": 50, "held-out": 40}
    values = evaluation.values()
    assert values["trtr_linear_acc"] == evaluation["tstr_linear_acc"].ceiling
    assert values["avd2"] == evaluation["avd2"].value


def test_the_text_shows_every_figure_once_and_says_what_was_done():
    evaluation = evaluate_tables(
        people(60, 8), people(50, 9), SCHEMA, target="plan", models=FAST
    )
    text = str(evaluation)
    assert text.startswith("60 real, 50 synthetic rows, 6 columns compared")
    for figure in evaluation.figures:
        assert (
            sum(line.startswith(f"{figure.name} ") for line in text.splitlines()) == 1
        )
    assert "cannot be computed" not in text
    assert "trained on 48 of 48 real and 50 of 50 synthetic rows" in text
    assert "a fifth of the real ones, which the generator may have seen" in text
    for name, found in evaluation.numbers.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert " → ".join(map(found.format_value, found.median)) in line
    assert "What the figures are:" in text


@pytest.mark.parametrize("target", ["visits", "income", "since"])
def test_numbers_and_dates_are_regressed_and_gaps_in_the_target_left_out(target):
    evaluation = evaluate_tables(
        people(300, 10),
        people(300, 11),
        SCHEMA,
        holdout=people(200, 12),
        target=target,
        models=FAST,
    )
    assert evaluation["tstr_linear_r2"].value > 0.5
    assert evaluation["tstr_linear_mae"].better == "lower"
    assert ("without a target" in evaluation["tstr_linear_r2"].note) == (
        target == "income"
    )


def test_a_regression_target_can_be_learned_as_classes():
    evaluation = evaluate_tables(
        people(300, 13),
        people(300, 14),
        SCHEMA,
        target="visits",
        task="classification",
        models=FAST,
    )
    assert evaluation["tstr_linear_acc"].value > 0.1


def test_columns_that_do_not_fit_are_left_out_and_named_without_quoting_a_real_cell():
    real = people(50, 15)
    synthetic = people(50, 16)
    test = people(50, 17)
    synthetic["plan"] = "gold"
    synthetic = synthetic.drop(columns="health")
    real.loc[3, "visits"] = 77
    test["extra"] = 1
    evaluation = evaluate_tables(
        real,
        synthetic,
        SCHEMA,
        holdout=test,
        target="child",
        owners=OWNERS,
        models=FAST,
    )
    assert evaluation.columns == ("income", "child", "since")
    assert "gold" in evaluation.left_out["plan"]
    assert evaluation.left_out["health"] == "the synthetic table does not have it."
    assert "real table" in evaluation.left_out["visits"]
    assert "77" not in evaluation.left_out["visits"]
    assert evaluation["avd3"].value is not None
    assert "avd4" in str(evaluation)
    assert evaluation["avd4"].reason == "4 columns are needed and the table has 3."
    assert 'left out: "plan"' in str(evaluation)


def test_a_target_that_is_left_out_gives_a_reason_for_every_model():
    synthetic = people(50, 18).drop(columns="plan")
    evaluation = evaluate_tables(people(50, 19), synthetic, SCHEMA, target="plan")
    missing = [
        figure for figure in evaluation.figures if figure.name.startswith("tstr_")
    ]
    assert len(missing) == len(MODELS) * len(SCORES["classification"])
    assert all("left out" in figure.reason for figure in missing)


def test_tables_with_nothing_in_common_give_reasons_alone():
    other = pd.DataFrame({"x": [1, 2, 3]})
    evaluation = evaluate_tables(
        people(50, 20), other, SCHEMA, target="plan", owners=OWNERS
    )
    assert len(evaluation.left_out) == 6
    assert all(figure.value is None and figure.reason for figure in evaluation.figures)
    assert "cannot be computed" in str(evaluation)


@pytest.mark.long
@pytest.mark.parametrize("rows", [0, 1, 2, 10])
@pytest.mark.parametrize("target", ["child", "income"])
def test_few_rows_give_figures_or_reasons(rows, target):
    few = people(rows, 21)
    for real, synthetic in ((few, people(50, 22)), (people(50, 23), few), (few, few)):
        evaluation = evaluate_tables(
            real, synthetic, SCHEMA, target=target, owners=OWNERS, models=("linear",)
        )
        assert all(
            (figure.value is None) == bool(figure.reason)
            for figure in evaluation.figures
        )
        assert np.isfinite(
            [figure.value for figure in evaluation.figures if figure.value is not None]
        ).all()


def test_constant_and_all_missing_columns_give_figures_or_reasons():
    real = people(100, 24)
    synthetic = people(100, 25)
    synthetic["income"] = np.nan
    synthetic["plan"] = "free"
    real["child"] = True
    evaluation = evaluate_tables(real, synthetic, SCHEMA, target="plan", models=FAST)
    assert not evaluation.left_out
    assert evaluation["avd1"].value > 0
    assert "constant in the real rows, left out: child" in evaluation["cmd"].note
    assert "counted as uncorrelated: plan, income" in evaluation["cmd"].note
    assert evaluation["tstr_linear_auc"].value == 0.5
    constant = evaluate_tables(real, synthetic, SCHEMA, target="child", models=FAST)
    assert "constant" in constant["tstr_linear_acc"].reason
    unknown = evaluate_tables(
        people(100, 26), synthetic, SCHEMA, target="income", models=FAST
    )
    assert "no synthetic row has a target" in unknown["tstr_linear_r2"].reason


def test_tables_that_were_read_are_taken_as_well_as_frames():
    real = people(60, 27)
    synthetic = people(60, 28)
    from_frames = evaluate_tables(real, synthetic, SCHEMA)
    from_tables = evaluate_tables(
        read_table(real, SCHEMA), read_table(synthetic, SCHEMA), SCHEMA
    )
    assert from_frames.figures == from_tables.figures


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "plam"}, 'Did you mean "plan"'),
        ({"target": "plan", "task": "regresion"}, 'Did you mean "regression"'),
        ({"target": "plan", "task": "regression"}, "no numbers"),
        ({"owners": {"plan": "clinic"}}, 'no party for column "health"'),
        ({"owners": OWNERS | {"visit": "clinic"}}, 'Did you mean "visits"'),
    ],
)
def test_settings_that_cannot_be_used_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        evaluate_tables(people(20, 29), people(20, 30), SCHEMA, **options)


def test_an_unknown_figure_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match='Did you mean "avd2"'):
        evaluate_tables(people(20, 31), people(20, 32), SCHEMA)["avd22"]


def test_the_benchmark_agrees_with_pandas_on_a_small_table(monkeypatch):
    monkeypatch.setenv("QUICK", "1")
    bench = runpy.run_path(
        str(Path(__file__).parents[2] / "benchmarks/evaluate/bench.py")
    )
    sizes = np.array([2, 3, 4, 20] * 5)
    real, synthetic = (bench["table"](300, sizes, seed) for seed in (0, 1))
    # fails where they differ
    with_pandas, alone = bench["marginals"](real, synthetic, sizes.tolist())
    assert with_pandas["ratio"] > 0
    assert alone["seconds"] > 0

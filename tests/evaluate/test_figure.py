"""What a figure is, in fields, and the name that files of results have for it."""

import pytest

from understudy.evaluate.figure import Figure, FigureKey
from understudy.report.words import attack_name, figure_name

NAMES = {
    FigureKey("avd", 2, "cross"): ("avd2_cross", "Pairs of columns, across parties"),
    FigureKey("avd", 5): ("avd5", "Sets of 5"),
    FigureKey("tstr", part="mlp", score="bal_acc"): (
        "tstr_mlp_bal_acc",
        "Neural network",
    ),
    FigureKey("total_mean", column="a_b", subjects=("visits",)): (
        "total_mean_a_b (visits)",
        "Sum of “a_b” a person, mean (visits)",
    ),
    FigureKey("avd", 2, "between", subjects=("visits", "claims (2)")): (
        "avd2_between (visits and claims (2))",
        "A column of visits and one of claims (2)",
    ),
    FigureKey("unknown"): ("unknown", "unknown"),
}


@pytest.mark.parametrize("key", NAMES)
def test_a_figure_is_named_by_its_fields_whatever_stands_in_them(
    key: FigureKey,
) -> None:
    assert (key.name, figure_name(key)) == NAMES[key]
    assert Figure(key, value=1.0).name == key.name


def test_a_column_of_any_name_is_the_one_that_an_attack_infers() -> None:
    for column in ("ill", "univariate", "50pct_outliers", "a (b)"):
        assert (
            attack_name(FigureKey("inference", column=column))[0]
            == f"Inference of {column}"
        )
    assert (
        attack_name(FigureKey("mia", outliers=50, subjects=("clinic",)))[0]
        == "Membership, 50 % outliers (clinic)"
    )

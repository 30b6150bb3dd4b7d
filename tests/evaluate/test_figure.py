"""What a figure is, in fields, and the name that files of results have for it."""

import pytest

from understudy.evaluate.figure import Figure, What
from understudy.report.words import attack_name, figure_name

NAMES = {
    What("avd", 2, "cross"): ("avd2_cross", "Pairs of columns, across parties"),
    What("avd", 5): ("avd5", "Sets of 5"),
    What("tstr", part="mlp", score="bal_acc"): ("tstr_mlp_bal_acc", "Neural network"),
    What("total_mean", column="a_b", of=("visits",)): (
        "total_mean_a_b (visits)",
        "Sum of “a_b” a person, mean (visits)",
    ),
    What("avd", 2, "between", of=("visits", "claims (2)")): (
        "avd2_between (visits and claims (2))",
        "A column of visits and one of claims (2)",
    ),
    What("unknown"): ("unknown", "unknown"),
}


@pytest.mark.parametrize("what", NAMES)
def test_a_figure_is_named_by_its_fields_whatever_stands_in_them(what: What) -> None:
    assert (what.name, figure_name(what)) == NAMES[what]
    assert Figure(what, value=1.0).name == what.name


def test_a_column_of_any_name_is_the_one_that_an_attack_infers() -> None:
    for column in ("ill", "univariate", "50pct_outliers", "a (b)"):
        assert (
            attack_name(What("inference", column=column))[0] == f"Inference of {column}"
        )
    assert (
        attack_name(What("mia", outliers=50, of=("clinic",)))[0]
        == "Membership, 50 % outliers (clinic)"
    )

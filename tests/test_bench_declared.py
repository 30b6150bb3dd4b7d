"""Tables of the benchmarks that are declared: which rows, lines, columns and statistics
a declaration gives.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FIGURES = """method,epsilon,seed,auc
b,8.0,0,0.75
b,8.0,1,0.85
b,1.0,0,0.5
a,8.0,0,0.25
a,,0,
"""


@pytest.fixture
def declared(tmp_path: Path) -> Iterator[Callable[[str], dict[str, Callable[[], str]]]]:
    path = sys.path[:]
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    tables = importlib.import_module("common.declared").tables

    def of(text: str) -> dict[str, Callable[[], str]]:
        (tmp_path / "ours.csv").write_text(FIGURES)
        (tmp_path / "tables.toml").write_text(text)
        return tables(tmp_path / "tables.toml")  # type: ignore[no-any-return]

    yield of
    sys.path[:] = path


def test_a_line_for_each_group_and_a_column_for_each_value_with_their_statistics(
    declared: Callable[[str], dict[str, Callable[[], str]]],
) -> None:
    text = """
    [t]
    lines = ["method"]
    over = "epsilon"
    names.method = {a = "A", b = "B"}
    columns = [["method", "{method}"], ["ε={:g}", "{auc:spread bare .2f}"], ["seeds", "{seed:n}"]]
    """
    assert declared(text)["t"]() == (
        "| method | ε=1 | ε=8 | seeds |\n|---|---|---|---|\n| A | – | .25 | 1 |\n| B "
        "| .50 | .80 ± .05 | 2 |"
    )


def test_rows_that_do_not_count_are_left_out_and_none_at_all_is_an_error(
    declared: Callable[[str], dict[str, Callable[[], str]]],
) -> None:
    text = """
    [one]
    where = "method == 'b' and epsilon == 8"
    with = {percent = "100 * auc"}
    text = "{percent:.0f} of {seed:count ,}"
    [none]
    where = "method == 'c'"
    text = "{auc:.2f}"
    """
    assert declared(text)["one"]() == "80 of 2"
    with pytest.raises(LookupError, match="has no row with method == 'c'"):
        declared(text)["none"]()


def test_lines_may_follow_and_names_repeat_once(
    declared: Callable[[str], dict[str, Callable[[], str]]],
) -> None:
    text = """
    [t]
    lines = ["method", "epsilon"]
    once = 1
    columns = [["", "{method}"], ["ε", "{epsilon:g}"]]
    more = [["all", ["{auc:max .2f}", "seed == 1"]]]
    [u]
    like = "t"
    more = []
    """
    lines = ["| b | 1 |", "| | 8 |", "| a | 8 |", "| | – |"]
    assert declared(text)["t"]().splitlines()[2:] == [*lines, "| all | 0.85 |"]
    assert declared(text)["u"]().splitlines()[2:] == lines

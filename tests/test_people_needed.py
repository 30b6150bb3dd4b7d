"""The page on how many people it needs says what its script finds."""

import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "people_needed.py"))


@pytest.mark.parametrize(("columns", "epsilon"), [(5, 1.0), (20, 4.0)])
def test_its_tables_are_those_of_the_script(
    script: dict[str, Any], columns: int, epsilon: float
) -> None:
    page = (DOCS / "reading_a_report.md").read_text(encoding="utf-8")
    for name, found in script["TABLES"].items():
        rows = (
            page.partition(f"<!-- people: {name} -->")[2]
            .partition("<!-- end -->")[0]
            .splitlines()
        )
        (row,) = [line for line in rows if line.startswith(f"| {columns} |")]
        cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
        assert cells[script["EPSILONS"].index(epsilon)] == found(columns, epsilon)

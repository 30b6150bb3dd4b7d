"""The page, and other commands, of rows that are no table: what they say is true, and
they end as they should.
"""

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from report_cases import run_of
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.column import Real
from understudy.data.images import ImageSchema
from understudy.data.kinds import MixedSchema
from understudy.data.samples import toy
from understudy.data.series import SeriesSchema
from understudy.report.page import write_report

SERIES = SeriesSchema(
    length=4, series="stay", person="id", channels=(Real(name="pulse", low=0, high=10),)
)
IMAGES = ImageSchema(height=4, width=4, person="id")
SCHEMAS: dict[str, Any] = {
    "series": SERIES,
    "images": IMAGES,
    "several kinds": MixedSchema(parts={"clinic": toy(1)[1], "monitor": SERIES}),
}


@pytest.mark.parametrize("publish", [False, True])
@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_page_of_other_rows_than_tables_says_that_and_shows_the_price(
    kind: str, publish: bool, tmp_path: Path
) -> None:
    text = write_report(
        run_of(tmp_path / "run", SCHEMAS[kind]), publish=publish
    ).read_text()
    assert f"the rows are {'of ' if kind == 'several kinds' else ''}{kind}" in text
    assert "its schema cannot be read" not in text
    assert "generator/schema.toml" not in text  # among the missing pieces
    assert "ε = 1" in text


def test_an_audit_of_series_ends_with_2_and_in_words(tmp_path: Path) -> None:
    SERIES.save(tmp_path / "monitor.toml")
    party = {
        "table": "monitor.csv",
        "schema": "monitor.toml",
        "epsilon": 1.0,
        "delta": 0.0,
    }
    settings = {"epsilon_total": 1.0, "max_reports": 1}
    body = {
        "protocol": "fed-stdg",
        "out": "out",
        "settings": settings,
        "parties": {"monitor": party},
    }
    (tmp_path / "run.toml").write_text(tomli_w.dumps(body))
    ended = CliRunner().invoke(app, ["audit", str(tmp_path / "run.toml")])
    assert ended.exit_code == 2
    assert "Nothing was computed" in " ".join(ended.output.split())

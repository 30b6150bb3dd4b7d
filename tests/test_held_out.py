"""People who are held out of a run: by coins that depend on nothing, in no release, and on the page as a control."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app
from understudy.data.reading.held_out import hold_out
from understudy.ground.errors import ConfigError
from understudy.privacy.noise import SecureRng
from understudy.report.page import write_report

pytestmark = pytest.mark.usefixtures("short_training", "short_fits")


def people(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"age": rng.integers(18, 90, rows), "ill": rng.random(rows) < 0.3, "town": rng.choice(["a", "b"], rows)}
    )


def test_every_row_is_in_one_part_and_who_is_held_out_does_not_depend_on_what_rows_say(tmp_path: Path) -> None:
    frame = people(4_000)
    others = frame.assign(age=0, town="c")
    kept, away = hold_out(frame, 0.05, SecureRng.from_seed(3), tmp_path, "one")
    same, away_too = hold_out(others, 0.05, SecureRng.from_seed(3), tmp_path, "two")
    assert isinstance(kept, pd.DataFrame)
    assert isinstance(same, pd.DataFrame)
    assert kept.index.equals(same.index)
    out = pd.read_csv(away)
    assert len(out) == len(pd.read_csv(away_too)) == len(frame) - len(kept)
    assert 130 < len(out) < 270  # 200, and five deviations
    both = pd.concat([kept, out]).sort_values(list(frame), ignore_index=True)
    pd.testing.assert_frame_equal(both, frame.sort_values(list(frame), ignore_index=True), check_dtype=False)


def test_cells_of_a_file_stay_as_they_are_written(tmp_path: Path) -> None:
    lines = [f'{i};"a;{i}";0{i},50 €;' for i in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["id;text;paid;gap", *lines]) + "\n")
    kept, away = hold_out(tmp_path / "rows.csv", 0.3, SecureRng.from_seed(1), tmp_path, "rows")
    found = [line for path in (Path(str(kept)), away) for line in path.read_text().splitlines()]
    assert found.count("id;text;paid;gap") == 2
    assert sorted(line for line in found if not line.startswith("id;")) == sorted(lines)
    assert {path.stat().st_mode & 0o777 for path in (Path(str(kept)), away)} == {0o600}


def test_nobody_is_held_out_of_what_is_no_table_in_a_file_or_a_frame(tmp_path: Path) -> None:
    for source, share in ((tmp_path / "rows.parquet", 0.1), (people(9), 1.5)):
        with pytest.raises(ConfigError, match="Nothing was charged"):
            hold_out(source, share, SecureRng(), tmp_path, "x")


def test_a_run_that_holds_people_out_says_so_and_its_page_has_attacks(tmp_path: Path) -> None:
    frame = people(900)
    schema = us.Schema(
        columns=(
            us.Integer(name="age", low=18, high=89, bins=4),
            us.Boolean(name="ill"),
            us.Categorical(name="town", categories=("a", "b")),
        )
    )
    home, table = tmp_path / "run", tmp_path / "clinic.csv"
    frame.to_csv(table, index=False)
    result = us.synthesize(
        table, epsilon=2, schema=schema, ledgers=tmp_path / "ledgers", folder=home, holdout=0.1, device="cpu"
    )
    stated = json.loads((home / "privacy.json").read_text())
    assert any("held out of the run with a chance of 10 %" in said for said in stated["outside"])
    away = Path(json.loads((home / "run.json").read_text())["held_out"])
    assert result.federation is not None
    rows = result.federation.holders["clinic"].table.rows  # type: ignore[union-attr]
    assert rows + len(pd.read_csv(away)) == 900
    text = write_report(home).read_text()
    assert "attacks were tried" in text
    assert "were not run" not in text
    assert str(away) not in write_report(home, publish=True).read_text()


def test_the_command_holds_out_a_twentieth_of_a_csv_file_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    people(400).to_csv("clinic.csv", index=False)
    schema = us.Schema(columns=(us.Integer(name="age", low=18, high=89, bins=4), us.Boolean(name="ill")))
    schema.save(tmp_path / "clinic.toml")
    for more, held in (([], True), (["--holdout", "0"], False)):
        ledgers = f"ledgers-{held}"
        asked = ["synthesize", "clinic.csv", "--epsilon", "2", "--schema", "clinic.toml", "--ledgers", ledgers]
        done = CliRunner().invoke(app, [*asked, "--out", f"run-{held}", *more])
        assert done.exit_code == 0, (done.output, done.exception)
        assert ("held out of the run with a chance of 5 %" in done.output) is held
        assert any(Path(ledgers).glob("*-held-out.csv")) is held

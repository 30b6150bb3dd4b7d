"""A page reads the holders' files as the run did: with their separators, decimals and
words for "missing".
"""

import re
from pathlib import Path

import pytest

from test_cli import Run
from understudy.data.samples import toy
from understudy.report.page import write_report

RUN = """protocol = "gram"
out = "joint"

[settings]
components = 16
steps = 5

[parties.clinic]
table = "clinic.csv"
decimal = ","
missing = ["?"]
schema = "clinic.toml"
epsilon = 3.0
delta = 1e-5

[parties.insurer]
table = "insurer.source.toml"
schema = "insurer.toml"
epsilon = 3.0
delta = 1e-5
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Run) -> Path:
    """The folder of a run of two holders, neither of whose files reads by itself."""
    monkeypatch.chdir(tmp_path)
    frame, schema = toy(rows=120, seed=1)
    frame["income"] = frame["income"].where(frame["income"].notna(), -99)
    clinic = ["age", "smoker", "colour"]
    insurer = ["income", "grade"]
    frame[["id", *clinic]].astype({"colour": object}).fillna("?").to_csv(
        "clinic.csv", index=False, sep=";", decimal=","
    )
    frame[["id", *insurer]].to_csv("insurer.txt.csv", index=False, sep="|")
    Path("insurer.source.toml").write_text(
        'table = "insurer.txt.csv"\nseparator = "|"\nmissing = [-99]\n'
    )
    for name, columns in (("clinic", clinic), ("insurer", insurer)):
        schema.select(columns).save(f"{name}.toml")
    Path("run.toml").write_text(RUN)
    code, _, err = understudy("run", "run.toml")
    assert code == 0, err
    return tmp_path / "joint"


def test_a_page_compares_rows_that_were_read_by_what_the_run_file_states(
    ran: Path,
) -> None:
    page = write_report(ran).read_text()
    assert "is left out" not in page
    assert re.search(r"(All )?120 rows|120", page)
    for column in ("smoker", "income", "grade", "age"):
        assert column in page


def test_a_page_opens_no_database(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may be a stranger's: what it names would be dialled, with a password of
    this machine.
    """
    body = (ran / "run.toml").read_text()
    table = re.search(r'table = "[^"]*insurer[^"]*"', body)
    assert table is not None
    monkeypatch.setenv("SECRET", "s")
    lie = (
        'table = "postgresql://me@127.0.0.1:1/x"\nquery = "select 1"\npassword = '
        '"env:SECRET"'
    )
    for word, source in (
        ("inline", lie),
        ("file", f'table = "{ran / "evil.source.toml"}"'),
    ):
        (ran / "evil.source.toml").write_text(lie)
        changed = re.sub(
            r'separator = "\|"\n|missing = \[\n    -99,\n\]\n',
            "",
            body.replace(table[0], source),
        )
        (ran / "run.toml").write_text(changed)
        page = write_report(ran, out=ran / f"{word}.html").read_text()
        assert "The table of insurer is left out: its rows are in a database" in page

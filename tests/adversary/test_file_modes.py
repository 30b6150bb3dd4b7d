"""What a holder keeps can be read by its owner alone, whoever made the folder and
whatever the umask is.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

from understudy.api.train import run_file
from understudy.cli import app
from understudy.data.samples import overlap_people, toy
from understudy.ground.durable import own_folder, replace
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.federation import Federation, open_ledger
from understudy.runs.runfile import RunFile
from understudy.runtime.identity import Authority
from understudy.runtime.journal import AuditLog, Journal

# What may go out: everything else is kept.
PUBLISHED = {
    "generator",
    "synthetic.parquet",
    "privacy.json",
    "transcript.json",
    "report-public.html",
}


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The one that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def assert_kept(folder: Path, *, but: frozenset[str] = frozenset()) -> int:
    """Every file under the folder is its owner's alone, and so is the folder that it
    lies in; how many there are.
    """
    assert mode(folder) == 0o700, folder
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not but & set(path.parts)
    ]
    for file in files:
        assert mode(file) == 0o600, file
        assert mode(file.parent) == 0o700, file
    return len(files)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two holders' files and a run file, in folders that others can look into."""
    frame, schema = toy(rows=60, seed=1)
    rows = overlap_people(frame, "id", {"clinic": 0.9, "insurer": 0.9}, seed=2)
    parties = {}
    for name, columns in (
        ("clinic", ["colour", "smoker"]),
        ("insurer", ["grade", "treated"]),
    ):
        frame.loc[rows[name], ["id", *columns]].to_csv(
            tmp_path / f"{name}.csv", index=False
        )
        schema.select(columns).save(tmp_path / f"{name}.toml")
        parties[name] = {
            "table": f"{name}.csv",
            "schema": f"{name}.toml",
            "epsilon": 3.0,
            "delta": 1e-4,
        }
    parties["insurer"]["ledger"] = "own/insurer.ledger"
    settings = {"rounds": 2, "critic_steps": 1, "batch": 16, "checkpoint_every": 1}
    body = {
        "protocol": "verti-gan",
        "out": "joint",
        "rows": 20,
        "settings": settings,
        "parties": parties,
    }
    (tmp_path / "run.toml").write_text(tomli_w.dumps(body))
    for made in ("ledgers", "joint/parties/clinic", "joint/checkpoint"):
        (tmp_path / made).mkdir(parents=True)
        (tmp_path / made).chmod(0o755)
    return tmp_path


def test_what_a_run_keeps_is_the_owners_alone(home: Path) -> None:
    run_file(RunFile.load(home / "run.toml"))
    assert assert_kept(home / "ledgers") >= 1
    assert assert_kept(home / "own") >= 1
    for place in ("parties/clinic", "parties/insurer", "checkpoint"):
        assert assert_kept(home / "joint" / place) >= 1
    rest = [
        path
        for path in (home / "joint").iterdir()
        if path.is_file() and path.name not in PUBLISHED
    ]
    assert sorted(path.name for path in rest) == ["run.json", "run.toml"]
    assert {mode(path) for path in rest} == {0o600}
    assert mode(home / "joint" / "synthetic.parquet") & 0o044, (
        "what may go out stays as the umask says"
    )
    CliRunner().invoke(app, ["report", str(home / "joint")], catch_exceptions=False)
    assert mode(home / "joint" / "report.html") == 0o600


def test_a_ledger_and_what_lies_beside_it_while_it_is_open(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "deep" / "a.ledger", "a", Budget(1, 1e-6)) as ledger:
        ledger.spent()
        assert {path.name for path in (tmp_path / "deep").iterdir()} >= {
            "a.ledger",
            "a.ledger-wal",
        }
        assert_kept(tmp_path / "deep")


def test_a_ledger_that_others_could_read_is_closed_when_it_is_opened(
    tmp_path: Path,
) -> None:
    with Ledger(tmp_path / "a.ledger", holder="a", budget=Budget(1, 1e-6)):
        pass
    (tmp_path / "a.ledger").chmod(0o644)
    with Ledger(tmp_path / "a.ledger") as ledger:
        ledger.spent()
        assert {mode(path) for path in tmp_path.glob("a.ledger*")} == {0o600}


def test_a_federations_folder_of_ledgers_is_closed_though_it_was_there(
    tmp_path: Path,
) -> None:
    frame, schema = toy(rows=9, seed=1)
    own_folder(tmp_path / "books").chmod(0o755)
    Federation(
        {"a": frame}, {"a": schema}, budget=Budget(1, 1e-6), ledgers=tmp_path / "books"
    )
    assert assert_kept(tmp_path / "books") >= 1


def test_drafts_and_bought_tables_hold_rows_and_are_closed(tmp_path: Path) -> None:
    frame, _ = toy(rows=60, seed=1)
    frame[["id", "age", "smoker"]].to_csv(tmp_path / "t.csv", index=False)
    for path in ("draft.toml", "clean.csv"):
        (tmp_path / path).touch()
        (tmp_path / path).chmod(0o644)
    at = {
        name: str(tmp_path / name)
        for name in ("t.csv", "draft.toml", "bought.toml", "clean.csv", "own/a.ledger")
    }
    run = CliRunner().invoke
    run(
        app,
        ["schema", "infer", at["t.csv"], "--out", at["draft.toml"], "--person", "id"],
        catch_exceptions=False,
    )
    assert mode(tmp_path / "draft.toml") == 0o600
    said = run(
        app,
        [
            "schema",
            "buy",
            at["t.csv"],
            at["draft.toml"],
            "--ledger",
            at["own/a.ledger"],
            "--out",
            at["bought.toml"],
            "--cleaned",
            at["clean.csv"],
            "--names-and-kinds-are-public",
            "--epsilon",
            "20",
        ],
        catch_exceptions=False,
    )
    assert said.exit_code == 0, said.output
    assert mode(tmp_path / "clean.csv") == 0o600
    assert_kept(tmp_path / "own")


def test_an_exchange_in_a_folder_that_was_there(tmp_path: Path) -> None:
    serve = pytest.importorskip("understudy.services.exchange.serve")
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    for old in ("exchange.sqlite", "lock"):
        (data / old).touch()
        (data / old).chmod(0o644)
    exchange = serve.open_exchange(data)
    try:
        with exchange.store.receive("silo", 10, exchange.limits) as upload:
            upload.write(b"12")
            assert mode(upload.path) == 0o600
            upload.keep("ab" * 32)
        # the database and what lies beside it, the lock, the token, the offer
        assert assert_kept(data) >= 4
    finally:
        exchange.close()


def test_a_federations_keys_roster_and_invitations(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    folder.mkdir()
    folder.chmod(0o755)
    authority = Authority.create(folder, name="ward", address="h:1")
    authority.invite("clinic")
    authority.revoke("clinic")
    assert assert_kept(folder) == 7


def test_logs_and_journals_that_others_could_read_are_closed(tmp_path: Path) -> None:
    for name in ("audit.jsonl", "answers.0", "answers.1"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o666)
    AuditLog(tmp_path / "audit.jsonl").close()
    Journal(tmp_path).close()
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}


def test_a_folder_that_all_share_stays_theirs(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    own_folder(tmp_path)
    assert mode(tmp_path) == 0o1777
    assert mode(replace(tmp_path / "mine", b"")) == 0o600


def test_sqlite_gives_what_it_makes_beside_a_file_the_files_own_mode(
    tmp_path: Path,
) -> None:
    """That `own_database` may rely on it."""
    replace(tmp_path / "d", b"")
    connection = sqlite3.connect(tmp_path / "d")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (a)")
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 3
    connection.close()

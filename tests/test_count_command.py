"""`understudy count` and `--parts`: other machines of a holder count, and the run adds
up.
"""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refusals import raises
from understudy.cli.terminal import err, progress_bar
from understudy.data.reading import files
from understudy.data.reading.spread import Task, counted_by, found_by, task_of
from understudy.data.reading.workers import InFolder, count_in_folder, count_until_over
from understudy.data.samples import toy
from understudy.data.table import open_table
from understudy.ground.errors import ConfigError, Effect, PartyError

FRAME, SCHEMA = toy(rows=150, seed=4)
Run = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.usefixtures("short_fits")


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "LONG", 0)
    SCHEMA.save(tmp_path / "t.toml")
    made = tmp_path / "t.parquet"
    FRAME.to_parquet(made, index=False, row_group_size=16)
    return made


@pytest.mark.long
def test_machines_count_until_the_run_is_over(
    understudy: Run, table: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    parts = tmp_path / "parts"
    machines = [
        threading.Thread(
            target=count_until_over, args=[parts, number, 2, None, 60.0, said.append]
        )
        for number in range(2)
    ]
    for machine in machines:
        machine.start()
    how = (
        "--schema",
        tmp_path / "t.toml",
        "--epsilon",
        2,
        "--ledgers",
        tmp_path / "ledgers",
        "--out",
        tmp_path / "o",
    )
    code, _, wrong = understudy("synthesize", table, *how, "--parts", f"{parts}:2")
    for machine in machines:
        machine.join()
    assert code == 0, wrong
    assert (tmp_path / "o" / "synthetic.csv").exists()
    assert said.count("The run is over.") == 2
    assert said.count("Part 1 of 2: counted.") == 2  # opened, and pairs
    assert not parts.exists()


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "-1/2", "a/b", "1/"])
def test_a_part_that_is_none_is_refused(
    understudy: Run, tmp_path: Path, part: str
) -> None:
    code, _, wrong = understudy("count", tmp_path, f"--part={part}")
    assert (code, "--part is i/n" in wrong) == (1, True)


def test_a_folder_that_is_not_ones_own_or_not_empty_is_refused(
    understudy: Run, table: Path, tmp_path: Path
) -> None:
    run = (
        "synthesize",
        table,
        "--schema",
        tmp_path / "t.toml",
        "--epsilon",
        1,
        "--ledgers",
        tmp_path / "ledgers",
    )
    assert "parts are FOLDER:n" in understudy(*run, "--parts", "parts")[2]
    assert "is not empty" in understudy(*run, "--parts", f"{tmp_path}:2")[2]
    shared = tmp_path / "shared"
    shared.mkdir()
    # as /tmp, where anybody may leave a task with a key of their own
    shared.chmod(0o1777)
    assert "is not for you alone" in understudy(*run, "--parts", f"{shared}:2")[2]
    assert "is not for you alone" in understudy("count", shared, "--part", "1/2")[2]
    assert (
        "nothing to count for 0 s"
        in understudy("count", tmp_path / "none", "--part", "1/2", "--patience", 0)[2]
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "parts"
    made.mkdir(mode=0o700)
    return made


def asked(folder: Path, table: Path, number: int = 2) -> Task:
    """A task that waits in the folder."""
    with counted_by(InFolder(folder, number)):
        opened = open_unread(table)
    task = task_of(
        opened,
        "understudy.data.table:checked_part",
        SCHEMA.to_dict(),
        {"holder": "one"},
        bytes(32),
    )
    file = folder / f"{task.head['task'][:32]}.task"
    file.write_bytes(task.to_bytes())
    file.chmod(0o600)
    return task


def open_unread(table: Path) -> Any:
    from understudy.data.reading.sources import source_at
    from understudy.data.table import StreamedTable

    return StreamedTable(source_at(table), SCHEMA)


def test_a_task_of_another_that_others_can_read_or_that_is_none_is_not_answered(
    folder: Path, table: Path
) -> None:
    asked(folder, table)
    (file,) = folder.glob("*.task")
    with pytest.raises(ConfigError, match="2 parts, not 3"):
        count_in_folder(folder, 0, 3)
    file.chmod(0o604)
    with raises(
        PartyError,
        effect=Effect.NOTHING_COMPUTED,
        match="not of your own run, or others can read it",
    ):
        count_in_folder(folder, 0, 2)
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 4711, -1)
        with pytest.raises(PartyError, match="not of your own run"):
            count_in_folder(folder, 0, 2)
        os.chown(file, 0, -1)
    data = file.read_bytes()
    file.write_bytes(data[:99])
    with pytest.raises(PartyError, match="is no task of a run"):
        count_in_folder(folder, 0, 2)
    file.unlink()
    file.symlink_to(table)
    with pytest.raises(PartyError, match="is no file of yours"):
        count_in_folder(folder, 0, 2)
    assert not list(folder.glob("*.part*"))


def test_a_part_that_is_swapped_for_another_is_refused(
    folder: Path, table: Path
) -> None:
    task = asked(folder, table)
    for number in range(2):
        assert count_in_folder(folder, number, 2) == 1
        assert count_in_folder(folder, number, 2) == 0
    one, two = sorted(folder.glob("*.part*"))
    assert {stat.S_IMODE(file.stat().st_mode) for file in (one, two)} == {0o600}
    swapped = two.read_bytes()
    two.write_bytes(one.read_bytes())
    with raises(
        PartyError,
        effect=Effect.NOTHING_CHARGED_OR_SENT,
        match="one: part 1 of 2 came twice",
    ):
        found_by(InFolder(folder, 2), task)
    assert not list(folder.iterdir())
    one.write_bytes(swapped)
    two.write_bytes(swapped[:-1] + bytes([swapped[-1] ^ 1]))
    with pytest.raises(PartyError, match="part 2 of 2 was changed"):
        found_by(InFolder(folder, 2), task)


def test_a_terminal_sees_parts_and_a_log_does_not(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from understudy.data.reading.spread import Cores

    for terminal in (False, True):
        monkeypatch.setattr(type(err), "is_terminal", terminal)
        monkeypatch.setattr(err, "is_interactive", terminal)
        with err.capture() as shown, progress_bar(), counted_by(Cores(3)):
            assert open_table(table, SCHEMA).rows == len(FRAME)
        assert ("counting" in shown.get()) == terminal

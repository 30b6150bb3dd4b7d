"""SIGKILL while a long table is counted in parts: nothing is charged without a count,
and no count is taken twice.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_parts import BUDGET, FRAME, SCHEMA, SMALL, kept, run

from forker import until
from refusals import raises
from understudy.api.train import train
from understudy.data.reading import files, stores
from understudy.data.reading.workers import InFolder, count_in_folder
from understudy.data.table import open_table
from understudy.ground import processes
from understudy.ground.errors import ConfigError, Effect, PartyError
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.federation import Federation

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9"),
]


@pytest.fixture(autouse=True)
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONG", 0)


def paid_by(federation: Federation) -> Any:
    return federation.holders["one"].ledger.spend()


def released(federation: Federation) -> Any:
    return train("gram", federation, run="r", **SMALL)


@pytest.mark.long
def test_a_run_whose_counting_processes_are_killed_charges_nothing_and_the_next_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = kept(tmp_path / "t.parquet")
    whole, paid = run(source)
    monkeypatch.setattr(stores, "SPREAD", 0)
    monkeypatch.setenv(processes.VARIABLE, "2")
    federation = Federation.rehearsal(
        {"one": source}, {"one": SCHEMA}, budget=BUDGET, seed=3
    )
    # by processes, which then wait for more
    assert open_table(source, SCHEMA).rows == len(FRAME)
    workers = processes._Workers.shared()
    idle = [workers._idle.get_nowait() for _ in range(workers._idle.qsize())]
    for worker in idle:
        os.kill(worker.pid, signal.SIGSTOP)  # each takes a part, and does not count it
        workers._idle.put(worker)
    with ThreadPoolExecutor(1) as thread:
        counted = thread.submit(released, federation)
        until(lambda: workers._idle.empty(), 60)
        for worker in idle:
            os.kill(worker.pid, signal.SIGKILL)
        with raises(
            PartyError,
            effect=Effect.NOTHING_CHARGED_OR_SENT,
            match=r"ended by itself \(-9\)",
        ):
            counted.result()
    assert not paid_by(federation)
    again, charged = run(source)
    pd.testing.assert_frame_equal(whole.sample(50, seed=1), again.sample(50, seed=1))
    assert paid_by(charged) == paid_by(paid)


_COUNT = """
import os, signal, sys
from pathlib import Path
from understudy.data.reading import files
from understudy.data.reading.workers import count_in_folder
files.LONG = 0
os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)  # the part is written, and not in its place
folder = Path(sys.argv[1])
while not list(folder.glob("*.task")):
    pass
count_in_folder(folder, 0, 2)
"""


@pytest.mark.long
def test_a_machine_that_is_killed_as_it_hands_in_its_part_leaves_none_and_another_counts_it(
    tmp_path: Path,
) -> None:
    source = kept(tmp_path / "t.parquet")
    whole, paid = run(source)
    folder = tmp_path / "parts"
    over = threading.Event()

    def count(number: int) -> None:
        while not over.is_set():
            if folder.is_dir():
                count_in_folder(folder, number, 2)
            time.sleep(0.01)

    with (
        InFolder(folder, n_parts=2, patience=120.0) as spread,
        ThreadPoolExecutor(3) as threads,
    ):
        victim = subprocess.Popen([sys.executable, "-c", _COUNT, str(folder)])
        made = threads.submit(run, source, spread)
        try:
            assert victim.wait(120) == -signal.SIGKILL
            assert not list(folder.glob("*.part0")), "half a part is none"
            for number in range(2):
                threads.submit(count, number)
            parts, charged = made.result()
        finally:
            over.set()
    pd.testing.assert_frame_equal(whole.sample(50, seed=1), parts.sample(50, seed=1))
    assert paid_by(charged) == paid_by(paid)


_RUN = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from test_parts import BUDGET, SCHEMA, SMALL
from understudy.api.train import train
from understudy.data.reading import files
from understudy.data.reading.sources import TableSource
from understudy.data.reading.spread import counted_by
from understudy.data.reading.workers import InFolder
from understudy.runs.federation import Federation
files.LONG = 0
source, folder, ledgers = sys.argv[1:4]
with InFolder(Path(folder), n_parts=2) as spread, counted_by(spread):
    federation = Federation({"one": TableSource(table=source)}, {"one": SCHEMA}, budget=BUDGET, ledgers=ledgers)
    train("gram", federation, run="r", **SMALL)
"""


@pytest.mark.long
def test_a_run_that_is_killed_while_it_waits_for_parts_has_charged_nothing_and_its_folder_is_not_taken_again(
    tmp_path: Path,
) -> None:
    source = kept(tmp_path / "t.parquet")
    folder = tmp_path / "parts"
    ledgers = tmp_path / "ledgers"
    here = Path(__file__).parent
    words = [
        sys.executable,
        "-c",
        _RUN,
        str(source.table),
        str(folder),
        str(ledgers),
        str(here),
        str(here.parent),
    ]
    victim = subprocess.Popen(words)
    try:
        until(lambda: bool(list(folder.glob("*.task"))), 120)
        (opening,) = folder.glob("*.task")
        for number in range(2):
            count_in_folder(folder, number, 2)  # who is there, when the table is opened
        until(lambda: bool({*folder.glob("*.task")} - {opening}), 120)
        count_in_folder(folder, 0, 2)  # and one part of two of what is released
    finally:
        victim.kill()
        victim.wait()
    with Ledger(ledgers / "one.ledger") as ledger:
        assert not ledger.spend()
    assert list(folder.glob("*.task"))
    with pytest.raises(ConfigError, match="is not empty"):
        InFolder(folder, n_parts=2).__enter__()
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}

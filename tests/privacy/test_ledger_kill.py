"""kill -9 at any moment: the ledger opens clean and has charged at least all that was
used.

Run as a program, this file is the parent that forks, kills and compares.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from forker import Forker
from forks import fork
from understudy.ground.errors import BudgetExceeded
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger

Results = dict[str, dict[str, int]]
# each with its number of kills
SCENES = {"charge first": 24, "use first": 8, "create": 12, "race": 0}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, forker: Forker) -> Results:
    """Of all scenes, played by one process."""
    folder = tmp_path_factory.mktemp("kill")
    done = forker.run(folder, folder=folder, to=folder / "said", program=Path(__file__))
    assert done.end() == 0, done.err
    played: Results = json.loads(done.out)
    return played


def test_a_killed_party_never_undercounts(results: Results) -> None:
    result = results["charge first"]
    assert result["undercounted"] == 0
    assert result["overcounted"] == 0
    # the children did work before they died
    assert result["used"] > SCENES["charge first"]


def test_the_same_kills_catch_a_party_that_uses_before_it_pays(
    results: Results,
) -> None:
    assert results["use first"]["undercounted"] > 0


def test_a_ledger_killed_while_it_is_made_is_whole_or_absent(results: Results) -> None:
    result = results["create"]
    assert result["broken"] == 0
    assert 0 < result["whole"] < SCENES["create"]  # kills fell before and after


def test_two_processes_cannot_overspend_together(results: Results) -> None:
    assert results["race"] == {"charged": 32, "spent": 2}


if sys.platform == "win32":
    pytest.skip("needs fork and kill -9", allow_module_level=True)


# The parent of the killed


def play(scene: str, folder: Path, kills: int) -> dict[str, float]:
    if scene == "race":
        return race(folder)
    return create(folder, kills) if scene == "create" else kill(scene, folder, kills)


def kill(scene: str, folder: Path, kills: int) -> dict[str, float]:
    path = folder / "clinic.ledger"
    used_file = folder / "used"
    Ledger(path, holder="clinic", budget=Budget(1e6, 0.0)).close()
    used_file.touch()
    rng = random.Random(7)
    under = over = used = charged = 0
    for k in range(kills):
        goal = used + rng.randrange(5)
        child = fork(
            partial(charge_forever, path, used_file, first=scene == "charge first")
        )
        wait_until(lambda goal=goal: used_file.stat().st_size >= goal)
        end(child, after=rng.uniform(0, 0.004))
        with Ledger(path) as ledger:
            charged = sum(ledger.spend("ann").values())
        used = used_file.stat().st_size
        under += charged < used
        over += charged > used + k + 1  # one charge may be in flight at each kill
    with Ledger(path) as ledger:
        assert sum(entry.count for entry in ledger.entries()) == charged
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return {"undercounted": under, "overcounted": over, "used": used}


def charge_forever(path: Path, used_file: Path, *, first: bool) -> None:
    used = os.open(used_file, os.O_WRONLY | os.O_APPEND)
    with Ledger(path) as ledger:
        for k in range(1_000_000):
            if not first:
                use(used)
            ledger.charge(
                PureDp(0.125),
                run="r",
                description="w",
                people=["ann", f"person {k}"] if k % 2 else None,
            )
            if first:
                use(used)


def use(used: int) -> None:
    os.write(used, b".")
    os.fsync(used)


def create(folder: Path, kills: int) -> dict[str, float]:
    rng = random.Random(3)
    whole = 0
    broken = 0
    for k in range(kills):
        path = folder / f"{k}.ledger"
        signs = (lambda: True, partial(any_file, folder, f".{k}.ledger*"), path.exists)
        child = fork(partial(make_and_wait, path))
        wait_until(signs[k % 3])
        end(child, after=rng.uniform(0, 0.004))
        if path.exists():
            with Ledger(path) as ledger:
                whole += ledger.budget == Budget(1.0, 0.0)
                broken += ledger.budget != Budget(1.0, 0.0)
    return {"whole": whole, "broken": broken}


def any_file(folder: Path, pattern: str) -> bool:
    return any(folder.glob(pattern))


def make_and_wait(path: Path) -> None:
    Ledger(path, holder="clinic", budget=Budget(1.0, 0.0))
    time.sleep(60)


def race(folder: Path) -> dict[str, float]:
    path = folder / "clinic.ledger"
    Ledger(path, holder="clinic", budget=Budget(2.0, 0.0)).close()
    children = [fork(partial(charge_all, path)) for _ in range(3)]
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    with Ledger(path) as ledger:
        return {"charged": len(ledger.entries()) - 1, "spent": ledger.spent()}


def charge_all(path: Path) -> None:
    with Ledger(path) as ledger:
        try:
            while True:
                ledger.charge(PureDp(0.0625), run="r", description="w")
        except BudgetExceeded:
            return


def wait_until(sign: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not sign() and time.monotonic() < limit:
        time.sleep(0.0005)


def end(child: int, *, after: float) -> None:
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    # it did not end by itself
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


if __name__ == "__main__":
    played = {}
    for scene, kills in SCENES.items():
        folder = Path(sys.argv[1]) / scene
        folder.mkdir()
        played[scene] = play(scene, folder, kills)
    sys.stdout.write(json.dumps(played))

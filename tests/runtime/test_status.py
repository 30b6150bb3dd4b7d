"""What a status says of a process that is gone, and what a server says line by line."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from understudy.cli.hub import _showing_status
from understudy.network.status import FILE, LOCK, Status, WatchedLog, read_status


def left_behind(folder: Path, error: str) -> dict[str, object]:
    """The status of a process that was killed after it wrote this."""
    (folder / LOCK).touch()
    (folder / FILE).write_text(
        json.dumps({"state": "waiting", "error": error, "at": time.time()})
    )
    return read_status(folder)


@pytest.mark.parametrize("error", ["", "nothing listens there"])
def test_a_process_that_is_gone_is_said_to_be_whatever_it_wrote_last(
    error: str, tmp_path: Path
) -> None:
    status = left_behind(tmp_path, error)
    assert status["state"] == "silent"
    assert str(status["error"]).startswith("its process is gone")
    assert str(status["error"]).endswith(
        f"; before that: {error}" if error else "s ago"
    )


def test_a_process_that_lives_says_its_own_error(tmp_path: Path) -> None:
    with Status(tmp_path, state="waiting", error="nothing listens there"):
        while not (tmp_path / FILE).exists():
            time.sleep(0.001)
        status = read_status(tmp_path)
    assert (status["state"], status["error"]) == ("waiting", "nothing listens there")


class Scripted:
    """A server's status, another at each look; it stays with the last."""

    def __init__(self, *looks: tuple[str, str]) -> None:
        self.looks = list(looks)
        self.over = threading.Event()

    def snapshot(self) -> dict[str, Any]:
        state, signed = self.looks[0]
        if len(self.looks) > 1:
            self.looks.pop(0)
        else:
            self.over.set()
        return {
            "state": state,
            "port": 1,
            "error": "",
            "parties": {name: {"signed": name in signed} for name in "ab"},
        }


def test_a_server_does_not_say_that_it_waits_for_nobody(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Between the last signature and the first ask a moment may pass, in which it is
    looked at.
    """
    status: Any = Scripted(
        ("waiting", ""), ("waiting", "a"), ("waiting", "ab"), ("training", "ab")
    )
    with _showing_status(status, ("a", "b")):
        assert status.over.wait(60)
    said = capfd.readouterr().err.splitlines()
    assert said == [
        "waiting at port 1: a, b to sign",
        "waiting at port 1: b to sign",
        "training at port 1",
    ]


def test_a_line_that_is_there_again_leaves_no_error_of_the_line() -> None:
    log = WatchedLog(None)
    log.write("disconnected", why="nothing listens there")
    assert (log.counts["connected"], log.counts["error"]) == (
        False,
        "nothing listens there",
    )
    log.write("connected", run="gram-0")
    assert (log.counts["connected"], log.counts["error"]) == (True, "")

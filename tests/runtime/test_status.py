"""What a status says of a process that is gone."""

import json
import time
from pathlib import Path

import pytest

from understudy.network.status import FILE, LOCK, Status, read_status


def left_behind(folder: Path, error: str) -> dict[str, object]:
    """The status of a process that was killed after it wrote this."""
    (folder / LOCK).touch()
    (folder / FILE).write_text(json.dumps({"state": "waiting", "error": error, "at": time.time()}))
    return read_status(folder)


@pytest.mark.parametrize("error", ["", "nothing listens there"])
def test_a_process_that_is_gone_is_said_to_be_whatever_it_wrote_last(error: str, tmp_path: Path) -> None:
    status = left_behind(tmp_path, error)
    assert status["state"] == "silent"
    assert str(status["error"]).startswith("its process is gone")
    assert str(status["error"]).endswith(f"; before that: {error}" if error else "s ago")


def test_a_process_that_lives_says_its_own_error(tmp_path: Path) -> None:
    with Status(tmp_path, state="waiting", error="nothing listens there"):
        while not (tmp_path / FILE).exists():
            time.sleep(0.001)
        status = read_status(tmp_path)
    assert (status["state"], status["error"]) == ("waiting", "nothing listens there")

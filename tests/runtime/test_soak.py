"""A short `make soak`: its many kills run outside the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and kill -9")
def test_server_and_parties_killed_at_random_end_as_undisturbed_with_exact_ledgers() -> None:
    program = [sys.executable, str(Path(__file__).parent / "soak.py"), "--kills", "4", "--seed", "3"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 kills" in ended.stdout
    assert "as undisturbed" in ended.stdout

"""A short `make soak`: its many kills run outside the tests."""

import sys
from pathlib import Path

import pytest

from forker import Forker


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and kill -9")
def test_server_and_parties_killed_at_random_end_as_undisturbed_with_exact_ledgers(
    tmp_path: Path, forker: Forker
) -> None:
    program = Path(__file__).parent / "soak.py"
    soak = forker.run(
        "--kills",
        4,
        "--seed",
        3,
        folder=tmp_path,
        to=tmp_path / "soak",
        program=program,
    )
    assert soak.end(280) == 0, soak.out + soak.err
    assert "4 kills" in soak.out
    assert "as undisturbed" in soak.out

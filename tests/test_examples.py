"""The examples run, with as little work as they allow."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *args],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_two_holders_print_rows_and_prices() -> None:
    out = run("two_holders.py")
    assert "coinsurance" in out
    assert "one person, over both holders: ε ≤" in out


def test_every_example_is_tested_here() -> None:
    text = Path(__file__).read_text()
    assert all(f'"{example.name}"' in text for example in EXAMPLES.glob("*.py"))

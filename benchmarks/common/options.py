"""The options of every benchmark, read in one way.

A command has a function `parser`, and reads its arguments before it does anything else:
`--help` runs nothing.
"""

import argparse
import os
from pathlib import Path


def quick() -> bool:
    """Whether QUICK asks for a small run: set, and not to 0."""
    return os.environ.get("QUICK", "") not in ("", "0")


def command(doc: str | None) -> argparse.ArgumentParser:
    """A parser that prints the script's own description as it is written."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def options(
    doc: str | None,
    *,
    out: Path | None = None,
    data: bool = False,
    device: str | None = None,
) -> argparse.ArgumentParser:
    """A parser with `--out`, and where they are asked for with `--data` and `--device`;
    a benchmark adds its own.

    With QUICK=1 nothing is written unless `--out` says so.
    """
    parser = command(doc)
    parser.add_argument(
        "--out",
        type=Path,
        default=None if quick() else out,
        help="the CSV file to write",
    )
    if data:
        parser.add_argument(
            "--data",
            type=Path,
            default=Path(os.environ.get("DATA") or "data"),
            help="the folder of the data sets",
        )
    if device is not None:
        parser.add_argument("--device", default=device, help="auto, cpu or cuda")
    return parser

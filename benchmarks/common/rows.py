"""Rows of figures: read from a CSV file, written into one, said on a line."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read(path: Path | None) -> list[Row]:
    """The rows that stand in the file; none where there is no file."""
    if path is None or not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path | None, rows: Iterable[Row], fields: Sequence[str]) -> None:
    """Replace the file at once: a process that is stopped here leaves the old one whole. No path: write nothing."""
    if path is None:
        return
    part = path.with_suffix(".part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


def said(row: Row) -> str:
    """`name=value` of all that is not empty."""
    return "  ".join(f"{name}={value}" for name, value in row.items() if value != "")

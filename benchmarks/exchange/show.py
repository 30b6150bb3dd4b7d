"""The tables of README.md, from ours.csv and worst.csv: `make tables NAME=exchange`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import read

HERE = Path(__file__).parent


def ours() -> str:
    return table(
        ("members", "asked for", "a second", "median ms", "95 % ms", "99 % ms", "errors"),
        [
            (
                row["members"],
                asked(row["what"], int(row["kilobytes"])),
                short(row["per_second"]),
                *(short(row[name]) for name in ("p50_ms", "p95_ms", "p99_ms")),
                row["errors"],
            )
            for row in read(HERE / "ours.csv")
        ],
    )


def asked(what: str, kilobytes: int) -> str:
    size = f"{kilobytes} kB" if kilobytes < 1000 else f"{kilobytes / 1000:g} MB"
    return f"{what}, {size}" if kilobytes else what


def worst() -> str:
    return table(
        ("offer", "status", "file, MB", "seconds", "server, MB", "checker, MB"),
        [
            (
                row["offer"],
                row["status"],
                short(row["file_mb"]),
                row["seconds"],
                row["server_mb"],
                row["checker_mb"],
            )
            for row in read(HERE / "worst.csv")
        ],
    )


TABLES = {"ours": ours, "worst": worst}

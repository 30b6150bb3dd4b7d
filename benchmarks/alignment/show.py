"""The tables of README.md, from ours.csv: `make tables NAME=alignment`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import Row, read

HERE = Path(__file__).parent
CORES = {"one_core": "one", "all_cores": "two"}
TARGET = 1_000_000


def rows() -> list[Row]:
    return read(HERE / "ours.csv")


def ours() -> str:
    """Processor time by ids, and the largest measured one stretched to a million: every id takes the same work."""
    measured = [row for row in rows() if row["what"] in CORES]
    lines = [
        (
            f"{int(row['ids']):,} + {int(row['ids']):,}",
            CORES[row["what"]],
            short(row["cpu_s"]),
            short(float(row["cpu_s"]) / 2),
            short(row["peak_mb"]),
        )
        for row in measured
    ]
    largest = max(measured, key=lambda row: int(row["ids"]))
    cpu = float(largest["cpu_s"]) * TARGET / int(largest["ids"])
    lines.append((f"{TARGET:,} + {TARGET:,}, extrapolated", "two", short(cpu), short(cpu / 2), ""))
    return table(("ids", "threads", "processor time, s", "half of it, s", "peak, MB"), lines, "llr")


def libraries() -> str:
    return table(
        ("library", "an exponentiation, µs", "lets other threads work"),
        [
            (row["what"], short(row["cpu_us"]), "yes" if row["lets_go"] == "True" else "no")
            for row in rows()
            if row["what"] not in CORES
        ],
        "lrl",
    )


TABLES = {"ours": ours, "libraries": libraries}

"""The tables of README.md, from ours.csv: `make tables NAME=scale`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import Row, read

HERE = Path(__file__).parent


def rows(what: str) -> list[Row]:
    return [row for row in read(HERE / "ours.csv") if row["what"] == what]


def reading(row: Row) -> float:
    """Seconds that grow with the rows."""
    return float(row["open_s"]) + float(row["count_s"])


def ours() -> str:
    """Seconds and memory, and what a row takes."""
    return table(
        (
            "rows",
            "from",
            "machine",
            "opened, s",
            "counted, s",
            "µs a row",
            "fitted, s",
            "by the clock, s",
            "peak, MB",
        ),
        [
            (
                f"{int(row['rows']):,}",
                row["source"],
                row["machine"],
                *(short(row[key]) for key in ("open_s", "count_s")),
                f"{reading(row) / int(row['rows']) * 1e6:.0f}",
                *(short(row[key]) for key in ("fit_s", "wall_s")),
                f"{int(row['peak_mb']):,}",
            )
            for row in rows("gram")
        ],
        "rllr",
    )


def pairs() -> str:
    return table(
        ("190 tables of pairs", "rows", "s"),
        [
            ({"here": "in batches, here", "sql": "by DuckDB, one question"}[row["source"]],
             f"{int(row['rows']):,}", short(row["count_s"]))
            for row in rows("pairs")
        ],
        "lr",
    )  # fmt: skip


def growth() -> str:
    """What ten times the rows take, from the second largest to the largest: seconds, and MB more."""
    small, large = sorted(
        (row for row in rows("gram") if row["source"] == "parquet"), key=lambda row: int(row["rows"])
    )[-2:]
    more = int(large["peak_mb"]) - int(small["peak_mb"])
    return f"{reading(large) / reading(small):.1f} times the seconds and {more} MB more"


TABLES = {"ours": ours, "pairs": pairs, "growth": growth}

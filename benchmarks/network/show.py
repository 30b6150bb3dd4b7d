"""The table of README.md, from ours.csv: `make tables NAME=network`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import Row, read

HERE = Path(__file__).parent
Case = tuple[str, str]  # parties and payload


def cases() -> dict[Case, dict[str, Row]]:
    """The rows of each case, by where the journal lies."""
    found: dict[Case, dict[str, Row]] = {}
    for row in read(HERE / "ours.csv"):
        found.setdefault((row["parties"], row["payload_mb"]), {})[row["journal"]] = row
    return found


def ratio(row: Row) -> str:
    return f"{float(row['ask_ms']) / float(row['raw_grpc_ms']):.1f}"


def ours() -> str:
    return table(
        (
            "parties",
            "payload MB",
            "raw ms",
            "ask ms, journal on disk",
            "in memory",
            "disk / raw",
            "memory / raw",
            "Flower ms",
        ),
        [
            (
                parties,
                f"{float(payload):g}",
                *(short(at[0][name]) for name in ("raw_grpc_ms", "ask_ms")),
                short(at[1]["ask_ms"]),
                ratio(at[0]),
                ratio(at[1]),
                short(at[0]["flower_ms"]),
            )
            for (parties, payload), rows in cases().items()
            for at in [(rows["disk"], rows["memory"])]
        ],
    )


def times(journal: str) -> str:
    """An empty ask and one of 10 MB beside the bare echo, two parties."""
    return " and ".join(ratio(cases()["2", payload][journal]) for payload in ("0.0", "10.0"))


def wide() -> str:
    """A whole run over a wide-area line."""
    return table(
        (
            "line",
            "people",
            "columns",
            "alignment, s",
            "then",
            "of it asks, s",
            "asks",
            "hub alone, s",
            "MB up / down",
        ),
        [
            (
                f"{float(row['line_ms']):g} ms, {float(row['mbit_s']):g} Mbit/s"
                if row["mbit_s"]
                else "loopback",
                f"{int(row['people']):,}",
                row["columns"],
                short(row["alignment_s"]),
                f"{short(row['after_s'])} s",
                short(row["asks_s"]),
                row["round_trips"],
                short(row["fit_s"]),
                f"{short(row['up_mb'])} / {short(row['down_mb'])}",
            )
            for row in read(HERE / "wide_area.csv")
        ],
    )


TABLES = {"wide": wide, "ours": ours, "memory": lambda: times("memory"), "disk": lambda: times("disk")}

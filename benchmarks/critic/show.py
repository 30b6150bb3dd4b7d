"""The tables of README.md, from machines.csv and ours.csv: `make tables NAME=critic`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import Row, read

HERE = Path(__file__).parent


def steps(rows: list[Row]) -> str:
    """A line for each width: times, ratios, and memory where it was measured."""
    held = [f"{name}_mb" for name in ("plain", "private", "vmap") if rows[0][f"{name}_mb"]]
    heads = ("width → hidden", "plain ms", "private ms", "vmap ms", "private / plain", "vmap / private")
    return table(
        (*heads, *(name.replace("_mb", " MB") for name in held)),
        [
            (
                f"{row['width']} → {row['hidden']}",
                *(short(row[f"{name}_ms"]) or "–" for name in ("plain", "private", "vmap")),
                ratio(row, "private", "plain"),
                ratio(row, "vmap", "private"),
                *(short(row[name]) or "–" for name in held),
            )
            for row in rows
        ],
    )


def ratio(row: Row, above: str, below: str) -> str:
    if not row[f"{above}_ms"]:
        return "–"
    value = float(row[f"{above}_ms"]) / float(row[f"{below}_ms"])
    return f"{value:.2f}" if value < 5 else f"{value:.1f}"


def machine(name: str) -> list[Row]:
    return [row for row in read(HERE / "machines.csv") if name in row["machine"]]


def gain(name: str, width: int) -> str:
    """How many times slower per-person gradients are."""
    row = next(row for row in machine(name) if row["width"] == str(width))
    return ratio(row, "vmap", "private")


TABLES = {
    "cpu": lambda: steps(machine("Neoverse")),
    "wall": lambda: steps(read(HERE / "ours.csv")),
    "xeon": lambda: steps(machine("Xeon")),
    "gains": lambda: f"{gain('Neoverse', 137)} and {gain('Neoverse', 562)} times",
    "gain on the Xeon": lambda: f"{gain('Xeon', 562)} times",
}

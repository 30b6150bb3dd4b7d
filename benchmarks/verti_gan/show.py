"""The table of README.md, from ours.csv: `make tables NAME=verti_gan`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import Row, read

HERE = Path(__file__).parent
NAMES = {"census": "Census", "har": "HAR", "dilbert": "Dilbert"}


def found(dataset: str, device: str, start: str = "") -> Row:
    rows = read(HERE / "ours.csv")
    return next(
        row for row in rows if (row["dataset"], row["device"], row["start"]) == (dataset, device, start)
    )


def ours() -> str:
    return table(
        (
            "widths",
            "H200, warm, s",
            "in a new process, s",
            "two ARM cores, s",
            "the paper, RTX 6000, s (Table 3)",
            "paper / H200",
            "MB up and down, each party",
        ),
        [
            (
                f"{name} {gpu['width_1']} + {gpu['width_2']}",
                short(gpu["seconds_1500"]),
                f"{short(first['seconds_1500'])}{' (no kernels compiled yet)' * (first['start'] == 'cold')}",
                short(cpu["seconds_1500"]),
                short(gpu["paper_seconds"]),
                short(gpu["ratio"]),
                short(gpu["up_mb"]),
            )
            for dataset, name in NAMES.items()
            for gpu, cpu in [(found(dataset, "cuda", "warm"), found(dataset, "cpu"))]
            for first in [found(dataset, "cuda", "cold" if dataset == "census" else "fresh")]
        ],
    )


TABLES = {"ours": ours}

"""The table of README.md, from ours.csv: `make tables NAME=secure_product`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import read

HERE = Path(__file__).parent
RINGS = {"32": "2³²", "64": "2⁶⁴"}
COLUMNS = {
    "dealer, s": "dealer_s", "first holder, s": "first_s", "second holder, s": "second_s", "together, s": "seconds",
    "sealing, s": "seal_s", "sent each way, MB": "sent_mb_each_way", "peak, MB": "peak_mb",
}  # fmt: skip


def ours() -> str:
    return table(
        ("people", "ring", *COLUMNS),
        [
            (f"{int(row['people']):,}", RINGS[row["bits"]], *(short(row[name]) for name in COLUMNS.values()))
            for row in read(HERE / "ours.csv")
        ],
        "rlr",
    )


TABLES = {"ours": ours}

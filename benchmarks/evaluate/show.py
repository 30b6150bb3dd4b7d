"""The tables of README.md, from ours.csv: `make tables NAME=evaluate`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import read

HERE = Path(__file__).parent
FIGURES = {
    "avd4": "4-way AVD over 100 sets, real against synthetic alone",
    "avd4_ends": "the same sets with sampling floor and independent-columns ceiling",
    "all": "all: 1- to 4-way AVD and CMD, each over all columns, within and across two parties; "
    "five downstream models, each trained on 20,000 real and on 20,000 synthetic rows",
}


def ours() -> str:
    rows = read(HERE / "ours.csv")
    lines = table(
        ("figure", "wall s", "processor s", "pandas s", "pandas / ours"),
        [
            (
                FIGURES[row["figure"]],
                *(short(row[name]) for name in ("seconds", "cpu_seconds", "pandas_seconds", "ratio")),
            )
            for row in rows
        ],
    )
    return f"{lines}\n\nPeak memory {short(rows[-1]['peak_mb'])} MB, the imports (400 MB) included."


TABLES = {"ours": ours}

"""The tables of README.md, from ours.csv: `make tables NAME=answers`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import read

HERE = Path(__file__).parent
QUESTIONS = {
    "sample": "100,000 rows that meet a condition on three columns, one of them cut",
    "either": "100,000 rows that meet a disjunction over five columns",
    "weights": "100,000 rows, two columns of other shares",
    "table": "the joint table of three columns (17 × 16 × 42)",
    "table_where": "the same under that disjunction",
    "bars": "the table of two columns with error bars (17 × 16), and its figures",
    "ruled": "100,000 rows that keep two rules",
    "complete": "10,000 rows with a third of their cells missing, completed",
    "predict": "the label of 10,000 rows, predicted from the 14 other columns",
    "rejection": "10,000 rows that meet a condition, by rejection from a GAN's generator (64 → 256 → 256 → 536)",
}


def ours() -> str:
    return table(
        ("question", "wall s", "processor s"),
        [
            (QUESTIONS[row["question"]], short(row["seconds"]), short(row["cpu_seconds"]))
            for row in read(HERE / "ours.csv")
        ],
    )


TABLES = {"ours": ours}

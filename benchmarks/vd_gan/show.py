"""The tables of README.md, from ours.csv: `make tables NAME=vd_gan`."""

from pathlib import Path

from common.markdown import short, table
from common.rows import Row, read

HERE = Path(__file__).parent
PARTS = {
    "training": "the teachers' training", "slopes": "their gradients at the synthetic rows",
    "votes": "top-K, signs and the tally", "noise": "the noise",
}  # fmt: skip


def ours() -> str:
    rows = read(HERE / "ours.csv")
    lines = table(
        ("party", "people", "synthetic rows a round", "ms a round", "times DPSGD"),
        [
            (
                party(row),
                "100,000",
                f"{int(row['rows']):,}",
                short(row["round_ms"]),
                f"{float(row['ratio']):g}",
            )
            for row in rows
        ],
    )
    words = rows[-1]["share"].replace("%", " %").split()
    shares = dict(zip(words[::3], words[1::3], strict=True))
    where = ", ".join(f"{shares[name]} % is {words}" for name, words in PARTS.items())
    return f"{lines}\n\nOf a PATE round with {int(rows[-1]['teachers']):,} teachers {where}."


def party(row: Row) -> str:
    if not row["teachers"]:
        return "DPSGD: 10 critic steps of 1,000 people"
    return f"PATE: {int(row['teachers']):,} teachers, 5 steps of 10 people each"


def per_person() -> str:
    """2,000 teachers see ten times as many people in a round as the one critic."""
    return f"{float(read(HERE / 'ours.csv')[-1]['ratio']) / 10:.1f} times"


TABLES = {"ours": ours, "per person": per_person}

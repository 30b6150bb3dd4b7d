"""The table of README.md, from ours.csv: `make tables NAME=attacks`."""

from pathlib import Path

from common.figures import frame, where
from common.markdown import table

HERE = Path(__file__).parent
OURS = HERE / "ours.csv"


def alarms() -> str:
    """Pages that raise an alarm, by case and by how many rows are copied."""
    rows = frame(OURS)
    shares = sorted(rows.copied.unique())
    found = {(row.case, row.copied): f"{row.alarms} of {row.pages}" for row in rows.itertuples()}
    lines = [[case, *(found.get((case, share), "–") for share in shares)] for case in rows.case.unique()]
    lines.append(["**all pages where nothing can leak**", f"**{quiet()}**", *([""] * (len(shares) - 1))])
    heads = ("nothing can leak" if not share else f"{100 * share:g} % copied" for share in shares)
    return table(("case", *heads), lines, "lr")


def quiet() -> str:
    """Alarms on pages where nothing can leak."""
    rows = where(OURS, copied=0.0)
    return f"{rows.alarms.sum()} of {rows.pages.sum()}"


TABLES = {"alarms": alarms, "all": quiet}

"""The tables on which rivals are met, all opened alike: `opened(name, folder, seed)`.

Ten public tables of benchmarks/joint, two of them cut to few people ("credit@1000"),
and the tables of known laws of `stress.py`, which may be cut as well. A table has rows
to learn from, rows held out, a public schema (whose bins and levels are the domain that
rivals get), the column to predict and, where a law is known, which rows are impossible.
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.append(str(Path(__file__).parents[1] / "joint"))

import stress
import tables

from common.public_tables import Public

MOST = 100_000  # people, of Census
PEOPLE = (500, 1000, 2000, 4000)
CUTS = tuple(
    f"{name}@{people}"
    for people in PEOPLE
    for name in ("randhie", "credit", "adult", "bank")
)
NAMES = (*CUTS, *stress.NAMES, *tables.NAMES)


def opened(dataset: str, folder: Path, seed: int) -> Public:
    """The table of that name, or its first people: "credit@2000"."""
    name, _, most = dataset.partition("@")
    if name in stress.NAMES:
        return stress.load(
            name, folder, seed, **({"people": int(most)} if most else {})
        )
    return tables.load(name, folder, seed).first(int(most or MOST))


def impossible_share(table: Public, made: pd.DataFrame) -> float | None:
    """The share of rows that the table's law forbids; None where no law is known, or it
    forbids nothing.
    """
    broken = getattr(table, "impossible", None)
    return None if broken is None else float(broken(made).mean())

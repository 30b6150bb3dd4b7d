"""Forty tables as a stranger brings them: what `pandas.read_csv` gives, nothing
declared, nothing cleaned.

Public ones are read as they lie there, ids, dates and missing cells included. Generated
ones have known laws, are written as CSV and read again; twenty of them are in
`further_tables.py`. `CHOSEN` marks, before anything was run, the half by which rules
may be chosen; the others are reported apart.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from further_tables import FURTHER, MAY_CHOOSE, TEXTS
from law import Law

from common.sources import need

HELD_OUT = 5  # one in so many rows is for tests alone
# the file, the column to predict, and above what it counts as 1 where it is a number of
# many values
PUBLIC = {
    "breast": ("breast_cancer_wisconsin.csv.gz", "class", 3),
    "titanic": ("titanic.csv.gz", "survived", None),
    "wine": ("wine_quality.csv.gz", "quality", 5.5),
    "mushroom": ("mushroom.csv.gz", "class", None),
    "air": ("air_quality_uci.csv.gz", "C6H6_GT", 8),
    "energy": ("timegan_energy.csv.gz", "Appliances", 60),
    "randhie": ("randhie.csv.gz", "binexp", None),
    "credit": ("credit_default.csv.gz", "default.payment.next.month", None),
    "bank": ("bank_full.csv.gz", "deposit", None),
    "adult": ("adult.csv.gz", "income", None),
    "diabetes130": ("diabetes130.csv.gz", "readmitted", None),
}
CHOSEN = (
    "titanic",
    "wine",
    "energy",
    "credit",
    "adult",
    "clinic",
    "codes",
    "calls",
    "forms",
    "odd",
    *MAY_CHOOSE,
)


@dataclass(frozen=True, eq=False)
class Stranger:
    """Rows to learn from, rows held out, and what is to be predicted: a column, or that
    it is above a number.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    above: float | None = None
    texts: tuple[str, ...] = ()  # columns that are text whatever they hold

    @property
    def people(self) -> int:
        return len(self.train)


def clinic(law: Law) -> pd.DataFrame:
    """Half zeros and a long tail, as insulin; blood pressure with zeros for gaps; an
    age from 21 on.
    """
    return pd.DataFrame(
        {
            "pregnancies": np.floor(law.skewed(3, 0.8, 0.15)).clip(0, 17).astype(int),
            "glucose": np.rint(80 + 110 * law.rank()).astype(int),
            "pressure": np.where(
                law.rng.random(law.people) < 0.05, 0, np.rint(50 + 45 * law.rank())
            ).astype(int),
            "insulin": np.rint(law.skewed(125, 0.75, 0.5)).clip(0, 846).astype(int),
            "mass": np.round(20 + 25 * law.rank(), 1),
            "pedigree": np.round(law.skewed(0.37, 0.6), 3),
            "age": np.floor(21 + law.skewed(8, 0.9)).clip(21, 81).astype(int),
            "outcome": law.outcome(0, 1),
        }
    )


def codes(law: Law) -> pd.DataFrame:
    """Whole numbers of few values: 0 to 7, 1 to 5 in halves of a law, years of school;
    and a rate.
    """
    return pd.DataFrame(
        {
            "kind": np.minimum(np.floor(8 * law.rank() ** 1.6), 7).astype(int),
            "satisfied": 1 + np.minimum(np.floor(5 * law.rank() ** 0.5), 4).astype(int),
            "school": np.array([9, 12, 14, 16, 17, 20])[
                np.minimum(np.floor(6 * law.rank()), 5).astype(int)
            ],
            "affairs": np.where(
                law.rank() < 0.7, 0.0, np.round(law.skewed(1.2, 1.0), 7)
            ),
            "share": np.round(law.rank() ** 3, 3),
            "left": law.outcome("N", "Y"),
        }
    )


def costs(law: Law) -> pd.DataFrame:
    """Five-figure costs with cents, some of them 0; stays in days; a ward."""
    return pd.DataFrame(
        {
            "cost": np.round(law.skewed(14_000, 0.9, 0.04), 2),
            "paid": np.rint(law.skewed(9_000, 1.3, 0.2)).astype(int),
            "stay": np.floor(law.skewed(3, 0.9)).astype(int),
            "age": np.floor(18 + 78 * law.rank()).astype(int),
            "ward": law.word([f"ward {i}" for i in range(1, 13)]),
            "died": law.outcome("no", "yes"),
        }
    )


def calls(law: Law) -> pd.DataFrame:
    """Seconds of calls; eleven-valued reals; a rate; texts of few words; yes or no."""
    rates = np.array([-3.4, -2.9, -1.8, -1.7, -1.1, -0.2, 0.1, 1.1, 1.4, 2.5, 4.021])
    return pd.DataFrame(
        {
            "age": np.floor(18 + 60 * law.rank() ** 1.4).astype(int),
            "seconds": np.rint(law.skewed(180, 0.85)).astype(int),
            "euribor": rates[np.minimum(np.floor(11 * law.rank()), 10).astype(int)],
            "open_rate": np.round(law.rank() ** 2, 4),
            "days_since": np.where(
                law.rank() < 0.96, 999, np.rint(law.skewed(6, 0.5))
            ).astype(int),
            "job": law.word(
                ["services", "admin.", "technician", "retired", "student", "unknown"]
            ),
            "loan": law.outcome("no", "yes"),
            "bought": law.outcome("no", "yes"),
        }
    )


def traffic(law: Law) -> pd.DataFrame:
    """Bytes over eight decades; durations with many zeros; rates in [0, 1]; 67
    services.
    """
    return pd.DataFrame(
        {
            "sent": np.rint(law.skewed(300, 2.2, 0.15)).clip(0, 1.4e9).astype(int),
            "received": np.rint(law.skewed(900, 2.6, 0.3)).clip(0, 1.4e9).astype(int),
            "duration": np.rint(law.skewed(40, 2.0, 0.85)).astype(int),
            "errors": np.where(law.rank() < 0.75, 0.0, np.round(law.rank(), 2)),
            "same_service": np.round(np.minimum(1.0, 1.6 * law.rank()), 2),
            "service": law.word([f"service_{i:02d}" for i in range(67)], 1.1),
            "protocol": law.word(["tcp", "udp", "icmp"]),
            "attack": law.outcome("normal", "attack"),
        }
    )


def forms(law: Law) -> pd.DataFrame:
    """Every way to write yes and no, a decimal, a day and a time; gaps in some."""
    day = pd.Timestamp("2019-01-01") + pd.to_timedelta(
        np.floor(900 * law.rank()), unit="D"
    )
    minute = pd.Timestamp("2021-05-01 06:00") + pd.to_timedelta(
        np.floor(20_000 * law.rank()), unit="min"
    )
    gap = law.rng.random(law.people) < 0.1
    return pd.DataFrame(
        {
            "smoker": law.outcome("no", "yes"),
            "consent": law.outcome("N", "Y"),
            "flag": law.outcome(0, 1),
            "truth": law.outcome(False, True).astype(bool),
            "temperature": np.round(36 + 3 * law.rank() ** 3, 1),
            "weight": np.where(gap, np.nan, np.round(45 + 70 * law.rank(), 1)),
            "visits": np.where(gap, np.nan, np.floor(law.skewed(4, 0.7))),
            "day": day.strftime("%Y-%m-%d"),
            "german_day": day.strftime("%d.%m.%Y"),
            "moment": minute.strftime("%Y-%m-%d %H:%M"),
            "ill": law.outcome("No", "Yes"),
        }
    )


def odd(law: Law) -> pd.DataFrame:
    """All missing, free text, the same number and the same word in two columns, one
    value only, 67 texts.
    """
    pay = np.rint(law.skewed(2_400, 0.6)).astype(int)
    town = law.word([f"town {i}" for i in range(67)])
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    notes = ["".join(row) for row in letters[law.rng.integers(0, 26, (law.people, 14))]]
    return pd.DataFrame(
        {
            "nothing": np.full(law.people, np.nan),
            "note": notes,
            "pay": pay,
            "pay_again": pay,
            "town": town,
            "town_again": town,
            "country": "NL",
            "version": 3,
            "number": np.arange(law.people),
            "rare": np.where(law.rng.random(law.people) < 0.003, "seen", None),
            "left": law.outcome("no", "yes"),
        }
    )


def survey(law: Law) -> pd.DataFrame:
    """Few people: 67 texts, a probability, five-valued answers, an income with gaps."""
    gap = law.rng.random(law.people) < 0.2
    return pd.DataFrame(
        {
            "county": law.word([f"county {i}" for i in range(67)], 0.8),
            "probability": np.round(law.rank(), 2),
            "answer": law.word(
                ["agree", "disagree", "neither", "strongly agree", "strongly disagree"],
                0.5,
            ),
            "income": np.where(
                gap, np.nan, np.rint(law.skewed(31_000, 0.7) / 100) * 100
            ),
            "children": np.floor(law.skewed(1.4, 0.6, 0.4)).astype(int),
            "commute": np.round(law.skewed(24, 0.7), 1),
            "votes": law.outcome("no", "yes"),
        }
    )


GENERATED: dict[str, tuple[Callable[[Law], pd.DataFrame], int, str]] = {
    "clinic": (clinic, 768, "outcome"),
    "clinic_5000": (clinic, 5_000, "outcome"),
    "survey": (survey, 2_500, "votes"),
    "codes": (codes, 3_464, "left"),
    "forms": (forms, 6_000, "ill"),
    "costs": (costs, 8_933, "died"),
    "odd": (odd, 12_000, "left"),
    "calls": (calls, 41_188, "bought"),
    "traffic": (traffic, 47_736, "attack"),
}
NAMES = (*PUBLIC, *GENERATED, *FURTHER)


@lru_cache(maxsize=1)
def load(name: str, folder: Path) -> Stranger:
    """The table of that name. A fifth of its rows is held out, by lot: generated ones
    have so many more.
    """
    above: float | None = None
    if name in PUBLIC:
        file, target, above = PUBLIC[name]
        (path,) = need(folder, file)
        frame = pd.read_csv(path, low_memory=False)
    else:
        make, people, target = (GENERATED | FURTHER)[name]
        law = Law(people * HELD_OUT // (HELD_OUT - 1), NAMES.index(name))
        frame = written_and_read(pd.DataFrame(make(law)), TEXTS.get(name, ()))
    order = np.random.default_rng(0).permutation(len(frame))
    cut = len(frame) // HELD_OUT
    test, train = (
        frame.iloc[part].reset_index(drop=True) for part in (order[:cut], order[cut:])
    )
    return Stranger(train, test, target, above, TEXTS.get(name, ()))


def written_and_read(frame: pd.DataFrame, texts: Sequence[str]) -> pd.DataFrame:
    """What a stranger gets who reads the CSV file of these rows and asks for text where
    numbers stand for it.
    """
    text = frame.to_csv(index=False)
    return pd.read_csv(
        io.StringIO(text), dtype=dict.fromkeys(texts, object), low_memory=False
    )

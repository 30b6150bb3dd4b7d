"""The tables of the joint benchmark: those of benchmarks/vertical, and four more.

A person has one row: of patients with several stays the first, of people with several
years the first. Bins are round numbers.
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from common import public_tables
from common.public_tables import Public, column
from common.sources import need
from understudy.data.schema import Ordinal, Schema

BINS: dict[str, dict[str, tuple[float, ...]]] = {
    "bank": {
        "age": (18, 25, 30, 35, 40, 45, 50, 55, 60, 70, 100),
        "balance": (
            -10_000,
            -500,
            0,
            1,
            250,
            500,
            1_000,
            2_000,
            5_000,
            10_000,
            110_000,
        ),
        "duration": (0, 60, 120, 180, 240, 360, 600, 1_000, 5_000),
        "campaign": (1, 2, 3, 4, 6, 10, 70),
        "pdays": (-1, 0, 90, 180, 360, 900),
        "previous": (0, 1, 2, 3, 5, 300),
    },
    "diabetes": {
        "num_lab_procedures": (1, 10, 20, 30, 40, 50, 60, 70, 80, 140),
        "num_medications": (1, 5, 10, 15, 20, 25, 30, 40, 90),
        "number_outpatient": (0, 1, 2, 3, 5, 50),
        "number_emergency": (0, 1, 2, 3, 5, 80),
        "number_inpatient": (0, 1, 2, 3, 5, 25),
    },
    "randhie": {
        "income": (0, 2_500, 5_000, 7_500, 10_000, 15_000, 20_000, 50_000),
        "xage": (0, 5, 12, 18, 25, 35, 45, 55, 70),
        "outpdol": (0, 1, 25, 50, 100, 250, 500, 20_000),
        "drugdol": (0, 1, 10, 25, 50, 100, 250, 20_000),
        "suppdol": (0, 1, 25, 100, 20_000),
        "mentdol": (0, 1, 100, 20_000),
        "inpdol": (0, 1, 500, 2_000, 100_000),
        "mdvis": (0, 1, 2, 3, 5, 10, 100),
        "notmdvis": (0, 1, 2, 5, 200),
        "mhi": (0, 60, 70, 80, 90, 101),
        "disea": (0, 5, 10, 15, 20, 60),
    },
}
DIABETES = (
    "race",
    "gender",
    "age",
    "admission_type_id",
    "discharge_disposition_id",
    "admission_source_id",
    "time_in_hospital",
    "num_lab_procedures",
    "num_procedures",
    "num_medications",
    "number_outpatient",
    "number_emergency",
    "number_inpatient",
    "number_diagnoses",
    "max_glu_serum",
    "A1Cresult",
    "metformin",
    "glimepiride",
    "glipizide",
    "glyburide",
    "pioglitazone",
    "rosiglitazone",
    "insulin",
    "change",
    "diabetesMed",
    "readmitted",
)
RANDHIE = (
    "site",
    "coins",
    "tookphys",
    "female",
    "child",
    "income",
    "xage",
    "outpdol",
    "drugdol",
    "suppdol",
    "mentdol",
    "inpdol",
    "totadm",
    "mdvis",
    "notmdvis",
    "num",
    "mhi",
    "disea",
    "physlm",
    "idp",
    "hlthg",
    "hlthf",
    "hlthp",
    "binexp",
)
FILES = {
    "adult_pgm": ("adult_pgm.csv.gz", "adult_pgm_domain.json"),
    "bank": ("bank_full.csv.gz",),
    "diabetes": ("diabetes130.csv.gz",),
    "randhie": ("randhie.csv.gz",),
}
NAMES = (
    "adult_pgm",
    "adult",
    "bank",
    "credit",
    "census",
    "diabetes",
    "randhie",
    "a9a",
    "w8a-124",
    "har",
)
CUTS = tuple(
    f"{name}@{people}"
    for name in ("randhie", "credit")
    for people in (4000, 2000, 1000)
)


@lru_cache(maxsize=16)
def load(name: str, folder: Path, seed: int = 0) -> Public:
    """The table of that name, its rows in an order that the seed gives; a fifth is held
    out.
    """
    if name not in FILES:
        return public_tables.load(name, folder, seed)
    path, *domain = need(folder, *FILES[name])
    frame, target = READERS[name](path)
    if name == "adult_pgm":  # codes, with the sizes of its published domain
        sizes = json.loads(domain[0].read_text())
        columns = tuple(
            Ordinal(name=c, categories=tuple(range(sizes[c]))) for c in frame.columns
        )
    else:
        columns = tuple(column(frame[c], BINS[name].get(c)) for c in frame.columns)
    order = np.random.default_rng([seed, 7]).permutation(len(frame))
    cut = len(frame) // 5
    test, train = (
        frame.iloc[part].reset_index(drop=True) for part in (order[:cut], order[cut:])
    )
    return Public(train, test, Schema(columns=columns), target)


def _adult_pgm(path: Path) -> tuple[pd.DataFrame, str]:
    return pd.read_csv(path), "income>50K"


def _bank(path: Path) -> tuple[pd.DataFrame, str]:
    return pd.read_csv(path, keep_default_na=False), "deposit"


def _diabetes(path: Path) -> tuple[pd.DataFrame, str]:
    """26 of 50 columns: without ids, codes of diagnoses and payers, and drugs that
    nearly nobody takes.
    """
    frame = pd.read_csv(path, keep_default_na=False, low_memory=False).drop_duplicates(
        "patient_nbr"
    )
    return frame[list(DIABETES)], "readmitted"


def _randhie(path: Path) -> tuple[pd.DataFrame, str]:
    """24 of 45 columns: without logarithms and recodes of others. Numbers without bins
    are taken as levels.
    """
    frame = pd.read_csv(path, low_memory=False).drop_duplicates("zper")[list(RANDHIE)]
    return frame.assign(
        physlm=frame["physlm"] > 0, binexp=frame["binexp"] > 0
    ), "binexp"


READERS = {
    "adult_pgm": _adult_pgm,
    "bank": _bank,
    "diabetes": _diabetes,
    "randhie": _randhie,
}

"""The tables of the numbers benchmark: rows, the schema that `schema infer` drafts of
them, and bins made by hand.

The draft's bounds are those of the published file, rounded outwards; widened by k, they
are k times as far from zero, and a lower bound above zero is k times as near. Bins by
hand are round numbers that someone who knows the column would write down.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from laws import drawn

from common.public_tables import BINS as KNOWN
from common.sources import need
from understudy.data.column import Column, Integer, Real
from understudy.data.infer import infer_schema
from understudy.data.schema import Schema

Edges = dict[str, tuple[float, ...]]

HAND: dict[str, Edges] = {
    "adult": KNOWN["adult"]
    | {
        "fnlwgt": (
            0,
            50_000,
            100_000,
            150_000,
            200_000,
            250_000,
            300_000,
            400_000,
            600_000,
            2_000_000,
        )
    },
    "bank_full": {
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
            200_000,
        ),
        "duration": (0, 60, 120, 180, 240, 360, 600, 1_000, 5_000),
        "campaign": (1, 2, 3, 4, 6, 10, 70),
        "pdays": (-1, 0, 90, 180, 360, 900),
        "previous": (0, 1, 2, 3, 5, 300),
    },
    "credit_default": KNOWN["credit"],
    "diabetes130": {
        "num_lab_procedures": (1, 10, 20, 30, 40, 50, 60, 70, 80, 140),
        "num_medications": (1, 5, 10, 15, 20, 25, 30, 40, 90),
        "number_outpatient": (0, 1, 2, 3, 5, 50),
        "number_emergency": (0, 1, 2, 3, 5, 80),
        "number_inpatient": (0, 1, 2, 3, 5, 25),
        "number_diagnoses": (1, 3, 4, 5, 6, 7, 8, 9, 10, 17),
        "discharge_disposition_id": (1, 2, 3, 4, 5, 6, 7, 11, 18, 19, 29),
        "admission_source_id": (1, 2, 3, 4, 5, 6, 7, 8, 26),
    },
    "wine_quality": {
        "fixed acidity": (3, 5, 6, 6.5, 7, 7.5, 8, 9, 10, 12, 16),
        "volatile acidity": (0, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.6),
        "citric acid": (0, 0.01, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.7),
        "residual sugar": (0, 1, 1.5, 2, 2.5, 4, 6, 8, 12, 16, 70),
        "chlorides": (0, 0.03, 0.035, 0.04, 0.045, 0.05, 0.06, 0.08, 0.1, 0.2, 0.7),
        "free sulfur dioxide": (0, 5, 10, 15, 20, 25, 30, 40, 50, 70, 300),
        "total sulfur dioxide": (0, 20, 40, 80, 100, 120, 140, 160, 180, 220, 450),
        "density": (
            0.98,
            0.99,
            0.991,
            0.992,
            0.994,
            0.995,
            0.996,
            0.997,
            0.998,
            1,
            1.04,
        ),
        "pH": (2.7, 2.9, 3, 3.1, 3.15, 3.2, 3.25, 3.3, 3.4, 3.5, 4.1),
        "sulphates": (0.2, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.75, 1, 2),
        "alcohol": (8, 9, 9.5, 10, 10.5, 11, 11.5, 12, 12.5, 13, 15),
    },
    "laws": {
        "pareto": (
            500,
            550,
            600,
            700,
            850,
            1_000,
            1_500,
            2_500,
            5_000,
            10_000,
            1_000_000,
        ),
        "heaped": (18, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61, 70, 71, 80, 91),
        "log_normal": (0, 5, 10, 15, 20, 30, 40, 60, 100, 200, 5_000),
        "zero_inflated": (0, 1, 50, 100, 200, 300, 450, 600, 1_000, 5_000),
        "bimodal": (-25, -12, -10, -8, -6, -4, 15, 17, 19, 21, 23, 25, 27, 40),
    },
}
# the rules were chosen on these, and on two of the laws
SHAPED = ("adult", "wine_quality", "credit_default")
SHAPED_LAWS = ("pareto", "heaped")
NAMES = (*SHAPED, "laws", "bank_full", "diabetes130")
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
    "metformin",
    "insulin",
    "change",
    "diabetesMed",
    "readmitted",
)
TARGETS = {
    "adult": "income",
    "bank_full": "deposit",
    "credit_default": "default.payment.next.month",
    "diabetes130": "readmitted",
    "wine_quality": "good",
    "laws": "class",
}


@dataclass(frozen=True, eq=False)
class Known:
    """People to learn from, rows to test on, the draft of a schema, and the same
    columns with bins by hand.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    draft: Schema
    hand: Schema
    target: str

    def first(self, people: int) -> "Known":
        """The same with so many people to learn from, at most."""
        return replace(self, train=self.train.iloc[:people].reset_index(drop=True))


@lru_cache(maxsize=2)
def load(name: str, folder: Path, seed: int = 0) -> Known:
    """The table of that name, its rows in an order that the seed gives; a fifth is held
    out.
    """
    frame = _read(name, folder)
    draft = replace(infer_schema(frame), origin="public", note="", rows_are_people=True)
    columns = (
        _by_hand(column, HAND[name].get(column.name)) for column in draft.columns
    )
    order = np.random.default_rng([seed, 7]).permutation(len(frame))
    cut = len(frame) // 5
    test, train = (
        frame.iloc[part][list(draft.names)].reset_index(drop=True)
        for part in (order[:cut], order[cut:])
    )
    return Known(
        train, test, draft, replace(draft, columns=tuple(columns)), TARGETS[name]
    )


def widened(schema: Schema, by: int) -> Schema:
    """All numbers' bounds wider by so much."""
    return replace(
        schema, columns=tuple(_wider(column, by) for column in schema.columns)
    )


def _wider(column: Column, by: int) -> Column:
    if by == 1 or not isinstance(column, Integer | Real):
        return column
    low = column.low * by if column.low < 0 else column.low / by
    high = column.high * by
    return replace(
        column,
        low=int(low) if isinstance(column, Integer) else low,
        high=type(column.high)(high),
        bins=None,
    )


def _by_hand(column: Column, bins: tuple[float, ...] | None) -> Column:
    if bins is None:
        return column
    if isinstance(column, Integer):
        return replace(
            column, low=int(bins[0]), high=int(bins[-1]), bins=tuple(map(int, bins))
        )
    assert isinstance(column, Real)
    return replace(column, low=bins[0], high=bins[-1], bins=bins)


def _read(name: str, folder: Path) -> pd.DataFrame:
    if name == "laws":
        return drawn(25_000)
    (path,) = need(folder, f"{name}.csv.gz")
    frame = pd.read_csv(path, keep_default_na=False, low_memory=False)
    if name == "diabetes130":  # a person has one row: the first stay
        return frame.drop_duplicates("patient_nbr")[list(DIABETES)]
    if name == "wine_quality":
        return frame.assign(good=frame["quality"] >= 6).drop(columns="quality")
    return frame.drop(columns="ID", errors="ignore")

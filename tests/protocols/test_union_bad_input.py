"""A union of tables that people bring: what cannot be aligned is refused at its holder
before anything is charged, and what can be is a run like any other.
"""

from collections.abc import Callable

import pandas as pd
import pytest
from gram_cases import FRAME, SMALL, by_columns

from understudy.api.train import train
from understudy.data.schema import Schema
from understudy.ground.errors import UnderstudyError
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

BUDGET = Budget(epsilon=100, delta=1e-2)  # so that few people are made up
Tables = dict[str, pd.DataFrame]
FIRST, SECOND = "holder 0", "holder 1"


def held(first: range, second: range) -> tuple[Tables, dict[str, Schema]]:
    tables, schemas = by_columns(2, FRAME)
    named = FRAME["id"].map("p{}".format)
    for (name, table), some in zip(tables.items(), (first, second), strict=True):
        table = table.assign(id=table["id"].map("p{}".format))
        tables[name] = table[table["id"].isin(named.iloc[[*some]])]
    return tables, schemas


def doubled(table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([table, table.iloc[:1]])


def first_id(value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        ids = table["id"].astype(object).tolist()
        return table.assign(id=[value, *ids[1:]])

    return change


BAD: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "doubled": doubled,
    "missing": first_id(None),
    "empty": first_id(""),
    "spaces": first_id("  "),
    "a space behind": first_id("p7 "),
    "invisible": first_id("p\u200b7"),
    "nobody": lambda table: table.iloc[:0],
    "one person": lambda table: table.iloc[:1],
}


@pytest.mark.parametrize("alignment", ["union", "intersection"])
@pytest.mark.parametrize("how", BAD)
def test_ids_that_cannot_be_aligned_are_refused_before_anything_is_charged(
    how: str, alignment: str
) -> None:
    tables, schemas = held(range(20), range(8, 30))
    tables[FIRST] = BAD[how](tables[FIRST])
    ledgers = []

    def run() -> None:
        federation = Federation.rehearsal(tables, schemas, budget=BUDGET, seed=1)
        ledgers.extend(holder.ledger for holder in federation.holders.values())
        train("gram", federation, alignment=alignment, **SMALL)

    with pytest.raises(UnderstudyError) as refused:
        run()
    assert FIRST in str(refused.value)
    assert SECOND not in str(refused.value)
    assert all(not ledger.spend() for ledger in ledgers)


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (range(30), range(30)),
        (range(15), range(15, 30)),
        (range(30), range(2)),
        (range(2), range(28, 30)),
    ],
    ids=["all shared", "none shared", "one has all", "two each"],
)
def test_whoever_is_shared_is_a_run_like_any_other(first: range, second: range) -> None:
    tables, schemas = held(first, second)
    federation = Federation.rehearsal(tables, schemas, budget=BUDGET, seed=1)
    made = train("gram", federation, alignment="union", **SMALL)
    rows = made.generator.sample(40, seed=0)
    assert (rows["at_holder 0"] | rows["at_holder 1"]).all()
    prices = {
        name: holder.ledger.spend() for name, holder in federation.holders.items()
    }
    every = held(range(20), range(8, 30))[0]
    usual = Federation.rehearsal(every, schemas, budget=BUDGET, seed=1)
    train("gram", usual, alignment="union", **SMALL)
    kinds = {
        name: {type(event) for event in holder.ledger.spend()}
        for name, holder in usual.holders.items()
    }
    assert {name: {*map(type, spent)} for name, spent in prices.items()} == kinds

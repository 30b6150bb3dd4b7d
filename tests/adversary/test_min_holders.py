"""`min_holders`: a party that is away may be left out; one that refuses never is, and
nobody pays for such a run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from dp_accounting.dp_event import GaussianDpEvent

from understudy.data.schema import Boolean, Schema
from understudy.ground.errors import BudgetExceeded, PartyAway
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core.base import Ask
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.joint.server import measure
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties, addressed

SCHEMA = Schema(columns=(Boolean(name="a"), Boolean(name="b")), person="id")
NAMES = ("one", "two", "three")


def holders(tmp_path: Path) -> Federation:
    tables = {
        name: pd.DataFrame(
            {"id": range(9 * n, 9 * n + 9), "a": [True] * 9, "b": [False] * 9}
        )
        for n, name in enumerate(NAMES)
    }
    schemas = dict.fromkeys(NAMES, SCHEMA)
    return Federation(
        tables, schemas, budget=Budget(1.0, 1e-6), ledgers=tmp_path, same_people=False
    )


class OneAway(LocalParties):
    """The third never answers."""

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = addressed(message, self.names)
        here = {name: ask for name, ask in asks.items() if name != "three"}
        if len(here) < len(asks) and (min_holders is None or len(here) < min_holders):
            raise PartyAway("three: is away.")
        return super().ask(here)


def test_who_is_away_is_left_out(tmp_path: Path) -> None:
    federation = holders(tmp_path)
    parties = OneAway(federation.parties("gram", run="r"))
    study = Gram(gram.Config(fine=0.0), federation.schemas)
    assert list(measure(study, parties, min_holders=2).record.begun) == ["one", "two"]
    assert not federation.holders["three"].ledger.spend(run="r")


def test_who_refuses_ends_the_run_and_nobody_has_paid(tmp_path: Path) -> None:
    federation = holders(tmp_path)
    spent = federation.holders["three"].ledger
    while spent.remaining() > 0.5:
        spent.charge(GaussianDpEvent(20.0), run="earlier", description="spent before")
    parties = LocalParties(federation.parties("gram", run="r"))
    with pytest.raises(BudgetExceeded, match="three"):
        measure(Gram(gram.Config(fine=0.0), federation.schemas), parties, min_holders=2)
    assert not any(
        holder.ledger.spend(run="r") for holder in federation.holders.values()
    )

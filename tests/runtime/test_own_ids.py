"""Ids that nobody can match: a holder hears which, and a server only that there are
some.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from network_cases import Network, contract_for

from understudy.data.schema import Integer, Schema
from understudy.data.table import read_table
from understudy.ground.errors import OwnIdsError, PartyError, UnderstudyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.gram import protocol as gram
from understudy.protocols.protocol import Party
from understudy.runtime.contract import Contract
from understudy.runtime.wire import refusal, spoken_bytes

BUDGET = Budget(100.0, 1e-2)
SECRET = "Jane Roe"
IDS: dict[str, list[Any]] = {
    "with a space behind": ["John", f"{SECRET} ", "Ann"],
    "empty": ["John", SECRET, "  "],
    "of two kinds": ["John", SECRET, 7],
    "not whole": [1.5, 2.0, 3.0],
    "doubled": ["John", SECRET, SECRET],
}


def built(ids: list[Any], ledger: Ledger, run: str = "r") -> Party:
    column = Integer(name="visits", low=0, high=9)
    frame = pd.DataFrame({"id": pd.Series(ids, dtype=object), "visits": range(3)})
    table = read_table(frame, Schema(columns=(column,), person="id"), name="clinic.csv")
    return gram.PROTOCOL.build("a", table, ledger, run=run, budget=BUDGET)


@pytest.mark.parametrize("why", IDS)
def test_ids_that_nobody_can_match_are_quoted_at_their_holder_alone(why: str) -> None:
    ledger = Ledger.rehearsal("a", BUDGET)
    with pytest.raises(UnderstudyError) as refused:
        built(IDS[why], ledger)
    assert not [entry for entry in ledger.entries() if entry.run]
    told = str(refusal("a", spoken_bytes("a", refused.value)))
    for quoted in ("John", "Roe", "1.5", "clinic.csv", "ids[", "row"):
        assert quoted not in told


def test_over_a_network_a_server_hears_no_id_of_a_table_that_cannot_be_matched(
    tmp_path: Path,
) -> None:
    def build(contract: Contract, ledger: Ledger, folder: Path) -> Party:
        return built(IDS["with a space behind"], ledger, contract.run)

    network = Network(tmp_path, "a")
    with network.serve(contract_for("a")) as parties:
        network.start(network.participant("a", build=build), parties.port)
        with pytest.raises((PartyError, OwnIdsError)) as heard:
            parties.wait(60)
        assert "Roe" not in str(heard.value)
        assert "clinic.csv" not in str(heard.value)
    network.join_all()
    assert SECRET in str(network.errors["a"].__cause__)

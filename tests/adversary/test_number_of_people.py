"""How many people a holder has: over rows within ε, so that no refusal tells it;
elsewhere on record first.
"""

from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from understudy.data.schema import Boolean, Schema
from understudy.ground.errors import MessageError
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core.alignment import Introduce
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.joint.messages import Begin
from understudy.protocols.joint.server import measure
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

SCHEMA = Schema(columns=(Boolean(name="a"), Boolean(name="b")), person="id")


def federation(tmp_path: Path, people: int) -> Federation:
    tables = {
        "small": pd.DataFrame(
            {"id": range(people), "a": [True] * people, "b": [False] * people}
        ),
        "large": pd.DataFrame(
            {"id": range(100, 109), "a": [True] * 9, "b": [False] * 9}
        ),
    }
    schemas = dict.fromkeys(tables, SCHEMA)
    ledgers = tmp_path / f"{people}"
    return Federation(
        tables, schemas, budget=Budget(1.0, 1e-6), ledgers=ledgers, same_people=False
    )


@pytest.mark.parametrize("people", [1, 2])
def test_a_holder_of_one_person_releases_noisy_counts_as_one_of_two_does(
    people: int, tmp_path: Path
) -> None:
    holders = federation(tmp_path, people)
    parties = LocalParties(holders.parties("gram", run="r", config=gram.Config()))
    assert measure(Gram(gram.Config(), holders.schemas), parties).record.people is None
    assert holders.holders["small"].ledger.spent() > 0


def test_how_many_people_there_are_is_on_the_record_before_it_is_told(
    tmp_path: Path,
) -> None:
    holders = federation(tmp_path, 2)
    party = holders.parties("gram", run="r")["small"]
    assert party.answer(Introduce()).people.value == 2  # type: ignore[attr-defined]
    (entry,) = [
        entry for entry in holders.holders["small"].ledger.entries() if entry.run == "r"
    ]
    assert "how many people are held is disclosed, outside ε" in entry.description


@pytest.mark.parametrize("told", [1, 3])
def test_a_holder_moves_counts_as_its_settings_say_whatever_the_opening_says(
    told: int, tmp_path: Path
) -> None:
    """Noise for a person at one holder would be too little for one at two."""
    holders = federation(tmp_path, 2)
    config = gram.Config(max_holders_per_person=2)
    party = holders.parties("gram", run="r", config=config)["small"]
    begin = Begin(
        family="gram",
        config=asdict(config) | {"max_holders_per_person": told},
        schemas={name: s.to_dict() for name, s in holders.schemas.items()},
    )
    with pytest.raises(
        MessageError,
        match=f"max_holders_per_person={told} ",
    ):
        party.answer(begin)
    assert not holders.holders["small"].ledger.spend(run="r")

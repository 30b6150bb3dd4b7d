"""A contract that says whose copy of a column is used, at a holder elsewhere."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from network_cases import POLICY, Network

from understudy.data.samples import toy
from understudy.data.shared_columns import own_name, run_schema
from understudy.ground.errors import MessageError, PartyError
from understudy.network.decisions import contract_words
from understudy.network.holder import build_participant
from understudy.privacy.accounts.budget import Budget
from understudy.runs.registry import protocol_named
from understudy.runtime.contract import Contract, columns_of, digest_of
from understudy.runtime.session import Participant

FRAME, SCHEMA = toy(rows=20, seed=1)
COLUMN = SCHEMA.names[0]


def contract(shared: dict[str, str], *, told: dict[str, str] | None = None) -> Contract:
    """For the holder "a"; `told`: by what choice its columns stand there."""
    schema = run_schema("a", SCHEMA, shared if told is None else told)
    return Contract(
        federation="f",
        run="r",
        protocol="verti-gan",
        settings={},
        schemas={"a": digest_of(schema)},
        columns={"a": columns_of(schema)},
        budgets={"a": Budget(1.0, 1e-5)},
        shared_columns=shared,
    )


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(tmp_path, "a")


@pytest.fixture
def seat(network: Network, tmp_path: Path) -> Callable[[], Participant]:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "a.toml").write_text(SCHEMA.to_toml())
    home = tmp_path / "home"
    home.mkdir()
    return lambda: build_participant(
        network.invitations["a"],
        table=tmp_path / "a.csv",
        schema=tmp_path / "a.toml",
        policy=POLICY,
        home=home,
    )


@pytest.mark.parametrize("owner", ["b", "each", "a"])
def test_a_holder_brings_what_the_contract_says_and_nothing_else(
    seat: Callable[[], Participant], tmp_path: Path, owner: str
) -> None:
    mine = seat()
    offered = contract({COLUMN: owner})
    federation = mine.invitation.federation
    offered = Contract.from_text(offered.text.replace('"f"', f'"{federation}"'))
    with closing(mine.ledger), closing(mine.log):
        with closing(mine.open(offered)):
            pass
        book = mine.ledger.within("r", Budget(1.0, 1e-5))
        party = mine.build(offered, book, tmp_path / "party")
    expected = {
        "b": SCHEMA.names[1:],
        "each": (own_name(COLUMN, "a"), *SCHEMA.names[1:]),
        "a": SCHEMA.names,
    }
    assert party.rows.schema.names == expected[owner]
    assert COLUMN in party.rows.frame or owner != "a"
    assert protocol_named("verti-gan").holds_same_people(offered.columns.values())


def test_a_contract_whose_columns_are_not_those_of_its_choice_is_refused(
    seat: Callable[[], Participant],
) -> None:
    mine = seat()
    federation = mine.invitation.federation
    with closing(mine.ledger), closing(mine.log):
        for shared, told in (({COLUMN: "b"}, {}), ({}, {COLUMN: "b"})):
            offered = contract(shared, told=told)
            named = offered.text.replace('"f"', f'"{federation}"')
            with pytest.raises(PartyError, match="refuses the contract"):
                mine.open(Contract.from_text(named))
        everything = dict.fromkeys(SCHEMA.names, "b")
        offered = contract(everything, told={})
        named = offered.text.replace('"f"', f'"{federation}"')
        with pytest.raises(PartyError, match="nothing is left"):
            mine.open(Contract.from_text(named))


def test_a_contract_without_shared_columns_reads_as_it_always_did() -> None:
    assert "shared_columns" not in contract({}).text
    shared = contract({COLUMN: "b"})
    assert Contract.from_text(shared.text) == shared
    with pytest.raises(MessageError):
        Contract.from_text(shared.text.replace('"b"}', "3}"))


def test_a_holder_is_told_whose_copies_are_used() -> None:
    words = dict(contract_words(contract({COLUMN: "b"}), "a"))
    assert words["whose copies"] == f'{{"{COLUMN}": "b"}}'
    assert "whose copies" not in dict(contract_words(contract({}), "a"))

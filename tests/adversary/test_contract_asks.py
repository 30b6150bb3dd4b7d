"""A server that opens a run by other settings, or with others, than every holder
signed: refused in every protocol.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent / "contract"))
sys.path.append(str(Path(__file__).parent.parent / "runtime"))
from network_cases import POLICY, Network, protocol_contract
from protocol_cases import CASES, Case
from undisturbed import Enough, Recorded

from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Ask, Assembly, Opening, Party
from understudy.runs.federation import Federation
from understudy.runtime.contract import Contract
from understudy.runtime.journal import AskId
from understudy.runtime.session import Session
from understudy.runtime.wire import encode

ONE_EACH = [*{case.protocol: case for case in reversed(CASES)}.values()]
COUPLED = next(case for case in CASES if case.settings.get("coupling") == "gram")


class Opened(Recorded):
    """A run that ends when it has been opened so many times."""

    openings_wanted = 1

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        replies = super().ask(message)
        if len(self.openings) == self.openings_wanted:
            raise Enough
        return replies

    @property
    def openings(self) -> list[Opening]:
        """To the first of the parties."""
        return [
            ask
            for name, ask, _ in self.log
            if name == self.names[0] and isinstance(ask, Opening)
        ]


def openings_of(case: Case, federation: Federation) -> list[Opening]:
    """By which an honest server opens a run: the critics of a coupled one after its
    release.
    """
    parties = Opened(
        federation.parties(case.protocol, config=case.config(), run="contract")
    )
    parties.openings_wanted += case is COUPLED
    with pytest.raises(Enough):
        case.record.train(case.config(), parties, federation.schemas)
    return parties.openings


def other(value: Any) -> Any:
    """Another value of the same kind, or nearly."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}?"
        case None:
            return 1
    return [*value, 1] if isinstance(value, list | tuple) else {**value, "more": 1}


def variants(opening: Opening) -> Iterator[tuple[str, Opening]]:
    """The opening with each setting changed, one missing, one too many; with another
    party, or another schema.
    """
    config = opening.config
    for key, value in config.items():
        yield "settings", replace(opening, config=config | {key: other(value)})
    yield "settings", replace(opening, config=dict(list(config.items())[1:]))
    yield "settings", replace(opening, config=config | {"more": 1})
    yield "settings", replace(opening, config={})
    if isinstance(opening, Assembly):
        (name, schema), *rest = opening.schemas.items()
        yield "parties", replace(opening, schemas=dict(rest))
        yield "parties", replace(opening, schemas=opening.schemas | {"made up": schema})
        yield (
            "parties",
            replace(
                opening,
                schemas=opening.schemas | {name: schema | {"source": "another"}},
            ),
        )


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    names = {name for case in (*ONE_EACH, COUPLED) for name in case.data()[0]}
    return Network(tmp_path_factory.mktemp("network"), *sorted(names))


@pytest.mark.long
@pytest.mark.parametrize("case", [*ONE_EACH, COUPLED], ids=lambda case: case.name)
def test_no_protocol_opens_a_run_by_other_settings_than_were_signed(
    case: Case, network: Network, tmp_path: Path
) -> None:
    federation = case.federation()
    openings = openings_of(case, case.federation())
    name, holder = next(iter(federation.holders.items()))

    def build(contract: Contract, ledger: Ledger, folder: Path) -> Party:
        return federation.parties(
            case.protocol, config=case.config(), run="contract", folder=folder
        )[name]

    policy = replace(
        POLICY, epsilon_run=case.budget.epsilon, epsilon_total=case.budget.epsilon
    )
    participant = network.participant(
        name,
        policy=policy,
        build=build,
        description=federation.schemas[name],
        ledger=holder.ledger,
        folder=tmp_path,
    )
    session = participant.open(protocol_contract(case, federation))
    assert openings
    number = 0
    for opening in openings:
        for what, ask in variants(opening):
            number += 1
            assert f"other {what}" in words(session, number, ask)
    number += 1
    # it gets as far as the party
    assert "than the contract" not in words(session, number, openings[0])
    session.close()
    assert not any(entry.count for entry in holder.ledger.entries())


def words(session: Session, number: int, ask: Ask) -> str:
    answer = session.answer(AskId("server", number), encode(ask))
    return str(json.loads(answer.body)["text"]) if answer.status == "refusal" else ""

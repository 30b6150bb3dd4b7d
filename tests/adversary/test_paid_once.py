"""A server is killed while its parties pay: what was paid for and recorded is repeated
to it, not paid for again.

The parties are sessions with journals, as over any network; a killed server comes back
as another one, with its folder.
"""

import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent / "contract"))
sys.path.append(str(Path(__file__).parent.parent / "runtime"))
from network_cases import Network, protocol_contract
from protocol_cases import CASES, Case, is_usable
from undisturbed import undisturbed

from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Ask, Party
from understudy.protocols.joint import messages as joint
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.runs.federation import Federation
from understudy.runtime.contract import Contract
from understudy.runtime.journal import AskId
from understudy.runtime.local import addressed
from understudy.runtime.session import Session
from understudy.runtime.wire import decode, encode, refusal

pytestmark = pytest.mark.usefixtures("short_fits", "light_masks")
NAMES = ("holder 0", "holder 1", "holder 2")
Meets = Callable[[str, Ask], bool]


class Killed(BaseException):
    """Nobody catches it: whatever the server had in memory is gone."""


class Sessions:
    """The parties of one server's life, through bytes and journals."""

    def __init__(
        self, sessions: Mapping[str, Session], kinds: Any, killed_at: Meets
    ) -> None:
        self.sessions = sessions
        self.kinds = kinds
        self.killed_at = killed_at
        self.server = uuid.uuid4().hex
        self.number = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.sessions)

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        self.number += 1
        replies: dict[str, Any] = {}
        for name, ask in addressed(message, self.names).items():
            if self.killed_at(name, ask):
                raise Killed
            answer = self.sessions[name].answer(
                AskId(self.server, self.number), encode(ask)
            )
            if answer.status == "refusal":
                raise refusal(name, answer.body)
            replies[name] = decode(answer.body, self.kinds)
        return replies


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return Network(tmp_path_factory.mktemp("network"), *NAMES)


def trained(
    case: Case, network: Network, folder: Path, federation: Federation, *deaths: Meets
) -> Any:
    """The run, killed at each of these moments and resumed."""
    contract = protocol_contract(case, federation)

    def build(name: str) -> Callable[[Contract, Ledger, Path], Party]:
        holder = federation.holders[name]
        more = case.record.agreed(case.config())
        return lambda contract, ledger, folder: case.record.build(
            name,
            holder.table,
            ledger,
            run=contract.run,
            budget=contract.budgets[name],
            rng=holder.rng(),
            folder=folder,
            **more,
        )

    participants = {
        name: network.participant(
            name,
            build=build(name),
            description=schema,
            ledger=federation.holders[name].ledger,
            folder=folder / name,
        )
        for name, schema in federation.schemas.items()
    }
    outcome = None
    for life, killed_at in enumerate((*deaths, lambda name, ask: False)):
        # they were restarted, too
        sessions = {
            name: participant.open(contract)
            for name, participant in participants.items()
        }
        parties = Sessions(sessions, case.record.messages, killed_at)
        try:
            outcome = case.record.train(
                case.config(),
                parties,
                federation.schemas,
                checkpoint=folder / "server",
                resume=life > 0,
            )
        except Killed:
            assert outcome is None
        for session in sessions.values():
            session.close()
    return outcome


def at(kind: type[Ask], which: int | str | None = None) -> Meets:
    """When the second holder is asked this, of this round or stage: the first has paid
    and answered by then.
    """
    return lambda name, ask: (
        isinstance(ask, kind)
        and name == "holder 1"
        and which in (None, getattr(ask, "round", None), getattr(ask, "stage", None))
    )


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "deaths"),
    [
        (case_of("Gram, columns, three parties"), [at(joint.Release)]),
        (
            case_of("Gram, columns, a target"),
            [at(joint.Release, "pairs"), at(joint.Release, "again")],
        ),
        (
            case_of("Gram, columns, levels bought, a target"),
            [at(joint.Propose, "again")],
        ),
        (
            case_of("DPLT, two parties"),
            [
                at(joint.Release, "groups"),
                at(joint.Release, "pairs"),
                at(joint.Release, "tree"),
            ],
        ),
        (
            case_of("VertiGAN, coupled"),
            [
                at(joint.Release),
                at(verti_gan.VertiGanBegin),
                at(verti_gan.VertiGanRound, 2),
            ],
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_a_killed_server_that_comes_back_has_nobody_pay_twice(
    case: Case, deaths: list[Meets], network: Network, tmp_path: Path
) -> None:
    federation = case.federation(seed=None)
    plain = undisturbed(case).federation
    outcome = trained(case, network, tmp_path, federation, *deaths)
    assert is_usable(outcome)
    without_last = ("after 1 of 2", "after 2 of 3")
    first_alone = outcome.trained.card["ended"].startswith(without_last)
    for name, holder in federation.holders.items():
        paid = holder.ledger.spend()
        whole = plain.holders[name].ledger.spend()
        assert paid == whole or (first_alone and paid < whole), (
            "the last death may have cost the last release"
        )
        assert holder.ledger.spent(against=case.budget.against) <= case.budget.epsilon
    assert not [
        file for file in (tmp_path / "server").iterdir() if file.suffix == ".key"
    ]

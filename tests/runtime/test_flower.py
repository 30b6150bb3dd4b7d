"""The same run through Flower's messages and apps: equal to plain calls, whatever
Flower loses on the way.

Flower is an extra that cannot share an environment with this project's pinned tools;
without it these are skipped.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr.app", reason="needs understudy[flower]")
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from network_cases import (
    Counting,
    Network,
    Next,
    contract_for,
    counting,
    equal,
    numbers,
    protocol_contract,
)

sys.path.append(str(Path(__file__).parent.parent / "contract"))
from protocol_cases import CASES, Case, weights

from refusals import raises
from understudy.ground.errors import (
    BudgetExceeded,
    Effect,
    MessageError,
    PartyAway,
    PartyError,
)
from understudy.network.flower import FlowerParties, client_app
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

# as a process of Flower's has it
TaskIdentity._run_id = 1
TaskIdentity._node_id = 1
TaskIdentity._task_id = 1


class DirectGrid(Grid):
    """A grid whose nodes are in this process: real messages and apps, without SuperLink
    and SuperNodes.

    `spoil` may change a node's reply on its way, or lose it (None).
    """

    def __init__(self, nodes: dict[int, tuple[Any, Any]]) -> None:
        self.nodes = nodes
        self.replies = {}
        self.sent = 0
        self.spoil: Callable[[Message], Message | None] = lambda reply: reply

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self.sent += 1
            message.metadata._message_id = f"m{self.sent}"  # as the SuperLink does
            app, participant = self.nodes[message.metadata.dst_node_id]
            context = Context(
                1,
                message.metadata.dst_node_id,
                {"participant": participant},
                RecordDict(),
                {},
            )
            reply = self.spoil(app(message, context))
            if reply is None:
                reply = Message(
                    Error(code=0, reason="the node went away"), reply_to=message
                )
            self.replies[message.metadata.message_id] = reply
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [
            self.replies.pop(one) for one in list(message_ids) if one in self.replies
        ]

    def set_run(self, run: Any) -> None: ...

    run = property(lambda self: None)

    def create_message(self, *args: Any, **more: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **more: Any) -> Iterable[Message]:
        raise NotImplementedError


def grid_of(participants: Iterable[Any]) -> DirectGrid:
    """A node for each participant, and a stranger's."""
    app = client_app(lambda config: nullcontext(config["participant"]))
    return DirectGrid(
        {
            100 + number: (app, participant)
            for number, participant in enumerate(participants)
        }
    )


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return Network(tmp_path, "a", "b", "c")


def parties_of(
    network: Network, grid: DirectGrid, *names: str, **more: Any
) -> FlowerParties:
    roster = network.authority.roster
    return FlowerParties(
        grid,
        contract_for(*names),
        roster,
        kinds=Counting.messages,
        **{"patience": 5.0, "pause": 0.01, **more},
    )


def seats_of(network: Network, case: Case, federation: Federation) -> list[Any]:
    def build(name: str) -> Any:
        holder = federation.holders[name]
        return lambda contract, ledger, folder: case.record.build(
            name,
            holder.table,
            ledger,
            run=contract.run,
            budget=contract.budgets[name],
            rng=holder.rng(),
            folder=folder,
        )

    return [
        network.participant(
            name,
            ledger=holder.ledger,
            build=build(name),
            description=federation.schemas[name],
        )
        for name, holder in federation.holders.items()
    ]


@pytest.mark.parametrize(
    "case",
    [CASES[0], *(case for case in CASES if case.protocol == "sign-ds")][:2],
    ids=lambda case: case.name,
)
def test_the_same_seed_gives_the_same_trajectory_through_calls_and_through_flower(
    case: Case, tmp_path: Path
) -> None:
    before = case.federation()
    federation = case.federation()
    plain = case.record.train(
        case.config(),
        LocalParties(
            before.parties(case.protocol, config=case.config(), run="contract")
        ),
        before.schemas,
    )
    network = Network(tmp_path, *federation.holders)
    parties = FlowerParties(
        grid_of(seats_of(network, case, federation)),
        protocol_contract(case, federation),
        network.authority.roster,
        kinds=next(
            iter(
                federation.parties(
                    case.protocol, config=case.config(), run="x"
                ).values()
            )
        ).messages,
        pause=0.001,
    )
    through = case.record.train(case.config(), parties, federation.schemas)
    assert equal(weights(plain), weights(through))
    for name, holder in federation.holders.items():
        assert holder.ledger.spend() == before.holders[name].ledger.spend()


def test_a_reply_that_flower_loses_is_asked_for_again_and_charged_once(
    network: Network,
) -> None:
    ledger = Ledger.rehearsal("a", Budget(1000.0, 1e-5))
    grid = grid_of([network.participant("a", ledger=ledger)])
    parties = parties_of(network, grid, "a")
    parties.wait(5)
    values = []
    lost = iter([True, False, True, True, False, False])
    grid.spoil = lambda reply: None if next(lost) else reply
    for _ in range(3):
        values.append(numbers(parties.ask(Next()))["a"])
    assert sum(entry.count for entry in ledger.entries()) == 3
    party = counting()(
        contract_for("a"), Ledger.rehearsal("a", Budget(1000.0, 1e-5)), Path()
    )
    assert values == [numbers({"a": party.answer(Next())})["a"] for _ in range(3)]


def test_a_changed_answer_and_another_s_answer_are_refused(network: Network) -> None:
    grid = grid_of([network.participant("a"), network.participant("b")])
    parties = parties_of(network, grid, "a", "b", patience=1.0)
    parties.wait(5)

    def changed(**fields: Any) -> Callable[[Message], Message]:
        def spoil(reply: Message) -> Message:
            record = dict(reply.content.config_records["understudy"]) | fields
            reply.content.config_records["understudy"] = ConfigRecord(record)
            return reply

        return spoil

    for fields in (
        {"answer": b"x"},
        {"status": "refusal"},
        {"signature": b"x"},
        {"party": "b"},
    ):
        grid.spoil = changed(**fields)
        if "party" in fields:
            assert parties.ask(Next())  # who it is was settled by its certificate
        else:
            with pytest.raises(MessageError, match="did not sign"):
                parties.ask(Next())
    for odd in ({"answer": "text"}, {"more": 1}):
        grid.spoil = changed(**odd)
        with pytest.raises(MessageError, match="not one of ours"):
            parties.ask(Next())


def test_a_node_that_is_not_on_the_roster_is_not_a_party(network: Network) -> None:
    parties = parties_of(
        network, grid_of([network.participant("c")]), "a", patience=0.3
    )
    with pytest.raises(PartyError, match="a did not join"):
        parties.wait(0.2)
    network.authority.revoke("a")
    with pytest.raises(
        PartyError, match="says that it is a, and the certificate was revoked"
    ):
        parties_of(network, grid_of([network.participant("a")]), "a").wait(5)


def test_refusals_are_raised_as_what_they_were(network: Network) -> None:
    from dataclasses import replace

    from network_cases import FAILURES, POLICY, Fail

    strict = network.participant("a", policy=replace(POLICY, epsilon_run=1.0))
    with pytest.raises(PartyError, match=r"a refuses .*ε=50"):
        parties_of(network, grid_of([strict]), "a").wait(5)
    FAILURES["spent"] = BudgetExceeded(
        "a: this step costs ε=1 but 0 is left.", effect=Effect.NOTHING_SENT
    )
    parties = parties_of(network, grid_of([network.participant("a")]), "a")
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        parties.ask(Fail(how="spent"))


def test_away_may_be_left_out_and_a_refusal_never_is(network: Network) -> None:
    from dataclasses import replace

    from network_cases import FAILURES, POLICY, Fail

    FAILURES["says no"] = PartyError("a: no.", effect=Effect.NOTHING_SENT)
    parties = parties_of(
        network, grid_of([network.participant("a")]), "a", "b", patience=0.3
    )
    with pytest.raises(PartyAway, match="b did not join"):
        parties.wait(0.1)
    parties.wait(0.1, min_holders=1)
    assert list(parties.ask(Next(), min_holders=1)) == ["a"]
    with pytest.raises(PartyAway, match="b has not answered"):
        parties.ask(Next(), min_holders=2)
    with pytest.raises(PartyError, match="a: no"):
        parties.ask({"a": Fail(how="says no"), "b": Next()}, min_holders=0)
    strict = network.participant("b", policy=replace(POLICY, epsilon_run=1.0))
    refused = parties_of(
        network, grid_of([network.participant("a"), strict]), "a", "b", patience=2.0
    )
    with pytest.raises(PartyError, match="b refuses the contract"):
        refused.ask(Next(), min_holders=1)


def test_a_flower_message_of_somebody_else_is_refused(network: Network) -> None:
    grid = grid_of([network.participant("a")])
    for content in (
        RecordDict(),
        RecordDict({"understudy": ConfigRecord({"ask": b"x"})}),
    ):
        with pytest.raises(MessageError, match="not one of ours"):
            list(grid.push_messages([Message(content, 100, MessageType.QUERY)]))

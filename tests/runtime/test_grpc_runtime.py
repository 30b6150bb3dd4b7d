"""The same run over a network: equal to plain calls, through interruptions, kills and
restarts.
"""

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from operator import le
from pathlib import Path
from typing import Any

import pytest
import torch
from network_cases import (
    FAILURES,
    POLICY,
    Fail,
    Network,
    Next,
    Number,
    OneAtATime,
    Wire,
    contract_for,
    counting,
    equal,
    numbers,
    protocol_contract,
    signed,
)

from forker import Forker, until

sys.path.append(str(Path(__file__).parent.parent / "contract"))
from protocol_cases import CASES, Case, weights

from refusals import raises
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    LedgerError,
    PartyAway,
    PartyError,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Party
from understudy.runs.federation import Federation
from understudy.runtime.contract import Contract
from understudy.runtime.grpc.frames import loop, run
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.grpc.streams import Limits
from understudy.runtime.journal import AuditLog, verify_log
from understudy.runtime.local import LocalParties

PARTY = Path(__file__).parent / "party_process.py"


def kinds(case: Case, federation: Federation) -> tuple[Any, ...]:
    return next(
        iter(federation.parties(case.protocol, config=case.config(), run="x").values())
    ).messages


def participants(
    network: Network, case: Case, federation: Federation
) -> dict[str, Any]:
    def build(name: str) -> Callable[[Contract, Ledger, Path], Party]:
        holder = federation.holders[name]

        def make(contract: Contract, ledger: Ledger, folder: Path) -> Any:
            more = {
                "run": contract.run,
                "budget": contract.budgets[name],
                "rng": holder.rng(),
                "folder": folder,
                **case.record.agreed(case.config()),
            }
            return OneAtATime(case.record.build(name, holder.table, ledger, **more))

        return make

    return {
        name: network.participant(
            name,
            ledger=holder.ledger,
            build=build(name),
            description=federation.schemas[name],
        )
        for name, holder in federation.holders.items()
    }


def locally(case: Case) -> tuple[Any, Federation]:
    federation = case.federation()
    parties = LocalParties(
        federation.parties(case.protocol, config=case.config(), run="contract")
    )
    return case.record.train(case.config(), parties, federation.schemas), federation


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [*CASES[:3], next(case for case in CASES if case.protocol == "sign-ds")],
    ids=lambda case: case.name,
)
def test_the_same_seed_gives_the_same_trajectory_through_calls_and_through_grpc(
    case: Case, tmp_path: Path
) -> None:
    plain, before = locally(case)
    federation = case.federation()
    network = Network(tmp_path, *federation.holders)
    with network.serve(
        protocol_contract(case, federation), kinds(case, federation)
    ) as parties:
        for participant in participants(network, case, federation).values():
            network.start(participant, parties.port)
        over_grpc = case.record.train(case.config(), parties, federation.schemas)
    network.join_all()
    assert not network.errors
    assert equal(weights(plain), weights(over_grpc))
    for name, holder in federation.holders.items():
        assert holder.ledger.spend() == before.holders[name].ledger.spend()


def values_of_calls(count: int) -> list[float]:
    """What the counting party says when nothing happens to it."""
    ledger = Ledger.rehearsal("a", Budget(1000.0, 1e-5))
    party = counting()(contract_for("a"), ledger, Path())
    return [numbers({"a": party.answer(Next())})["a"] for _ in range(count)]


def test_a_broken_stream_is_dialled_again_and_the_open_ask_is_charged_once(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a", "b")
    wires = []
    participant = network.participant("a", build=counting(work=lambda: wires[0].cut()))
    with network.serve(contract_for("a", "b")) as parties:
        wires.append(Wire(parties.port))
        network.start(participant, wires[0].port)
        network.start(network.participant("b"), parties.port)
        parties.wait(60)
        values = [numbers(parties.ask(Next()))["a"] for _ in range(3)]
        assert parties.status()["parties"]["a"]["joins"] == 4
    network.join_all()
    wires[0].close()
    assert not network.errors
    assert values == values_of_calls(3)
    assert sum(entry.count for entry in participant.ledger.entries()) == 3


@pytest.mark.parametrize("weather", ["delay", "deaf", "loss"])
def test_a_bad_line_costs_time_and_no_charge(weather: str, tmp_path: Path) -> None:
    """Slow; half-open, so that only silence tells that it is dead; or cut again and
    again.
    """
    network = Network(tmp_path, "a")
    wires = []
    silence = 1.0 if weather == "deaf" else 60.0

    def work() -> None:
        if weather == "loss":
            wires[0].cut()

    participant = network.participant("a", build=counting(work=work))
    with network.serve(contract_for("a"), limits=Limits(silence=silence)) as parties:
        wire = Wire(parties.port)
        wires.append(wire)
        network.start(participant, wire.port, longest_pause=0.5, silence=silence)
        parties.wait(60)
        wire.delay = 0.05 if weather == "delay" else 0.0
        values = []
        for number in range(6):
            if number == 2 and weather == "deaf":
                wire.deafen()  # what is lost stays lost
            values.append(numbers(parties.ask(Next()))["a"])
        wire.delay = 0.0
        joins = parties.status()["parties"]["a"]["joins"]
    network.join_all()
    wire.close()
    assert not network.errors
    assert values == values_of_calls(6)
    assert sum(entry.count for entry in participant.ledger.entries()) == 6
    assert (joins > 1) == (weather != "delay")


def test_a_party_that_works_for_long_says_that_it_is_there(tmp_path: Path) -> None:
    """On a busy machine a moment passes in which nobody comes to speak: then with more
    time.
    """
    for silence in (0.5, 2.0, 8.0):
        network = Network(tmp_path / f"{silence}", "a")
        long = iter([1.6 * silence, 0.0])
        participant = network.participant(
            "a", build=counting(work=lambda long=long: time.sleep(next(long)))
        )
        with network.serve(
            contract_for("a"), limits=Limits(silence=silence)
        ) as parties:
            network.start(participant, parties.port, silence=silence)
            parties.ask(Next())
            time.sleep(1.6 * silence)  # and so does a server that has nothing to ask
            parties.ask(Next())
            joins = parties.status()["parties"]["a"]["joins"]
        network.join_all()
        assert not network.errors
        if joins == 1:
            return
    raise AssertionError(f"{joins} joins: each end took the other for dead")


def test_a_dead_line_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    network = Network(tmp_path, "a")
    participant = network.participant("a")
    with network.serve(contract_for("a"), linger=0.1) as parties:
        wire = Wire(parties.port)
        network.start(participant, wire.port, patience=5.0)
        parties.wait(60)
        wire.deaf = True
        parties.patience = 0.5
        with pytest.raises(PartyError, match="given up"):
            parties.ask(Next())
        wire.close()
    assert not participant.ledger.runs()


def test_a_party_without_a_connection_is_given_up_before_one_that_is_at_work(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a", "b")
    go_on = threading.Event()
    with network.serve(contract_for("a", "b"), away=0.2) as parties:
        network.start(
            network.participant("a", build=counting(work=go_on.wait)), parties.port
        )
        signed(parties, "a")
        # five times as long as who is away is waited for
        given_up = threading.Timer(1.0, go_on.set)
        given_up.start()
        assert list(parties.ask(Next(), min_holders=1)) == ["a"]
        with pytest.raises(PartyAway, match=r"b is not connected for 0\.2 s"):
            parties.ask(Next())
    network.join_all()
    assert not network.errors


def test_the_end_of_a_run_is_not_put_off_for_a_party_that_was_given_up(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a", "b")
    with network.serve(contract_for("a", "b"), away=0.2, linger=86_400.0) as parties:
        wire = Wire(parties.port)
        network.start(network.participant("a"), parties.port)
        network.start(network.participant("b"), wire.port, patience=0.1)
        parties.wait(60)
        wire.close()  # b is cut off, and finds nobody when it dials again
        assert list(parties.ask(Next(), min_holders=1)) == ["a"]
        ending = threading.Thread(target=parties.close, daemon=True)
        ending.start()
        ending.join(60)
        assert not ending.is_alive()
    network.join_all()
    assert network.errors.keys() == {"b"}


def test_a_party_started_twice_holds_one_stream_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a")
    with network.serve(contract_for("a")) as parties:
        network.start(network.participant("a"), parties.port, patience=5.0)
        parties.wait(60)
        network.start(network.participant("a"), parties.port, pause=5.0)
        until(
            lambda: (
                parties.ask(Next()) and parties.status()["parties"]["a"]["joins"] > 1
            ),
            60,
        )
        assert isinstance(parties.ask(Next())["a"], Number)


def test_messages_of_many_frames_arrive_whole(tmp_path: Path) -> None:
    network = Network(tmp_path, "a")
    with network.serve(contract_for("a")) as parties:
        network.start(network.participant("a"), parties.port)
        # about one frame, exactly one, several
        for size in (1, 262_000, 262_144, 1_500_000):
            reply = parties.ask(Next(weights=torch.zeros(size), extra=size))["a"]
            assert reply.size.value == size
            assert reply.number.value.shape == (size + 1,)
    network.join_all()


def test_a_refusal_is_raised_as_what_it_was_and_the_run_goes_on(tmp_path: Path) -> None:
    network = Network(tmp_path, "a", "b")
    FAILURES["spent"] = BudgetExceeded(
        "a: this step costs ε=1 but 0 is left.", effect=Effect.NOTHING_SENT
    )
    FAILURES["disk"] = LedgerError("/srv/a.ledger: the disk is full")
    with network.serve(contract_for("a", "b")) as parties:
        for name in "ab":
            network.start(network.participant(name), parties.port)
        for how, kind in (("spent", BudgetExceeded), ("disk", LedgerError)):
            with raises(kind, effect=Effect.NOTHING_SENT) as refusal:
                parties.ask({"b": Next(), "a": Fail(how=how)})
            assert "/srv" not in str(refusal.value)
        assert list(parties.ask(Next())) == ["a", "b"]
        assert list(parties.ask({"b": Next(), "a": Next()})) == ["b", "a"]
        with pytest.raises(PartyError, match="No party is called c"):
            parties.ask({"c": Next()})
    network.join_all()
    assert not network.errors


def test_a_party_of_no_place_in_the_run_is_not_sent_for_another_invitation(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a", "b")
    with network.serve(contract_for("a")) as parties:
        network.start(network.participant("b"), parties.port)
        network.join_all()
    refusal = network.errors["b"]
    assert isinstance(refusal, PartyError)
    assert "invitation" not in str(refusal)


def test_a_party_that_does_not_come_or_not_answer_is_waited_for_and_then_named(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a", "b")
    go_on = threading.Event()
    with network.serve(contract_for("a", "b")) as parties:
        network.start(
            network.participant("a", build=counting(work=go_on.wait)), parties.port
        )
        signed(parties, "a")
        parties.patience = 0.2
        with pytest.raises(PartyError, match=r"^b did not join"):
            parties.wait(0.1)
        with pytest.raises(PartyError, match="b is not connected"):
            parties.ask({"b": Next()})
        with pytest.raises(PartyError, match="a has not answered"):
            parties.ask({"a": Next()})
        go_on.set()
    network.join_all()


def test_a_late_answer_is_not_taken_for_the_next(tmp_path: Path) -> None:
    network = Network(tmp_path, "a")
    begun = threading.Event()
    go_on = threading.Event()
    participant = network.participant(
        "a", build=counting(work=lambda: begun.set() or go_on.wait())
    )
    with network.serve(contract_for("a")) as parties:
        network.start(participant, parties.port)
        parties.wait(60)
        parties.patience = 0.2
        while not begun.is_set():
            with pytest.raises(PartyError, match="given up"):
                parties.ask(Next())
        go_on.set()
        parties.patience = 60.0
        assert numbers(parties.ask(Next()))["a"] == values_of_calls(2)[1]
    network.join_all()


def test_a_contract_that_a_party_refuses_is_refused_with_its_reason(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a", "b")
    strict = network.participant("a", policy=replace(POLICY, epsilon_run=1.0))
    with network.serve(contract_for("a", "b")) as parties:
        network.start(network.participant("b"), parties.port)
        signed(parties, "b")
        network.start(strict, parties.port)
        with pytest.raises(PartyError, match=r"a refuses .*ε=50"):
            parties.wait(60)
    network.join_all()
    assert isinstance(network.errors["a"], PartyError)
    assert "b" not in network.errors
    assert not strict.ledger.runs()


def test_away_may_be_left_out_and_a_refusal_never_is(tmp_path: Path) -> None:
    """Whether of an ask or of the whole contract; `min_holders` is about who is not
    there.
    """
    network = Network(tmp_path, "a", "b", "c")
    FAILURES["says no"] = PartyError("a: no.", effect=Effect.NOTHING_SENT)
    with network.serve(contract_for("a", "b", "c"), away=0.2) as parties:
        for name in "ab":
            network.start(network.participant(name), parties.port)
        signed(parties, "a", "b")
        parties.wait(0.1, min_holders=2)
        assert list(parties.ask(Next(), min_holders=2)) == ["a", "b"]
        parties.away = None
        with pytest.raises(PartyError, match="a: no"):
            parties.ask({"a": Fail(how="says no"), "b": Next()}, min_holders=1)
        network.start(
            network.participant("c", policy=replace(POLICY, epsilon_run=1.0)),
            parties.port,
        )
        with pytest.raises(PartyError, match="c refuses the contract"):
            parties.wait(60, min_holders=2)
        for asks in (Next(), {"c": Next()}):
            with pytest.raises(PartyError, match="c refuses the contract") as refused:
                parties.ask(asks, min_holders=0)
            assert not isinstance(refused.value, PartyAway)
    network.join_all()


def test_a_server_needs_an_invitation_for_everybody_and_a_free_port(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a")
    with (
        pytest.raises(ConfigError, match="b has no invitation"),
        network.serve(contract_for("a", "b")),
    ):
        pass
    with (
        network.serve(contract_for("a")) as parties,
        pytest.raises(ConfigError, match="cannot be used for listening"),
        network.serve(contract_for("a"), listen=f"127.0.0.1:{parties.port}"),
    ):
        pass


def test_both_ends_log_what_crossed_and_status_counts_it(tmp_path: Path) -> None:
    network = Network(tmp_path, "a")
    logs = {end: AuditLog(tmp_path / f"{end}.jsonl") for end in ("server", "party")}
    with network.serve(contract_for("a"), log=logs["server"]) as parties:
        network.start(network.participant("a", log=logs["party"]), parties.port)
        parties.ask(Next())
        parties.ask(Next())
        seen = parties.status()["parties"]["a"]
        rows = parties.transcript.rows()
    network.join_all()
    for log in logs.values():
        log.close()
    assert (seen["connected"], seen["signed"], seen["asks"], seen["answers"]) == (
        True,
        True,
        2,
        2,
    )
    assert (seen["down"], seen["up"]) == (rows[0]["down_bytes"], rows[0]["up_bytes"])
    assert rows[0]["paid"] == 2
    events = {
        end: [
            json.loads(line)["event"]
            for line in (tmp_path / f"{end}.jsonl").read_text().splitlines()
        ]
        for end in logs
    }
    assert events["server"] == ["started", "joined", "answer", "answer", "ended"]
    assert events["party"] == [
        "connected",
        "contract accepted",
        "ask",
        "reply",
        "ask",
        "reply",
        "ended",
    ]
    assert verify_log(tmp_path / "server.jsonl") == 5


# Kills and restarts


def trained_with_a_kill(
    case: Any, when: str, folder: Path, forker: Forker
) -> tuple[Any, str]:
    """What a run over the network yields whose first party, named too, lives in
    `folder/home`, is killed at `when`, and is started again.
    """
    federation = case.federation()
    network = Network(folder, *federation.holders)
    victim, calm = federation.holders
    home = folder / "home"
    ends = []
    network.invitations[victim].save(home / "invitation.toml")
    with network.serve(
        protocol_contract(case, federation), kinds(case, federation), patience=120.0
    ) as parties:

        def lives() -> None:
            for word in (when, "never"):
                argv = (victim, home, parties.port, word, case.name)
                ends.append(
                    forker.run(
                        *argv, folder=folder, to=folder / word, program=PARTY
                    ).end()
                )

        living = threading.Thread(target=lives)
        living.start()
        network.start(
            participants(network, case, federation)[calm], parties.port, patience=120.0
        )
        outcome = case.record.train(case.config(), parties, federation.schemas)
        assert parties.status()["parties"][victim]["joins"] == 2
    living.join()
    network.join_all()
    assert ends == [-signal.SIGKILL, 0]
    return outcome, victim


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and kill -9")
@pytest.mark.parametrize("when", ["recorded", "charged"])
def test_a_party_killed_in_a_round_and_started_again_goes_on(
    when: str, tmp_path: Path, forker: Forker
) -> None:
    """After the record: the same result, the same price. Before it: the round was
    charged and is charged again.

    The second charge does not fit the contract's price any more when the last round
    comes: the run ends there.
    """
    case = CASES[0]
    plain, before = locally(case)
    outcome, victim = trained_with_a_kill(case, when, tmp_path, forker)
    with Ledger(tmp_path / "home" / "party.ledger") as ledger:
        charged = sum(ledger.spend(run="contract").values())
    assert charged == sum(before.holders[victim].ledger.spend().values())
    if when == "recorded":
        assert equal(weights(plain), weights(outcome))
    else:
        assert outcome.trained.card["rounds"] == case.config().rounds - 1
        assert "limit of this run" in outcome.trained.card["ended"]


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and kill -9")
def test_a_party_killed_while_it_encrypts_goes_on_and_encrypts_no_row_again(
    tmp_path: Path, forker: Forker
) -> None:
    case = next(case for case in CASES if case.settings.get("products") == "encrypted")
    plain, before = locally(case)
    outcome, victim = trained_with_a_kill(case, "encrypted", tmp_path, forker)
    places = (tmp_path / "home" / "encrypted.txt").read_text().split()
    assert len({*places}) == len(places) > 1
    assert equal(weights(plain), weights(outcome))
    with Ledger(tmp_path / "home" / "party.ledger") as ledger:
        assert ledger.spend(run="contract") == before.holders[victim].ledger.spend()


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and kill -9")
@pytest.mark.parametrize("step", ["mask_ids", "remask"])
def test_a_party_killed_in_a_union_goes_on_and_pays_for_its_length_once(
    step: str, tmp_path: Path, forker: Forker
) -> None:
    case = next(case for case in CASES if case.settings.get("alignment") == "union")
    plain, before = locally(case)
    outcome, victim = trained_with_a_kill(case, step, tmp_path, forker)
    assert equal(weights(plain), weights(outcome))
    with Ledger(tmp_path / "home" / "party.ledger") as ledger:
        assert ledger.spend(run="contract") == before.holders[victim].ledger.spend()


@pytest.mark.parametrize("how", ["stopped", "crashed"])
def test_a_server_that_comes_back_goes_on_from_its_checkpoint(
    how: str, tmp_path: Path
) -> None:
    """Stopped between two rounds, or gone without a word: the rounds since its
    checkpoint are not paid again.
    """
    case = CASES[0]
    plain, before = locally(case)
    federation = case.federation()
    network = Network(tmp_path, *federation.holders)
    contract = protocol_contract(case, federation)
    messages = kinds(case, federation)
    case_config = replace(case.config(), checkpoint_every=1)
    contract = replace(contract, settings=contract.settings | {"checkpoint_every": 1})

    def train(
        parties: GrpcParties, *, resume: bool = False, stop: int | None = None
    ) -> Any:
        def watch(progress: Any) -> None:
            if progress.done == stop:
                raise KeyboardInterrupt if how == "stopped" else RuntimeError("a crash")

        return case.record.train(
            case_config,
            parties,
            federation.schemas,
            checkpoint=tmp_path / "server",
            resume=resume,
            watch=watch,
        )

    first = GrpcParties(
        contract, network.server(), kinds=messages, listen="127.0.0.1:0", patience=120.0
    )
    for participant in participants(network, case, federation).values():
        network.start(participant, first.port)
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        train(first, stop=2)
    run(first._server.stop(None))  # gone, and it told nobody
    time.sleep(0.1)
    with network.serve(contract, messages, listen=f"127.0.0.1:{first.port}") as second:
        resumed = train(second, resume=True)
    network.join_all()
    assert not network.errors
    for name, holder in federation.holders.items():
        assert holder.ledger.spend() == before.holders[name].ledger.spend()
    assert resumed.trained.card["rounds"] == 3
    assert equal(weights(plain), weights(resumed))


def test_many_asks_leave_no_threads_no_tasks_and_no_timers_behind(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, *"abcdefgh")
    with network.serve(contract_for(*"abcdefgh")) as parties:
        for name in "abcdefgh":
            network.start(
                network.participant(name, build=counting(seed=None)), parties.port
            )
        parties.ask(Next())

        def left() -> tuple[int, int]:
            return threading.active_count(), len(asyncio.all_tasks(loop()))

        before = (99, 99)
        timers = []
        for _ in range(2):
            for _ in range(15):
                parties.ask(Next())
            timers.append(sum(not timer.cancelled() for timer in loop()._scheduled))  # type: ignore[attr-defined]
            until(lambda before=before: all(map(le, left(), before)), 60)
            before = left()  # with what earlier tests have still to end
    network.join_all()
    # Of each end of a stream there is one, and a busy machine may see one more of it:
    # 15 asks leave none of theirs.
    assert timers[1] <= timers[0] + 8
    assert len(parties.transcript.lines) == 8

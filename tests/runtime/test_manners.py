"""How an end is told: a contract that is refused, a party that comes late, and what is
kept afterwards.
"""

import asyncio
import json
import signal
import sys
import threading
import tomllib
import traceback
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from desk import POLICY as POLICY_FILE
from desk import Desk
from network_cases import (
    POLICY,
    Counting,
    Network,
    Next,
    Wire,
    contract_for,
    numbers,
    signed,
)

from forker import until
from understudy.ground.errors import ContractRefused, PartyError
from understudy.network.decisions import DecisionQueue
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core import Keep
from understudy.runtime.contract import Contract
from understudy.runtime.grpc.frames import run
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.grpc.streams import Streams

STRICT = replace(POLICY, epsilon_run=1.0)
WHY = "a refuses the contract: ε=50 is above the ε=1 that one run may cost"


def served(network: Network, *names: str, **more: object) -> GrpcParties:
    """A server that ends as `understudy serve` does."""
    return GrpcParties(
        contract_for(*names),
        network.server(),
        kinds=Counting.messages,
        listen="127.0.0.1:0",
        patience=120.0,
        **{"linger": 60.0} | more,
    )


def test_a_contract_that_one_refuses_is_off_and_everybody_hears_why(
    tmp_path: Path,
) -> None:
    """One has signed, one still thinks about it, one comes when it is over, and the
    port is given back after that.
    """
    network = Network(tmp_path, *"abcd")
    queue = DecisionQueue(home=tmp_path / "home")
    asking = network.participant(
        "c",
        policy=replace(POLICY, accept="ask"),
        confirm=queue,
        withdraw=queue.withdraw,
    )

    def late() -> None:
        until(lambda: parties._streams.ended, 60)
        network.start(network.participant("d"), parties.port)

    parties = served(network, *"abcd")
    network.start(network.participant("b"), parties.port)
    network.start(asking, parties.port)
    signed(parties, "b")
    until(lambda: queue.waiting() != [], 60)
    assert parties.status()["parties"]["c"]["reading"]
    threading.Thread(target=late, daemon=True).start()
    network.start(network.participant("a", policy=STRICT), parties.port)
    with pytest.raises(ContractRefused, match=WHY), parties:
        parties.wait(60)
    network.join_all()
    assert network.errors.keys() == set("abcd")
    for name in "bcd":
        assert isinstance(network.errors[name], PartyError)
        assert f"{name}: the run run-1 is off: {WHY}" in str(network.errors[name])
    assert queue.waiting() == [], "nobody is asked about it any more"


def test_an_interruption_after_a_refusal_leaves_nobody_untold(tmp_path: Path) -> None:
    """Ctrl-C while the refusal is being written down: who is there hears why, who is
    not is not waited for.
    """
    network = Network(tmp_path, *"abc")
    parties = served(network, *"abc", linger=86_400)
    network.start(network.participant("b"), parties.port)
    signed(parties, "b")
    network.start(network.participant("a", policy=STRICT), parties.port)

    def interrupted() -> None:
        raise KeyboardInterrupt

    writing = ExitStack()
    writing.callback(interrupted)
    with pytest.raises(ContractRefused, match=WHY), parties, writing:
        parties.wait(60)
    network.join_all()
    assert f"b: the run run-1 is off: {WHY}" in str(network.errors["b"])


def test_ctrl_c_ends_a_wait_that_its_signal_does_not_wake() -> None:
    """Here it comes to another thread. One that comes to the main thread just before
    its wait begins is as silent.
    """
    main = threading.main_thread().ident
    cancelled = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def waits() -> bool:
        here = sys._current_frames()[main]
        above = [frame.f_code for frame, _ in traceback.walk_stack(here)]
        return above[0] is threading.Condition.wait.__code__ and run.__code__ in above

    def interrupt() -> None:
        until(waits, 60)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            run(endless())
    finally:
        signal.signal(signal.SIGINT, before)
    until(cancelled.is_set, 60)


def test_a_run_that_is_held_goes_on_when_the_one_that_refused_signs(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a", "b")
    told: list[str] = []
    why: list[str] = []

    class Log:
        """What b hears while it waits."""

        def write(self, event: str, **facts: str) -> None:
            if event == "disconnected":
                told.append(facts["why"])

    def refused(reason: str) -> None:
        why.append(reason)
        if told and "a" in network.errors and len(network.threads) == 2:
            network.start(network.participant("a"), parties.port)  # with another policy

    with network.serve(contract_for("a", "b")) as parties:
        network.start(
            network.participant("b", log=Log()), parties.port, longest_pause=0.1
        )
        signed(parties, "b")
        network.start(network.participant("a", policy=STRICT), parties.port)
        parties.wait(60, refused=refused)
        assert numbers(parties.ask(Next())).keys() == {"a", "b"}
    network.join_all()
    assert WHY in why[0]
    assert told
    assert WHY in told[0]
    assert network.errors.keys() == {"a"}, "its first try"


def test_a_held_run_ends_as_its_caller_says(tmp_path: Path) -> None:
    network = Network(tmp_path, "a", "b")

    class AnotherContractError(Exception):
        """What the caller waits for."""

    def refused(reason: str) -> None:
        raise AnotherContractError

    parties = served(network, "a", "b")
    network.start(network.participant("a", policy=STRICT), parties.port)
    with pytest.raises(AnotherContractError), parties:
        parties.wait(60, refused=refused)
    network.join_all()


def test_a_party_that_comes_after_the_end_is_told(tmp_path: Path) -> None:
    """One that had never signed is not asked to; one that had, hears of the end as if
    it had been there.
    """
    network = Network(tmp_path, "a", "b", "c")
    parties = served(network, "a", "b", "c")
    wire = Wire(parties.port)
    network.start(network.participant("a"), parties.port)
    gone = network.start(network.participant("b"), wire.port, patience=0.1)
    signed(parties, "a", "b")
    wire.close()
    gone.join(60)
    ending = threading.Thread(target=parties.close)
    ending.start()
    until(lambda: parties._streams.ended, 60)
    late = network.start(network.participant("c"), parties.port)
    late.join(60)
    assert ending.is_alive(), "it still waits for b"
    network.start(network.participant("b"), parties.port)
    ending.join(60)
    network.join_all()
    assert network.errors.keys() == {"b", "c"}
    assert "no server at" in str(network.errors["b"]), "its first try"
    assert "c: the run run-1 is over, without this party" in str(network.errors["c"])
    assert not (tmp_path / "parties" / "c").exists(), "nothing was signed"
    assert kept(tmp_path / "parties" / "b") == {"contract.json", "ended"}


def test_what_could_be_repeated_is_deleted_when_the_run_has_ended_and_not_before(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path, "a")
    place = tmp_path / "parties" / "a"
    participant = network.participant("a")
    with network.serve(contract_for("a"), linger=0.0) as parties:
        network.start(participant, parties.port)
        parties.ask(Next())
        parties.ask(Keep(round=1))
        assert kept(place) == {
            "contract.json",
            "answers.0",
            "answers.1",
            "state-1.safetensors",
        }
        run(parties._server.stop(None))  # gone, and it told nobody
    assert "answers.0" in kept(place)
    with network.serve(
        contract_for("a"), listen=f"127.0.0.1:{parties.port}"
    ) as parties:
        parties.ask(Next())
    network.join_all()
    assert kept(place) == {"contract.json", "ended"}
    assert len(participant.ledger.entries()) == 2, (
        "a budget and one answer, which was repeated: what was paid stands"
    )


def test_a_run_that_was_ended_is_never_opened_again(tmp_path: Path) -> None:
    """A server that says "end" and then begins again gets nothing: a second first
    answer would have other noise.
    """
    network = Network(tmp_path, "a")
    place = tmp_path / "parties" / "a"
    participant = network.participant("a")
    for _ in range(2):
        with network.serve(contract_for("a")) as parties:
            network.start(participant, parties.port)
            if not (place / contract_for("a").digest / "ended").exists():
                parties.ask(Next())
                continue
            with pytest.raises(ContractRefused, match="a: the run run-1 is over here"):
                parties.wait(60)
        network.join_all()
    network.join_all()
    assert not network.errors, "the party is done, and says so"
    assert len(participant.ledger.entries()) == 2
    with pytest.raises(PartyError, match="is over here"):
        participant.open(contract_for("a"))


def test_a_party_that_refuses_stays_until_the_server_has_read_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the channel cancels the stream: a server that sees the cancellation
    first would wait for this party as long as it may.
    """
    read = Streams._heard
    present = list[bool]()

    async def slow(self: Streams, *args: Any) -> object:
        message = await read(self, *args)
        await asyncio.sleep(0.5)
        present.append(thread.is_alive())
        return message

    monkeypatch.setattr(Streams, "_heard", slow)
    network = Network(tmp_path, "a")
    parties = served(network, "a")
    thread = network.start(network.participant("a", policy=STRICT), parties.port)
    with pytest.raises(ContractRefused, match=WHY), parties:
        parties.wait(60)
    network.join_all()
    assert present == [True]


def test_what_a_kill_at_the_end_left_is_swept_away(tmp_path: Path) -> None:
    participant = Network(tmp_path, "a").participant("a")
    session = participant.open(contract_for("a"))
    session.close()
    folder = tmp_path / "parties" / "a" / contract_for("a").digest
    participant.sweep()
    assert (folder / "answers.0").exists(), "a run that goes on is left alone"
    (folder / "ended").touch()
    participant.sweep()
    assert kept(folder.parent) == {"contract.json", "ended"}


def test_a_person_is_asked_once_however_often_the_line_breaks(tmp_path: Path) -> None:
    network = Network(tmp_path, "a")
    asked = list[str]()
    answer = threading.Event()

    def confirm(contract: Contract) -> bool:
        asked.append(contract.run)
        return answer.wait(60)

    with network.serve(contract_for("a")) as parties:
        wire = Wire(parties.port)
        network.start(
            network.participant(
                "a", policy=replace(POLICY, accept="ask"), confirm=confirm
            ),
            wire.port,
            longest_pause=0.1,
        )
        for _ in range(3):
            until(lambda: parties.status()["parties"]["a"]["reading"], 60)
            wire.cut()
            until(lambda: not parties.status()["parties"]["a"]["reading"], 60)
        answer.set()
        parties.wait(60)
        assert asked == ["run-1"]
    network.join_all()
    wire.close()
    assert not network.errors


def kept(place: Path) -> set[str]:
    """The files of the only contract that was signed there."""
    (folder,) = place.iterdir()
    return {file.name for file in folder.iterdir()}


# What people see


def test_a_server_that_is_refused_tells_all_and_offers_the_next_contract_in_the_same_folder(
    desk: Desk,
) -> None:
    desk.found()
    desk.change("policy.toml", epsilon_run=2.0)
    free = desk.folder / "free.toml"
    free.write_text(tomli_w.dumps(POLICY_FILE))
    server = desk.serve("--linger", 0)
    clinic = desk.join("clinic", policy=free)
    clinic.says("Signed the contract")
    insurer = desk.join("insurer")
    assert [one.end() for one in (server, insurer, clinic)] == [1, 1, 1]
    for terminal in (server, insurer, clinic):
        assert "insurer refuses the contract: ε=3 is above the ε=2" in " ".join(
            terminal.err.split()
        )
    assert "the run verti-gan-" in clinic.err
    refused = list((desk.folder / "joint" / "refused").iterdir())
    assert len(refused) == 1
    desk.change("run.toml", parties__insurer__epsilon=2.0)
    server = desk.serve()
    holders = [desk.join("clinic", policy=free), desk.join("insurer")]
    for terminal in (server, *holders):
        assert terminal.end() == 0, terminal.err
    with Ledger(desk.folder / "insurer" / "insurer.ledger") as ledger:
        assert ledger.spent() <= 2.0


def test_a_server_that_holds_offers_what_the_run_file_says_next(desk: Desk) -> None:
    desk.found()
    desk.change("policy.toml", epsilon_run=2.0)
    free = desk.folder / "free.toml"
    free.write_text(tomli_w.dumps(POLICY_FILE))
    server = desk.serve("--hold")
    clinic = desk.join("clinic", policy=free)
    clinic.says("Signed the contract")
    assert desk.join("insurer").end() == 1
    clinic.says(
        "the run waits, since its contract was refused: insurer refuses the contract: "
        "ε=3"
    )
    server.says("refused at port")
    until(
        lambda: (
            json.loads((desk.folder / "joint" / "status.json").read_text())["state"]
            == "refused"
        ),
        60,
    )
    body = tomllib.loads((desk.folder / "run.toml").read_text())
    body["parties"]["insurer"]["epsilon"] = 2.0
    (desk.folder / "run.toml").write_text("nothing")
    server.says("cannot be used")
    (desk.folder / "run.toml").write_text(tomli_w.dumps(body))
    server.says("its new contract is offered")
    insurer = desk.join("insurer")
    for terminal in (server, clinic, insurer):
        assert terminal.end() == 0, terminal.err

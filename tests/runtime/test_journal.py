"""What was answered is not computed or charged again, whoever is killed, whenever."""

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_cases import (
    FAILURES,
    Counting,
    Fail,
    Network,
    Next,
    contract_for,
    counting,
)

from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Ask, Keep, Return, Settle
from understudy.runtime import journal as journal_module
from understudy.runtime.journal import Answer, AskId, Journal
from understudy.runtime.session import Session
from understudy.runtime.wire import decode, encode

CONTRACT = contract_for("a", "b")
ROUNDS = 7


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return Network(tmp_path_factory.mktemp("network"), "a", "b")


def charges(ledger: Ledger) -> int:
    return sum(entry.count for entry in ledger.entries())


# Records


def written(folder: Path, *sizes: int) -> list[tuple[AskId, Answer]]:
    journal = Journal(folder)
    said = []
    for number, size in enumerate(sizes, 1):
        said.append((AskId("s", number), Answer("reply", os.urandom(size))))
        journal.write(said[-1][0], f"ask {number}", said[-1][1], b"state %d" % number)
    journal.close()
    return said


def last(folder: Path) -> tuple[Any, Any]:
    journal = Journal(folder)
    journal.close()
    return journal.last_answered, journal.before


def test_a_torn_record_leaves_the_one_before(tmp_path: Path) -> None:
    said = written(tmp_path, 50, 100, 150)
    whole = (tmp_path / "answers.0").read_bytes()
    _, entry = last(tmp_path)
    for cut in (
        entry.begin,
        entry.begin + 5,
        entry.begin + 25,
        entry.begin + 60,
        len(whole) - 1,
    ):
        (tmp_path / "answers.0").write_bytes(whole[:cut])
        assert last(tmp_path)[0] == said[1]
    (tmp_path / "answers.0").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert last(tmp_path)[0] == said[1]
    (tmp_path / "answers.0").write_bytes(whole + b"what a longer record left behind")
    assert last(tmp_path)[0] == said[2]


def test_what_an_older_and_longer_segment_left_behind_is_not_taken_for_a_record(
    tmp_path: Path,
) -> None:
    """Records of one length: what is overwritten ends where an old record begins."""
    journal = Journal(tmp_path)
    for number in range(1, 30):
        journal.write(
            AskId("s", number),
            "ask",
            Answer("reply", b"x"),
            b"",
            10 * number if number % 4 == 0 else None,
        )
        again = Journal(tmp_path)
        assert again.entries == journal.entries
        assert again.entries[-1].ask.number == number
        assert len({entry.segment for entry in again.entries}) <= 2
        again.close()
    journal.close()


def test_a_segment_that_grew_too_large_is_cut_and_its_last_answer_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "LARGEST", 2000)
    journal = Journal(tmp_path)
    for number in range(1, 40):
        journal.write(
            AskId("s", number), f"ask {number}", Answer("reply", bytes(300)), b""
        )
        assert last(tmp_path)[0][0].number == number
    assert not journal.begins("ask 1")
    assert sum(os.path.getsize(tmp_path / f"answers.{n}") for n in (0, 1)) < 8000
    journal.close()


# A server that comes back


class Server:
    """Asks in rounds, saves every second one as `protocols.checkpoint` does, and may be
    gone at any moment.
    """

    def __init__(self) -> None:
        self.saved: tuple[int, list[float]] | None = None
        self.sessions = 0

    def asks(self) -> Any:
        """The asks of a run from where it was saved; each is sent its answer; returns
        the numbers.
        """
        done, values = self.saved or (0, [])
        values = list(values)
        if self.saved is not None:
            yield Return(round=done)
        while done < ROUNDS:
            reply = yield Next(extra=done % 3)
            values.append(float(reply.number.value[0]))
            done += 1
            yield Settle()
            if done % 2 == 0:
                yield Keep(round=done)
                self.saved = done, list(values)
        return values


def played(network: Network, fates: list[str]) -> tuple[list[float], int]:
    """A run through these fates, one for each ask until they are used up: its numbers,
    and what was charged.
    """
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.rehearsal("a", Budget(1000.0, 1e-5))
        participant = network.participant(
            "a", folder=Path(folder), ledger=ledger, build=counting()
        )
        session = participant.open(CONTRACT)
        server = Server()
        fates = list(fates)
        while True:
            server.sessions += 1
            asks = server.asks()
            number = 0
            message = None
            try:
                while True:
                    ask: Ask = asks.send(message)
                    number += 1
                    name = AskId(f"s{server.sessions}", number)
                    fate = fates.pop() if fates else ""
                    body = session.answer(name, encode(ask)).body
                    if "party" in fate:
                        session.close()
                        session = participant.open(CONTRACT)
                    if "again" in fate:
                        assert decode(
                            session.answer(name, encode(ask)).body, Counting.messages
                        )
                    if "server" in fate:
                        break
                    message = decode(body, Counting.messages)
            except StopIteration as end:
                session.close()
                return end.value, charges(ledger)


@cache
def undisturbed(network: Network) -> tuple[list[float], int]:
    return played(network, [])


@pytest.mark.long
@given(
    st.lists(
        st.sampled_from(
            ["", "", "", "party", "again", "party again", "server", "party server"]
        ),
        max_size=40,
    )
)
@settings(max_examples=40, deadline=None)
def test_whoever_is_killed_the_run_ends_as_an_undisturbed_one_at_the_same_price(
    network: Network, fates: list[str]
) -> None:
    assert played(network, fates) == undisturbed(network)


def test_an_undisturbed_run_pays_for_each_round_once(network: Network) -> None:
    values, paid = undisturbed(network)
    assert (len(set(values)), paid) == (ROUNDS, ROUNDS)


@pytest.fixture
def opened(network: Network, tmp_path: Path) -> tuple[Callable[[], Session], Ledger]:
    ledger = Ledger.rehearsal("a", Budget(1000.0, 1e-5))
    participant = network.participant("a", folder=tmp_path, ledger=ledger)
    return lambda: participant.open(CONTRACT), ledger


def test_an_ask_that_differs_is_a_new_one_from_where_the_party_was(
    opened: tuple[Callable[[], Session], Ledger],
) -> None:
    session = opened[0]()
    ledger = opened[1]
    first = [
        session.answer(AskId("s1", n), encode(Next(extra=n))).body for n in (1, 2, 3)
    ]
    again = [
        session.answer(AskId("s2", n), encode(Next(extra=n if n < 3 else 9))).body
        for n in (1, 2, 3)
    ]
    assert again[:2] == first[:2]
    assert session._party.count == 3  # type: ignore[attr-defined]  # not the fourth: it was put back
    assert charges(ledger) == 4
    session.close()
    session = opened[0]()
    assert session.answer(AskId("s2", 3), encode(Next(extra=9))).body == again[2]
    session.close()


def test_a_refusal_is_not_repeated_to_a_server_that_comes_back(
    opened: tuple[Callable[[], Session], Ledger],
) -> None:
    """What stopped it may have been mended since."""
    session = opened[0]()
    ledger = opened[1]
    FAILURES["once"] = OSError("the disk is full")
    session.answer(AskId("s1", 1), encode(Next()))
    assert session.answer(AskId("s1", 2), encode(Fail(how="once"))).status == "refusal"
    assert session.answer(AskId("s1", 2), encode(Fail(how="once"))).status == "refusal"
    assert session.answer(AskId("s2", 1), encode(Next())).status == "reply"
    FAILURES["once"] = OSError("another")
    before = len(session._journal.entries)
    assert session.answer(AskId("s2", 2), encode(Fail(how="once"))).status == "refusal"
    assert len(session._journal.entries) == before
    assert charges(ledger) == 1
    session.close()

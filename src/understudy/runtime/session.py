"""A party's side of a run, whatever carries the bytes: sign the contract, answer, remember the answer.

Every answer is written down with the party's state, in one piece, before it is sent. So:

- A repeated ask gets the recorded answer; it is never computed or charged twice.
- A killed party, started again, goes on from its last answer.
- A kill after the charge and before the record leaves a charge without an answer. The repeated ask is then a new
  computation with new noise, and is charged again. To reuse the charge would be cheaper and wrong: where a crash
  depends on the rows, answering only the attempt that survived is a choice made by the rows.

Guarantee: nothing is answered before the contract is signed, or outside it: asks of other protocols, other
settings, above its size or its price. What crosses on a failure names neither rows nor files.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from understudy.errors import (
    AlignmentError,
    ArtefactError,
    BudgetExceeded,
    MessageError,
    PartyError,
    PrivacyError,
    UnderstudyError,
)
from understudy.pack import pack, unpack
from understudy.privacy.ledger import Ledger
from understudy.protocols.base import Ask, Party
from understudy.runtime.audit_log import AuditLog
from understudy.runtime.contract import Contract, ContractLedger, columns_of, digest_of
from understudy.runtime.identity import Invitation
from understudy.runtime.policy import Policy
from understudy.runtime.wire import decode, encode

# Texts that our own code writes for the other side. Any other may quote a value or a file of the holder's.
_SPOKEN = (BudgetExceeded, MessageError, AlignmentError, PartyError)
_LONGEST = 400


class AskId(NamedTuple):
    """Which ask: the server's session, and its number in it."""

    session: str
    number: int


@dataclass(frozen=True)
class Answer:
    """What goes back: "reply" with a message, or "refusal" with an error's kind and text."""

    status: str
    body: bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the body."""
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Seat:
    """What a holder brings to a federation: who it is, its rows behind `build`, its ledger and its policy.

    `description` is the public schema (or the features) of the rows, `people` how many there are. `build` makes
    the party of a signed contract with the ledger that it is given, in the folder that it is given. `confirm` is
    asked about each new contract where the policy says "ask"; without it such contracts are refused.
    """

    invitation: Invitation
    policy: Policy
    ledger: Ledger
    description: Any
    people: int
    build: Callable[[Contract, Ledger, Path], Party]
    folder: Path
    confirm: Callable[[Contract], bool] | None = None
    log: AuditLog = field(default_factory=lambda: AuditLog(None))

    @property
    def name(self) -> str:
        """The party's name."""
        return self.invitation.party

    def open(self, contract: Contract) -> "Session":
        """Check a contract against the policy, ask the holder if need be, and open its session.

        PartyError if it is refused. A contract that was accepted before is checked again and not asked about.
        """
        if contract.federation != self.invitation.federation:
            raise PartyError(f"{self.name} was invited to another federation. Nothing was read or sent.")
        folder = self.folder / contract.digest
        kept = folder / "contract.json"
        new = not kept.exists()
        spent = self.ledger.spent() if new else 0.0  # an accepted run is bound by its own price
        public = self.description
        self.policy.check(
            contract,
            self.name,
            schema=digest_of(public),
            columns=columns_of(public),
            people=self.people,
            spent=spent,
        )
        if new and self.policy.accept == "ask" and not (self.confirm is not None and self.confirm(contract)):
            self.log.write("contract refused", contract=contract.digest, why="the holder did not accept it")
            raise PartyError(f"{self.name}: its holder has not accepted this contract. Nothing was sent.")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if new:
            (draft := kept.with_suffix(".part")).write_text(contract.text, encoding="utf-8")
            draft.replace(kept)
            self.log.write("contract accepted", contract=contract.digest, run=contract.run)
        return Session(self, contract, folder)


class Session:
    """One signed contract at one party: takes asks as bytes, gives answers as bytes."""

    def __init__(self, seat: Seat, contract: Contract, folder: Path) -> None:
        self.seat, self.contract = seat, contract
        self.signature = seat.invitation.sign(contract.text.encode())
        self._journal = Journal(folder)
        self._lock = threading.Lock()
        try:
            self._party = self._opened(folder)
        except Exception as error:  # it may quote a row, so its text stays here
            self._journal.close()
            seat.log.write("failed", kind=type(error).__name__)
            raise PartyError(
                f"{seat.name}: cannot take part ({type(error).__name__}). Nothing was charged or sent."
            ) from error

    def answer(self, ask: AskId, data: bytes, *, expires: float | None = None) -> Answer:
        """The recorded answer, or a new one, recorded before it is returned.

        `expires` (of `time.monotonic`): an ask that waited longer for the one before it is neither computed nor
        charged. A failure of the disk is raised here, and nothing was sent.
        """
        with self._lock:
            last, log = self._journal.last, self.seat.log
            if last is not None and last.ask == ask:
                log.write("answer repeated", number=ask.number, status=last.answer.status)
                return last.answer
            if last is not None and last.ask.session == ask.session and ask.number < last.ask.number:
                return self._refused(MessageError(f"{self.seat.name}: ask {ask.number} is over."))
            if expires is not None and time.monotonic() > expires:
                return self._refused(PartyError(f"{self.seat.name}: the ask expired. Nothing was charged."))
            log.write("ask", number=ask.number, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            party = self._party
            try:
                answer = Answer(
                    "reply", encode(party.answer(self._decoded(party, data)), limit=self.contract.message)
                )
            except Exception as error:
                answer = self._refused(error)
            self._journal.write(Record(ask, answer, pack(party.state_dict())))
            log.write(answer.status, number=ask.number, bytes=len(answer.body), sha256=answer.digest)
            return answer

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _opened(self, folder: Path) -> Party:
        """The party, put where its last answer left it."""
        contract, seat = self.contract, self.seat
        ledger = ContractLedger(seat.ledger, contract.budgets[seat.name], contract.run)
        party = seat.build(contract, ledger, folder)
        if self._journal.last is not None:
            state = unpack(self._journal.last.state)
            if not isinstance(state, dict):
                raise ArtefactError(f"{seat.name}: its journal does not hold a party's state.")
            party.load_state_dict(state)
        return party

    def _decoded(self, party: Party, data: bytes) -> Ask:
        message = decode(data, party.messages, limit=self.contract.message)
        if not isinstance(message, Ask):
            raise MessageError(f"{self.seat.name}: {message.kind()} is not an ask.")
        config = getattr(message, "config", None)  # what every protocol calls its settings in an ask
        if isinstance(config, dict) and not self.contract.same_settings(config):
            raise MessageError(
                f"{self.seat.name}: {message.kind()} bears other settings than the contract. Nothing was charged."
            )
        return message

    def _refused(self, error: Exception) -> Answer:
        self.seat.log.write("failed", kind=type(error).__name__)
        return Answer("refusal", json.dumps(spoken(self.seat.name, error)).encode())


def spoken(party: str, error: Exception) -> dict[str, str]:
    """An error as the other side may know it: no row values, no paths."""
    kind = type(error).__name__ if isinstance(error, UnderstudyError) else "PartyError"
    if isinstance(error, _SPOKEN):
        text = str(error) if str(error).startswith(party) else f"{party}: {error}"
    elif isinstance(error, PrivacyError):
        text = f"{party}: its ledger or its privacy checks stopped the answer. Nothing was sent."
    else:
        text = f"{party}: failed inside ({type(error).__name__}). Nothing was sent; its own log says more."
    return {"kind": kind, "text": text[:_LONGEST]}


@dataclass(frozen=True)
class Record:
    """The last ask, its answer, and the party's state after it."""

    ask: AskId
    answer: Answer
    state: bytes


class Journal:
    """The last record, on disk. Two slots are overwritten in turn, each whole by its own digests.

    Overwriting in place and syncing the data costs half of what a new file and a rename do. A power cut can
    spoil only the slot that was being written; the other still holds the record before.
    """

    _MARK = b"understudy answer 1\n"

    def __init__(self, folder: Path) -> None:
        self._slots = [os.open(folder / f"answer.{n}", os.O_RDWR | os.O_CREAT, 0o600) for n in (0, 1)]
        found = [one for one in map(self._read, self._slots) if one is not None]
        self._serial = max((serial for serial, _ in found), default=0)
        self.last: Record | None = dict(found).get(self._serial)

    def write(self, record: Record) -> None:
        """Durable on return."""
        serial, answer = self._serial + 1, record.answer
        head = json.dumps({
            "serial": serial, "session": record.ask.session, "number": record.ask.number,
            "status": answer.status, "answer": len(answer.body), "answer_sha256": answer.digest,
            "state": len(record.state), "state_sha256": hashlib.sha256(record.state).hexdigest(),
        }).encode()  # fmt: skip
        front = b"".join((self._MARK, hashlib.sha256(head).digest(), len(head).to_bytes(4, "big"), head))
        slot, place = self._slots[serial % 2], 0
        for part in (front, answer.body, record.state):
            view = memoryview(part)
            while view:
                done = os.pwrite(slot, view, place)
                view, place = view[done:], place + done
        os.fdatasync(slot) if hasattr(os, "fdatasync") else os.fsync(slot)
        self._serial, self.last = serial, record

    def _read(self, slot: int) -> tuple[int, Record] | None:
        """The record in a slot, or None if it is not whole."""
        with os.fdopen(os.dup(slot), "rb") as file:
            file.seek(0)
            mark, digest, size = file.read(len(self._MARK)), file.read(32), file.read(4)
            text = file.read(min(int.from_bytes(size, "big"), 1 << 16))
            if mark != self._MARK or hashlib.sha256(text).digest() != digest:
                return None
            head = json.loads(text)
            body, state = file.read(head["answer"]), file.read(head["state"])
        answer = Answer(head["status"], body)
        if (answer.digest, hashlib.sha256(state).hexdigest()) != (
            head["answer_sha256"],
            head["state_sha256"],
        ):
            return None
        return head["serial"], Record(AskId(head["session"], head["number"]), answer, state)

    def close(self) -> None:
        """Close both files."""
        for slot in self._slots:
            os.close(slot)
        self._slots = []

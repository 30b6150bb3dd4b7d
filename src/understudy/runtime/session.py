"""A party's side of a run, whatever carries the bytes: sign the contract, answer,
remember the answer.

Every answer is written down with the party's state, in one piece, before it is sent
(`runtime.journal`): a repeated ask gets the recorded answer, and a killed party,
started again, resumes from its last one.

- When the server has ended the run, the records and states are deleted: nobody can ask
  for them any more. The contract stays, marked as ended, and is never opened again;
  what was paid stands in the ledger.
- A kill after the charge and before the record leaves a charge without an answer. The
  repeated ask is then a new computation with new noise, and is charged again. To reuse
  the charge would be cheaper and wrong: where a crash depends on the rows, answering
  only the attempt that survived is a choice made by the rows.

Guarantee: nothing is answered before the contract is signed, or outside it: asks of
other protocols, other settings, above its size or its price. What crosses on a failure
names neither rows nor files.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from understudy.data.shared_columns import run_schema
from understudy.ground.durable import own_folder, replace
from understudy.ground.errors import (
    ArtefactError,
    Effect,
    MessageError,
    PartyError,
    SchemaError,
    UnderstudyError,
)
from understudy.ground.pack import pack, unpack
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core import (
    Ask,
    Assembly,
    Keep,
    Opening,
    Party,
    Return,
    Settle,
)
from understudy.runtime.contract import (
    Contract,
    Policy,
    columns_of,
    digest_of,
    units_of,
)
from understudy.runtime.identity import Invitation
from understudy.runtime.journal import Answer, AskId, AuditLog, Journal
from understudy.runtime.wire import decode, encode, spoken_bytes

ENDED = "ended"  # a file beside a contract whose run is over


@dataclass(frozen=True, kw_only=True)
class Participant:
    """What a holder brings to a federation: who it is, its rows behind `build`, its
    ledger and its policy.

    `description` is the public schema (or the features) of the rows, `people` how many
    there are. `build` makes the party of a signed contract with the ledger that it is
    given, in the folder that it is given. `confirm` is asked about each new contract
    where the policy says "ask"; without it such contracts are refused. `withdraw` is
    told that nobody waits for that answer any more, and makes `confirm` return.
    `examine` raises where the protocol refuses the settings of a contract, which is
    then not signed, whatever the policy says.
    """

    invitation: Invitation
    policy: Policy
    ledger: Ledger
    description: Any
    people: int
    build: Callable[[Contract, Ledger, Path], Party]
    folder: Path
    confirm: Callable[[Contract], bool] | None = None
    withdraw: Callable[[Contract], None] | None = None
    examine: Callable[[Contract], object] | None = None
    log: AuditLog = field(default_factory=lambda: AuditLog(None))

    @property
    def name(self) -> str:
        return self.invitation.party

    def open(self, contract: Contract) -> "Session":
        """Check a contract against the policy, ask the holder unless accepted before,
        open it; or PartyError.
        """
        if contract.federation != self.invitation.federation:
            raise PartyError(
                f"{self.name} was invited to another federation.",
                effect=Effect.NOTHING_READ_CHARGED_OR_SENT,
            )
        if self.ended(contract):
            raise PartyError(
                f"{self.name}: the run {contract.run} is over here.",
                effect=Effect.NOTHING_READ_CHARGED_OR_SENT,
            )
        folder = self.folder / contract.digest
        file = folder / "contract.json"
        new = not file.exists()
        # an accepted run is bound by its own price
        spent = self.ledger.spent() if new else 0.0
        public = self._description_in(contract)
        self.policy.check(
            contract,
            self.name,
            schema=digest_of(public),
            columns=columns_of(public),
            people=self.people,
            spent=spent,
            unit=units_of({self.name: public}).get(self.name, "person"),
        )
        self._examine(contract)
        if (
            new
            and self.policy.accept == "ask"
            and not (self.confirm is not None and self.confirm(contract))
        ):
            self.log.write(
                "contract refused",
                contract=contract.digest,
                why="the holder did not accept it",
            )
            raise PartyError(
                f"{self.name}: its holder has not accepted this contract.",
                effect=Effect.NOTHING_SENT,
            )
        own_folder(folder)
        if new:
            replace(file, contract.text.encode())
        self.log.write(
            "contract accepted" if new else "contract resumed",
            contract=contract.digest,
            run=contract.run,
        )
        return Session(self, contract, folder)

    def _description_in(self, contract: Contract) -> Any:
        """What is public of the rows that this contract takes: all, but for columns of
        which another holder's copy is used.
        """
        try:
            return run_schema(self.name, self.description, contract.shared_columns)
        except SchemaError as error:
            raise PartyError(
                f"{self.name} refuses the contract: {error.message}",
                effect=Effect.NOTHING_READ_CHARGED_OR_SENT,
            ) from None

    def ended(self, contract: Contract) -> bool:
        """Whether the server has ended the run of this contract here: then it is not
        opened again.
        """
        return (self.folder / contract.digest / ENDED).exists()

    def sweep(self) -> None:
        """Delete what a process that was killed at a run's end has left of its
        records.
        """
        for mark in self.folder.glob(f"*/{ENDED}"):
            _forget(mark.parent)

    def _examine(self, contract: Contract) -> None:
        if self.examine is None:
            return
        try:
            self.examine(contract)
        except (
            UnderstudyError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
        ) as error:
            self.log.write(
                "contract refused", contract=contract.digest, why="its settings"
            )
            raise PartyError(
                f"{self.name} refuses the contract: {contract.protocol} does not run "
                f"with its settings ({error}).",
                effect=Effect.NOTHING_READ_CHARGED_OR_SENT,
            ) from None


class Session:
    """One signed contract at one party: takes asks as bytes, gives answers as bytes."""

    def __init__(
        self, participant: Participant, contract: Contract, folder: Path
    ) -> None:
        self.participant = participant
        self.contract = contract
        self._folder = folder
        self.signature = participant.invitation.sign(contract.text.encode())
        self._journal = Journal(folder)
        self._lock = threading.Lock()
        try:
            self._party = self._restored()
        except Exception as error:  # it may quote a row, so its text stays here
            self._journal.close()
            participant.log.write("failed", kind=type(error).__name__)
            raise PartyError(
                f"{participant.name}: cannot take part ({type(error).__name__}).",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            ) from error
        self._behind = False  # the party has not been moved along with a repetition

    def answer(
        self, ask: AskId, data: bytes | bytearray, *, expires: float | None = None
    ) -> Answer:
        """The recorded answer, or a new one, recorded before it is returned. `expires`
        (of `time.monotonic`): an ask that waited longer for the one before it is
        neither computed nor charged.
        """
        with self._lock:
            last = self._journal.last_answered
            log = self.participant.log
            if last is not None and last[0] == ask:
                log.write("answer repeated", number=ask.number, status=last[1].status)
                return last[1]
            if (
                last is not None
                and last[0].session == ask.session
                and ask.number < last[0].number
            ):
                return self._refused(
                    MessageError(f"{self.participant.name}: ask {ask.number} is over.")
                )
            if expires is not None and time.monotonic() > expires:
                return self._refused(
                    PartyError(
                        f"{self.participant.name}: the ask expired.",
                        effect=Effect.NOTHING_CHARGED,
                    )
                )
            digest = hashlib.sha256(data).hexdigest()
            log.write("ask", number=ask.number, bytes=len(data), sha256=digest)
            if (
                last is not None
                and last[0].session != ask.session
                and self._journal.begins(digest)
            ):
                self._journal.position = 0  # a server that begins again
            repeated = self._journal.repeat(ask, digest)
            if repeated is not None:
                self._behind = True
                log.write("answer repeated", number=ask.number, status=repeated.status)
                return repeated
            return self._new(ask, data, digest)

    def close(self) -> None:
        self._journal.close()

    def end(self) -> None:
        """The server has ended the run: it is marked as ended, and then its records and
        states are deleted.
        """
        self._journal.close()
        replace(self._folder / ENDED, b"", sync=True)
        _forget(self._folder)

    def _new(self, ask: AskId, data: bytes | bytearray, digest: str) -> Answer:
        """Compute an answer from where the party stands, and record it."""
        message: Ask | None = None
        try:
            message = self._decoded(data)
            if self._behind or self._journal.position < len(self._journal.entries):
                self._party = self._restored()
                self._behind = False
            answer = Answer(
                "reply",
                encode(self._party.answer(message), limit=self.contract.message),
            )
        except Exception as error:
            answer = self._refused(error)
        # the latter is the ledger's word of this moment
        if message is None or isinstance(message, Settle):
            return answer  # nothing has changed by it
        segment = (
            self._journal.segment_at(message.round)
            if isinstance(message, Return)
            else None
        )
        if segment is not None and answer.status == "reply":
            self._journal.go_to(segment, ask, answer)
        else:
            round = (
                message.round
                if isinstance(message, Keep) and answer.status == "reply"
                else None
            )
            self._journal.write(
                ask, digest, answer, pack(self._party.state_dict()), round
            )
        self.participant.log.write(
            answer.status,
            number=ask.number,
            bytes=len(answer.body),
            sha256=answer.digest,
        )
        return answer

    def _restored(self) -> Party:
        """The party, built anew and put where the journal says."""
        contract = self.contract
        participant = self.participant
        journal = self._journal
        ledger = participant.ledger.within(
            contract.run, contract.budgets[participant.name]
        )
        party = participant.build(contract, ledger, self._folder)
        entry = journal.before
        if entry is not None:
            state = unpack(journal.state(entry))
            if not isinstance(state, dict):
                raise ArtefactError(
                    f"{participant.name}: its journal does not hold a party's state."
                )
            party.load_state_dict(state)
        elif journal.entries and journal.entries[0].segment >= 0:
            party.answer(Return(round=journal.entries[0].segment))
        return party

    def _decoded(self, data: bytes | bytearray) -> Ask:
        message = decode(data, self._party.messages, limit=self.contract.message)
        if not isinstance(message, Ask):
            raise MessageError(
                f"{self.participant.name}: {message.kind()} is not an ask."
            )
        if isinstance(message, Opening) and not self.contract.same_settings(
            message.config
        ):
            raise MessageError(
                f"{self.participant.name}: {message.kind()} has other settings than "
                "the contract.",
                effect=Effect.NOTHING_CHARGED,
            )
        if isinstance(message, Assembly) and not self.contract.same_parties(
            message.schemas
        ):
            raise MessageError(
                f"{self.participant.name}: {message.kind()} names other parties or "
                "schemas than the contract.",
                effect=Effect.NOTHING_CHARGED,
            )
        return message

    def _refused(self, error: Exception) -> Answer:
        self.participant.log.write("failed", kind=type(error).__name__)
        return Answer("refusal", spoken_bytes(self.participant.name, error))


def _forget(folder: Path) -> None:
    """Delete the records of a run and the party's states; the contract stays, and
    whatever else the party keeps.
    """
    for pattern in ("answers.*", "replay.json", "state-*.safetensors", "release.bin"):
        for file in folder.glob(pattern):
            file.unlink()

"""What a party has answered since the server could last have saved: on disk, before it
is sent.

Each record holds an ask's digest, the answer, and the party's state after it. Two files
take turns: every `Keep` (`protocols.base`) begins a new segment in the file whose
segment is the older one. So the answers since the last two saved rounds are always
there, since a server that is killed while it saves goes back to the round before.

A server that comes back asks the same again, from its saved round or from the
beginning. As long as an ask has the bytes that it had, it gets the recorded reply:
never computed or charged twice, and the server ends where it would have ended. The
first ask that differs, or whose answer was a refusal, is a new one: the party is put
back to where it was before it, and the records from there on are gone.

Guarantee: a record is whole by its own digests or not there; a power cut can spoil only
the one being written.
Edges: a segment of more than 1 GiB cannot be repeated from its start; then a killed
server's asks are paid again.

The audit log, at both ends, has one JSON line for each message exchanged or refused.
Lines are chained: each carries a digest over its own text and the line before, so that
a line which was changed or taken out shows (`verify_log`); cutting off the end does
not. No row, no path and no text of a peer's choosing goes in unescaped; message digests
do, so that two ends can compare what they saw.
"""

import hashlib
import json
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from understudy.ground.durable import own_file, replace_json
from understudy.ground.errors import ArtefactError

# segments that no Keep began: the run's first, and one that begins where another grew
# too large
START = -1
CUT = -2
LARGEST = 1 << 30  # bytes of a segment
_MARK = b"understudy answer 2\n"
_FIRST = "0" * 64  # what the first line of a log follows


class AskId(NamedTuple):
    """Which ask: the server's session, and its number in it."""

    session: str
    number: int


@dataclass(frozen=True)
class Answer:
    """What goes back: "reply" with a message, or "refusal" with an error's kind and
    text.
    """

    status: str
    body: bytes | bytearray

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A record, by where it lies. `segment` is the round whose Keep began it; `keep`
    the round that it kept itself.
    """

    file: int
    begin: int
    end: int
    serial: int
    segment: int
    keep: int | None
    ask: AskId
    digest: str
    status: str


class Journal:
    """The records of one session, and how far a returning server has come in them."""

    def __init__(self, folder: Path) -> None:
        self._note = folder / "replay.json"
        self._files = [own_file(folder / f"answers.{n}", os.O_RDWR) for n in (0, 1)]
        scanned = [entry for file in (0, 1) for entry in self._scan(file)]
        self.entries = sorted(scanned, key=lambda entry: entry.serial)
        self._serial = self.entries[-1].serial if self.entries else 0
        self.position = len(self.entries)
        self.last_answered: tuple[AskId, Answer] | None = (
            None  # the last ask, and what it got
        )
        if self.entries:
            self.last_answered = self.entries[-1].ask, self.answer(self.entries[-1])
            self._take_up()

    def answer(self, entry: Entry) -> Answer:
        return Answer(entry.status, self._parts(entry)[1])

    def state(self, entry: Entry) -> bytes:
        return self._parts(entry)[2]

    @property
    def before(self) -> Entry | None:
        """The record after which the party stands; None: at the beginning of the first
        segment.
        """
        return self.entries[self.position - 1] if self.position else None

    def write(
        self,
        ask: AskId,
        digest: str,
        answer: Answer,
        state: bytes,
        keep: int | None = None,
    ) -> None:
        """Record an answer where the party stands. Durable on return."""
        file, offset, segment = self._room()
        for stale in {entry.file for entry in self.entries[self.position :]} - {file}:
            os.ftruncate(self._files[stale], 0)
        del self.entries[self.position :]
        if offset == 0:
            self.entries = [entry for entry in self.entries if entry.file != file]
        head = {
            "serial": self._serial + 1,
            "segment": segment,
            "keep": keep,
            "session": ask.session,
            "number": ask.number,
            "ask": digest,
            "status": answer.status,
            "answer": len(answer.body),
            "answer_sha256": answer.digest,
            "state": len(state),
            "state_sha256": hashlib.sha256(state).hexdigest(),
        }
        text = json.dumps(head).encode()
        front = b"".join(
            (_MARK, hashlib.sha256(text).digest(), len(text).to_bytes(4, "big"), text)
        )
        end = offset + _write(self._files[file], offset, front, answer.body, state)
        os.fdatasync(self._files[file]) if hasattr(os, "fdatasync") else os.fsync(
            self._files[file]
        )
        self._serial += 1
        self.entries.append(_entry(file, offset, end, head))
        self.position = len(self.entries)
        self.last_answered = (ask, answer)

    def begins(self, digest: str) -> bool:
        """Whether this is the ask with which the run began, and all since is still
        here.
        """
        return (
            bool(self.entries)
            and self.entries[0].segment == START
            and self.entries[0].digest == digest
        )

    def segment_at(self, round: int) -> int | None:
        """Where the records since the Keep of this round begin; None if they are not
        here.
        """
        for position, entry in enumerate(self.entries):
            if entry.segment == round:
                return position
            if entry.keep == round and position + 1 == len(self.entries):
                return position + 1
        return None

    def go_to(self, position: int, ask: AskId, answer: Answer) -> None:
        """The server has gone back to here, and this was said: what is recorded after
        it may be repeated.
        """
        self.position = position
        self.last_answered = (ask, answer)
        self._save_note(answer.body.hex())

    def repeat(self, ask: AskId, digest: str) -> Answer | None:
        """The recorded reply, if this is the ask that comes next in the record."""
        if self.position == len(self.entries):
            return None
        entry = self.entries[self.position]
        if entry.digest != digest or entry.status != "reply":
            return None
        answer = self.answer(entry)
        self.position = self.position + 1
        self.last_answered = (ask, answer)
        self._save_note(None)
        return answer

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []

    def _room(self) -> tuple[int, int, int]:
        last = self.before
        if last is None:
            return (
                (self.entries[0].file, 0, self.entries[0].segment)
                if self.entries
                else (0, 0, START)
            )
        if last.keep is not None:
            return 1 - last.file, 0, last.keep
        if last.end > LARGEST:
            return 1 - last.file, 0, CUT
        return last.file, last.end, last.segment

    def _save_note(self, body: str | None) -> None:
        """Where we are, for a process that ends here; `body`: of an answer that is
        not the last record's.
        """
        assert self.last_answered is not None
        (session, number), answer = self.last_answered
        after = 0 if self.before is None else self.before.serial
        note = {
            "session": session,
            "number": number,
            "status": answer.status,
            "said": body,
        }
        replace_json(self._note, note | {"after": after, "last": self._serial})

    def _take_up(self) -> None:
        """Where a process was that ended in the middle of a repetition."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if note["last"] != self._serial:
            return  # something new was recorded since
        self.position = sum(entry.serial <= note["after"] for entry in self.entries)
        entry = self.before
        ask = AskId(note["session"], note["number"])
        if note["said"] is not None:
            self.last_answered = (
                ask,
                Answer(note["status"], bytes.fromhex(note["said"])),
            )
        elif entry is not None:
            self.last_answered = ask, self.answer(entry)

    def _scan(self, file: int) -> list[Entry]:
        """The records of a file that follow from one another."""
        entries: list[Entry] = []
        while (
            head := self._head(file, offset := entries[-1].end if entries else 0)
        ) is not None:
            text, front = head
            values = json.loads(text)
            entry = _entry(
                file,
                offset,
                offset + front + values["answer"] + values["state"],
                values,
            )
            if entries and (
                entry.serial <= entries[-1].serial
                or entry.segment != entries[-1].segment
            ):
                break  # what a longer segment left behind
            _, body, state = self._parts(entry)
            digests = (
                hashlib.sha256(body).hexdigest(),
                hashlib.sha256(state).hexdigest(),
            )
            if digests != (values["answer_sha256"], values["state_sha256"]):
                break
            entries.append(entry)
        return entries

    def _head(self, file: int, offset: int) -> tuple[bytes, int] | None:
        """A record's head and the length of all that stands before the answer; None if
        there is none.
        """
        front = os.pread(self._files[file], len(_MARK) + 36, offset)
        mark = front[: len(_MARK)]
        digest = front[len(_MARK) : -4]
        size = int.from_bytes(front[-4:], "big")
        if mark != _MARK or size > 1 << 16:
            return None
        text = os.pread(self._files[file], size, offset + len(front))
        return (
            (text, len(front) + size)
            if hashlib.sha256(text).digest() == digest
            else None
        )

    def _parts(self, entry: Entry) -> tuple[dict[str, Any], bytes, bytes]:
        record = self._head(entry.file, entry.begin)
        assert record is not None, "a record that was scanned is there"
        text, front = record
        head = json.loads(text)
        begin = entry.begin + front
        body = _read(self._files[entry.file], begin, head["answer"])
        return (
            head,
            body,
            _read(self._files[entry.file], begin + head["answer"], head["state"]),
        )


def _entry(file: int, begin: int, end: int, head: dict[str, Any]) -> Entry:
    return Entry(
        file,
        begin,
        end,
        head["serial"],
        head["segment"],
        head["keep"],
        AskId(head["session"], head["number"]),
        head["ask"],
        head["status"],
    )


def _write(file: int, offset: int, *parts: bytes | bytearray) -> int:
    """Write these one after the other, in one call where the system takes them whole;
    how many bytes they are.
    """
    views = [memoryview(part) for part in parts if part]
    written = 0
    while views:
        took = os.pwritev(file, views, offset + written)
        written += took
        while views and took >= len(views[0]):
            took -= len(views.pop(0))
        if took:
            views[0] = views[0][took:]
    return written


def _read(file: int, offset: int, size: int) -> bytes:
    parts = []
    while size and (part := os.pread(file, size, offset)):
        parts.append(part)
        offset = offset + len(part)
        size = size - len(part)
    return b"".join(parts)


class AuditLog:
    """Appends to one file; None for one that keeps nothing. A half line that a power
    cut left is dropped.
    """

    def __init__(self, path: str | Path | None) -> None:
        self._lock = threading.Lock()
        self._last = _FIRST
        self._file = None
        if path is None:
            return
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = own_file(path, os.O_RDWR | os.O_APPEND)
        whole = path.read_bytes()
        lines = whole[: whole.rfind(b"\n") + 1]
        os.truncate(handle, len(lines))
        if lines:
            self._last = str(json.loads(lines.splitlines()[-1])["chain"])
        self._file = os.fdopen(handle, "a", encoding="utf-8")

    def write(self, event: str, **facts: Any) -> None:
        """One line. It is with the operating system on return."""
        if self._file is None:
            return
        with self._lock:
            if self._file.closed:
                return
            line = {
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "event": event,
                **facts,
            }
            text = json.dumps(line)
            self._last = _link(self._last, text)
            self._file.write(f'{text[:-1]}, "chain": "{self._last}"}}\n')
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with self._lock:
                self._file.close()


def verify_log(path: str | Path) -> int:
    """How many lines stand unbroken. ArtefactError names the first that does not follow
    from the one before.
    """
    last = _FIRST
    number = 0
    for number, text in enumerate(
        Path(path).read_text(encoding="utf-8").splitlines(), 1
    ):
        try:
            line = json.loads(text)
            chain = line.pop("chain")
        except (ValueError, KeyError, AttributeError):
            raise ArtefactError(
                f"{Path(path).name}: line {number} is not a line of an audit log."
            ) from None
        if chain != (last := _link(last, json.dumps(line))):
            raise ArtefactError(
                f"{Path(path).name}: line {number} was changed, or one before it "
                "taken out."
            )
    return number


def _link(last: str, text: str) -> str:
    return hashlib.sha256((last + text).encode()).hexdigest()

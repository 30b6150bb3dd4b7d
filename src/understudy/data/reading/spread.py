"""A long table in parts: what is asked of each, who answers, and what comes back,
sealed.

A holder's rows are cut into n parts, by row groups of a file or as an engine has them.
A `Task` names what is done with each. Whoever has the rows of part i (a process here, a
machine that shares a folder, an engine's worker) gives back `answer_of` the task: how
many rows there are, a digest of their ids, and what was counted, without noise; when a
table is opened a mark of 8 bytes for each id, too. An answer is the holder's alone: it
is sealed under the task's key, and files of either are for their owner alone. An error
is one, too, so that no engine's log repeats what quotes rows.

Guarantee: what is found is what one process would have found, or nothing. An answer
that was changed, that is missing or there twice, of another run, stage, terms, schema
or cut, is refused in words. Whoever does a part again, as engines do, gives the same
counts.
Edges: without ids, rows that were counted in two parts show by their number alone.
"""

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from understudy.data.reading.sources import EngineFrame, Part, TableSource
from understudy.data.reading.written import Marks
from understudy.ground.errors import Effect, MessageError, PartyError, UnderstudyError
from understudy.ground.pack import pack, unpack

if TYPE_CHECKING:
    import pyarrow as pa

WORKS = (
    "understudy.data.table:checked_part",
    "understudy.protocols.joint.parts:counted_part",
)
_NOBODY = torch.empty(0, dtype=torch.int64)
_MARK = b"understudy part 1\n"
_NONCE = 12
_LARGEST = 1 << 36  # bytes of an answer: 8 for every person, and the counts
_WORDS = {
    "run": "run",
    "holder": "holder",
    "stage": "stage",
    "schema": "schema",
    "n_parts": "number of parts",
}


@dataclass(frozen=True)
class Task:
    """What is done with one holder's rows in `n_parts` parts. It has the key of the
    answers, and is the holder's alone.
    """

    work: str  # one of `WORKS`
    told: dict[str, Any]  # what it is given
    # run, holder, stage, schema: what an answer has to say of itself
    about: dict[str, str]
    n_parts: int
    key: bytes = field(repr=False)
    # the key under which ids are marked, the same for all tasks of a table
    ids: str = field(repr=False)
    # where all rows are, unless an engine has them
    source: dict[str, Any] | None = None

    @cached_property
    def head(self) -> dict[str, Any]:
        everything = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("key", "ids")
        }
        return self.about | {
            "n_parts": self.n_parts,
            "task": hashlib.sha256(pack(everything)).hexdigest(),
        }

    def to_bytes(self) -> bytes:
        return pack(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Task":
        try:
            return cls(**unpack(data))  # type: ignore[arg-type]
        except (MessageError, TypeError):
            raise PartyError(
                "a file is no task of a run.", effect=Effect.NOTHING_COMPUTED
            ) from None

    @cached_property
    def doing(self) -> Callable[["Piece"], dict[str, Any]]:
        """What finds in a part what is asked for."""
        if self.work not in WORKS:
            raise self.refusal("there is no such work.")
        module, function = self.work.split(":")
        work: Callable[[Piece], dict[str, Any]] = getattr(
            import_module(module), function
        )(self.told)
        return work

    def refusal(self, why: str) -> PartyError:
        """A server hears these words: they tell no number of people."""
        return PartyError(
            f"{self.about['holder']}: {why}", effect=Effect.NOTHING_CHARGED_OR_SENT
        )


class Piece(NamedTuple):
    """The rows of one part: where they are, which of these, and the key under which ids
    are marked.
    """

    source: "TableSource | pa.Table"
    part: Part
    key: str


class PartExecutor(Protocol):
    """Who answers a task for all parts, in whatever order; there are `n_parts`."""

    @property
    def n_parts(self) -> int: ...

    def __call__(self, task: Task) -> Iterable[bytes]: ...


@dataclass
class Cores:
    """All parts, by processes of this machine at the same time."""

    n_parts: int

    def __call__(self, task: Task) -> Iterable[bytes]:
        from understudy.ground.processes import in_processes

        task_bytes = task.to_bytes()
        asks = [
            number.to_bytes(8, "big") + task_bytes for number in range(task.n_parts)
        ]
        return in_processes("understudy.data.reading.spread:answered", asks)


def spread_of(
    origin: Any, named: PartExecutor | None, columns: list[str]
) -> PartExecutor | None:
    """Who reads these columns of a long table in parts: its engine, who was named, or
    all cores, if it is worth it.
    """
    from understudy.data.reading.stores import pieces_of

    if isinstance(origin, EngineFrame):
        return origin.narrowed(columns)
    if named is not None or not isinstance(origin, TableSource):
        return named if isinstance(origin, TableSource) else None
    of = pieces_of(origin, len(columns))
    return Cores(of) if of > 1 else None


def task_of(
    table: Any, work: str, terms: dict[str, Any], about: dict[str, str], key: bytes
) -> Task:
    source = (
        asdict(table.origin.within(Path.cwd()))
        if isinstance(table.origin, TableSource)
        else None
    )
    return Task(work, terms, about, table.spread.n_parts, key, table.ids, source)


def answered(ask: bytes) -> bytes:
    return answer_of(ask[8:], int.from_bytes(ask[:8], "big"))


def answer_of(
    task: bytes, number: int, rows: "TableSource | pa.Table | None" = None
) -> bytes:
    """Part `number`, from 0, of a task (`Task.to_bytes`), sealed. `rows`: an Arrow
    table of this part alone, as an engine has cut it; or where all rows are, if not
    where the task says.
    """
    sealed_task = _task_of(task)
    try:
        if not 0 <= number < sealed_task.n_parts:
            raise sealed_task.refusal(
                f"there is no part {number + 1} of {sealed_task.n_parts}."
            )
        if rows is None:
            rows = TableSource.from_dict(
                {k: v for k, v in (sealed_task.source or {}).items() if v is not None},
                "the task",
            )
        answer = sealed_task.doing(
            Piece(rows, (number, sealed_task.n_parts), sealed_task.ids)
        )
    except UnderstudyError as error:
        answer = {"error": error.to_dict()}
    except Exception as error:  # its text may quote rows, and is not repeated
        failed = sealed_task.refusal(
            f"a part could not be counted ({type(error).__name__})."
        )
        answer = {"error": failed.to_dict()}
    return sealed(sealed_task, number, answer)


# what a task takes to begin with, once for all parts
_task_of = lru_cache(maxsize=1)(Task.from_bytes)


def with_people(marks: Marks, **answer: Any) -> dict[str, Any]:
    """What was found in a part, with who was there."""
    return answer | {"rows": marks.rows, "people": marks.people}


def with_marks(marks: Marks) -> dict[str, Any]:
    return with_people(marks) | {
        "marks": torch.from_numpy(marks.in_order.view(np.int64))
    }


def sealed(task: Task, number: int, answer: dict[str, Any]) -> bytes:
    """An answer as a file has it: what it is of, in the clear, and what was found,
    which the task's key opens.
    """
    head = json.dumps(task.head | {"part": number}, sort_keys=True).encode()
    nonce = os.urandom(_NONCE)
    body = ChaCha20Poly1305(task.key).encrypt(nonce, pack(answer, limit=_LARGEST), head)
    return b"".join((_MARK, len(head).to_bytes(4, "big"), head, nonce, body))


def opened(task: Task, data: bytes) -> tuple[int, dict[str, Any]]:
    """A part's number and what was found in it. Edges: it is not one of this task →
    PartyError.
    """
    try:
        if not data.startswith(_MARK):
            raise ValueError
        start = len(_MARK) + 4
        size = int.from_bytes(data[start - 4 : start], "big")
        head = data[start : start + size]
        rest = data[start + size :]
        header = json.loads(head)
        number = header.pop("part")
        if not isinstance(header, dict) or type(number) is not int:
            raise ValueError
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise task.refusal("a file is no part of a count, or is cut off.") from None
    for key, word in _WORDS.items():
        if header.get(key) != task.head.get(key):
            raise task.refusal(f"a part that came is of another {word}.")
    if header != task.head or not 0 <= number < task.n_parts:
        raise task.refusal("a part that came is of other terms, or of none.")
    try:
        answer = unpack(
            ChaCha20Poly1305(task.key).decrypt(rest[:_NONCE], rest[_NONCE:], head),
            limit=_LARGEST,
        )
    except (InvalidTag, ValueError, MessageError):
        raise task.refusal(
            f"part {number + 1} of {task.n_parts} was changed, or sealed in "
            "another session."
        ) from None
    assert isinstance(answer, dict)
    return number, answer


def found_by(
    spread: PartExecutor,
    task: Task,
    receive: Callable[[dict[str, Any]], None] = lambda answer: None,
) -> Marks:
    """Who is in all parts, by marks where they tell these; what else is found in each
    is handed to `receive` as it comes. Edges: errors of a part are raised.
    """
    arrived: set[int] = set()
    marks = Marks()
    answers = iter(spread(task))
    try:
        for number, answer in (opened(task, data) for data in answers):
            if number in arrived:
                raise task.refusal(f"part {number + 1} of {task.n_parts} came twice.")
            if "error" in answer:
                raise UnderstudyError.from_dict(answer["error"])
            arrived.add(number)
            marks.parts[number] = answer.pop("rows"), answer.pop("people")
            marks.add(
                answer.pop("marks", _NOBODY).numpy().view(np.uint64),
                marks.parts[number][0],
            )
            receive(answer)
            for watch in _watchers:
                watch(len(arrived), task.n_parts)
    except UnderstudyError:
        raise
    except Exception as error:
        # of an engine: a server hears of it, and its text may quote rows
        raise task.refusal(
            f"a part could not be counted ({type(error).__name__})."
        ) from error
    finally:
        if isinstance(answers, Generator):
            # now, whoever still holds it: others wait for processes, and files lie in a
            # folder
            answers.close()
    missing = [
        str(number + 1) for number in range(task.n_parts) if number not in arrived
    ]
    if missing:
        raise task.refusal(
            f"part {', '.join(missing[:8])} of {task.n_parts} is missing."
        )
    return marks


_NAMED: ContextVar[PartExecutor | None] = ContextVar("who answers tasks", default=None)
# of this process: parts are awaited in whichever thread
_watchers: list[Callable[[int, int], None]] = []


@contextmanager
def counted_by(spread: PartExecutor) -> Iterator[None]:
    """Long tables that are opened within have their parts checked and counted by this
    one.
    """
    before = _NAMED.set(spread)
    try:
        yield
    finally:
        _NAMED.reset(before)


def named_spread() -> PartExecutor | None:
    return _NAMED.get()


@contextmanager
def parts_watched(watch: Callable[[int, int], None]) -> Iterator[None]:
    """It hears how many parts have come, of how many."""
    _watchers.append(watch)
    try:
        yield
    finally:
        _watchers.remove(watch)

"""Partial counts: what a stage counts over a part of a holder's rows, without noise. Parts add up before the noise.

A holder's rows are cut into n parts, by row groups of a file or as an engine has them. A `Job` says what is counted of
them: run, family, settings, schemas, and the stage with its terms. Whoever has the rows of part i, a process here or a
machine of the holder's cluster, gives back `part_of` the job: sums, the number of rows, and a mark of 8 bytes for each
id. The party opens all n, adds them up, and only then charges its ledger and draws noise, once.

A part holds exact counts: it is the holder's alone. It is sealed under a key of this session and this stage, which the
job holds; files of either are for their owner alone (`ground.durable`).

Guarantee: what is released is what one process would have counted, or nothing. A part that was changed, that is missing
or there twice, of another run, stage, terms, schema or cut, ids that are in two parts or twice in one, and other rows
than were opened: each is refused, in words, before anything is charged.
Edges: without ids, rows that were counted in two parts show by their number alone.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from torch import Tensor

from understudy.ground.errors import MessageError, PartyError, SchemaError
from understudy.ground.pack import pack, unpack
from understudy.protocols.joint.session import Session
from understudy.protocols.joint.stage import Choice, Holding, Stage, Study, settings_of

if TYPE_CHECKING:
    from understudy.data.reading.sources import TableSource

_MARK, _NONCE = b"understudy part 1\n", 12
_LARGEST = 1 << 36  # bytes of a part: 8 for every person, and the counts
_NOTHING = "Nothing was charged or sent."


@dataclass(frozen=True)
class Job:
    """What is counted, of one holder's rows in `of` parts. It has the key of its parts, and is the holder's alone."""

    run: str
    holder: str
    study: str  # "module:class"
    config: dict[str, Any]
    schemas: dict[str, Any]  # as the server told them
    schema: dict[str, Any]  # as the holder knows its own: it says who the rows are of
    stages: list[Any]  # [name, terms, noise], the one that is due last; before it those that it looks at
    of: int
    key: bytes = field(repr=False)

    @property
    def stage(self) -> str:
        return str(self.stages[-1][0])

    @property
    def about(self) -> dict[str, Any]:
        """What a part of it has to say of itself, besides its number."""
        told = {"run": self.run, "holder": self.holder, "stage": self.stage, "of": self.of}
        schema = hashlib.sha256(json.dumps([self.schemas, self.schema], sort_keys=True).encode()).hexdigest()
        everything = {name: value for name, value in asdict(self).items() if name != "key"}
        return told | {"schema": schema, "job": hashlib.sha256(pack(everything)).hexdigest()}

    def to_bytes(self) -> bytes:
        return pack(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Job":
        return cls(**unpack(data))  # type: ignore[arg-type]

    def refusal(self, why: str) -> PartyError:
        return PartyError(f"{self.holder}: {why} {_NOTHING}")


class Counter(Protocol):
    """Who counts parts: all of a job, of the rows of a source, in whatever order. `of`: how many there are."""

    of: int

    def __call__(self, job: Job, source: "TableSource") -> Iterable[bytes]: ...


_COUNTER: ContextVar[Counter | None] = ContextVar("who counts parts", default=None)


@contextmanager
def counted_by(counter: Counter) -> Iterator[None]:
    """Holders that are made within have their long tables counted by this one."""
    before = _COUNTER.set(counter)
    try:
        yield
    finally:
        _COUNTER.reset(before)


def current_counter() -> Counter | None:
    return _COUNTER.get()


def counted_in_parts(party: Any, session: Session, stage: Stage[Any]) -> dict[str, Tensor] | None:
    """A `JointParty`'s sums of the stage that is due, where a long table is counted in parts; else None."""
    kind, origin, counter = type(session.study), getattr(party.held, "origin", None), party.counter
    if origin is None or party.split or isinstance(stage, Choice) or party.begun is None or party.pair is None:
        return None
    if counter is None and not kind.__module__.startswith("understudy."):
        return None  # another process would not find it
    from understudy.data.reading.parquet import pieces_of

    schema, begun = party.held.schema, party.begun
    of = pieces_of(origin, len(schema.names) + 1) if counter is None else counter.of
    if counter is None and of < 2:
        return None
    noise = dict(zip(session.study.releases, session.agree.noise, strict=True))
    job = Job(
        party.run, party.name, f"{kind.__module__}:{kind.__qualname__}", begun.config, begun.schemas, schema.to_dict(),
        [[one, terms, noise[one]] for one, terms in session.terms.items()], of,
        hmac.digest(party.pair.secret, b"understudy parts " + session.about, "sha256"),
    )  # fmt: skip
    return merged(job, (counter or in_all_cores)(job, origin), party.held.rows)


def in_all_cores(job: Job, source: "TableSource") -> Iterable[bytes]:
    """All parts, counted by processes of this machine at the same time."""
    from understudy.ground.processes import in_processes

    told = {"job": job.to_bytes(), "source": asdict(source)}
    asks = [pack(told | {"number": number}) for number in range(job.of)]
    return in_processes("understudy.protocols.joint.parts:answered", asks)


def answered(told: bytes) -> bytes:
    """What another process is asked for."""
    from understudy.data.reading.sources import TableSource

    asked: Any = unpack(told)
    source = TableSource(**asked["source"] | {"missing": tuple(asked["source"]["missing"])})
    return part_of(asked["job"], asked["number"], source)


def part_of(job: bytes, number: int, source: "TableSource", *, cut: bool = True) -> bytes:
    """Part `number` of a job (`Job.to_bytes`), from 0, sealed: of a source that holds all rows, or, where an engine has
    `cut` them itself (False), those of this part alone.

    Edges: rows that do not fit the schema, or a person who is in it twice → PartyError, which names neither.
    """
    from understudy.data.reading.sources import ALL
    from understudy.data.table import StreamedTable

    own = Job.from_bytes(job)
    if not 0 <= number < own.of:
        raise own.refusal(f"there is no part {number + 1} of {own.of}.")
    study, stage = _stage_of(own)
    part = (number, own.of) if cut else ALL
    key = hmac.digest(own.key, b"understudy ids", "sha256").hex()[:16]
    table = StreamedTable(source, study.schema_of(own.schema), part, key)
    rows = study.rows(Holding(own.holder, table, None, _nothing_is_drawn))
    try:
        sums = stage.count(rows)
    except (PartyError, SchemaError):  # which may quote rows, and speak of a charge
        raise own.refusal("its rows cannot be read again as they were when the table was opened.") from None
    marks = torch.from_numpy(table.marks.all.view(np.int64))
    return sealed(own, number, {"rows": table.marks.rows, "marks": marks, "sums": sums})


def _stage_of(job: Job) -> tuple[Study[Any], Stage[Any]]:
    module, name = job.study.split(":")
    kind: type[Study[Any]] = getattr(import_module(module), name)
    schemas = {one: kind.schema_of(schema) for one, schema in job.schemas.items()}
    study = kind(settings_of(kind.settings, job.config, kind.settled), schemas)
    before: dict[str, Stage[Any]] = {}
    for one, terms, noise in job.stages:
        stage = study.stage(one, terms, noise, before)
        if one in study.lasting:
            before[one] = stage
    return study, stage


def _nothing_is_drawn() -> Any:
    raise PartyError("rows that are drawn are not counted in parts.")


def sealed(job: Job, number: int, counts: dict[str, Any]) -> bytes:
    """A part as a file has it: what it is of, in the clear, and the counts, which the job's key opens."""
    head = json.dumps(job.about | {"part": number}, sort_keys=True).encode()
    nonce = os.urandom(_NONCE)
    body = ChaCha20Poly1305(job.key).encrypt(nonce, pack(counts, limit=_LARGEST), head)
    return b"".join((_MARK, len(head).to_bytes(4, "big"), head, nonce, body))


def opened(job: Job, data: bytes) -> tuple[int, dict[str, Any]]:
    """A part's number and its counts. Edges: it is not one of this job → PartyError."""
    try:
        if not data.startswith(_MARK):
            raise ValueError
        start = len(_MARK) + 4
        size = int.from_bytes(data[start - 4 : start], "big")
        head, rest = data[start : start + size], data[start + size :]
        said = json.loads(head)
        number = said.pop("part")
        if not isinstance(said, dict) or type(number) is not int:
            raise ValueError
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise job.refusal("a file is no part of a count, or is cut off.") from None
    about = job.about
    words = {"run": "run", "holder": "holder", "stage": "stage", "schema": "schema", "of": "number of parts"}
    for key, word in words.items():
        if said.get(key) != about[key]:
            raise job.refusal(f"a part that came is of another {word}.")
    if said != about or not 0 <= number < job.of:
        raise job.refusal("a part that came is of other terms, or of none.")
    try:
        found = unpack(ChaCha20Poly1305(job.key).decrypt(rest[:_NONCE], rest[_NONCE:], head), limit=_LARGEST)
    except (InvalidTag, ValueError, MessageError):
        raise job.refusal(f"part {number + 1} of {job.of} was changed, or sealed in another session.") from None
    assert isinstance(found, dict)
    return number, found


def merged(job: Job, parts: Iterable[bytes], rows: int | None) -> dict[str, Tensor]:
    """The sums over all parts; `rows`: how many there were when the table was opened, where that is known."""
    from understudy.data.reading.coded import Marks

    found: dict[int, dict[str, Any]] = {}
    for number, counts in (opened(job, part) for part in parts):
        if number in found:
            raise job.refusal(f"part {number + 1} of {job.of} came twice.")
        found[number] = counts
    if missing := [str(number + 1) for number in range(job.of) if number not in found]:
        raise job.refusal(f"part {', '.join(missing[:8])} of {job.of} is missing.")
    marks = Marks()
    for counts in found.values():
        marks.add(counts["marks"].numpy().view(np.uint64), counts["rows"])
    # A server hears these words, and how many people there are is not for it.
    if marks.repeated:
        raise job.refusal("an id is in two parts, or twice in one: a person counts once.")
    if rows is not None and marks.rows != rows:
        raise job.refusal("the parts have more or fewer rows together than the table that was opened.")
    sums = [counts["sums"] for counts in found.values()]
    shapes = [{key: (part.dtype, part.shape) for key, part in one.items()} for one in sums]
    if any(shape != shapes[0] for shape in shapes):
        raise job.refusal("the parts do not count the same.")
    return {key: torch.stack([one[key] for one in sums]).sum(0) for key in sums[0]}

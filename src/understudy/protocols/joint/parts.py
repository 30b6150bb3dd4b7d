"""Partial counts: what a stage counts over a part of a holder's rows, without noise.
Parts add up before the noise.

Who has the parts, and how what they count is sealed and opened, is for
`data/reading/spread.py`. A `Job` says what is counted: run, family, settings, schemas,
and the stage with its terms. The party adds all parts up, and only then charges its
ledger and draws noise, once.

Guarantee: what is released is what one process would have counted, or nothing. Besides
what `spread` refuses, ids that are in two parts or twice in one, and other rows than
were opened, are refused, in words, before anything is charged.
"""

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import Tensor

from understudy.ground.errors import Effect, PartyError, SchemaError
from understudy.protocols.joint.session import Session
from understudy.protocols.joint.stage import Choice, Holding, Stage, Study, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from understudy.data.reading.spread import Piece, Task
    from understudy.data.table import StreamedTable


@dataclass(frozen=True)
class Job:
    """What is counted of one holder's rows."""

    run: str
    holder: str
    study: str  # "module:class"
    config: dict[str, Any]
    schemas: dict[str, Any]  # as the server told them
    schema: dict[str, Any]  # as the holder knows its own: it says who the rows are of
    # [name, terms, noise], the one that is due last; before it those that it looks at
    stages: list[Any]

    def of_table(self, table: "StreamedTable", key: bytes) -> "Task":
        """What parts of the table are asked for, and give back under this key."""
        schema = hashlib.sha256(
            json.dumps([self.schemas, self.schema], sort_keys=True).encode()
        ).hexdigest()
        about = {
            "run": self.run,
            "holder": self.holder,
            "stage": str(self.stages[-1][0]),
            "schema": schema,
        }
        from understudy.data.reading.spread import task_of

        return task_of(
            table,
            "understudy.protocols.joint.parts:counted_part",
            asdict(self),
            about,
            key,
        )


def counted_in_parts(
    party: Any, session: Session, stage: Stage[Any]
) -> dict[str, Tensor] | None:
    """A `JointParty`'s sums of the stage that is due, where a long table is counted in
    parts; else None.
    """
    kind = type(session.study)
    spread = getattr(party.held, "spread", None)
    if (
        spread is None
        or party.split
        or isinstance(stage, Choice)
        or party.begun is None
        or party.pair is None
    ):
        return None
    from understudy.data.reading.spread import Cores

    if isinstance(spread, Cores) and not kind.__module__.startswith("understudy."):
        return None  # another process would not find it
    begun = party.begun
    noise = dict(zip(session.study.releases, session.agree.noise, strict=True))
    job = Job(
        party.run,
        party.name,
        f"{kind.__module__}:{kind.__qualname__}",
        begun.config,
        begun.schemas,
        party.held.schema.to_dict(),
        [[one, terms, noise[one]] for one, terms in session.terms.items()],
    )
    key = hmac.digest(party.pair.secret, b"understudy parts " + session.about, "sha256")
    return merged(job.of_table(party.held, key), party.held)


def counted_part(told: dict[str, Any]) -> "Callable[[Piece], dict[str, Any]]":
    """What a part has of a job.
    Edges: rows that do not fit the schema, or a person who is in it twice → PartyError,
    which names neither.
    """
    from understudy.data.reading.spread import with_people
    from understudy.data.table import StreamedTable

    job = Job(**told)
    study, stage = _stage_of(job)
    schema = study.schema_of(job.schema)

    def count_piece(piece: "Piece") -> dict[str, Any]:
        table = StreamedTable(piece.source, schema, piece.part, piece.key)
        rows = study.rows(Holding(job.holder, table, None, _nothing_is_drawn))
        try:
            sums = stage.count(rows)
        except (PartyError, SchemaError):  # which may quote rows, and speak of a charge
            raise PartyError(
                f"{job.holder}: its rows cannot be read again as they were when the "
                "table was opened.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            ) from None
        return with_people(table.marks, sums=sums)

    return count_piece


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


def merged(task: "Task", table: "StreamedTable") -> dict[str, Tensor]:
    """The sums over all parts of the table; in each are those who were there when it
    was opened, none of them twice.
    """
    from understudy.data.reading.spread import found_by

    sums: dict[str, Tensor] = {}

    def added(found: dict[str, Any]) -> None:
        if not sums:
            sums.update({key: part.clone() for key, part in found["sums"].items()})
            return
        if _shapes(found["sums"]) != _shapes(sums):
            raise task.refusal("the parts do not count the same.")
        for key, part in found["sums"].items():
            sums[key] += part

    # A server hears these words: how many people there are, and in which part one of
    # them changed, is not for it.
    if table.repeated:
        raise task.refusal(
            "an id is in two parts, or twice in one: a person counts once."
        )
    assert table.spread is not None
    now = found_by(table.spread, task, added).parts
    if any(now[number] != table.parts.get(number) for number in range(task.n_parts)):
        raise task.refusal("a part has other rows than when the table was opened.")
    return sums


def _shapes(sums: dict[str, Tensor]) -> dict[str, Any]:
    return {key: (part.dtype, part.shape) for key, part in sums.items()}

"""Partial counts: they add up to what one process counts, and none is counted twice,
left out or taken for another.
"""

import json
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from refusals import raises
from unbinned import BUDGET, FRAME, SCHEMA, SMALL
from understudy.api.train import train
from understudy.data.reading import files, stores
from understudy.data.reading.sources import TableSource
from understudy.data.reading.spread import Task, answer_of, counted_by, opened, sealed
from understudy.data.reading.workers import InFolder, count_in_folder
from understudy.data.table import StreamedTable, open_table
from understudy.ground import processes
from understudy.ground.errors import ConfigError, Effect, PartyError, SchemaError
from understudy.protocols.joint.parts import merged
from understudy.runs.federation import Federation

pytestmark = pytest.mark.usefixtures("short_fits")


@dataclass
class Here:
    """Parts are counted one after the other, in this process; tasks are kept, and
    `wrong` has a word at the end.
    """

    n_parts: int = 4
    jobs: list[Task] = field(default_factory=list)
    wrong: Any = None

    def __call__(self, job: Task) -> Iterable[bytes]:
        if "run" not in job.about:  # the table is opened
            return [answer_of(job.to_bytes(), number) for number in range(job.n_parts)]
        self.jobs.append(job)
        parts = [answer_of(job.to_bytes(), number) for number in range(job.n_parts)]
        return parts if self.wrong is None else self.wrong(job, parts)


@pytest.fixture(autouse=True)
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONG", 0)


@pytest.fixture
def source(tmp_path: Path) -> TableSource:
    return kept(tmp_path / "t.parquet")


def kept(path: Path, frame: pd.DataFrame = FRAME) -> TableSource:
    frame.to_parquet(path, index=False, row_group_size=16)
    return TableSource(table=str(path))


def run(source: Any, counter: Any = None, **more: Any) -> tuple[Any, Federation]:
    with nullcontext() if counter is None else counted_by(counter):
        federation = Federation.rehearsal(
            {"one": source}, {"one": SCHEMA}, budget=BUDGET, seed=3
        )
        return train("gram", federation, run="r", **SMALL, **more).generator, federation


TARGET: dict[str, Any] = {"target": SCHEMA.names[0], "triples": (SCHEMA.names[:3],)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "parts"), [({}, (1, 10, 23)), ({"fine": 0.0}, (3,)), (TARGET, (3,))]
)
def test_a_release_of_parts_is_that_of_the_whole_to_the_bit(
    source: TableSource, settings: dict[str, Any], parts: tuple[int, ...]
) -> None:
    whole, first = run(source, **settings)
    for n_parts in parts:
        made, second = run(source, Here(n_parts), **settings)
        pd.testing.assert_frame_equal(whole.sample(50, seed=1), made.sample(50, seed=1))
        assert whole.card == made.card
        ledgers = [
            [entry.description for entry in own.holders["one"].ledger.entries()]
            for own in (first, second)
        ]
        assert len(ledgers[0]) == len(ledgers[1])


@pytest.mark.long
def test_processes_of_their_own_count_the_same(
    source: TableSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = run(source)
    monkeypatch.setattr(stores, "SPREAD", 0)
    monkeypatch.setenv(processes.VARIABLE, "2")
    asked = []
    monkeypatch.setattr(processes, "process_count", lambda: asked.append(1) or 2)
    assert open_table(source, SCHEMA).rows == len(FRAME)
    parts, _ = run(source)
    assert len(asked) >= 3  # to open it, and for two releases
    pd.testing.assert_frame_equal(whole.sample(50, seed=1), parts.sample(50, seed=1))


def test_what_is_wrong_with_a_row_is_said_by_whichever_process_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "SPREAD", 0)
    monkeypatch.setenv(processes.VARIABLE, "2")
    wrong = FRAME.assign(age=FRAME.age.where(FRAME.index != 120, 400))
    with pytest.raises(
        SchemaError, match=r'column "age": value 400 at row 121 is above'
    ):
        open_table(kept(tmp_path / "t.parquet", wrong), SCHEMA)
    twice = pd.concat([FRAME, FRAME[:1]])
    with pytest.raises(SchemaError, match="1 rows have the id of an earlier row"):
        open_table(kept(tmp_path / "t.parquet", twice), SCHEMA)


@pytest.mark.parametrize("said", ["0", "-1", "two", "1.5"])
def test_a_number_of_processes_that_is_none_is_refused(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(processes.VARIABLE, said)
    with pytest.raises(ConfigError, match=processes.VARIABLE):
        processes.process_count()


def forged(whole: bytes, **head: Any) -> bytes:
    """The same counts under another head."""
    mark = whole[:18]
    rest = whole[22:]
    size = int.from_bytes(whole[18:22], "big")
    said = json.dumps(json.loads(rest[:size]) | head, sort_keys=True).encode()
    return mark + len(said).to_bytes(4, "big") + said + rest[size:]


def resealed(
    job: Task,
    number: int,
    key: bytes | None = None,
    n_parts: int = 4,
    told: Any = None,
    **about: str,
) -> bytes:
    """A part of another task, of the same rows."""
    counts = {"rows": 0, "people": "", "sums": {}}
    other = replace(
        job,
        about=job.about | about,
        n_parts=n_parts,
        key=key or job.key,
        told=job.told | (told or {}),
    )
    return sealed(other, number, counts)


WRONG = {
    "part 2 of 4 is missing": lambda job, parts: [parts[0], *parts[2:]],
    "part 2, 3, 4 of 4 is missing": lambda job, parts: parts[:1],
    "part 1 of 4 came twice": lambda job, parts: [*parts, parts[0]],
    "part 3 of 4 came twice": lambda job, parts: [*parts[:3], parts[2]],
    "is of another run": lambda job, parts: [*parts[:3], resealed(job, 3, run="other")],
    "is of another holder": lambda job, parts: [
        *parts[:3],
        resealed(job, 3, holder="two"),
    ],
    "is of another stage": lambda job, parts: [
        *parts[:3],
        resealed(job, 3, stage="again"),
    ],
    "is of another schema": lambda job, parts: [
        *parts[:3],
        resealed(job, 3, schema="x"),
    ],
    "is of another number of parts": lambda job, parts: [
        *parts[:3],
        resealed(job, 3, n_parts=5),
    ],
    "is of other terms": lambda job, parts: [
        *parts[:3],
        resealed(job, 3, told={"config": {}}),
    ],
    "part 4 of 4 was changed, or sealed in another session": lambda job, parts: [
        *parts[:3],
        resealed(job, 3, key=bytes(32)),
    ],
    "part 2 of 4 was changed": lambda job, parts: [
        parts[0],
        forged(parts[0], part=1),
        *parts[2:],
    ],
    "part 1 of 4 was changed": lambda job, parts: [
        parts[0][:-1] + bytes([parts[0][-1] ^ 1]),
        *parts[1:],
    ],
    "is of other terms, or of none": lambda job, parts: [
        *parts[:3],
        forged(parts[3], part=4),
    ],
    "is no part of a count, or is cut off": lambda job, parts: [
        *parts[:3],
        parts[3][:40],
    ],
    "is no part of a count": lambda job, parts: [*parts[:3], b"\x00" * 99],
    "the parts do not count the same": lambda job, parts: [
        *parts[:3],
        sealed(job, 3, {"rows": 38, "people": "", "sums": {}}),
    ],
    "one: a part has other rows than when the table was opened": lambda job, parts: [
        *parts[:3],
        sealed(job, 3, opened(job, parts[3])[1] | {"rows": 37}),
    ],
    ": a part has other rows": lambda job, parts: [
        sealed(
            job,
            0,
            opened(job, parts[0])[1] | {"people": opened(job, parts[1])[1]["people"]},
        ),
        *parts[1:],
    ],
}


LATER = (
    "part 2 of 4 is missing",
    "is of another stage",
    "part 4 of 4 was changed, or sealed in another session",
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("why", "stage"), [*((why, 0) for why in WRONG), *((why, 1) for why in LATER)]
)
def test_parts_that_are_not_all_of_one_count_are_refused_before_any_charge(
    source: TableSource, why: str, stage: int
) -> None:
    counter = Here()
    counter.wrong = lambda job, parts: (
        WRONG[why](job, parts) if len(counter.jobs) == stage + 1 else parts
    )
    with counted_by(counter):
        federation = Federation.rehearsal(
            {"one": source}, {"one": SCHEMA}, budget=BUDGET, seed=3
        )
    with raises(PartyError, effect=Effect.NOTHING_CHARGED_OR_SENT, match=f"{why}"):
        train("gram", federation, run="r", **SMALL)
    ledger = federation.holders["one"].ledger
    # of releases that came before
    assert len([entry for entry in ledger.entries() if entry.run]) == stage


@pytest.fixture
def job(source: TableSource) -> Task:
    counter = Here()
    run(source, counter)
    return counter.jobs[0]


def test_no_id_counts_twice_however_its_rows_are_spread(
    job: Task, tmp_path: Path
) -> None:
    """A person with a row in two parts that an engine cut, be the ids written as text
    in one and as numbers in the other; or with two rows in one part.
    """

    @dataclass
    class Cut:
        n_parts: int = 2

        def __call__(self, task: Task) -> Iterable[bytes]:
            return [
                answer_of(task.to_bytes(), n, pa.Table.from_pandas(half))
                for n, half in enumerate(tables)
            ]

    def table() -> StreamedTable:
        with counted_by(Cut()):
            return StreamedTable(TableSource(table="elsewhere.parquet"), SCHEMA)

    def counted(own: StreamedTable) -> Any:
        return merged(replace(job, n_parts=2, ids=own.ids), own)

    as_text = FRAME.assign(**{SCHEMA.person: FRAME[SCHEMA.person].astype(str)})
    for other in (FRAME, as_text):
        tables = [FRAME[:75], other[74:]]
        with pytest.raises(PartyError, match="an id is in two parts, or twice in one"):
            counted(table())
    tables = [FRAME[:75], FRAME[75:]]
    own = table()
    assert counted(own)
    tables = [FRAME[:75][::-1], as_text[75:]]  # the same people
    assert counted(own)
    for changed in (
        [FRAME[:75], FRAME[74:149]],
        [FRAME[75:], FRAME[:75]],
        [FRAME[:74], FRAME[74:]],
    ):
        tables = changed
        with pytest.raises(
            PartyError, match="has other rows than when the table was opened"
        ):
            counted(own)
    twice = kept(tmp_path / "c.parquet", pd.concat([FRAME, FRAME[3:4]]))
    job = replace(job, n_parts=1)
    why = opened(job, answer_of(job.to_bytes(), 0, twice))[1]["error"]
    assert why["kind"] == "PartyError"
    assert "cannot be read again as they were" in why["text"]
    assert why["effect"] == Effect.NOTHING_CHARGED_OR_SENT.name


def test_a_server_that_calls_the_person_otherwise_does_not_switch_the_check_of_ids_off(
    job: Task,
) -> None:
    assert job.told["schema"]["person"] == SCHEMA.person


def test_noise_is_drawn_once_after_the_merge_and_after_the_entry(
    source: TableSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from understudy.privacy.accounts.ledger import Ledger
    from understudy.protocols.joint import party, pricing

    order: list[str] = []

    def told(where: Any, name: str, word: str) -> None:
        was = getattr(where, name)
        monkeypatch.setattr(
            where, name, lambda *own, **more: order.append(word) or was(*own, **more)
        )

    told(party, "counted_in_parts", "parts")
    told(Ledger, "charge", "entry")
    told(pricing.Pricing, "noise", "noise")
    run(source, Here())
    assert order == ["parts", "entry", "noise", "parts", "entry", "noise"]


@pytest.mark.long
def test_jobs_and_parts_tell_nothing_without_the_key_and_bind_what_they_are_of(
    job: Task,
) -> None:
    part = answer_of(job.to_bytes(), 0)
    assert job.key not in part
    assert part != answer_of(job.to_bytes(), 0)  # under another nonce
    assert str(job.key) not in repr(job)
    head = json.loads(part[22 : 22 + int.from_bytes(part[18:22], "big")])
    assert head.keys() == {
        "run",
        "holder",
        "stage",
        "n_parts",
        "schema",
        "task",
        "part",
    }
    assert Task.from_bytes(job.to_bytes()).head == job.head
    with pytest.raises(PartyError, match="of other terms, or of none"):
        opened(job, answer_of(job.to_bytes(), 4))
    work = replace(job, work="understudy.ground.durable:read_text")
    assert (
        "there is no such work"
        in opened(work, answer_of(work.to_bytes(), 0))[1]["error"]["text"]
    )


def test_a_part_whose_people_are_others_at_the_next_reading_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.parquet"
    part = StreamedTable(kept(path), SCHEMA, key="0" * 16)
    for frame in (FRAME, FRAME[::-1]):
        kept(path, frame)  # what the file says of itself is looked up anew
        assert sum(map(len, part.code_batches())) == len(FRAME)
    kept(path, FRAME[1:])
    with pytest.raises(SchemaError, match="has other rows by now"):
        list(part.code_batches())


def test_a_part_of_a_table_reads_its_own_rows_alone(source: TableSource) -> None:
    seen = []
    for number in range(4):
        part = StreamedTable(source, SCHEMA, (number, 4))
        seen.append(pd.concat(list(part.batches()), ignore_index=True))
    pd.testing.assert_frame_equal(
        pd.concat(seen, ignore_index=True), open_table(source, SCHEMA).frame
    )


@pytest.mark.long
def test_machines_that_share_a_folder_count_the_same_and_leave_nothing_there(
    source: TableSource, tmp_path: Path
) -> None:
    whole, _ = run(source)
    folder = tmp_path / "parts"
    over = threading.Event()
    modes = set()

    def count(number: int) -> None:
        while not over.is_set():
            # the run has taken it away since it was listed
            with suppress(FileNotFoundError):
                modes.update(
                    stat.S_IMODE(file.stat().st_mode) for file in folder.glob("*.task")
                )
            if folder.is_dir():
                count_in_folder(folder, number, 3)
            time.sleep(0.01)

    machines = [threading.Thread(target=count, args=[number]) for number in range(3)]
    for machine in machines:
        machine.start()
    try:
        with InFolder(folder, n_parts=3, patience=60.0) as spread:
            parts, _ = run(source, spread)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert not list(folder.iterdir())
    finally:
        over.set()
        for machine in machines:
            machine.join()
    pd.testing.assert_frame_equal(whole.sample(50, seed=1), parts.sample(50, seed=1))
    assert modes == {0o600}
    assert not folder.exists()


def test_a_part_that_does_not_come_or_that_somebody_left_there_is_refused(
    source: TableSource, tmp_path: Path
) -> None:
    with raises(
        PartyError,
        effect=Effect.NOTHING_CHARGED_OR_SENT,
        match="part 1 of 2 did not come in 0 s",
    ):
        run(source, InFolder(tmp_path, n_parts=2, patience=0.1))

    class Left(InFolder):
        def __call__(self, task: Task) -> Iterable[bytes]:
            for number in range(2):
                (tmp_path / f"{task.head['task'][:32]}.part{number}").write_bytes(
                    b"understudy part 1\n"
                )
            return super().__call__(task)

    with raises(
        PartyError,
        effect=Effect.NOTHING_CHARGED_OR_SENT,
        match="no part of a count, or is cut off",
    ):
        run(source, Left(tmp_path, n_parts=2, patience=5.0))
    assert [file.name for file in tmp_path.iterdir()] == ["t.parquet"]

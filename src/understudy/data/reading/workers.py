"""Who counts parts of a long table elsewhere (docs/schema.md): workers of Dask, Spark
and Ray, which check and count the parts where they have them, or machines of a holder
that share a folder and nothing else.

A part is what an engine has as one: a partition or a block, which must fit into a
worker's memory; a frame that was not kept is made anew for every count. Of a folder, a
run writes what is asked for, and waits until every part is there; whoever has part i (a
task of a Slurm array, a pod of a Kubernetes Job) looks into it for as long as it is
there.

Guarantee: as `spread`: no id counts twice, in whichever parts its rows are. Tasks,
which hold the key, and parts, which it seals, are files for their owner alone, whole or
not there, and gone once they were read; so is the folder, after the run. A folder into
which others can look, or a task that is another's, is refused on either side: whoever
could write one would have exact counts under a key of their own.
Edges: partitions that are others at the next count, as after a join of Spark's that
adapts itself, are refused; a frame that was kept (`persist`) or cut (`repartition(n,
"id")`) has the same. Parts that do not come in time → PartyError, and nothing was
charged or sent.
"""

import os
import re
import shutil
import stat
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from understudy.data.reading.sources import EngineFrame, TableSource
from understudy.data.reading.spread import Task, answer_of
from understudy.ground.durable import own_folder, replace
from understudy.ground.errors import ConfigError, Effect, PartyError, SchemaError

_RETRIES = 3  # of a part that could not be read: Dask tries once, unless it is told
_LOOK = 0.2  # seconds between two looks
_TASK = ".task"
_NOTHING = Effect.NOTHING_READ


def engine_of(frame: Any) -> EngineFrame:
    """The frame, with who counts its parts."""
    if isinstance(frame, EngineFrame):
        return frame
    library = type(frame).__module__.partition(".")[0]
    adapter: Any = {"dask": OnDask, "pyspark": OnSpark, "ray": OnRay}[library]
    if type(frame).__name__ not in adapter.kinds:
        raise SchemaError(
            f"a table of {library} is a {adapter.kinds[0]}, not "
            f"{type(frame).__name__}.",
            effect=Effect.NOTHING_READ,
        )
    adapted: EngineFrame = adapter(frame)
    return adapted


class _OnEngine(EngineFrame):
    kinds: tuple[str, ...]

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @cached_property
    def header(self) -> list[str]:
        return [*map(str, self._frame.columns)]

    def narrowed(self, columns: Iterable[str]) -> EngineFrame:
        narrowed_frame: EngineFrame = type(self)(
            self._select([name for name in columns if name in self.header])
        )
        return narrowed_frame

    @abstractmethod
    def _select(self, columns: list[str]) -> Any: ...


class OnDask(_OnEngine):
    """A Dask frame: on the workers of the current client, or without one as Dask is set
    up.
    """

    kinds = ("DataFrame",)

    @cached_property
    def n_parts(self) -> int:
        return int(self._frame.npartitions)

    def _select(self, columns: list[str]) -> Any:
        # which may make one of several small partitions
        return self._frame[columns].optimize()

    def __call__(self, task: Task) -> Iterator[bytes]:
        dask: Any = import_module("dask")
        task_bytes = dask.delayed(task.to_bytes())
        count = dask.delayed(_answer_of_frame, pure=False)
        parts = enumerate(self._frame.to_delayed())
        yield from dask.compute(
            *(count(task_bytes, number, part) for number, part in parts),
            retries=_RETRIES,
        )

    def tables(self, columns: list[str]) -> Iterator[pa.Table]:
        for number, part in enumerate(self._select(columns).to_delayed()):
            yield _as_arrow(part.compute(), number)


class OnSpark(_OnEngine):
    """A frame of a Spark session on a cluster or of this machine; by `mapInArrow`."""

    kinds = ("DataFrame",)

    @cached_property
    def n_parts(self) -> int:
        try:
            return int(self._frame.rdd.getNumPartitions())
        except Exception as error:  # without the JVM nothing tells it
            raise ConfigError(
                "Spark does not say how many partitions there are "
                f"({type(error).__name__}): a session of its own is "
                "needed, not Spark Connect.",
                effect=Effect.NOTHING_READ,
            ) from None

    def __call__(self, task: Task) -> Iterator[bytes]:
        task_bytes = task.to_bytes()
        columns = self.header

        def answers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            batch_list = [*batches]
            table = (
                pa.Table.from_batches(batch_list) if batch_list else _no_rows(columns)
            )
            context: Any = TaskContext.get()
            yield pa.RecordBatch.from_pydict(
                {"answer": [answer_of(task_bytes, context.partitionId(), table)]}
            )

        for row in self._frame.mapInArrow(answers, "answer binary").collect():
            yield bytes(row.answer)

    def _select(self, columns: list[str]) -> Any:
        # else a dot is a field
        return self._frame.select(
            *("`" + name.replace("`", "``") + "`" for name in columns)
        )

    def tables(self, columns: list[str]) -> Iterator[pa.Table]:
        yield self._select(columns).toArrow()


class OnRay(_OnEngine):
    """A Ray dataset, which is made once and kept in Ray's store."""

    kinds = ("Dataset", "MaterializedDataset")

    @cached_property
    def header(self) -> list[str]:
        return [*map(str, self._frame.columns())]

    @cached_property
    def _blocks(self) -> list[Any]:
        return list(self._frame.to_arrow_refs())

    @cached_property
    def n_parts(self) -> int:
        return len(self._blocks)

    def __call__(self, task: Task) -> Iterator[bytes]:
        import ray

        task_bytes = ray.put(task.to_bytes())
        count = ray.remote(_answer_of_block)
        waiting = [
            count.remote(task_bytes, number, block, self.header)
            for number, block in enumerate(self._blocks)
        ]
        while waiting:
            done, waiting = ray.wait(waiting)
            yield ray.get(done[0])

    def _select(self, columns: list[str]) -> Any:
        return self._frame.select_columns(columns)

    def tables(self, columns: list[str]) -> Iterator[pa.Table]:
        import ray

        for block in self._blocks:
            yield _cut(ray.get(block), columns)


def _answer_of_frame(task: bytes, number: int, frame: Any) -> bytes:
    return answer_of(task, number, _as_arrow(frame, number))


def _answer_of_block(
    task: bytes, number: int, block: pa.Table, columns: list[str]
) -> bytes:
    return answer_of(task, number, _cut(block, columns))


def _as_arrow(frame: Any, number: int) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except pa.ArrowException:  # whose words quote a cell
        raise SchemaError(
            f"part {number + 1}: a column has values of several kinds.",
            effect=Effect.NOTHING_READ,
        ) from None


def _cut(block: pa.Table, columns: list[str]) -> pa.Table:
    """Edges: a block without rows may have no columns either."""
    return (
        block.select(columns) if len(block) or block.column_names else _no_rows(columns)
    )


def _no_rows(columns: list[str]) -> pa.Table:
    return pa.table({name: pa.nulls(0) for name in columns})


# A folder


@dataclass
class InFolder:
    """Whoever looks into this folder, which is made for a run and goes with it;
    `patience`: seconds, for all parts.
    """

    folder: Path
    n_parts: int
    patience: float = 86_400.0

    @classmethod
    def at(cls, text: str) -> "InFolder":
        """FOLDER:n. Edges: anything else → ConfigError."""
        match = re.fullmatch(r"(.+):([1-9]\d{0,5})", text)
        if match is None:
            raise ConfigError(
                f"parts are FOLDER:n, as /scratch/parts:64, not {text!r}.",
                effect=Effect.NOTHING_READ,
            )
        return cls(Path(match[1]), int(match[2]))

    def __enter__(self) -> "InFolder":
        _require_own(own_folder(self.folder))
        if any(self.folder.iterdir()):
            raise ConfigError(
                f"{self.folder} is not empty: it is of another run, or of one that "
                f"was ended.",
                effect=_NOTHING,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # so whoever waits hears that it is over
        shutil.rmtree(self.folder, ignore_errors=True)

    def __call__(self, task: Task) -> Iterator[bytes]:
        name = str(task.head["task"])[:32]
        end = time.monotonic() + self.patience
        _require_own(own_folder(self.folder))
        parts = [self.folder / f"{name}.part{number}" for number in range(task.n_parts)]
        task_file = replace(self.folder / f"{name}{_TASK}", task.to_bytes())
        try:
            for number, part in enumerate(parts):
                while not part.exists():
                    if time.monotonic() > end:
                        raise task.refusal(
                            f"part {number + 1} of {task.n_parts} did not come in "
                            f"{self.patience:,.0f} s."
                        )
                    time.sleep(_LOOK)
                yield part.read_bytes()
        finally:
            for file in (task_file, *parts):
                file.unlink(missing_ok=True)


def count_in_folder(
    folder: Path, number: int, n_parts: int, rows: TableSource | None = None
) -> int:
    """Answer every task for part `number`, from 0, where that lacks; how many these
    were. `rows`: where they are.
    """
    _require_own(folder)
    counted = 0
    for task_file in sorted(folder.glob(f"*{_TASK}")):
        part = task_file.with_suffix(f".part{number}")
        with suppress(FileNotFoundError):  # answered meanwhile by another
            if not part.exists():
                task = _own_bytes(task_file)
                wanted = Task.from_bytes(task).n_parts
                if wanted != n_parts:
                    raise ConfigError(
                        f"{folder}: the run wants {wanted} parts, not {n_parts}.",
                        effect=Effect.NOTHING_COMPUTED,
                    )
                answer = answer_of(task, number, rows)
                if task_file.exists():
                    replace(part, answer)
                    counted += 1
    return counted


def count_until_over(
    folder: Path,
    number: int,
    n_parts: int,
    rows: TableSource | None,
    patience: float,
    say: Callable[[str], None],
) -> None:
    """The same for as long as the folder is there. Edges: nothing to do for so many
    seconds → PartyError.
    """
    was_there = False
    last = time.monotonic()
    while time.monotonic() - last < patience:
        if folder.is_dir():
            with suppress(FileNotFoundError):  # gone meanwhile
                counted = count_in_folder(folder, number, n_parts, rows)
                if counted:
                    last = time.monotonic()
                    say(
                        f"Part {number + 1} of {n_parts}: "
                        f"counted{f' {counted} times' * (counted > 1)}."
                    )
                was_there = True
        elif was_there:
            say("The run is over.")
            return
        time.sleep(_LOOK)
    raise PartyError(f"{folder}: there was nothing to count for {patience:,.0f} s.")


def _require_own(folder: Path) -> None:
    about = folder.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise ConfigError(
            f"{folder} is not for you alone: take a folder of your own, which the run "
            f"makes (mode 0700).",
            effect=_NOTHING,
        )


def _own_bytes(file: Path) -> bytes:
    """Edges: a file of another, that others can read, or a link → PartyError."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError:
        raise PartyError(
            f"{file.name} is no file of yours.", effect=Effect.NOTHING_COMPUTED
        ) from None
    with os.fdopen(handle, "rb") as opened:
        about = os.fstat(handle)
        if (
            about.st_uid != os.geteuid()
            or about.st_mode & 0o077
            or not stat.S_ISREG(about.st_mode)
        ):
            raise PartyError(
                f"{file.name} is not of your own run, or others can read it.",
                effect=Effect.NOTHING_COMPUTED,
            )
        return opened.read()

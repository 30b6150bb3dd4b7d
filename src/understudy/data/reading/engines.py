"""Frames of engines as tables: Dask, Spark and Ray, whose workers check and count the parts where they have them.

    us.synthesize(frame, schema=…, epsilon=1)          # a Dask or Spark frame, a Ray dataset

A part is what the engine has as one: a partition or a block. One part must fit into a worker's memory; of all rows an
engine's frame that was not kept is made anew for every count. Workers need this package, and what they give back are
answers to a task (`spread`): a worker that died, or that is slow and done again elsewhere, changes nothing.

Guarantee: as `spread`: no id counts twice, in whichever partitions its rows are.
Edges: partitions that are others at the next count, as after a join of Spark's that adapts itself, are refused; a frame
that was kept (`persist`) or cut (`repartition(n, "id")`) has the same.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

import pyarrow as pa

from understudy.data.reading.sources import EngineFrame
from understudy.data.reading.spread import Task, answer_of
from understudy.ground.errors import ConfigError, SchemaError

_RETRIES = 3  # of a part that could not be read: Dask tries once, unless it is told


def engine_of(frame: Any) -> EngineFrame:
    """The frame, with who counts its parts."""
    if isinstance(frame, EngineFrame):
        return frame
    library = type(frame).__module__.partition(".")[0]
    own: Any = {"dask": OnDask, "pyspark": OnSpark, "ray": OnRay}[library]
    if type(frame).__name__ not in own.kinds:
        raise SchemaError(f"a table of {library} is a {own.kinds[0]}, not {type(frame).__name__}. Nothing was read.")
    made: EngineFrame = own(frame)
    return made


class _OnEngine(EngineFrame):
    kinds: tuple[str, ...]

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @cached_property
    def header(self) -> list[str]:
        return [*map(str, self._frame.columns)]

    def narrowed(self, columns: Iterable[str]) -> EngineFrame:
        made: EngineFrame = type(self)(self._select([name for name in columns if name in self.header]))
        return made

    @abstractmethod
    def _select(self, columns: list[str]) -> Any: ...


class OnDask(_OnEngine):
    """A Dask frame: on the workers of the current client, or without one as Dask is set up."""

    kinds = ("DataFrame",)

    @cached_property
    def of(self) -> int:
        return int(self._frame.npartitions)

    def _select(self, columns: list[str]) -> Any:
        return self._frame[columns].optimize()  # which may make one of several small partitions

    def __call__(self, task: Task) -> Iterator[bytes]:
        dask: Any = import_module("dask")
        told, count = dask.delayed(task.to_bytes()), dask.delayed(_answer_of_frame, pure=False)
        parts = enumerate(self._frame.to_delayed())
        yield from dask.compute(*(count(told, number, part) for number, part in parts), retries=_RETRIES)

    def tables(self, columns: list[str]) -> Iterator[pa.Table]:
        for number, part in enumerate(self._select(columns).to_delayed()):
            yield _as_arrow(part.compute(), number)


class OnSpark(_OnEngine):
    """A frame of a Spark session on a cluster or of this machine; by `mapInArrow`."""

    kinds = ("DataFrame",)

    @cached_property
    def of(self) -> int:
        try:
            return int(self._frame.rdd.getNumPartitions())
        except Exception as error:  # without the JVM nothing tells it
            raise ConfigError(
                f"Spark does not say how many partitions there are ({type(error).__name__}): a session of its own is "
                "needed, not Spark Connect. Nothing was read."
            ) from None

    def __call__(self, task: Task) -> Iterator[bytes]:
        told, columns = task.to_bytes(), self.header

        def answers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            held = [*batches]
            table = pa.Table.from_batches(held) if held else _no_rows(columns)
            context: Any = TaskContext.get()
            yield pa.RecordBatch.from_pydict({"answer": [answer_of(told, context.partitionId(), table)]})

        for row in self._frame.mapInArrow(answers, "answer binary").collect():
            yield bytes(row.answer)

    def _select(self, columns: list[str]) -> Any:
        return self._frame.select(*("`" + name.replace("`", "``") + "`" for name in columns))  # else a dot is a field

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
    def of(self) -> int:
        return len(self._blocks)

    def __call__(self, task: Task) -> Iterator[bytes]:
        import ray

        told, count = ray.put(task.to_bytes()), ray.remote(_answer_of_block)
        columns = self.header
        waiting = [count.remote(told, number, block, columns) for number, block in enumerate(self._blocks)]
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


def _answer_of_block(task: bytes, number: int, block: pa.Table, columns: list[str]) -> bytes:
    return answer_of(task, number, _cut(block, columns))


def _as_arrow(frame: Any, number: int) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except pa.ArrowException:  # whose words quote a cell
        raise SchemaError(f"part {number + 1}: a column has values of several kinds. Nothing was read.") from None


def _cut(block: pa.Table, columns: list[str]) -> pa.Table:
    """Edges: a block without rows may have no columns either."""
    return block.select(columns) if len(block) or block.column_names else _no_rows(columns)


def _no_rows(columns: list[str]) -> pa.Table:
    return pa.table({name: pa.nulls(0) for name in columns})

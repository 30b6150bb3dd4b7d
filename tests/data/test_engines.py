"""Frames of engines, against the engines themselves: what is released is that of one
file, to the bit.

Each runs where its library is installed (`understudy[dask]`, `[spark]`, `[ray]`; Spark
needs Java).
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from understudy.api.synthesize import synthesize
from understudy.api.train import train
from understudy.data.samples import toy
from understudy.data.table import open_table
from understudy.ground.errors import ConfigError, SchemaError
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

FRAME, _all = toy(rows=150, seed=4)
SCHEMA = _all.select(["smoker", "age", "treated", "income"])
FRAME = FRAME[[SCHEMA.person, *SCHEMA.names]]  # Spark reads no nanoseconds
SMALL: dict[str, Any] = {"components": 8, "steps": 5, "device": "cpu"}
# a folder of Parquet files → the engine's frame; `fails`: a part is lost once on its
# way
Make = Callable[..., Any]

# of the engines
pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore"),
]


def losing(flag: str) -> Any:
    """The rows of a part; the first of all that is asked for is lost with its worker,
    which an engine does again. A function of its own: workers do not find this file.
    """

    def lost_once(table: Any) -> Any:
        try:
            Path(flag).touch(exist_ok=False)
        except FileExistsError:
            return table
        raise OSError("lost")

    return lost_once


@pytest.fixture(scope="module")
def on_dask() -> Iterator[Make]:
    pytest.importorskip(
        "dask.dataframe", reason="Dask is not installed: pip install 'understudy[dask]'"
    )
    distributed = pytest.importorskip(
        "distributed", reason="pip install 'understudy[dask]'"
    )
    import dask.dataframe as dd

    def made(folder: Path, fails: str | None = None) -> Any:
        frame = dd.read_parquet(folder)
        if fails is None:
            return frame
        from dask import delayed

        parts = [delayed(losing(fails))(part) for part in frame.to_delayed()]
        return dd.from_delayed(parts, meta=frame._meta)

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        yield made


@pytest.fixture(scope="module")
def on_spark() -> Iterator[Make]:
    sql = pytest.importorskip(
        "pyspark.sql", reason="Spark is not installed: pip install 'understudy[spark]'"
    )
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    made_by = sql.SparkSession.builder.master("local[2,4]").config(
        "spark.ui.enabled", "false"
    )
    session = made_by.config("spark.sql.files.maxPartitionBytes", "3000").getOrCreate()
    session.sparkContext.setLogLevel("OFF")

    def made(folder: Path, fails: str | None = None) -> Any:
        # by a public hash of the id
        frame = session.read.parquet(str(folder)).repartition(3, SCHEMA.person)
        if fails is None:
            return frame

        lost = losing(fails)

        def lost_on_the_way(batches: Any) -> Any:
            lost(None)
            yield from batches

        return frame.mapInArrow(lost_on_the_way, frame.schema)

    yield made
    session.stop()


@pytest.fixture(scope="module")
def on_ray() -> Iterator[Make]:
    ray = pytest.importorskip(
        "ray", reason="Ray is not installed: pip install 'understudy[ray]'"
    )
    pytest.importorskip("ray.data", reason="pip install 'understudy[ray]'")
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    ray.data.DataContext.get_current().enable_progress_bars = False

    def made(folder: Path, fails: str | None = None) -> Any:
        blocks = [pd.read_parquet(file) for file in sorted(folder.glob("*.parquet"))]
        if fails is None:
            return ray.data.from_pandas(blocks)
        lost = ray.remote(max_retries=3, retry_exceptions=True)(losing(fails))
        return ray.data.from_pandas_refs([lost.remote(block) for block in blocks])

    yield made
    ray.shutdown()


@pytest.fixture(params=["on_dask", "on_spark", "on_ray"])
def made(request: pytest.FixtureRequest) -> Make:
    own: Make = request.getfixturevalue(request.param)
    return own


def kept(folder: Path, frame: pd.DataFrame = FRAME) -> Path:
    folder.mkdir()
    for number, (start, stop) in enumerate([(0, 31), (31, 90), (90, len(frame))]):
        frame[start:stop].to_parquet(folder / f"part-{number}.parquet", index=False)
    return folder


def released(source: Any) -> pd.DataFrame:
    federation = Federation.rehearsal(
        {"one": source}, {"one": SCHEMA}, budget=Budget(2.0, 1e-5), seed=3
    )
    return train("gram", federation, run="r", **SMALL).generator.sample(50, seed=1)


@pytest.mark.long
def test_what_is_released_is_that_of_one_file_also_where_a_part_is_done_again(
    made: Make, tmp_path: Path
) -> None:
    folder = kept(tmp_path / "rows")
    whole = released(folder)
    pd.testing.assert_frame_equal(released(made(folder)), whole)
    pd.testing.assert_frame_equal(released(made(folder, str(tmp_path / "lost"))), whole)
    assert (tmp_path / "lost").exists()


def test_it_is_a_table_like_any_other(made: Make, tmp_path: Path) -> None:
    frame = made(kept(tmp_path / "rows"))
    table = open_table(frame, SCHEMA)
    assert (table.long, table.rows, table.source) == (True, len(FRAME), "the table")
    own = pd.concat(list(table.batches())).sort_values(SCHEMA.person, ignore_index=True)
    held = open_table(FRAME, SCHEMA).frame.sort_values(SCHEMA.person, ignore_index=True)
    for read in (own, table.frame.sort_values(SCHEMA.person, ignore_index=True)):
        pd.testing.assert_frame_equal(read.astype(str), held.astype(str))
    with pytest.raises(ConfigError, match="of an engine's frame a schema is needed"):
        synthesize(frame, epsilon=1.0)
    result = synthesize(
        frame,
        schema=SCHEMA,
        epsilon=1.0,
        ledgers=tmp_path / "ledgers",
        folder=tmp_path / "run",
        **SMALL,
    )
    assert list(result.sample(5).columns) == list(SCHEMA.names)


def test_a_person_in_two_partitions_and_rows_that_do_not_fit_are_refused(
    made: Make, tmp_path: Path
) -> None:
    twice = made(kept(tmp_path / "twice", pd.concat([FRAME, FRAME[:1]])))
    with pytest.raises(SchemaError, match="1 rows have the id of an earlier row"):
        open_table(twice, SCHEMA)
    old = made(
        kept(
            tmp_path / "old", FRAME.assign(age=FRAME.age.where(FRAME.index != 120, 400))
        )
    )
    with pytest.raises(
        SchemaError, match=r'part \d of \d, column "age": value 400 at row \d+ is above'
    ):
        open_table(old, SCHEMA)
    with pytest.raises(SchemaError, match='column "age"'):
        open_table(made(kept(tmp_path / "none", FRAME.drop(columns="age"))), SCHEMA)

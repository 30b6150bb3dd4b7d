"""A folder of Parquet files, or a pattern of their names, is one table: to the bit that
of one file.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from refusals import raises
from understudy.data.reading import files, stores
from understudy.data.reading.sources import TableSource
from understudy.data.samples import toy
from understudy.data.table import StreamedTable, open_table
from understudy.ground import processes
from understudy.ground.errors import Effect, SchemaError

FRAME, SCHEMA = toy(rows=150, seed=4)
CUTS = [0, 31, 32, 90, 150]


def kept(place: Path, frames: list[pd.DataFrame]) -> Path:
    place.mkdir()
    for number, frame in enumerate(frames):
        frame.to_parquet(
            place / f"part-{number}.parquet", index=False, row_group_size=16
        )
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = kept(tmp_path / "rows", [FRAME[a:b] for a, b in pairwise(CUTS)])
    (made / "_SUCCESS").touch()
    return made


@pytest.mark.long
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("pattern", ["", "part-*.parquet"])
def test_it_reads_as_one_table(
    folder: Path, pattern: str, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = folder.parent / "one.parquet"
    FRAME.to_parquet(one, index=False, row_group_size=16)
    if long:
        monkeypatch.setattr(files, "LONG", 0)
    table = open_table(folder / pattern, SCHEMA)
    whole = open_table(one, SCHEMA)
    assert table.long == whole.long == long
    one_by_one = [
        pd.concat(list(read.batches()), ignore_index=True) for read in (table, whole)
    ]
    pd.testing.assert_frame_equal(*one_by_one)
    assert table.rows == len(FRAME)


def test_its_parts_are_of_row_groups_wherever_a_file_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TableSource(table=str(folder))
    for of in (1, 3, 7, 30):
        parts = [
            pd.concat(
                list(StreamedTable(source, SCHEMA, (i, of)).batches()) or [FRAME[:0]]
            )
            for i in range(of)
        ]
        assert sum(map(len, parts)) == len(FRAME)
        assert sorted(pd.concat(parts)[SCHEMA.person]) == sorted(FRAME[SCHEMA.person])
    monkeypatch.setattr(stores, "SPREAD", 0)
    monkeypatch.setenv(processes.VARIABLE, "2")
    assert stores.pieces_of(source, 5) == 11  # row groups
    monkeypatch.setattr(stores, "_EACH", 4)
    assert stores.pieces_of(source, 5) == 8
    assert files.is_long(source, 1) is False


def test_a_wrong_row_has_its_number_over_all_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FRAME[90:].assign(age=400).to_parquet(folder / "part-3.parquet", index=False)
    for long in (0, 10**9):
        monkeypatch.setattr(files, "LONG", long)
        with pytest.raises(
            SchemaError, match=r'column "age": value 400 at row 91 is above'
        ):
            open_table(folder, SCHEMA)


WRONG: dict[str, Any] = {
    "part-4.parquet: it has other columns than in part-0.parquet": FRAME.drop(
        columns="age"
    ),
    'part-4.parquet: column "age" is of another type than in part-0': FRAME.assign(
        age=FRAME.age.astype(str)
    ),
}


@pytest.mark.parametrize("why", WRONG)
def test_files_that_are_not_of_one_table_are_refused(folder: Path, why: str) -> None:
    WRONG[why].to_parquet(folder / "part-4.parquet", index=False)
    with pytest.raises(SchemaError, match=why):
        open_table(folder, SCHEMA)


def test_a_folder_of_others_or_with_folders_in_it_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        SchemaError, match=r"one table of \.parquet files, .* it holds no file"
    ):
        open_table(tmp_path / "empty", SCHEMA)
    with raises(
        SchemaError, effect=Effect.NOTHING_READ, match=r"there is no \.parquet file"
    ):
        open_table(tmp_path / "none-*.parquet", SCHEMA)
    kept(folder / "year=2020", [FRAME])
    with pytest.raises(SchemaError, match="files within folders of it are not read"):
        open_table(folder, SCHEMA)

"""The benchmark of long tables, on few rows."""

import csv
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from understudy.data.reading import files, written
from understudy.data.table import StreamedTable, open_table, read_table
from understudy.ground import processes

pytestmark = pytest.mark.usefixtures("short_fits")


def test_every_case_is_measured_and_what_stands_in_the_file_is_not_measured_again(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    bench = load_bench("scale")
    for name, few in {"ROWS": [500], "SIZES": [3, 6], "LEVELS": [3, 6, 20]}.items():
        monkeypatch.setattr(bench, name, few)
    every = bench.schema()
    some = replace(every, columns=every.columns[::3])  # of each kind
    monkeypatch.setattr(bench, "schema", lambda: some)
    # which a case sets in a process of its own
    for module, name in ((files, "LONG"), (written, "_LARGE")):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setenv(processes.VARIABLE, "1")
    out = tmp_path / "ours.csv"
    cases = [(case, measure) for case, measure, _ in bench.cases(tmp_path, None)]
    for case, measure in cases:
        # which have tests of their own
        if case["source"] in ("dask", "pyspark", "ray", "processes", "memory"):
            continue
        # a whole run has a process of its own, and is tested with the protocol
        measured = measure is bench.whole
        given = (
            (bench.stored(tmp_path, case["source"], 500), 1, "cpu")
            if measured
            else (tmp_path, 500)
        )
        monkeypatch.setattr(bench, "SETTINGS", {"components": 4, "steps": 2})
        row = measure(*given)
        assert all(value == "" or value >= 0 for value in row.values())
        assert set(case | row) <= set(bench.FIELDS)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["machine", "cores", "what", "source", "rows"])
        writer.writeheader()
        here = {"machine": platform.machine(), "cores": 1}
        writer.writerows(
            {key: (here | case)[key] for key in writer.fieldnames} for case, _ in cases
        )
    before = out.read_text()
    monkeypatch.setattr(
        sys, "argv", ["bench", "--out", str(out), "--folder", str(tmp_path)]
    )
    bench.main()
    assert out.read_text() == before


def test_its_largest_table_is_long_and_its_batches_fit_its_schema(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    bench = load_bench("scale")
    assert bench.ROWS[-1] * len(bench.schema().names) > files.LONG or bench.QUICK
    monkeypatch.setattr(bench, "BATCH", 300)
    monkeypatch.setattr(files, "LONG", 0)
    bench.generate(tmp_path / "t.parquet", 1000)
    table = open_table(tmp_path / "t.parquet", bench.schema())
    assert isinstance(table, StreamedTable)
    assert table.rows == 1000
    made = [
        read_table(bench.made_up(part, bench.PART // 64), bench.schema())
        for part in (0, 1)
    ]
    assert [one.people[0] for one in made] == [0, bench.PART]


def test_the_law_of_error_over_people_has_effects_of_three_columns_and_a_run_says_how_far_off_it_is(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    floor = load_bench("scale", "floor")
    rows = floor.people(0, 4_000)
    odd = (rows["list0"] + rows["list1"] + rows["list2"]) % 2
    assert 0.75 < (odd == 0).mean() < 0.85
    assert abs(np.corrcoef(rows["list2"], rows["list0"])[0, 1]) < 0.1
    for name, few in {"FRESH": 4_000, "DRAWN": 500, "LEARNED": 400}.items():
        monkeypatch.setattr(floor, name, few)
    monkeypatch.setattr(
        floor,
        "METHODS",
        {"small": {"components": 4, "steps": 2, "searched_triples": 1}},
    )
    out = tmp_path / "floor.csv"
    monkeypatch.setattr(
        sys,
        "argv",
        ["floor", "--people", "300", "--methods", "small", "--out", str(out)],
    )
    floor.main()
    law, small = csv.DictReader(out.read_text().splitlines())
    assert float(law["two"]) < float(small["two"]) < 1

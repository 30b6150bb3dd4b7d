"""Tables of the papers that are not at hand: their loaders, and tables of their shape."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from understudy.data.encoding.codec import Codec


@pytest.fixture
def tables(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("common", "public_tables")


def test_a_file_in_its_published_format_is_read(
    tables: ModuleType, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    census = pd.DataFrame({"caseid": range(20), "dAge": rng.integers(8, size=20)})
    census["dYrsserv"] = np.arange(20) % 3
    census.to_csv(tmp_path / "us_census_1990.csv.gz", index=False)
    buzz = pd.DataFrame(
        {"NCD_0": np.arange(20), "AI_0": 0, "annotation": [0.0, 1.0] * 10}
    )
    buzz.to_csv(tmp_path / "buzz_twitter.csv.gz", index=False)
    np.savez(
        tmp_path / "sensit_vehicle.npz", X=rng.normal(size=(20, 3)), y=np.arange(20) % 3
    )
    read = {name: tables.load(name, tmp_path) for name in tables.NOT_AT_HAND}
    assert {name: table.target for name, table in read.items()} == {
        "census-1990": "dYrsserv",
        "twitter": "annotation",
        "vehicle": "y",
    }
    assert "caseid" not in read["census-1990"].schema.names
    rows = pd.concat([read["twitter"].train, read["twitter"].test])
    assert rows.NCD_0.value_counts().tolist() == [4] * 5  # fifths
    assert rows.AI_0.nunique() == 1  # as all are equal
    bits = pd.concat([read["vehicle"].train, read["vehicle"].test])
    assert bits.x0.sum() == 10  # above the median


def test_a_generated_table_has_the_papers_shape_and_columns_that_depend(
    tables: ModuleType,
) -> None:
    _, levels, classes = tables.SHAPES["twitter"]
    frame = tables.like(3_000, levels, classes)
    assert frame.shape == (3_000, 78)
    assert frame.corr().y.drop("y").max() > 0.3
    assert frame.drop(columns="y").nunique().max() == 5


@pytest.mark.long
def test_the_width_of_a_generated_table_is_about_the_papers(tables: ModuleType) -> None:
    widths = {"twitter": 195 + 174, "vehicle": 100 + 102}
    for name, width in widths.items():
        table = tables.load(name + tables.LIKE, Path())
        assert abs(Codec(table.schema).width - width) < 0.06 * width
        assert len(table.train) + len(table.test) == tables.SHAPES[name][0]

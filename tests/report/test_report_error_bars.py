"""The page shows one released table with its error bars, where something was
released.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.api.train import train
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.generators.generator import Generator
from understudy.privacy.accounts.budget import Budget
from understudy.report.artefacts import load_artefacts
from understudy.report.page import write_report
from understudy.report.sheets import error_bars
from understudy.runs.federation import Federation

SCHEMA = Schema(
    columns=(
        Categorical(name="plan", categories=("<a>", "b", "c")),
        Boolean(name="ill"),
        Boolean(name="far"),
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three columns, plan and ill hang together; far goes with neither."""
    rng = np.random.default_rng(0)
    plan = rng.choice(["<a>", "b", "c"], 3000)
    rows = pd.DataFrame(
        {
            "plan": plan,
            "ill": (plan == "b") ^ (rng.random(3000) < 0.1),
            "far": rng.random(3000) < 0.5,
        }
    )
    federation = Federation.rehearsal(
        {"one": rows},
        {"one": SCHEMA},
        budget=Budget(2.0, 1e-5),
        same_people=False,
        seed=1,
    )
    result = train("gram", federation, components=16, steps=60)
    return result.save(tmp_path_factory.mktemp("bars") / "run", rows=50)


def test_the_table_is_the_pair_that_stands_out_and_its_cells_are_the_released_ones(
    folder: Path,
) -> None:
    found = error_bars(load_artefacts(folder))
    assert found is not None
    assert found.columns == ("plan", "ill")
    table = Generator.load(folder).table("plan", "ill")
    assert [
        int(released.replace("−", "-").replace(",", ""))
        for _, _, released, *_ in found.rows
    ] == table["released"].tolist()
    assert [levels for levels, *_ in found.rows][:2] == [
        ["<a>", "False"],
        ["<a>", "True"],
    ]


def test_the_page_has_it_with_its_intervals_and_leaves_it_out_where_nothing_was_released(
    folder: Path,
) -> None:
    page = write_report(folder).read_text()
    section = re.search(r'<section id="bars">.*?</section>', page, re.DOTALL)
    assert section is not None
    assert section[0].count("<tr>") == 1 + 6
    assert "&lt;a&gt;" in section[0]
    assert "<a>" not in section[0]
    assert re.search(
        r"The fit misses \d+ of \d+ released pairs of columns\.", section.group()
    )
    assert '<a href="#bars">' in page
    (folder / "generator" / "release.safetensors").write_bytes(b"damaged")
    assert 'id="bars"' not in write_report(folder).read_text()

"""How many files one has to read from `us.synthesize` to the noise: those that
docs/design.md lists, and no others.
"""

import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.privacy.noise import DiscreteGaussianNoise

ROOT = Path(us.__file__).parent
DESIGN = Path(__file__).parent.parent / "docs" / "design.md"
MOST = 15
SCHEMA = Schema(
    columns=(
        Boolean(name="old"),
        Categorical(name="side", categories=("left", "right")),
    )
)


def test_gram_reads_in_the_files_that_the_design_lists_from_synthesize_to_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DiscreteGaussianNoise.draw
    seen = list[list[str]]()

    def draw(self: Any, *given: Any, **more: Any) -> Any:
        stack = [Path(frame.filename) for frame in traceback.extract_stack()]
        seen.append(
            [str(file.relative_to(ROOT)) for file in stack if file.is_relative_to(ROOT)]
        )
        return real(self, *given, **more)

    monkeypatch.setattr(DiscreteGaussianNoise, "draw", draw)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"old": rng.random(200) < 0.5, "side": rng.choice(["left", "right"], 200)}
    )
    us.synthesize(
        rows,
        epsilon=1.0,
        schema=SCHEMA,
        ledgers=tmp_path / "ledgers",
        steps=2,
        components=2,
    )
    assert seen, "noise was drawn"
    primitive = str(
        Path(__import__(real.__module__, fromlist=["_"]).__file__ or "").relative_to(
            ROOT
        )
    )
    found = dict.fromkeys([*seen[0], primitive])
    table = re.search(r"\| file \|.*?\n\n", DESIGN.read_text(), re.DOTALL)
    assert table is not None
    listed = re.findall(r"^\| `([^`]+)` \|", table[0], re.MULTILINE)
    assert [*found] == listed, "in the order in which they call each other"
    assert {file for stack in seen for file in stack} <= {*listed}
    own = re.search(r"is gram's own: (.*?)\n\n", DESIGN.read_text(), re.DOTALL)
    assert own is not None
    beside = re.findall(r"`([\w/]+\.py)`", own[1])
    assert all(
        (ROOT / "protocols" / "gram" / Path(file).name).exists() for file in beside
    )
    assert len(listed) + len(beside) <= MOST

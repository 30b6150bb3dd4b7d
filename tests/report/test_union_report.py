"""A report on a run over a union compares people at both, and takes nobody who took
part for one who did not.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.schema import Boolean, Integer, Schema
from understudy.evaluate.holdings import Holdings, Outsiders
from understudy.report import measure
from understudy.report.artefacts import Artefacts

COLUMNS = {"clinic": "ill", "insurer": "cost"}


@pytest.fixture
def run(tmp_path: Any) -> Artefacts:
    rng = np.random.default_rng(0)
    people = np.arange(60)
    ill = pd.DataFrame({"id": people[:40], "ill": rng.random(40) < 0.4})
    cost = pd.DataFrame({"id": people[20:], "cost": rng.integers(0, 10, 40)})
    parties = {}
    columns = (Boolean(name="ill"), Integer(name="cost", low=0, high=9))
    for (name, _), frame, column in zip(
        COLUMNS.items(), (ill, cost), columns, strict=True
    ):
        schema = Schema(columns=(column,), person="id")
        schema.save(tmp_path / f"{name}.toml")
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        parties[name] = {
            "table": str(tmp_path / f"{name}.csv"),
            "schema": str(tmp_path / f"{name}.toml"),
        }
    present = [Boolean(name=f"at_{name}") for name in COLUMNS]
    nullable = (
        Boolean(name="ill", nullable=True),
        Integer(name="cost", low=0, high=9, nullable=True),
    )
    synthetic = pd.DataFrame(
        {
            "ill": pd.array([True, False, None, True], dtype="boolean"),
            "cost": pd.array([3, 4, 5, None], dtype="Int64"),
            "at_clinic": [True, True, False, True],
            "at_insurer": [True, True, True, False],
        }
    )
    owners = {"ill": "clinic", "cost": "insurer"}
    owners |= {f"at_{name}": name for name in COLUMNS}
    card = {"protocol": "gram", "owners": owners}
    card |= {"union": {"both": 20, "clinic alone": 20, "insurer alone": 20}}
    return Artefacts(
        folder=tmp_path,
        card=card,
        described=Schema(columns=(*nullable, *present)),
        synthetic_tables={"": synthetic},
        settings={"parties": parties},
    )


def test_people_at_both_are_compared_and_nobody_stands_for_an_outsider(
    run: Artefacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def compare(
        real: pd.DataFrame, synthetic: pd.DataFrame, *_: Any, **more: Any
    ) -> None:
        seen.update(real=real, synthetic=synthetic, **more)

    monkeypatch.setattr(measure, "compare", compare)
    assert run.union == ["clinic", "insurer"]
    measure.measure(run)
    assert len(seen["real"]) == 20
    assert seen["synthetic"].to_dict("list") == {"ill": [True, False], "cost": [3, 4]}
    assert seen["outsiders"] == ()
    assert "Those at both are compared" in seen["notes"][0]


def test_outsiders_of_a_union_are_none() -> None:
    schema = Schema(columns=(Boolean(name="ill"),))
    frame = pd.DataFrame({"ill": [True]})
    group = Outsiders(inside=frame, outside=frame, schema=schema, label="clinic")
    held = Holdings(real=frame, schema=schema, outsiders=(group,))
    assert measure._of_union(held).outsiders == ()

"""Columns that several holders of the same people have: whose copy a run uses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.api.train import run_file, train
from understudy.data.rules import Rule
from understudy.data.schema import Categorical, Schema
from understudy.data.shared_columns import run_schemas
from understudy.ground.errors import ConfigError, SchemaError
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile

PEOPLE = 400
LEVELS = np.array(list("abcd"))


def declared(*names: str, levels: str = "abcd", **more: Any) -> Schema:
    columns = tuple(Categorical(name=name, categories=tuple(levels)) for name in names)
    return Schema(columns=columns, person="id", **more)


SCHEMAS = {"clinic": declared("age", "x"), "insurer": declared("y", "age")}


def tables(wrong: int = 0) -> dict[str, pd.DataFrame]:
    """Two holders with the same column, whose copies differ for the first people."""
    rng = np.random.default_rng(0)
    age, x, y = rng.integers(0, 4, (3, PEOPLE))
    other = age.copy()
    other[:wrong] = (other[:wrong] + 1) % 4
    ids = np.arange(PEOPLE)
    return {
        "clinic": pd.DataFrame({"id": ids, "age": LEVELS[age], "x": LEVELS[x]}),
        "insurer": pd.DataFrame({"id": ids, "y": LEVELS[y], "age": LEVELS[other]}),
    }


def sampled(
    rows: dict[str, pd.DataFrame],
    shared: dict[str, str] | None,
    schemas: dict[str, Schema] | None = None,
    /,
    *,
    protocol: str = "gram",
    epsilon: float = 50.0,
    **settings: Any,
) -> pd.DataFrame:
    federation = Federation.rehearsal(
        rows,
        schemas or SCHEMAS,
        budget=Budget(epsilon, 1e-6),
        seed=0,
        shared_columns=shared,
    )
    return train(protocol, federation, **settings).generator.sample(1000, seed=1)


def test_one_holders_copy_stands_for_all_and_every_copy_has_a_name_of_its_own() -> None:
    one = run_schemas(SCHEMAS, {"age": "insurer"})
    assert [one[name].names for name in SCHEMAS] == [("x",), ("y", "age")]
    each = run_schemas(SCHEMAS, {"age": "each"})
    names = [each[name].names for name in SCHEMAS]
    assert names == [("age (clinic)", "x"), ("y", "age (insurer)")]
    assert run_schemas(SCHEMAS, {}) == SCHEMAS


@pytest.mark.parametrize(
    ("changes", "shared", "message"),
    [
        ({}, {"x": "clinic"}, '"x" is a column of clinic alone'),
        ({}, {"z": "clinic"}, '"z" is a column of nobody alone'),
        ({}, {"age": "bank"}, "not of 'bank'"),
        (
            {"insurer": declared("y", "age", levels="abc")},
            {"age": "clinic"},
            'declare "age" in different ways',
        ),
        (
            {"insurer": declared("age")},
            {"age": "clinic"},
            "nothing is left of the columns of insurer",
        ),
        (
            {
                "insurer": declared(
                    "y", "age", rules=(Rule(always="age != 'a' or y = 'b'"),)
                )
            },
            {"age": "clinic"},
            "a rule of insurer speaks of",
        ),
        (
            {"insurer": declared("y", "age", rules=(Rule(always="age != 'a'"),))},
            {"age": "each"},
            "a rule of insurer speaks of age",
        ),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused_before_a_row_is_read(
    changes: dict[str, Schema], shared: dict[str, str], message: str
) -> None:
    nobody = dict.fromkeys(SCHEMAS, Path("there is no such file.csv"))
    with pytest.raises(SchemaError, match=message):
        Federation.rehearsal(
            nobody, SCHEMAS | changes, budget=1.0, shared_columns=shared
        )


def test_without_a_choice_a_column_of_two_holders_is_refused_as_before() -> None:
    with pytest.raises(SchemaError, match="shared_columns whose copy is used"):
        sampled(tables(), None)


def test_a_copy_that_is_not_used_is_not_read() -> None:
    rows = tables()
    rows["insurer"]["age"] = "what no schema declares"
    alone = rows | {"insurer": rows["insurer"].drop(columns="age")}
    without = SCHEMAS | {"insurer": declared("y")}
    assert sampled(rows, {"age": "clinic"}).equals(sampled(alone, None, without))
    with pytest.raises(SchemaError):
        sampled(rows, {"age": "each"})


def test_each_copy_buys_for_how_many_people_they_disagree() -> None:
    rows = sampled(tables(wrong=100), {"age": "each"})
    share = (rows["age (clinic)"] != rows["age (insurer)"]).mean()
    assert abs(share - 100 / PEOPLE) < 0.05


@pytest.mark.parametrize("protocol", ["verti-gan", "vd-gan-dpsgd", "vd-gan-pate"])
@pytest.mark.parametrize("owner", ["clinic", "each"])
def test_the_vertical_gans_train_on_the_copies_that_were_chosen(
    protocol: str, owner: str
) -> None:
    settings: dict[str, Any] = {"rounds": 1, "critic_steps": 1, "batch": 8}
    if protocol != "verti-gan":
        settings["rows"] = 8
    if protocol == "vd-gan-pate":
        settings |= {"teachers": 4, "top": 2}
    rows = sampled(
        tables(), {"age": owner}, protocol=protocol, device="cpu", **settings
    )
    copies = ["age"] if owner == "clinic" else ["age (clinic)", "age (insurer)"]
    assert set(rows.columns) == {*copies, "x", "y"}


def written(folder: Path, shared: str) -> RunFile:
    for name, table in tables().items():
        table.to_csv(folder / f"{name}.csv", index=False)
        SCHEMAS[name].save(folder / f"{name}.toml")
    parties = "\n".join(
        f'[parties.{name}]\ntable = "{name}.csv"\nschema = "{name}.toml"\n'
        "epsilon = 20.0\ndelta = 1e-6"
        for name in SCHEMAS
    )
    file = folder / "run.toml"
    file.write_text(f'protocol = "gram"\nout = "out"\n{shared}\n{parties}\n')
    return RunFile.load(file)


def test_a_run_file_says_whose_copy_is_used_and_its_record_says_it_again(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, '[shared_columns]\nage = "insurer"')
    result, out = run_file(file, seed=0)
    assert result.generator.card["owners"]["age"] == "insurer"
    kept = RunFile.load(out / "run.toml")
    assert kept.shared_columns == {"age": "insurer"}
    assert kept.drafts_in_run() == run_schemas(SCHEMAS, {"age": "insurer"})


def test_a_run_file_with_another_kind_of_choice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shared_columns"):
        written(tmp_path, "shared_columns = { age = 3 }")


def test_a_long_table_keeps_the_names_of_its_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from understudy.data import table

    monkeypatch.setattr(table, "_is_long", lambda *_: True)
    assert "age" in sampled(tables(), {"age": "clinic"})
    with pytest.raises(ConfigError, match="cannot be renamed"):
        sampled(tables(), {"age": "each"})


def test_schemas_that_differ_in_their_rules_alone_share_a_column() -> None:
    with_rule = replace(SCHEMAS["clinic"], rules=(Rule(always="x != 'd'"),))
    schemas = run_schemas(SCHEMAS | {"clinic": with_rule}, {"age": "insurer"})
    assert schemas["clinic"].rules == with_rule.rules

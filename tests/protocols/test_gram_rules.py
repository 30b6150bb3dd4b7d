"""Rules in gram: known before anything is paid, zero to the fit, kept by what is
drawn.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gram_cases import BUDGET, SMALL, all_parties, by_columns

from understudy.answers.rules import all_keep
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, SchemaError
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.protocol import Config
from understudy.runs.registry import protocol_named
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties

# two holders
ACROSS: dict[str, Any] = {"when": "smoker == true", "then": "treated == false"}
WITHIN: dict[str, Any] = {"when": "colour == 'red'", "then": "age >= 50"}


def test_rules_of_schemas_and_of_the_run_are_kept_by_what_is_drawn_and_saved(
    tmp_path: Path,
) -> None:
    tables, schemas = by_columns(2)
    holder = next(
        name for name, one in schemas.items() if {"colour", "age"} <= set(one.names)
    )
    assert not any({"smoker", "treated"} <= set(one.names) for one in schemas.values())
    schemas = schemas | {holder: replace(schemas[holder], rules=(WITHIN,))}
    config = Config(**SMALL, rules=(ACROSS,))
    parties = LocalParties(all_parties(tables, schemas))
    made = Generator.from_parts(gram.train(config, parties, schemas).trained)
    loaded = Generator.load(made.save(tmp_path))
    assert [str(rule) for rule in loaded.schema.rules] == [  # type: ignore[union-attr]
        "when colour == 'red' then age >= 50",
        "when smoker == true then treated == false",
    ]
    rows = loaded.sample(500, seed=0)
    assert all_keep(loaded.schema, rows).all()  # type: ignore[arg-type]
    table = loaded.table("smoker", "treated")
    forbidden = (table["smoker"] == True) & (table["treated"] != False)  # noqa: E712
    assert table["share"][forbidden].sum() == 0
    assert table["released"][forbidden].any(), "what was released is as it was"


def test_the_law_given_the_rules_is_what_is_fitted_to_the_same_release() -> None:
    """The released counts, those that no row can have too, reach the fit as they are,
    and the rules beside them.
    """
    tables, schemas = by_columns(2)
    levels = toy(rows=30, seed=3)[1]  # more of them
    schemas = {name: levels.select(schema.names) for name, schema in schemas.items()}
    made = {
        ruled: gram.train(
            Config(**SMALL, rules=(ACROSS,) if ruled else ()),
            LocalParties(all_parties(tables, schemas)),
            schemas,
        ).trained
        for ruled in (False, True)
    }
    # fitted without the rule, asked with it
    free = replace(made[False], schema=made[True].schema)
    people = len(next(iter(tables.values())))
    off = {}
    for name, one in (("free", free), ("ruled", made[True])):
        table = Generator.from_parts(one).table("smoker", "treated")
        forbidden = (table["smoker"] == True) & (table["treated"] != False)  # noqa: E712
        assert table["share"][forbidden].sum() == 0
        gap = (table["count"] - table["released"])[~forbidden].abs().sum() / people
        off[name] = float(gap)
    assert off["ruled"] < off["free"], "what is asked is what was fitted"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([ACROSS, {"when": "smoker == true", "then": "treated == true"}], "contradict"),
        (
            [{"always": "smoker == true"}, {"always": "smoker == false"}],
            "leave nothing",
        ),
        (
            [{"when": "smoker == true", "then": "treeted == false"}],
            'Did you mean "treated"',
        ),
    ],
)
def test_rules_that_cannot_be_are_refused_before_anything_is_charged(
    rules: list[Any], said: str
) -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    with pytest.raises((ConfigError, SchemaError), match=said):
        gram.train(Config(**SMALL, rules=tuple(rules)), LocalParties(parties), schemas)
    assert not any(one.ledger.entries()[1:] for one in parties.values())


def test_a_run_file_has_rules_across_holders_and_a_protocol_without_them_refuses():
    party = {
        "table": "t.csv",
        "schema": "s.toml",
        "epsilon": BUDGET.epsilon,
        "delta": BUDGET.delta,
    }
    body = {
        "protocol": "gram",
        "out": "o",
        "rules": [ACROSS],
        "parties": {"one": party},
    }
    file = RunFile.from_dict(body, folder=Path())
    assert protocol_named("gram").configured(file.settings).rules == (ACROSS,)
    assert "rules" in file.to_toml()
    with pytest.raises(ConfigError, match="rules"):
        protocol_named("verti-gan").configured(file.settings)
    with pytest.raises(ConfigError, match="rules stand once"):
        RunFile.from_dict(body | {"settings": {"rules": [ACROSS]}}, folder=Path())
    for wrong in ([{"when": "a == 1"}], "a", [3]):
        with pytest.raises((ConfigError, SchemaError)):
            protocol_named("gram").configured(
                RunFile.from_dict(body | {"rules": wrong}, folder=Path()).settings
            )

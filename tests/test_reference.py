"""The reference says what is so: every setting, every key of a run file and of a
schema, and examples that run.
"""

import dataclasses
import re
import runpy
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from test_cli import Run
from understudy.data.schema import KINDS, Boolean, Categorical, Schema
from understudy.runs.registry import PROTOCOLS, protocol_named, settings_of
from understudy.runs.runfile import TOP, PartySection, RunFile

DOCS = Path(__file__).parent.parent / "docs"
SNIPPETS = re.findall(
    r"^```toml\n(.*?)^```", (DOCS / "commands.md").read_text(), re.MULTILINE | re.DOTALL
)
EXAMPLES = [text for text in SNIPPETS if text.startswith("protocol")]
TABLES = [text for text in SNIPPETS if text.startswith("[")]


def keys(page: str) -> set[str]:
    """What stands in the first column of a table."""
    rows = re.findall(r"^\| (`[^|]+) \|", (DOCS / page).read_text(), re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`\[*([a-z_]+)", row)}


def test_the_page_of_settings_is_what_the_configs_say() -> None:
    reference = runpy.run_path(str(DOCS / "reference.py"))["reference"]
    assert (DOCS / "settings.md").read_text() == reference(), "run `make reference`"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_setting_has_a_meaning_and_values(protocol: str) -> None:
    found = settings_of(protocol)
    assert [one.name for one in found] == list(PROTOCOLS[protocol].settings)
    for one in found:
        assert one.meaning, one.name
        assert one.values, one.name
        assert "\n" not in one.meaning


def test_ranges_are_those_that_a_config_keeps() -> None:
    values = {one.name: one.values for one in settings_of("gram")}
    assert values["first_pass_share"] == "between 0.05 and 0.95"
    assert values["steps"] == "a whole number of at least 1"
    protocol_named("gram").configured({"first_pass_share": 0.95})
    assert {one.name: one.values for one in settings_of("verti-gan")}[
        "sampling"
    ] == "private, shared"


def test_the_command_lists_every_setting_of_a_protocol(understudy: Run) -> None:
    code, out, _ = understudy("protocols", "gram")
    assert code == 0
    for one in settings_of("gram"):
        assert one.meaning in out
    code, _, err = understudy("protocols", "gramm")
    assert code == 1
    assert 'Did you mean "gram"?' in err
    assert "verti-gan" in understudy("protocols")[1]


def test_every_key_of_a_run_file_stands_in_its_page() -> None:
    assert keys("commands.md") == {
        *TOP,
        *(field.name for field in dataclasses.fields(PartySection)),
    }


def test_every_kind_and_key_of_a_schema_stands_in_its_page() -> None:
    page = (DOCS / "schema.md").read_text()
    for kind, column in KINDS.items():
        assert f"`{kind}`" in page
        for field in dataclasses.fields(column):
            assert f"`{field.name}`" in page or field.name == "name", field.name
    for field in dataclasses.fields(Schema):
        assert f"`{field.name}`" in page or f"[{field.name}" in page, field.name


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split('"')[1])
def test_the_run_files_of_the_page_are_run_files(text: str) -> None:
    file = RunFile.from_dict(tomllib.loads(text), folder=Path())
    protocol_named(file.protocol).configured(file.settings)


@pytest.mark.parametrize("text", TABLES, ids=lambda text: text.split("]")[0][1:])
def test_the_tables_of_the_page_belong_into_a_run_file(text: str) -> None:
    RunFile.from_dict(tomllib.loads(EXAMPLES[0] + text), folder=Path())
    assert len(EXAMPLES) + len(TABLES) == len(SNIPPETS)


def test_the_example_of_a_run_file_is_one_and_has_settings(understudy: Run) -> None:
    body = tomllib.loads(understudy("run", "--example")[1])
    assert body["settings"] == {"target": "churned"}
    RunFile.from_dict(body, folder=Path())


def test_the_example_for_phones_runs(understudy: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    plan = rng.choice(["free", "paid"], 400)
    churned = rng.random(400) < np.where(plan == "free", 0.7, 0.2)
    pd.DataFrame({"id": range(400), "plan": plan, "churned": churned}).to_csv(
        tmp_path / "phones.csv", index=False
    )
    columns = (
        Categorical(name="plan", categories=("free", "paid")),
        Boolean(name="churned"),
    )
    Schema(person="id", columns=columns).save(tmp_path / "phones.toml")
    (tmp_path / "run.toml").write_text(
        EXAMPLES[1].replace("out =", 'holdout = "phones.csv"\nout =')
    )
    code, out, err = understudy("run", tmp_path / "run.toml")
    assert (code, err) == (0, "")
    assert "% of the classes are predicted correctly" in out
    assert "a person reports at most 2 times, for ε = 4 each" in out

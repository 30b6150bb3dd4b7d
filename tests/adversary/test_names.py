"""A name that somebody else chose leads nowhere, and is judged before anything is
written or said.
"""

import os
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from refusals import raises
from understudy.api.train import run_file
from understudy.cli import app
from understudy.data.column import Integer
from understudy.data.schema import Schema
from understudy.ground.check import file_names, plain_name, plain_names
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile
from understudy.runtime.contract import Contract
from understudy.runtime.identity import Authority, Invitation

BAD = [
    "../../evil",
    "a/b",
    "a\\b",
    "/abs",
    ".",
    "..",
    ".hidden",
    "-rf",
    " first",
    "last ",
    "",
    "a\0b",
    "a\nb",
    "\x1b[31m",
    "a\u202eb",
    "a\u200bb",
    "e\u0301",
    "a" * 65,
    "é" * 33,
    "c:",
    'say "hi"',
    "\ud800",
]
GOOD = [
    "clinic",
    "holder 0",
    "A&E St. Mary's",
    "north-2_b.x",
    "Krankenhaus Süd",
    "病院",
    "a" * 64,
    "ε=2, (pilot)",
]


@pytest.mark.parametrize("bad", BAD, ids=ascii)
def test_what_is_no_plain_name_is_refused(bad: str) -> None:
    with raises(
        ConfigError, effect=Effect.NOTHING_WRITTEN, match="must be a plain name, and"
    ):
        plain_name(party=bad)


@pytest.mark.parametrize("good", GOOD)
def test_a_plain_name_is_a_name_of_one_file_in_its_folder(
    good: str, tmp_path: Path
) -> None:
    plain_name(party=good)
    (tmp_path / f"{good}.ledger").touch()
    assert os.listdir(tmp_path) == [f"{good}.ledger"]


@given(st.text(max_size=70))
def test_every_name_that_passes_stays_in_its_folder(text: str) -> None:
    try:
        plain_name(party=text)
    except ConfigError:
        return
    place = Path("/home") / f"{text}.ledger"
    assert Path(os.path.normpath(place)) == place
    assert place.parent == Path("/home")
    assert len(os.fsencode(place.name)) <= 255


def test_two_names_that_are_one_file_on_some_machines_are_refused() -> None:
    plain_names(["a", "b"], "party")
    with pytest.raises(
        ConfigError, match='"Clinic" and "clinic" are two names of a party'
    ):
        plain_names(["Clinic", "clinic"], "party")


@given(st.lists(st.text(max_size=40) | st.integers() | st.booleans(), max_size=8))
def test_labels_have_file_names_of_their_own(labels: list[object]) -> None:
    texts = list(dict.fromkeys(map(str, labels)))
    made = file_names(texts)
    assert len({name.casefold() for name in made}) == len(texts)
    for name in made:
        assert name.isascii()
        assert len(name) < 64
        assert set(name) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
        )
        assert name[0] != "-"


def test_short_and_plain_labels_are_their_own_file_names() -> None:
    assert file_names([False, True]) == ["False", "True"]
    assert file_names([0, 12, "sick"]) == ["0", "12", "sick"]


# Each place where a name comes in from elsewhere


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("bad", ["../../evil", "a\0b", "..", "x" * 300], ids=ascii)
def test_a_run_file_with_such_a_party_is_refused_before_anything_is_written(
    bad: str, tmp_path: Path
) -> None:
    home = tmp_path / "deep" / "er"
    home.mkdir(parents=True)
    pd.DataFrame({"id": range(40), "age": [30] * 40}).to_csv(
        home / "t.csv", index=False
    )
    Schema(columns=(Integer(name="age", low=0, high=99),), person="id").save(
        home / "s.toml"
    )
    section = {"table": "t.csv", "schema": "s.toml", "epsilon": 1.0, "delta": 1e-6}
    body = {"protocol": "gram", "out": "out", "parties": {bad: section}}
    (home / "run.toml").write_text(tomli_w.dumps(body))
    before = files_under(tmp_path)
    with raises(ConfigError, effect=Effect.NOTHING_READ_OR_CHARGED, match="plain name"):
        run_file(RunFile.load(home / "run.toml"))
    assert files_under(tmp_path) == before


@pytest.mark.parametrize("bad", ["../evil", "a\0b"], ids=ascii)
def test_a_federation_in_one_process_refuses_such_a_holder(
    bad: str, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"id": range(9), "age": [30] * 9})
    schema = Schema(columns=(Integer(name="age", low=0, high=99),), person="id")
    for build in (Federation, Federation.rehearsal):
        more = {"ledgers": tmp_path / "deep"} if build is Federation else {}
        with pytest.raises(ConfigError, match="plain name"):
            build({bad: frame}, {bad: schema}, budget=Budget(1, 1e-6), **more)
    assert files_under(tmp_path) == set()


@pytest.mark.parametrize("bad", ["../evil", "a\0b", "e\u0301", "é" * 40], ids=ascii)
def test_no_federation_is_founded_when_a_party_cannot_be_invited(
    bad: str, tmp_path: Path
) -> None:
    folder = tmp_path / "fed"
    for arguments in (
        ["ward", "--party", "clinic", "--party", bad],
        [bad],
        ["ward", "--party", "a", "--party", "A"],
    ):
        said = CliRunner().invoke(
            app,
            ["federation", "init", *arguments, "--at", "h:1", "--folder", str(folder)],
        )
        assert isinstance(said.exception, ConfigError), said.output
        assert "is created" not in said.output
        assert files_under(tmp_path) == set()


def test_a_party_is_not_invited_under_a_name_that_is_taken_but_for_its_case(
    tmp_path: Path,
) -> None:
    authority = Authority.create(tmp_path, name="ward", address="h:1")
    authority.invite("clinic")
    with raises(ConfigError, effect=Effect.NOTHING_CHANGED, match='"Clinic"'):
        authority.invite("Clinic")
    authority.renew("clinic")


@pytest.mark.parametrize("name", ["a" * 64, "é" * 32, "病院" * 10])
def test_the_longest_names_still_have_certificates(name: str, tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, name=name, address="h:1")
    assert Invitation.load(authority.invite(name)).party == name


def test_an_invitation_cannot_name_a_folder_of_its_readers_machine(
    tmp_path: Path,
) -> None:
    authority = Authority.create(tmp_path, name="ward", address="h:1")
    good = asdict(Invitation.load(authority.invite("clinic")))
    for change in (
        {"party": "../../evil"},
        {"party": "a\0b"},
        {"federation": "\x1b[2J"},
    ):
        (tmp_path / "bad.toml").write_text(tomli_w.dumps(good | change))
        with raises(ConfigError, effect=Effect.NOTHING_SENT, match="plain name"):
            Invitation.load(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    "change", [("run", "\x1b[2Jrun"), ("federation", "a/b"), ("party", "../evil")]
)
def test_a_contract_with_such_a_name_is_none(change: tuple[str, str]) -> None:
    parts = {"federation": "ward", "run": "gram-1", "party": "clinic"} | dict([change])
    party = parts.pop("party")
    with pytest.raises(ConfigError, match="plain name"):
        Contract(
            **parts,
            protocol="gram",
            settings={},
            schemas={party: "0"},
            columns={},
            budgets={party: Budget(1, 1e-6)},
        )


def test_a_contract_on_the_wire_with_such_a_name_is_refused() -> None:
    good = Contract(
        federation="ward",
        run="gram-1",
        protocol="gram",
        settings={},
        schemas={"clinic": "0"},
        columns={},
        budgets={"clinic": Budget(1, 1e-6)},
    )
    assert Contract.from_text(good.text) == good
    with pytest.raises(MessageError):
        Contract.from_text(good.text.replace('"clinic"', '"../clinic"'))

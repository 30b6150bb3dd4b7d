"""A hub that edits the price before anybody signs: every field of a statement that
carries a claim, forged.
"""

import copy
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from evidence_cases import NAMES, one_report_of_two, two_critics, two_holders

import understudy as us
from understudy.evidence.claims import EvidenceError, ledger_witness, require_witnessed
from understudy.evidence.folder import write_evidence
from understudy.evidence.signing import (
    new_key,
    sign_folder,
    sign_statement,
    statement_to_sign,
    verify_folder,
)
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.statement import PrivacyStatement

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def gram(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_holders(tmp_path_factory.mktemp("gram"))


@pytest.fixture(scope="module")
def critics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_critics(tmp_path_factory.mktemp("critics"))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_report_of_two(tmp_path_factory.mktemp("reports"))


def _stated(run: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((run / "out" / "privacy.json").read_text())
    return body


def _forged(run: Path, out: Path, change: Change) -> Path:
    """The run's folder as a hub gives it out that has changed privacy.json and the card
    alike.
    """
    shutil.copytree(run / "out", out)
    stated = _stated(run)
    change(stated)
    (out / "privacy.json").write_text(json.dumps(stated))
    (card_file,) = [
        out / home / "card.json"
        for home in ("generator", "model")
        if (out / home).is_dir()
    ]
    card = json.loads(card_file.read_text()) | {"privacy": stated}
    card_file.write_text(json.dumps(card))
    return out


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = False
    for key, item in items:
        found = True
        yield from _leaves(item, (*path, key))
    if not found:
        yield path


def _at(body: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        body = body[key]
    return body


def _put(path: tuple[Any, ...], value: Any) -> Change:
    def change(stated: dict[str, Any]) -> None:
        _at(stated, path[:-1])[path[-1]] = value

    return change


def _other(value: Any, path: tuple[Any, ...]) -> Any:
    """A value that claims more than this one: smaller, otherwise, or not at all."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 2 * value if path[-1] == "rounds" else value // 2
    if isinstance(value, float):
        return value * 0.9
    if isinstance(value, str):
        return value + " and more"
    return 0.01


WORD_OF_THE_RUN = {"outside"}  # no ledger holds them (docs/evidence.md)
# Which uses were in which round decides the price of the dearest alone; what is in none
# counts as one.
OF_ROUNDS = {"uses_of_rounds"}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["gram", "critics", "reports"])
def test_every_field_of_a_statement_that_is_claimed_otherwise_is_refused_by_who_holds_the_ledger(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run: Path = request.getfixturevalue(kind)
    stated = _stated(run)
    ledger = run / f"{NAMES[0]}.ledger"
    honest = write_evidence(run / "out", tmp_path / "honest")
    statement_to_sign(honest, ledger=ledger)
    let_through = []
    for path in _leaves(stated):
        if (WORD_OF_THE_RUN | OF_ROUNDS) & set(path) or (
            path[0] == "parties" and path[1] != 0
        ):
            continue
        changed = copy.deepcopy(stated)
        _put(path, _other(_at(stated, path), path))(changed)
        (honest / "privacy.json").write_text(json.dumps(changed))
        _write_card(honest, changed)
        try:
            statement_to_sign(honest, ledger=ledger)
            let_through.append(path)
        except EvidenceError:
            continue
    assert let_through == []


def _write_card(folder: Path, stated: Mapping[str, Any]) -> None:
    (place,) = folder.glob("*/card.json")
    place.write_text(json.dumps(json.loads(place.read_text()) | {"privacy": stated}))


def _recomputed(**person: Any) -> Change:
    """A forgery that holds together: prices that follow from another way to compose
    them.
    """

    def change(stated: dict[str, Any]) -> None:
        stated["person"] |= person
        stated |= PrivacyStatement.from_dict(stated).to_dict()

    return change


def _other_delta(stated: dict[str, Any]) -> None:
    for party in stated["parties"]:
        party["budget"]["delta"] = 0.4
    stated |= PrivacyStatement.from_dict(stated).to_dict()


def _one_use(stated: dict[str, Any]) -> None:
    """The outsider's uses cut to one line, and every figure by that."""
    for party in stated["parties"]:
        party["uses"]["outsider"] = [party["uses"]["outsider"][0] | {"count": 1}]
    stated |= PrivacyStatement.from_dict(stated).to_dict()


def _more_noise(stated: dict[str, Any]) -> None:
    text = json.dumps(stated)
    for party in stated["parties"]:
        for uses in (*party["uses"].values(), *party["uses_of_rounds"]):
            for use in uses:
                event = json.loads(use["event"])
                use["event"] = json.dumps(_quieter(event), separators=(",", ":"))
    stated |= PrivacyStatement.from_dict(stated).to_dict()
    assert json.dumps(stated) != text


def _quieter(event: Any) -> Any:
    if not isinstance(event, dict):
        return event
    louder = {"rho": 0.01, "sigma": 10.0, "noise_multiplier": 10.0, "epsilon": 0.1}
    return {
        key: value * louder[key] if key in louder else _quieter(value)
        for key, value in event.items()
    }


def _hidden_rounds(stated: dict[str, Any]) -> None:
    for party in stated["parties"]:
        party["uses_of_rounds"] = []
        party["epsilon_round"] = dict.fromkeys(party["epsilon_round"], 0.01)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "change", "word"),
    [
        ("gram", _hidden_rounds, "epsilon_round"),
        ("gram", _other_delta, "another budget"),
        ("gram", _more_noise, "no entry of its ledger pays for"),
        ("gram", _recomputed(same_people=False), "same people"),
        ("critics", _recomputed(one_release=True), "one release"),
        ("critics", _recomputed(same_people=False), "same people"),
        (
            "critics",
            _recomputed(common_sample=False, common_steps=None),
            "common sample",
        ),
        ("critics", _one_use, "not stated against an outsider"),
        ("reports", _recomputed(max_holders_per_person=2), "max holders per person"),
        ("reports", _recomputed(together=[]), "local"),
        (
            "reports",
            _put(("adjacency",), "add or remove one person, with all their rows"),
            "adjacency",
        ),
    ],
)
def test_a_forged_statement_that_holds_together_is_refused_by_the_holders_own_record(
    kind: str, change: Change, word: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run: Path = request.getfixturevalue(kind)
    folder = write_evidence(
        _forged(run, tmp_path / "out", change), tmp_path / "evidence"
    )
    with pytest.raises(EvidenceError, match=word):
        statement_to_sign(folder, ledger=run / f"{NAMES[0]}.ledger")


@pytest.mark.parametrize("kind", ["gram", "critics", "reports"])
def test_honest_evidence_is_signed_by_all_and_verified(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run: Path = request.getfixturevalue(kind)
    folder = write_evidence(run / "out", tmp_path / "evidence")
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    for name in NAMES:
        public = new_key(tmp_path / "keys" / f"{name}.key")
        shutil.copy(public, trusted)
        sign_folder(folder, public.with_suffix(".key"), ledger=run / f"{name}.ledger")
    assert set(verify_folder(folder, trusted).signers) == set(NAMES)


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "word"),
    [
        (
            _put(("person", "epsilon", "server"), 0.01),
            r"person\.epsilon\.server is stated as 0\.01",
        ),
        (_put(("person", "right_guesses", "server"), 0.5001), "right_guesses"),
        (_more_noise, "no entry of its ledger pays for"),
        (_other_delta, "another budget"),
    ],
)
def test_verify_refuses_a_forgery_that_every_holder_was_made_to_sign(
    gram: Path, tmp_path: Path, change: Change, word: str
) -> None:
    """As if a holder's own check had been switched off: it signs what its ledger says
    beside the forged files.
    """
    honest = write_evidence(gram / "out", tmp_path / "honest")
    folder = write_evidence(
        _forged(gram, tmp_path / "out", change), tmp_path / "evidence"
    )
    statements = {
        name: statement_to_sign(honest, ledger=gram / f"{name}.ledger")
        for name in NAMES
    }
    trusted = _signed_by_all(folder, statements, tmp_path)
    with pytest.raises(EvidenceError, match=word):
        verify_folder(folder, trusted)


DERIVED = (
    "deployment.yaml",
    "checklist.json",
    "checklist.html",
    "report.html",
    "README.md",
    "croissant.json",
    "dcat.ttl",
)


def _smaller_price(folder: Path, name: str) -> None:
    """One derived file claims a tenth of ε, or else that guesses are right less
    often.
    """
    text = (folder / name).read_text()
    forged = re.sub(r"ε = 0\.99\d*", "ε = 0.0999", text)
    forged = (
        forged
        if forged != text
        else re.sub(r"at most \d+ of 100", "at most 51 of 100", text)
    )
    assert forged != text, name
    (folder / name).write_text(forged)


@pytest.mark.long
@pytest.mark.parametrize("name", DERIVED)
def test_a_derived_file_that_claims_less_than_the_statement_is_refused_by_who_signs_and_who_verifies(
    gram: Path, tmp_path: Path, name: str
) -> None:
    folder = write_evidence(gram / "out", tmp_path / "evidence")
    statements = {
        holder: statement_to_sign(folder, ledger=gram / f"{holder}.ledger")
        for holder in NAMES
    }
    _smaller_price(folder, name)
    for ledger in (gram / f"{NAMES[0]}.ledger", None):
        with pytest.raises(EvidenceError, match=f"{name} is not what follows"):
            statement_to_sign(folder, ledger=ledger)
    with pytest.raises(EvidenceError, match=f"{name} is not what follows"):
        verify_folder(folder, _signed_by_all(folder, statements, tmp_path))


def test_a_folder_that_says_more_than_its_run_published_is_not_signed(
    gram: Path, tmp_path: Path
) -> None:
    folder = write_evidence(gram / "out", tmp_path / "evidence")
    said = json.loads((folder / "about.json").read_text())
    for versions in (
        {"understudy": "0.1, audited, ε = 0.1"},
        {"understudy": "0.1", "ε": "0.1"},
        {},
    ):
        (folder / "about.json").write_text(json.dumps(said | {"versions": versions}))
        with pytest.raises(
            EvidenceError, match="who wrote the evidence cannot be read"
        ):
            statement_to_sign(folder)
    (folder / "about.json").write_text(json.dumps(said))
    (folder / "audit.html").write_text("ε = 0.1")
    with pytest.raises(EvidenceError, match=r"audit\.html follows from nothing"):
        statement_to_sign(folder)
    (folder / "audit.html").rename(folder / "report.html")
    with pytest.raises(EvidenceError, match=r"report\.html is not what follows"):
        statement_to_sign(folder)
    (folder / "report.html").unlink()
    with pytest.raises(EvidenceError, match=r"report\.html is missing"):
        statement_to_sign(folder)


@pytest.mark.parametrize("kind", ["gram", "critics", "reports"])
def test_a_number_of_people_that_the_ledger_does_not_have_is_refused(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run: Path = request.getfixturevalue(kind)
    ledger = run / f"{NAMES[0]}.ledger"
    for people in (30_000, None):
        forged = _forged(
            run, tmp_path / f"out-{people}", _put(("parties", 0, "people"), people)
        )
        folder = write_evidence(forged, tmp_path / f"evidence-{people}")
        with pytest.raises(EvidenceError, match="another number of people"):
            statement_to_sign(folder, ledger=ledger)


def _signed_by_all(folder: Path, statements: Mapping[str, Any], home: Path) -> Path:
    """The folder as it stands, signed by all with what they said of it before; the
    trusted keys.
    """
    trusted = home / "trusted"
    trusted.mkdir()
    for name, statement in statements.items():
        public = new_key(home / "keys" / f"{name}.key")
        shutil.copy(public, trusted)
        signed = statement | {"subject": _digests_of(folder)}
        sign_statement(folder, signed, public.with_suffix(".key").read_bytes(), name)
    return trusted


def _digests_of(folder: Path) -> Any:
    from understudy.evidence.signing import _digests

    return [
        {"name": place, "digest": {"sha256": mark}}
        for place, mark in sorted(_digests(folder).items())
    ]


@pytest.mark.filterwarnings("ignore::understudy.ground.errors.UtilityWarning")
def test_a_table_whose_schema_was_bought_is_signed_by_its_holder(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.integers(18, 90, 400), "ill": rng.integers(0, 2, 400).astype(bool)}
    )
    us.synthesize(
        frame,
        epsilon=1.0,
        names_and_kinds_are_public=True,
        name="clinic",
        folder=tmp_path / "out",
        ledgers=tmp_path,
        steps=20,
    )
    folder = write_evidence(tmp_path / "out", tmp_path / "evidence")
    statement = statement_to_sign(folder, ledger=tmp_path / "clinic.ledger")
    # the schema and the release
    assert len(statement["predicate"]["ledger"]["receipts"]) > 1


def test_noise_that_is_not_secure_is_evidence_of_nothing_whatever_is_stated(
    gram: Path,
) -> None:
    with Ledger(gram / "clinic.ledger") as book:
        (run,) = book.runs()
        said = ledger_witness(book, run)
    require_witnessed("clinic", said, _stated(gram), "gram")
    said["terms"] = [one | {"rehearsal": ["fast"]} for one in said["terms"]]
    with pytest.raises(EvidenceError, match="rehearsal"):
        require_witnessed("clinic", said, _stated(gram), "gram")


def test_a_ledger_from_before_terms_were_kept_signs_nothing_and_still_opens(
    gram: Path, tmp_path: Path
) -> None:
    book = tmp_path / "clinic.ledger"
    with (
        closing(sqlite3.connect(gram / book.name)) as whole,
        closing(sqlite3.connect(book)) as older,
    ):
        whole.backup(older)
        older.execute("DROP TABLE terms")
    folder = write_evidence(gram / "out", tmp_path / "evidence")
    with pytest.raises(EvidenceError, match="earlier versions"):
        statement_to_sign(folder, ledger=book)

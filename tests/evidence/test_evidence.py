"""Evidence of a run: what it holds, who signed it, and what is refused."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import mlcroissant
import pandas as pd
import pyshacl
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent, DpEvent, GaussianDpEvent
from evidence_cases import NAMES, restated, two_holders
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rdflib import Graph
from registry_shape import SHAPE
from typer.testing import CliRunner

from understudy.cli import app
from understudy.evidence.catalogue import _describe_origin
from understudy.evidence.checklists import checklists
from understudy.evidence.facts import BLANK, ReleaseDescription, read_facts
from understudy.evidence.folder import write_evidence
from understudy.evidence.signing import (
    EvidenceError,
    new_key,
    sign_folder,
    verify_folder,
)
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    PrivacyError,
    UnderstudyError,
)
from understudy.privacy.accounts.events import DiscreteGaussian, event_to_json
from understudy.runtime import certificates

DCAT_AP = """
@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix dcat: <http://www.w3.org/ns/dcat#> .
@prefix dct: <http://purl.org/dc/terms/> . @prefix foaf: <http://xmlns.com/foaf/0.1/> .
[] a sh:NodeShape ; sh:targetClass dcat:Dataset ;
  sh:property [ sh:path dct:title ; sh:minCount 1 ], [ sh:path dct:description ; sh:minCount 1 ],
    [ sh:path dcat:distribution ; sh:minCount 1 ; sh:class dcat:Distribution ],
    [ sh:path dct:publisher ; sh:minCount 1 ; sh:maxCount 1 ; sh:class foaf:Agent ] .
[] a sh:NodeShape ; sh:targetClass dcat:Distribution ;
  sh:property [ sh:path dcat:accessURL ; sh:minCount 1 ; sh:nodeKind sh:IRI ],
    [ sh:path dcat:mediaType ; sh:class dct:MediaType ] .
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_holders(tmp_path_factory.mktemp("run"))


HEALTH = "http://healthdataportal.eu/ns/health#"


@pytest.fixture
def signed(run: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Evidence that both holders and the hub signed, and the trusted keys."""
    folder = write_evidence(run / "out", tmp_path / "evidence")
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    for name in (*NAMES, "hub"):
        public = new_key(tmp_path / "keys" / f"{name}.key")
        shutil.copy(public, trusted)
        sign_folder(
            folder,
            public.with_suffix(".key"),
            ledger=None if name == "hub" else run / f"{name}.ledger",
        )
    return folder, trusted


def test_every_file_is_valid_in_its_own_format_and_loads_the_table(
    run: Path, tmp_path: Path
) -> None:
    about = ReleaseDescription(
        title="Claims & costs <2026>",
        licence="https://creativecommons.org/licenses/by/4.0/",
        sector="Healthcare",
    )
    folder = write_evidence(run / "out", tmp_path / "e", about=about)
    entry = yaml.safe_load((folder / "deployment.yaml").read_text())
    jsonschema.Draft7Validator(SHAPE).validate(entry)
    assert entry["deployment"]["basic"]["name"] == about.title
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] <= 1.0
    drawn = pd.read_parquet(run / "out" / "synthetic.parquet")
    read = pd.DataFrame(
        mlcroissant.Dataset(jsonld=str(folder / "croissant.json")).records("rows")
    )
    assert read["rows/paid"].tolist() == drawn["paid"].tolist()
    assert (
        json.loads((folder / "croissant.json").read_text())["prov:wasGeneratedBy"][
            "@type"
        ]
        == "prov:Activity"
    )
    graph = Graph().parse(folder / "dcat.ttl")
    conforms, _, why = pyshacl.validate(
        graph, shacl_graph=Graph().parse(data=DCAT_AP, format="turtle")
    )
    assert conforms, why
    health = {
        str(p).removeprefix(HEALTH) for _, p, _ in graph if str(p).startswith(HEALTH)
    }
    # of people nothing is counted
    assert health == {"numberOfRecords", "hasStructuredData"}


def test_the_registrys_shape_refuses_what_the_registry_refuses() -> None:
    valid = jsonschema.Draft7Validator(
        SHAPE, format_checker=jsonschema.FormatChecker()
    ).is_valid
    assert not valid({"url_slug": "a", "status": "Draft", "tier": 0, "deployment": {}})
    assert not valid({"url_slug": "a", "status": "Draft", "tier": 3})
    assert not valid(
        {"url_slug": "a", "status": "Draft", "tier": 3, "deployment": {"surprise": 1}}
    )


def test_signed_evidence_holds_and_nothing_of_rows_or_ledgers_is_in_it(
    signed: tuple[Path, Path], run: Path
) -> None:
    folder, trusted = signed
    found = verify_folder(folder, trusted)
    assert set(found.signers) == {"hub", *NAMES}
    names = {place.name for place in folder.rglob("*")}
    assert not names & {
        "clinic.csv",
        "insurer.csv",
        "clinic.ledger",
        "transcript.json",
        "run.toml",
        "checkpoint",
    }
    everything = b"".join(
        place.read_bytes() for place in folder.rglob("*") if place.is_file()
    )
    assert str(run).encode() not in everything


def _append(name: str) -> Callable[[Path, Path], None]:
    def change(folder: Path, trusted: Path) -> None:
        with (folder / name).open("ab") as file:
            file.write(b" ")

    return change


def _drop(name: str) -> Callable[[Path, Path], None]:
    return lambda folder, trusted: (folder / name).unlink()


def _foreign(folder: Path, trusted: Path) -> None:
    (folder / "more.txt").write_text("x")


def _link(folder: Path, trusted: Path) -> None:
    (folder / "more").symlink_to("/etc/hostname")


def _another_key(folder: Path, trusted: Path) -> None:
    (trusted / "clinic.pub").unlink()
    shutil.copy(new_key(trusted.parent / "other" / "clinic.key"), trusted)


def _unknown_key(folder: Path, trusted: Path) -> None:
    (trusted / "clinic.pub").unlink()


def _stranger(folder: Path, trusted: Path) -> None:
    shutil.copy(
        folder / "signatures" / "hub.dsse.json",
        folder / "signatures" / "mallory.dsse.json",
    )


def _swapped(folder: Path, trusted: Path) -> None:
    shutil.copy(
        folder / "signatures" / "insurer.dsse.json",
        folder / "signatures" / "clinic.dsse.json",
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_append("synthetic.parquet"), "synthetic.parquet was changed"),
        (_append("privacy.json"), "privacy.json was changed"),
        (_drop("dcat.ttl"), "dcat.ttl is missing"),
        (_foreign, "more.txt was added"),
        (_link, "is a link"),
        (_drop("signatures/insurer.dsse.json"), "insurer did not sign"),
        (_another_key, "does not hold"),
        (_unknown_key, "no key is trusted for clinic"),
        (_stranger, "mallory signed"),
        (_swapped, "does not hold"),
    ],
)
def test_what_was_changed_left_out_or_signed_by_another_is_named(
    signed: tuple[Path, Path], change: Callable[[Path, Path], None], word: str
) -> None:
    folder, trusted = signed
    change(folder, trusted)
    with pytest.raises(EvidenceError, match=word):
        verify_folder(folder, trusted)


@pytest.mark.parametrize(
    ("more", "word"),
    [(1, "no entry of its ledger pays for"), (-1, "that are not stated")],
)
def test_a_holder_signs_for_what_its_ledger_holds_neither_more_nor_less(
    signed: tuple[Path, Path], run: Path, tmp_path: Path, more: int, word: str
) -> None:
    folder, _ = signed

    def change(stated: dict[str, Any]) -> None:
        uses = stated["parties"][0]["uses"]
        uses["insider"][0]["count"] += more
        uses["insider"] = [use for use in uses["insider"] if use["count"]]

    restated(folder, change)
    with pytest.raises(EvidenceError, match=word):
        sign_folder(
            folder, tmp_path / "keys" / "clinic.key", ledger=run / "clinic.ledger"
        )


def test_a_holders_certificate_of_the_network_is_a_key_as_well(
    run: Path, tmp_path: Path
) -> None:
    folder = write_evidence(run / "out", tmp_path / "e")
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    for name in NAMES:
        key = certificates.new_key()
        (tmp_path / name).write_bytes(certificates.key_pem(key))
        pem = key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        (trusted / f"{name}.pem").write_bytes(pem)
        sign_folder(folder, tmp_path / name, ledger=run / f"{name}.ledger")
    assert set(verify_folder(folder, trusted).signers) == set(NAMES)


def test_a_rehearsal_an_unfinished_run_and_a_changed_statement_give_no_evidence(
    run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "out"
    shutil.copytree(run / "out", copy)
    before = (copy / "privacy.json").read_text()
    (copy / "privacy.json").write_text(
        before.replace('"delta": 1e-06', '"delta": 1e-16')
    )
    with pytest.raises(ArtefactError, match="different prices"):
        write_evidence(copy, tmp_path / "e")
    (copy / "privacy.json").write_text(
        before.replace('"rehearsal": null', '"rehearsal": "A rehearsal."')
    )
    with pytest.raises(PrivacyError, match="rehearsal"):
        write_evidence(copy, tmp_path / "e")
    (copy / "privacy.json").unlink()
    with pytest.raises(ArtefactError, match="has not ended"):
        write_evidence(copy, tmp_path / "e")
    (copy / "privacy.json").write_text(before)
    (copy / "generator" / "more").symlink_to("/etc/hostname")
    with pytest.raises(ArtefactError, match="link"):
        write_evidence(copy, tmp_path / "e")
    assert [place.name for place in tmp_path.iterdir()] == ["out"]


def test_each_question_has_an_answer_with_its_place_or_is_left_to_people(
    run: Path,
) -> None:
    answers = checklists(read_facts(run / "out"))
    assert len({answer.list for answer in answers}) == 2
    assert all(answer.answer for answer in answers)
    assert all(answer.source for answer in answers if not answer.open)
    assert any("right at most" in answer.answer for answer in answers)
    assert 0 < sum(answer.open for answer in answers) < len(answers) / 3


@pytest.mark.parametrize(
    ("event", "are_whole"),
    [
        (DiscreteGaussian(3.0), True),
        (DiscreteLaplaceDpEvent(0.5, 1), True),
        (GaussianDpEvent(2.0), False),
    ],
)
def test_noise_is_called_whole_by_its_mechanism(
    run: Path, event: DpEvent, are_whole: bool
) -> None:
    facts = read_facts(run / "out")
    use = {"count": 1, "event": event_to_json(event), "words": "noise"}
    parties = [
        party | {"uses": party["uses"] | {"insider": [use]}}
        for party in facts.statement["parties"]
    ]
    made = replace(facts, statement={**facts.statement, "parties": parties})
    said = " ".join(str(answers) for answers in checklists(made))
    assert ("whole numbers, exactly" in said) is are_whole
    assert ("drawn as floats" in said) is not are_whole


@pytest.mark.parametrize("text", ["a\nb", "a\x00", "\u202eabc", "x" * 3000, 7])
def test_texts_with_control_characters_or_without_end_are_refused(text: Any) -> None:
    with pytest.raises(ConfigError):
        ReleaseDescription(title=text)


@pytest.mark.long
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    text=st.text(
        st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=40
    )
)
def test_any_text_comes_back_from_yaml_json_and_turtle_as_it_was(
    run: Path, tmp_path: Path, text: str
) -> None:
    out = tmp_path / "e"
    shutil.rmtree(out, ignore_errors=True)
    write_evidence(
        run / "out", out, about=ReleaseDescription(title=text, description=text)
    )
    assert (
        yaml.safe_load((out / "deployment.yaml").read_text())["deployment"]["basic"][
            "description"
        ]
        == text
    )
    body = json.loads((out / "croissant.json").read_text())
    assert body["name"] == (
        f"Synthetic data of run {read_facts(run / 'out').run}"
        if text == BLANK
        else text
    )
    titles = [
        str(o)
        for _, p, o in Graph().parse(out / "dcat.ttl")
        if str(p).endswith("terms/title")
    ]
    assert text in titles
    page = (out / "checklist.html").read_text()
    assert "<script" not in page
    assert page.count("<html") == 1


def test_the_commands_write_sign_and_verify(run: Path, tmp_path: Path) -> None:
    call = CliRunner()
    folder = str(tmp_path / "e")
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    assert (
        call.invoke(app, ["evidence", str(run / "out"), "--out", folder]).exit_code == 0
    )
    for name in NAMES:
        key = tmp_path / f"{name}.key"
        done = call.invoke(
            app,
            [
                "sign",
                folder,
                "--key",
                str(key),
                "--new",
                "--ledger",
                str(run / f"{name}.ledger"),
            ],
        )
        assert done.exit_code == 0, done.output
        shutil.copy(key.with_suffix(".pub"), trusted)
    done = call.invoke(app, ["verify", folder, "--trusted", str(trusted)])
    assert done.exit_code == 0, done.output
    assert "clinic, insurer" in done.output


def _command(*words: str | Path) -> str:
    """What a command that refuses says: one line of an error of ours, which `main`
    prints instead of a traceback.
    """
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, UnderstudyError), (done.exception, done.output)
    said = str(done.exception)
    assert "\n" not in said
    return said


def _files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def _rsa(folder: Path) -> tuple[Path, Path]:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "clinic")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now, now + timedelta(days=1)
    )
    folder.mkdir()
    (folder / "rsa.key").write_bytes(pem)
    (folder / "clinic.pem").write_bytes(
        made.sign(key, SHA256()).public_bytes(Encoding.PEM)
    )
    return folder / "rsa.key", folder / "clinic.pem"


def test_keys_that_cannot_be_used_are_told_in_one_line_and_nothing_is_signed(
    signed: tuple[Path, Path], run: Path, tmp_path: Path
) -> None:
    folder, trusted = signed
    private, certificate = _rsa(tmp_path / "rsa")
    shutil.rmtree(folder / "signatures")
    good = (tmp_path / "keys" / "clinic.key").read_bytes()
    for name, body in {
        "half.key": good[:60],
        "none.key": b"",
        "public.key": (trusted / "clinic.pub").read_bytes(),
        "locked.key": load_pem_private_key(good, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
        ),
        "bent.key": good.replace(b"M", b"*"),
    }.items():
        (tmp_path / name).write_bytes(body)
        assert f"{name} is no private key" in _command(
            "sign", folder, "--key", tmp_path / name
        )
    assert "is no private key" in _command("sign", folder, "--key", private)
    for place in ("nowhere.key", "keys"):
        assert "the key cannot be read" in _command(
            "sign", folder, "--key", tmp_path / place
        )
    book = tmp_path / "half.key"
    assert "not a ledger" in _command(
        "sign", folder, "--key", tmp_path / "keys" / "hub.key", "--ledger", book
    )
    assert not (folder / "signatures").exists()
    for body, word in (
        ((tmp_path / "keys" / "clinic.key").read_bytes(), "holds a private key"),
        (certificate.read_bytes(), "only Ed25519 keys"),
        (
            b"-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n",
            "neither a public key nor",
        ),
    ):
        (trusted / "clinic.pem").write_bytes(body)
        assert word in _command("verify", folder, "--trusted", trusted)
    (trusted / "clinic.pem").unlink()
    (trusted / "clinic.pem").mkdir()
    assert "neither a public key nor" in _command(
        "verify", folder, "--trusted", trusted
    )
    (tmp_path / "empty").mkdir()
    assert "no public keys" in _command(
        "verify", folder, "--trusted", tmp_path / "empty"
    )


def test_folders_that_are_no_evidence_are_told_in_one_line_and_nothing_is_written(
    signed: tuple[Path, Path], run: Path, tmp_path: Path
) -> None:
    folder, trusted = signed
    other = tmp_path / "other"
    key = tmp_path / "keys" / "hub.key"
    other.mkdir()
    shutil.copytree(run / "out", tmp_path / "rehearsed")
    body = (
        (run / "out" / "privacy.json")
        .read_text()
        .replace('"rehearsal": null', '"rehearsal": "A rehearsal."')
    )
    (tmp_path / "rehearsed" / "privacy.json").write_text(body)
    (tmp_path / "about.toml").write_text("title = ")
    before = _files(tmp_path) | _files(run)
    assert "holds no run" in _command("evidence", other)
    assert "rehearsal" in _command("evidence", tmp_path / "rehearsed")
    assert "cannot be written" in _command("evidence", run / "out", "--out", key / "x")
    assert "not a valid TOML" in _command(
        "evidence", run / "out", "--about", tmp_path / "about.toml"
    )
    for place in (other, run / "out"):
        assert "is no folder of evidence" in _command(
            "verify", place, "--trusted", trusted
        )
        assert "is no folder of evidence" in _command("sign", place, "--key", key)
        assert "is no folder of evidence" in _command(
            "sign", place, "--key", other / "fresh.key", "--new"
        )
    assert "cannot be written" in _command(
        "sign", folder, "--key", key / "fresh.key", "--new"
    )
    for name, text, word in (
        ("run.json", "[]", "damaged"),
        ("privacy.json", "{}", "damaged"),
        ("privacy.json", body, "rehearsal"),
    ):
        was = (folder / name).read_text()
        (folder / name).write_text(text)
        assert word in _command("sign", folder, "--key", key)
        assert word in _command("verify", folder, "--trusted", trusted)
        (folder / name).write_text(was)
    assert _files(tmp_path) | _files(run) == before


@pytest.mark.parametrize(
    "body",
    [
        'url = ["https://a"]',
        'curators = "A"',
        "region = 7",
        'title = ["a"]',
        "authors = [1]",
    ],
)
def test_what_people_say_is_text_or_a_list_of_texts(tmp_path: Path, body: str) -> None:
    (tmp_path / "about.toml").write_text(body)
    with pytest.raises(ConfigError, match="about: "):
        ReleaseDescription.load(tmp_path / "about.toml")


def test_a_holder_called_hub_pays_like_any_other(
    signed: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, trusted = signed

    def change(stated: dict[str, Any]) -> None:
        stated["parties"] = [stated["parties"][0] | {"name": "hub"}]

    restated(folder, change)
    shutil.rmtree(folder / "signatures")
    sign_folder(folder, tmp_path / "keys" / "hub.key")
    with pytest.raises(EvidenceError, match="receipts"):
        verify_folder(folder, trusted)


def test_evidence_of_one_holder_names_no_other_party_and_says_whose_rows_stay(
    run: Path,
) -> None:
    facts = read_facts(run / "out")
    one = replace(
        facts,
        statement=dict(facts.statement) | {"parties": facts.statement["parties"][:1]},
    )
    assert [said.split(":")[0] for said in one.against()] == [
        "an outsider who sees the release",
        "the server",
    ]
    assert any(said.startswith("another party") for said in facts.against())
    assert "stay with their holder (“clinic”)" in _describe_origin(one)
    assert "stay with their holders (“clinic”, “insurer”)" in _describe_origin(facts)

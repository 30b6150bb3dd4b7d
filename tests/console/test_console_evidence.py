"""Evidence at the console: a hub writes it, a holder signs what it was shown, and
nothing else.
"""

import json
import re
import shutil
from pathlib import Path

import httpx
import pytest
from console_cases import Visitor, holder, hub, visitor, words_of
from dp_accounting.dp_event import GaussianDpEvent
from evidence_cases import two_holders

from understudy.evidence.facts import ReleaseDescription
from understudy.evidence.folder import write_evidence
from understudy.evidence.signing import verify_folder
from understudy.network.status import Status
from understudy.privacy.accounts.budget import ADJACENCIES, stated_guess
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.price_terms import PriceTerms
from understudy.runtime.identity import Invitation

SIGN = "Sign it with the key"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_holders(tmp_path_factory.mktemp("run"))


@pytest.fixture
def out(run: Path, tmp_path: Path) -> Path:
    """The run, as a hub's server left it in the folder that `hub` serves."""
    place = tmp_path / "joint"
    shutil.copytree(run / "out", place)
    return place


@pytest.fixture
def home(run: Path, tmp_path: Path) -> Path:
    """The clinic's home, with the ledger of the run."""
    folder = holder(tmp_path / "holder", spent=False)
    for place in folder.glob("clinic.ledger*"):
        place.unlink()
    for place in run.glob("clinic.ledger*"):
        shutil.copy(place, folder)
    return folder


def rehearse(out: Path) -> None:
    text = (
        (out / "privacy.json")
        .read_text()
        .replace('"rehearsal": null', '"rehearsal": "A rehearsal."')
    )
    (out / "privacy.json").write_text(text)


def digest_on(answer: httpx.Response) -> str:
    found = re.search(r'name="digest" value="(\w+)"', answer.text)
    assert found
    return found[1]


def test_a_hub_writes_the_evidence_of_a_real_run_once_and_says_who_signed(
    tmp_path: Path, out: Path
) -> None:
    with visitor(hub(tmp_path, state="done")) as operator:
        stated = json.loads((out / "privacy.json").read_text())
        page = operator.get()
        assert stated_guess(stated).in_words() in words_of(page)
        assert '<meter min="50" max="100"' in page.text
        assert operator.client.post("runs/gram-2/evidence").status_code == 415, (
            "without the word of the form"
        )
        assert not (out / "evidence").exists()
        seen = words_of(operator.post("runs/gram-2/evidence"))
        assert "The evidence is written." in seen
        assert (
            f"{out / 'evidence'} . Nobody has signed it; clinic and insurer to sign."
            in seen
        )
        (out / "evidence" / "signatures").mkdir()
        (out / "evidence" / "signatures" / "clinic.dsse.json").write_text("{}")
        assert (
            "Signed, as it says itself, by clinic; insurer to sign." in operator.see()
        )
        assert operator.post("runs/gram-2/evidence").status_code == 409
        assert operator.get("evidence").status_code == 404, (
            "a hub has no ledger to sign with"
        )


def test_no_evidence_of_a_rehearsal_or_of_a_run_that_failed(
    tmp_path: Path, out: Path
) -> None:
    folder = hub(tmp_path)
    with visitor(folder) as operator:
        assert "Write the evidence" not in operator.see()
        assert operator.post("runs/gram-2/evidence").status_code == 409
        with Status(out, role="server", parties={}, run="gram-2") as status:
            status.update(state="done")
        assert "Write the evidence" in operator.see()
        rehearse(out)
        assert "Write the evidence" not in operator.see()
        assert "of 100 times" not in operator.see()
        assert operator.post("runs/gram-2/evidence").status_code == 409
    assert not (out / "evidence").exists()


@pytest.mark.parametrize(
    "damage", ["[]", "{}", '{"rehearsal": null, "person": 3, "parties": []}', "NaN"]
)
def test_a_statement_that_is_damaged_is_a_run_without_evidence(
    tmp_path: Path, out: Path, damage: str
) -> None:
    (out / "privacy.json").write_text(damage)
    with visitor(out) as somebody:
        assert "Write the evidence" not in somebody.see()


def test_a_finished_run_of_one_machine_is_finished_here_too(out: Path) -> None:
    with visitor(out) as somebody:
        assert "Write the evidence" in somebody.see()
        assert "Nobody has signed it" in words_of(
            somebody.post("runs/folder-1/evidence")
        )


def test_a_holder_signs_what_it_was_shown_with_the_key_of_its_certificate(
    home: Path, out: Path, run: Path, tmp_path: Path
) -> None:
    folder = write_evidence(out, tmp_path / "evidence")
    with visitor(home) as steward:
        assert "Which folder?" in steward.see("evidence")
        shown = steward.post("evidence", folder=str(folder))
        seen = words_of(shown)
        assert "as clinic" in seen, seen
        files = [place for place in folder.rglob("*") if place.is_file()]
        assert f"files, by their digests {len(files)}" in seen
        with Ledger(home / "clinic.ledger") as book:
            name = json.loads((folder / "run.json").read_text())["run"]
            paid = [
                entry for entry in book.entries() if entry.run == name and entry.count
            ]
        assert f"receipts of the ledger {len(paid)}" in seen
        assert "of 100 times" in seen
        assert not (folder / "signatures").exists(), "showing signs nothing"
        answer = steward.post("evidence", folder=str(folder), digest=digest_on(shown))
        assert "The evidence is signed" in words_of(answer)
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    (trusted / "clinic.pem").write_text(
        Invitation.load(home / "identity.toml").certificate
    )
    stated = json.loads((folder / "privacy.json").read_text())
    assert {place.name for place in (folder / "signatures").iterdir()} == {
        "clinic.dsse.json"
    }
    assert len(stated["parties"]) == 2
    with pytest.raises(Exception, match="insurer did not sign"):
        verify_folder(folder, trusted)


def test_nothing_is_signed_that_was_not_shown_or_that_another_page_asks_for(
    home: Path, out: Path, tmp_path: Path
) -> None:
    folder = write_evidence(out, tmp_path / "evidence")

    def refused(steward: Visitor, code: int, **fields: str) -> None:
        assert (
            steward.post("evidence", **{"folder": str(folder)} | fields).status_code
            == code
        ), fields
        assert not (folder / "signatures").exists()

    with visitor(home) as steward:
        digest = digest_on(steward.post("evidence", folder=str(folder)))
        refused(steward, 409, digest="0" * 64)
        refused(steward, 403, digest=digest, form="guessed")
        for headers in (
            {"Origin": "http://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            fields = {
                "form": steward.keys.form,
                "folder": str(folder),
                "digest": digest,
            }
            assert (
                steward.client.post(
                    "evidence", data=fields, headers=headers
                ).status_code
                == 403
            )
        shutil.rmtree(folder)
        write_evidence(
            out,
            folder,
            about=ReleaseDescription(title="Evidence of the same run in other words"),
        )
        refused(steward, 409, digest=digest)
        (folder / "README.md").write_text("another text")
        refused(steward, 404, digest=digest)
        for other in ("", "evidence", "../evidence", "\0"):
            refused(steward, 422, folder=other)
        for other in (str(tmp_path), "/nowhere", "/" + "x" * 300, "/a\0b", str(out)):
            refused(steward, 404, folder=other)
        (folder / "more").symlink_to("/etc")
        refused(steward, 404)
        (folder / "more").unlink()
        stated = json.loads((folder / "privacy.json").read_text())
        for use in stated["parties"][0]["uses"]["insider"]:
            use["count"] += 1
        (folder / "privacy.json").write_text(json.dumps(stated))
        refused(steward, 404)
        assert "follows from the uses" in words_of(
            steward.post("evidence", folder=str(folder))
        )
        rehearse(folder)
        (folder / "privacy.json").write_text(
            (folder / "privacy.json")
            .read_text()
            .replace('"rehearsal": null', '"rehearsal": "x"')
        )
        refused(steward, 404)


def test_the_sentence_and_the_meter_stand_wherever_a_price_stands(home: Path) -> None:
    with Ledger(home / "clinic.ledger") as book:
        sentence = book.guess().in_words()
    with visitor(home) as steward:
        for page in ("", "ledger"):
            answer = steward.get(page)
            assert sentence in words_of(answer)
            assert '<meter min="50" max="100"' in answer.text
    busy = holder(home.parent.parent / "busy")
    with visitor(busy) as steward, Ledger(busy / "clinic.ledger") as book:
        assert book.guess("gram-0").in_words() in steward.see("runs")


def test_where_a_ledger_protects_rows_every_page_says_row_and_none_says_person(
    tmp_path: Path,
) -> None:
    home = holder(tmp_path, spent=False)
    with Ledger(home / "clinic.ledger") as book:
        terms = PriceTerms(
            protocol="gram",
            budgets=(book.budget,),
            noise="secure",
            same_people=True,
            adjacency=ADJACENCIES["row"],
        )
        book.charge(
            GaussianDpEvent(9.0),
            run="gram-of-rows",
            description="a release",
            terms=terms,
        )
        sentence = book.guess().in_words(ADJACENCIES["row"])
    with visitor(home) as steward:
        for page in ("", "ledger"):
            seen = steward.see(page)
            assert sentence in seen
            assert "row with the highest spend" in seen
            assert "person" not in seen.replace(ADJACENCIES["row"], ""), page

"""Texts of the other side, however they are written, are texts on every page of the
console.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from console_cases import Visitor, contract, holder, hub, visitor
from dp_accounting.dp_event import GaussianDpEvent

from structure import HOSTILE, PLAIN, same_page
from understudy.ground.errors import ConfigError
from understudy.network.decisions import DecisionQueue
from understudy.network.status import Status
from understudy.privacy.accounts.ledger import Ledger
from understudy.runtime.identity import Authority

Words = tuple[str, ...]


def both(folder: Path, pages: Callable[[Path, Words], list[httpx.Response]]) -> None:
    """The same home twice, with hostile texts and with plain ones."""
    found = []
    for name, words in (("hostile", HOSTILE), ("plain", PLAIN)):
        (folder / name).mkdir()
        found.append(pages(folder / name, words))
    for hostile, plain in zip(*found, strict=True):
        assert hostile.status_code == plain.status_code == 200
        same_page(hostile, plain)


def test_a_contract_with_hostile_texts_makes_the_same_pages(tmp_path: Path) -> None:
    def pages(folder: Path, words: Words) -> list[httpx.Response]:
        told = replace(
            contract("gram-1"),
            protocol=words[0],
            settings={
                words[1]: words[2],
                words[3]: [words[4], {words[5]: words[6]}],
                "target": words[7],
            },
            columns={
                "clinic": {words[8]: "0", words[9]: "1"},
                "insurer": {words[10]: "2", words[11]: "3"},
            },
        )
        home = holder(folder, told)
        with Ledger(home / "clinic.ledger") as book:
            for word in words:
                book.charge(GaussianDpEvent(60.0), run=word, description=word)
        with Status(
            home, role="party", party="clinic", federation=words[0], address=words[1]
        ) as status:
            status.update(state="failed", error=words[2])
        with visitor(home) as steward:
            (digest,) = (one.digest for one in DecisionQueue(home=home).waiting())
            return [
                steward.get(place)
                for place in ("", f"contracts/{digest}", "runs", "ledger")
            ]

    both(tmp_path, pages)


def test_a_run_with_hostile_texts_makes_the_same_page_of_a_hub(tmp_path: Path) -> None:
    def pages(folder: Path, words: Words) -> list[httpx.Response]:
        home = hub(folder)
        out = folder / "joint"
        party: dict[str, Any] = dict.fromkeys(
            ("asks", "answers", "refusals", "down", "up", "joins"), 1
        )
        party |= dict.fromkeys(
            ("connected", "signed", "waiting", "left_out"), False
        ) | {"since": 0.0}
        parties = {word: party | {"refusal": word} for word in words}
        facts = {
            "run": words[1],
            "protocol": words[2],
            "federation": words[3],
            "parties": parties,
        }
        with Status(
            out,
            role="server",
            port=1,
            round=2,
            rounds=5,
            epsilon={words[0]: 0.7},
            **facts,
        ) as status:
            status.update(state="failed", error=words[4])
        (out / "report.html").write_text(words[5])
        with visitor(home) as somebody:
            return [somebody.get(), somebody.get("runs")]

    both(tmp_path, pages)


@pytest.fixture
def steward(tmp_path: Path) -> Any:
    with visitor(holder(tmp_path)) as somebody:
        yield somebody


@pytest.mark.long
def test_what_is_typed_or_asked_for_comes_back_as_text(steward: Visitor) -> None:
    for hostile in HOSTILE:
        for place in ("contracts/{}", "runs/{}/report.html", "{}", "runs?said={}"):
            same_page(
                *(
                    steward.get(place.format(quote(word, safe="")))
                    for word in (hostile, "x")
                )
            )
        same_page(
            *(
                steward.post("ledger", epsilon="no", reason=word)
                for word in (hostile, "why")
            )
        )
        same_page(
            *(
                steward.post("ledger", epsilon=word, reason="why")
                for word in (hostile, "no")
            )
        )


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
def test_no_party_federation_or_run_has_a_name_with_marks_that_cannot_be_seen_or_lead_elsewhere(
    tmp_path: Path, hostile: str
) -> None:
    """Marks that only a page could misread are allowed in a name ("A&E"), and pages do
    not misread them.
    """
    try:
        Authority.create(tmp_path / "f", name=hostile, address="127.0.0.1:1").invite(
            hostile
        )
        replace(contract(), run=hostile)
    except ConfigError:
        return
    assert hostile.isprintable()
    assert not set(hostile) & set('/\\:"')


def test_a_report_that_others_wrote_is_shown_without_scripts_forms_or_frames(
    tmp_path: Path,
) -> None:
    home = hub(tmp_path)
    out = tmp_path / "joint"
    (out / "report.html").write_text(
        "<script>alert(1)</script><form action=//evil.example>"
    )
    with visitor(home) as somebody:
        place = next(
            part
            for part in somebody.get().text.split('"')
            if part.endswith("report.html")
        )
        answer = somebody.get("runs/" + place.partition("/runs/")[2])
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox;")
    assert "allow-scripts" not in policy
    assert "default-src 'none'" in policy

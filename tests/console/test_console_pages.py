"""What a steward sees and does: every figure is the ledger's, every decision is about
one contract.
"""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from console_cases import (
    MINE,
    THEIRS,
    Visitor,
    contract,
    holder,
    hub,
    visitor,
    words_of,
)

from understudy.ground.errors import ArtefactError, ConfigError
from understudy.network.decisions import DecisionQueue
from understudy.network.serve import prepare_offer
from understudy.network.status import Status
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.runfile import RunFile
from understudy.runtime.contract import Contract
from understudy.runtime.identity import Authority
from understudy.runtime.journal import AuditLog
from understudy.services.console.app import server_for
from understudy.services.console.desk import desk_of

ONE = contract("gram-1")
OTHER = contract("gram-2", epsilon=7.0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return holder(tmp_path, ONE, OTHER)


@pytest.fixture
def steward(home: Path) -> Iterator[Visitor]:
    with visitor(home) as somebody:
        yield somebody


def waiting(home: Path) -> set[str]:
    return {one.run for one in DecisionQueue(home=home).waiting()}


def test_a_contract_is_told_in_words_with_its_price_and_what_would_be_left(
    home: Path, steward: Visitor
) -> None:
    with Ledger(home / "clinic.ledger") as book:
        left = book.remaining()
    assert 6.7 < left < 6.8
    seen = steward.see()
    assert "2 contracts wait for your decision" in seen
    assert "insurer and you (clinic) would make one synthetic table" in seen
    assert "at most ε = 1.5 at δ = 10⁻⁶" in seen.replace("\u00a0", " ")
    assert f"left after it, about ε {int(100 * (left - 1.5)) / 100}" in seen
    assert seen.count("That is more than is left.") == 1, (
        "of the two, the one with ε = 7"
    )
    whole = steward.see(f"contracts/{ONE.digest}")
    assert "age, colour, smoker" in whole
    assert "rules" in whole
    assert ONE.digest in whole
    assert ONE.text in whole


@pytest.mark.parametrize("accept", [True, False])
def test_a_decision_reaches_who_waits_for_it_and_is_about_this_contract_alone(
    home: Path, steward: Visitor, accept: bool
) -> None:
    said: list[bool] = []
    join = threading.Thread(target=lambda: said.append(DecisionQueue(home=home)(ONE)))
    join.start()
    answer = steward.post(
        f"contracts/{ONE.digest}", decision="accept" if accept else "refuse"
    )
    join.join(120)
    assert said == [accept]
    assert f"The contract is {'accepted' if accept else 'refused'}" in words_of(answer)
    assert waiting(home) == {"gram-2"}


def test_a_decision_outlives_the_process_that_waited(
    home: Path, steward: Visitor
) -> None:
    steward.post(f"contracts/{ONE.digest}", decision="accept")
    assert waiting(home) == {"gram-2"}
    assert "1 contract waits" in steward.see()
    assert DecisionQueue(home=home)(ONE), "asked again, it is answered at once"
    assert not DecisionQueue(home=home).later(replace(ONE, run="gram-9")), (
        "and another contract is not"
    )


def test_what_does_not_wait_cannot_be_decided(home: Path, steward: Visitor) -> None:
    steward.post(f"contracts/{ONE.digest}", decision="refuse")
    for digest in (ONE.digest, contract("never").digest, "..%2fidentity.toml", "0"):
        answer = steward.post(f"contracts/{digest}", decision="accept")
        assert answer.status_code == 404, digest
    assert "does not wait for a decision any more" in words_of(
        steward.get(f"contracts/{ONE.digest}")
    )
    assert (home / "decided" / ONE.digest).read_text() == "refused"
    assert [file.name for file in (home / "decided").iterdir()] == [ONE.digest]
    assert (
        steward.post(f"contracts/{OTHER.digest}", decision="perhaps").status_code == 422
    )
    assert waiting(home) == {"gram-2"}


def test_texts_of_the_other_side_cannot_become_marks_or_turn_a_line_around(
    tmp_path: Path,
) -> None:
    columns = {
        "clinic": {"age": "0"},
        "insurer": {"<script>alert(1)</script>": "1", "a\u202eb": "2"},
    }
    home = holder(
        tmp_path,
        replace(ONE, settings={"target": "<b onclick=x>"}, columns=columns),
        spent=False,
    )
    with visitor(home) as steward:
        (digest,) = (one.digest for one in DecisionQueue(home=home).waiting())
        page = steward.get(f"contracts/{digest}").text
    assert "<script" not in page
    assert "<b onclick" not in page
    assert "\u202e" not in page
    assert "a�b" in page


def test_a_budget_is_changed_as_the_command_changes_it(
    home: Path, steward: Visitor
) -> None:
    answer = steward.post("ledger", epsilon="9,5", reason="one more study")
    assert answer.status_code == 200
    assert "The lifetime budget is changed." in words_of(answer)
    steward.post("ledger", epsilon="1", reason="and no more after it")
    with Ledger(home / "clinic.ledger") as book:
        what = [entry.description for entry in book.entries() if not entry.count]
        assert [text.split(": ")[-1] for text in what[1:]] == [
            "one more study",
            "and no more after it",
        ]
        assert (book.budget.epsilon, book.budget.delta, book.remaining()) == (
            1.0,
            1e-6,
            0.0,
        )
    seen = steward.see("ledger")
    assert "one more study" in seen
    assert "release 0 … release 2" in seen
    assert 'role="img"' in steward.get("ledger").text, (
        "the chart has words for who cannot see it"
    )


def test_a_budget_that_is_none_changes_nothing_and_says_why(
    home: Path, steward: Visitor
) -> None:
    before = (home / "clinic.ledger").read_bytes()
    for typed in (
        "nan",
        "inf",
        "-inf",
        "0",
        "-1",
        "1e999",
        "",
        "much",
        "1;2",
        "0x10",
        "1" * 400,
    ):
        answer = steward.post("ledger", epsilon=typed, reason="<i>why</i>")
        assert answer.status_code == 422, typed
        assert 'role="alert"' in answer.text
        assert "&lt;i&gt;why&lt;/i&gt;" in answer.text, "what was typed is still there"
        assert (home / "clinic.ledger").read_bytes() == before


def test_a_budget_needs_a_reason_of_one_line(home: Path, steward: Visitor) -> None:
    for reason in ("", "  ", "two\nlines", "x" * 201, "\u202e"):
        assert steward.post("ledger", epsilon="9", reason=reason).status_code == 422
    with Ledger(home / "clinic.ledger") as book:
        assert book.budget.epsilon == 8.0


def test_runs_have_their_messages_bytes_and_price(home: Path, steward: Visitor) -> None:
    done = next((home / "runs").iterdir())
    (done / "answers.0").write_bytes(bytes(5000))
    seen = steward.see("runs")
    assert "gram-0 insurer over" in seen
    assert "1.24 of 2 3 3 6.0 kB 120 kB 5.0 kB" in seen, seen
    assert "refresh" not in steward.get("runs").text
    assert 'content="3"' in steward.get("runs?live=1").text


def test_a_run_that_is_resumed_is_counted_with_its_beginning(
    home: Path, steward: Visitor
) -> None:
    log = AuditLog(home / "audit.jsonl")
    log.write("contract accepted", contract="", run="another")
    log.write("ask", number=1, bytes=1, sha256="")
    log.write("contract resumed", contract="", run="gram-0")
    log.write("ask", number=4, bytes=1000, sha256="")
    log.close()
    assert "1.24 of 2 4 3 7.0 kB 120 kB" in steward.see("runs")


def test_a_home_without_a_ledger_or_a_run_is_shown_too(tmp_path: Path) -> None:
    Authority.create(tmp_path / "federation", name="f", address="127.0.0.1:1").issue(
        "clinic"
    ).save(tmp_path / "home" / "identity.toml")
    with visitor(tmp_path / "home") as steward:
        assert "There is no ledger yet" in steward.see()
        assert "There is no ledger yet" in steward.see("ledger")
        assert "Nothing was signed here yet" in steward.see("runs")
        assert steward.post("ledger", epsilon="1", reason="no").status_code == 404


def test_a_report_is_shown_from_the_folder_of_its_run_and_nothing_else_of_it(
    tmp_path: Path, home: Path
) -> None:
    out = tmp_path / "out"
    with Status(out, role="server", parties={}, run="gram-3") as status:
        status.update(state="done")
    (out / "report.html").write_text("<!doctype html><p>How good it is")
    (out / "secret.html").write_text("not this")
    with visitor(home, out) as steward:
        assert "report.html (for the holder alone)" in steward.see("runs")
        assert "How good it is" in steward.see("runs/folder-1/report.html")
        policy = steward.get("runs/folder-1/report.html").headers[
            "content-security-policy"
        ]
        assert policy.startswith("sandbox; default-src 'none';"), (
            "it can look as it likes, and do nothing"
        )
        for other in (
            "secret.html",
            "report-public.html",
            "status.json",
            "..%2f..%2fidentity.toml",
        ):
            assert steward.get(f"runs/folder-1/{other}").status_code == 404
        assert steward.get("runs/folder-2/report.html").status_code == 404


def test_a_hub_shows_parties_runs_and_how_to_resume(tmp_path: Path) -> None:
    folder = hub(tmp_path)
    with visitor(folder) as operator:
        seen = operator.see()
        assert "insurer refuses the contract: ε=3 is above the ε=2." in seen
        assert "round 2 of 5" in seen
        assert f"understudy serve {folder} {tmp_path / 'joint' / 'run.toml'}" in seen
        assert "hand over invitations/insurer.toml" in seen
        assert operator.get("ledger").status_code == 404, "a hub has none"
        assert operator.post("runs/gram-2").status_code == 409, (
            "of a run that failed there is no report"
        )
        assert operator.post("runs/gram-3").status_code == 404
        assert (
            operator.post(f"contracts/{ONE.digest}", decision="accept").status_code
            == 404
        )


def test_the_command_that_resumes_offers_the_contract_that_was_begun(
    tmp_path: Path,
) -> None:
    """The console names the copy of the run file that lies in the output folder."""
    parties = {
        name: {"schema": f"{name}.toml", "epsilon": 1.0, "delta": 1e-6}
        for name in ("clinic", "insurer")
    }
    for name, schema in (("clinic", MINE), ("insurer", THEIRS)):
        schema.save(tmp_path / f"{name}.toml")
    body = {
        "protocol": "gram",
        "out": "joint",
        "settings": {"target": "smoker"},
        "parties": parties,
    }
    (tmp_path / "run.toml").write_text(tomli_w.dumps(body))
    begun = prepare_offer(
        RunFile.load(tmp_path / "run.toml", elsewhere=True), "joint study"
    )
    begun.note()
    again = RunFile.load(tmp_path / "joint" / "run.toml", elsewhere=True)
    assert prepare_offer(again, "joint study", resume=True).contract == begun.contract


def test_a_hub_invites_renews_and_revokes_as_the_command_does(tmp_path: Path) -> None:
    folder = hub(tmp_path)
    roster = Authority(folder).roster
    with visitor(folder) as operator:
        assert "The invitation is written" in words_of(
            operator.post("parties", act="invite", party="lab", days="3")
        )
        assert (folder / "invitations" / "lab.toml").exists()
        assert "BEGIN" not in operator.get().text, "no key comes into a page"
        old = roster.read()["parties"]["clinic"]["fingerprint"]
        operator.post("parties", act="renew", party="clinic")
        assert roster.read()["parties"]["clinic"]["fingerprint"] != old
        operator.post("parties", act="revoke", party="insurer")
        assert set(roster.parties) == {"clinic", "lab"}
        before = roster.read()
        for fields in (
            {"act": "invite", "party": "lab"},
            {"act": "renew", "party": "nobody"},
            {"act": "revoke", "party": ""},
            {"act": "invite", "party": "../x"},
            {"act": "invite", "party": "x", "days": "-1"},
            {"party": "lab"},
            {"act": "invite", "party": "x", "days": "9" * 40},
        ):
            assert operator.post("parties", **fields).status_code in (409, 422), fields
        assert roster.read() == before
        (folder / "ca.key").unlink()
        assert "ca.key back" in operator.see()
        assert operator.post("parties", act="invite", party="late").status_code == 422


def test_a_folder_that_is_none_of_these_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="not the home of a party"):
        desk_of(tmp_path)
    with pytest.raises(ArtefactError, match="not the output folder of a run"):
        desk_of(holder(tmp_path, spent=False), (tmp_path,))


def test_the_price_that_is_shown_is_the_contract_s(tmp_path: Path) -> None:
    free = Contract.from_text(ONE.text.replace('"epsilon":1.5', '"epsilon":null'))
    home = holder(tmp_path, free, spent=False)
    with visitor(home) as steward:
        assert "no guarantee" in steward.see(), (
            "a price without end is not shown as a figure"
        )


def test_a_port_that_is_taken_is_told_with_the_option_that_chooses_another(
    home: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"{port} cannot be used for listening .*--port N"
        ):
            server_for(desk_of(home), port=port, ready=lambda link: None).run()

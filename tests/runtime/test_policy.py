"""What a holder signs, what it answers under the signature, and what it remembers."""

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dp_accounting.dp_event import GaussianDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from network_cases import (
    FAILURES,
    POLICY,
    SCHEMA,
    Counting,
    Fail,
    Network,
    Next,
    contract_for,
    counting,
)

from understudy.data.samples import toy
from understudy.ground.errors import (
    AlignmentError,
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    Effect,
    LedgerError,
    MessageError,
    PartyError,
    SchemaError,
)
from understudy.network.decisions import contract_words
from understudy.network.holder import build_participant
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Ask, Opening
from understudy.runtime.contract import Contract, Policy, digest_of, units_of
from understudy.runtime.journal import Answer, AskId, AuditLog, verify_log
from understudy.runtime.session import Participant, Session
from understudy.runtime.wire import decode, encode

CONTRACT = contract_for("a", "b")


class Begin(Opening, kind="count.begin"):
    """Settings that a server sends."""


class Beginning(Counting):
    messages = (*Counting.messages, Begin)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return Network(tmp_path_factory.mktemp("network"), "a", "b")


@pytest.fixture
def participant(network: Network, tmp_path: Path) -> Callable[..., Participant]:
    return lambda **changes: network.participant(
        "a", **{"folder": tmp_path / "participant", **changes}
    )


def put(
    session: Session, number: int, ask: Ask | None = None, server: str = "s1"
) -> Answer:
    return session.answer(AskId(server, number), encode(ask or Next()))


def said(answer: Answer) -> dict[str, str]:
    assert answer.status == "refusal"
    words: dict[str, str] = json.loads(answer.body)
    return words


def charges(ledger: Ledger) -> int:
    return sum(entry.count for entry in ledger.entries())


# The contract


def test_a_contract_comes_back_as_it_went_with_the_same_digest() -> None:
    endless = replace(
        CONTRACT,
        budgets={"a": Budget(math.inf, 0.0), "b": Budget(2.0, 1e-6, "outsider")},
    )
    for contract in (CONTRACT, endless):
        back = Contract.from_text(contract.text.encode())
        assert (back, back.digest, back.parties) == (
            contract,
            contract.digest,
            ("a", "b"),
        )


def test_anything_that_differs_gives_another_digest() -> None:
    changes: list[dict[str, Any]] = [
        {"run": "run-2"},
        {"protocol": "other"},
        {"settings": {"rounds": 4}},
        {"federation": "other"},
        {"message": 1 << 20},
        {"budgets": CONTRACT.budgets | {"a": Budget(51.0, 1e-5)}},
        {"schemas": CONTRACT.schemas | {"b": "0"}},
        {"schemas": dict(reversed(CONTRACT.schemas.items()))},
    ]
    digests = {replace(CONTRACT, **change).digest for change in changes} | {
        CONTRACT.digest
    }
    assert len(digests) == len(changes) + 1


@given(
    st.binary(max_size=200)
    | st.text(max_size=200)
    | st.dictionaries(st.text(), st.integers()).map(json.dumps)
)
@settings(max_examples=50)
def test_random_texts_are_no_contract(text: str | bytes) -> None:
    with pytest.raises(MessageError):
        Contract.from_text(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"run":"run-1"', '"run":7'),
        ('"message":', '"more":1,"message":'),
        ('"epsilon":50.0', '"epsilon":-1'),
        ('"name":"b"', '"name":"a"'),
        ('"run":', '"run" :'),
        ('"run-1"', '"run-1","run":"run-1"'),
    ],
)
def test_a_contract_in_another_form_is_refused(old: str, new: str) -> None:
    assert old in CONTRACT.text
    with pytest.raises(MessageError, match="not a contract"):
        Contract.from_text(CONTRACT.text.replace(old, new))


# The policy


@pytest.mark.parametrize(
    ("change", "facts", "words"),
    [
        ({"protocol": "other"}, {}, "'other' is not allowed"),
        ({"budgets": dict.fromkeys("ab", Budget(100.1, 1e-5))}, {}, "above the ε=100"),
        (
            {"budgets": dict.fromkeys("ab", Budget(50.0, 1e-3))},
            {},
            "above the allowed δ",
        ),
        (
            {"budgets": dict.fromkeys("ab", Budget(50.0, 1e-5, "outsider"))},
            {},
            "outsider only",
        ),
        (
            {"budgets": dict.fromkeys("ab", Budget(math.inf, 0.0))},
            {},
            "above the ε=100",
        ),
        ({"message": 2 << 30}, {}, "above 1024 MB"),
        ({}, {"spent": 951.0}, "in all"),
        ({}, {"people": 1}, "too few people"),
        ({}, {"schema": "0"}, "another schema"),
        (
            {
                "schemas": {"b": "0", "c": "0"},
                "budgets": dict.fromkeys("bc", Budget(1, 0)),
            },
            {},
            "not among",
        ),
        (
            {
                "schemas": dict.fromkeys("abc", digest_of(SCHEMA)),
                "budgets": dict.fromkeys("abc", Budget(1, 0)),
            },
            {},
            "'c' is not a partner",
        ),
    ],
)
def test_a_contract_outside_the_policy_is_refused(
    change: dict[str, Any], facts: dict[str, Any], words: str
) -> None:
    policy = replace(POLICY, partners=("b",), against="anyone")
    plain: dict[str, Any] = {"schema": digest_of(SCHEMA), "people": 60, "spent": 0.0}
    policy.check(CONTRACT, "a", **plain)
    with pytest.raises(PartyError, match=words):
        policy.check(replace(CONTRACT, **change), "a", **plain | facts)


def test_a_policy_file_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    good = (
        'protocols = ["verti-gan"]\nepsilon_run = 2.0\nepsilon_total = 8\ndelta = '
        "1e-6\n"
    )
    file = tmp_path / "policy.toml"
    file.write_text(good)
    # a person is asked unless the holder says otherwise
    assert Policy.load(file).accept == "ask"
    for more, words in [
        ("epsilon_runs = 1\n", 'Did you mean "epsilon_run"'),
        ('accept = "never"\n', "accept must be one of"),
        ("people = 0\n", "people must be"),
        ('partners = "b"\n', "list of names"),
        ("=", "not a valid TOML"),
    ]:
        file.write_text(good + more)
        with pytest.raises(ConfigError, match=words):
            Policy.load(file)
    file.write_text("delta = 1e-6\n")
    with pytest.raises(ConfigError, match='"protocols" is missing'):
        Policy.load(file)


def test_a_holder_who_wants_to_be_asked_is_asked_once(
    participant: Callable[..., Participant],
) -> None:
    asked: list[str] = []

    def confirm(contract: Contract) -> bool:
        asked.append(contract.run)
        return contract.run == "run-1"

    policy = replace(POLICY, accept="ask")
    with pytest.raises(PartyError, match="has not accepted"):
        participant(policy=policy).open(CONTRACT)
    careful = participant(policy=policy, confirm=confirm)
    careful.open(CONTRACT).close()
    careful.open(CONTRACT).close()  # the same contract, after a restart
    with pytest.raises(PartyError, match="has not accepted"):
        careful.open(replace(CONTRACT, run="run-2"))
    assert asked == ["run-1", "run-2"]


# Answers under the contract


def test_a_repeated_ask_gets_the_recorded_answer_and_costs_nothing(
    participant: Callable[..., Participant],
) -> None:
    mine = participant(build=counting(seed=None))
    session = mine.open(CONTRACT)
    first = put(session, 1)
    assert first.status == "reply"
    assert put(session, 1) == first
    assert charges(mine.ledger) == 1
    assert put(session, 2) != first
    assert charges(mine.ledger) == 2
    assert "is over" in said(put(session, 1))["text"]
    session.close()


def test_a_party_that_comes_back_repeats_what_it_recorded_and_goes_on(
    participant: Callable[..., Participant],
) -> None:
    mine = participant()
    undisturbed = [put(session := mine.open(CONTRACT), number) for number in (1, 2, 3)]
    session.close()
    other = replace(
        mine,
        folder=mine.folder / "other",
        ledger=Ledger.rehearsal("a", Budget(1000.0, 1e-5)),
    )
    session = other.open(CONTRACT)
    values = [put(session, 1), put(session, 2)]
    session.close()
    session = other.open(CONTRACT)  # a new process
    assert put(session, 2) == values[1]
    values.append(put(session, 3))
    session.close()
    numbers = [
        [decode(answer.body, Counting.messages) for answer in run]
        for run in (undisturbed, values)
    ]
    assert [n.number.value for n in numbers[0]] == [n.number.value for n in numbers[1]]  # type: ignore[attr-defined]
    assert charges(other.ledger) == 3


def test_a_new_server_session_may_count_from_one_again(
    participant: Callable[..., Participant],
) -> None:
    mine = participant()
    session = mine.open(CONTRACT)
    put(session, 7, server="s1")
    assert put(session, 1, Next(extra=1), server="s2").status == "reply"
    assert charges(mine.ledger) == 2
    session.close()


def test_an_ask_that_expired_before_it_began_is_not_charged(
    participant: Callable[..., Participant],
) -> None:
    mine = participant()
    session = mine.open(CONTRACT)
    answer = session.answer(AskId("s", 1), encode(Next()), expires=time.monotonic() - 1)
    assert "expired" in said(answer)["text"]
    assert charges(mine.ledger) == 0
    session.close()


def test_a_server_that_asks_on_is_stopped_by_the_contract_s_price(
    participant: Callable[..., Participant],
) -> None:
    """The ledger has room for ten times as much; also a restart does not start the
    price anew.
    """
    mine = participant()
    small = replace(CONTRACT, budgets=dict.fromkeys("ab", Budget(1.0, 1e-5)))
    session = mine.open(small)
    number = 0
    while put(session, number := number + 1).status == "reply":
        if number == 5:
            session.close()
            session = mine.open(small)
    assert number > 6
    assert said(put(session, number))["kind"] == "BudgetExceeded"
    assert 0.9 < mine.ledger.spent() <= 1.0
    assert charges(mine.ledger) == number - 1
    session.close()


def test_a_contract_ledger_sees_other_runs_in_the_holder_s_budget() -> None:
    ledger = Ledger.rehearsal("a", Budget(1.0, 1e-5))
    event = GaussianDpEvent(4.0)
    ledger.charge(event, run="earlier", description="x")
    within = ledger.within("now", Budget(5.0, 1e-5))
    with pytest.raises(BudgetExceeded) as refusal:
        within.charge(event, run="now", description="x")
    assert "limit of this run" not in str(refusal.value)
    tight = Ledger.rehearsal("a", Budget(9.0, 1e-5)).within("now", Budget(1.0, 1e-5))
    tight.charge(event, run="now", description="x", people=[1, 2])
    with pytest.raises(BudgetExceeded, match="limit of this run"):
        tight.charge(event, run="now", description="x", people=[2])
    tight.charge(event, run="now", description="x", people=[3])
    with pytest.raises(BudgetExceeded, match="limit of this run"):
        tight.afford(event, people=[3])


@pytest.mark.parametrize(
    ("told", "accepted"),
    [
        (0.1, True),
        (10, True),
        (None, True),
        ([1, 2.5], True),
        (0.05, False),
        (11, False),
        ([1, 20], False),
        ("1", False),
        (True, False),
    ],
)
def test_a_policy_bounds_settings_by_their_least_and_their_most(
    told: object, accepted: bool, participant: Callable[..., Participant]
) -> None:
    mine = participant(
        policy=replace(
            POLICY, settings={"clip_norm": (0.1, 10), "not_in_this_protocol": (0, 1)}
        )
    )
    contract = replace(CONTRACT, settings={"rounds": 3, "clip_norm": told})
    if accepted:
        mine.open(contract).close()
        return
    with pytest.raises(
        PartyError, match=r"clip_norm = .* is outside 0.1 to 10\. Change it"
    ) as refused:
        mine.open(contract)
    assert refused.value.effect is Effect.NOTHING_READ_CHARGED_OR_SENT
    assert not any(mine.folder.glob("*"))


@pytest.mark.parametrize(
    "wrong",
    [
        "settings = 3",
        "[settings]\nrounds = 3",
        "[settings]\nrounds = [3]",
        "[settings]\nrounds = [3, 2]",
        "[settings]\nrounds = [nan, 2]",
        '[settings]\nrounds = ["1", "2"]',
    ],
)
def test_a_policy_with_ranges_that_are_none_is_refused(
    wrong: str, tmp_path: Path
) -> None:
    limits = 'protocols = ["gram"]\nepsilon_run = 1\nepsilon_total = 1\ndelta = 1e-6\n'
    file = tmp_path / "policy.toml"
    file.write_text(limits + wrong)
    with pytest.raises(ConfigError, match="settings"):
        Policy.load(file)
    file.write_text(limits + "[settings]\nclip_norm = [0.1, 10]\n")
    assert Policy.load(file).settings == {"clip_norm": (0.1, 10)}


@pytest.mark.parametrize(
    "settings",
    [
        {"penalty": 4.9e37},
        {"clip_norm": 1e-30},
        {"critic_hidden": [10**9]},
        {"learning_rate": "fast"},
        {"no_such": 1},
    ],
)
def test_accept_always_still_refuses_settings_outside_the_honest_ranges(
    settings: dict[str, Any], network: Network, tmp_path: Path
) -> None:
    """As a holder's home takes its participant: no session is opened, and nothing is kept."""
    frame, schema = toy(rows=20, seed=1)
    table = tmp_path / "a.csv"
    frame.to_csv(table, index=False)
    described = tmp_path / "a.toml"
    described.write_text(schema.to_toml())
    home = tmp_path / "home"
    home.mkdir()
    mine = build_participant(
        network.invitations["a"],
        table=table,
        schema=described,
        policy=POLICY,
        home=home,
    )
    contract = replace(
        CONTRACT,
        protocol="central-gan",
        settings=settings,
        schemas={"a": digest_of(schema)},
        budgets={"a": Budget(1.0, 1e-5)},
    )
    with pytest.raises(PartyError, match="central-gan"):
        mine.open(contract)
    assert not (home / "runs").exists()
    mine.log.close()
    mine.ledger.close()


def test_other_settings_than_the_contract_s_are_refused(
    participant: Callable[..., Participant],
) -> None:
    def build(contract: Contract, ledger: Ledger, folder: Path) -> Beginning:
        return Beginning("a", ledger, run=contract.run, folder=folder)

    contract = replace(CONTRACT, settings={"rounds": 3, "layers": [4, 2]})
    session = participant(build=build).open(contract)
    assert (
        "other settings"
        in said(put(session, 1, Begin(config={"rounds": 4, "layers": [4, 2]})))["text"]
    )
    agreed = Begin(config={"rounds": 3, "layers": (4, 2)})
    # it gets as far as the party
    assert "other settings" not in said(put(session, 2, agreed))["text"]
    session.close()


def test_bytes_outside_the_protocol_are_refused_and_the_session_goes_on(
    participant: Callable[..., Participant],
) -> None:
    mine = participant()
    session = mine.open(CONTRACT)
    reply = put(session, 1).body
    for number, data in enumerate(
        (b"", b"\0" * 40, os.urandom(300), reply, encode(Next())[:-3]), 2
    ):
        assert said(session.answer(AskId("s1", number), data))["kind"] == "MessageError"
    assert put(session, 9).status == "reply"
    assert charges(mine.ledger) == 2
    session.close()


@pytest.mark.parametrize(
    ("error", "kind", "kept"),
    [
        (SchemaError("/srv/clinic.csv, row 8,311: value 120"), "SchemaError", False),
        (LedgerError("/srv/a.ledger: the disk is full"), "LedgerError", False),
        (ArtefactError("/srv/state-3 is 120"), "ArtefactError", False),
        (KeyError("ann@example.org"), "PartyError", False),
        (
            BudgetExceeded("a: this step costs ε=1.", effect=Effect.NOTHING_SENT),
            "BudgetExceeded",
            True,
        ),
        (AlignmentError("ids of another kind"), "AlignmentError", True),
    ],
)
def test_a_failure_crosses_without_rows_and_paths(
    participant: Callable[..., Participant], error: Exception, kind: str, kept: bool
) -> None:
    FAILURES["so"] = error
    session = participant().open(CONTRACT)
    words = said(put(session, 1, Fail(how="so")))
    assert words["kind"] == kind
    assert (
        "/srv" in words["text"],
        "120" in words["text"],
        "ann@" in words["text"],
    ) == (False, False, False)
    assert (str(getattr(error, "message", error)) in words["text"]) == kept
    effect = getattr(error, "effect", None) if kept else Effect.NOTHING_SENT
    assert words["effect"] == ("" if effect is None else effect.name)
    assert words["text"].startswith("a: ")
    session.close()


def test_a_party_that_cannot_be_built_says_so_without_saying_why(
    participant: Callable[..., Participant],
) -> None:
    def build(contract: Contract, ledger: Ledger, folder: Path) -> Counting:
        raise AlignmentError("id 4711 occurs twice")

    with pytest.raises(PartyError, match="AlignmentError") as refusal:
        participant(build=build).open(CONTRACT)
    assert "4711" not in str(refusal.value)
    assert "4711" in str(refusal.value.__cause__)  # at the holder


def test_an_answer_that_cannot_be_recorded_does_not_leave(
    participant: Callable[..., Participant], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = participant().open(CONTRACT)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="space"):
        put(session, 1)
    session.close()


# What is remembered


def test_an_audit_log_shows_what_was_changed_or_taken_out(
    participant: Callable[..., Participant], tmp_path: Path
) -> None:
    file = tmp_path / "audit.jsonl"
    mine = participant(log=AuditLog(file))
    session = mine.open(CONTRACT)
    put(session, 1)
    put(session, 1)
    session.close()
    mine.log.close()
    file.write_text(file.read_text() + '{"half')  # a power cut
    log = AuditLog(file)
    log.write("later")
    log.close()
    events = [json.loads(line)["event"] for line in file.read_text().splitlines()]
    assert events == ["contract accepted", "ask", "reply", "answer repeated", "later"]
    assert verify_log(file) == 5
    lines = file.read_text().splitlines(keepends=True)
    for spoiled in (
        lines[:1] + lines[2:],
        [*lines[:2], lines[2].replace("reply", "refusal"), *lines[3:]],
        ["x\n"],
    ):
        file.write_text("".join(spoiled))
        with pytest.raises(ArtefactError, match="line"):
            verify_log(file)


WITHOUT_PERSON = replace(SCHEMA, person=None, rows_are_people=False)


@pytest.mark.parametrize(
    ("schemas", "words"),
    [
        ({"a": SCHEMA, "b": SCHEMA}, "for each person"),
        (
            {"a": WITHOUT_PERSON, "b": WITHOUT_PERSON},
            "for each row; a person with several rows",
        ),
        (
            {"a": SCHEMA, "b": WITHOUT_PERSON},
            "for each row; a person with several rows",
        ),
    ],
)
def test_a_contract_says_for_whom_its_price_is(
    schemas: dict[str, Any], words: str
) -> None:
    contract = replace(CONTRACT, units=units_of(schemas))
    assert Contract.from_text(contract.text) == contract
    assert words in dict(contract_words(contract, "a"))["price here"]


def test_a_holder_signs_no_contract_that_promises_another_unit_than_its_schema():
    def check(contract: Contract, schema: Any) -> None:
        described = {
            "schema": digest_of(schema),
            "unit": units_of({"a": schema}).get("a", "person"),
        }
        POLICY.check(contract, "a", people=10_000, spent=0.0, **described)

    of_rows = replace(CONTRACT, schemas=dict.fromkeys("ab", digest_of(WITHOUT_PERSON)))
    check(replace(of_rows, units={"a": "row", "b": "row"}), WITHOUT_PERSON)
    with pytest.raises(
        PartyError, match="a row is protected here, and the contract says otherwise"
    ):
        check(of_rows, WITHOUT_PERSON)
    for units in ({"a": "galaxy"}, {"c": "row"}, {"a": 1}):
        with pytest.raises(MessageError, match="not a contract"):
            Contract.from_text(replace(CONTRACT, units=units).text)

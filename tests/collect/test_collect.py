"""A receiver for people's own devices: it keeps one upload of each, refuses and counts
the rest, and passes all on.
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import torch
from test_exchange_load import certificate
from typer.testing import CliRunner

from forker import Forker, until
from refusals import raises
from understudy.cli import app as commands
from understudy.data.encoding.codec import Codec
from understudy.data.kinds import NoRows
from understudy.data.samples import toy
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    ExchangeError,
    PartyError,
    UnderstudyError,
)
from understudy.ground.pack import pack, unpack
from understudy.models.tables import fit_gram as fitting
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.counts import gram_matrix
from understudy.privacy.secure.sums import KeyPair
from understudy.protocols.aggregators import protocol
from understudy.protocols.aggregators.protocol import Config, TableTerms
from understudy.protocols.aggregators.terms import BeginUploads, Upload
from understudy.protocols.aggregators.upload import context_of
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties
from understudy.services.collect import app
from understudy.services.collect import box as box_module
from understudy.services.collect.app import serving
from understudy.services.collect.box import Box, UploadStore, person_of, read_codes
from understudy.services.web.limits import Limits

PHONE = Path(__file__).parents[2] / "examples" / "phone.py"
FRAME, SCHEMA = toy(rows=6, seed=3)
LEVELS = Codec(SCHEMA).codes(FRAME)
CODES = [f"code-of-person-{number:04d}" for number in range(len(FRAME))]
CONFIG = Config(
    aggregator="second",
    epsilon=3.0,
    delta=1e-5,
    min_people=2,
    components=4,
    steps=3,
    device="cpu",
)
SCHEMAS = {"phones": SCHEMA, "second": SCHEMA}
PLAN = TableTerms.joint(CONFIG, SCHEMAS)
PAIR = KeyPair(bytes(range(32)))
TOLD: dict[str, Any] = {
    "run": "r",
    "config": asdict(CONFIG),
    "schemas": {name: one.to_dict() for name, one in SCHEMAS.items()},
    "key": PAIR.public.hex(),
    "sizes": list(PLAN.cells.sizes),
}
CONTEXT = context_of("r", TOLD["config"], TOLD["schemas"], PAIR.public)
FAST = Limits(rate=1e6, burst=10**6)


@contextmanager
def gathering(box: Box) -> Iterator[list[Any]]:
    """A box that takes uploads for the run "r"; what `gather` returned or raised, when
    it has.
    """
    ended: list[Any] = []

    def gather() -> None:
        try:
            ended.append(box.gather(TOLD, CONTEXT, PLAN.format).tolist())
        except (UnderstudyError, KeyboardInterrupt) as error:
            ended.append(error)

    thread = threading.Thread(target=gather)
    thread.start()
    try:
        until(lambda: box._batch is not None, 60)
        yield ended
    finally:
        box._stopped.set()
        thread.join()
        box.close()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[tuple[Box, httpx.Client]]:
    """A box with codes, and a client of it over TLS."""
    cert, key = certificate(tmp_path)
    box = Box(tmp_path / "uploads", codes=CODES)
    with (
        gathering(box),
        serving(box, port=0, certificate=cert, key=key, limits=FAST) as port,
        httpx.Client(
            base_url=f"https://127.0.0.1:{port}/v1",
            verify=ssl.create_default_context(cafile=cert),
        ) as client,
    ):
        yield box, client


def made(phone: ModuleType, person: int = 0) -> bytes:
    return bytes(
        phone.upload(TOLD["sizes"], LEVELS[person].tolist(), PAIR.public, CONTEXT)
    )


def put(
    client: httpx.Client,
    data: bytes,
    *,
    person: int = 0,
    context: bytes = CONTEXT,
    **headers: str,
) -> httpx.Response:
    told = {"Authorization": f"Bearer {CODES[person]}"} | headers
    return client.put(f"uploads/{context.hex()}", content=data, headers=told)


def refused(box: Box) -> dict[str, int]:
    assert box._batch is not None
    return dict(box._batch.store.refused)


def stored(box: Box) -> int:
    assert box._batch is not None
    return box._batch.store.count


# From phones to tables


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        TableTerms,
        "noise",
        lambda self, rng: torch.zeros(self.cells.count, dtype=torch.int64),
    )


def federation(box: Box, epsilon: float = 3.0) -> Federation:
    held: dict[str, Any] = {"phones": NoRows(SCHEMA, box=box), "second": NoRows(SCHEMA)}
    return Federation.rehearsal(
        held, {}, budget=Budget(epsilon, 1e-5), seed=1, same_people=False
    )


@pytest.mark.usefixtures("quiet")
def test_what_phones_send_over_tls_is_the_joint_table_of_all_of_them(
    tmp_path: Path, forker: Forker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[torch.Tensor] = []
    real = fitting.fit_gram
    monkeypatch.setattr(
        fitting,
        "fit_gram",
        lambda gram, *a, **b: fitted.append(gram) or real(gram, *a, **b),
    )
    cert, key = certificate(tmp_path)
    box = Box(tmp_path / "uploads", codes=CODES)
    whole = federation(box)
    parties = whole.parties("two-aggregators", run="r", config=CONFIG)
    outcome: list[Any] = []
    thread = threading.Thread(
        target=lambda: outcome.append(
            protocol.train(CONFIG, LocalParties(parties), whole.schemas)
        )
    )
    with serving(box, port=0, certificate=cert, key=key) as port:
        thread.start()
        until(lambda: box._batch is not None, 60)
        ends = []
        for person, levels in enumerate(LEVELS.tolist()):
            folder = tmp_path / f"phone-{person}"
            folder.mkdir()
            words = [
                f"https://127.0.0.1:{port}",
                ",".join(map(str, levels)),
                "upload.bin",
                "--max-epsilon",
                "3",
            ]
            words += ["--code", CODES[person], "--ca", cert]
            ends.append(
                forker.run(*words, folder=folder, to=folder / "said", program=PHONE)
            )
        for terminal in ends:
            assert terminal.end() == 0, terminal.err
        thread.join(120)
    assert outcome, "the run did not end when everybody had uploaded"
    assert outcome[0].people == len(FRAME)
    assert outcome[0].trained.card["refused"] == 0
    assert torch.equal(fitted[0], gram_matrix(LEVELS, PLAN.cells.sizes).triu())
    prices = whole.holders["phones"].ledger
    assert {2.97 < prices.spent(person_of(code)) <= 3.0 for code in CODES} == {True}
    assert (
        json.loads((tmp_path / "phone-0" / "ledger.jsonl").read_text())["epsilon"]
        == 3.0
    )
    box.forget()
    assert not list((tmp_path / "uploads").iterdir())


def test_a_batch_that_is_asked_for_again_is_the_same_and_charged_once(
    tmp_path: Path, phone: ModuleType
) -> None:
    """A kill between the charge and its record must not cost people their budgets, or
    the run their uploads.
    """
    box = Box(tmp_path / "uploads", codes=CODES[:3])
    whole = federation(box)
    host: Any = whole.parties("two-aggregators", run="r", config=CONFIG)["phones"]
    begin = BeginUploads(
        key=PAIR.public, config=TOLD["config"], schemas=TOLD["schemas"]
    )
    thread = threading.Thread(target=host.answer, args=(begin,))
    thread.start()
    until(lambda: box._batch is not None, 60)
    data = [made(phone, person) for person in range(3)]
    for person, one in enumerate(data):
        box.take(
            box.expect(CONTEXT.hex(), PLAN.format.size), person_of(CODES[person]), one
        )
    thread.join(60)
    before = pack(host.state_dict())
    ask = Upload(round=1, people=torch.arange(3))
    first = host.answer(ask).reports.value
    host.load_state_dict(unpack(before))
    assert torch.equal(host.answer(ask).reports.value, first)
    assert first.numpy().tobytes() == b"".join(data)
    prices = whole.holders["phones"].ledger
    assert {2.97 < prices.spent(person_of(code)) <= 3.0 for code in CODES[:3]} == {True}
    host.load_state_dict(unpack(before))
    with pytest.raises(BudgetExceeded):
        # another batch of the same people is another charge
        host.answer(Upload(round=1, people=torch.arange(2)))
    box.close()


def collects(box: Box, context: bytes) -> bool:
    return box._batch is not None and box._batch.context == context


def test_uploads_of_the_same_people_for_other_settings_are_charged_too(
    tmp_path: Path, phone: ModuleType
) -> None:
    """A server that begins twice, before anything is passed on, has two uploads of each
    person to ask for.
    """
    box = Box(tmp_path / "uploads", codes=CODES[:2])
    whole = federation(box, epsilon=6.0)
    begun = []
    for config in (asdict(CONFIG), asdict(replace(CONFIG, seed=1))):
        context = context_of("r", config, TOLD["schemas"], PAIR.public)
        begin = BeginUploads(key=PAIR.public, config=config, schemas=TOLD["schemas"])
        # as it began
        host: Any = whole.parties("two-aggregators", run="r", config=CONFIG)["phones"]
        thread = threading.Thread(target=host.answer, args=(begin,))
        thread.start()
        until(partial(collects, box, context), 60)
        for person in range(2):
            upload = bytes(
                phone.upload(
                    TOLD["sizes"], LEVELS[person].tolist(), PAIR.public, context
                )
            )
            box.take(
                box.expect(context.hex(), PLAN.format.size),
                person_of(CODES[person]),
                upload,
            )
        thread.join(60)
        begun.append(pack(host.state_dict()))
    sent = []
    for state in begun:
        host.load_state_dict(unpack(state))
        sent.append(host.answer(Upload(round=1, people=torch.arange(2))).reports.value)
    assert not torch.equal(*sent)
    prices = whole.holders["phones"].ledger
    assert all(4 < prices.spent(person_of(code)) < 5 for code in CODES[:2]), (
        "two releases, and not one of 3"
    )
    box.close()


def test_a_run_above_the_budget_is_refused_before_anybody_is_told_of_it(
    tmp_path: Path,
) -> None:
    box = Box(tmp_path / "uploads", codes=CODES)
    whole = federation(box, epsilon=2.9)
    parties = whole.parties("two-aggregators", run="r", config=CONFIG)
    parties["second"].budget = Budget(3.0, 1e-5)
    parties["second"].ledger = federation(box).holders["second"].ledger
    with raises(BudgetExceeded, effect=Effect.NOTHING_SENT):
        protocol.train(CONFIG, LocalParties(parties), whole.schemas)
    assert box._batch is None


# What is kept, and what is refused


def test_an_upload_is_kept_once_and_acknowledged_as_often_as_it_is_sent(
    phone: ModuleType, door: tuple[Box, httpx.Client]
) -> None:
    box, client = door
    data = made(phone)
    assert [put(client, data).status_code for _ in range(3)] == [201, 200, 200]
    assert stored(box) == 1
    assert refused(box) == {}


def _outside(data: bytes) -> bytes:
    return data[:16] + b"\xff" * 4 + data[20:]


def _last(data: bytes) -> bytes:
    return data[:-4] + b"\xfb\xff\xff\xff"  # p itself


REFUSALS: dict[str, tuple[int, str, Callable[[bytes], dict[str, Any]]]] = {
    "too short": (422, "length", lambda data: {"data": data[:-1]}),
    "too long": (422, "length", lambda data: {"data": data + b"x"}),
    "empty": (422, "length", lambda data: {"data": b""}),
    "a word outside the field": (
        422,
        "not decodable",
        lambda data: {"data": _outside(data)},
    ),
    "a last word outside the field": (
        422,
        "not decodable",
        lambda data: {"data": _last(data)},
    ),
    "another run": (
        409,
        "another run",
        lambda data: {"data": data, "context": bytes(32)},
    ),
    "no code": (401, "no code", lambda data: {"data": data, "Authorization": ""}),
    "another's code": (
        401,
        "no code",
        lambda data: {"data": data, "Authorization": "Bearer of-nobody-at-all"},
    ),
    "no letters": (
        401,
        "no code",
        lambda data: {"data": data, "Authorization": "Bearer \xe4\xff"},
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_is_no_upload_for_this_run_is_refused_and_counted_and_the_right_one_may_come(
    phone: ModuleType, door: tuple[Box, httpx.Client], what: str
) -> None:
    box, client = door
    status, why, change = REFUSALS[what]
    changed = change(made(phone))
    changed |= {
        name: value.encode("latin-1")
        for name, value in changed.items()
        if name == "Authorization"
    }
    answer = put(client, **changed)
    assert answer.status_code == status, answer.text
    assert answer.json()["effect"] == Effect.NOTHING_STORED.name
    assert refused(box) == {why: 1}
    assert put(client, made(phone)).status_code == 201
    assert stored(box) == 1


def test_a_second_upload_of_a_person_and_a_stolen_one_are_refused(
    phone: ModuleType, door: tuple[Box, httpx.Client]
) -> None:
    box, client = door
    first = made(phone)
    assert put(client, first).status_code == 201
    assert put(client, made(phone)).status_code == 409
    assert put(client, first, person=1).status_code == 409, (
        "another's upload, under one's own code"
    )
    assert put(client, made(phone, 1), person=1).status_code == 201
    assert (stored(box), refused(box)) == (2, {"twice": 2})


def test_before_the_run_and_after_the_collection_nothing_is_taken(
    tmp_path: Path, phone: ModuleType
) -> None:
    box = Box(tmp_path / "uploads", codes=CODES[:2])
    with (
        serving(box, port=0, limits=FAST) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v1") as client,
    ):
        early = client.get("ticket")
        assert (early.status_code, early.headers["retry-after"]) == (503, "60")
        assert put(client, made(phone)).status_code == 503
        with gathering(box) as ended:
            assert phone.context_of(client.get("ticket").json()) == CONTEXT
            for person in (1, 0):
                assert (
                    put(client, made(phone, person), person=person).status_code == 201
                )
            until(lambda: bool(ended), 60)
            assert ended == [[person_of(CODES[1]), person_of(CODES[0])]]
            assert put(client, made(phone)).status_code == 410
            assert client.get("ticket").status_code == 410
            assert (stored(box), refused(box)) == (2, {"late": 2})


def test_an_upload_that_was_kept_is_acknowledged_again_after_the_collection(
    tmp_path: Path, phone: ModuleType
) -> None:
    """Whose answer was lost sends again, and must not hear that nothing was stored."""
    box = Box(tmp_path / "uploads", codes=CODES[:2])
    with (
        serving(box, port=0, limits=FAST) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v1") as client,
        gathering(box) as ended,
    ):
        uploads = [made(phone, person) for person in (0, 1)]
        for person, data in enumerate(uploads):
            assert put(client, data, person=person).status_code == 201
        until(lambda: bool(ended), 60)
        for person, data in enumerate(uploads):
            again = put(client, data, person=person)
            assert (again.status_code, again.json()) == (200, {"new": False})
        assert put(client, made(phone), person=0).status_code == 410
        assert put(client, uploads[0], person=1).status_code == 410
        assert (stored(box), refused(box)) == (2, {"late": 2})


def test_an_upload_that_arrives_as_the_collection_ends_is_in_it_or_refused(
    tmp_path: Path, phone: ModuleType
) -> None:
    """Acknowledged and then left out would be an upload that was paid for nothing."""
    box = Box(tmp_path / "uploads", codes=CODES)
    with gathering(box):
        batch = box.expect(CONTEXT.hex(), PLAN.format.size)
        assert box.take(batch, person_of(CODES[0]), made(phone))
        box._end(batch.store)
        with pytest.raises(UnderstudyError, match="over"):
            box.take(batch, person_of(CODES[1]), made(phone, 1))
        assert batch.store.people().tolist() == [person_of(CODES[0])]


def test_anybody_may_upload_where_there_are_no_codes_until_so_many_have(
    tmp_path: Path, phone: ModuleType
) -> None:
    box = Box(tmp_path / "uploads", max_uploads=2)
    with (
        gathering(box) as ended,
        serving(box, port=0, limits=FAST) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v1") as client,
    ):
        both = [made(phone), made(phone, 1)]
        assert [put(client, data, Authorization="").status_code for data in both] == [
            201,
            201,
        ]
        until(lambda: bool(ended), 60)
        assert ended == [[data[:16].hex() for data in both]]


@pytest.mark.parametrize("codes", [None, CODES], ids=["without codes", "with codes"])
def test_of_uploads_that_come_at_once_no_more_are_kept_than_the_most(
    tmp_path: Path,
    phone: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    codes: list[str] | None,
) -> None:
    """However long the collection takes to see that it is over: here it does not look
    at all.
    """
    monkeypatch.setattr(box_module, "_LOOK", 3600)
    most = 3
    uploads = [made(phone, person) for person in range(len(CODES))]
    box = Box(tmp_path / "uploads", codes=codes, max_uploads=most)
    together = threading.Barrier(len(uploads))
    acknowledged: list[bytes] = []
    refusals: list[ExchangeError] = []

    def send(person: int) -> None:
        batch = box.expect(CONTEXT.hex(), PLAN.format.size)
        together.wait()
        try:
            box.take(
                batch,
                None if codes is None else person_of(codes[person]),
                uploads[person],
            )
        except ExchangeError as error:
            refusals.append(error)
        else:
            acknowledged.append(uploads[person])

    with gathering(box):
        threads = [
            threading.Thread(target=send, args=(person,))
            for person in range(len(uploads))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(acknowledged) == stored(box) == most
        kept = box.uploads(torch.arange(most)).numpy()
        assert {row.tobytes() for row in kept} == set(acknowledged)
        assert {error.status for error in refusals} == {410}
        assert refused(box) == {"late": len(uploads) - most}
        first = uploads.index(acknowledged[0])
        again = box.expect(CONTEXT.hex(), PLAN.format.size)
        person = None if codes is None else person_of(codes[first])
        assert not box.take(again, person, uploads[first]), (
            "its answer may have been lost"
        )


def test_a_collection_that_goes_on_with_a_lower_most_takes_no_more(
    tmp_path: Path, phone: ModuleType
) -> None:
    first = UploadStore(tmp_path / "run.uploads", max_uploads=3)
    for person in range(2):
        assert (
            first.put(f"person {person}", bytes([person]) * 16, made(phone, person))
            == "stored"
        )
    first.close()
    again = UploadStore(tmp_path / "run.uploads", max_uploads=1)
    assert again.put("person 2", bytes([2]) * 16, made(phone, 2)) == "late"
    assert again.count == 2
    again.close()


def test_with_too_few_at_the_end_nothing_is_passed_on_and_what_came_is_kept(
    tmp_path: Path, phone: ModuleType
) -> None:
    box = Box(tmp_path / "uploads", codes=CODES, until=0.0, least=2)
    with gathering(box) as ended:
        until(lambda: bool(ended), 60)
        assert isinstance(ended[0], PartyError)
        assert box.take(
            box.expect(CONTEXT.hex(), PLAN.format.size),
            person_of(CODES[0]),
            made(phone),
        )
    again = Box(tmp_path / "uploads", codes=CODES)
    with gathering(again):
        assert stored(again) == 1


def test_a_receiver_that_was_killed_has_all_that_it_acknowledged_and_what_it_counted(
    tmp_path: Path, phone: ModuleType
) -> None:
    data = made(phone)
    box = Box(tmp_path / "uploads", codes=CODES)
    with gathering(box):
        with suppress(UnderstudyError):
            box.expect(CONTEXT.hex(), 3)
        box.take(box.expect(CONTEXT.hex(), PLAN.format.size), person_of(CODES[0]), data)
        # of a process that has nothing of the first but its file
        other = Box(tmp_path / "uploads", codes=CODES)
        with gathering(other):
            assert (stored(other), refused(other)) == (1, {"length": 1})
            assert other.uploads(torch.tensor([0])).numpy().tobytes() == data


# Strangers


def head(length: int | None, more: str = "") -> bytes:
    told = (
        f"Content-Length: {length}\r\n"
        if length is not None
        else "Transfer-Encoding: chunked\r\n"
    )
    lines = (
        f"PUT /v1/uploads/{CONTEXT.hex()} HTTP/1.1\r\nHost: x\r\nAuthorization: "
        f"Bearer {CODES[0]}\r\n{told}"
    )
    return f"{lines}{more}\r\n".encode()


RAW: dict[str, tuple[bytes, int, dict[str, int]]] = {
    "a slow one": (head(PLAN.format.size) + b"x" * 100, 408, {}),
    "a large one, by its length": (head(10**12) + b"x", 422, {"length": 1}),
    "one without a length": (head(None) + b"1\r\nx\r\n", 411, {}),
    "one with two lengths": (
        head(5, "Transfer-Encoding: chunked\r\n") + b"0\r\n",
        400,
        {},
    ),
    "a length that is none": (head(5).replace(b": 5", b": -5"), 400, {}),
}


@pytest.mark.parametrize("what", RAW)
def test_a_bad_body_is_given_up_before_its_end_and_another_persons_comes_through(
    tmp_path: Path, phone: ModuleType, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(app, "SECONDS", 0.3)
    sent, status, counted = RAW[what]
    box = Box(tmp_path / "uploads", codes=CODES)
    with (
        gathering(box),
        serving(box, port=0, limits=FAST) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as line,
    ):
        line.sendall(sent)
        said = b""
        # until it is hung up on; a line that stays open times out
        while chunk := line.recv(1 << 16):
            said += chunk
        assert said.startswith(f"HTTP/1.1 {status} ".encode()), said
        assert refused(box) == counted
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1") as client:
            assert put(client, made(phone)).status_code == 201


def test_who_guesses_codes_is_slowed_down(tmp_path: Path) -> None:
    box = Box(tmp_path / "uploads", codes=CODES)
    with (
        gathering(box),
        serving(box, port=0, limits=Limits(rate=1.0, burst=30)) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v1") as client,
    ):
        said = [
            put(
                client, b"", Authorization=f"Bearer guess-number-{n}-of-many"
            ).status_code
            for n in range(8)
        ]
        assert said[:3] == [401] * 3
        assert said[-1] == 429


def test_only_this_machine_hears_a_receiver_without_tls(tmp_path: Path) -> None:
    box = Box(tmp_path / "uploads", codes=CODES)
    with (
        pytest.raises(ConfigError, match="codes could be read"),
        serving(box, host="0.0.0.0", port=0),
    ):
        pass


@pytest.mark.parametrize(
    "text",
    ["", "short\n", "a-code-that-is-here-twice\n" * 2, "ein-schlüssel-aus-umlauten\n"],
)
def test_codes_that_could_be_guessed_or_told_apart_from_nobody_are_refused(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "codes.txt").write_text(text)
    with raises(ConfigError, effect=Effect.NOTHING_SENT):
        read_codes(tmp_path / "codes.txt")
    (tmp_path / "codes.txt").write_text("\n".join(CODES))
    assert read_codes(tmp_path / "codes.txt") == CODES


def test_no_code_can_be_taken_for_an_option_on_a_command_line() -> None:
    codes = (
        CliRunner().invoke(commands, ["collect", "--make-codes", "300"]).output.split()
    )
    assert len(set(codes)) == 300
    assert all(code.isalnum() and len(code) == 36 for code in codes)

"""A receiver for reports that are private by themselves: two collections, each for its
own people, one report each.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from forker import until
from understudy.data.encoding.codec import Codec
from understudy.data.kinds import NoRows
from understudy.data.samples import toy
from understudy.ground.errors import ConfigError, PartyError
from understudy.ground.pack import pack, unpack
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.local.naming import SubsetSelection
from understudy.privacy.noise import SecureRng
from understudy.protocols.cross_device.run import own_choices
from understudy.protocols.one_report import protocol
from understudy.protocols.one_report.party import (
    BeginReports,
    ColumnSet,
    MarginalsRound,
    ReportForm,
    as_sent,
    context_of,
    read_sets,
)
from understudy.protocols.one_report.plan import first_round
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties
from understudy.services.collect.app import serving
from understudy.services.collect.box import Box, person_of
from understudy.services.web.limits import Limits

FRAME, SCHEMA = toy(rows=8, seed=3)
CODEC = Codec(SCHEMA)
LEVELS = CODEC.codes(FRAME).tolist()
CODES = [f"code-of-person-{number:04d}" for number in range(len(FRAME))]
PERSON = {person_of(code): place for place, code in enumerate(CODES)}
SURE = 40.0  # at this ε a report tells the cell
CONFIG = protocol.Config(
    epsilon_total=SURE, share=0.5, components=4, steps=3, device="cpu"
)
FAST = Limits(rate=1e6, burst=10**6)
SECURE = SecureRng.from_seed(1)


def federation(box: Box | None, epsilon: float = SURE) -> Federation:
    held: dict[str, Any] = {"phones": NoRows(SCHEMA, box=box)}
    return Federation.rehearsal(
        held, {}, budget=Budget(epsilon, 0.0), seed=1, same_people=False
    )


def begin(config: protocol.Config = CONFIG) -> BeginReports:
    return BeginReports(config=asdict(config), schema=SCHEMA.to_dict())


def first_ask(people: int) -> MarginalsRound:
    asking = first_round(CODEC.sizes)
    sent = as_sent(asking.groups, asking.sets)
    which = asking.deal(people, np.random.default_rng(0))
    return MarginalsRound(round=1, people=torch.arange(people), which=which, **sent)


def put(client: httpx.Client, code: str, context: bytes, data: bytes) -> int:
    said = client.put(
        f"uploads/{context.hex()}",
        content=data,
        headers={"Authorization": f"Bearer {code}"},
    )
    return said.status_code


def ticket(client: httpx.Client, code: str) -> httpx.Response:
    return client.get(
        "ticket", headers={"Authorization": f"Bearer {code}"} if code else {}
    )


def test_two_collections_make_a_table_and_who_does_not_come_pays_nothing(
    tmp_path: Path, phone: ModuleType
) -> None:
    box = Box(tmp_path / "uploads", codes=CODES)
    whole = federation(box)
    outcome = []
    parties = whole.parties("one-report", run="r", config=CONFIG)
    run = threading.Thread(
        target=lambda: outcome.append(
            protocol.train(CONFIG, LocalParties(parties), whole.schemas)
        ),
        daemon=True,
    )
    came: list[set[str]] = []
    with (
        serving(box, port=0, limits=FAST) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v1") as client,
    ):
        run.start()
        for number in (1, 2):
            until(
                lambda number=number: (
                    box._batch is not None and box._batch.ticket["round"] == number
                ),
                60,
            )
            assert box._batch is not None
            batch = box._batch
            asked = {code for code in CODES if person_of(code) in (batch.among or ())}
            form = batch.form
            assert isinstance(form, ReportForm)
            assert {
                ticket(client, code).status_code for code in CODES if code not in asked
            } == {409}
            absent = max(asked) if number == 2 else ""
            for code in asked - {absent}:
                told = ticket(client, code).json()
                data = phone.report(told, LEVELS[CODES.index(code)])
                assert put(client, code, phone.report_context(told), data) == 201
            if absent:
                box._end(batch.store)
            came.append(asked - {absent})
        run.join(60)
    assert outcome, "the run did not end"
    assert not came[0] & came[1]
    card = outcome[0].trained.card
    assert (card["reports"]["all"], card["reports"]["refused"], card["people"]) == (
        7,
        0,
        8,
    )
    prices = whole.holders["phones"].ledger
    assert {prices.spent(person_of(code)) for code in came[0] | came[1]} == {SURE}
    (away,) = set(CODES) - came[0] - came[1]
    assert prices.spent(person_of(away)) == 0
    box.forget()
    assert not list((tmp_path / "uploads").iterdir()), (
        "both collections' reports are gone"
    )


@contextmanager
def asking(
    box: Box, people: int, epsilon: float = SURE
) -> Iterator[tuple[Any, Any, list[Any]]]:
    """A party that has been asked about single columns, its state before that, and what
    it answered, when it has.
    """
    whole = federation(box, epsilon)
    host: Any = whole.parties("one-report", run="r", config=CONFIG)["phones"]
    host.answer(begin())
    before = pack(host.state_dict())
    said = []

    def answer() -> None:
        with suppress(KeyboardInterrupt):  # stopped before everybody has come
            said.append(host.answer(first_ask(people)))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        until(lambda: box._batch is not None, 60)
        yield host, before, said
    finally:
        box._stopped.set()
        thread.join()
        box.close()


def hand_in(box: Box, code: str) -> bytes:
    """What a device with that code sends, straight into the box."""
    assert box._batch is not None
    form = box._batch.form
    own = PERSON[person_of(code)]
    assert isinstance(form, ReportForm)
    cell = torch.tensor([LEVELS[own][0]])
    sent = (
        form.mechanisms[0].encode(form.mechanisms[0](cell, SECURE))[0].numpy().tobytes()
    )
    data = own.to_bytes(16, "big") + bytes(2) + sent.ljust(form.size - 18, b"\0")
    batch = box._batch
    person = person_of(code)
    box.take(box.expect(batch.context.hex(), len(data), person), person, data)
    return data


def test_what_is_asked_for_again_is_the_same_and_charged_once(tmp_path: Path) -> None:
    box = Box(tmp_path / "uploads", codes=CODES[:3])
    with asking(box, 2) as (host, before, said):
        asked = [
            code for code in CODES[:3] if person_of(code) in (box._batch.among or ())
        ]  # type: ignore[union-attr]
        sent = [hand_in(box, code) for code in asked]
        until(lambda: bool(said), 60)
        first = said[0].reports.value
        assert first["which"].tolist() == [0, 0]
        assert first["reports"].numpy().tobytes() == b"".join(
            data[18:19] for data in sent
        )
        host.load_state_dict(unpack(before))
        again = host.answer(first_ask(2)).reports.value
        assert torch.equal(again["reports"], first["reports"])
        assert {host.ledger.spent(person_of(code)) for code in asked} == {SURE}
        with pytest.raises(PartyError, match="which is the most in this run"):
            host.answer(first_ask(2))


def test_reports_for_another_ask_are_charged_too_though_the_party_was_put_back(
    tmp_path: Path,
) -> None:
    box = Box(tmp_path / "uploads", codes=CODES[:2])
    with asking(box, 2, epsilon=2 * SURE) as (host, before, said):
        for code in CODES[:2]:
            hand_in(box, code)
        until(lambda: bool(said), 60)
        old = box._batch
        host.load_state_dict(unpack(before))
        other = replace(first_ask(2), which=torch.zeros(2, dtype=torch.int64))
        thread = threading.Thread(
            target=lambda: said.append(host.answer(other)), daemon=True
        )
        thread.start()
        until(lambda: box._batch not in (None, old), 60)
        for code in CODES[:2]:
            hand_in(box, code)
        thread.join(60)
        assert len(said) == 2
        assert {host.ledger.spent(person_of(code)) for code in CODES[:2]} == {2 * SURE}


WRONG: dict[str, tuple[int, Callable[[bytearray], Any]]] = {
    "too short": (422, lambda data: data.pop()),
    "a set that is not there": (422, lambda data: data.__setitem__(17, 250)),
    "a cell that is not there": (422, lambda data: data.__setitem__(18, 250)),
}


def test_what_is_no_report_of_somebody_who_is_asked_is_refused_and_the_right_one_may_come(
    tmp_path: Path,
) -> None:
    box = Box(tmp_path / "uploads", codes=CODES)
    with (
        asking(box, 5),
        serving(box, port=0, limits=FAST) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/v1") as client,
    ):
        batch = box._batch
        assert batch is not None
        asked = [code for code in CODES if person_of(code) in (batch.among or ())]
        other = next(code for code in CODES if code not in asked)
        assert context_of(ticket(client, asked[0]).json()) == batch.context
        assert [
            ticket(client, code).status_code for code in ("", "of-nobody-at-all", other)
        ] == [401, 401, 409]
        form: Any = batch.form
        good = bytes(16) + bytes(2) + b"\0" * (form.size - 18)
        for status, change in WRONG.values():
            data = bytearray(good)
            change(data)
            assert put(client, asked[0], batch.context, bytes(data)) == status
        assert put(client, other, batch.context, good) == 409
        assert put(client, asked[0], bytes(32), good) == 409
        assert batch.store.count == 0
        assert [put(client, asked[0], batch.context, good) for _ in range(2)] == [
            201,
            200,
        ]
        assert put(client, asked[0], batch.context, b"\1" + good[1:]) == 409, (
            "a second one of a person"
        )
        assert put(client, asked[1], batch.context, good) == 409, "another's again"


def test_settings_and_boxes_that_cannot_work_are_refused_before_anybody_is_told(
    tmp_path: Path,
) -> None:
    codes = Box(tmp_path / "a", codes=CODES)
    small = protocol.Config(epsilon_total=SURE, batch=7)
    for box, config, why in (
        (codes, small, "one collection"),
        (Box(tmp_path / "b", max_uploads=5), CONFIG, "people with codes"),
        (None, CONFIG, "no aggregator"),
    ):
        with pytest.raises(ConfigError, match=why):
            federation(box).parties("one-report", run="r", config=config)[
                "phones"
            ].answer(begin(config))
    assert codes._batch is None


def test_a_server_takes_no_more_reports_than_it_asked_for_and_none_about_sets_that_are_not_there():
    mechanisms = [SubsetSelection(cells=3, epsilon=1.0)]
    named: list[list[torch.Tensor]] = [[]]
    one = torch.zeros(1, dtype=torch.uint8)
    assert protocol._read(one, torch.tensor([1]), mechanisms, named) == 1
    assert protocol._read(one, torch.tensor([-1]), mechanisms, named) == 1
    assert protocol._read(one, torch.tensor([0]), mechanisms, named) == 0
    assert own_choices({"which": torch.tensor([0, 0]), "reports": one}, 1) is None
    assert own_choices({"which": torch.tensor([0.0]), "reports": one}, 1) is None
    assert own_choices({"which": torch.tensor([0]), "reports": one}, 1) is not None


# The device


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_a_devices_report_has_the_shape_and_the_law_of_the_mechanism(
    phone: ModuleType, epsilon: float
) -> None:
    for cells in (2, 3, 17, 256, 257, 3000):
        mechanism = SubsetSelection(cells=cells, epsilon=epsilon)
        size, _, by_number, length = phone.shape(cells, epsilon)
        assert (size, by_number, length) == (
            mechanism.size,
            mechanism.by_number,
            mechanism.bytes,
        )
    mechanism = SubsetSelection(cells=5, epsilon=epsilon)
    sent = [phone.randomized(3, 5, epsilon) for _ in range(3000)]
    named, none = mechanism.decode(
        torch.tensor([list(one) for one in sent], dtype=torch.uint8)
    )
    assert not none.any()
    share = float(mechanism.kept_reports / 2**62)
    assert float((named == 3).any(1).double().mean()) == pytest.approx(share, abs=0.05)
    others = torch.bincount(named[named != 3], minlength=5)[[0, 1, 2, 4]].double()
    assert float(others.min()) > 0.7 * float(others.mean()) - 3, "each other cell alike"


def test_a_device_finds_the_cell_of_its_row_and_draws_sets_as_often_as_it_is_told(
    phone: ModuleType,
) -> None:
    groups = [torch.arange(size) // 2 for size in CODEC.sizes]
    listed = torch.tensor([[0, 0], [1, 0]])
    sets = [
        ColumnSet((1,), (groups[1],)),
        ColumnSet((3, 0), (groups[3], groups[0])),
        ColumnSet((0, 3), (groups[0], groups[3]), listed),
    ]
    sent = as_sent(groups, sets)
    told = {
        "sizes": list(CODEC.sizes),
        "groups": sent["groups"].tolist(),
        "columns": sent["columns"],
        "listed": [one.tolist() for one in sent["listed"]],
    }
    rows = torch.tensor(LEVELS)
    for number, one in enumerate(read_sets(**sent, levels=CODEC.sizes)):
        found = [phone.cell_of(told, number, row) for row in LEVELS]
        assert found == [(cell, one.cells) for cell in one.cell_of(rows).tolist()]
    drawn = np.bincount([phone.one_of([1, 0, 3]) for _ in range(800)], minlength=3)
    assert drawn[1] == 0
    assert 480 < drawn[2] < 720


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, float("nan"), float("inf")])
@pytest.mark.parametrize("alone", [True, False], ids=["a report", "two shares"])
def test_a_device_pays_no_price_that_is_none(
    phone: ModuleType, epsilon: float, alone: bool
) -> None:
    """A negative one would give the person a budget that is not there."""
    config = {"epsilon_total": epsilon, "epsilon": epsilon, "delta": 1e-6}
    told = {"run": "r", "config": config} | ({"columns": []} if alone else {})
    with pytest.raises(SystemExit, match="is no price"):
        phone.price_of(told)
    with pytest.raises(SystemExit, match="none that can be reported on"):
        phone.report(
            {
                "config": {"epsilon_total": 1.0},
                "sizes": [2],
                "groups": [0, 1],
                "columns": [],
                "listed": [],
                "weights": [],
            },
            [0],
        )

"""A message comes back as it went, or is refused in words."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from understudy.ground.errors import MessageError
from understudy.ground.pack import pack
from understudy.privacy.accounts.ledger import Receipt
from understudy.protocols.core.base import Ask, Keep, Paid, Public, Reply
from understudy.runtime.wire import decode, encode, size


class Question(Ask, kind="test.question"):
    round: int
    rate: float
    weights: Tensor
    layers: tuple[int, ...]
    extra: dict[str, Tensor]
    salt: bytes | None


class Answer(Reply, kind="test.answer"):
    gradient: Paid
    people: Public


RECEIPT = Receipt(
    holder="clinic", ledger="abc", entry=7, run="r", description="round 1"
)
QUESTION = Question(
    round=3,
    rate=0.5,
    weights=torch.arange(6.0).view(2, 3),
    layers=(4, 2),
    extra={"bias": torch.ones(2)},
    salt=b"\0x",
)
ANSWER = Answer(
    gradient=Paid({"values": torch.ones(3)}, RECEIPT),
    people=Public(20, "the size of the intersection"),
)


def test_an_ask_comes_back_as_it_went() -> None:
    back = decode(encode(QUESTION), [Question, Keep])
    assert isinstance(back, Question)
    assert torch.equal(back.weights, QUESTION.weights)
    assert (back.round, back.rate, back.layers, back.salt) == (3, 0.5, (4, 2), b"\0x")
    assert torch.equal(back.extra["bias"], torch.ones(2))


def test_a_reply_keeps_its_receipts_and_reasons() -> None:
    back = decode(encode(ANSWER), [Answer])
    assert isinstance(back, Answer)
    assert back.gradient.receipt == RECEIPT
    assert back.people == ANSWER.people
    assert torch.equal(back.gradient.value["values"], torch.ones(3))


def test_a_kind_that_was_not_listed_is_refused() -> None:
    with pytest.raises(MessageError, match="not part of this protocol"):
        decode(encode(QUESTION), [Answer])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fields": {"round": 1}}, "missing fields"),
        ({"kind": "os.System"}, "not part of this protocol"),
        ({"kind": 7}, "not part of this protocol"),
        ({"fields": [1]}, "not part of this protocol"),
        ({"more": 1}, "not a message"),
    ],
)
def test_an_envelope_out_of_order_is_refused(
    change: dict[str, object], words: str
) -> None:
    envelope = (
        {"kind": Keep.kind(), "fields": {"round": 1}}
        if "fields" not in change
        else {"kind": Question.kind()}
    )
    with pytest.raises(MessageError, match=words):
        decode(pack(envelope | change), [Keep, Question])


@pytest.mark.parametrize("value", ["1", 1.5, True, None, [1], {"a": 1}, torch.ones(1)])
def test_a_field_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(MessageError, match="declared type"):
        decode(pack({"kind": Keep.kind(), "fields": {"round": value}}), [Keep])


def test_a_reply_without_receipt_is_refused_on_arrival() -> None:
    for gradient in (
        torch.ones(1),
        {"value": torch.ones(1)},
        {"public": "a reason", "value": 1},
        {"paid": 1, "value": 2},
    ):
        body = {"gradient": gradient, "people": {"public": "a reason", "value": 1}}
        with pytest.raises(MessageError, match="receipt"):
            decode(pack({"kind": Answer.kind(), "fields": body}), [Answer])


def test_a_receipt_with_other_fields_is_refused() -> None:
    body = {
        "gradient": {"paid": {"holder": "x"}, "value": 1},
        "people": {"public": "a reason", "value": 1},
    }
    with pytest.raises(MessageError):
        decode(pack({"kind": Answer.kind(), "fields": body}), [Answer])


@given(st.binary(max_size=200))
@settings(max_examples=80)
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(data, [Question, Answer])


def test_size_is_close_to_the_bytes_on_the_wire() -> None:
    big = Question(
        round=1,
        rate=0.1,
        weights=torch.zeros(1000, 10),
        layers=(1,),
        extra={},
        salt=None,
    )
    assert size(big) == pytest.approx(len(encode(big)), rel=0.02)


@pytest.mark.parametrize(
    "wrong", [{"entry": "7"}, {"entry": True}, {"event": None}, {"more": 1}]
)
def test_a_receipt_with_values_of_other_types_is_refused(
    wrong: dict[str, object],
) -> None:
    fields = {
        "gradient": {"paid": RECEIPT.to_dict() | wrong, "value": 1},
        "people": {"public": "r", "value": 1},
    }
    with pytest.raises(MessageError, match="cannot be read"):
        decode(pack({"kind": Answer.kind(), "fields": fields}), [Answer])

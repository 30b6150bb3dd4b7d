"""Messages ↔ bytes, and errors ↔ what the other side may know of them.

A message travels as one packed value (`understudy.ground.pack`): its kind, its fields,
and for a reply the receipt or the public reason of each field.

Guarantee: decoding builds only the message types that the caller lists, with exactly
their fields.
Edges: oversize, non-finite, unknown kinds, unknown or missing fields, wrong value types
→ MessageError.
"""

import json
import types
from collections.abc import Iterable
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from understudy.ground.errors import (
    AlignmentError,
    BudgetExceeded,
    Effect,
    MessageError,
    OwnIdsError,
    PartyError,
    PrivacyError,
    UnderstudyError,
)
from understudy.ground.pack import LIMIT, Value, pack, unpack
from understudy.privacy.accounts.ledger import Receipt
from understudy.protocols.core import Message, Paid, Public

# Texts that our own code writes for the other side. Any other may quote a value or a
# file of the holder's.
_SPOKEN = (BudgetExceeded, MessageError, AlignmentError, PartyError)
_LONGEST = 500


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The fields and their types; looking them up takes as long as all the rest of a
    small message.
    """
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


@lru_cache(maxsize=256)
def _kinds_by_name(kinds: tuple[type[Message], ...]) -> dict[str, type[Message]]:
    return {kind.kind(): kind for kind in kinds}


def encode(message: Message, *, limit: int = LIMIT) -> bytes:
    body: dict[str, Any] = {
        field.name: _plain(getattr(message, field.name)) for field in fields(message)
    }
    return pack({"kind": message.kind(), "fields": body}, limit=limit)


def decode(
    data: bytes | bytearray, kinds: Iterable[type[Message]], *, limit: int = LIMIT
) -> Message:
    """The message that `encode` wrote, if it is of one of these kinds."""
    envelope = unpack(data, limit=limit)
    if not isinstance(envelope, dict) or envelope.keys() != {"kind", "fields"}:
        raise MessageError("These bytes are not a message.")
    classes = _kinds_by_name(tuple(kinds))
    name = envelope["kind"]
    body = envelope["fields"]
    if not isinstance(name, str) or name not in classes or not isinstance(body, dict):
        raise MessageError(
            f"A message of kind {str(name)[:80]!r} is not part of this protocol."
        )
    cls = classes[name]
    hints: dict[str, Any] = _hints(cls)  # type: ignore[arg-type]
    if body.keys() != hints.keys():
        odd = sorted(map(str, body.keys() ^ hints.keys()))
        raise MessageError(f"{name}: unknown or missing fields {', '.join(odd)[:200]}.")
    try:
        return cls(
            **{
                key: _typed(item, hints[key], f"{name}.{key}")
                for key, item in body.items()
            }
        )
    except (TypeError, ValueError, KeyError) as error:
        if isinstance(error, UnderstudyError):
            raise
        raise MessageError(
            f"{name}: its fields cannot be read ({type(error).__name__})."
        ) from None


def _plain(value: object) -> Value:
    if isinstance(value, Paid):
        return {"paid": value.receipt.to_dict(), "value": value.value}
    if isinstance(value, Public):
        return {"public": value.reason, "value": value.value}
    return value  # type: ignore[return-value]  # pack refuses what cannot be written down


def _typed(value: Any, hint: Any, where: str) -> Any:
    """The value as the field's annotation says, or a MessageError."""
    if hint in (Any, object):
        return value
    origin = get_origin(hint)
    args = get_args(hint)
    if origin in (types.UnionType, Union):
        for option in args:
            try:
                return _typed(value, option, where)
            except MessageError:
                continue
        raise MessageError(f"{where} is not of the declared type.")
    if hint is Paid or hint is Public:
        return _released(value, hint, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(item, args[0] if args else object, where) for item in value)
    if origin is list and isinstance(value, list):
        return [_typed(item, args[0], where) for item in value]
    if origin is dict and isinstance(value, dict):
        return {key: _typed(item, args[1], where) for key, item in value.items()}
    plain: type = type(None) if hint is None else origin or hint
    if plain is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, plain) or (isinstance(value, bool) and plain is int):
        raise MessageError(f"{where} is not of the declared type.")
    return value


def _released(value: Any, hint: type, where: str) -> Paid | Public:
    if isinstance(value, dict):
        if (
            hint is Paid
            and value.keys() == {"paid", "value"}
            and isinstance(value["paid"], dict)
        ):
            return Paid(value["value"], Receipt.from_dict(value["paid"]))
        if (
            hint is Public
            and value.keys() == {"public", "value"}
            and isinstance(value["public"], str)
        ):
            return Public(value["value"], value["public"])
    raise MessageError(f"{where} has neither a receipt nor a public reason.")


def size(message: Message) -> int:
    """Bytes of the message on the wire, without building them all: tensors plus a small
    header.
    """
    return len(message.kind()) + sum(
        _bytes(getattr(message, field.name)) for field in fields(message)
    )


def _bytes(value: object) -> int:
    match value:
        case Tensor():
            return value.numel() * value.element_size()
        case Paid():
            return _bytes(value.value) + len(str(value.receipt.to_dict()))
        case Public():
            return _bytes(value.value) + len(value.reason)
        case dict():
            return sum(len(str(key)) + _bytes(item) for key, item in value.items())
        case list() | tuple():
            return sum(_bytes(item) for item in value)
        case str() | bytes():
            return len(value)
    return 8


def spoken_bytes(party: str, error: Exception) -> bytes:
    """An error as the other side may know it: no row values, no counts of rows, no
    paths.
    """
    if isinstance(error, _SPOKEN) and not isinstance(error, OwnIdsError):
        message = error.to_dict()
    else:
        kind = (
            type(error).__name__ if isinstance(error, UnderstudyError) else "PartyError"
        )
        text = f"failed inside ({type(error).__name__}); its own log says more."
        if isinstance(error, PrivacyError):
            text = "its ledger or its privacy checks stopped the answer."
        message = {"kind": kind, "text": text, "effect": Effect.NOTHING_SENT.name}
    message["text"] = _by(party, message["text"])[:_LONGEST]
    return json.dumps(message).encode()


def _by(party: str, text: str) -> str:
    return text if text.startswith(party) else f"{party}: {text}"


def refusal(party: str, body: bytes | bytearray) -> UnderstudyError:
    """A party's refusal as the error that it was. What it says is a peer's text: short,
    and printable.
    """
    try:
        error = UnderstudyError.from_dict(json.loads(body[:4096]))
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError):
        return MessageError(f"{party}: refused, and said nothing that can be read.")
    text = "".join(
        letter if letter.isprintable() else " " for letter in error.message[:_LONGEST]
    )
    return error.restated(_by(party, text))

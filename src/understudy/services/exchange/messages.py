"""What the API is told, by whom, and what it says, as OpenAPI describes it.

A token comes as Bearer from a program, as the password of Basic from a browser. A
browser sends a remembered password along wherever it is told to go, so with Basic it
can only read, and not at the word of another site: nobody's page can push, or fill the
audit log with pulls, in a member's name.
"""

import base64
import binascii
import json
from typing import Annotated, Any, Literal, Self

from fastapi import Depends, Request
from pydantic import Field

from understudy.ground.errors import ExchangeError
from understudy.services.exchange import database
from understudy.services.exchange.database import NAME, Caller, authenticate
from understudy.services.exchange.service import Exchange
from understudy.services.web.skeleton import Message, caller_address

Name = Annotated[str, Field(pattern=f"^{NAME}$", max_length=64)]
Digest = Annotated[
    str, Field(pattern="^[0-9a-f]{64}$", description="The SHA-256 of the file.")
]
_JSON = {"label", "card", "preview"}  # of an offer, as the database has it
TokenId = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]


async def the_exchange(request: Request) -> Exchange:
    """The exchange that this application serves; async, as it waits for nothing and
    needs no thread.
    """
    exchange: Exchange = request.app.state.exchange
    return exchange


def the_caller(request: Request) -> Caller:
    """Whose token came with the request; 401 if none that is valid, 429 if too
    often.
    """
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    browser = kind.lower() == "basic"
    if browser and request.method not in ("GET", "HEAD"):
        raise ExchangeError(
            401,
            "With a password one can only read: this needs Authorization: Bearer "
            "usx_….",
        )
    token = value.strip() if kind.lower() == "bearer" else ""
    if browser:
        token = _password(value)
    caller = authenticate(request.app.state.exchange.database, token)
    if caller is None:
        request.app.state.strangers.take(caller_address(request))
        raise ExchangeError(401, "This needs a valid token.")
    if browser and request.headers.get("sec-fetch-site") == "cross-site":
        raise ExchangeError(403, "Another site sent this request.")
    request.app.state.rate.take(caller.token)
    return caller


def _password(value: str) -> str:
    try:
        return (
            base64.b64decode(value.strip(), validate=True)
            .decode()
            .partition(":")[2]
            .strip()
        )
    except (binascii.Error, ValueError):
        return ""


The = Annotated[Exchange, Depends(the_exchange)]
By = Annotated[Caller, Depends(the_caller)]


class CallerOut(Message):
    """For whom a token speaks."""

    silo: str
    role: str
    pool: str | None


class PoolOut(Message):
    """A pool, and what an offer in it must fulfil."""

    name: str
    requirements: dict[str, Any]
    created: str

    @classmethod
    def from_row(cls, row: database.Pool) -> "PoolOut":
        return cls(
            name=row.name,
            requirements=json.loads(row.requirements),
            created=row.created,
        )


class NewPool(Message):
    """A pool to found. Its requirements never change."""

    name: Name
    requirements: dict[str, Any]


class OfferOut(Message):
    """A generator on offer. ε and δ are its silo's word."""

    digest: str
    silo: str
    label: Any
    epsilon: float
    delta: float
    network: str
    bytes: int
    created: str

    @classmethod
    def from_row(cls, row: database.Offer) -> Self:
        facts = {name: getattr(row, name) for name in cls.model_fields}
        return cls(
            **facts | {name: json.loads(facts[name]) for name in _JSON & facts.keys()}
        )


class OfferWhole(OfferOut):
    """A generator on offer with its card and a few of its rows."""

    card: dict[str, Any]
    preview: dict[str, Any]


class TokenOut(Message):
    """A token without its secret."""

    id: str
    silo: str
    role: str
    pool: str | None
    created: str
    revoked: str | None


class NewToken(Message):
    """A member belongs to one pool, an administrator to none."""

    silo: Name
    role: Literal["admin", "member"] = "member"
    pool: Name | None = None


class Issued(Message):
    """A token. It is shown this once."""

    token: str


class EventOut(Message):
    """A line of the audit log."""

    id: int
    at: str
    action: str
    status: int
    silo: str
    token: str
    pool: str | None
    digest: str | None
    bytes: int | None

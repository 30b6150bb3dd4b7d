"""What the API says and is told, as OpenAPI describes it."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from understudy.services.exchange import database
from understudy.services.exchange.tokens import NAME
from understudy.services.web.skeleton import Message

Name = Annotated[str, Field(pattern=f"^{NAME}$", max_length=64)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="The SHA-256 of the file.")]
TokenId = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]


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
    def of(cls, row: database.Pool) -> "PoolOut":
        return cls(name=row.name, requirements=json.loads(row.requirements), created=row.created)


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
    def of(cls, row: database.Offer) -> "OfferOut":
        facts = {name: getattr(row, name) for name in cls.model_fields}
        return cls(**facts | {"label": json.loads(row.label)})


class OfferWhole(OfferOut):
    """A generator on offer with its card and a few of its rows."""

    card: dict[str, Any]
    preview: dict[str, Any]

    @classmethod
    def of(cls, row: database.Offer) -> "OfferWhole":
        facts = {name: getattr(row, name) for name in cls.model_fields}
        return cls(**facts | {name: json.loads(facts[name]) for name in ("label", "card", "preview")})


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

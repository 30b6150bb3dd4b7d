"""What every service says: that it is up, and why it refused."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Plain values; a key too many is refused."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class Problem(Message):
    """Why a request was refused, in words. Of a refused push nothing is stored."""

    detail: str | list[Any]


class Health(Message):
    """That the service is up."""

    ok: bool
    version: str

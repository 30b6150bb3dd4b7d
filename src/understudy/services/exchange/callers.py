"""Who is calling, for every route. A token comes as Bearer from a program, as the password of Basic from a browser.

A browser sends a remembered password along wherever it is told to go, so with Basic it can only read, and not at the
word of another site: nobody's page can push, or fill the audit log with pulls, in a member's name.
"""

import base64
import binascii
from typing import Annotated

from fastapi import Depends, Request

from understudy.ground.errors import ExchangeError
from understudy.services.exchange.service import Exchange
from understudy.services.exchange.tokens import Caller, authenticate
from understudy.services.web.skeleton import caller_address


async def the_exchange(request: Request) -> Exchange:
    """The exchange that this application serves; async, as it waits for nothing and needs no thread."""
    exchange: Exchange = request.app.state.exchange
    return exchange


def the_caller(request: Request) -> Caller:
    """Whose token came with the request; 401 if none that is valid, 429 if too often."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    browser = kind.lower() == "basic"
    if browser and request.method not in ("GET", "HEAD"):
        raise ExchangeError(401, "With a password one can only read: this needs Authorization: Bearer usx_….")
    token = _password(value) if browser else value.strip() if kind.lower() == "bearer" else ""
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
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2].strip()
    except (binascii.Error, ValueError):
        return ""


The = Annotated[Exchange, Depends(the_exchange)]
By = Annotated[Caller, Depends(the_caller)]

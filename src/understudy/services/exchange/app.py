"""The exchange over HTTP: `/v1` for programs, as OpenAPI describes it, and pages for people.

Every refusal has a status that says whose fault it is and a sentence that says what happened to the data.
"""

import logging
import math
from contextlib import aclosing
from importlib.metadata import version
from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from understudy.ground.errors import ExchangeError, UnderstudyError
from understudy.protocols.sgde.offer import Requirements
from understudy.services.exchange.callers import By, The
from understudy.services.exchange.checker import PROCESSES
from understudy.services.exchange.messages import (
    CallerOut,
    Digest,
    EventOut,
    Issued,
    Name,
    NewPool,
    NewToken,
    OfferOut,
    OfferWhole,
    PoolOut,
    TokenId,
    TokenOut,
)  # fmt: skip
from understudy.services.exchange.offer_file import SUFFIX
from understudy.services.exchange.pages import error_page, pages
from understudy.services.exchange.service import Exchange
from understudy.services.web.limits import Rate
from understudy.services.web.messages import Health, Problem
from understudy.services.web.serving import Guard, length_of, problem

CHECKERS = PROCESSES  # uploads that are looked at in the same moment: each takes a core
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request is cut off, or is not HTTP or JSON"},
    401: {"model": Problem, "description": "No token, or one that is not valid"},
    403: {"model": Problem, "description": "The token does not allow this"},
    404: {"model": Problem, "description": "It does not exist, or this token may not see it"},
    411: {"model": Problem, "description": "The request does not say how long it is"},
    413: {"model": Problem, "description": "Too large"},
    422: {"model": Problem, "description": "The request or the generator does not meet the requirements"},
    429: {"model": Problem, "description": "Too many requests; Retry-After says how long to wait"},
}
CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "There already"},
    410: {"model": Problem, "description": "Withdrawn"},
}
BYTES = {"schema": {"type": "string", "format": "binary"}}


def build_app(exchange: Exchange) -> FastAPI:
    """The application that serves this exchange."""
    app = FastAPI(
        title="understudy exchange",
        version=version("understudy"),
        description="Silos offer and take generators that were trained with differential privacy.",
        docs_url=None,  # these pages load scripts from elsewhere; the description itself is /openapi.json
        redoc_url=None,
        servers=[{"url": "/"}],
    )
    app.state.exchange = exchange
    app.state.rate = Rate(exchange.limits.rate, exchange.limits.burst)
    app.state.strangers = Rate(exchange.limits.rate / 10, max(1, exchange.limits.burst // 10))
    app.state.checkers = anyio.CapacityLimiter(CHECKERS)
    app.state.turns = {}  # silo → its lock, while one of its offers is looked at
    app.add_exception_handler(ExchangeError, _refusal)
    app.add_exception_handler(UnderstudyError, _misuse)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _not_served)
    app.add_exception_handler(SQLAlchemyError, _out_of_order)
    app.add_middleware(Guard, pushing=_pushing)
    app.router.routes += [*api.routes, *pages.routes]  # as they are: `include_router` makes each anew
    return app


api = APIRouter(prefix="/v1", responses=REFUSALS)


@api.get("/health")
def health() -> Health:
    """That the service is up; needs no token."""
    return Health(ok=True, version=version("understudy"))


@api.get("/me")
def who_am_i(caller: By) -> CallerOut:
    """The silo, the role and the pool of this token."""
    return CallerOut.model_validate(caller)


@api.get("/pools")
def list_pools(exchange: The, caller: By) -> list[PoolOut]:
    """The pools of this token."""
    return [PoolOut.of(row) for row in exchange.pools(caller)]


@api.post("/pools", status_code=201, responses={409: CONFLICT[409]})
def found_pool(exchange: The, caller: By, new: NewPool) -> PoolOut:
    """Create a pool (administrators)."""
    return PoolOut.of(exchange.add_pool(caller, new.name, Requirements.from_dict(new.requirements)))


@api.put("/pools/{pool}/subscription")
def subscribe(exchange: The, caller: By, pool: Name) -> PoolOut:
    """Join a pool and learn its requirements. Joining twice changes nothing."""
    return PoolOut.of(exchange.subscribe(caller, pool))


@api.get("/pools/{pool}/offers")
def list_offers(
    exchange: The,
    caller: By,
    pool: Name,
    label: Annotated[
        list[str] | None, Query(description='Only these classes, each in JSON: `"yes"`, `3`, `true`.')
    ] = None,
    silo: Annotated[list[Name] | None, Query(description="Only of these silos.")] = None,
    epsilon: Annotated[float | None, Query(ge=0, description="Only at this ε or less.")] = None,
) -> list[OfferOut]:
    """The generators on offer."""
    rows = exchange.offers(caller, pool, labels=label or (), silos=silo or (), epsilon=epsilon)
    return [OfferOut.of(row) for row in rows]


@api.get("/pools/{pool}/offers/{digest}", responses={410: CONFLICT[410]})
def show_offer(exchange: The, caller: By, pool: Name, digest: Digest) -> OfferWhole:
    """One generator: its card and a few of its rows."""
    return OfferWhole.of(exchange.offer(caller, pool, digest))


@api.put(
    "/pools/{pool}/offers/{digest}",
    status_code=201,
    responses=CONFLICT | {408: {"model": Problem, "description": "The upload took too long"}},
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": BYTES}}},
)
async def push(request: Request, exchange: The, caller: By, pool: Name, digest: Digest) -> OfferOut:
    """Offer a generator under the SHA-256 of its file. Once acknowledged, it survives a crash."""
    in_thread = anyio.to_thread.run_sync
    most = await in_thread(exchange.may_push, caller, pool, digest, length_of(request))
    with exchange.store.receive(most) as upload:
        try:
            with anyio.fail_after(exchange.limits.seconds):
                async with aclosing(request.stream()) as chunks:
                    async for chunk in chunks:
                        upload.write(chunk)
        except TimeoutError:
            raise ExchangeError(
                408, f"An upload may take {exchange.limits.seconds:g} s. Nothing was stored."
            ) from None
        except ClientDisconnect:
            raise ExchangeError(400, "The upload was cut off. Nothing was stored.") from None
        except OSError as error:
            raise ExchangeError(
                507, f"The exchange has no room ({error.strerror}). Nothing was stored."
            ) from None
        state = request.app.state
        # one silo cannot keep all checkers busy
        async with state.turns.setdefault(caller.silo, anyio.Lock()):
            row = await in_thread(exchange.push, caller, pool, digest, upload, limiter=state.checkers)
    return OfferOut.of(row)


@api.get(
    "/pools/{pool}/offers/{digest}/file",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": BYTES}}, 410: CONFLICT[410]},
)
def pull(exchange: The, caller: By, pool: Name, digest: Digest) -> FileResponse:
    """The file of one generator."""
    offer = exchange.pull(caller, pool, digest)
    return FileResponse(
        exchange.store.path(digest),
        media_type="application/octet-stream",
        filename=f"{pool}-{offer.silo}-{digest[:12]}{SUFFIX}",
        headers={"Cache-Control": "private, immutable, max-age=31536000"},
    )


@api.delete("/pools/{pool}/offers/{digest}", status_code=204, responses={410: CONFLICT[410]})
def withdraw(exchange: The, caller: By, pool: Name, digest: Digest) -> None:
    """Take an offer back: its silo, or an administrator. What others pulled stays with them."""
    exchange.withdraw(caller, pool, digest)


@api.get("/tokens")
def list_tokens(exchange: The, caller: By) -> list[TokenOut]:
    """All tokens, without their secrets (administrators)."""
    return [TokenOut.model_validate(row) for row in exchange.tokens(caller)]


@api.post("/tokens", status_code=201)
def issue_token(exchange: The, caller: By, new: NewToken) -> Issued:
    """A new token, shown only once (administrators)."""
    return Issued(token=exchange.add_token(caller, new.silo, role=new.role, pool=new.pool))


@api.delete("/tokens/{id}")
def revoke_token(exchange: The, caller: By, id: TokenId) -> TokenOut:
    """Revoke a token: it is refused from the next request on (administrators)."""
    return TokenOut.model_validate(exchange.revoke(caller, id))


@api.get("/events")
def list_events(
    exchange: The,
    caller: By,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only lines with a larger id.")] = 0,
    most: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> list[EventOut]:
    """The audit log: every push and pull, done or refused (administrators)."""
    return [EventOut.model_validate(row) for row in exchange.events(caller, after=after, most=most)]


def _pushing(request: Request) -> bool:
    return request.method == "PUT" and "/offers/" in request.url.path


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, ExchangeError)
    headers = {}
    if error.status == 401:
        basic = 'Basic realm="understudy exchange", charset="UTF-8"'
        headers["WWW-Authenticate"] = basic if _browser(request) else "Bearer"
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    return _said(request, error.status, str(error), headers)


async def _misuse(_: Request, error: Exception) -> Response:
    """A setting or a schema that makes no sense, in a request of an administrator."""
    return problem(422, str(error))


async def _out_of_order(_: Request, error: Exception) -> Response:
    """The database is full, locked or away. What it says goes into the service's own log, not to the caller."""
    logging.getLogger("uvicorn.error").error("the database failed: %s", error)
    return problem(
        503, "The exchange cannot use its database now. Nothing was changed.", {"Retry-After": "5"}
    )


async def _malformed(request: Request, error: Exception) -> Response:
    """Say where and why, but do not send back what came: it may be large, or no text."""
    assert isinstance(error, RequestValidationError)
    found = [{"where": [str(part) for part in e["loc"]], "what": e["msg"]} for e in error.errors()]
    if _browser(request):
        return _said(request, 422, "; ".join(f"{e['where'][-1]}: {e['what']}" for e in found[:3]) + ".")
    return problem(422, found[:16])


async def _not_served(request: Request, error: Exception) -> Response:
    """No such address, or not with this method."""
    assert isinstance(error, HTTPException)
    return _said(request, error.status_code, f"{error.detail}.", dict(error.headers or {}))


def _browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _said(request: Request, status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """A refusal as a page for people, as JSON for programs."""
    if _browser(request):
        return HTMLResponse(error_page(status, text), status, headers)
    return problem(status, text, headers)

"""The exchange over HTTP: `/v1` for programs, as OpenAPI describes it, and pages for people."""

import logging
from contextlib import aclosing
from typing import Annotated

import anyio
import anyio.to_thread
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse
from sqlalchemy.exc import SQLAlchemyError

from understudy.ground.errors import ExchangeError, UnderstudyError
from understudy.protocols.sgde.offer import Requirements
from understudy.services.exchange import messages as say
from understudy.services.exchange.checker import PROCESSES
from understudy.services.exchange.messages import By, Digest, Name, The
from understudy.services.exchange.offer_file import SUFFIX
from understudy.services.exchange.pages import error_page, pages
from understudy.services.exchange.service import Exchange
from understudy.services.web.skeleton import BYTES, length_of, problem, refusals, service, uploading

CHECKERS = PROCESSES  # uploads that are looked at in the same moment: each takes a core


def build_app(exchange: Exchange) -> FastAPI:
    app = service(
        "understudy exchange",
        "Silos offer and take generators that were trained with differential privacy.",
        exchange.limits,
        lambda request: request.method == "PUT" and "/offers/" in request.url.path,
        page=error_page,
        realm="understudy exchange",
    )
    app.state.exchange = exchange
    app.state.checkers = anyio.CapacityLimiter(CHECKERS)
    app.state.turns = {}  # silo → its lock, while one of its offers is looked at
    app.add_exception_handler(UnderstudyError, _misuse)
    app.add_exception_handler(SQLAlchemyError, _out_of_order)
    app.router.routes += [*api.routes, *pages.routes]  # as they are: `include_router` makes each anew
    return app


api = APIRouter(prefix="/v1", responses=refusals(400, 401, 403, 404, 405, 411, 413, 422, 429))


@api.get("/me")
def who_am_i(caller: By) -> say.CallerOut:
    """The silo, the role and the pool of this token."""
    return say.CallerOut.model_validate(caller)


@api.get("/pools")
def list_pools(exchange: The, caller: By) -> list[say.PoolOut]:
    """The pools of this token."""
    return [say.PoolOut.of(row) for row in exchange.pools(caller)]


@api.post("/pools", status_code=201, responses=refusals(409))
def found_pool(exchange: The, caller: By, new: say.NewPool) -> say.PoolOut:
    """Create a pool (administrators)."""
    return say.PoolOut.of(exchange.add_pool(caller, new.name, Requirements.from_dict(new.requirements)))


@api.put("/pools/{pool}/subscription")
def subscribe(exchange: The, caller: By, pool: Name) -> say.PoolOut:
    """Join a pool and learn its requirements. Joining twice changes nothing."""
    return say.PoolOut.of(exchange.subscribe(caller, pool))


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
) -> list[say.OfferOut]:
    """The generators on offer."""
    rows = exchange.offers(caller, pool, labels=label or (), silos=silo or (), epsilon=epsilon)
    return [say.OfferOut.of(row) for row in rows]


@api.get("/pools/{pool}/offers/{digest}", responses=refusals(410))
def show_offer(exchange: The, caller: By, pool: Name, digest: Digest) -> say.OfferWhole:
    """One generator: its card and a few of its rows."""
    return say.OfferWhole.of(exchange.offer(caller, pool, digest))


@api.put(
    "/pools/{pool}/offers/{digest}",
    status_code=201,
    responses=refusals(408, 409, 410, 503, 507),
    openapi_extra={"requestBody": {"required": True, "content": BYTES}},
)
async def push(request: Request, exchange: The, caller: By, pool: Name, digest: Digest) -> say.OfferOut:
    """Offer a generator under the SHA-256 of its file. Once acknowledged, it survives a crash."""
    in_thread = anyio.to_thread.run_sync
    most = await in_thread(exchange.may_push, caller, pool, digest, length_of(request))
    with exchange.store.receive(caller.silo, most, exchange.limits) as upload:
        try:
            with uploading(exchange.limits.seconds):
                async with aclosing(request.stream()) as chunks:
                    async for chunk in chunks:
                        upload.write(chunk)
        except OSError as error:
            raise ExchangeError(
                507, f"The exchange has no room ({error.strerror}). Nothing was stored."
            ) from None
        state = request.app.state
        # one silo cannot keep all checkers busy
        async with state.turns.setdefault(caller.silo, anyio.Lock()):
            row = await in_thread(exchange.push, caller, pool, digest, upload, limiter=state.checkers)
    return say.OfferOut.of(row)


@api.get(
    "/pools/{pool}/offers/{digest}/file",
    response_class=FileResponse,
    responses={200: {"content": BYTES}, **refusals(410)},
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


@api.delete("/pools/{pool}/offers/{digest}", status_code=204, responses=refusals(410))
def withdraw(exchange: The, caller: By, pool: Name, digest: Digest) -> None:
    """Take an offer back: its silo, or an administrator. What others pulled stays with them."""
    exchange.withdraw(caller, pool, digest)


@api.get("/tokens")
def list_tokens(exchange: The, caller: By) -> list[say.TokenOut]:
    """All tokens, without their secrets (administrators)."""
    return [say.TokenOut.model_validate(row) for row in exchange.tokens(caller)]


@api.post("/tokens", status_code=201)
def issue_token(exchange: The, caller: By, new: say.NewToken) -> say.Issued:
    """A new token, shown only once (administrators)."""
    return say.Issued(token=exchange.add_token(caller, new.silo, role=new.role, pool=new.pool))


@api.delete("/tokens/{id}")
def revoke_token(exchange: The, caller: By, id: say.TokenId) -> say.TokenOut:
    """Revoke a token: it is refused from the next request on (administrators)."""
    return say.TokenOut.model_validate(exchange.revoke(caller, id))


@api.get("/events")
def list_events(
    exchange: The,
    caller: By,
    after: Annotated[int, Query(ge=0, le=2**62, description="Only lines with a larger id.")] = 0,
    most: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> list[say.EventOut]:
    """The audit log: every push and pull, done or refused (administrators)."""
    return [say.EventOut.model_validate(row) for row in exchange.events(caller, after=after, most=most)]


async def _misuse(_: Request, error: Exception) -> Response:
    """A setting or a schema that makes no sense, in a request of an administrator."""
    return problem(422, str(error))


async def _out_of_order(_: Request, error: Exception) -> Response:
    """The database is full, locked or away. What it says goes into the service's own log, not to the caller."""
    logging.getLogger("uvicorn.error").error("the database failed: %s", error)
    return problem(
        503, "The exchange cannot use its database now. Nothing was changed.", {"Retry-After": "5"}
    )

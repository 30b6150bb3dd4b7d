"""The exchange over HTTP: `/v1` for programs, as OpenAPI describes it, and pages for
people, without a script.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.to_thread
import jinja2
from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from sqlalchemy.exc import SQLAlchemyError

from understudy.data.kinds import kind_of
from understudy.ground.errors import Effect, ExchangeError, UnderstudyError
from understudy.protocols.papers.sgde.offer import Requirements
from understudy.services.exchange import messages as say
from understudy.services.exchange.checker import PROCESSES
from understudy.services.exchange.database import Caller
from understudy.services.exchange.messages import By, Digest, Name, OfferWhole, The
from understudy.services.exchange.offer_file import SUFFIX
from understudy.services.exchange.service import Exchange, requirements_of
from understudy.services.web import skeleton
from understudy.services.web.skeleton import (
    BYTES,
    length_of,
    problem,
    refusals,
    typed_number,
)

EVERY = "null"  # the label, as JSON, of sums of all classes
ROWS = 3  # of each class on the page of a pool
STATUS = {
    401: "Who are you?",
    403: "Not for you",
    404: "Not here",
    410: "Withdrawn",
    429: "Too many requests",
}
CHECKERS = PROCESSES  # uploads that are looked at in the same moment: each takes a core


def build_app(exchange: Exchange) -> FastAPI:
    app = skeleton.service(
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
    # as they are: `include_router` makes each anew
    app.router.routes += [*api.routes, *pages.routes]
    return app


api = APIRouter(
    prefix="/v1", responses=refusals(400, 401, 403, 404, 405, 411, 413, 422, 429)
)


@api.get("/me")
def who_am_i(caller: By) -> say.CallerOut:
    """The silo, the role and the pool of this token."""
    return say.CallerOut.model_validate(caller)


@api.get("/pools")
def list_pools(exchange: The, caller: By) -> list[say.PoolOut]:
    """The pools of this token."""
    return [say.PoolOut.from_row(row) for row in exchange.pools(caller)]


@api.post("/pools", status_code=201, responses=refusals(409))
def found_pool(exchange: The, caller: By, new: say.NewPool) -> say.PoolOut:
    """Create a pool (administrators)."""
    return say.PoolOut.from_row(
        exchange.add_pool(caller, new.name, Requirements.from_dict(new.requirements))
    )


@api.put("/pools/{pool}/subscription")
def subscribe(exchange: The, caller: By, pool: Name) -> say.PoolOut:
    """Join a pool and learn its requirements. Joining twice changes nothing."""
    return say.PoolOut.from_row(exchange.subscribe(caller, pool))


@api.get("/pools/{pool}/offers")
def list_offers(
    exchange: The,
    caller: By,
    pool: Name,
    label: Annotated[
        list[str] | None,
        Query(description='Only these classes, each in JSON: `"yes"`, `3`, `true`.'),
    ] = None,
    silo: Annotated[
        list[Name] | None, Query(description="Only of these silos.")
    ] = None,
    epsilon: Annotated[
        float | None, Query(ge=0, description="Only at this ε or less.")
    ] = None,
) -> list[say.OfferOut]:
    """The generators on offer."""
    rows = exchange.offers(
        caller, pool, labels=label or (), silos=silo or (), epsilon=epsilon
    )
    return [say.OfferOut.from_row(row) for row in rows]


@api.get("/pools/{pool}/offers/{digest}", responses=refusals(410))
def show_offer(exchange: The, caller: By, pool: Name, digest: Digest) -> OfferWhole:
    """One generator: its card and a few of its rows."""
    return OfferWhole.from_row(exchange.offer(caller, pool, digest))


@api.put(
    "/pools/{pool}/offers/{digest}",
    status_code=201,
    responses=refusals(408, 409, 410, 503, 507),
    openapi_extra={"requestBody": {"required": True, "content": BYTES}},
)
async def push(
    request: Request, exchange: The, caller: By, pool: Name, digest: Digest
) -> say.OfferOut:
    """Offer a generator under the SHA-256 of its file. Once acknowledged, it survives a
    crash.
    """
    in_thread = anyio.to_thread.run_sync
    most = await in_thread(exchange.may_push, caller, pool, digest, length_of(request))
    with exchange.store.receive(caller.silo, most, exchange.limits) as upload:
        try:
            with skeleton.uploading(exchange.limits.seconds):
                async with aclosing(request.stream()) as chunks:
                    async for chunk in chunks:
                        upload.write(chunk)
        except OSError as error:
            raise ExchangeError(
                507,
                f"The exchange has no room ({error.strerror}).",
                effect=Effect.NOTHING_STORED,
            ) from None
        state = request.app.state
        # one silo cannot keep all checkers busy
        async with state.turns.setdefault(caller.silo, anyio.Lock()):
            row = await in_thread(
                exchange.push, caller, pool, digest, upload, limiter=state.checkers
            )
    return say.OfferOut.from_row(row)


@api.get(
    "/pools/{pool}/offers/{digest}/file",
    response_class=FileResponse,
    responses={200: {"content": BYTES}, **refusals(410)},
)
def pull(exchange: The, caller: By, pool: Name, digest: Digest) -> FileResponse:
    """The file of one generator."""
    offer = exchange.pull(caller, pool, digest)
    name = f"{pool}-{offer.silo}-{digest[:12]}{SUFFIX}"
    kept = {"Cache-Control": "private, immutable, max-age=31536000"}
    path = exchange.store.path(digest)
    return FileResponse(
        path, media_type="application/octet-stream", filename=name, headers=kept
    )


@api.delete("/pools/{pool}/offers/{digest}", status_code=204, responses=refusals(410))
def withdraw(exchange: The, caller: By, pool: Name, digest: Digest) -> None:
    """Take an offer back: its silo, or an administrator. What others pulled stays with
    them.
    """
    exchange.withdraw(caller, pool, digest)


@api.get("/tokens")
def list_tokens(exchange: The, caller: By) -> list[say.TokenOut]:
    """All tokens, without their secrets (administrators)."""
    return [say.TokenOut.model_validate(row) for row in exchange.tokens(caller)]


@api.post("/tokens", status_code=201)
def issue_token(exchange: The, caller: By, new: say.NewToken) -> say.Issued:
    """A new token, shown only once (administrators)."""
    return say.Issued(
        token=exchange.add_token(caller, new.silo, role=new.role, pool=new.pool)
    )


@api.delete("/tokens/{id}")
def revoke_token(exchange: The, caller: By, id: say.TokenId) -> say.TokenOut:
    """Revoke a token: it is refused from the next request on (administrators)."""
    return say.TokenOut.model_validate(exchange.revoke(caller, id))


@api.get("/events")
def list_events(
    exchange: The,
    caller: By,
    after: Annotated[
        int, Query(ge=0, le=2**62, description="Only lines with a larger id.")
    ] = 0,
    most: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> list[say.EventOut]:
    """The audit log: every push and pull, done or refused (administrators)."""
    return [
        say.EventOut.model_validate(row)
        for row in exchange.events(caller, after=after, most=most)
    ]


pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@pages.get("/")
def index(exchange: The, caller: By) -> HTMLResponse:
    """The pools of this token."""
    pools = exchange.pools(caller)
    rows = [
        (pool, requirements_of(pool), _standing(exchange, caller, pool.name))
        for pool in pools
    ]
    return _page("index.html", caller, rows=rows)


@pages.get("/pools/{pool}")
def pool_page(
    exchange: The,
    caller: By,
    pool: Name,
    label: Annotated[str, Query(max_length=1000)] = "",
    silo: Annotated[str, Query(max_length=64)] = "",
    epsilon: Annotated[str, Query(max_length=32)] = "",
) -> HTMLResponse:
    """What is on offer in a pool: coverage, offers by choice, a look at each class."""
    row = exchange.pool(caller, pool)
    requirements = requirements_of(row)
    everything = [OfferWhole.from_row(offer) for offer in exchange.offers(caller, pool)]
    shown = [
        offer
        for offer in everything
        if (not label or json.dumps(offer.label) == label)
        and (not silo or offer.silo == silo)
        and not (epsilon and offer.epsilon > typed_number(epsilon))
    ]
    labels = [json.dumps(value) for value in requirements.labels]
    coverage = _coverage(everything, labels)
    best = {
        json.dumps(offer.label): offer
        for offer in sorted(everything, key=lambda offer: -offer.epsilon)
    }
    facts = _drawn(requirements) | {
        "labels": list(zip(labels, map(_class_word, requirements.labels), strict=True)),
        "having": {
            label: sum(label in row for row in coverage.values()) for label in labels
        },
        # the smallest ε of each class
        "looks": [best[label] for label in (*labels, EVERY) if label in best],
        "every": EVERY in best,
        "chosen": {"label": label, "silo": silo, "epsilon": epsilon},
    }
    members = exchange.members(caller, pool)
    return _page(
        "pool.html",
        caller,
        pool=row,
        members=members,
        coverage=coverage,
        everything=everything,
        shown=shown,
        **facts,
    )


@pages.get("/pools/{pool}/{digest}")
def offer_page(exchange: The, caller: By, pool: Name, digest: Digest) -> HTMLResponse:
    """One offer: facts, card, and a sheet of what it draws."""
    offer = OfferWhole.from_row(exchange.offer(caller, pool, digest))
    row = exchange.pool(caller, pool)
    card = json.dumps(offer.card, indent=2, ensure_ascii=False)
    facts = _drawn(requirements_of(row))
    return _page("offer.html", caller, pool=row, offer=offer, card=card, **facts)


def error_page(status: int, detail: str) -> str:
    title = STATUS.get(status, "This did not work")
    page = _environment().get_template("error.html")
    return page.render(title=title, status=status, detail=detail, caller=None)


def _page(name: str, caller: Caller, **facts: Any) -> HTMLResponse:
    return HTMLResponse(
        _environment().get_template(name).render(caller=caller, **facts)
    )


def _drawn(requirements: Requirements) -> dict[str, Any]:
    kind = kind_of(requirements.schema)
    return {"requirements": requirements, "what": kind.plural, "nobody": kind.nobody}


def _standing(exchange: Exchange, caller: Caller, pool: str) -> dict[str, int] | None:
    """How much there is in a pool; None where the caller has not subscribed."""
    if not caller.admin and all(
        member.silo != caller.silo for member in exchange.members(caller, pool)
    ):
        return None
    offers = exchange.offers(caller, pool)
    silos, labels = (
        {getattr(offer, part) for offer in offers} for part in ("silo", "label")
    )
    return {
        "offers": len(offers),
        "silos": len(silos),
        "classes": len(labels - {EVERY}),
        "every": EVERY in labels,
    }


def _coverage(
    offers: Sequence[OfferWhole], labels: Sequence[str]
) -> dict[str, dict[str, list[OfferWhole]]]:
    """Silo → class → its offers, the cheapest first. Sums are offers of every class."""
    table: dict[str, dict[str, list[OfferWhole]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for offer in sorted(offers, key=lambda offer: (offer.silo, offer.epsilon)):
        for label in labels if offer.label is None else [json.dumps(offer.label)]:
            table[offer.silo][label].append(offer)
    return table


def _class_word(label: Any) -> str:
    if label is None:
        return "all classes"
    return {True: "yes", False: "no"}[label] if isinstance(label, bool) else str(label)


@cache
def _environment() -> jinja2.Environment:
    filters = {"said": _class_word, "day": lambda time: time[:10]}
    return skeleton.templates(
        Path(__file__).parent / "templates", filters, rows_of_a_look=ROWS
    )


async def _misuse(_: Request, error: Exception) -> Response:
    """A setting or a schema that makes no sense, in a request of an administrator."""
    effect = error.effect if isinstance(error, UnderstudyError) else None
    text = error.message if isinstance(error, UnderstudyError) else str(error)
    return problem(422, text, effect=effect)


async def _out_of_order(_: Request, error: Exception) -> Response:
    """The database is full, locked or away. What it says goes into the service's own
    log, not to the caller.
    """
    logging.getLogger("uvicorn.error").error("the database failed: %s", error)
    return problem(
        503,
        "The exchange cannot use its database now.",
        {"Retry-After": "5"},
        Effect.NOTHING_CHANGED,
    )

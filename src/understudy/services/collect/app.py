"""The receiver over HTTP: what a run is, and a place to put an upload. `/openapi.json` describes it.

Every refusal has a status that says whose fault it is and a sentence that says what happened to the upload.
"""

import math
from importlib.metadata import version
from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from understudy.ground.errors import ExchangeError
from understudy.services.collect.box import Box
from understudy.services.web.limits import Limits, Rate
from understudy.services.web.messages import Health, Problem
from understudy.services.web.serving import Guard, length_of, problem

SECONDS = 60.0  # for an upload to arrive
Context = Annotated[
    str, Field(pattern="^[0-9a-f]{64}$", description="Of the ticket, as docs/people.md says.")
]
BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request is cut off, or is not HTTP"},
    404: {"model": Problem, "description": "No such address"},
    405: {"model": Problem, "description": "Not with this method"},
    410: {"model": Problem, "description": "The collection is over"},
    429: {"model": Problem, "description": "Too many requests; Retry-After says how long to wait"},
    503: {"model": Problem, "description": "No run has begun; Retry-After says how long to wait"},
}
REFUSED: dict[int | str, dict[str, Any]] = REFUSALS | {
    200: {"model": Health, "description": "It was here already"},
    401: {"model": Problem, "description": "No code, or one that was not handed out"},
    408: {"model": Problem, "description": "The upload took too long"},
    409: {
        "model": Problem,
        "description": "For another run or another collection, or a second upload of a person",
    },
    411: {"model": Problem, "description": "The request does not say how long it is"},
    422: {"model": Problem, "description": "Not an upload: its length, or what is in it"},
    507: {"model": Problem, "description": "The disk is full"},
}


class Ticket(BaseModel):
    """What a run tells people: by it an upload is made, and bound to it."""

    run: str
    config: dict[str, Any]
    schemas: dict[str, Any]
    key: str
    sizes: list[int]


class ReportTicket(BaseModel):
    """What a round of reports tells those whom it asks: its sets of columns, and how often each is to be drawn."""

    run: str
    round: int
    config: dict[str, Any]
    schema_: dict[str, Any] = Field(alias="schema")
    sizes: list[int]
    groups: list[int]
    columns: list[list[int]]
    listed: list[list[list[int]]]
    weights: list[int]


class Kept(BaseModel):
    """That an upload is on the disk; `new`: since now."""

    new: bool


def build_app(box: Box, limits: Limits) -> FastAPI:
    """The application that takes uploads into this box."""
    app = FastAPI(
        title="understudy collect",
        version=version("understudy"),
        description="Takes people's uploads: in two shares for two aggregators, or reports, private by themselves.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        servers=[{"url": "/"}],
    )
    everybody = Rate(limits.rate, limits.burst)
    strangers = Rate(limits.rate / 10, max(1, limits.burst // 10))
    app.add_exception_handler(ExchangeError, _refusal)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _not_served)
    app.add_middleware(Guard, pushing=lambda request: request.method == "PUT")

    def by(request: Request) -> str:
        return request.client.host if request.client else ""

    @app.get("/v1/health", responses={429: REFUSALS[429]})
    async def health() -> Health:
        """That the receiver is up."""
        return Health(ok=True, version=version("understudy"))

    def code_of(request: Request) -> str:
        kind, _, code = request.headers.get("authorization", "").partition(" ")
        return code.strip() if kind.lower() == "bearer" else ""

    @app.get("/v1/ticket", responses=REFUSALS | {code: REFUSED[code] for code in (401, 409)})
    async def ticket(request: Request) -> Ticket | ReportTicket:
        """What people are to upload for, and what it costs. Where a collection is for some, it needs their code."""
        everybody.take(by(request))
        try:
            told = box.ticket(code_of(request))
        except ExchangeError as error:
            if error.status == 401:
                strangers.take(by(request))
            raise
        return ReportTicket.model_validate(told) if "round" in told else Ticket.model_validate(told)

    @app.put(
        "/v1/uploads/{context}",
        status_code=201,
        responses=REFUSED | {200: {"model": Kept, "description": "It was here already"}},
        openapi_extra={"requestBody": {"required": True, "content": BYTES}},
    )
    async def upload(request: Request, response: Response, context: Context) -> Kept:
        """One person's upload. Once acknowledged, it survives a crash; the same bytes may be sent again."""
        everybody.take(by(request))
        try:
            person = box.person(code_of(request))
        except ExchangeError:
            strangers.take(by(request))
            raise
        if (length := length_of(request)) is None:
            raise ExchangeError(411, "This request needs a Content-Length. Nothing was stored.")
        batch = box.expect(context, length, person)
        data = await _body(request)
        new = await anyio.to_thread.run_sync(box.take, batch, person, data)
        response.status_code = 201 if new else 200
        return Kept(new=new)

    return app


async def _body(request: Request) -> bytes:
    try:
        with anyio.fail_after(SECONDS):
            return await request.body()
    except TimeoutError:
        raise ExchangeError(408, f"An upload may take {SECONDS:g} s. Nothing was stored.") from None
    except ClientDisconnect:
        raise ExchangeError(400, "The upload was cut off. Nothing was stored.") from None


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, ExchangeError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    return problem(error.status, str(error), headers)


async def _malformed(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    where = "; ".join(f"{e['loc'][-1]}: {e['msg']}" for e in error.errors()[:3])
    return problem(422, f"{where}. Nothing was stored.")


async def _not_served(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, f"{error.detail}.", dict(error.headers or {}))

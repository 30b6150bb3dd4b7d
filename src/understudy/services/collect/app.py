"""The receiver over HTTP: what a run is, and a place to put an upload. `/openapi.json`
describes it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field

from understudy.ground.errors import ConfigError, Effect, ExchangeError
from understudy.services.collect.box import Box
from understudy.services.web import skeleton
from understudy.services.web.limits import Limits
from understudy.services.web.skeleton import BYTES, caller_address, length_of, refusals

T = TypeVar("T")
SECONDS = 60.0  # for an upload to arrive
Context = Annotated[
    str,
    Field(
        pattern="^[0-9a-f]{64}$", description="Of the ticket, as docs/people.md says."
    ),
]
REFUSALS = refusals(400, 404, 405, 410, 429, 503)


class Ticket(BaseModel):
    """What a run tells people: by it an upload is made, and bound to it."""

    run: str
    config: dict[str, Any]
    schemas: dict[str, Any]
    key: str
    sizes: list[int]


class ReportTicket(BaseModel):
    """What a round of reports tells those whom it asks: its sets of columns, and how
    often each is to be drawn.
    """

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
    app = skeleton.service(
        "understudy collect",
        "Takes people's uploads: in two shares for two aggregators, or reports, "
        "private by themselves.",
        limits,
        lambda request: request.method == "PUT",
    )
    everybody = app.state.rate
    strangers = app.state.strangers

    def counted(request: Request, ask: Callable[[str], T]) -> T:
        """What is asked for with the code of this request, which counts against its
        address; one that fails, twice.
        """
        address = caller_address(request)
        everybody.take(address)
        kind, _, code = request.headers.get("authorization", "").partition(" ")
        try:
            return ask(code.strip() if kind.lower() == "bearer" else "")
        except ExchangeError as error:
            if error.status == 401:
                strangers.take(address)
            raise

    @app.get("/v1/ticket", responses=REFUSALS | refusals(401, 409))
    async def ticket(request: Request) -> Ticket | ReportTicket:
        """What people are to upload for, and what it costs. Where a collection is for
        some, it needs their code.
        """
        ticket_for_caller = counted(request, box.ticket)
        return (
            ReportTicket.model_validate(ticket_for_caller)
            if "round" in ticket_for_caller
            else Ticket.model_validate(ticket_for_caller)
        )

    @app.put(
        "/v1/uploads/{context}",
        status_code=201,
        responses=REFUSALS
        | refusals(401, 408, 409, 411, 422, 507)
        | {200: {"model": Kept, "description": "It was here already"}},
        openapi_extra={"requestBody": {"required": True, "content": BYTES}},
    )
    async def upload(request: Request, response: Response, context: Context) -> Kept:
        """One person's upload. Once acknowledged, it survives a crash; the same bytes
        may be sent again.
        """
        person = counted(request, box.person)
        length = length_of(request)
        if length is None:
            raise ExchangeError(
                411,
                "This request needs a Content-Length.",
                effect=Effect.NOTHING_STORED,
            )
        batch = box.expect(context, length, person)
        with skeleton.uploading(SECONDS):
            data = await request.body()
        new = await anyio.to_thread.run_sync(box.take, batch, person, data)
        response.status_code = 201 if new else 200
        return Kept(new=new)

    return app


@contextmanager
def serving(
    box: Box,
    *,
    host: str = "127.0.0.1",
    port: int = 8700,
    limits: Limits | None = None,
    **tls: Any,
) -> Iterator[int]:
    """Take uploads into this box while the block lasts; the port. A port in use, no
    such certificate → ConfigError.
    """
    limits = limits or Limits()
    server = skeleton.limited_server(
        build_app(box, limits),
        host=host,
        port=port,
        max_per_address=limits.connections,
        whole=2 * SECONDS,
        secret="codes",
        **tls,
    )
    why: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except (Exception, SystemExit) as error:
            why.append(error)

    thread = threading.Thread(target=run, name="understudy-collect", daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                reason = why[0] if why else "it ended"
                raise ConfigError(
                    f"{host}:{port} cannot be served ({reason}).",
                    effect=Effect.NOTHING_SENT,
                )
            time.sleep(0.01)
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()

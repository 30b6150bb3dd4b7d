"""What every service of ours has towards strangers: headers, limits on bodies, refusals
in words, pages, TLS, limits on connections.

Every refusal has a status that says whose fault it is and a sentence that says what
happened to the data: JSON for programs, a page for people where the service has pages.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import jinja2
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Part
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from understudy.ground.errors import ConfigError, Effect, ExchangeError
from understudy.privacy.accounts.budget import best_guess
from understudy.report import words
from understudy.services.web.connections import (
    MAX_CONNECTIONS,
    ConnectionLimits,
    LimitedServer,
    WatchedRequests,
)
from understudy.services.web.limits import Limits, Rate, loopback

MOST_JSON = 1 << 20  # of a request that carries no file
SLOWEST_JSON = 10.0  # seconds for such a request to arrive
# of a body that is thrown away after an answer
_LINGER = 2.0
_LINGER_BYTES = 1 << 20
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src "
    "data:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
STATUS = {
    400: "The request is cut off, or is not HTTP or JSON",
    401: "No token or code, or one that is not valid",
    403: "The token does not allow this",
    404: "It does not exist, or the caller may not see it",
    405: "Not with this method",
    408: "The upload took too long",
    409: "There already, or for something else",
    410: "Withdrawn, or over",
    411: "The request does not say how long it is",
    413: "Too large",
    422: "What came does not meet the requirements",
    429: "Too many requests; Retry-After says how long to wait",
    503: "Not now; Retry-After says how long to wait",
    507: "The disk is full",
}
BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
Page = Callable[[int, str], str]  # of a refusal, for people


class Message(BaseModel):
    """What a service says: plain values; a key too many is refused."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class Problem(Message):
    """Why a request was refused, in words, and the name of the effect: what happened to
    the data. Of a refused push nothing is stored.
    """

    detail: str | list[Any]
    effect: str | None = None


class Health(Message):
    """That the service is up."""

    ok: bool
    version: str


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": Problem, "description": STATUS[code]} for code in codes}


def service(
    title: str,
    description: str,
    limits: Limits,
    pushing: Callable[[Request], bool],
    *,
    page: Page | None = None,
    realm: str = "",
) -> FastAPI:
    """An application with limits and refusals, and no route but `/v1/health`;
    `pushing`: requests with a file.
    """
    # without pages that load scripts from elsewhere: the description itself is
    # /openapi.json
    app = FastAPI(
        title=title,
        version=version("understudy"),
        description=description,
        docs_url=None,
        redoc_url=None,
        servers=[{"url": "/"}],
    )
    app.state.rate = Rate(limits.rate, limits.burst)
    app.state.strangers = Rate(limits.rate / 10, max(1, limits.burst // 10))

    async def refused(request: Request, error: Exception) -> Response:
        person = page is not None and "text/html" in request.headers.get("accept", "")
        headers: dict[str, str] = {}
        effect = None
        match error:
            case ExchangeError():
                status = error.status
                text = error.message
                effect = error.effect
                if status == 401:
                    basic = f'Basic realm="{realm}", charset="UTF-8"'
                    headers["WWW-Authenticate"] = basic if person else "Bearer"
                if error.retry_after is not None:
                    headers["Retry-After"] = str(math.ceil(error.retry_after))
            case RequestValidationError():
                # where and why, but not what came: it may be large, or no text
                faults = "; ".join(
                    f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()[:3]
                )
                status = 422
                text = f"{faults}."
                effect = Effect.NOTHING_STORED
            case HTTPException():  # no such address, or not with this method
                status = error.status_code
                text = f"{error.detail}."
                headers = dict(error.headers or {})
            case _:
                raise error
        if page is not None and person:
            words = text if effect is None else f"{text} {effect}"
            return HTMLResponse(page(status, words), status, headers)
        return problem(status, text, headers, effect)

    for kind in (ExchangeError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)
    app.add_middleware(Guard, pushing=pushing)

    @app.get("/v1/health", responses=refusals(400, 404, 405, 429))
    async def health() -> Health:
        """That the service is up; needs no token."""
        return Health(ok=True, version=version("understudy"))

    return app


def caller_address(request: Request) -> str:
    """Whose limits count for a caller without a token."""
    return request.client.host if request.client else ""


@contextmanager
def uploading(seconds: float) -> Iterator[None]:
    """An upload that is cut off, or takes too long, is refused in words."""
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise ExchangeError(
            408, f"An upload may take {seconds:g} s.", effect=Effect.NOTHING_STORED
        ) from None
    except ClientDisconnect:
        raise ExchangeError(
            400, "The upload was cut off.", effect=Effect.NOTHING_STORED
        ) from None


def typed_number(text: str) -> float:
    """What was typed as a number; NaN where it is none."""
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        return math.nan


def templates(
    folder: Path, filters: Mapping[str, Callable[..., Any]], **known: Any
) -> jinja2.Environment:
    """The pages in this folder, in the report's style and words."""
    known_to_pages = {"words": words, "best_guess": best_guess, **known}
    environment = words.template_environment(
        folder, Path(words.__file__).parent, **known_to_pages
    )
    environment.filters |= {"size": words.format_bytes, **filters}
    return environment


def length_of(request: Request) -> int | None:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def problem(
    status: int,
    detail: Any,
    headers: dict[str, str] | None = None,
    effect: Effect | None = None,
) -> JSONResponse:
    body = {"detail": detail}
    if effect is not None:
        body["effect"] = effect.name
    return JSONResponse(body, status_code=status, headers=headers)


class Guard:
    """Headers on every answer, no large or slow bodies where none belong, and no body
    is read after an answer. `pushing` says which requests carry a file, whose size and
    time are the application's to limit. A request whose length is told twice is
    refused: whoever stands in front may have read another one out of it.
    """

    def __init__(self, app: ASGIApp, pushing: Callable[[Request], bool]) -> None:
        self._app = app
        self._pushing = pushing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        body = Body(request, receive)
        pushing = self._pushing(request)
        until = anyio.current_time() + SLOWEST_JSON

        async def receive_in_time() -> Part:
            with anyio.fail_after(
                None
                if body.whole or pushing
                else max(0.0, until - anyio.current_time())
            ):
                return await body()

        answer = _out_of_shape(request, pushing) or self._app
        await answer(scope, receive_in_time, body.answered(send, HEADERS))


class Body:
    """A request's body as it is read; `whole`: nothing of it is still on its way."""

    def __init__(self, request: Request, receive: Receive) -> None:
        self._receive = receive
        self.whole = "transfer-encoding" not in request.headers and not length_of(
            request
        )

    async def __call__(self) -> Part:
        message = await self._receive()
        self.whole = self.whole or not message.get("more_body", False)
        return message

    def answered(self, send: Send, headers: Mapping[str, str]) -> Send:
        """`send`, with those of these headers that an answer does not have itself. What
        is still on its way after an answer is not read, but for a little that is thrown
        away: the answer is seen, not reset.
        """

        async def sending(message: Part) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                for name, value in {
                    **headers,
                    **({} if self.whole else {"Connection": "close"}),
                }.items():
                    given.setdefault(name, value)
            elif not self.whole and not message.get("more_body", False):
                await send({**message, "more_body": True})
                remaining = _LINGER_BYTES
                with anyio.move_on_after(_LINGER):
                    while remaining > 0 and not self.whole:
                        remaining -= len((await self()).get("body", b""))
                message = {"type": "http.response.body"}
            await send(message)

        return sending


def _out_of_shape(request: Request, pushing: bool) -> Response | None:
    """A request that is refused for its length, before anything else is looked at."""
    if "transfer-encoding" in request.headers and "content-length" in request.headers:
        return problem(400, "This request states its length twice.")
    if not pushing and "transfer-encoding" in request.headers:
        return problem(411, "This request needs a Content-Length.")
    if not pushing and (length_of(request) or 0) > MOST_JSON:
        return problem(413, f"A request of this kind has at most {MOST_JSON:,} bytes.")
    return None


def limited_server(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    max_per_address: int,
    whole: float,
    max_connections: int = MAX_CONNECTIONS,
    certificate: Path | None = None,
    key: Path | None = None,
    proxied: bool = False,
    secret: str = "tokens",
    patience: int = 30,
    ready: Callable[[int], None] = lambda port: None,
) -> LimitedServer:
    """A server, not yet running, with `max_connections`, `max_per_address` of them, and
    `whole` seconds for a request. `proxied`: a proxy in front speaks TLS, and limits
    connections; `secret`: what would be read without TLS; `patience`: seconds that
    requests have to end when it is stopped; `ready` gets the port.

    Guarantee: without a certificate it listens on this machine alone.
    """
    limits = ConnectionLimits(
        max_connections=max_connections,
        max_per_address=None if proxied else max_per_address,
        whole=whole,
    )
    if (certificate is None) != (key is None):
        raise ConfigError("TLS needs a certificate and its key.")
    if certificate is None and not proxied and not loopback(host):
        raise ConfigError(
            f"on {host} {secret} could be read on the network: give a certificate and "
            "its key, or say that a proxy in front speaks TLS; a try-out without them "
            "listens on 127.0.0.1."
        )
    config = uvicorn.Config(  # the limits are made for the sockets of asyncio
        app,
        http="h11",
        loop="asyncio",
        ws="none",
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # below: requests are watched by the peer that connected
        timeout_keep_alive=round(limits.idle),
        timeout_graceful_shutdown=patience,
        limit_concurrency=limits.max_connections + 1,
    )
    inner: Any = app  # uvicorn and Starlette type the same messages differently
    if proxied:
        inner = ProxyHeadersMiddleware(inner, config.forwarded_allow_ips)
    config.app = WatchedRequests(inner, limits)
    return LimitedServer(config, limits, ready)

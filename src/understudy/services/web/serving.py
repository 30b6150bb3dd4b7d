"""What a service of ours has towards strangers, whatever it is for: headers, limits on bodies, TLS, doors."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy.ground.errors import ConfigError
from understudy.services.web.addresses import loopback
from understudy.services.web.doors import Doors, DoorsServer, protocol_for

MOST_JSON = 1 << 20  # of a request that carries no file
SLOWEST_JSON = 10.0  # seconds for such a request to arrive
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def server_behind_doors(
    app: ASGIApp,
    doors: Doors,
    *,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
    proxied: bool = False,
    secret: str = "tokens",
    patience: int = 30,
    ready: Callable[[int], None] = lambda port: None,
) -> DoorsServer:
    """A server, not yet running. `proxied`: a proxy in front speaks TLS; `secret`: what would be read without it;
    `patience`: seconds that requests have to end when it is stopped; `ready` gets
    the port.

    Guarantee: without a certificate it listens on this machine alone.
    """
    if (certificate is None) != (key is None):
        raise ConfigError("TLS needs a certificate and its key.")
    if certificate is None and not proxied and not loopback(host):
        raise ConfigError(
            f"on {host} {secret} could be read on the network: give a certificate and its key, "
            "or say that a proxy in front speaks TLS."
        )
    config = uvicorn.Config(
        app,
        http=protocol_for(doors),
        loop="asyncio",  # whose sockets the doors are made for
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=proxied,
        timeout_keep_alive=round(doors.idle),
        timeout_graceful_shutdown=patience,
        limit_concurrency=doors.most + 1,
        ws="none",
    )
    return DoorsServer(config, doors, ready)


def length_of(request: Request) -> int | None:
    """How many bytes the request says it carries."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def problem(status: int, detail: Any, headers: dict[str, str] | None = None) -> JSONResponse:
    """A refusal, for programs."""
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)


class Guard:
    """Headers on every answer, no large or slow bodies where none belong, and no body is read after an answer.

    `pushing` says which requests carry a file, whose size and time are the application's to limit. A request whose
    length is told twice is refused: whoever stands in front may have read another one out of it.
    """

    def __init__(self, app: ASGIApp, pushing: Callable[[Request], bool]) -> None:
        self._app, self._pushing = app, pushing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        pushing = self._pushing(request)
        until = math.inf if pushing else anyio.current_time() + SLOWEST_JSON
        whole = "transfer-encoding" not in request.headers and not length_of(request)

        async def receive_in_time() -> Message:
            nonlocal whole
            with anyio.fail_after(None if whole or pushing else max(0.0, until - anyio.current_time())):
                message = await receive()
            whole = whole or not message.get("more_body", False)
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if not whole:
                    headers["Connection"] = "close"  # what is still on its way is not read
            await send(message)

        if refusal := _out_of_shape(request, pushing):
            await refusal(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive_in_time, send_with_headers)


def _out_of_shape(request: Request, pushing: bool) -> Response | None:
    """A request that is refused for its length, before anything else is looked at."""
    if "transfer-encoding" in request.headers and "content-length" in request.headers:
        return problem(400, "This request states its length twice.")
    if not pushing and "transfer-encoding" in request.headers:
        return problem(411, "This request needs a Content-Length.")
    if not pushing and (length_of(request) or 0) > MOST_JSON:
        return problem(413, f"A request of this kind has at most {MOST_JSON:,} bytes.")
    return None

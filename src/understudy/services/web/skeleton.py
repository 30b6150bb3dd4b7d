"""What every application of ours is built on: limits, refusals in words, and pages.

A service adds its own routes to `service`. Every refusal has a status that says whose fault it is and a sentence that
says what happened to the data: JSON for programs, a page for people where the service has pages.
"""

import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import jinja2
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from understudy.ground.check import readable
from understudy.ground.errors import ExchangeError
from understudy.report import words
from understudy.services.web.limits import Limits, Rate
from understudy.services.web.messages import Health, Problem
from understudy.services.web.serving import Guard, problem

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


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of these statuses."""
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
    """An application with limits and refusals, and no route but `/v1/health`.

    `pushing` says which requests carry a file. `page` makes a refusal's page, where the service has pages, for which a
    browser is asked for a password of this `realm`.
    """
    app = FastAPI(
        title=title,
        version=version("understudy"),
        description=description,
        docs_url=None,  # these pages load scripts from elsewhere; the description itself is /openapi.json
        redoc_url=None,
        servers=[{"url": "/"}],
    )
    app.state.rate = Rate(limits.rate, limits.burst)
    app.state.strangers = Rate(limits.rate / 10, max(1, limits.burst // 10))

    def answer(
        request: Request, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        if page is not None and for_people(request):
            return HTMLResponse(page(status, text), status, headers)
        return problem(status, text, dict(headers or {}))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, ExchangeError)
        headers = {}
        if error.status == 401:
            basic = f'Basic realm="{realm}", charset="UTF-8"'
            headers["WWW-Authenticate"] = basic if page is not None and for_people(request) else "Bearer"
        if error.retry_after is not None:
            headers["Retry-After"] = str(math.ceil(error.retry_after))
        return answer(request, error.status, str(error), headers)

    async def malformed(request: Request, error: Exception) -> Response:
        """Say where and why, but do not send back what came: it may be large, or no text."""
        assert isinstance(error, RequestValidationError)
        found = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()[:3])
        return answer(request, 422, f"{found}. Nothing was stored.")

    async def not_served(request: Request, error: Exception) -> Response:
        """No such address, or not with this method."""
        assert isinstance(error, HTTPException)
        return answer(request, error.status_code, f"{error.detail}.", error.headers)

    app.add_exception_handler(ExchangeError, refused)
    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(HTTPException, not_served)
    app.add_middleware(Guard, pushing=pushing)

    @app.get("/v1/health", responses=refusals(400, 404, 405, 429))
    async def health() -> Health:
        """That the service is up; needs no token."""
        return Health(ok=True, version=version("understudy"))

    return app


def for_people(request: Request) -> bool:
    """Whether a browser asks, and not a program."""
    return "text/html" in request.headers.get("accept", "")


def caller_address(request: Request) -> str:
    """Whose limits count for a caller without a token."""
    return request.client.host if request.client else ""


class Uploading:
    """An upload that is cut off, or takes too long, is refused in words: `with Uploading(seconds): …`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._scope = seconds, anyio.fail_after(seconds)

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._scope.__exit__(kind, error, trace)
        except TimeoutError:
            error = TimeoutError()
        if isinstance(error, TimeoutError):
            raise ExchangeError(408, f"An upload may take {self._seconds:g} s. Nothing was stored.") from None
        if isinstance(error, ClientDisconnect):
            raise ExchangeError(400, "The upload was cut off. Nothing was stored.") from None


def templates(folder: Path) -> jinja2.Environment:
    """The pages in this folder, with the report's style and words.

    Guarantee: every text is escaped, and none turns a line around.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, Path(words.__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: readable(value) if type(value) is str else value,
    )
    environment.filters["size"] = words.size
    return environment

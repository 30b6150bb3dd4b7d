"""Who may see the console: whoever has the link, from a browser on this machine, and no
other page in it.

The link has a secret place, which every address of the console begins with, and a
token. The token is exchanged for a cookie that scripts cannot read, that other sites'
pages cannot send, and that goes to addresses below the secret place alone: so another
server on this machine, at another port of the same host, never gets it.

Guarantee: without the cookie nothing is shown or changed; a form counts only with the
word that the console itself put into it; a request that names another host than this
machine (a name that was turned to point here) is refused, as is one with a body that is
large, or of unknown length. Nothing may be kept in a cache or put into a frame.
"""

import secrets
from dataclasses import dataclass, field
from hmac import compare_digest
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from understudy.ground.errors import Effect, UnderstudyError
from understudy.services.web import skeleton

MOST = 1 << 14  # bytes of a form
FIELDS = 16
COOKIE = "understudy-console"
HOSTS = ("127.0.0.1", "localhost")
HEADERS = skeleton.HEADERS | {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src "
    "data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
}


class Turned(UnderstudyError):  # noqa: N818  (a refusal, not a fault)
    """A request that is turned away, with the status that says why."""

    def __init__(self, status: int, text: str, *, effect: Effect | None = None) -> None:
        super().__init__(text, effect=effect)
        self.status_code = status


@dataclass(frozen=True)
class Keys:
    """The secrets of one console, drawn when it starts and gone when it ends."""

    place: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    form: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def base(self) -> str:
        return f"/{self.place}"

    def link(self, port: int) -> str:
        return f"http://{HOSTS[0]}:{port}{self.base}/?token={self.token}"


class Guard:
    """In front of all pages: hosts, cookie, lengths; and headers on every answer."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        body = skeleton.Body(request, receive)
        answer = self._at_the_door(request) or self._app
        await answer(scope, body, body.answered(send, HEADERS))

    def _at_the_door(self, request: Request) -> Response | None:
        """What is answered before any page is asked; None: it may come in."""
        keys = self._keys
        path = request.scope["path"]
        port = request.scope["server"][1]
        if request.headers.getlist("host") not in [
            [f"{host}:{port}"] for host in HOSTS
        ]:
            return _no(421, "This console answers to the address in its link alone.")
        if not (
            _equal(path[: len(keys.base)], keys.base)
            and path[len(keys.base) :].startswith("/")
        ):
            return _no(
                404, "There is nothing here. The link is where the console was started."
            )
        if request.method not in ("GET", "HEAD") and (
            why := self._foreign(request, port)
        ):
            return _no(403, why)
        answer = _too_long(request)
        if answer is not None:
            return answer
        if _equal(request.query_params.get("token", ""), keys.token):
            answer = RedirectResponse(f"{keys.base}/", 303)
            answer.set_cookie(
                COOKIE, keys.cookie, path=keys.base, httponly=True, samesite="strict"
            )
            return answer
        if not _equal(request.cookies.get(COOKIE, ""), keys.cookie):
            return _no(
                401, "Open the link that the console printed when it was started."
            )
        return None

    def _foreign(self, request: Request, port: int) -> str | None:
        """Whether another page sent this: browsers say so, where they are asked by a
        form or a script.
        """
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site")
        if origin is not None and origin not in [
            f"http://{host}:{port}" for host in HOSTS
        ]:
            return "This came from another page."
        if site is not None and site != "same-origin":
            return "This came from another page."
        return None


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that this console made. 403 where its word is missing, 422
    for what is no form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Turned(
            415, "That is not a form of this page.", effect=Effect.NOTHING_CHANGED
        )
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST:
            raise Turned(
                413,
                "That is too long for a form of this page.",
                effect=Effect.NOTHING_CHANGED,
            )
    try:
        fields = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=FIELDS,
            errors="strict",
        )
    except ValueError:
        raise Turned(
            422, "That is not a form of this page.", effect=Effect.NOTHING_CHANGED
        ) from None
    form = dict(fields)
    if len(form) < len(fields):
        raise Turned(
            422, "A field of the form is there twice.", effect=Effect.NOTHING_CHANGED
        )
    if not _equal(form.get("form", ""), request.app.state.keys.form):
        raise Turned(
            403,
            "This form is not of this console, or of an earlier start.",
            effect=Effect.NOTHING_CHANGED,
        )
    return form


def _equal(said: str, secret: str) -> bool:
    return compare_digest(said.encode(errors="surrogateescape"), secret.encode())


def _too_long(request: Request) -> Response | None:
    lengths = request.headers.getlist("content-length")
    if "transfer-encoding" in request.headers or len(lengths) > 1:
        return _no(411, "A request needs one Content-Length.")
    if lengths and (
        not (lengths[0].isascii() and lengths[0].isdigit()) or int(lengths[0]) > MOST
    ):
        return _no(413, f"A form has at most {MOST:,} bytes.")
    return None


def _no(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers={"Connection": "close"})

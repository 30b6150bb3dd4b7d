"""The console's pages: rendered here, without a script. Forms write what the commands
write, by the same code.

Guarantee: it is served on 127.0.0.1 and nowhere else. The link is told to `ready`
alone, and is worth nothing once the process has ended.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import jinja2
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from markupsafe import Markup
from starlette.exceptions import HTTPException

from understudy.evidence import need_libraries
from understudy.evidence.folder import write_evidence
from understudy.ground.errors import ArtefactError, Effect, UnderstudyError
from understudy.privacy.accounts.budget import shown, shown_left
from understudy.privacy.accounts.ledger import Ledger
from understudy.report import plots
from understudy.report.measure import read_timeline
from understudy.report.page import write_report
from understudy.report.plots import element, picture
from understudy.runtime import INVITED_DAYS
from understudy.services.console.desk import PAGES, Desk, HubHome
from understudy.services.console.guard import HOSTS, Guard, Keys, Turned, form_of
from understudy.services.console.holder import HolderHome
from understudy.services.web.connections import LimitedServer
from understudy.services.web.skeleton import (
    limited_server,
    templates,
    typed_number,
)

PORT = 8610
CONNECTIONS = 64
WHOLE = 60.0  # seconds for a request with its answer
LINES = 20  # of the ledger
# A report is a file that others may have touched: it may look as it likes, and do
# nothing.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors "
    "'none'"
)
Form = Annotated[dict[str, str], Depends(form_of)]


def build_app(desk: Desk, keys: Keys) -> FastAPI:
    app = FastAPI(
        title="understudy console", docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.desk, app.state.keys = desk, keys
    app.add_exception_handler(UnderstudyError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    app.include_router(pages, prefix=keys.base)
    app.add_middleware(Guard, keys=keys)
    return app


def server_for(
    desk: Desk,
    *,
    port: int = PORT,
    ready: Callable[[str], None],
    keys: Keys | None = None,
) -> LimitedServer:
    """The server, not yet running. `ready` gets the link."""
    session_keys = keys or Keys()
    return limited_server(
        build_app(desk, session_keys),
        host=HOSTS[0],
        port=port,
        max_connections=CONNECTIONS,
        max_per_address=CONNECTIONS,
        whole=WHOLE,
        patience=3,
        ready=lambda listens: ready(session_keys.link(listens)),
    )


pages = APIRouter(default_response_class=HTMLResponse)


def _desk(request: Request) -> Desk:
    return request.app.state.desk  # type: ignore[no-any-return]


def _home(kind: str) -> Callable[[Request], HolderHome | HubHome]:
    """Of a console of this kind; another one has no such page."""

    def home(request: Request) -> HolderHome | HubHome:
        home_of_kind = getattr(_desk(request), kind)
        if home_of_kind is None:
            raise Turned(404, f"This is not the console of a {kind}.")
        return home_of_kind  # type: ignore[no-any-return]

    return home


The = Annotated[Desk, Depends(_desk)]
Holder = Annotated[HolderHome, Depends(_home("holder"))]
Hub = Annotated[HubHome, Depends(_home("hub"))]


@pages.get("/")
def index(request: Request, desk: The) -> Response:
    if desk.holder is not None:
        home = desk.holder
        return _page(
            request,
            "holder.html",
            status=home.status(),
            attended=home.attended(),
            offered=home.offered(),
            standing=home.standing(),
            runs=home.runs(3),
        )
    if desk.hub is not None:
        return _page(request, "hub.html", members=desk.hub.members(), runs=desk.runs())
    return _page(request, "runs.html", signed=[], runs=desk.runs())


@pages.get("/contracts/{digest}")
def contract(request: Request, home: Holder, digest: str) -> Response:
    (one,) = home.offered(digest)
    return _page(request, "contract.html", one=one, attended=home.attended())


@pages.post("/contracts/{digest}")
def decide(request: Request, home: Holder, digest: str, form: Form) -> Response:
    decision = form.get("decision")
    if decision not in ("accept", "refuse"):
        raise Turned(422, "Accept, or refuse?", effect=Effect.NOTHING_CHANGED)
    home.queue.decide(home.queue.find(digest), accept=decision == "accept")
    return _back(request, "/", "accepted" if decision == "accept" else "refused")


@pages.get("/runs")
def runs(request: Request, desk: The) -> Response:
    signed = [] if desk.holder is None else desk.holder.runs()
    return _page(request, "runs.html", signed=signed, runs=desk.runs())


@pages.get("/runs/{key}/{page}")
def report(desk: The, key: str, page: str) -> Response:
    if page not in PAGES or page not in (run := desk.run(key)).pages:
        raise Turned(404, "There is no such page of this run.")
    return FileResponse(
        run.folder / page,
        media_type="text/html",
        headers={"Content-Security-Policy": f"sandbox; {REPORT_POLICY}"},
    )


@pages.post("/runs/{key}")
def write_page(request: Request, desk: The, key: str, form: Form) -> Response:
    """Write the page of a finished run that may be published: no figure in it was
    computed on real rows unpaid.
    """
    run = desk.run(key)
    if run.state != "done":
        raise Turned(409, "This run is not finished.", effect=Effect.NOTHING_WRITTEN)
    write_report(run.folder, publish=True)
    return _back(request, "/runs" if desk.holder is not None else "/", "written")


@pages.post("/runs/{key}/evidence")
def write_the_evidence(request: Request, desk: The, key: str, form: Form) -> Response:
    """Write what a data protection officer files of a finished run, into its folder; a
    rehearsal has none.
    """
    run = desk.run(key)
    if run.signers is not None or not run.holders:
        raise Turned(
            409,
            "This run has its evidence already, or there is none of it.",
            effect=Effect.NOTHING_WRITTEN,
        )
    need_libraries()
    write_evidence(run.folder, run.evidence)
    return _back(request, "/runs" if desk.holder is not None else "/", "evidence")


@pages.get("/evidence")
def evidence(request: Request, home: Holder) -> Response:
    return _page(request, "evidence.html", folder="", to_sign=None)


@pages.post("/evidence")
def sign_evidence(request: Request, home: Holder, form: Form) -> Response:
    """Show what would be signed of a folder; with the digest of what was shown, sign
    that and nothing else.
    """
    need_libraries()
    folder = Path(form.get("folder", ""))
    if not folder.is_absolute():
        raise Turned(
            422, "Which folder? Its whole path is needed.", effect=Effect.NOTHING_SIGNED
        )
    to_sign = home.to_sign(folder)
    if "digest" not in form:
        return _page(request, "evidence.html", folder=folder, to_sign=to_sign)
    if form["digest"] != to_sign.digest:
        raise Turned(
            409,
            "The folder or the ledger has changed since it was shown.",
            effect=Effect.NOTHING_SIGNED,
        )
    home.sign(folder, to_sign)
    return _back(request, "/evidence", "signed")


@pages.post("/ledger")
def budget(request: Request, home: Holder, form: Form) -> Response:
    path = home.book()
    if not path.exists():
        raise Turned(404, "There is no ledger yet.")
    try:
        with Ledger(path) as book:
            book.change_lifetime(
                epsilon=typed_number(form.get("epsilon", "")),
                reason=form.get("reason", ""),
            )
    except UnderstudyError as error:
        return _ledger_page(request, home, str(error), form)
    return _back(request, "/ledger", "budget")


@pages.post("/parties")
def parties(request: Request, home: Hub, form: Form) -> Response:
    name = form.get("party", "")
    roster = home.authority.roster
    known = name in roster.parties
    match form.get("act"):
        case "invite" if not known:
            home.authority.invite(name, days=_days(form.get("days", "")))
        case "renew" if known:
            home.authority.renew(name)
        case "revoke" if known:
            home.authority.revoke(name)
            return _back(request, "/", "revoked")
        case "invite":
            raise Turned(
                409,
                f"{name} is on the roster already: renew it there.",
                effect=Effect.NOTHING_CHANGED,
            )
        case _:
            raise Turned(
                422,
                "Invite, renew or revoke which party?",
                effect=Effect.NOTHING_CHANGED,
            )
    return _back(request, "/", "invited")


@pages.get("/ledger")
def ledger(request: Request, home: Holder) -> Response:
    return _ledger_page(request, home, "", {})


def _ledger_page(
    request: Request, home: HolderHome, problem: str, typed: dict[str, str]
) -> Response:
    path = home.book()
    line = read_timeline(path, "", None, lines=LINES) if path.exists() else None
    picture = None
    if line is not None and not isinstance(line, str):
        label = (
            f"ε after each entry of the ledger of {line.holder}, up to "
            f"{line.limit:g}: {line.summary}"
        )
        picture = plots.epsilon_curve(line.points, line.limit, label)
    facts = {
        "book": path,
        "line": line,
        "picture": picture,
        "standing": home.standing(),
    }
    return _page(
        request,
        "ledger.html",
        422 if problem else 200,
        problem=problem,
        typed=typed,
        **facts,
    )


def _page(request: Request, name: str, code: int = 200, **facts: Any) -> HTMLResponse:
    desk = _desk(request)
    keys = request.app.state.keys
    message = request.query_params.get("said", "")
    live = "live" in request.query_params
    here = {
        "desk": desk,
        "base": keys.base,
        "form_word": keys.form,
        "here": name,
        "said": message,
        "live": live,
    }
    return HTMLResponse(_environment().get_template(name).render(here, **facts), code)


def _back(request: Request, path: str, said: str) -> Response:
    return RedirectResponse(f"{request.app.state.keys.base}{path}?said={said}", 303)


def _refused(request: Request, error: Exception) -> Response:
    """In words. What is not there, or not any more, is no fault of whoever clicked."""
    code = 404 if isinstance(error, ArtefactError) else 422
    if isinstance(error, Turned | HTTPException):
        code = error.status_code
    detail = f"{error.detail}." if isinstance(error, HTTPException) else str(error)
    return _page(request, "error.html", code, status=code, detail=detail)


def _days(text: str) -> int:
    if not text:
        return INVITED_DAYS
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def budget_bar(limit: float, spent: float, price: float = 0.0) -> Markup:
    """What is spent of a budget, and what a contract would add; its words are for those
    who cannot see it.
    """
    top = max(limit, spent + price) or 1.0
    used, more, end = (f"{100 * value / top:.2f}%" for value in (spent, price, limit))
    label = f"ε {shown(spent)} of {limit:g} is spent" + (
        f", and this would add up to {shown(price)}" if price else ""
    )
    marks = [
        element("rect", x="0", y=6, width="100%", height=12, rx=3, class_="track"),
        element("rect", x="0", y=6, width=used, height=12, rx=3, class_="real"),
        element("rect", x=used, y=6, width=more, height=12, class_="above"),
        element("line", x1=end, x2=end, y1=2, y2=22, class_="end best"),
    ]
    return picture(
        f"{label}; {shown_left(max(0.0, limit - spent - price))} would be left.",
        24,
        *marks,
    )


def progress(share: float, label: str) -> Markup:
    return picture(
        label,
        18,
        element("rect", x="0", y=5, width="100%", height=8, rx=4, class_="track"),
        element(
            "rect",
            x="0",
            y=5,
            width=f"{100 * min(1.0, max(0.0, share)):.1f}%",
            height=8,
            rx=4,
            class_="synthetic",
        ),
    )


@cache
def _environment() -> jinja2.Environment:
    filters = {"left": shown_left, "minute": lambda time: time[:16].replace("T", " ")}
    known = {
        "budget_bar": budget_bar,
        "progress": progress,
        "invited_days": INVITED_DAYS,
        "pages": PAGES,
    }
    return templates(Path(__file__).parent / "templates", filters, **known)

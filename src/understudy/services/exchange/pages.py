"""The exchange for people: who offers what, at which price, and what it draws. Server-rendered, without a script.

The style and the words for prices are those of the report. Texts of silos and schemas are escaped, as all texts are.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import jinja2
from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from understudy.data.kinds import kind_of
from understudy.protocols.sgde.offer import Requirements
from understudy.services.exchange.messages import By, Digest, Name, OfferWhole, The
from understudy.services.exchange.service import Exchange, requirements_of
from understudy.services.exchange.tokens import Caller
from understudy.services.web.skeleton import templates, typed_number

EVERY = "null"  # the label, as JSON, of sums of all classes
ROWS = 3  # of each class on the page of a pool
STATUS = {
    401: "Who are you?",
    403: "Not for you",
    404: "Not here",
    410: "Withdrawn",
    429: "Too many requests",
}

pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@pages.get("/")
def index(exchange: The, caller: By) -> HTMLResponse:
    """The pools of this token."""
    pools = exchange.pools(caller)
    rows = [(pool, requirements_of(pool), _standing(exchange, caller, pool.name)) for pool in pools]
    return _page("index.html", caller, rows=rows)


@pages.get("/pools/{pool}")
def show_pool(
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
    everything = [OfferWhole.of(offer) for offer in exchange.offers(caller, pool)]
    shown = [
        offer
        for offer in everything
        if (not label or json.dumps(offer.label) == label)
        and (not silo or offer.silo == silo)
        and not (epsilon and offer.epsilon > typed_number(epsilon))
    ]
    labels = [json.dumps(value) for value in requirements.labels]
    coverage = _coverage(everything, labels)
    facts = _drawn(requirements) | {
        "labels": list(zip(labels, map(_said, requirements.labels), strict=True)),
        "having": {label: sum(label in row for row in coverage.values()) for label in labels},
        "looks": _looks(everything, [*labels, EVERY]),
        "every": any(json.dumps(offer.label) == EVERY for offer in everything),
        "chosen": {"label": label, "silo": silo, "epsilon": epsilon},
    }
    members = exchange.members(caller, pool)
    return _page(
        "pool.html", caller, pool=row, members=members, coverage=coverage, everything=everything, shown=shown, **facts
    )  # fmt: skip


@pages.get("/pools/{pool}/{digest}")
def show_offer(exchange: The, caller: By, pool: Name, digest: Digest) -> HTMLResponse:
    """One offer: facts, card, and a sheet of what it draws."""
    offer, row = OfferWhole.of(exchange.offer(caller, pool, digest)), exchange.pool(caller, pool)
    card = json.dumps(offer.card, indent=2, ensure_ascii=False)
    facts = _drawn(requirements_of(row))
    return _page("offer.html", caller, pool=row, offer=offer, card=card, **facts)


def error_page(status: int, detail: str) -> str:
    """A refusal, for people."""
    title = STATUS.get(status, "This did not work")
    page = _environment().get_template("error.html")
    return page.render(title=title, status=status, detail=detail, caller=None)


def _page(name: str, caller: Caller, **facts: Any) -> HTMLResponse:
    return HTMLResponse(_environment().get_template(name).render(caller=caller, **facts))


def _drawn(requirements: Requirements) -> dict[str, Any]:
    """What offers of a pool must fulfil, and what they draw, in words."""
    kind = kind_of(requirements.schema)
    return {"requirements": requirements, "what": kind.plural, "nobody": kind.nobody}


def _standing(exchange: Exchange, caller: Caller, pool: str) -> dict[str, int] | None:
    """How much there is in a pool; None where the caller has not subscribed."""
    if not caller.admin and all(member.silo != caller.silo for member in exchange.members(caller, pool)):
        return None
    offers = exchange.offers(caller, pool)
    return {
        "offers": len(offers),
        "silos": len({offer.silo for offer in offers}),
        "classes": len({offer.label for offer in offers} - {EVERY}),
        "every": any(offer.label == EVERY for offer in offers),
    }


def _coverage(offers: Sequence[OfferWhole], labels: Sequence[str]) -> dict[str, dict[str, list[OfferWhole]]]:
    """Silo → class → its offers, the cheapest first. Sums are offers of every class."""
    table: dict[str, dict[str, list[OfferWhole]]] = defaultdict(lambda: defaultdict(list))
    for offer in sorted(offers, key=lambda offer: (offer.silo, offer.epsilon)):
        for label in labels if offer.label is None else [json.dumps(offer.label)]:
            table[offer.silo][label].append(offer)
    return table


def _looks(offers: Sequence[OfferWhole], labels: Sequence[str]) -> list[OfferWhole]:
    """For each class that is on offer, and for all together, the offer with the smallest ε."""
    best = {json.dumps(offer.label): offer for offer in sorted(offers, key=lambda offer: -offer.epsilon)}
    return [best[label] for label in labels if label in best]


def _said(label: Any) -> str:
    if label is None:
        return "all classes"
    return {True: "yes", False: "no"}[label] if isinstance(label, bool) else str(label)


@cache
def _environment() -> jinja2.Environment:
    filters = {"said": _said, "day": lambda time: time[:10]}
    return templates(Path(__file__).parent / "templates", filters, rows_of_a_look=ROWS)

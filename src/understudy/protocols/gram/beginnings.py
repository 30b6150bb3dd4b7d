"""How the server of a joint Gram matrix brings the holders together, over rows and over columns, before a release.

Over rows the holders tell their needs and agree on keys. Where columns are split they are aligned first, masks are
dealt to them, and the products of their columns are made: the server relays sealed messages, chunk by chunk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from understudy.privacy.secure.ring import Ring
from understudy.protocols.core import Parties, public_values
from understudy.protocols.core.agreeing import (
    Begun,
    Inboxes,
    agree_over_rows,
    greetings_of,
    keys_of,
    most_of,
    same_number,
)
from understudy.protocols.core.alignment import align_grid
from understudy.protocols.core.products import Cells, Dealing, cells_of, cut_as, swap_all
from understudy.protocols.gram.across import Across
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.messages import Agree, Begin, Share, Widen

_FAR = 64  # noise beyond so many σ would wrap around: once in e^2048


@dataclass(frozen=True)
class ServerTerms:
    """The server's own: people per message at most, how many must stay, and what masks are dealt by."""

    chunk: int
    at_least: int | None
    secret: bytes


@dataclass(frozen=True)
class Began:
    """What each party stated, the noise of each release, and where columns are split how many people share what.

    `greetings`: what the holders told each other, for the first ask of each; of no use after it.
    """

    begun: Begun
    sigmas: list[float]
    people: int | None = None
    cells: Cells = field(default_factory=dict)
    greetings: Inboxes = field(default_factory=dict)


def over_rows(parties: Parties, begin: Begin, terms: ServerTerms) -> Began:
    """Until all who are still there have agreed with each other."""

    def agree(everybody: Begun, left: Begun) -> Agree:
        return Agree(chunk=1, seeds={}, cells=[], **_told_all(_told(everybody, None), left))

    everybody, begun, greetings = agree_over_rows(parties, begin, terms.at_least, agree)
    return Began(begun, _told(everybody, None).sigmas, greetings=greetings)


def over_columns(parties: Parties, layout: Layout, begin: Begin, terms: ServerTerms) -> Began:
    """Align, and agree with all of them; the seeds of their masks go with it."""
    cells = align_grid(parties, layout.grid.groups)
    began = _told(public_values(parties.ask(begin)), cells)
    dealing = _dealing(_widths(layout), began, terms)
    agreed = parties.ask(
        {
            name: Agree(
                seeds=dealing.seeds(name),
                chunk=terms.chunk,
                cells=cells_of(name, cells),
                **_told_all(began, began.begun),
            )
            for name in parties.names
        }
    )
    return replace(began, greetings=greetings_of(agreed))


def products(
    parties: Parties, layout: Layout, began: Began, terms: ServerTerms, about: bytes = b""
) -> dict[str, Share]:
    """Where columns are split: relay what the holders of each cell send each other, and end with the asks for their
    shares. `about`: the levels, where they were bought.
    """
    dealing, chunk = (
        _dealing(_widths(layout), began, terms, about),
        layout.chunk(terms.chunk, ring_for(began)),
    )
    inbox = swap_all(parties, began.cells, chunk, dealing, began.greetings)
    return {name: Share(inbox=inbox[name], corrections=dealing.corrections(name)) for name in parties.names}


def tables_across(
    parties: Parties,
    layout: Layout,
    began: Began,
    terms: ServerTerms,
    widen: Widen,
    words: Inboxes,
    about: bytes,
) -> tuple[Inboxes, dict[str, dict[str, Tensor]]]:
    """Multiply pairs of levels for the three-way tables that lie across holders: last messages, and corrections.

    `words`: what the holders told each other about the tables; `about` is that word.
    """
    parties.ask({name: replace(widen, inbox=words[name]) for name in parties.names})
    widths, group_of = Across(layout).widths, layout.grid.group_of
    dealing = _dealing({name: widths[group_of(name)] for name in layout.schemas}, began, terms, about)
    chunk = layout.chunk(terms.chunk, ring_for(began), widths)
    inbox = swap_all(parties, began.cells, chunk, dealing, {})
    return inbox, {name: dealing.corrections(name) for name in parties.names}


def ring_for(began: Began) -> Ring:
    """Numbers that hold the people and all noise."""
    if began.people is None:
        return Ring(64)
    return Ring.holding(began.people + len(began.begun) * _FAR * max(began.sigmas))


def _told(begun: Begun, cells: Cells | None) -> Began:
    """What the parties stated, and the most noise that one of them needs; `cells` is None over rows."""
    same_number(begun, cells)
    return Began(begun, most_of(begun, "sigmas"), None if cells is None else sum(cells.values()), cells or {})


def _told_all(began: Began, begun: Begun) -> dict[str, Any]:
    return {"keys": keys_of(begun), "sigmas": began.sigmas, "bits": ring_for(began).bits}


def _widths(layout: Layout) -> dict[str, int]:
    """The length of each holder's one-hot rows."""
    return {name: layout.width_of(name) for name in layout.schemas}


def _dealing(widths: Mapping[str, int], began: Began, terms: ServerTerms, about: bytes = b"") -> Dealing:
    """Masks for rows of these widths, cut as the holders were told, and `about` what they were told later."""
    ring, cells = ring_for(began), began.cells
    told = {name: cut_as(ring.bits, terms.chunk, cells_of(name, cells)) + about for name in widths}
    return Dealing(ring, widths, cells, keys=keys_of(began.begun), secret=terms.secret, about=told)

"""The server's side of holders who agree on keys (`keyed`): it tells all the same, and relays their greetings."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from understudy.ground.errors import PartyError
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.statement import PartyPrivacy
from understudy.protocols.core.base import VIEWS, Assembly, Parties, public_values
from understudy.protocols.core.keyed import Keys
from understudy.protocols.core.loop import Present
from understudy.protocols.core.products import Cells, relayed

Begun = dict[str, dict[str, Any]]  # what each party stated
Inboxes = dict[str, dict[str, Tensor]]


def keys_of(begun: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """Every party's public key of the run."""
    return {name: info["key"] for name, info in begun.items()}


def most_of(begun: Begun, what: str) -> list[float]:
    """Of each release the most noise that a party needs."""
    return [max(each) for each in zip(*(info[what] for info in begun.values()), strict=True)]


def same_number(begun: Begun, cells: Cells | None) -> None:
    """Refuse parties that share other people than they were aligned on, or state a number over rows (None)."""
    for name, info in begun.items():
        if info["people"] != (None if cells is None else sum(cells[cell] for cell in cells if name in cell)):
            raise PartyError("The parties do not agree on how many people they share. Nothing was charged.")


def greetings_of(agreed: Mapping[str, Any]) -> Inboxes:
    """What each holder is told with the first ask after all have agreed."""
    return relayed({name: reply.outbox for name, reply in agreed.items()}, list(agreed))


def agree_over_rows(
    parties: Parties, begin: Assembly, at_least: int | None, agree: Callable[[Begun, Begun], Keys]
) -> tuple[Begun, Begun, Inboxes]:
    """Ask until all who are still there have agreed with each other: what all who began stated, what those who are
    left did, and their greetings. `agree` makes the ask of the same two.
    """
    present = Present(parties, at_least)
    everybody = begun = public_values(present.ask(begin))
    while True:
        agreed = present.ask(dict.fromkeys(begun, agree(everybody, begun)))
        if agreed.keys() == begun.keys():
            return everybody, begun, greetings_of(agreed)
        begun = {name: begun[name] for name in agreed}


def stated_prices(
    begun: Begun, spends: Mapping[str, Mapping[str, Spend]], asked: Spend
) -> tuple[PartyPrivacy, ...]:
    """What the run cost each party by its ledger; of a party that went away, the price of all it was asked for."""
    gone = dict.fromkeys(VIEWS, asked)
    return tuple(
        PartyPrivacy.stated(name, info, *(spends.get(name, gone)[view] for view in VIEWS))
        for name, info in begun.items()
    )

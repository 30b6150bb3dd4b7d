"""Whether a statement of privacy says what uses of rows and ledgers bear out.

A server writes the statement, so nobody who signs or checks it believes a figure of it.
Three things are compared:

- every ε and every share of right guesses with what the stated uses cost at the stated
  δ, computed anew;
- a holder's stated uses, against an outsider and against insiders, with what its ledger
  holds for the run;
- what decides how prices compose, what one person means, how many there are and at
  which δ, with the terms that the holder's ledger keeps.

Guarantee: no figure that passes is below what the uses cost, and a holder's own part is
what its ledger says. A figure may be above.
Edges: what is listed as outside ε is the run's word: no ledger holds it. That a number
is wrong by rounding between machines is let through.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from understudy.ground.durable import read_json
from understudy.ground.errors import ArtefactError, UnderstudyError
from understudy.privacy.accounts.accounting import ACCOUNTANTS
from understudy.privacy.accounts.budget import promises_no_more
from understudy.privacy.accounts.events import Spend, event_to_json
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.statement import PrivacyStatement

VIEWS = ("outsider", "insider")
# figures that may be too high
_AT_LEAST = ("epsilon", "epsilon_sum", "epsilon_round", "right_guesses", "together")
# what machines and optimisers differ by; a guess of 55.01 for 55 tells nobody more
_RELATIVE = 1e-4
_ABSOLUTE = 1e-4
# of whichever version
_ACCOUNTANT = re.escape(f"{ACCOUNTANTS['pld']}, dp_accounting ") + r"\d+(\.[0-9a-z]+)*"
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, UnderstudyError)


class EvidenceError(ArtefactError):
    """A folder of evidence that does not hold; the message says what of it."""


def require_true(stated: Mapping[str, Any], run: str) -> PrivacyStatement:
    """The statement, of which every figure is at least what its uses cost.
    EvidenceError names one that is not.
    """
    try:
        statement = PrivacyStatement.from_dict(stated)
        derived = statement.to_dict()
        faults = [*_differences(stated, derived, ()), *_rounds_beyond_uses(statement)]
    except _DAMAGED as error:
        raise EvidenceError(f"privacy.json cannot be read ({error!r}).") from error
    if faults:
        raise EvidenceError(f"privacy.json: {faults[0]}")
    if stated["run"] not in ("", run):
        raise EvidenceError(
            f"privacy.json: it is of the run {stated['run']!r}, and run.json of "
            f"{run!r}."
        )
    return statement


def _differences(stated: Any, derived: Any, path: tuple[str, ...]) -> Iterator[str]:
    """What is stated otherwise than it follows, in words; of figures, what is too
    low.
    """
    where = ".".join(path)
    if path == ("accountant",):
        if not re.fullmatch(_ACCOUNTANT, str(stated)):
            yield f"{where} is {stated!r}, which is no accountant of ours."
    elif isinstance(derived, dict):
        if not isinstance(stated, Mapping) or stated.keys() != derived.keys():
            keys = (
                sorted(set(stated) ^ derived.keys())
                if isinstance(stated, Mapping)
                else [where]
            )
            yield (
                f"{', '.join(keys)} of {where or 'the statement'} is missing, or not "
                "known here."
            )
            return
        for key, value in derived.items():
            yield from _differences(stated[key], value, (*path, key))
    elif isinstance(derived, list):
        if not isinstance(stated, list) or len(stated) != len(derived):
            yield f"{where} has another length than follows from the uses."
            return
        for number, (stated_item, derived_item) in enumerate(
            zip(stated, derived, strict=True)
        ):
            yield from _differences(stated_item, derived_item, (*path, str(number)))
    elif (
        "budget" not in path
        and any(name in path for name in _AT_LEAST)
        and not isinstance(derived, str)
    ):
        if not _is_at_least(stated, derived):
            cost = "no finite price" if derived is None else f"{derived:.6g}"
            yield (
                f"{where} is stated as {stated!r}, and follows from the uses as {cost}."
            )
    elif type(stated) is not type(derived) or stated != derived:
        yield (
            f"{where} is stated as {stated!r}, and follows from the rest as "
            f"{derived!r}."
        )


def _rounds_beyond_uses(statement: PrivacyStatement) -> Iterator[str]:
    """Parties of whom more rounds are stated than can have been: each uses rows, or
    stands among those that differ.
    """
    for party in statement.parties:
        max_rounds = len(party.uses_of_rounds) or max(1, sum(party.insider.values()))
        if party.rounds > max_rounds:
            yield (
                f"{party.name}: {party.rounds:,} rounds are stated, and its uses "
                f"allow {max_rounds:,}."
            )


def _is_at_least(stated: Any, derived: float | None) -> bool:
    if stated is None:  # no guarantee: whatever it is
        return True
    if (
        derived is None
        or isinstance(stated, bool)
        or not isinstance(stated, int | float)
    ):
        return False
    return bool(
        stated
        >= derived * (1 - _RELATIVE) - (_ABSOLUTE if 0.5 <= derived <= 1 else 0.0)
    )


def ledger_witness(book: Ledger, run: str) -> dict[str, Any]:
    """What a ledger holds for a run: every paid entry, the spend of the person with the
    highest one in both views, and how the price is to be read. It names nobody, and
    says of an entry only whether everyone was charged.
    """
    entries = [entry for entry in book.entries() if entry.run == run and entry.count]
    delta = entries[-1].budget.delta if entries else None
    receipts = [
        {
            "ledger": book.id,
            "entry": entry.number,
            "everyone": entry.people is None,
            "uses": {view: _texts(entry.cost[view]) for view in VIEWS},
        }
        for entry in entries
    ]
    spend = {
        "outsider": _texts(book.spend(run=run, against="outsider", delta=delta)),
        "insider": _texts(book.spend(run=run, against="anyone", delta=delta)),
    }
    return {"receipts": receipts, "spend": spend, "terms": book.terms(run)}


def _texts(spend: Spend) -> dict[str, int]:
    return {event_to_json(event): count for event, count in spend.items() if count}


def require_witnessed(
    name: str, witness: Any, stated: Mapping[str, Any], protocol: str
) -> None:
    """EvidenceError unless what a holder's ledger says (`ledger_witness`) bears out all
    that is stated of this holder.
    """
    own_parts = [party for party in stated["parties"] if party["name"] == name]
    if len(own_parts) != 1:
        raise EvidenceError(f"{name} is no holder of this run.")
    (party,) = own_parts
    try:
        for view in VIEWS:
            _require_paid(name, view, witness, party)
        terms = [dict(term) for term in witness["terms"]]
        if not terms:
            raise EvidenceError(
                f"{name}: its ledger does not say how the price of this run is to be "
                "read, as ledgers of earlier "
                "versions do not: make the release again to have evidence of it."
            )
        for term in terms:
            _require_terms(name, term, stated, party, protocol)
        if party["people"] not in [term["people"] for term in terms]:
            raise EvidenceError(
                f"{name}: its ledger has another number of people than is stated."
            )
        if party["budget"] not in [
            budget for term in terms for budget in term["budgets"]
        ]:
            raise EvidenceError(
                f"{name}: its ledger allowed this run another budget than is stated."
            )
    except EvidenceError:
        raise
    except _DAMAGED as error:
        raise EvidenceError(
            f"{name}: its receipts cannot be read ({error!r})."
        ) from error


def _require_paid(
    name: str, view: str, witness: Mapping[str, Any], party: Mapping[str, Any]
) -> None:
    """All uses that are stated in this view, and nothing else, stand in the ledger."""
    used = Counter(
        {str(use["event"]): int(use["count"]) for use in party["uses"][view]}
    )
    paid = Counter(
        {str(event): int(count) for event, count in witness["spend"][view].items()}
    )
    unpaid = used - paid
    if unpaid:
        raise EvidenceError(
            f"{name}: {sum(unpaid.values()):,} uses of its rows are stated that no "
            "entry of its ledger pays for."
        )
    unstated = paid - used
    if unstated:
        raise EvidenceError(
            f"{name}: its ledger paid for {sum(unstated.values()):,} uses of its rows "
            f"that are not stated against an {view}."
        )
    everyone = Counter[str]()
    anybody = Counter[str]()
    for receipt in witness["receipts"]:
        uses = {
            str(event): int(count)
            for event, count in receipt["uses"]["insider"].items()
        }
        uses |= {
            str(event): int(count) for event, count in receipt["uses"][view].items()
        }
        anybody.update(uses)
        if receipt["everyone"]:
            everyone.update(receipt["uses"][view])
    if paid - anybody or (everyone - paid and view == "outsider"):
        raise EvidenceError(
            f"{name}: its receipts do not add up to what it says was paid."
        )


def _require_terms(
    name: str,
    terms: Mapping[str, Any],
    stated: Mapping[str, Any],
    party: Mapping[str, Any],
    protocol: str,
) -> None:
    person = stated["person"]
    statement = PrivacyStatement.from_dict(stated)
    claimed = {
        "protocol": protocol,
        "noise": party["noise"],
        "adjacency": stated["adjacency"],
        "local": statement.local,
        "coalition": statement.coalition,
    }
    claimed |= {
        key: person[key]
        for key in (
            "same_people",
            "max_holders_per_person",
            "one_release",
            "common_sample",
        )
    }
    for key, value in claimed.items():
        agrees = (
            promises_no_more(value, terms[key])
            if key == "adjacency"
            else terms[key] == value
        )
        if not agrees:
            raise EvidenceError(
                f"{name}: {key.replace('_', ' ')} is stated as {value!r}, and its "
                f"ledger has {terms[key]!r}."
            )
    if terms["rehearsal"]:
        raise EvidenceError(
            f"{name}: its ledger says that this run was a rehearsal: it is evidence "
            "of nothing."
        )
    stated_outside = "\n".join(map(str, stated["outside"]))
    lacking = [line for line in terms["drafted"] if line not in stated_outside]
    if lacking:
        raise EvidenceError(
            f"{name}: it is not stated where its schema comes from: {lacking[0]}."
        )
    lacking = [text for text in terms["unguarded"] if text not in stated["unguarded"]]
    if lacking:
        raise EvidenceError(
            f"{name}: it is not stated that this has no formal guarantee: {lacking[0]}."
        )


def require_same_card(folder: Path, stated: Mapping[str, Any]) -> str:
    """The protocol that the card names. EvidenceError unless the card states the same
    price as privacy.json.
    """
    cards = [folder / home / "card.json" for home in ("generator", "model")]
    existing = [card_file for card_file in cards if card_file.is_file()]
    if len(existing) != 1:
        raise EvidenceError(
            f"{folder}: there is no card of a generator or a model, or there are two."
        )
    try:
        card = read_json(existing[0])
        protocol = str(card["protocol"])
        price = card["privacy"]
    except (OSError, *_DAMAGED) as error:
        raise EvidenceError(f"{existing[0]} cannot be read ({error!r}).") from error
    if price != stated:
        raise EvidenceError(
            f"{folder}: privacy.json and the card state different prices: one of them "
            "was changed."
        )
    return protocol

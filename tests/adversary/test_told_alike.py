"""A server that tells the holders of one joint release different things, so that it
would have less noise than stated.

Over columns a holder's noise is for what a person moves in the columns of all holders,
and how many these are is what the server says. Each holder's own price holds whatever
it says; that of a person at all of them holds if all were told the same. Holders greet
each other, sealed, before anything is charged.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent / "contract"))
sys.path.append(str(Path(__file__).parent.parent / "protocols"))
from gram_cases import (
    BUDGET,
    Parts,
    Plan,
    Schemas,
    Seen,
    all_parties,
    by_columns,
    by_grid,
    by_rows,
    release,
    told,
)
from protocol_cases import CASES

from understudy.data.schema import Integer, Schema
from understudy.ground.errors import MessageError
from understudy.protocols.core import Ask, Assembly
from understudy.protocols.joint.messages import Agree, Begin, Release, Swap
from understudy.runtime.local import LocalParties, addressed

Lie = Callable[[str, Any], Any]
BOUGHT = Plan(fine=0.2)
TWICE = replace(BOUGHT, remeasured_pairs=3, first_pass_share=0.8)


AGE = Integer(name="age", low=0, high=99)  # no bins are declared: levels are bought


def opened(cut: tuple[Parts, Schemas]) -> tuple[Parts, Schemas]:
    tables, schemas = cut
    return tables, {
        name: replace(
            schema,
            columns=tuple(
                AGE if one.name == AGE.name else one for one in schema.columns
            ),
        )
        for name, schema in schemas.items()
    }


def columns(holders: int) -> tuple[Parts, Schemas]:
    return opened(by_columns(holders))


def grid() -> tuple[Parts, Schemas]:
    return opened(by_grid())


def rows() -> tuple[Parts, Schemas]:
    return opened(by_rows(3))


def truth(name: str, message: Any) -> Any:
    return message


def narrower(name: str, ask: Any) -> Any:
    """Every holder of other columns has one column only, it says to each."""
    if not isinstance(ask, Begin):
        return ask
    schemas = {holder: Schema.from_dict(told) for holder, told in ask.schemas.items()}
    cut = {
        holder: schema
        if schema.columns == schemas[name].columns
        else schema.select([_one_of(schema)])
        for holder, schema in schemas.items()
    }
    return replace(
        ask, schemas={holder: schema.to_dict() for holder, schema in cut.items()}
    )


def _one_of(schema: Schema) -> str:
    return AGE.name if AGE.name in schema.names else schema.names[0]


def to_one(**settings: Any) -> Lie:
    """The first holder alone is told other settings."""
    return lambda name, ask: (
        told(ask, **settings) if name[-1] == "0" and name[0] in "ha" else ask
    )


def louder(name: str, ask: Any) -> Any:
    """More noise than all others have, which its budget allows."""
    changed = isinstance(ask, Agree) and name[-1] == "0"
    return replace(ask, noise=[2 * sigma for sigma in ask.noise]) if changed else ask


def test_a_server_that_tells_holders_of_fewer_columns_would_have_less_noise_on_all_of_them():
    tables, schemas = columns(2)
    needed = dict[Lie, list[float]]()
    for meddle, ends in (
        (truth, nullcontext()),
        (narrower, pytest.raises(MessageError)),
    ):
        seen = Seen(all_parties(tables, schemas), meddle)
        with ends:
            release(seen, schemas, BOUGHT)
        needed[meddle] = [reply.needed.value[0] for _, reply in seen.replies(Begin)]
    assert max(needed[narrower]) < min(needed[truth])


LIES: dict[str, tuple[Callable[[], tuple[Parts, Schemas]], Plan, Lie]] = {
    "others have fewer columns": (lambda: columns(2), BOUGHT, narrower),
    "others have fewer columns, three holders": (lambda: columns(3), BOUGHT, narrower),
    "others have fewer columns, over a grid": (grid, BOUGHT, narrower),
    "others have fewer columns, levels as declared": (
        lambda: columns(2),
        Plan(),
        narrower,
    ),
    "fine tables get more": (lambda: columns(2), BOUGHT, to_one(fine=0.5)),
    "pairs are released twice": (
        lambda: columns(2),
        replace(BOUGHT, remeasured_pairs=3, first_pass_share=0.8),
        to_one(remeasured_pairs=2),
    ),
    "holders pool what they know": (grid, BOUGHT, to_one(max_colluding=2)),
    "there is more noise": (lambda: columns(2), BOUGHT, louder),
    "there is more noise, over rows": (rows, BOUGHT, louder),
    "a person may be with two, over rows": (
        rows,
        Plan(),
        to_one(max_holders_per_person=2),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("lie", LIES)
def test_holders_who_were_told_different_things_part_before_anything_is_charged(
    lie: str,
) -> None:
    cut, plan, meddle = LIES[lie]
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    with pytest.raises(MessageError, match="told different things"):
        release(Seen(parties, meddle), schemas, plan)
    assert all(one.ledger.spend() == {} for one in parties.values())


@pytest.mark.parametrize("cut", [lambda: columns(2), grid, rows])
@pytest.mark.parametrize("plan", [BOUGHT, Plan()])
def test_without_the_others_greetings_nothing_is_charged_or_sent(
    cut: Any, plan: Plan
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    first = set[str]()

    def silent(name: str, message: Any) -> Any:
        if isinstance(message, Swap | Release) and name not in first:
            first.add(name)
            with pytest.raises(
                MessageError, match="handshake of another holder is missing"
            ):
                parties[name].answer(replace(message, inbox={}))
            assert parties[name].ledger.spend() == {}
        return message

    release(Seen(parties, silent), schemas, plan)  # the right ones may still come
    assert first == set(tables)
    assert all(one.ledger.spend() for one in parties.values())
    assert all(one.ledger.spent() <= BUDGET.epsilon for one in parties.values())


# The order of the parties: in a product one holder is the first, and both must know who


class Turned(LocalParties):
    """A server that tells the last party of all parties the other way round, and deals
    as that party expects it.
    """

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = addressed(message, self.names)
        last = self.names[-1]
        told = asks.get(last)
        if isinstance(told, Assembly):
            asks[last] = replace(told, schemas=dict(reversed(told.schemas.items())))
        elif told is not None and hasattr(told, "corrections"):
            asks[last] = replace(told, corrections={})  # type: ignore[call-arg]
        return super().ask(asks)


@pytest.mark.parametrize(
    "name",
    [
        "Gram, columns, three parties",
        "DPLT+, three parties",
        "Tied, a table, images and series, two releases",
        "Visits, columns, two tables and events that are drawn",
        "Visits, a grid, events that are drawn",
    ],
)
def test_holders_who_both_take_themselves_for_the_first_part_before_anything_is_charged(
    name: str,
) -> None:
    """Each would send the other's rows times its own masks, which the server dealt,
    under noise for far less.
    """
    case = next(case for case in CASES if case.name == name)
    federation = case.federation(seed=None)
    parties = federation.parties(case.protocol, run="r")
    with pytest.raises(MessageError, match="told different things"):
        case.record.train(case.config(), Turned(parties), federation.schemas)
    assert all(holder.ledger.spend() == {} for holder in federation.holders.values())


# In every family the noise is that of all


class Louder(LocalParties):
    """A server that asks the last party for more noise than the others."""

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = addressed(message, self.names)
        last = self.names[-1]
        told = asks.get(last)
        if isinstance(told, Agree):
            noise = {
                key: 2 * value
                if isinstance(value, float)
                else [2 * each for each in value]
                for key, value in vars(told).items()
                if key in ("multiplier", "multipliers", "sigmas", "noise")
            }
            asks[last] = replace(told, **noise)
        return super().ask(asks)


@pytest.mark.parametrize(
    "name",
    [
        "Moments, images of two classes, three parties",
        "Tied, a table, images and series, two releases",
        "Visits, rows, three parties",
        "Visits, columns, two tables and events that are drawn",
        "Visits, a grid, events that are drawn",
    ],
)
def test_in_every_family_holders_who_were_told_other_noise_part_before_anything_is_charged(
    name: str,
) -> None:
    case = next(case for case in CASES if case.name == name)
    federation = case.federation(seed=None)
    parties = federation.parties(case.protocol, run="r")
    with pytest.raises(MessageError, match="told different things"):
        case.record.train(case.config(), Louder(parties), federation.schemas)
    assert all(holder.ledger.spend() == {} for holder in federation.holders.values())

"""Conditions and rules on people with events of two kinds: against a listing of all
people.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.answers.cases import Split, TooManyCasesError
from understudy.answers.people_law import PeopleLaw
from understudy.data.conditions import parse
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Integer, Schema
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.data.visits.reading import number_bounds
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, UnderstudyError
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.together import ChainsTogether

KINDS = 3
CHAINS = 2
STATES = 4

Visit = tuple[int, str]  # severity, ward
Claim = int  # fee


class Person(NamedTuple):
    """A person, with the law's probability of exactly this one."""

    smoker: bool
    visits: tuple[Visit, ...]
    claims: tuple[Claim, ...]
    chance: float


def schema(ordered: bool = False, **more: Any) -> SeveralVisits:
    """Levels that are single values, so that everybody can be listed."""
    day, month = (
        (Integer(name=name, low=0, high=60, bins=[0, 1, 60]),) if ordered else ()
        for name in ("day", "month")
    )
    visits = VisitSchema(
        person="patient",
        title="visits",
        most_events=2,
        time="day" if ordered else None,
        people=Schema(columns=(Boolean(name="smoker"),)),
        events=Schema(
            columns=(
                *day,
                Integer(name="severity", low=0, high=1),
                Categorical(name="ward", categories=("a", "b")),
            )
        ),
    )
    claims = VisitSchema(
        person="patient",
        title="claims",
        most_events=2,
        time="month" if ordered else None,
        events=Schema(columns=(*month, Integer(name="fee", low=0, high=2))),
    )
    return SeveralVisits(parts=(visits, claims), **more)


def generator(schema: SeveralVisits, seed: int = 0) -> Generator:
    members = [
        MixtureOfChains(
            *(Codec(own).sizes for own in (part.person_schema, part.event_schema)),
            number_bounds(part),
            ordered=part.ordered,
            kinds=KINDS,
            chains=CHAINS,
            states=STATES,
        )
        for part in schema.parts
    ]
    random = torch.Generator().manual_seed(seed)
    network = ChainsTogether(members)
    with torch.no_grad():
        for weights in network.parameters():
            weights.copy_(torch.randn(weights.shape, generator=random) * 1.5)
    return Generator(
        network.requires_grad_(False).eval(), schema, {"protocol": "visits"}
    )


def anything(*_: object) -> bool:
    return True


def walks(
    member: MixtureOfChains, kind: int, good: Callable[[int], bool]
) -> dict[tuple[int, ...], float]:
    """All sequences of events of a kind of person, as levels of all columns at once,
    with their probabilities.

    Every state is given what holds of its events.
    """
    _, number = (part.double() for part in member.person_odds())
    blocks = torch.split(member.event_odds().double(), list(member.events), 1)
    first, onward = (part.double()[kind % CHAINS] for part in member.chain())
    emits = blocks[0]
    for block in blocks[1:]:
        emits = (emits[:, :, None] * block[:, None, :]).flatten(1)
    emits = emits.view(CHAINS, STATES, -1)[kind % CHAINS]
    emits = emits * torch.tensor([good(level) for level in range(emits.shape[1])])
    emits = emits / emits.sum(1, keepdim=True)
    found = {}
    for n in range(3):
        for events in itertools.product(range(emits.shape[1]), repeat=n):
            path = first
            for place, event in enumerate(events):
                path = (path if place == 0 else path @ onward) * emits[:, event]
            found[events] = float(number[kind, n]) * (float(path.sum()) if n else 1.0)
    return found


@cache
def everybody(
    visit: Callable[[Visit], bool] = anything, most_claims: int = 2
) -> list[Person]:
    """All people that there can be, by the definition of the mixture.

    Every kind is given that its people have so many claims at most, and every state
    what holds of its visits.
    """
    network = generator(schema()).network
    assert isinstance(network, ChainsTogether)
    found: dict[tuple[Any, ...], float] = {}
    for kind in range(KINDS):
        smoker = network.mixtures[0].person_odds()[0].double()[kind]
        first = walks(network.mixtures[0], kind, lambda level: visit(as_visit(level)))
        second = walks(network.mixtures[1], kind, anything)
        second = {
            claims: chance
            for claims, chance in second.items()
            if len(claims) <= most_claims
        }
        total = sum(second.values())
        for (visits, one), (claims, other) in itertools.product(
            first.items(), second.items()
        ):
            for so in (False, True):
                key = (so, tuple(map(as_visit, visits)), claims)
                found[key] = (
                    found.get(key, 0.0)
                    + float(smoker[int(so)]) * one * other / total / KINDS
                )
    return [Person(*key, chance) for key, chance in found.items() if chance > 0]


def as_visit(level: int) -> Visit:
    return level // 2, "ab"[level % 2]


def listed(drawn: dict[str, pd.DataFrame]) -> list[tuple[Any, ...]]:
    visits, claims = ({key: [] for key in drawn["people"]["patient"]} for _ in range(2))
    for row in drawn["visits"].itertuples():
        visits[row.patient].append((int(row.severity), str(row.ward)))
    for row in drawn["claims"].itertuples():
        claims[row.patient].append(int(row.fee))
    own = drawn["people"].itertuples()
    return [
        (bool(row.smoker), tuple(visits[row.patient]), tuple(claims[row.patient]))
        for row in own
    ]


def assert_law(
    made: Generator,
    where: str | None,
    good: Callable[[Person], bool],
    keeps: Callable[[Person], bool] = lambda _: True,
    exact: bool = True,
    law: Sequence[Person] | None = None,
) -> None:
    """What is drawn is good, and has the law of the good ones; the probability is their
    share of who may be.
    """
    n = 2_000
    drawn = made.tables(n, where=where, seed=3)
    law = law or everybody()
    wanted = {
        person[:3]: person.chance for person in law if good(person) and keeps(person)
    }
    total = sum(wanted.values())
    given = sum(person.chance for person in law if keeps(person))
    found = pd.Series(listed(drawn)).value_counts()
    assert set(found.index) <= set(wanted)
    for key, chance in wanted.items():
        share = chance / total
        assert abs(found.get(key, 0) / n - share) <= 5 * (share / n) ** 0.5 + 1 / n, key
    said = drawn["people"].attrs
    if exact:
        assert said["kept"] == 1.0
    if where is not None:
        assert said["answer"] == ("exact" if exact else "counted among draws")
        assert said["probability"] == pytest.approx(
            total / given, rel=1e-6 if exact else 0.1
        )


def some(of: Callable[..., bool], *kinds: tuple[Any, ...]) -> bool:
    """Whether one of each kind, together, are as wanted."""
    return any(of(*one) for one in itertools.product(*kinds))


CONDITIONS: dict[str, Callable[[Person], bool]] = {
    "fee == 2": lambda p: 2 in p.claims,
    "severity == 1 and fee == 2": lambda p: some(
        lambda v, c: v[0] == 1 and c == 2, p.visits, p.claims
    ),
    "smoker == true and ward == 'b' and severity == 1 and fee >= 1": lambda p: (
        p.smoker and some(lambda v, c: v == (1, "b") and c >= 1, p.visits, p.claims)
    ),
    "severity == 1 or fee == 2": lambda p: (
        2 in p.claims or some(lambda v: v[0] == 1, p.visits)
    ),
    "number_of_claims == 2 and (smoker == true or not ward == 'a')": lambda p: (
        len(p.claims) == 2 and (p.smoker or some(lambda v: v[1] != "a", p.visits))
    ),
    "severity == 1 or (ward == 'b' and fee == 0)": lambda p: (
        some(lambda v: v[0] == 1, p.visits)
        or some(lambda v, c: v[1] == "b" and c == 0, p.visits, p.claims)
    ),
    "fee >= 0 or severity == 1": lambda _: True,
    "not (severity == 1 and fee == 2)": lambda p: (
        some(lambda v, c: v[0] == 0 or c != 2, p.visits, p.claims)
        if p.visits and p.claims
        else 0 in [v[0] for v in p.visits] or not {0, 1}.isdisjoint(p.claims)
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("where", CONDITIONS)
def test_a_condition_on_events_of_both_kinds_is_met_by_one_of_each_and_has_its_exact_law(
    where: str,
) -> None:
    assert_law(generator(schema()), where, CONDITIONS[where])


def test_what_needs_two_events_of_one_kind_is_drawn_and_kept_where_it_fits() -> None:
    where = "(severity == 1 and fee == 2) or (ward == 'b' and fee == 0)"
    fits = lambda v, c: (v[0] == 1 and c == 2) or (v[1] == "b" and c == 0)  # noqa: E731
    assert_law(
        generator(schema()),
        where,
        lambda p: some(fits, p.visits, p.claims),
        exact=False,
    )


WITHIN = [
    {"when": "severity == 1", "then": "ward == 'b'"},
    {"always": "number_of_claims <= 1"},
]
RULES: dict[str, tuple[list[dict[str, str]], Callable[[Person], bool]]] = {
    "a person's column and either kind's": (
        [
            {"when": "smoker == true", "then": "fee != 0"},
            {"when": "smoker == false", "then": "ward == 'a'"},
        ],
        lambda p: (
            all(c != 0 for c in p.claims)
            if p.smoker
            else all(v[1] == "a" for v in p.visits)
        ),
    ),
    "a number of one kind and events of the other": (
        [{"when": "number_of_visits == 2", "then": "fee <= 1"}],
        lambda p: len(p.visits) < 2 or all(c <= 1 for c in p.claims),
    ),
    "no events of a kind": (
        [{"when": "smoker == true", "then": "fee < 0"}],
        lambda p: not p.smoker or not p.claims,
    ),
}


@pytest.mark.parametrize("rules", RULES)
def test_rules_are_kept_by_every_event_of_its_kind_and_what_is_drawn_has_the_law_given_them(
    rules: str,
) -> None:
    said, keeps = RULES[rules]
    assert_law(generator(schema(rules=said)), None, lambda _: True, keeps)


def test_rules_on_people_or_on_one_kind_of_events_are_kept_by_every_kind_and_state_by_itself():
    law = everybody(lambda v: v[0] == 0 or v[1] == "b", most_claims=1)
    made = generator(schema(rules=WITHIN))
    assert_law(made, None, lambda _: True, law=law)
    said, keeps = RULES["a person's column and either kind's"]
    where = "severity == 1 and fee == 2"
    assert_law(
        generator(schema(rules=[*WITHIN, *said])),
        where,
        CONDITIONS[where],
        keeps,
        law=law,
    )


def test_a_condition_on_both_kinds_under_rules_has_the_law_given_both() -> None:
    said, keeps = RULES["a person's column and either kind's"]
    made = generator(schema(rules=said))
    assert_law(
        made,
        "severity == 1 or fee == 2",
        CONDITIONS["severity == 1 or fee == 2"],
        keeps,
    )
    two = "(severity == 1 and fee == 2) or (ward == 'b' and fee == 1)"
    fits = lambda v, c: (v[0] == 1 and c == 2) or (v[1] == "b" and c == 1)  # noqa: E731
    assert_law(made, two, lambda p: some(fits, p.visits, p.claims), keeps, exact=False)


def test_events_in_an_order_keep_rules_and_conditions_on_first_times_gaps_and_the_time():
    said = [
        {"always": "day_gap >= 2 or day_gap is missing"},
        {"when": "first_month is missing", "then": "ward == 'a'"},
        {"when": "month > 30", "then": "fee == 0"},
    ]
    made = generator(schema(ordered=True, rules=said))
    drawn = made.tables(1_000, where="first_day < 20 and fee == 0", seed=1)
    visits = drawn["visits"]
    claims = drawn["claims"]
    people = drawn["people"]
    assert people.attrs["answer"] == "counted among draws", (
        "a rule speaks of the time itself"
    )
    assert (visits.groupby("patient")["day"].first() < 20).all()
    assert visits["patient"].nunique() == 1_000
    gaps = visits.groupby("patient")["day"].diff().dropna()
    assert len(gaps) > 50
    assert (gaps >= 2).all()
    assert set(claims.loc[claims["fee"] == 0, "patient"]) == set(people["patient"])
    assert (claims.loc[claims["month"] > 30, "fee"] == 0).all()
    alone = made.tables(1_000, seed=2)
    without = ~alone["visits"]["patient"].isin(alone["claims"]["patient"])
    assert without.any()
    assert (alone["visits"].loc[without, "ward"] == "a").all()


def test_what_cannot_be_or_makes_no_sense_is_refused_by_name() -> None:
    made = generator(schema(rules=[{"always": "fee < 2"}]))
    with pytest.raises(ConfigError, match="probability 0"):
        made.tables(5, where="fee == 2 and severity == 1")
    with pytest.raises(UnderstudyError, match="colour"):
        made.tables(5, where="colour == 'red'")


TESTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "smoker == true": ("person", lambda p: p.smoker),
    "number_of_claims >= 1": ("person", lambda p: len(p.claims) >= 1),
    "severity == 1": ("visit", lambda v: v[0] == 1),
    "ward == 'b'": ("visit", lambda v: v[1] == "b"),
    "fee == 2": ("claim", lambda c: c == 2),
    "fee >= 1": ("claim", lambda c: c >= 1),
}
Formula = str | tuple[str, "Formula", "Formula"] | tuple[str, "Formula"]
FORMULAS = st.recursive(
    st.sampled_from(list(TESTS)),
    lambda parts: st.one_of(
        st.tuples(st.just("not"), parts),
        st.tuples(st.sampled_from(["and", "or"]), parts, parts),
    ),
    max_leaves=5,
)


def said(formula: Formula) -> str:
    if isinstance(formula, str):
        return formula
    first, *parts = formula
    return (
        f"not ({said(parts[0])})"
        if first == "not"
        else f"({said(parts[0])}) {first} ({said(parts[1])})"
    )


def so(formula: Formula, row: dict[str, Any]) -> bool:
    if isinstance(formula, str):
        kind, test = TESTS[formula]
        return test(row[kind])
    if formula[0] == "not":
        return not so(formula[1], row)
    return (all if formula[0] == "and" else any)(so(part, row) for part in formula[1:])


def meets(formula: Formula, person: Person) -> bool:
    """One of the events of each kind that there are, whatever one of the others would
    be like.
    """
    every = {"visit": [as_visit(level) for level in range(4)], "claim": [0, 1, 2]}
    own = {"visit": person.visits, "claim": person.claims}
    there = [kind for kind in own if own[kind]]
    lacking = [kind for kind in own if not own[kind]]
    return any(
        all(
            so(
                formula,
                {"person": person}
                | dict(zip([*there, *lacking], [*some, *others], strict=True)),
            )
            for others in itertools.product(*(every[kind] for kind in lacking))
        )
        for some in itertools.product(*(own[kind] for kind in there))
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(formula=FORMULAS)
def test_any_condition_has_the_probability_of_those_who_meet_it_by_its_meaning(
    formula: Formula,
) -> None:
    made = generator(schema())
    split = Split(made.schema, parse(said(formula)))
    try:
        law = PeopleLaw(made.network, split)
    except TooManyCasesError:
        return  # left to drawing
    wanted = sum(person.chance for person in everybody() if meets(formula, person))
    assert law.probability == pytest.approx(wanted, rel=1e-6, abs=1e-12)

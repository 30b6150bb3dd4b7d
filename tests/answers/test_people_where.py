"""People with events who meet a condition on events, and rules across both tables:
against a listing of all people.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from understudy.answers import cases, people_law
from understudy.cli import app
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Integer, Schema
from understudy.data.visits import VisitLayout, VisitSchema, read_visits
from understudy.data.visits.reading import number_bounds
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, SchemaError, UnderstudyError
from understudy.models.tables.given_rules import Rules
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.fit import VisitTables
from understudy.protocols.visits.fit import fitted_ties

KINDS = 3
CHAINS = 2
STATES = 4


class Event(NamedTuple):
    severity: int
    ward: str | None
    gap: int | None = None


class Person(NamedTuple):
    """A person, with the law's probability of exactly this one."""

    sex: str
    smoker: bool
    events: tuple[Event, ...]
    chance: float


def schema(**more: Any) -> VisitSchema:
    """Levels that are single values, so that everybody can be listed."""
    clock = (
        (Integer(name="day", low=0, high=60, bins=[0, 1, 60]),)
        if more.get("time")
        else ()
    )
    given = {"most_events": 2} | more
    return VisitSchema(
        person="patient",
        people=Schema(
            columns=(
                Categorical(name="sex", categories=("f", "m")),
                Boolean(name="smoker"),
            )
        ),
        events=Schema(
            columns=(
                *clock,
                Integer(name="severity", low=0, high=2),
                Categorical(name="ward", categories=("a", "b"), nullable=True),
            )
        ),
        **given,
    )


def generator(schema: VisitSchema, seed: int = 0, spread: float = 1.5) -> Generator:
    sizes = (Codec(part).sizes for part in (schema.person_schema, schema.event_schema))
    network = MixtureOfChains(
        *sizes,
        number_bounds(schema),
        ordered=schema.ordered,
        kinds=KINDS,
        chains=CHAINS,
        states=STATES,
    )
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            weights.copy_(torch.randn(weights.shape, generator=random) * spread)
    return Generator(
        network.requires_grad_(False).eval(), schema, {"protocol": "visits"}
    )


def anyone(*_: object) -> bool:
    return True


@cache
def everybody(
    person: Callable[[str, bool, int], bool] = anyone,
    event: Callable[[Event], bool] = anyone,
) -> list[Person]:
    """All people that there can be, without an order, by the definition of the mixture:
    kinds, states, columns.

    Every kind is given what holds of its people, and every state what holds of its
    events.
    """
    network = generator(schema()).network
    found = []
    assert isinstance(network, MixtureOfChains)
    own, number = (part.double() for part in network.person_odds())
    blocks = torch.split(network.event_odds().double(), list(network.events), 1)
    first, onward = (part.double() for part in network.chain())
    cells = list(itertools.product(range(3), range(3)))
    emits = torch.stack([blocks[0][:, a] * blocks[1][:, b] for a, b in cells], 1).view(
        CHAINS, STATES, -1
    )
    wards = ("a", "b", None)
    emits = emits * torch.tensor([event(Event(a, wards[b])) for a, b in cells])
    emits = emits / emits.sum(2, keepdim=True)
    every = list(itertools.product(range(2), range(2), range(3)))
    likely = torch.stack(
        [own[:, sex] * own[:, 2 + smoker] * number[:, n] for sex, smoker, n in every], 1
    )
    likely = likely * torch.tensor(
        [person("fm"[sex], bool(smoker), n) for sex, smoker, n in every]
    )
    likely = dict(zip(every, (likely / likely.sum(1, keepdim=True)).T, strict=True))
    for sex, smoker, n in itertools.product(range(2), range(2), range(3)):
        for events in itertools.product(range(len(cells)), repeat=n):
            chance = 0.0
            for kind in range(KINDS):
                chain = kind % CHAINS
                here = float(likely[sex, smoker, n][kind])
                path = first[chain]
                for place, which in enumerate(events):
                    path = path if place == 0 else path @ onward[chain]
                    path = path * emits[chain, :, which]
                chance += here * (float(path.sum()) if n else 1.0) / KINDS
            drawn = tuple(
                Event(cells[which][0], wards[cells[which][1]]) for which in events
            )
            found.append(Person("fm"[sex], bool(smoker), drawn, chance))
    return found


def drawn_people(people: pd.DataFrame, events: pd.DataFrame) -> list[tuple[Any, ...]]:
    own = {key: [] for key in people["patient"]}
    for row in events.itertuples():
        own[row.patient].append(
            Event(int(row.severity), None if pd.isna(row.ward) else str(row.ward))
        )
    return [
        (row.sex, bool(row.smoker), tuple(own[row.patient]))
        for row in people.itertuples()
    ]


def assert_law(
    made: Generator,
    where: str | None,
    good: Callable[[Person], bool],
    n: int = 2_000,
    law: Sequence[Person] | None = None,
) -> float:
    """What is drawn is good, and has the law of the good ones; their share of all who
    may be is returned.
    """
    people, events = made.visits(n, where=where, seed=3)
    listed = law or everybody()
    wanted = {
        person[:3]: person.chance
        for person in listed
        if good(person) and person.chance > 0
    }
    total = sum(wanted.values())
    found = pd.Series(drawn_people(people, events)).value_counts()
    assert set(found.index) <= set(wanted)
    for key, chance in wanted.items():
        share = chance / total
        assert abs(found.get(key, 0) / n - share) <= 5 * (share / n) ** 0.5 + 1 / n, key
    assert people.attrs["kept"] == 1.0
    if where is not None:
        assert people.attrs["answer"] == "exact"
        return float(people.attrs["probability"])
    return total


CONDITIONS: dict[str, Callable[[Person], bool]] = {
    "severity == 2": lambda p: any(e.severity == 2 for e in p.events),
    "sex == 'f' and severity == 2 and ward == 'b'": lambda p: (
        p.sex == "f" and any(e.severity == 2 and e.ward == "b" for e in p.events)
    ),
    "sex == 'f' or severity >= 1": lambda p: (
        p.sex == "f" or any(e.severity >= 1 for e in p.events)
    ),
    "not ward == 'a'": lambda p: any(e.ward != "a" for e in p.events),
    "ward is missing and number_of_events == 2": lambda p: (
        len(p.events) == 2 and any(e.ward is None for e in p.events)
    ),
    (
        "(smoker == true and severity == 0) or (smoker == false and ward in ('a', 'b'))"
    ): lambda p: any(
        e.severity == 0 if p.smoker else e.ward is not None for e in p.events
    ),
    "sex == 'm' and (severity == 0 or not severity == 0)": lambda p: p.sex == "m",
}


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_condition_on_events_is_met_by_one_of_them_and_has_its_exact_law(
    where: str,
) -> None:
    made = generator(schema())
    good = CONDITIONS[where]
    probability = assert_law(made, where, good)
    assert probability == pytest.approx(
        sum(p.chance for p in everybody() if good(p)), rel=1e-6
    )


def no_smoking_men(sex: str, smoker: bool, n: int) -> bool:
    return sex == "f" or not smoker


def severe_at_b(event: Event) -> bool:
    return event.severity < 2 or event.ward == "b"


WITHIN: dict[str, tuple[list[dict[str, str]], list[Person]]] = {
    "people": (
        [{"when": "sex == 'm'", "then": "smoker == false"}],
        everybody(no_smoking_men),
    ),
    "an event": (
        [{"when": "severity == 2", "then": "ward == 'b'"}],
        everybody(event=severe_at_b),
    ),
    "a number": (
        [{"when": "sex == 'm'", "then": "number_of_events <= 1"}],
        everybody(lambda sex, smoker, n: sex == "f" or n <= 1),
    ),
}


@pytest.mark.parametrize("rules", WITHIN)
def test_rules_on_people_or_on_an_event_are_kept_by_every_kind_and_state_by_itself(
    rules: str,
) -> None:
    said, law = WITHIN[rules]
    made = generator(schema(rules=said))
    assert_law(made, None, lambda _: True, law=law)
    asked = lambda p: any(e.severity == 2 for e in p.events)  # noqa: E731
    probability = assert_law(made, "severity == 2", asked, law=law)
    assert probability == pytest.approx(
        sum(p.chance for p in law if asked(p)), rel=1e-6
    )


def test_the_fit_has_the_law_that_is_drawn() -> None:
    said = [
        {"when": "sex == 'm'", "then": "smoker == false"},
        {"when": "severity == 2", "then": "ward == 'b'"},
        {"always": "came <= left"},
    ]
    plain = schema()
    times = tuple(
        Integer(name=name, low=0, high=9, bins=[0, 5, 9]) for name in ("came", "left")
    )
    events = Schema(columns=(*plain.events.columns, *times))
    ruled = VisitSchema(
        person="patient", most_events=3, people=plain.people, events=events, rules=said
    )
    made = generator(ruled)
    network = made.network
    ties = fitted_ties(ruled, ruled)
    assert isinstance(network, MixtureOfChains)
    rules = Rules(network.people[:-1], ties.people), Rules(network.events, ties.events)
    tables = network.double().tables(*rules)
    people, rows = made.visits(12_000, seed=1)
    assert people.attrs["kept"] == 1.0
    drawn = VisitTables.exact(
        read_visits({"people": people, "events": rows}, ruled).codes(),
        VisitLayout.from_schema(ruled),
    )
    laid = {"person": tables.people, "across": tables.across, "event": tables.events}
    starts = {
        "p": np.cumsum((0, *network.people)),
        "e": np.cumsum((0, *network.events)),
    }
    for (kind, a, b), table in drawn.tables.items():
        if a == b and kind != "across":
            continue
        first = starts["e" if kind == "event" else "p"]
        second = starts["p" if kind == "person" else "e"]
        own = laid[kind][first[a] : first[a + 1], second[b] : second[b + 1]]
        assert float((table / 12_000 - own).abs().sum()) / 2 < 0.03, (kind, a, b)


RULES: dict[str, tuple[list[dict[str, str]], Callable[[Person], bool]]] = {
    "across": (
        [
            {"when": "sex == 'm'", "then": "ward != 'a'"},
            {"when": "number_of_events == 2", "then": "severity >= 1"},
        ],
        lambda p: all(
            (p.sex == "f" or e.ward != "a") and (len(p.events) < 2 or e.severity >= 1)
            for e in p.events
        ),
    ),
    "no events": (
        [{"when": "smoker == true", "then": "severity < 0"}],
        lambda p: not p.smoker or not p.events,
    ),
}


@pytest.mark.parametrize("rules", RULES)
def test_rules_are_kept_by_every_event_and_what_is_drawn_has_the_law_given_them(
    rules: str,
) -> None:
    said, good = RULES[rules]
    assert_law(generator(schema(rules=said)), None, good)


def test_cases_that_cannot_be_are_left_out_whatever_other_rules_there_are() -> None:
    # each of the two rules across asks for a case of its own of `sex`, and some
    # contradict each other
    said = [
        {"when": "sex == 'm'", "then": "ward != 'a'"},
        {"when": "sex == 'f'", "then": "severity >= 1"},
        {"when": "smoker == true", "then": "number_of_events <= 1"},
    ]
    law = everybody(lambda sex, smoker, n: not smoker or n <= 1)

    def keeps(p: Any) -> bool:
        return all(e.ward != "a" if p.sex == "m" else e.severity >= 1 for e in p.events)

    assert_law(generator(schema(rules=said)), None, keeps, law=law)


def test_a_condition_under_rules_has_the_law_given_both() -> None:
    said, keeps = RULES["across"]
    made = generator(schema(rules=said))
    where = "severity == 2 and smoker == true"
    asked = lambda p: p.smoker and any(e.severity == 2 for e in p.events)  # noqa: E731
    probability = assert_law(made, where, lambda p: keeps(p) and asked(p))
    both, given = (
        sum(p.chance for p in everybody() if keeps(p) and (more or asked(p)))
        for more in (False, True)
    )
    assert probability == pytest.approx(both / given, rel=1e-6)


def test_what_is_very_rare_is_drawn_without_trying() -> None:
    made = generator(schema(time="day", most_events=40), spread=1.0)
    network = made.network
    assert isinstance(network, MixtureOfChains)
    with torch.no_grad():
        network.event_logits[:, 2] = -25.0  # severity 2: one event in 10¹¹
    people, events = made.visits(500, where="severity == 2", seed=1)
    assert people.attrs["probability"] < 1e-8
    assert (
        events[events["severity"] == 2]["patient"].unique() == people["patient"]
    ).all()


def test_events_in_an_order_keep_rules_on_values_within_bins_on_gaps_and_on_the_time():
    said = [
        {"always": "day_gap >= 2 or day_gap is missing"},
        {"when": "day < 30", "then": "ward == 'a' or ward is missing"},
        {"always": "first_day <= day"},
        {"when": "severity == 0", "then": "first_day >= 4"},
    ]
    ruled = schema(time="day", most_events=4, rules=said)
    people, events = generator(ruled).visits(2_000, seed=2)
    gaps = events.groupby("patient")["day"].diff().dropna()
    first = events["patient"].map(events.groupby("patient")["day"].first())
    assert len(gaps) > 300
    assert (gaps >= 2).all()
    assert not ((events["day"] < 30) & (events["ward"] == "b")).any()
    assert not ((events["severity"] == 0) & (first < 4)).any()
    assert 0 < people.attrs["kept"] < 1
    where = "day > 50 and severity == 1"
    people, events = generator(ruled).visits(300, where=where, seed=2)
    assert people.attrs["answer"] != "exact"
    late = events[(events["day"] > 50) & (events["severity"] == 1)]
    assert set(late["patient"]) == set(people["patient"])


def test_an_order_between_two_columns_of_an_event_is_kept_and_people_have_as_many_events_as_without_it():
    columns = (
        Integer(name="came", low=0, high=9, bins=[0, 5, 9]),
        Integer(name="left", low=0, high=9, bins=[0, 5, 9]),
    )
    plain = VisitSchema(person="patient", most_events=6, events=Schema(columns=columns))
    ruled = VisitSchema(
        person="patient",
        most_events=6,
        events=Schema(columns=columns, rules=({"always": "came <= left"},)),
    )
    people, events = generator(ruled).visits(4_000, seed=1)
    assert (events["came"] <= events["left"]).all()
    numbers = generator(plain).visits(8_000, seed=2)[1].groupby("patient").size()
    assert len(events) / len(people) == pytest.approx(
        numbers.sum() / 8_000, abs=0.06
    ), "the rule cuts no chain"


def test_rules_that_leave_nothing_or_make_no_sense_are_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="weight"):
        schema(rules=[{"always": "weight > 1"}])
    with pytest.raises(SchemaError, match="one row a person"):
        schema(rules=[{"unique": ["ward"]}])
    with pytest.raises(ConfigError, match="probability 0"):
        generator(schema(rules=[{"always": "smoker == true"}])).visits(
            5, where="smoker == false"
        )
    with pytest.raises(UnderstudyError, match="colour"):
        generator(schema()).visits(5, where="colour == 'red'")
    with pytest.raises(ConfigError, match="draws meet"):
        generator(schema(time="day")).visits(5, where="day > 60")


def test_a_schema_with_rules_survives_the_way_to_a_file_and_back() -> None:
    said, _ = RULES["across"]
    own = schema(rules=said)
    assert VisitSchema.from_dict(own.to_dict()) == own
    assert [str(rule) for rule in own.rules] == [
        "when sex == 'm' then ward != 'a'",
        "when number_of_events == 2 then severity >= 1",
    ]


def test_a_check_says_how_many_people_of_a_holder_break_each_rule_and_how_many_are_cut(
    tmp_path: Path,
) -> None:
    said = [
        {"when": "sex == 'm'", "then": "ward != 'a'"},
        {"always": "day_gap >= 2 or day_gap is missing"},
        {"when": "number_of_events == 0", "then": "smoker == false"},
        {"always": "first_day <= day"},
    ]
    schema(time="day", rules=said).save(tmp_path / "schema.toml")
    people = pd.DataFrame(
        {
            "patient": [1, 2, 3, 4],
            "sex": ["m", "m", "f", "f"],
            "smoker": [False, False, True, True],
        }
    )
    events = pd.DataFrame(
        {
            "patient": [2, 1, 2, 3],
            "day": [5, 1, 6, 0],
            "severity": [0, 1, 2, 0],
            "ward": ["a", "b", "a", "a"],
        }
    )
    home = tmp_path / "tables"
    home.mkdir()
    people.to_csv(home / "people.csv", index=False)
    events.to_csv(home / "events.csv", index=False)
    done = CliRunner().invoke(
        app, ["schema", "check", str(home), str(tmp_path / "schema.toml")]
    )
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "4 people, 1 of them without events." in text
    assert "have more than" not in text
    assert "ward != 'a': 1 of 4 people break it" in text
    assert "day_gap is missing: 1 of 4 people break it" in text
    assert "smoker == false: 1 of 4 people break it" in text
    assert "first_day <= day: all people keep it" in text
    schema(time="day", most_events=1).save(tmp_path / "schema.toml")
    done = CliRunner().invoke(
        app, ["schema", "check", str(home), str(tmp_path / "schema.toml")]
    )
    assert "1 have more than 1 events, of which the first 1 count." in " ".join(
        done.output.split()
    )


def test_what_takes_too_many_cases_is_drawn_and_kept_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = generator(schema())
    where = "severity == 2 and sex == 'f'"
    exact = made.visits(10, where=where, seed=1)[0].attrs
    monkeypatch.setattr(people_law, "_MOST_NUMBERS", 100_000)
    monkeypatch.setattr(cases, "MOST", 1)
    people, events = made.visits(3_000, where=where, seed=1)
    assert people.attrs["answer"] != "exact"
    assert people.attrs["probability"] == pytest.approx(exact["probability"], rel=0.1)
    assert set(people["sex"]) == {"f"}
    assert set(events.loc[events["severity"] == 2, "patient"]) == set(people["patient"])

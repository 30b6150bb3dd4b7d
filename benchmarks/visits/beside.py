"""What stands beside the protocol: one row a person, events as if each were a person,
columns by themselves, chance.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from cases import Case
from numpy.typing import NDArray

from common import publication
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Column, Integer, Real, Schema
from understudy.data.visits import VisitCodes, VisitLayout, count_visits, read_visits
from understudy.data.visits.reading import number_bounds, visit_frames
from understudy.privacy.noise import FastRng
from understudy.privacy.secure.moments import needed_multipliers
from understudy.runs.federation import Federation

Made = Mapping[str, Any]  # people and events, codes of them, or sums of people
UNIT = 27_720
Method = Callable[[Case, float | None, int, dict[str, Any]], Made]


def aggregates(
    case: Case, epsilon: float | None, seed: int, settings: dict[str, Any]
) -> Made:
    """One row a person: the declared columns, the number of events, sums of numbers,
    the last of other columns.
    """
    schema = case.schema
    people = case.frames["people"]
    events = case.frames["events"]
    assert schema.people is not None
    by = events.groupby(schema.person)
    key = schema.person
    table = people.set_index(key).copy()
    number = by.size().reindex(table.index, fill_value=0)
    counted = schema.person_schema.columns[-1]
    table[counted.name] = number.clip(upper=schema.most_events)
    columns: list[Column] = [*schema.people.columns, counted]
    for column in schema.events.columns:
        if column.name == schema.time:
            continue
        if isinstance(column, Integer | Real):
            summed = by[column.name].sum().reindex(table.index, fill_value=0)
            limit = schema.most_events
            table[column.name] = summed.clip(upper=column.high * limit)
            columns.append(_wider(column, limit))
        else:
            table[column.name] = by[column.name].last().reindex(table.index)
            columns.append(column)
    made = _gram(
        table.reset_index(drop=True),
        Schema(columns=tuple(columns)),
        epsilon,
        seed,
        settings,
    )
    codes = _of_people(case, made)
    return {
        "codes": codes,
        "tables": ("person",),
        "sums": {name: made[name].astype(float) for name in case.totals},
    }


def rows(
    case: Case, epsilon: float | None, seed: int, settings: dict[str, Any]
) -> Made:
    """Every event with its person's columns, as if it were a person."""
    schema = case.schema
    assert schema.people is not None
    table = (
        case.frames["events"]
        .merge(case.frames["people"], on=schema.person)
        .drop(columns=schema.person)
    )
    columns = (*schema.people.columns, *schema.events.columns)
    made = _gram(table, Schema(columns=columns), epsilon, seed, settings)
    one = made.assign(**{schema.person: np.arange(len(made))})
    both = {
        "people": one[[schema.person, *schema.people.names]],
        "events": one[[schema.person, *schema.events.names]],
    }
    return {
        "codes": read_visits(both, schema).codes(),
        "tables": ("person", "event", "across"),
    }


def rows_split(
    case: Case, epsilon: float | None, seed: int, settings: dict[str, Any]
) -> Made:
    """The same at the price of an event, so that it holds for a person with so many."""
    return rows(
        case,
        None if epsilon is None else epsilon / case.schema.most_events,
        seed,
        settings,
    )


def independent(
    case: Case, epsilon: float | None, seed: int, settings: dict[str, Any]
) -> Made:
    """One-way tables under Gaussian noise of the price, rounded; people, and events,
    drawn column by column.
    """
    rng = np.random.default_rng([seed, 2])
    schema = case.schema
    layout = replace(VisitLayout.from_schema(schema), even=True)
    counts = layout.split(
        count_visits(read_visits(dict(case.frames), schema).codes(), layout, UNIT)
    )
    single = {
        block: table.astype(float) / UNIT
        for block, table in counts.items()
        if table.ndim == 1
    }
    deviation = (
        needed_multipliers(publication.budget(epsilon), (1.0,))[0] * len(single) ** 0.5
    )
    odds = {
        block: np.clip(
            table + np.rint(rng.normal(0, deviation, len(table))), 1e-9, None
        )
        for block, table in single.items()
    }
    people = len(case.frames["people"])

    def levels(kind: str, sizes: tuple[int, ...], count: int) -> NDArray[np.int32]:
        own = (odds[kind, a, a] for a in range(len(sizes)))
        return np.stack(
            [rng.choice(len(o), count, p=o / o.sum()) for o in own], 1
        ).astype(np.int32)

    own = levels("person", layout.people, people)
    low = np.array(number_bounds(schema))[own[:, -1], 0]
    events = levels("event", layout.events, int(low.sum()))
    codes = VisitCodes(own, events, np.concatenate([[0], np.cumsum(low)]))
    return _whole(codes, case, seed)


def bootstrap(
    case: Case, epsilon: float | None, seed: int, settings: dict[str, Any]
) -> Made:
    """Real people with all their events, drawn with replacement."""
    key = case.schema.person
    rng = np.random.default_rng([seed, 3])
    people = case.frames["people"]
    events = case.frames["events"]
    pick = people.iloc[rng.integers(0, len(people), len(people))].reset_index(drop=True)
    again = pd.DataFrame({key: pick[key], "copy": np.arange(len(pick))})
    events = again.merge(events, on=key).drop(columns=key).rename(columns={"copy": key})
    return {
        "people": pick.assign(**{key: np.arange(len(pick))}),
        "events": events[[key, *case.schema.events.names]],
        "whole": True,
    }


BESIDE: dict[str, Method] = {
    "aggregates": aggregates,
    "rows": rows,
    "rows_split": rows_split,
    "independent": independent,
    "bootstrap": bootstrap,
}


def _gram(
    table: pd.DataFrame,
    schema: Schema,
    epsilon: float | None,
    seed: int,
    settings: dict[str, Any],
) -> pd.DataFrame:
    """As many rows as there are, by `gram` on the bins that the schema declares."""
    held = Federation.rehearsal(
        {"holder": table},
        {"holder": schema},
        budget=publication.budget(epsilon),
        seed=seed,
    )
    result = train(
        "gram", held, **({"fine": 0.0, "device": "cpu", "seed": seed} | settings)
    )
    return result.generator.sample(len(table), seed=seed)[list(schema.names)]


def _wider(column: Integer | Real, times: int) -> Column:
    """A column of sums of up to so many: the same bins, and the same so many times as
    wide.
    """
    edges = [*column.edges[:-1].tolist(), column.high]
    wide = sorted({*edges, *(edge * times for edge in edges)})
    kind = type(column)
    return kind(
        name=column.name,
        low=min(wide),
        high=max(wide),
        bins=tuple(map(type(column.high), wide)),
    )


def _of_people(case: Case, made: pd.DataFrame) -> VisitCodes:
    """Synthetic people without events, for the tables of declared columns alone."""
    schema = case.schema
    assert schema.people is not None
    own = Codec(schema.people).codes(made)
    rest = np.zeros(
        (len(own), len(schema.person_schema.names) - own.shape[1]), dtype=np.int32
    )
    events = np.zeros((0, len(schema.event_schema.names)), dtype=np.int32)
    return VisitCodes(
        np.concatenate([own, rest], 1), events, np.zeros(len(own) + 1, dtype=np.int64)
    )


def _whole(codes: VisitCodes, case: Case, seed: int) -> Made:
    people, events = visit_frames(codes, case.schema, FastRng(seed))
    return {"codes": codes, "people": people, "events": events}

"""How near synthetic people with their events are to real ones: tables, sums of a person, and who comes again.

`evaluate_visits` compares two tables of people and two of events by the tables that a release counts
(`data/visits/counts.py`), in which a person weighs 1 whatever they did:

    avd2_people, avd2_events, avd2_across, avd2_next, avd2_later    mean variation distance of two-way tables of
                    people's columns, of the columns of one event, of a person and an event, of an event and the next
                    one, and of a column and itself two events later
    avd1_number     the distance of the numbers of events
    total_mean_X, total_q90_X, mean_q90_X    of a number X: the error of the mean over people of their sums, of the 90 %
                    quantile of these, and of that of their averages, each as a share of the real one
    tstr_again_auc  AUC, on real events, of a model that learned from synthetic ones whether another one follows, from
                    the person's columns and the event's; its good end learned from real ones
    integrity       the share of events whose person is there

A distance stands between a bootstrap of real people, with all their events, and people and events whose columns are
shuffled by themselves; that of the numbers between a bootstrap and all numbers alike.

Guarantee: none. A figure is a function of real rows, meant for their holder. Edges: what cannot be computed has a
reason; synthetic events without a person count in `integrity` alone.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Integer, Real
from understudy.data.reading.files import Source
from understudy.data.table import read_table
from understudy.data.visits import (
    SeveralVisits,
    TwoSources,
    VisitCodes,
    VisitLayout,
    VisitSchema,
    count_visits,
    read_visits,
)
from understudy.data.visits.reading import two_sources
from understudy.evaluate.figure import Figure, What
from understudy.evaluate.utility.downstream import Examples, downstream
from understudy.evaluate.utility.marginals import bootstrap, shuffled
from understudy.privacy.noise import FastRng

Frames = Mapping[str, pd.DataFrame]  # "people", where the schema has them, and "events"
Tables = Source | TwoSources  # a folder with both, or each by its name

NUMBER, INTEGRITY = What("avd", 1, "number"), What("integrity")
AGAIN = What("tstr", part="again", score="auc")
KINDS = {"person": "people", "event": "events", "across": "across", "next": "next", "later": "later"}
_UNIT = 27_720  # divisible by every number up to 12


def evaluate_visits(
    real: Tables, synthetic: Tables, schema: VisitSchema, *, holdout: Tables | None = None, seed: int = 0
) -> tuple[Figure, ...]:
    """All figures. `holdout` are people whom no training saw; without them a fifth of the real ones is held out."""
    mine, (drawn, whole) = visit_tables(real, schema), with_a_person(synthetic, schema)
    layout, rng = VisitLayout.of(schema), np.random.default_rng([seed, 0])
    before, after = (read_visits(frames, schema).codes(FastRng(seed)) for frames in (mine, drawn))
    held = None if holdout is None else read_visits(holdout, schema).codes(FastRng(seed))
    return (
        *table_figures(before, after, layout, rng),
        *total_figures(mine, drawn, schema),
        comes_again(before, after, held, layout, rng, seed),
        integrity(whole["events"]),
    )


def integrity(share: float) -> Figure:
    """Of the events whose person is there."""
    return Figure(INTEGRITY, value=share, ceiling=1.0, better="higher")


def visit_tables(source: Tables, schema: VisitSchema | SeveralVisits) -> dict[str, pd.DataFrame]:
    """All tables, every cell checked against the schema, with their keys."""
    found, sources = {}, two_sources(source, schema)
    for part, declared in schema.tables.items():
        table = read_table(sources[part], declared, one_row_each=part == "people")
        found[part] = table.frame[list(declared.names)].assign(**{schema.person: table.people})
    return found


def with_a_person(
    source: Tables, schema: VisitSchema | SeveralVisits
) -> tuple[dict[str, pd.DataFrame], dict[str, float]]:
    """All tables without events that are nobody's, and of each kind of events the share that is somebody's."""
    frames, shares = visit_tables(source, schema), {}
    for name in schema.tables.keys() - {"people"}:
        events, shares[name] = frames[name], 1.0
        if schema.people is not None and len(events):
            there = events[schema.person].isin(frames["people"][schema.person])
            frames[name], shares[name] = events[there], float(there.mean())
    return frames, shares


def table_figures(
    real: VisitCodes, synthetic: VisitCodes, layout: VisitLayout, rng: np.random.Generator
) -> tuple[Figure, ...]:
    """Distances of all tables, kind by kind, and of the number of events."""
    if not len(real.people) or not len(synthetic.people):
        names = [*(What("avd", 2, part) for part in KINDS.values()), NUMBER]
        return tuple(Figure.absent(what, "there are no people.") for what in names)
    again = real.take(bootstrap(len(real.people), len(synthetic.people), rng))
    mixed = mixed_up(real, rng)
    mine = _shares(real, layout)
    near, low, high = (
        _distances(mine, _shares(codes, layout), layout) for codes in (synthetic, again, mixed)
    )
    number = mine["person", len(layout.people) - 1, len(layout.people) - 1]
    high[NUMBER] = float(np.abs(number - 1 / len(number)).sum() / 2)
    return tuple(
        Figure(what, value=value, floor=low[what], ceiling=high[what])
        if value is not None
        else Figure.absent(what, "no such table is counted, or nobody is in it.")
        for what, value in near.items()
    )


def mixed_up(codes: VisitCodes, rng: np.random.Generator) -> VisitCodes:
    """People and events whose columns are shuffled by themselves."""
    people, events = (shuffled(own, len(own), rng) for own in (codes.people, codes.events))
    return VisitCodes(people, events, codes.starts)


def flat(codes: VisitCodes, layout: VisitLayout, most: int = 10) -> tuple[NDArray[np.int32], tuple[int, ...]]:
    """A row for each person with all events side by side, up to `most`, and the levels of each column.

    An event that is not there has a level of its own. So an attack on rows takes a person with all rows as its target.
    """
    columns = len(layout.events)
    rows = np.tile(np.array(layout.events, dtype=np.int32), (len(codes.people), most))
    first = np.flatnonzero(codes.order < most)
    at = codes.order[first, None] * columns + np.arange(columns)
    rows[codes.owner[first, None], at] = codes.events[first]
    sizes = (*layout.people, *(size + 1 for size in layout.events * most))
    return np.concatenate([codes.people, rows], axis=1), sizes


def total_figures(real: Frames, synthetic: Frames, schema: VisitSchema) -> tuple[Figure, ...]:
    """Errors of the sums and averages of people, for every column of events that holds numbers."""
    found = []
    for column in schema.events.columns:
        if isinstance(column, Integer | Real) and column.name != schema.time:
            (total, mean), (other, others) = (
                sums_of(frames, schema, column.name) for frames in (real, synthetic)
            )
            found += [
                _error(What("total_mean", column=column.name), float(total.mean()), float(other.mean())),
                _error(
                    What("total_q90", column=column.name),
                    float(total.quantile(0.9)),
                    float(other.quantile(0.9)),
                ),
                _error(
                    What("mean_q90", column=column.name),
                    float(mean.quantile(0.9)),
                    float(others.quantile(0.9)),
                ),
            ]
    return tuple(found)


def sums_of(
    frames: Frames, schema: VisitSchema, column: str
) -> tuple["pd.Series[float]", "pd.Series[float]"]:
    """Each person's sum of a column, 0 for a person without events, and the average of those who have some."""
    events = frames["events"].groupby(schema.person)[column]
    total, mean = events.sum().astype(float), events.mean().dropna().astype(float)
    if schema.people is not None:
        total = total.reindex(frames["people"][schema.person], fill_value=0.0)
    return total, mean


def _error(what: What, real: float, other: float) -> Figure:
    if not np.isfinite([real, other]).all() or real == 0:
        return Figure.absent(what, "there is nothing to compare with, or the real one is 0.")
    return Figure(what, value=abs(other - real) / abs(real), floor=0.0)


def _shares(codes: VisitCodes, layout: VisitLayout) -> dict[tuple[str, int, int], NDArray[np.float64]]:
    split = layout.split(count_visits(codes, layout, _UNIT).astype(np.float64))
    return {block: table / max(table.sum(), 1.0) for block, table in split.items()}


def _distances(
    real: Mapping[tuple[str, int, int], NDArray[np.float64]],
    other: Mapping[tuple[str, int, int], NDArray[np.float64]],
    layout: VisitLayout,
) -> dict[What, float | None]:
    """The mean over all two-way tables of each kind, None where there are none."""
    apart = {block: float(np.abs(real[block] - other[block]).sum() / 2) for block in layout.blocks}
    found: dict[What, float | None] = {}
    for kind, name in KINDS.items():
        own = [
            d
            for (k, a, b), d in apart.items()
            if k == kind and (a != b or kind in ("across", "next", "later"))
        ]
        there = own and any(real[block].any() for block in layout.blocks if block[0] == kind)
        found[What("avd", 2, name)] = float(np.mean(own)) if there else None
    number = len(layout.people) - 1
    return found | {NUMBER: apart["person", number, number]}


def comes_again(
    real: VisitCodes,
    synthetic: VisitCodes,
    test: VisitCodes | None,
    layout: VisitLayout,
    rng: np.random.Generator,
    seed: int,
) -> Figure:
    """Whether another event follows, learned from synthetic events and tested on real ones."""
    if test is None:
        order, cut = rng.permutation(len(real.people)), len(real.people) // 5
        real, test = real.take(order[cut:]), real.take(order[:cut])
    sizes = (*layout.people[:-1], *layout.events)
    mine, others, held = (_examples(codes) for codes in (real, synthetic, test))
    figures = downstream(mine, others, held, sizes, classes=2, models=("boosting",), seed=seed)
    auc = next(figure for figure in figures if figure.what.score == "auc")
    return replace(auc, what=AGAIN)


def _examples(codes: VisitCodes) -> Examples:
    """Every event with its person's columns but the number of events, and whether another one follows."""
    features = np.concatenate([codes.people[codes.owner, :-1], codes.events], axis=1)
    return Examples(features, (codes.order + 1 < codes.numbers[codes.owner]).astype(np.int64))

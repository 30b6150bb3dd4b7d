"""How near synthetic people with their events are to real ones: tables, sums of a
person, and who comes again.

Tables are those that a release counts (`data/visits/counts.py`), in which a person
weighs 1 whatever they did:

    avd2_people, avd2_events, avd2_across, avd2_next, avd2_later
                    mean variation distance of two-way tables of people's columns, of
                    the columns of one event, of a person and an event, of an event and
                    the next one, and of a column and itself two events later
    avd1_number     the distance of the numbers of events
    total_mean_X, total_q90_X, mean_q90_X
                    of a number X: the error of the mean over people of their sums, of
                    the 90 % quantile of these, and of that of their averages, each as a
                    share of the real one
    lag1_X, lag2_X, lag5_X
                    of a number X, as it came: how far the correlation of its ranks with
                    those of the same person's events so many later is off; the naive
                    end has none
    tstr_again_auc  AUC, on real events, of a model that learned from synthetic ones
                    whether another one follows, from the person's columns and the
                    event's; its good end learned from real ones
    integrity       the share of events whose person is there

With several kinds of events each has these by itself, its title behind their names
(`avd2_events (visits)`), beside the columns of people of all holders, the numbers of
the other events among them; and for every two kinds

    avd2_between (visits and claims)    of a column of the one kind and one of the
                                        other: the product of a person's two averages,
                                        over people who have both

A distance stands between a bootstrap of real people, with all their events, and people
and events whose columns are shuffled by themselves; that of the numbers between a
bootstrap and all numbers alike.

Edges: what cannot be computed has a reason; synthetic events without a person count in
`integrity` alone; a real one that is nobody's → SchemaError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, combinations, pairwise
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from understudy.data.column import Integer, Real
from understudy.data.reading.files import Source
from understudy.data.table import read_table
from understudy.data.visits import (
    SeveralVisits,
    TwoSources,
    VisitCodes,
    VisitLayout,
    VisitSchema,
    read_visits,
)
from understudy.data.visits.counts import Block, count_visits
from understudy.data.visits.reading import two_sources
from understudy.evaluate.figure import Figure, FigureKey, StrongPair
from understudy.evaluate.utility.downstream import Examples, downstream
from understudy.evaluate.utility.marginals import bootstrap, shuffle_columns
from understudy.evaluate.utility.series import lag_figures
from understudy.ground.errors import Effect, SchemaError
from understudy.privacy.noise import FastRng

T = TypeVar("T")
Events = VisitSchema | SeveralVisits
Frames = Mapping[str, pd.DataFrame]  # "people", where the schema has them, and "events"
Tables = Source | TwoSources  # a folder with both, or each by its name
Names = tuple[tuple[str, ...], tuple[str, ...]]  # of people's columns, and of events'
_Shares = dict[Block, NDArray[np.float64]]
# of the same people, each with all columns of people, its own number last
Kinds = tuple[VisitCodes, ...]

NUMBER = FigureKey("avd", 1, "number")
INTEGRITY = FigureKey("integrity")
AGAIN = FigureKey("tstr", part="again", score="auc")
KINDS = {
    "person": "people",
    "event": "events",
    "across": "across",
    "next": "next",
    "later": "later",
}
STRONGEST = 20  # tables of a kind that are judged by themselves
_UNIT = 27_720  # divisible by every number up to 12


def evaluate_visits(
    real: Tables,
    synthetic: Tables,
    schema: Events,
    *,
    holdout: Tables | None = None,
    seed: int = 0,
) -> tuple[Figure, ...]:
    """All figures. `holdout` are people whom no training saw; without them a fifth of
    the real ones is held out.
    """
    mine, (drawn, whole) = (
        real_tables(real, schema),
        drop_orphan_events(synthetic, schema),
    )
    before, after = (event_codes(frames, schema, seed) for frames in (mine, drawn))
    held = (
        None
        if holdout is None
        else event_codes(real_tables(holdout, schema), schema, seed)
    )
    rng = np.random.default_rng([seed, 0])
    several = len(schema.parts) > 1
    found = list[Figure]()
    layouts = event_layouts(schema)
    titles = _titles(schema)
    names = _column_names(schema)
    for place, (part, title, layout) in enumerate(
        zip(schema.parts, titles, layouts, strict=True)
    ):
        tables = table_figures(before[place], after[place], layout, rng, names[place])
        if several and not place:
            found += [tables[0], *between_figures(before, after, schema, rng)]
        test = None if held is None else held[place]
        own = [
            *(tables[1:] if several else tables),
            *total_figures(
                _people_and_events(mine, title),
                _people_and_events(drawn, title),
                replace(part, people=schema.people),
            ),
            *lag_figures(mine[title], drawn[title], part, rng),
            predict_next_event(before[place], after[place], test, layout, rng, seed),
            Figure(INTEGRITY, value=whole[title], ceiling=1.0, better="higher"),
        ]
        found += (
            [replace(one, key=one.key.with_subjects(title)) for one in own]
            if several
            else own
        )
    return tuple(found)


def visit_tables(source: Tables, schema: Events) -> dict[str, pd.DataFrame]:
    """All tables, every cell checked against the schema, with their keys."""
    found = {}
    sources = two_sources(source, schema)
    for part, declared in schema.tables.items():
        table = read_table(sources[part], declared, one_row_each=part == "people")
        found[part] = table.frame[list(declared.names)].assign(
            **{schema.person: table.people}
        )
    return found


def drop_orphan_events(
    source: Tables, schema: Events
) -> tuple[dict[str, pd.DataFrame], dict[str, float]]:
    """All tables without events that are nobody's, and of each kind of events the share
    that is somebody's.
    """
    frames = visit_tables(source, schema)
    shares = {}
    for name in schema.tables.keys() - {"people"}:
        events, shares[name] = frames[name], 1.0
        if schema.people is not None and len(events):
            has_person = events[schema.person].isin(frames["people"][schema.person])
            frames[name], shares[name] = events[has_person], float(has_person.mean())
    return frames, shares


def real_tables(source: Tables, schema: Events) -> dict[str, pd.DataFrame]:
    """All tables. SchemaError where an event is nobody's."""
    frames, shares = drop_orphan_events(source, schema)
    for title, share in shares.items():
        if share < 1:
            raise SchemaError(
                f"{title}: {1 - share:.2%} of them are of people who are not in the "
                "table of people.",
                effect=Effect.NOTHING_COMPUTED,
            )
    return frames


def event_codes(
    frames: Mapping[str, pd.DataFrame], schema: Events, seed: int = 0
) -> Kinds:
    """What counts of each kind of events, with the columns of people of all."""
    rng = FastRng(seed)
    key = schema.person
    titles = _titles(schema)
    first, *further_kinds = (
        read_visits(
            _people_and_events(frames, title)
            if part.people
            else {"events": frames[title]},
            part.even,
        )
        for part, title in zip(schema.parts, titles, strict=True)
    )
    if further_kinds and schema.people is None:
        ids = pd.concat([frames[title][key].astype(str) for title in titles]).unique()
        first = first.among(np.asarray(ids))
    codes_by_kind = [
        shared.codes(rng)
        for shared in (
            first,
            *(further.among(first.people) for further in further_kinds),
        )
    ]
    declared = first.person_codes.shape[1]
    shared = codes_by_kind[0].people[:, :declared]
    derived = [
        codes_by_kind[0].people[:, declared:],
        *(c.people for c in codes_by_kind[1:]),
    ]
    return tuple(
        VisitCodes(
            np.concatenate([shared, *_move_to_end(derived, number)], axis=1),
            codes.events,
            codes.starts,
        )
        for number, codes in enumerate(codes_by_kind)
    )


def event_layouts(schema: Events) -> tuple[VisitLayout, ...]:
    """Which tables are compared of each kind of events."""
    layouts = [VisitLayout.from_schema(part) for part in schema.parts]
    declared = 0 if schema.people is None else len(schema.people.columns)
    shared = layouts[0].people[:declared]
    derived = [layouts[0].people[declared:], *(layout.people for layout in layouts[1:])]
    return tuple(
        VisitLayout(
            (
                *shared,
                *(size for part in _move_to_end(derived, number) for size in part),
            ),
            layout.events,
            layout.ordered,
        )
        for number, layout in enumerate(layouts)
    )


def _column_names(schema: Events) -> tuple[Names, ...]:
    """What the columns of `event_layouts` are called, of people and of events."""
    names_by_kind = [part.person_schema.names for part in schema.parts]
    declared = 0 if schema.people is None else len(schema.people.columns)
    shared = names_by_kind[0][:declared]
    derived = [names_by_kind[0][declared:], *names_by_kind[1:]]
    return tuple(
        (
            (
                *shared,
                *(name for part in _move_to_end(derived, number) for name in part),
            ),
            part.event_schema.names,
        )
        for number, part in enumerate(schema.parts)
    )


def table_figures(
    real: VisitCodes,
    synthetic: VisitCodes,
    layout: VisitLayout,
    rng: np.random.Generator,
    names: Names | None = None,
) -> tuple[Figure, ...]:
    """Distances of all tables, kind by kind, the strongest by themselves, and of the
    number of events. `names` are those of people's columns and of events'.
    """
    if not len(real.people) or not len(synthetic.people):
        keys = [*(FigureKey("avd", 2, part) for part in KINDS.values()), NUMBER]
        return tuple(Figure.absent(key, "there are no people.") for key in keys)
    resampled = real.take(bootstrap(len(real.people), len(synthetic.people), rng))
    real_shares, *all_shares = (
        _shares(codes, layout)
        for codes in (real, synthetic, resampled, shuffle_visits(real, rng))
    )
    tables = [
        _table_distances(real_shares, other_shares, layout)
        for other_shares in all_shares
    ]
    means, low, high = (
        _mean_distances(real_shares, distances, layout) for distances in tables
    )
    strongest = (
        {} if names is None else _strongest_tables(tables, names, len(synthetic.people))
    )
    number = real_shares["person", len(layout.people) - 1, len(layout.people) - 1]
    high[NUMBER] = float(np.abs(number - 1 / len(number)).sum() / 2)
    return tuple(
        Figure(
            key,
            value=value,
            floor=low[key],
            ceiling=high[key],
            parts=strongest.get(key, ()),
        )
        if value is not None
        else Figure.absent(key, "no such table is counted, or nobody is in it.")
        for key, value in means.items()
    )


def shuffle_visits(codes: VisitCodes, rng: np.random.Generator) -> VisitCodes:
    """Columns shuffled by themselves, of events among first ones, or others, that weigh
    the same: their shares stay.
    """
    events = codes.events.copy()
    weigh = np.rint(2 * np.log2(codes.numbers[codes.owner]))
    order = np.lexsort((codes.order == 0, weigh))
    for column in range(events.shape[1]):
        shuffled = np.lexsort((rng.random(len(weigh)), codes.order == 0, weigh))
        events[order, column] = codes.events[shuffled, column]
    return VisitCodes(
        shuffle_columns(codes.people, len(codes.people), rng), events, codes.starts
    )


def flatten_visits(
    codes: VisitCodes, layout: VisitLayout, max_events: int = 10
) -> tuple[NDArray[np.int32], tuple[int, ...]]:
    """A row for each person with all events side by side, up to `most`, and the levels
    of each column.

    An event that is not there has a level of its own. So an attack on rows takes a
    person with all rows as its target.
    """
    columns = len(layout.events)
    rows = np.tile(
        np.array(layout.events, dtype=np.int32), (len(codes.people), max_events)
    )
    first = np.flatnonzero(codes.order < max_events)
    cells = codes.order[first, None] * columns + np.arange(columns)
    rows[codes.owner[first, None], cells] = codes.events[first]
    sizes = (*layout.people, *(size + 1 for size in layout.events * max_events))
    return np.concatenate([codes.people, rows], axis=1), sizes


def total_figures(
    real: Frames, synthetic: Frames, schema: VisitSchema
) -> tuple[Figure, ...]:
    """Errors of the sums and averages of people, for every column of events that holds
    numbers.
    """
    figures = []
    for column in schema.events.columns:
        if isinstance(column, Integer | Real) and column.name != schema.time:
            (total, mean), (synthetic_total, synthetic_mean) = (
                sum_per_person(frames, schema, column.name)
                for frames in (real, synthetic)
            )
            pairs = (
                ("total_mean", total.mean(), synthetic_total.mean()),
                ("total_q90", total.quantile(0.9), synthetic_total.quantile(0.9)),
                ("mean_q90", mean.quantile(0.9), synthetic_mean.quantile(0.9)),
            )
            figures += [
                _relative_error(FigureKey(name, column=column.name), float(a), float(b))
                for name, a, b in pairs
            ]
    return tuple(figures)


def sum_per_person(
    frames: Frames, schema: VisitSchema, column: str
) -> tuple["pd.Series[float]", "pd.Series[float]"]:
    """Each person's sum of a column, 0 for a person without events, and the average of
    those who have some.
    """
    events = frames["events"].groupby(schema.person)[column]
    total = events.sum().astype(float)
    mean = events.mean().dropna().astype(float)
    if schema.people is not None:
        total = total.reindex(frames["people"][schema.person], fill_value=0.0)
    return total, mean


def _relative_error(key: FigureKey, real: float, other: float) -> Figure:
    if not np.isfinite([real, other]).all() or real == 0:
        return Figure.absent(
            key, "there is nothing to compare with, or the real one is 0."
        )
    return Figure(
        key, value=abs(other - real) / abs(real), floor=0.0, compared=(real, other)
    )


def _shares(codes: VisitCodes, layout: VisitLayout) -> _Shares:
    split = layout.split(count_visits(codes, layout, _UNIT).astype(np.float64))
    return {block: table / max(table.sum(), 1.0) for block, table in split.items()}


def _table_distances(
    real: _Shares, other: _Shares, layout: VisitLayout
) -> dict[Block, float]:
    return {
        block: float(np.abs(real[block] - other[block]).sum() / 2)
        for block in layout.blocks
    }


def _strongest_tables(
    tables: Sequence[Mapping[Block, float]], names: Names, people: int
) -> dict[FigureKey, tuple[StrongPair, ...]]:
    """Of each kind the tables that depend most in the real people: with the distance of
    the synthetic ones, of other real ones, and of shuffled columns.
    """
    synthetic_distances, low, high = tables
    people_names, event_names = names
    sides = {
        "person": (people_names, people_names),
        "across": (people_names, event_names),
    }
    strongest: dict[FigureKey, tuple[StrongPair, ...]] = {}
    for kind, name in KINDS.items():
        rows, columns = sides.get(kind, (event_names, event_names))
        same_columns = kind in ("person", "event")
        blocks = [
            block
            for block in synthetic_distances
            if block[0] == kind and not (same_columns and block[1] == block[2])
        ]
        pairs = []
        for block in sorted(blocks, key=lambda first: low[first] - high[first])[
            :STRONGEST
        ]:
            figure = Figure(
                FigureKey("avd", 2, name),
                value=synthetic_distances[block],
                floor=low[block],
                ceiling=high[block],
            )
            first = rows[block[1]]
            second = columns[block[2]]
            pairs.append(
                StrongPair(first=first, second=second, figure=figure, rows=people)
            )
        strongest[FigureKey("avd", 2, name)] = tuple(pairs)
    return strongest


def _mean_distances(
    real: _Shares, distances: Mapping[Block, float], layout: VisitLayout
) -> dict[FigureKey, float | None]:
    """The mean over all two-way tables of each kind, None where there are none."""
    means: dict[FigureKey, float | None] = {}
    for kind, name in KINDS.items():
        pairs = [(a, b) for k, a, b in distances if k == kind]
        block_distances = [
            distances[kind, a, b]
            for a, b in pairs
            if a != b or kind not in ("person", "event")
        ]
        occupied = block_distances and any(real[kind, a, b].any() for a, b in pairs)
        means[FigureKey("avd", 2, name)] = (
            float(np.mean(block_distances)) if occupied else None
        )
    number = len(layout.people) - 1
    return means | {NUMBER: distances["person", number, number]}


def between_figures(
    real: Kinds, synthetic: Kinds, schema: Events, rng: np.random.Generator
) -> tuple[Figure, ...]:
    if not len(real[0].people) or not len(synthetic[0].people):
        return ()
    some = bootstrap(len(real[0].people), len(synthetic[0].people), rng)
    resampled = [kind.take(some) for kind in real]
    shuffled = [shuffle_visits(kind, rng) for kind in real]
    layouts = event_layouts(schema)
    figures = list[Figure]()
    for first, second in combinations(range(len(real)), 2):
        sizes = layouts[first].events, layouts[second].events
        (
            real_products,
            synthetic_products,
            low,
            high,
        ) = (  # all tables of two columns, side by side, in people
            (
                _average_events(codes[first], sizes[0]).T
                @ _average_events(codes[second], sizes[1])
            ).toarray()
            for codes in (real, synthetic, resampled, shuffled)
        )
        key = FigureKey(
            "avd",
            2,
            "between",
            subjects=(schema.parts[first].title, schema.parts[second].title),
        )
        if real_products.any() and synthetic_products.any():
            ends = [
                _mean_table_distance(real_products, table, *sizes)
                for table in (synthetic_products, low, high)
            ]
            figures.append(Figure(key, value=ends[0], floor=ends[1], ceiling=ends[2]))
        else:
            figures.append(Figure.absent(key, "nobody has events of both kinds."))
    return tuple(figures)


def _average_events(codes: VisitCodes, sizes: Sequence[int]) -> sparse.csr_matrix:
    """Each person's average event, as shares of all levels: (people, levels)."""
    begin = np.cumsum([0, *sizes])
    levels = (codes.events + begin[:-1]).ravel()
    owner = np.repeat(codes.owner, len(sizes))
    return sparse.csr_matrix(
        (1 / codes.numbers[owner], (owner, levels)),
        shape=(len(codes.people), int(begin[-1])),
    )


def _mean_table_distance(
    real: NDArray[np.float64],
    other: NDArray[np.float64],
    rows: Sequence[int],
    columns: Sequence[int],
) -> float:
    """The mean distance of the tables in two matrices; each has all people who have
    both kinds.
    """
    people = [matrix[: rows[0], : columns[0]].sum() for matrix in (real, other)]
    distances = np.abs(real / people[0] - other / people[1]) / 2
    cuts = [
        [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        for sizes in (rows, columns)
    ]
    return float(np.mean([distances[a, b].sum() for a in cuts[0] for b in cuts[1]]))


def predict_next_event(
    real: VisitCodes,
    synthetic: VisitCodes,
    test: VisitCodes | None,
    layout: VisitLayout,
    rng: np.random.Generator,
    seed: int,
) -> Figure:
    """Whether another event follows, learned from synthetic events and tested on real
    ones.
    """
    if test is None:
        order = rng.permutation(len(real.people))
        cut = len(real.people) // 5
        real, test = real.take(order[cut:]), real.take(order[:cut])
    sizes = (*layout.people[:-1], *layout.events)
    real_examples, synthetic_examples, test_examples = (
        _examples(codes) for codes in (real, synthetic, test)
    )
    figures = downstream(
        real_examples,
        synthetic_examples,
        test_examples,
        sizes,
        classes=2,
        models=("boosting",),
        seed=seed,
    )
    return replace(
        next(figure for figure in figures if figure.key.score == "auc"), key=AGAIN
    )


def _examples(codes: VisitCodes) -> Examples:
    """Every event with its person's columns but the number of events, and whether
    another one follows.
    """
    features = np.concatenate([codes.people[codes.owner, :-1], codes.events], axis=1)
    return Examples(
        features, (codes.order + 1 < codes.numbers[codes.owner]).astype(np.int64)
    )


def _move_to_end(parts: Sequence[T], index: int) -> list[T]:
    return [*parts[:index], *parts[index + 1 :], parts[index]]


def _titles(schema: Events) -> list[str]:
    """The tables of events, as the schema's parts have them."""
    return [name for name in schema.tables if name != "people"]


def _people_and_events(
    frames: Mapping[str, pd.DataFrame], title: str
) -> dict[str, pd.DataFrame]:
    """People, where they have columns, and one kind of events."""
    return ({"people": frames["people"]} if "people" in frames else {}) | {
        "events": frames[title]
    }

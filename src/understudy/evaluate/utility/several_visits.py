"""How near synthetic people with several kinds of events are to real ones: each kind as of one, and both together.

`evaluate_several` has the figures of `visits`, each kind of events by itself, beside the columns of people of all
holders, the numbers of the other events among them. A figure of one kind has its title behind its name:

    avd2_people                      of people's columns
    avd2_between (visits and claims) of a column of the one kind of events and one of the other: the product of a
                                     person's two averages, over people who have both
    avd2_events (visits), avd2_across (visits), …, tstr_again_auc (visits), integrity (visits)

Guarantee: none. A figure is a function of real rows, meant for their holder. Edges: as of `visits`; a real event that
is nobody's → SchemaError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, combinations, pairwise
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from understudy.data.visits import SeveralVisits, VisitCodes, VisitLayout, read_visits
from understudy.evaluate.figure import Figure, What
from understudy.evaluate.utility.marginals import bootstrap
from understudy.evaluate.utility.visits import (
    Tables,
    comes_again,
    integrity,
    mixed_up,
    table_figures,
    total_figures,
    with_a_person,
)
from understudy.ground.errors import SchemaError
from understudy.privacy.noise import FastRng

T = TypeVar("T")
Kinds = tuple[VisitCodes, ...]  # of the same people, each with all columns of people, its own number last


def evaluate_several(
    real: Tables, synthetic: Tables, schema: SeveralVisits, *, holdout: Tables | None = None, seed: int = 0
) -> tuple[Figure, ...]:
    """All figures. `holdout` are people whom no training saw; without them a fifth of the real ones is held out."""
    mine, (drawn, whole) = real_tables(real, schema), with_a_person(synthetic, schema)
    before, after = (several_codes(frames, schema, seed) for frames in (mine, drawn))
    held = None if holdout is None else several_codes(real_tables(holdout, schema), schema, seed)
    layouts, rng = several_layouts(schema), np.random.default_rng([seed, 0])
    found = list[Figure]()
    for place, (part, layout) in enumerate(zip(schema.parts, layouts, strict=True)):
        tables = table_figures(before[place], after[place], layout, rng)
        if not place:
            found += [tables[0], *between_figures(before, after, schema, rng)]
        alone = replace(part, people=schema.people)
        frames = (_two(mine, part.title), _two(drawn, part.title))
        test = None if held is None else held[place]
        own = (
            *tables[1:],
            *total_figures(frames[0], frames[1], alone),
            comes_again(before[place], after[place], test, layout, rng, seed),
            integrity(whole[part.title]),
        )
        found += [replace(figure, what=figure.what.about(part.title)) for figure in own]
    return tuple(found)


def real_tables(source: Tables, schema: SeveralVisits) -> dict[str, pd.DataFrame]:
    """All tables. SchemaError where an event is nobody's."""
    frames, shares = with_a_person(source, schema)
    for title, share in shares.items():
        if share < 1:
            raise SchemaError(
                f"{title}: {1 - share:.2%} of them are of people who are not in the table of people. "
                "Nothing was compared."
            )
    return frames


def several_codes(frames: Mapping[str, pd.DataFrame], schema: SeveralVisits, seed: int = 0) -> Kinds:
    """What counts of each kind of events, with the columns of people of all."""
    rng, key = FastRng(seed), schema.person
    first, *others = (
        read_visits(_two(frames, part.title) if part.people else {"events": frames[part.title]}, part)
        for part in schema.parts
    )
    if schema.people is None:
        ids = pd.concat([frames[part.title][key].astype(str) for part in schema.parts]).unique()
        first = first.among(np.asarray(ids))
    each = [own.codes(rng) for own in (first, *(other.among(first.people) for other in others))]
    declared = first.own.shape[1]
    own, derived = each[0].people[:, :declared], [each[0].people[:, declared:], *(c.people for c in each[1:])]
    return tuple(
        VisitCodes(np.concatenate([own, *_own_last(derived, place)], axis=1), codes.events, codes.starts)
        for place, codes in enumerate(each)
    )


def several_layouts(schema: SeveralVisits) -> tuple[VisitLayout, ...]:
    """Which tables are compared of each kind of events."""
    each = [VisitLayout.of(part) for part in schema.parts]
    declared = 0 if schema.people is None else len(schema.people.columns)
    own, derived = each[0].people[:declared], [each[0].people[declared:], *(one.people for one in each[1:])]
    return tuple(
        VisitLayout(
            (*own, *(size for part in _own_last(derived, place) for size in part)), one.events, one.ordered
        )
        for place, one in enumerate(each)
    )


def between_figures(
    real: Kinds, synthetic: Kinds, schema: SeveralVisits, rng: np.random.Generator
) -> tuple[Figure, ...]:
    """Distances of the tables of two kinds of events."""
    if not len(real[0].people) or not len(synthetic[0].people):
        return ()
    some = bootstrap(len(real[0].people), len(synthetic[0].people), rng)
    again, mixed = [own.take(some) for own in real], [mixed_up(own, rng) for own in real]
    layouts, found = several_layouts(schema), list[Figure]()
    for one, other in combinations(range(len(real)), 2):
        sizes = layouts[one].events, layouts[other].events
        mine, drawn, low, high = (
            _between(codes[one], codes[other], *sizes) for codes in (real, synthetic, again, mixed)
        )
        what = What("avd", 2, "between", of=(schema.parts[one].title, schema.parts[other].title))
        if mine.any() and drawn.any():
            ends = [_apart(mine, table, *sizes) for table in (drawn, low, high)]
            found.append(Figure(what, value=ends[0], floor=ends[1], ceiling=ends[2]))
        else:
            found.append(Figure.absent(what, "nobody has events of both kinds."))
    return tuple(found)


def _between(
    one: VisitCodes, other: VisitCodes, rows: Sequence[int], columns: Sequence[int]
) -> NDArray[np.float64]:
    """All tables of a column of the one kind and one of the other, side by side, in people."""
    return np.asarray((_averages(one, rows).T @ _averages(other, columns)).todense())


def _averages(codes: VisitCodes, sizes: Sequence[int]) -> sparse.csr_matrix:
    """Each person's average event, as shares of all levels: (people, levels)."""
    begin = np.cumsum([0, *sizes])
    levels = (codes.events + begin[:-1]).ravel()
    owner = np.repeat(codes.owner, len(sizes))
    return sparse.csr_matrix(
        (1 / codes.numbers[owner], (owner, levels)), shape=(len(codes.people), int(begin[-1]))
    )


def _apart(
    real: NDArray[np.float64], other: NDArray[np.float64], rows: Sequence[int], columns: Sequence[int]
) -> float:
    """The mean distance of the tables in two matrices; each has all people who have both kinds."""
    people = [one[: rows[0], : columns[0]].sum() for one in (real, other)]
    apart = np.abs(real / people[0] - other / people[1]) / 2
    cuts = [[slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))] for sizes in (rows, columns)]
    return float(np.mean([apart[a, b].sum() for a in cuts[0] for b in cuts[1]]))


def _own_last(parts: Sequence[T], place: int) -> list[T]:
    return [*parts[:place], *parts[place + 1 :], parts[place]]


def _two(frames: Mapping[str, pd.DataFrame], title: str) -> dict[str, pd.DataFrame]:
    """People, where they have columns, and one kind of events."""
    return ({"people": frames["people"]} if "people" in frames else {}) | {"events": frames[title]}

"""Synthetic people with their events beside the real ones, for the holder of the real rows: tables in, figures out.

Figures are those of `utility/visits.py`, with several kinds of events those of `utility/several_visits.py`. With people
whom no training saw, membership is attacked with a person and all rows as the target: events side by side are one row,
so that what gives a person away may lie in any of them.

Guarantee: none. A figure is a function of real rows, meant for their holder.
"""

import numpy as np
from numpy.typing import NDArray

from understudy.data.kinds import VISITS
from understudy.data.visits import SeveralVisits, VisitLayout, VisitSchema, read_visits
from understudy.evaluate.attacks.attack import Attack, judge
from understudy.evaluate.attacks.membership import neighbourhood
from understudy.evaluate.figure import Figure
from understudy.evaluate.utility.several_visits import (
    evaluate_several,
    real_tables,
    several_codes,
    several_layouts,
)
from understudy.evaluate.utility.visits import Tables, evaluate_visits, flat, with_a_person
from understudy.privacy.noise import FastRng

SIDE_BY_SIDE = 10  # events of a person, at most, of each kind, in the row that is attacked


def people_figures(
    real: Tables,
    synthetic: Tables,
    schema: VisitSchema | SeveralVisits,
    *,
    holdout: Tables | None = None,
    seed: int = 0,
) -> tuple[Figure | Attack, ...]:
    """All figures of two sets of tables; with `holdout`, people whom the generator has not seen, attacks besides."""
    figures = (
        evaluate_several(real, synthetic, schema, holdout=holdout, seed=seed)
        if isinstance(schema, SeveralVisits)
        else evaluate_visits(real, synthetic, schema, holdout=holdout, seed=seed)
    )
    if holdout is None:
        return figures
    return (*figures, *attack_people(real, holdout, synthetic, schema, seed=seed))


def attack_people(
    real: Tables, holdout: Tables, synthetic: Tables, schema: VisitSchema | SeveralVisits, *, seed: int = 0
) -> tuple[Attack, ...]:
    """Was this person, with all these events, among the people that a generator was trained on?"""
    drawn = with_a_person(synthetic, schema)[0]
    train, outside, others = (_rows(source, schema, seed) for source in (real, holdout, drawn))
    return judge(
        [neighbourhood(train, outside, others, score=score, seed=seed) for score in ("share", "nearest")]
    )


def _rows(source: Tables, schema: VisitSchema | SeveralVisits, seed: int) -> NDArray[np.int32]:
    """A row for each person, with all events side by side."""
    most = [min(part.most_events, SIDE_BY_SIDE) for part in schema.parts]
    if VISITS.describes(schema):
        return flat(read_visits(source, schema).codes(FastRng(seed)), VisitLayout.of(schema), most[0])[0]
    kinds, layouts = several_codes(real_tables(source, schema), schema, seed), several_layouts(schema)
    each = [flat(codes, layout, count)[0] for codes, layout, count in zip(kinds, layouts, most, strict=True)]
    return np.concatenate([each[0], *(rows[:, len(layouts[0].people) :] for rows in each[1:])], axis=1)

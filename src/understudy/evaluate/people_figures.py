"""Synthetic people with their events beside the real ones, for the holder of the real rows: tables in, figures out.

Figures are those of `utility/visits.py`. With people whom no training saw, membership is attacked with a person and
all rows as the target: events side by side are one row, so that what gives a person away may lie in any of them.

Guarantee: none. A figure is a function of real rows, meant for their holder.
"""

from understudy.data.visits import VisitLayout, VisitSchema, read_visits
from understudy.evaluate.attacks.attack import Attack, judge
from understudy.evaluate.attacks.membership import neighbourhood
from understudy.evaluate.utility.marginals import Figure
from understudy.evaluate.utility.visits import Tables, evaluate_visits, flat, with_a_person
from understudy.privacy.noise import FastRng

SIDE_BY_SIDE = 10  # events of a person, at most, in the row that is attacked


def people_figures(
    real: Tables, synthetic: Tables, schema: VisitSchema, *, holdout: Tables | None = None, seed: int = 0
) -> tuple[Figure | Attack, ...]:
    """All figures of two pairs of tables; with `holdout`, people whom the generator has not seen, attacks besides."""
    figures = evaluate_visits(real, synthetic, schema, holdout=holdout, seed=seed)
    if holdout is None:
        return figures
    return (*figures, *attack_people(real, holdout, synthetic, schema, seed=seed))


def attack_people(
    real: Tables, holdout: Tables, synthetic: Tables, schema: VisitSchema, *, seed: int = 0
) -> tuple[Attack, ...]:
    """Was this person, with all these events, among the people that a generator was trained on?"""
    layout, most = VisitLayout.of(schema), min(schema.most_events, SIDE_BY_SIDE)
    tables = (real, holdout, with_a_person(synthetic, schema)[0])
    codes = [read_visits(source, schema).codes(FastRng(seed)) for source in tables]
    train, outside, drawn = (flat(own, layout, most)[0] for own in codes)
    return judge(
        [neighbourhood(train, outside, drawn, score=score, seed=seed) for score in ("share", "nearest")]
    )

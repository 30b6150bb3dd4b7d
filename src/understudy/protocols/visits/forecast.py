"""What a run of visits will release, and how uncertain that is, before anything is asked.

Guarantee: made of settings, schemas, budgets and a stated number of people; no row is read. Whatever a run refuses by
its settings and schemas is refused here, too.
"""

from collections.abc import Mapping
from typing import Any

from understudy.answers.rules import with_rules
from understudy.data.encoding.fine import cut_evenly
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core.forecast import Error, Forecast, Stage
from understudy.protocols.visits.fit import FEW, check_fit
from understudy.protocols.visits.settings import Config
from understudy.protocols.visits.study import VisitStudy
from understudy.protocols.visits.wide import wide_columns

COUNTED = {
    "person": "a count of people",
    "event": "a count of people by an average event",
    "across": "a count of people by themselves and an average event",
    "next": "a count of people by two events that follow one another",
    "later": "a count of people by two events with one between",
    "between": "a count of people by average events of two holders",
}


def forecast(
    config: Config, schemas: Mapping[str, Any], budgets: Mapping[str, Budget], people: int | None = None
) -> Forecast:
    """What a run will release, and how uncertain that is. Reads no row."""
    study = VisitStudy(config, schemas)
    pricing, layout, noises = study.pricing, study.layout, dict[str, list[float]]()
    pricing.check_parties(len(schemas))
    schema = with_rules(study.schema, config.rules)
    check_fit(config, schema)
    needed = [pricing.needed(budget, people)[0] for budget in budgets.values()]
    noise_agreed = max(needed) if config.private else 0.0
    cells = study.expected_noise(noise_agreed)
    for block, own in cells.items():
        noises.setdefault(block[0], []).append(own)
    noise, blocks = max(map(max, noises.values())), len(layout.blocks)
    price = {name: epsilon(pricing.spend(0, noise_agreed), budget.delta) for name, budget in budgets.items()}
    warnings: tuple[str, ...] = ()
    if people is not None and people <= FEW * noise:
        warnings = (f"{people:,} people are no more than noise of {noise:.4g} on every count hides.",)
    elif people is not None:
        warnings = tuple(wide_columns(schema, layout, cells, people))
    declared = [own for part in schema.parts for own in (part.people, part.events)]
    return Forecast(
        protocol="visits",
        cut=study.grid.partition,
        budgets=budgets,
        price=price,
        person="A person, with all rows in both tables, pays this once, for all holders together."
        if config.most_holders > 1 or study.split is not None
        else "A person, with all rows in both tables, pays at the holder who has them.",
        people=people,
        facts=(
            f"{blocks:,} tables of people's columns, of events' and of both, in each of which a person weighs 1",
            *(
                f"at most {part.most_events:,} {part.title} of a person count"
                + (", the first" if part.cut == "first" else ", drawn by chance")
                for part in schema.parts
            ),
        ),
        stages=(
            Stage(
                what="all tables",
                share=1.0,
                moved=blocks,
                noise={"least": min(map(min, noises.values())), "largest": noise},
            ),
        ),
        errors=tuple(
            Error(what=counted(kind), least=min(own), largest=max(own)) for kind, own in noises.items()
        ),
        warnings=(*warnings, *cut_evenly(*declared)),
    )


def counted(kind: str) -> str:
    """What a cell of a table of this kind counts, in words."""
    first, *titles = kind.split()
    return COUNTED[first] + (f" ({' and '.join(titles)})" if titles else "")

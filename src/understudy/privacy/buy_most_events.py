"""Buy the bound on a person's events: a number that most people do not pass, chosen
privately.

A bound that is far too high costs a level or two and little else; one that is too low
cuts events off. Where nobody knows publicly how often people come, the exponential
mechanism (`noise.Exponential`) chooses one on a public grid: 1, 2, …, 16, then each
about a quarter more, up to the bound that the schema declares.

A candidate b scores −|100·#{people with at most b events} − p·#{people}|, for p
percent. A person who comes or goes changes what stands between the bars by 100 − p if
they have at most b events, and else by p: so by max(p, 100 − p) at most, which is the
sensitivity.

Guarantee: ε-DP for a person with all rows; the ledger holds the price before anything
is counted.
Edges: a price over the budget → BudgetExceeded, seeded or insecure noise where the
ledger is real → PrivacyError: nothing was charged or counted. The number of people is
not disclosed.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from understudy.data.visits import Visits, VisitSchema
from understudy.data.visits.schema import grid
from understudy.ground.check import in_range, positive
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import Exponential, Rng, rounded_up


def buy_most_events(
    visits: Visits,
    ledger: Ledger,
    *,
    epsilon: float,
    percent: int = 95,
    run: str,
    rng: Rng,
) -> VisitSchema:
    """The schema with a bound that about so many percent of the people do not pass,
    bought for ε.
    """
    positive(epsilon=epsilon)
    in_range(1, 99, percent=percent)
    if type(percent) is not int:
        raise ConfigError(
            f"percent must be a whole number, not {percent!r}.",
            effect=Effect.NOTHING_CHARGED,
        )
    if ledger.real:
        rng.require_secret(ledger.holder, effect=Effect.NOTHING_CHARGED)
    choice = Exponential(
        rounded_up(1 / epsilon),
        sensitivity=max(percent, 100 - percent),
    )
    ledger.charge(
        choice.event,
        run=run,
        description=f"a bound on events that {percent} % of the people do not pass",
    )
    bounds = candidates(visits.schema)
    return replace(
        visits.schema,
        most_events=bounds[choice(scores(visits, bounds, percent), rng)],
    )


def candidates(schema: VisitSchema) -> tuple[int, ...]:
    """The bounds that can be chosen: public."""
    return grid(schema.most_events, single=16, factor=1.25)[1:]


def scores(visits: Visits, bounds: tuple[int, ...], percent: int) -> Tensor:
    """Whole numbers, the higher the nearer a bound is: (bounds,)."""
    within = np.searchsorted(np.sort(visits.numbers), np.array(bounds), side="right")
    return torch.from_numpy(
        -np.abs(100 * within.astype(np.int64) - percent * visits.rows)
    )

"""How gram divides its budget among the stages of a run.

Every cell gets discrete Gaussian noise (`joint.pricing.CellPricing`). This file says
only which share of ε each stage has: fine tables, all pairs, the search for three-way
effects, and what is measured a second time.

Guarantee: shares follow from settings and public numbers, or from the number of shared
people where all holders know it, of a union within ε; never from rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from understudy.models.tables.merged_levels import level_count
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.gram.settings import (
    AGAIN,
    LEAST_FINE,
    SEARCH,
    STRONGEST,
    Config,
    again_share,
)
from understudy.protocols.joint.pricing import CellPricing


@dataclass(frozen=True)
class GramPricing(CellPricing):
    """How gram divides the budget among its stages.

    `buys`: levels are chosen from fine tables, which get `config.fine` of it. `again`:
    some marginals are measured a second time, by what `first_pass_share` leaves of the
    rest; `searches`: a part of that goes to the search for three-way effects. `bins`:
    the most declared bins of a column, where levels are merged from declared bins
    alone: with people enough for all of them fine tables get `LEAST_FINE`.
    """

    config: Config = field(default_factory=Config)
    buys: bool = False
    again: bool = False
    searches: bool = False
    bins: int = 0

    def shares(self, budget: Budget, people: int | None) -> Sequence[float]:
        config = self.config
        known_people = people or config.public_people
        fine = config.fine
        first_pass_share = config.first_pass_share
        if first_pass_share is None:
            others = config.target or config.triples or self.searches
            first_pass_share = 1 - (AGAIN if others else STRONGEST)
        if known_people is not None and config.private:
            # the noise of all pairs, if they got that part of the budget
            noise = self.noise_within(budget, self._split(first_pass_share, fine))[
                -1 - self.again - self.searches
            ]
            if self.bins and level_count(known_people, noise) >= self.bins:
                fine = LEAST_FINE
            if (
                config.first_pass_share is None
                and config.target is not None
                and self.again
            ):
                first_pass_share = 1 - again_share(
                    known_people, noise * first_pass_share**0.5
                )
        return self._split(first_pass_share, fine)

    def _split(self, first_pass_share: float, fine: float) -> list[float]:
        """The share of every stage, in their order; they add up to 1."""
        pairs = [first_pass_share, 1 - first_pass_share] if self.again else [1.0]
        if self.searches:
            pairs[1:] = [
                (1 - first_pass_share) * SEARCH,
                (1 - first_pass_share) * (1 - SEARCH),
            ]
        if not self.buys:
            return pairs
        # All that is counted of single columns has the same noise.
        costs = [
            math.fsum(cells / factor**2 for factor, cells in moved)
            for moved in self.moved[: -len(pairs)]
        ]
        return [
            *(fine * cost / math.fsum(costs) for cost in costs),
            *((1 - fine) * share for share in pairs),
        ]

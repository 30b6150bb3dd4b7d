"""How a budget is divided between buying a schema and the release that follows.

Buying texts takes `SCHEMA_SHARE` of ε and half of δ. Gaussian releases spend about
Σ 1/σ², whatever they are of, so what a purchase leaves of that sum pays for the
release, and both are accounted for together.

Guarantee: the purchase and a release within `remaining_budget` are within the whole
budget together. Neither depends on a row.
"""

import math
from collections import Counter

from understudy.privacy.accounts.accounting import DiscreteGaussian, DpEvent, flatten
from understudy.privacy.accounts.accounting import epsilon as epsilon_of
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.buy_schema import Quote
from understudy.privacy.secure.counts import needed_noise, spend_of

# of ε, and half of δ, where categories are bought: a sixth of what noise allows, as
# squares add up
SCHEMA_SHARE = 0.4
# of the precision that is left: noise is rounded up, release by release
_SHARES = (0.99, 0.97, 0.95, 0.92, 0.9)
_CELLS = (1, 3, 60, 300)  # sizes of releases


def schema_budget(whole: Budget) -> Budget:
    """What the purchase of a schema may cost."""
    return Budget(whole.epsilon * SCHEMA_SHARE, whole.delta / 2)


def remaining_budget(whole: Budget, offer: Quote) -> Budget:
    """A budget for the release at the δ of the whole one, so that it and the purchase
    are within that together.

    The loss of a few whole numbers takes few values and may cost more or less than
    Σ 1/σ² says, so less is tried until the accountant finds releases of any size within
    the whole. Beside other noise the release has the noise of what is left of ε at half
    of δ, since then ε and δ add up.
    """
    purchase = flatten(offer.event)
    spent_precision = math.fsum(
        times / event.sigma**2
        for event, times in purchase.items()
        if isinstance(event, DiscreteGaussian)
    )
    if spent_precision:
        cells = _CELLS[-1]
        noise = needed_noise(cells, Budget(whole.epsilon, whole.delta - offer.reveals))
        precision = cells * noise**-2 - spent_precision
        for share in _SHARES:
            release = DiscreteGaussian((share * precision / cells) ** -0.5)
            epsilon = epsilon_of({release: cells}, whole.delta)
            remaining = Budget(min(whole.epsilon, epsilon), whole.delta)
            if _fits(purchase, remaining, whole):
                return remaining
    remaining = Budget(whole.epsilon * (1 - SCHEMA_SHARE), whole.delta / 2)
    if not whole.delta:
        return remaining
    prices = (epsilon_of(_release(cells, remaining), whole.delta) for cells in _CELLS)
    return Budget(min(prices), whole.delta)


def _fits(purchase: Counter[DpEvent], remaining: Budget, whole: Budget) -> bool:
    """Whether the purchase and releases of any size are within the whole."""
    return all(
        epsilon_of(_release(cells, remaining) + purchase, whole.delta) <= whole.epsilon
        for cells in _CELLS
    )


def _release(cells: int, budget: Budget) -> Counter[DpEvent]:
    """The price of so many counts with the noise that this budget asks for."""
    return spend_of([(needed_noise(cells, budget), cells)])

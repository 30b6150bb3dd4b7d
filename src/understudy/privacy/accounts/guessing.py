"""What a price means to one person: how often whoever sees the release guesses right whether they took part.

(ε, δ)-differential privacy bounds the share of right guesses, where being in or out are equally likely, by
(e^ε + δ) / (1 + e^ε) (Kairouz, Oh, Viswanath 2015). A run has such a bound at every δ. The least of them is exact: it
stands where δ is the distance of the two worlds.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from understudy.privacy.accounts.budget import ADJACENCY

_LEAST, _MOST = math.log(1e-6), math.log(0.999)  # of δ, as logarithms


def right_at(epsilon: float | None, delta: float) -> float:
    """The share of right guesses that one (ε, δ) allows at most; no price (None) → 1."""
    if epsilon is None or epsilon == math.inf:
        return 1.0
    other = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return 1 - other + delta * other


def right_guesses(price: Callable[[float], float]) -> float:
    """The largest share of right guesses, from ε at each δ (any search is sound); no finite price → 1."""
    from scipy.optimize import minimize_scalar  # which a ledger's own commands do without

    def bound(log_delta: float) -> float:
        return right_at(price(math.exp(log_delta)), math.exp(log_delta))

    found = minimize_scalar(bound, bounds=(_LEAST, _MOST), method="bounded", options={"xatol": 0.03})
    return min(1.0, float(found.fun), bound(_LEAST))


def stated_guesses(statement: Mapping[str, Any]) -> float:
    """The largest share that a run's statement tells, against whomever; by its (ε, δ) where it is of an older form."""
    person = statement["person"]
    told = person.get("right_guesses") or {who: right_at(e, person["delta"]) for who, e in person["epsilon"].items()}
    if not 0.5 <= (share := max(map(float, told.values()))) <= 1.0:
        raise ValueError(f"{share} is no share of right guesses")
    return share


def in_words(share: float, adjacency: str = ADJACENCY) -> str:
    """That share as a sentence, rounded up; of what, by what the two worlds differ in."""
    what = "whether one person took part" if adjacency == ADJACENCY else f"between two worlds ({adjacency})"
    of_hundred = min(100, math.ceil(share * 100 - 1e-9))
    return f"Whoever guesses {what} is right at most {of_hundred} of 100 times, 50 being a coin."

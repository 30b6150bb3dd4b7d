"""How the price of a run is to be read, as a holder knows it by itself; kept in its
ledger when it first pays.

A statement's ε follows from the uses of rows, and from what these facts say: over which
parties uses compose, what one person means, who is believed. A server writes the
statement, so a holder that signs it compares it with its own record of them
(`evidence.claims`).
"""

from dataclasses import asdict, dataclass
from typing import Any

from understudy.ground.check import finite
from understudy.privacy.accounts.budget import ADJACENCY, Budget


@dataclass(frozen=True, kw_only=True)
class PriceTerms:
    """The facts of one run at one holder, named as in `PrivacyStatement`. `budgets`:
    what the protocol may cost, and what the run may cost with all that is bought for
    it, where that is more. `people`: how many this holder stated to the run; None where
    it did not.
    """

    protocol: str
    budgets: tuple[Budget, ...]
    noise: str
    same_people: bool
    people: int | None = None
    rehearsal: tuple[str, ...] = ()
    adjacency: str = ADJACENCY
    max_holders_per_person: int = 1
    one_release: bool = False
    common_sample: bool = False
    local: bool = False
    coalition: str = ""
    unguarded: tuple[str, ...] = ()
    # what the holder's schema says of having been drafted from rows
    drafted: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "budgets": [
                budget.to_dict() | {"epsilon": finite(budget.epsilon)}
                for budget in self.budgets
            ],
            "rehearsal": list(self.rehearsal),
            "unguarded": list(self.unguarded),
            "drafted": list(self.drafted),
        }

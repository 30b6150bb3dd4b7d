"""The most that a holder lets anyone learn about one of its people."""

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

from understudy.ground.check import one_of, positive
from understudy.ground.errors import ConfigError, PrivacyWarning

AGAINST = ("anyone", "outsider")
ADJACENCY = "add or remove one person, with all their rows"
USUAL_DELTA = 1e-6  # where an ε alone was given: below one over the number of people, up to a million of them


@dataclass(frozen=True)
class Budget:
    """A limit on ε at a δ, for add/remove one person, over everything that a ledger ever records.

    `against="anyone"` binds what the server and the other parties learn, and with them everyone. "outsider"
    binds only what somebody learns who sees the release and nothing of the training: for batches drawn from a
    seed that the server and the parties share, where sampling hides nothing from them.
    Edges: δ=0 allows pure mechanisms alone; ε=infinity, for rehearsals on public rows, allows everything.
    """

    epsilon: float
    delta: float
    against: str = "anyone"

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            positive(epsilon=self.epsilon)
        if isinstance(self.delta, bool) or not isinstance(self.delta, int | float) or not 0 <= self.delta < 1:
            raise ConfigError(f"delta must be 0 or above and below 1, not {self.delta!r}.")
        one_of(AGAINST, against=self.against)

    @classmethod
    def of(cls, budget: "Budget | float") -> "Budget":
        """The budget itself; of a number, that ε at the usual δ."""
        return budget if isinstance(budget, Budget) else cls(budget, USUAL_DELTA)

    def __str__(self) -> str:
        return f"ε={self.epsilon:g} at δ={self.delta:g} against {self.against}"

    def warn_of_delta(self, holder: str, people: int) -> None:
        """A PrivacyWarning where δ is so large that it says little."""
        if self.delta * people >= 1:  # so written, nobody at all is no error
            warnings.warn(
                f"{holder}: δ = {self.delta:g} is not below 1/{people:,}: it would allow publishing one person's row "
                "outright. Choose a smaller δ.",
                PrivacyWarning,
                stacklevel=3,
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

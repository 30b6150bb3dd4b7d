"""Who is asked in each round: at random, over all parties, among those below the cap.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1, line 2, with the t_r participations of DP-Fed-WAE
(Jiang, dissertation, TUM 2024, chapter 4) as `cap`.
Differs from the papers: people near their cap are kept for later where a plain draw would leave a last round
without enough of them.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import whole
from understudy.ground.errors import BudgetExceeded, ConfigError


class Cohorts:
    """The cohorts of a run, and how often each person was asked so far (`asked`).

    Guarantee: nobody is asked more than `cap` times, and every round finds a full cohort. The draw follows from
    the seed, the round and who was asked before; how people are spread over parties does not matter.
    Edges: too few people for so many reports → ConfigError, which says how many are missing. A party that `leave`s
    takes its people along: they are drawn no more, and a later round may find too few → BudgetExceeded.
    """

    def __init__(self, hosted: Mapping[str, int], *, rounds: int, cohort: int, cap: int, seed: int) -> None:
        whole(rounds=rounds, cohort=cohort, cap=cap)
        self.hosted, self.rounds, self.cohort, self.cap, self.seed = dict(hosted), rounds, cohort, cap, seed
        people = sum(self.hosted.values())
        if (needed := math.ceil(rounds * cohort / min(cap, rounds))) > people:
            least = math.ceil(rounds * cohort / people) if people >= cohort else None
            advice = f"Raise cap to {least}, or ask fewer." if least else "Ask fewer."
            raise ConfigError(
                f"rounds={rounds} of cohort={cohort} need {rounds * cohort:,} reports, and nobody gives more than "
                f"cap={cap}: that takes {needed:,} people, and there are {people:,}. Missing: {needed - people:,}. "
                f"{advice} Nothing was charged."
            )
        self.asked = np.zeros(people, dtype=np.int32)
        self._here = np.ones(people, dtype=np.bool_)

    def pick(self, round: int) -> dict[str, Tensor]:
        """The cohort of this round, counted from 1, by party; a party with nobody in it is left out.

        Edges: rounds that were asked and lost may leave too few people below the cap → BudgetExceeded.
        """
        rng, later = np.random.default_rng((self.seed, round)), self.rounds - round
        left = np.where(self._here, self.cap - self.asked, 0)
        able = np.flatnonzero(left > 0)
        if len(able) < self.cohort:
            raise BudgetExceeded(
                f"{len(able):,} people are below the cap of {self.cap} reports, and a cohort is {self.cohort}. "
                "Nothing was sent."
            )
        drawn = rng.choice(able, self.cohort, replace=False)
        # Whoever has no more reports left than rounds follow is missed later: so many of them can be spared now.
        spare = max(0, int(np.minimum(left, later).sum(dtype=np.int64)) - later * self.cohort)
        if np.count_nonzero(left[drawn] <= later) > spare:
            scarce, plenty = able[left[able] <= later], able[left[able] > later]
            many = min(len(plenty), self.cohort - spare)
            parts = ((plenty, many), (scarce, self.cohort - many))
            drawn = np.concatenate([rng.choice(part, size, replace=False) for part, size in parts if size])
        drawn.sort()
        self.asked[drawn] += 1
        bounds = np.cumsum([0, *self.hosted.values()])
        cuts = np.searchsorted(drawn, bounds)
        local = {name: drawn[cuts[i] : cuts[i + 1]] - bounds[i] for i, name in enumerate(self.hosted)}
        return {name: torch.from_numpy(places) for name, places in local.items() if len(places)}

    def leave(self, name: str) -> None:
        """This party is gone. What its people were asked stays counted."""
        names = list(self.hosted)
        if name in names:
            bounds = np.cumsum([0, *self.hosted.values()])
            self._here[bounds[names.index(name)] : bounds[names.index(name) + 1]] = False

    def by_party(self) -> dict[str, NDArray[np.int32]]:
        """How often each of a party's people was asked."""
        parts = np.split(self.asked, np.cumsum(list(self.hosted.values()))[:-1])
        return dict(zip(self.hosted, parts, strict=True))

    def most(self) -> dict[str, int]:
        """How often each party's busiest person was asked."""
        return {name: int(part.max(initial=0)) for name, part in self.by_party().items()}

"""The result of an attack: never a score alone, always beside a control and a baseline.

Giomi et al., "A unified framework for quantifying privacy risk in synthetic data"
(PoPETs 2023), §3. *Attack*: what the attacker reaches against people in the training
rows, from the synthetic table. *Control*: the same where nothing about a person can
have leaked (people outside the training rows, or a table that never saw them): what the
distribution alone gives away, and what the sample sizes do. *Baseline*: guessing
without the table; an attack below it says nothing about privacy. The risk is what the
attack adds to the control, on the scale of what was left to add: (attack − control) /
(1 − control), cut to [0, 1], with the two intervals propagated to first order.

Whether an attack beats its control is not read off the intervals but tested (`rates`):
every measure carries `p`, how easily it would have done as well by luck. Attacks that
stand together are judged together, by `judge`: then the chance that any of them is
called a success where nothing leaked is at most `LEVEL`, however many there are.

Guarantee: none. Edges: what could not be run, or whose control is too small, says why,
in place of a number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.attacks.rates import (
    FALSE_POSITIVE_RATE,
    LEVEL,
    Rate,
    Scores,
    auc,
    holm,
    membership_statistics,
    permutation_p_values,
    top_half,
    tpr,
)
from understudy.evaluate.figure import FigureKey
from understudy.ground.check import nearest
from understudy.ground.errors import ConfigError

# people in a control: beside fewer, what is leaked of many cannot be told from luck
MIN_CONTROL = 20


@dataclass(frozen=True)
class Measure:
    """One count of an attack's success. `p`: how easily by luck it beats its control so
    well; `adjusted`: among all.
    """

    name: str
    attack: Rate
    control: Rate
    baseline: Rate
    p: float
    adjusted: float | None = None

    @property
    def risk(self) -> Rate | None:
        """(attack − control) / (1 − control); None where the control always
        succeeds.
        """
        attack = self.attack
        control = self.control
        if control.value >= 1:
            return None
        remaining = 1 - control.value
        value = (attack.value - control.value) / remaining
        slope = (1 - attack.value) / remaining**2
        low = value - math.hypot(
            (attack.value - attack.low) / remaining,
            (control.high - control.value) * slope,
        )
        high = value + math.hypot(
            (attack.high - attack.value) / remaining,
            (control.value - control.low) * slope,
        )
        return Rate(*(min(1.0, max(0.0, x)) for x in (value, low, high)))

    @property
    def leaks(self) -> bool:
        """Whether the attack beats its control by more than chance, at `LEVEL` for all
        that it was judged with.
        """
        return (self.p if self.adjusted is None else self.adjusted) <= LEVEL

    def __str__(self) -> str:
        return (
            f"{self.name} {self.attack}, control {self.control}, baseline "
            f"{self.baseline}, "
            f"risk {self.risk or 'unknown, because the control always succeeds'}, "
            f"by luck {self.p if self.adjusted is None else self.adjusted:.3f}"
        )


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack and how well it went by each measure, the leading one first; or why it
    could not be run.
    """

    key: FigureKey
    measures: tuple[Measure, ...] = ()
    reason: str = ""
    note: str = ""
    control: int | None = None

    def __post_init__(self) -> None:
        if bool(self.measures) == bool(self.reason):
            raise ConfigError(
                f"attack {self.name}: give either measures or the reason why there "
                "are none."
            )

    @classmethod
    def absent(cls, key: FigureKey, reason: str) -> Self:
        return cls(key=key, reason=reason)

    @property
    def name(self) -> str:
        return self.key.name

    def __getitem__(self, name: str) -> Measure:
        by_name = {measure.name: measure for measure in self.measures}
        if name not in by_name:
            why = (
                f" It cannot be computed, because {self.reason}"
                if self.reason
                else nearest(name, by_name)
            )
            raise ConfigError(f'attack {self.name} has no measure "{name}".{why}')
        return by_name[name]

    @property
    def leaks(self) -> bool:
        return any(measure.leaks for measure in self.measures)

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name}: cannot be computed, because {self.reason}"
        return "\n".join(f"{self.name}: {measure}" for measure in self.measures)


def judge(attacks: Sequence[Attack]) -> tuple[Attack, ...]:
    """The attacks of one page, judged together by all their measures (Holm); too small
    a control is a reason.
    """
    judged = list(attacks)
    for index, attack in enumerate(attacks):
        people = attack.control
        if attack.measures and people is not None and people < MIN_CONTROL:
            reason = (
                f"its control has {people} people, and with fewer than {MIN_CONTROL} a "
                "leak cannot be told from luck."
            )
            judged[index] = Attack.absent(attack.key, reason)
    adjusted = iter(
        holm([measure.p for attack in judged for measure in attack.measures])
    )
    return tuple(
        replace(
            attack,
            measures=tuple(
                replace(m, adjusted=next(adjusted)) for m in attack.measures
            ),
        )
        for attack in judged
    )


def ranking(
    members: Scores,
    outsiders: Scores,
    control: tuple[Scores, Scores],
    *,
    strata: NDArray[Any] | None = None,
    seed: int = 0,
) -> tuple[Measure, ...]:
    """`acc`, `auc` and `tpr_at_1pct` of the scores of as many members as outsiders.
    `control` holds the scores of the same people where no member can have leaked;
    `strata` says of each, members first, of which kind it is, where as many of each
    kind were wished for. 1 % of fewer than 100 outsiders is nobody: no `tpr_at_1pct`
    then.
    """
    took_part = np.arange(len(members) + len(outsiders)) < len(members)
    attacked = membership_statistics(members, outsiders)
    controlled = membership_statistics(*control)
    p_values = permutation_p_values(
        lambda assignments: attacked(assignments) - controlled(assignments),
        took_part,
        strata=strata,
        seed=seed,
    )
    measures = (
        Measure(
            "acc",
            top_half(members, outsiders),
            top_half(*control),
            Rate.from_exact(0.5),
            p_values[0],
        ),
        Measure(
            "auc",
            auc(members, outsiders),
            auc(*control),
            Rate.from_exact(0.5),
            p_values[1],
        ),
        Measure(
            "tpr_at_1pct",
            tpr(members, outsiders),
            tpr(*control),
            Rate.from_exact(FALSE_POSITIVE_RATE),
            p_values[2],
        ),
    )
    return (
        measures
        if round(FALSE_POSITIVE_RATE * len(outsiders), 9) >= 1
        else measures[:2]
    )

"""Everybody reports once, in the first of two rounds or in the second: one report a person, class means.

Guarantee: who reports in which round is drawn from public randomness; a person is asked in one of them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.privacy.accounts.accounting import PureDp, Spend
from understudy.protocols.core import Parties
from understudy.protocols.people.host import Reported
from understudy.protocols.people.survey import Survey

LAW = "of a random row of a random person"


class TwoRounds(Survey):
    """The server's side: whom it asks in which turn, and what they sent, as it came."""

    who: dict[str, tuple[Tensor, Tensor]]  # of each party, by round
    turns: list[tuple[int, int]]  # the round, and the first of the people who are asked

    def __init__(self, config: Any, parties: Parties, schema: Any, checkpoint: Path | None) -> None:
        self.answers: list[dict[str, Tensor]] = []  # of each turn
        self.chosen: list[
            dict[str, Tensor]
        ] = []  # and what they are about, where people drew that by themselves
        super().__init__(config, parties, schema, checkpoint)

    def divide(self, share: float) -> None:
        """A `share` of all people are asked in the first round, `config.batch` of a party at a time."""
        self.who = in_two(self.hosted, share, self.config.seed)
        self.turns = [
            (stage, start)
            for stage in (0, 1)
            for start in range(0, max(len(who[stage]) for who in self.who.values()), self.config.batch)
        ]

    def hear(self, asks: Mapping[str, Any], answers: Mapping[str, Reported]) -> None:
        values: dict[str, Any] = {name: reply.reports.value for name, reply in answers.items()}
        drawn = {name: chosen(value, len(asks[name].people)) for name, value in values.items()}
        self.chosen.append({name: which for name, which in drawn.items() if which is not None})
        self.answers.append(
            {
                name: sent_bytes(value if drawn[name] is None else value["reports"])
                for name, value in values.items()
            }
        )

    def reported(self) -> dict[str, Any]:
        return {"answers": self.answers, "chosen": self.chosen}

    def take(self, state: Mapping[str, Any]) -> None:
        self.answers, self.chosen = state["answers"], state["chosen"]

    @property
    def asked(self) -> dict[str, Spend]:
        return {name: {PureDp(self.config.epsilon_total): 1} for name in self.begun}

    @property
    def bytes(self) -> int:
        """Of all that people sent."""
        return sum(len(value) for turn in self.answers for value in turn.values())


def in_two(hosted: Mapping[str, int], share: float, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """For each party its people of a first round, a `share` of all, and of a second: drawn over all parties from public
    randomness.
    """
    total = sum(hosted.values())
    early = np.zeros(total, dtype=bool)
    early[np.random.default_rng((seed, 0)).permutation(total)[: round(share * total)]] = True
    parts = np.split(early, np.cumsum(list(hosted.values()))[:-1])
    return {
        name: (torch.from_numpy(np.flatnonzero(part)), torch.from_numpy(np.flatnonzero(~part)))
        for name, part in zip(hosted, parts, strict=True)
    }


def chosen(value: Any, people: int) -> Tensor | None:
    """What each of those who came, up to so many, has drawn by themselves, where a party says it: int64, (n,)."""
    which = value.get("which") if isinstance(value, dict) and "reports" in value else None
    fits = (
        isinstance(which, Tensor) and which.dtype == torch.int64 and which.ndim == 1 and len(which) <= people
    )
    return which if fits else None


def sent_bytes(value: Any) -> Tensor:
    """What a party sent, as bytes; none where it is something else."""
    fits = isinstance(value, Tensor) and value.dtype == torch.uint8 and value.ndim == 1
    return value if fits else torch.zeros(0, dtype=torch.uint8)

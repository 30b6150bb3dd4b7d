"""The settings of visits: checked alike by the server and by every holder."""

from dataclasses import dataclass
from typing import Any

from understudy.data.rules import read_rules
from understudy.ground.check import a_seed, positive, whole
from understudy.ground.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Config:
    """`kinds`: how many kinds of people the fit may tell apart; `chains`: how many chains of events these share;
    `states`: kinds of events of each chain.

    `steps` and `rate` are the fit's.
    `rules`: what every event keeps with its person, besides the rules of the schemas (`data/rules.py`), where columns
    are split. Nothing is measured for it: the fit knows what they forbid, and what is drawn keeps them.
    `most_holders`: how many holders may hold the same person; the noise hides such a person, too.
    ε holds when up to `colluding` of the holders pool what they know. The run continues without parties that go away
    before the release, over rows, as long as `at_least` are left (None: all must stay). `chunk`: people per message,
    where columns are split.
    """

    kinds: int = 256
    chains: int = 256
    states: int = 6
    steps: int = 1200
    rate: float = 0.2
    rules: tuple[dict[str, Any], ...] = ()
    colluding: int = 1
    at_least: int | None = None
    most_holders: int = 1
    chunk: int = 1 << 15
    private: bool = True
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        whole(kinds=self.kinds, chains=self.chains, states=self.states, steps=self.steps)
        whole(colluding=self.colluding, most_holders=self.most_holders, chunk=self.chunk)
        positive(rate=self.rate)
        object.__setattr__(self, "rules", tuple(rule.to_dict() for rule in read_rules(self.rules)))
        a_seed(seed=self.seed)
        if self.at_least is not None:
            whole(at_least=self.at_least)
        if type(self.private) is not bool:
            raise ConfigError(f"private is true or false, not {self.private!r}.")

"""The settings of `one-report`."""

from dataclasses import dataclass

from understudy.ground.check import a_seed, in_range, whole
from understudy.ground.errors import ConfigError
from understudy.models.tables.mixture import MOST_COMPONENTS
from understudy.privacy.local.reporter import check_epsilon


@dataclass(frozen=True, kw_only=True)
class Config:
    """`epsilon_total` is the price of a person's one report, and so of the run. `target` names the column that the
    others are to be good for, such as a label; without it all pairs of columns count alike.

    `share`: of the people, who are asked about single columns; 1: all are, and columns stay independent; None: by the
    rule of `plan`. `liars`: which share of the reports may be made up; above 0 the fit trusts single reports less.
    `components`,
    `steps`: of the mixture and its fit. `batch`: people of a party who are asked at a time. `at_least`: with so many
    parties the run continues when others stay away; None: all have to stay. `most_holders`: how many parties may
    hold the same person, as the holders state it; their prices compose.
    """

    epsilon_total: float = 8.0
    target: str | None = None
    share: float | None = None
    liars: float = 0.0
    components: int = 128
    steps: int = 400
    batch: int = 1 << 14
    at_least: int | None = None
    most_holders: int = 1
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon_total)
        if self.target is not None and not isinstance(self.target, str):
            raise ConfigError(f"target must name a column, not {self.target!r}. Nothing was charged.")
        if self.share is not None:
            in_range(0, 1, share=self.share)
        in_range(0, 0.5, liars=self.liars)
        whole(components=self.components, steps=self.steps, batch=self.batch)
        in_range(1, MOST_COMPONENTS, components=self.components)
        whole(at_least=1 if self.at_least is None else self.at_least, most_holders=self.most_holders)
        a_seed(seed=self.seed)

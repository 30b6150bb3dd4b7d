"""The settings of `one-report`."""

from dataclasses import dataclass

from understudy.ground.settings import WHOLE, Declared, Takes, between, setting, whole_to
from understudy.models.tables.mixture import MOST_COMPONENTS
from understudy.privacy.local.reporter import check_epsilon
from understudy.protocols.core import settings as usual


@dataclass(frozen=True, kw_only=True)
class Config(Declared):
    """`epsilon_total` is the price of a person's one report, and so of the run. `target` names the column that the
    others are to be good for, such as a label; without it all pairs of columns count alike.

    `share`: of the people, who are asked about single columns; 1: all are, and columns stay independent; None: by the
    rule of `plan`. `liars`: which share of the reports may be made up; above 0 the fit trusts single reports less.
    `components`,
    `steps`: of the mixture and its fit. `batch`: people of a party who are asked at a time. `at_least`: with so many
    parties the run continues when others stay away; None: all have to stay. `most_holders`: how many parties may
    hold the same person, as the holders state it; their prices compose.
    """

    epsilon_total: float = setting(
        8.0, Takes("above 0", check_epsilon), "price of a person's one report, and so of the run"
    )
    target: str | None = usual.target()
    share: float | None = setting(
        None,
        between(0, 1),
        "share of the people who are asked about single columns; without it by ε; 1: no pairs at all",
    )
    liars: float = setting(
        0.0, between(0, 0.5), "share of the reports that may be made up: single ones then weigh less"
    )
    components: int = setting(128, whole_to(MOST_COMPONENTS), "products in the mixture that is fitted")
    steps: int = setting(400, WHOLE, "the most steps of the fit")
    batch: int = setting(1 << 14, WHOLE, "people who are asked at a time")
    at_least: int | None = usual.at_least()
    most_holders: int = usual.most_holders()
    device: str = usual.device()
    seed: int = usual.seed()

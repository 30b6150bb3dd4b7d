"""The settings of `one-report`."""

from dataclasses import dataclass

from understudy.ground.settings import WHOLE, Declared, Takes, between, setting, whole_to
from understudy.models.tables.mixture import MOST_COMPONENTS
from understudy.privacy.local.reporter import check_epsilon
from understudy.protocols.core import settings as usual


@dataclass(frozen=True, kw_only=True)
class Config(Declared):
    """Without a `target` all pairs of columns count alike; without a `share` it is by the rule of `plan`. The prices of
    a person's `most_holders` compose.
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

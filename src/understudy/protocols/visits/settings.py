"""The settings of visits: checked alike by the server and by every holder."""

from dataclasses import dataclass
from typing import Any

from understudy.ground.settings import POSITIVE, WHOLE, setting
from understudy.protocols.core import settings as usual
from understudy.protocols.core.settings import RULES, OverColumns, OverRows


@dataclass(frozen=True, kw_only=True)
class Config(OverRows, OverColumns):
    """Nothing is measured for `rules`: the fit knows what they forbid, and what is drawn keeps them."""

    kinds: int = setting(256, WHOLE, "how many kinds of people the fit may tell apart")
    chains: int = setting(256, WHOLE, "how many chains of events these share")
    states: int = setting(6, WHOLE, "kinds of events of each chain")
    steps: int = setting(1200, WHOLE, "the most steps of the fit")
    rate: float = setting(0.2, POSITIVE, "learning rate of the fit")
    rules: tuple[dict[str, Any], ...] = setting(
        (),
        RULES,
        "what every event keeps with its person, besides the rules of the schemas, where columns are split",
    )
    device: str = usual.device()
    seed: int = usual.seed()

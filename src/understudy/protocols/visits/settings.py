"""The settings of visits: checked alike by the server and by every holder."""

from dataclasses import dataclass
from typing import Any

from understudy.ground.settings import POSITIVE, WHOLE, Declared, setting
from understudy.protocols.core import settings as usual
from understudy.protocols.core.settings import RULES


@dataclass(frozen=True, kw_only=True)
class Config(Declared):
    """Nothing is measured for `rules`: the fit knows what they forbid, and what is drawn keeps them. The noise hides a
    person who is with `most_holders` of the holders, too. Over rows the run continues without parties that go away
    before the release, as long as `at_least` are left.
    """

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
    colluding: int = usual.colluding()
    at_least: int | None = usual.at_least()
    most_holders: int = usual.most_holders()
    chunk: int = usual.chunk()
    private: bool = usual.private()
    device: str = usual.device()
    seed: int = usual.seed()

"""People who keep the rules, or who meet a condition, with their events of one kind or several, from chains.

Guarantee: whoever is drawn keeps all rules and meets the condition: all are looked at, and who does not is drawn again.
Edges: what has a closed form (`people_law`) is drawn as it is, however rare. The time itself, and an order between a
person's column and an event's, are left to drawing again, with a bound on the work; a condition that nobody meets, or
that is too rare for that → ConfigError.
"""

from typing import Any

import numpy as np
import pandas as pd

from understudy.answers.cases import Split
from understudy.answers.drawn_people import Drawn, meets
from understudy.answers.kinds_of_events import TooManyCasesError
from understudy.answers.people_law import Network, PeopleLaw
from understudy.data.conditions import columns, parse
from understudy.data.encoding.codec import Uniform
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.data.visits.frames import declared
from understudy.ground.errors import ConfigError

_MOST_DRAWS = 1 << 20  # people, for one question
_FIRST = 1 << 12  # after which it is seen whether these will do


def people_where(
    network: Network, schema: VisitSchema | SeveralVisits, where: str | None, n: int, rng: Uniform
) -> tuple[pd.DataFrame, ...]:
    """`n` people who keep the rules and meet the condition, and their events of each kind.

    `attrs["probability"]` is what the model, given the rules, gives the condition, `attrs["answer"]` whether that is
    exact, or counts what is left to drawing among draws; `attrs["kept"]` is the share of draws that are kept.
    """
    split = Split(schema, None if where is None else parse(where))
    for name in () if split.condition is None else columns(split.condition):
        schema.row_schema.column(name)
    law, given, told = _law(network, split)
    if law.probability == 0:
        asked = repr(where) if where is not None else "the rules"
        raise ConfigError(f"nobody meets {asked}: the model gives it the probability 0. Nothing was drawn.")
    found, kept = _kept(n, law, split, where, rng)
    each = [
        declared(found.people, events, starts, part)
        for part, events, starts in zip(schema.parts, found.events, found.starts, strict=True)
    ]
    frames = (each[0][0], *(events for _, events in each))
    said: dict[str, Any] = {"kept": kept}
    if where is not None:
        exact = told and not split.later
        said["answer"] = "exact" if exact else "counted among draws"
        said["probability"] = law.probability / given * (1.0 if exact else kept)
    for frame in frames:
        frame.attrs |= said
    return frames


def _law(network: Network, split: Split) -> tuple[PeopleLaw, float, bool]:
    """What is drawn from: what is asked, or where that is too much to tell, the rules alone, or nothing.

    Besides, what it gives the rules, and whether what is asked is told by it.
    """
    rules: PeopleLaw | None = None
    if split.condition is None or split.schema.rules:
        try:
            rules = PeopleLaw(network, Split(split.schema, None))
        except TooManyCasesError:
            return PeopleLaw(network, split, told=False), 1.0, False
    if split.condition is None:
        assert rules is not None
        return rules, rules.probability, True
    given = 1.0 if rules is None else rules.probability
    try:
        return PeopleLaw(network, split), given, True
    except TooManyCasesError:
        return PeopleLaw(network, split, told=False) if rules is None else rules, given, False


def _kept(n: int, law: PeopleLaw, split: Split, where: str | None, rng: Uniform) -> tuple[Drawn, float]:
    """So many people who keep and meet all, and the share of draws that do."""
    found, tried = law.draw(0, rng), 0
    have, asked = 0, n
    while True:
        drawn = law.draw(asked, rng)
        good = np.flatnonzero(meets(drawn, split))
        found, tried, have = found.with_(drawn.take(good)), tried + asked, have + len(good)
        if have >= n:
            return found.take(np.arange(n)), have / max(tried, 1)
        if tried >= _MOST_DRAWS or (tried >= _FIRST and have / tried * _MOST_DRAWS < n / 2):
            what = " and ".join(
                [repr(where)] * (where is not None) + ["the rules"] * bool(split.schema.rules)
            )
            raise ConfigError(
                f"{have:,} of {tried:,} draws meet {what}: {n:,} people would take too long. Nothing was drawn."
            )
        asked = min(
            _MOST_DRAWS // 8, max(64, _FIRST if not have else int(1.1 * (n - have) * tried / have) + 1)
        )

"""A figure of quality on an offer's card: how often a classifier made of it alone is right about the silo's people.

It is computed from rows, so it is a release as any other: two counts under whole-number noise, of the people whose
class is said right, and of all people. A person counts with one row, the first, and moves each count by 1 at most. The
card's `quality` has

    right, people     the counts, as released          noise        the σ of each
    epsilon, delta    what they cost by themselves     accuracy     right / people, within 0 and 1
    low, high         where the accuracy without noise is in 95 of 100 cases (Fieller 1954): the noise alone

The card's own ε is the price of the offer and its figure together. The people are those of whom the offer was made: of
others the classifier may know less.

Guarantee: reads what was offered alone; loads no accountant. Edges: where noise hides how many people there are, the
interval is 0 to 1; that the figure is true is the silo's word.
"""

import math
from collections.abc import Mapping
from typing import Any

from understudy.ground.errors import ArtefactError, ConfigError, PrivacyError
from understudy.models.moments.offered import OfferedMoments
from understudy.models.moments.released import COUNT
from understudy.models.tables.offered import OfferedGram
from understudy.protocols.sgde.sums import FAR, NEAR, gaussian_epsilon

LEAST, MOST = 1e-3, 100.0  # of a figure's ε: with less, noise is thousands of people
MOVED = 2  # counts that a person moves by 1
SUMS = ("gram", "moments")  # kinds of offers that have one
_KEYS = ("right", "people", "noise", "epsilon", "delta", "accuracy", "low", "high")
_MOST = 1 << 52  # of a count
_Z = 1.96
_DIGITS = 4


def quality_of(right: int, people: int, *, noise: float, epsilon: float, delta: float) -> dict[str, Any]:
    """What a card says of these counts."""
    low, high = _interval(right, people, _Z * noise)
    said = {"accuracy": _share(right / max(people, 1)), "low": low, "high": high}
    return {
        "right": right, "people": people, "noise": noise, "epsilon": epsilon, "delta": delta,
        **{name: round(value, _DIGITS) for name, value in said.items()},
    }  # fmt: skip


def _interval(right: int, people: int, far: float) -> tuple[float, float]:
    """All shares a for which right − a · people is within `far` · √(1 + a²), from 0 to 1."""
    if people <= far:
        return 0.0, 1.0
    middle, size = float(right) * people, float(people) ** 2 - far**2
    beside = far * math.sqrt(float(right) ** 2 + size)
    return _share((middle - beside) / size), _share((middle + beside) / size)


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def check_quality(card: Mapping[str, Any]) -> None:
    """Whether a card's figure can be, and its noise is worth its ε. The rest of the card was checked.

    Edges: no figure is fine; other keys, or a figure of an offer that can have none → ConfigError; a price that is not
    that of the noise → PrivacyError; counts that people cannot have, or another accuracy than theirs → ArtefactError.
    """
    if "quality" not in card:
        return
    stated = card["quality"]
    if not isinstance(stated, Mapping) or set(stated) != set(_KEYS):
        raise ConfigError(f"an offer's quality has {', '.join(_KEYS)}. Nothing was exchanged.")
    if card["network"]["kind"] not in SUMS:
        raise ConfigError(
            f"a figure of quality is for sums alone ({', '.join(SUMS)}). Nothing was exchanged."
        )
    for name in _KEYS:
        kinds = int if name in ("right", "people") else (int, float)
        value = stated[name]
        if not isinstance(value, kinds) or isinstance(value, bool) or not -_MOST <= value <= _MOST:
            raise ArtefactError(f"{name}={value!r:.60} is no figure of quality. Nothing was exchanged.")
    _check_price(card, stated)
    right, people, far = stated["right"], stated["people"], FAR * stated["noise"]
    if min(right, people) < -far or right > people + math.sqrt(2) * far:
        raise ArtefactError(
            f"an offer's classifier is right about {right} of {people} people: nobody can have counted that. "
            "Nothing was exchanged."
        )
    own = quality_of(**{name: stated[name] for name in _KEYS[:5]})
    if wrong := [name for name in _KEYS[5:] if abs(stated[name] - own[name]) > 2 * 10**-_DIGITS]:
        raise ArtefactError(
            f"an offer's {wrong[0]} is {stated[wrong[0]]}, and its counts give {own[wrong[0]]}. Nothing was exchanged."
        )


def _check_price(card: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
    noise, price, delta = stated["noise"], stated["epsilon"], stated["delta"]
    worth = gaussian_epsilon(noise / math.sqrt(MOVED), delta) if noise > 0 and 0 < delta < 1 else math.inf
    if worth == math.inf or not abs(worth - price) <= NEAR * worth:
        raise PrivacyError(
            f"the noise of the offer's figure is worth ε={worth:.4g} at δ={delta:g}, and its card says ε={price:.4g}. "
            "Nothing was exchanged."
        )
    if delta != card["delta"] or price > card["epsilon"]:
        raise PrivacyError(
            f"the offer's figure costs ε={price:.4g} at δ={delta:g}, and the whole offer "
            f"ε={card['epsilon']:.4g} at δ={card['delta']:g}. Nothing was exchanged."
        )


def check_people(card: Mapping[str, Any], offer: OfferedGram | OfferedMoments, said: str) -> None:
    """ArtefactError where the figure is of another number of people than the sums beside it."""
    if "quality" not in card:
        return
    people = card["quality"]["people"]
    if isinstance(offer, OfferedMoments):
        classes, lost = offer.classes, abs(people) * offer.classes / COUNT  # averages are cut towards zero
        first = offer.first[: classes * (1 + offer.frame.features)].view(classes, -1)[:, 0]
        counted, sigma = float(first.double().sum()) / COUNT, offer.noise[0] / COUNT
    else:
        classes, lost = offer.sizes[offer.target], 0.0
        start = sum(offer.sizes[: offer.target])
        counted = float(offer.counts.diagonal()[start : start + classes].double().sum())
        sigma = offer.noise[0]
    far = FAR * math.hypot(card["quality"]["noise"], sigma * math.sqrt(classes))
    if abs(counted - people) > far + lost:
        raise ArtefactError(
            f"{said}: its figure of quality is of another number of people than its sums. Nothing was exchanged."
        )

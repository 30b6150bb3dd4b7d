"""Offers that are sums over people: that their noise is worth the ε on the card, that
people can have such sums, and a figure of quality beside them.

The σ of every release stand in the description. One person moves each release by a
known length, so that they give a Gaussian mechanism, and its ε at the card's δ is known
in closed form (`privacy/accounts/gaussian.py`): it must be the one on the card. That
the noise was drawn is the silo's word. Sums of n people lie within n times what one
person adds, and noise beside it is within `NOISE_DEVIATIONS` of σ (one draw in 10³² is
not).

A figure of quality says how often a classifier made of the offer alone is right about
the silo's people: two counts under whole-number noise, of the people whose class is
said right, and of all. A person counts with one row, the first, and moves each count by
1 at most. The card's `quality` has

    right, people     the counts, as released
    noise             the σ of each
    epsilon, delta    what they cost by themselves
    accuracy          right / people, within 0 and 1
    low, high         where the accuracy without noise is in 95 of 100 cases (Fieller
                      1954): the noise alone

The card's own ε is the price of the offer and its figure together. Where noise hides
how many people there are, the interval is 0 to 1; that the figure is true is the silo's
word.

Guarantee: reads what was offered alone; loads no accountant, so that the process that
looks at offers starts fast.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from understudy.data.encoding.frame import on_diagonal
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    Effect,
    PrivacyError,
    UnderstudyError,
)
from understudy.models.moments.released import (
    COUNT,
    ENERGY,
    FIRST,
    SCALE,
    SHADES,
    moments_sensitivity,
)
from understudy.privacy.accounts.gaussian import SMOOTHING_VARIANCE, closed_form_epsilon

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from understudy.models.offered import OfferedGram, OfferedMoments

# kinds that are sums over people, of all classes: a pool adds them
ADDED = ("moments", "gram")
NOISE_DEVIATIONS = 12.0  # deviations
# of a figure's ε: with less, noise is thousands of people
MIN_FIGURE_EPSILON = 1e-3
MAX_FIGURE_EPSILON = 100.0
FIGURE_COUNTS = 2  # counts of a figure that a person moves by 1
_EPSILON_TOLERANCE = 0.02  # of ε: accountants round
_MAX_SUM = 1 << 52  # of a sum: doubles hold it, and many are added
_KEYS = ("right", "people", "noise", "epsilon", "delta", "accuracy", "low", "high")
_Z = 1.96
_DIGITS = 4


def require(
    holds: bool, message: str, error: type[UnderstudyError] = ArtefactError
) -> None:
    """Refuse an offer, in words."""
    if not holds:
        raise error(message, effect=Effect.NOTHING_EXCHANGED)


def check_noise(card: Mapping[str, Any]) -> None:
    """PrivacyError unless the noise of the sums on this card is worth its ε, at its δ.
    Other offers state no noise.
    """
    network = card["network"]
    if network["kind"] == "moments":
        sensitivities = (FIRST, *map(moments_sensitivity, network["scales"]))
        releases = [
            (sensitivity, sigma**2 - SMOOTHING_VARIANCE, 1)
            for sensitivity, sigma in zip(sensitivities, network["noise"], strict=True)
        ]
    elif network["kind"] == "gram":
        m = len(network["sizes"])
        cells = (m, m * (m - 1) // 2)  # of the class, and others
        releases = [
            (1.0, sigma**2, count)
            for sigma, count in zip(network["noise"], cells, strict=True)
        ]
    else:
        return
    if "quality" in card:
        releases.append((1.0, card["quality"]["noise"] ** 2, FIGURE_COUNTS))
    _require_worth(
        releases, card["epsilon"], card["delta"], "the noise that the offer states"
    )


def _require_worth(
    releases: Iterable[tuple[float, float, int]],
    price: float,
    delta: float,
    described: str,
) -> None:
    """Of all releases together: of each what a person moves, the variance, and how
    often.
    """
    total = 0.0
    for sensitivity, variance, times in releases:
        if times:
            total += times * sensitivity**2 / variance if variance > 0 else math.inf
    worth = closed_form_epsilon(1 / math.sqrt(total), delta)
    message = (
        f"{described} is worth ε={worth:.4g} at δ={delta:g}, and its card says "
        f"ε={price:.4g}."
    )
    require(
        worth < math.inf and abs(worth - price) <= _EPSILON_TOLERANCE * worth,
        message,
        PrivacyError,
    )


# A figure of quality


def quality_figure(
    right: int, people: int, *, noise: float, epsilon: float, delta: float
) -> dict[str, Any]:
    low, high = _accuracy_interval(right, people, _Z * noise)
    interval = {
        "accuracy": _clip_share(right / max(people, 1)),
        "low": low,
        "high": high,
    }
    return {
        "right": right,
        "people": people,
        "noise": noise,
        "epsilon": epsilon,
        "delta": delta,
        **{name: round(value, _DIGITS) for name, value in interval.items()},
    }


def _accuracy_interval(
    right: int, people: int, noise_bound: float
) -> tuple[float, float]:
    """All shares a in [0, 1] for which right − a · people is within `noise_bound` ·
    √(1 + a²).
    """
    if people <= noise_bound:
        return 0.0, 1.0
    middle = float(right) * people
    size = float(people) ** 2 - noise_bound**2
    half_width = noise_bound * math.sqrt(float(right) ** 2 + size)
    return _clip_share((middle - half_width) / size), _clip_share(
        (middle + half_width) / size
    )


def _clip_share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def check_quality(card: Mapping[str, Any]) -> None:
    """Whether a card's figure can be, and its noise is worth its ε. The rest of the
    card was checked. Edges: no figure is fine; other keys, or a figure of an offer that
    can have none → ConfigError; a price that is not that of the noise → PrivacyError;
    counts that people cannot have, or another accuracy than theirs → ArtefactError.
    """
    if "quality" not in card:
        return
    stated = card["quality"]
    has_keys = isinstance(stated, Mapping) and set(stated) == set(_KEYS)
    require(has_keys, f"an offer's quality has {', '.join(_KEYS)}.", ConfigError)
    is_sum = card["network"]["kind"] in ADDED
    require(
        is_sum,
        f"a figure of quality is for sums alone ({', '.join(ADDED)}).",
        ConfigError,
    )
    for name in _KEYS:
        kinds = int if name in ("right", "people") else (int, float)
        value = stated[name]
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        require(
            is_number and -_MAX_SUM <= value <= _MAX_SUM,
            f"{name}={value!r:.60} is no figure of quality.",
        )
    noise = stated["noise"]
    price = stated["epsilon"]
    delta = stated["delta"]
    variance = noise**2 if noise > 0 else 0.0
    _require_worth(
        [(1.0, variance, FIGURE_COUNTS)],
        price,
        delta,
        "the noise of the offer's figure",
    )
    costs = f"ε={price:.4g} at δ={delta:g}"
    whole = f"ε={card['epsilon']:.4g} at δ={card['delta']:g}"
    affordable = delta == card["delta"] and price <= card["epsilon"]
    require(
        affordable,
        f"the offer's figure costs {costs}, and the whole offer {whole}.",
        PrivacyError,
    )
    right = stated["right"]
    people = stated["people"]
    noise_bound = NOISE_DEVIATIONS * noise
    message = (
        f"an offer's classifier is right about {right} of {people} people: nobody can "
        "have counted that."
    )
    require(
        min(right, people) >= -noise_bound
        and right <= people + math.sqrt(2) * noise_bound,
        message,
    )
    recomputed = quality_figure(**{name: stated[name] for name in _KEYS[:5]})
    for name in _KEYS[5:]:
        agrees = abs(stated[name] - recomputed[name]) <= 2 * 10**-_DIGITS
        require(
            agrees,
            f"an offer's {name} is {stated[name]}, and its counts give "
            f"{recomputed[name]}.",
        )


# Sums that people can have


def check_sums(
    card: Mapping[str, Any], offer: "OfferedGram | OfferedMoments", described: str
) -> None:
    """ArtefactError unless people can have these sums, as many as the figure beside
    them says, if there is one.
    """
    sums = offer.state_dict().values()
    in_range = all(
        bool(((part <= _MAX_SUM) & (part >= -_MAX_SUM)).all()) for part in sums
    )
    require(in_range, f"{described}: a number beyond 2⁵² is no sum over people.")
    if _of_moments(offer):
        _check_moments(offer, described)
        first = offer.first[: offer.classes * (1 + offer.frame.features)].view(
            offer.classes, -1
        )[:, 0]
        counts = first.double() / COUNT
        sigma = offer.noise[0] / COUNT
        lost = offer.classes / COUNT  # of a person: averages are cut towards zero
    else:
        _check_counts(offer, described)
        start = sum(offer.sizes[: offer.target])
        counts = offer.counts.diagonal()[
            start : start + offer.sizes[offer.target]
        ].double()
        sigma = offer.noise[0]
        lost = 0.0
    if "quality" not in card:
        return
    people = card["quality"]["people"]
    noise_bound = NOISE_DEVIATIONS * math.hypot(
        card["quality"]["noise"], sigma * math.sqrt(len(counts))
    )
    agrees = abs(float(counts.sum()) - people) <= noise_bound + abs(people) * lost
    require(
        agrees,
        f"{described}: its figure of quality is of another number of people than its "
        "sums.",
    )


def _of_moments(offer: "OfferedGram | OfferedMoments") -> "TypeIs[OfferedMoments]":
    return offer.kind == "moments"


def _check_moments(offer: "OfferedMoments", described: str) -> None:
    frame = offer.frame
    classes = offer.classes
    noise = [NOISE_DEVIATIONS * sigma for sigma in offer.noise]
    n_first = classes * (1 + frame.features)
    table = offer.first[:n_first].view(classes, -1).double()
    max_people = table[:, 0] + noise[0]  # in units of COUNT: no class has more people
    everybody = float(table[:, 0].sum()) + noise[0] * math.sqrt(classes)
    energy = offer.first[n_first : n_first + 1].double()
    shades = offer.first[n_first + 1 :].double()
    diagonal = torch.where(on_diagonal(frame.features), math.sqrt(2), 1.0)
    of_class = (max_people / COUNT * offer.scales[1] ** 2)[:, None] + noise[
        2
    ] * diagonal
    bounds: list[tuple[str, Tensor, Tensor | float]] = [
        ("sums", table[:, 1:], (max_people * SCALE / COUNT + noise[0])[:, None]),
        ("energy", energy, everybody * ENERGY / COUNT + noise[0]),
        ("histograms", shades, everybody * SHADES / COUNT + noise[0]),
        (
            "second moments",
            offer.pooled.double(),
            everybody / COUNT * offer.scales[0] ** 2 + noise[1] * diagonal,
        ),
        ("second moments of a class", offer.cells.double(), of_class),
        (
            "centre",
            offer.centre.double().norm()[None],
            float(frame.reach + frame.features),
        ),
        ("radius", offer.radius.double(), 2.0 * frame.reach),
    ]
    require(
        bool((max_people >= 0).all()),
        f"{described}: a class has fewer people than none.",
    )
    for name, values, limit in bounds:
        require(
            bool((values.abs() <= limit).all()),
            f"{described}: the {name} are more than its people can have.",
        )
    plausible = (
        int(offer.radius) >= 1
        and float(torch.minimum(energy.min(), shades.min())) >= -noise[0]
    )
    require(
        plausible,
        f"{described}: the radius, the energy or a histogram is below what there can "
        "be.",
    )


def _check_counts(offer: "OfferedGram", described: str) -> None:
    counts = offer.counts.double()
    noise_bounds = NOISE_DEVIATIONS * offer.deviations
    column = torch.repeat_interleave(torch.tensor(offer.sizes))
    same_column = (column[:, None] == column) & ~torch.eye(
        len(column), dtype=torch.bool
    )
    require(
        bool((counts[same_column] == 0).all()),
        f"{described}: somebody has two levels of one column.",
    )
    require(
        bool((counts >= -noise_bounds).all()),
        f"{described}: a cell has fewer people than none.",
    )
    one_way = counts.diagonal()
    max_pairs = (
        torch.minimum(
            one_way[:, None] + noise_bounds.diagonal()[:, None],
            one_way + noise_bounds.diagonal(),
        )
        + noise_bounds
    )
    consistent = bool((counts <= max_pairs)[~same_column].all())
    require(
        consistent, f"{described}: a pair of levels has more people than one of them."
    )
    totals = torch.zeros(len(offer.sizes), dtype=torch.float64).index_add_(
        0, column, one_way
    )
    total_bounds = (
        torch.zeros_like(totals)
        .index_add_(0, column, noise_bounds.diagonal().square())
        .sqrt()
    )
    totals_agree = float((totals - total_bounds).max()) <= float(
        (totals + total_bounds).min()
    )
    require(totals_agree, f"{described}: two columns have different numbers of people.")

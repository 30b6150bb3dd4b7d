"""Offers that are sums over people: that their noise is worth the ε on the card, and that people can have such sums.

The σ of every release stand in the description. One person moves each release by a known length, so that they give a
Gaussian mechanism, and its ε at the card's δ is known in closed form (Balle, Wang, ICML 2018, Theorem 8): it must be
the one on the card. That the noise was drawn is the silo's word.

Sums of n people lie within n times what one person adds, and noise beside it is within `FAR` deviations (one draw in
10³² is not). What is beyond was not counted.

Guarantee: reads what was offered alone; loads no accountant, so that the process that looks at offers starts fast.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from understudy.data.encoding.triangles import on_diagonal
from understudy.ground.errors import ArtefactError, PrivacyError
from understudy.models.moments.offered import OfferedMoments
from understudy.models.moments.released import COUNT, ENERGY, FIRST, SCALE, SHADES, moments_sensitivity
from understudy.models.tables.offered import OfferedGram

FAR = 12.0  # deviations
NEAR = 0.02  # of ε: accountants round
_MOST = 1 << 52  # of a sum: doubles hold it, and many are added
_LARGEST = 500.0  # of ε
_SMOOTH = 9.0  # what whole numbers take off σ² (`privacy/secure/moments.py`)


def check_noise(card: Mapping[str, Any]) -> None:
    """PrivacyError unless the noise of the sums on this card is worth its ε, at its δ. Other offers state no noise."""
    network = card["network"]
    if network["kind"] == "moments":
        reaches = (FIRST, *map(moments_sensitivity, network["scales"]))
        moved = [
            (reach, sigma**2 - _SMOOTH, 1) for reach, sigma in zip(reaches, network["noise"], strict=True)
        ]
    elif network["kind"] == "gram":
        m = len(network["sizes"])
        cells = (m, m * (m - 1) // 2)  # of the class, and others
        moved = [(1.0, sigma**2, count) for sigma, count in zip(network["noise"], cells, strict=True)]
    else:
        return
    if "quality" in card:
        moved.append((1.0, card["quality"]["noise"] ** 2, 2))
    worth = gaussian_epsilon(_multiplier(moved), card["delta"])
    if worth == math.inf or not abs(worth - card["epsilon"]) <= NEAR * worth:
        raise PrivacyError(
            f"the noise that the offer states is worth ε={worth:.4g} at δ={card['delta']:g}, and its card says "
            f"ε={card['epsilon']:.4g}. Nothing was exchanged."
        )


def _multiplier(moved: Iterable[tuple[float, float, int]]) -> float:
    """The noise multiplier of all releases together: of each what a person moves, the variance, and how often."""
    total = 0.0
    for reach, variance, times in moved:
        if times and variance <= 0:
            return 0.0
        total += times * reach**2 / variance if times else 0.0
    return 1 / math.sqrt(total)


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """The ε of a Gaussian mechanism with this noise multiplier, at δ; infinity where it is above `_LARGEST`."""
    low, high = 0.0, _LARGEST
    if not multiplier or not delta or _delta(multiplier, high) > delta:
        return math.inf
    for _ in range(100):
        between = (low + high) / 2
        low, high = (between, high) if _delta(multiplier, between) > delta else (low, between)
    return high


def _delta(multiplier: float, epsilon: float) -> float:
    a, b = 0.5 / multiplier, epsilon * multiplier
    return _normal(a - b) - math.exp(epsilon) * _normal(-a - b)


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def check_moments(offer: OfferedMoments, said: str) -> None:
    """ArtefactError unless people can have these moments."""
    frame, classes, noise = offer.frame, offer.classes, [FAR * sigma for sigma in offer.noise]
    at = classes * (1 + frame.features)
    table = offer.first[:at].view(classes, -1).double()
    most = table[:, 0] + noise[0]  # in units of COUNT: no class has more people
    everybody = float(table[:, 0].sum()) + noise[0] * math.sqrt(classes)
    energy, shades = offer.first[at : at + 1].double(), offer.first[at + 1 :].double()
    diagonal = torch.where(on_diagonal(frame.features), math.sqrt(2), 1.0)
    bounds: list[tuple[str, Tensor, Tensor | float]] = [
        ("sums", table[:, 1:], (most * SCALE / COUNT + noise[0])[:, None]),
        ("energy", energy, everybody * ENERGY / COUNT + noise[0]),
        ("histograms", shades, everybody * SHADES / COUNT + noise[0]),
        ("second moments", offer.pooled.double(), everybody / COUNT * offer.scales[0] ** 2 + noise[1] * diagonal),
        (
            "second moments of a class",
            offer.cells.double(),
            (most / COUNT * offer.scales[1] ** 2)[:, None] + noise[2] * diagonal,
        ),
        ("centre", offer.centre.double().norm()[None], float(frame.reach + frame.features)),
        ("radius", offer.radius.double(), 2.0 * frame.reach),
    ]  # fmt: skip
    for value in offer.state_dict().values():
        if bool(((value > _MOST) | (value < -_MOST)).any()):
            raise ArtefactError(f"{said}: a number beyond 2⁵² is no sum over people. Nothing was exchanged.")
    if bool((most < 0).any()):
        raise ArtefactError(f"{said}: a class has fewer people than none. Nothing was exchanged.")
    for name, found, limit in bounds:
        if bool((found.abs() > limit).any()):
            raise ArtefactError(
                f"{said}: the {name} are more than its people can have. Nothing was exchanged."
            )
    if int(offer.radius) < 1 or float(torch.minimum(energy.min(), shades.min())) < -noise[0]:
        raise ArtefactError(
            f"{said}: the radius, the energy or a histogram is below what there can be. Nothing was exchanged."
        )


def check_counts(offer: OfferedGram, said: str) -> None:
    """ArtefactError unless people can have these one- and two-way tables."""
    counts, far = offer.counts.double(), FAR * offer.deviations
    column = torch.repeat_interleave(torch.tensor(offer.sizes))
    same = (column[:, None] == column) & ~torch.eye(len(column), dtype=torch.bool)
    if bool((offer.gram.abs() > _MOST).any()) or bool((offer.gram < -_MOST).any()):
        raise ArtefactError(f"{said}: a number beyond 2⁵² is no count of people. Nothing was exchanged.")
    if bool((counts[same] != 0).any()):
        raise ArtefactError(f"{said}: somebody has two levels of one column. Nothing was exchanged.")
    if bool((counts < -far).any()):
        raise ArtefactError(f"{said}: a cell has fewer people than none. Nothing was exchanged.")
    one_way = counts.diagonal()
    most = torch.minimum(one_way[:, None] + far.diagonal()[:, None], one_way + far.diagonal()) + far
    if bool((counts > most)[~same].any()):
        raise ArtefactError(
            f"{said}: a pair of levels has more people than one of them. Nothing was exchanged."
        )
    totals = torch.zeros(len(offer.sizes), dtype=torch.float64).index_add_(0, column, one_way)
    near = torch.zeros_like(totals).index_add_(0, column, far.diagonal().square()).sqrt()
    if float((totals - near).max()) > float((totals + near).min()):
        raise ArtefactError(f"{said}: two columns have different numbers of people. Nothing was exchanged.")

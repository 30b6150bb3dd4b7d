"""The server's side of moments: three releases, each asked with what the one before it gave, and before
them that of norms where a bound on them is bought.

Of the parts it sees only uniform numbers; what it can put together is the sum of all holders with their noise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame
from understudy.ground.errors import BudgetExceeded, MessageError, PartyError
from understudy.models.moments import Centres, Directions, Labels, bought_norm, centres, directions
from understudy.models.moments.released import SCALE
from understudy.privacy.secure import Ring, noise_share
from understudy.privacy.secure.moments import noise_for
from understudy.protocols.core import Ask, Parties
from understudy.protocols.core.agreeing import Begun, Inboxes, agree_over_rows, keys_of, most_of
from understudy.protocols.moments.messages import Agree, Begin, Cells, Means, Norms, Pooling
from understudy.protocols.moments.party import doubled
from understudy.protocols.moments.rows import Lengths
from understudy.protocols.moments.stages import MOST_BITS, Pooled, Stage, Within, finest, first_of

_RING = Ring(64)


@dataclass(frozen=True)
class Released:
    """What was released so far: the parties that took part with what they stated, the noise multipliers, and of each
    release its sums and the deviations of their noise, by name. All of it is public, or paid for.

    `norm`: the bound that was bought, if one was. `bits`: of the cells of the third release. `ended`: why a further one
    did not take place, if one was due; `lost` that holders were asked for it, and may have paid; `gone` who went away
    then. `greetings`: what the holders told each other, until the first release.
    """

    begun: dict[str, dict[str, Any]]
    multipliers: list[float]
    found: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    norm: float | None = None
    bits: int = 0
    ended: str = ""
    lost: bool = False
    gone: list[str] = field(default_factory=list)
    greetings: Inboxes = field(default_factory=dict)

    @property
    def made(self) -> int:
        return len(self.found)


@dataclass(frozen=True)
class Server:
    """What the server knows before anything was released."""

    parties: Parties
    frame: Frame
    labels: Labels
    releases: tuple[str, ...]  # by name
    most_holders: int
    colluding: int
    bits: int | None  # None: as many as the noise allows
    known: dict[int, tuple[Any, Centres]] = field(default_factory=dict)  # what a first release says

    def begin(self, begin: Begin, at_least: int | None) -> Released:
        """Until all who are still there have agreed with each other."""

        def agree(everybody: Begun, left: Begun) -> Agree:
            return Agree(keys=keys_of(left), multipliers=most_of(everybody, "multipliers"))

        everybody, begun, greetings = agree_over_rows(self.parties, begin, at_least, agree)
        return Released(begun, most_of(everybody, "multipliers"), greetings=greetings)

    def next(self, done: Released) -> Released:
        """The release after these."""
        asks, stage, bits = self._due(done)
        sigma = noise_for(done.multipliers[done.made], self.most_holders * stage.reach)
        total = self._sum(done, asks, stage)
        noise = torch.where(
            stage.diagonal,
            self._deviation(doubled(sigma), len(done.begun)),
            self._deviation(Fraction(sigma), len(done.begun)),
        )
        done = replace(
            done, found=done.found | {self.due(done): stage.read(total, noise)}, bits=bits, greetings={}
        )
        return replace(done, norm=self._norm(done)) if isinstance(stage, Lengths) else done

    def due(self, done: Released) -> str:
        """The name of the release after these."""
        return self.releases[done.made]

    def framed(self, done: Released) -> Frame:
        """The frame with the norm that was bought, if one was."""
        return self.frame if done.norm is None else replace(self.frame, norm=done.norm)

    def _norm(self, done: Released) -> float:
        """What the release of norms says, at the noise that the means will have."""
        sigma = noise_for(
            done.multipliers[done.made], self.most_holders * first_of(self.frame, self.labels).reach
        )
        noise = self._deviation(Fraction(sigma), len(done.begun)) / SCALE
        classes = self.labels.combinations if self.labels.joint else self.labels.levels
        numbers, lengths = classes * self.frame.features, done.found["norms"]
        return self.frame.norm * bought_norm(lengths, numbers=numbers, classes=classes, noise=noise)

    def _due(self, done: Released) -> tuple[dict[str, Ask], Stage, int]:
        """What each holder is asked, and how its answer is read."""
        due, inboxes = self.due(done), done.greetings or {name: {} for name in done.begun}
        if due == "norms":
            return {name: Norms(inbox=inbox) for name, inbox in inboxes.items()}, Lengths(self.frame), 0
        if due == "means":
            means = {name: Means(inbox=inbox, norm=done.norm) for name, inbox in inboxes.items()}
            return {**means}, first_of(self.framed(done), self.labels), 0
        centre = self.centres(done)
        scale = finest(done.multipliers[done.made], self.most_holders)
        if due == "pooled":
            terms = {"means": centre.whole_means, "radius": centre.radius, "features": self.frame.features}
            pooling = Pooling(**terms)  # type: ignore[arg-type]
            return dict.fromkeys(done.begun, pooling), Pooled(**terms, scale=scale), 0  # type: ignore[arg-type]
        kept = self.directions(done, centre)
        multiplier = done.multipliers[done.made] * self.most_holders
        bits = kept.bits(centre.groups, multiplier, MOST_BITS) if self.bits is None else self.bits
        bits = min(bits, len(kept.values), self.labels.most_bits)
        within = {
            "means": centre.whole_means, "basis": kept.whole_basis, "radius": kept.radius, "bits": bits,
        }  # fmt: skip
        cells = Cells(**within)  # type: ignore[arg-type]
        stage = Within(**within, scale=scale, each=self.labels.each)  # type: ignore[arg-type]
        return dict.fromkeys(done.begun, cells), stage, bits

    def centres(self, done: Released) -> Centres:
        """What the first release says: read once, however many releases follow it."""
        first = done.found["means"]
        if id(first) not in self.known:  # it is kept beside, so that no other has its place
            self.known[id(first)] = first, centres(first, self.framed(done), self.labels)
        return self.known[id(first)][1]

    def directions(self, done: Released, centre: Centres) -> Directions:
        """What the second says."""
        return directions(done.found["pooled"], centre)

    def _sum(self, done: Released, asks: Mapping[str, Ask], stage: Stage) -> Tensor:
        """Ask all who take part, and add up: without one of them nothing can be unmasked."""
        try:
            replies = self.parties.ask(asks, at_least=0) if done.made else self.parties.ask(asks)
        except BudgetExceeded as refusal:
            if not done.made:
                raise
            raise Ended(str(refusal)) from refusal
        if gone := [name for name in asks if name not in replies]:
            raise Ended(f"{', '.join(gone)} went away", gone)
        total = np.zeros(stage.size, dtype=_RING.dtype)
        for name, reply in replies.items():
            value = reply.sums.value
            if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != (stage.size,):
                raise MessageError(f"{name}: sums are not {stage.size:,} whole numbers. They were discarded.")
            total += _RING.words(value)
        return _RING.signed(total)

    def _deviation(self, sigma: Fraction, parties: int) -> float:
        share = noise_share(sigma, parties, colluding=self.colluding)
        return float(share) * (parties**0.5 if parties > 1 else 1.0)


class Ended(PartyError):  # noqa: N818  (a state, not a fault)
    """A further release did not take place; holders may have paid for it."""

    def __init__(self, why: str, gone: list[str] | None = None) -> None:
        super().__init__(why)
        self.gone = gone or []


def release(
    server: Server,
    begin: Begin,
    *,
    at_least: int | None = None,
    first: Released | None = None,
    keep: Callable[[Released], None] = lambda done: None,
) -> Released:
    """All releases. `keep` gets what there is after each, before anything else is asked; `first` is what was kept.

    Edges: who goes away before the first release is left out while `at_least` remain; during it that ends the run. Who
    goes away later, or has too little left, leaves what was released, which says so (`ended`); so do parties that
    have begun anew since, of a run that is resumed.
    """
    done = first or server.begin(begin, at_least)
    while done.made < len(server.releases) and not done.ended:
        try:
            done = server.next(done)
        except Ended as ended:
            done = replace(done, ended=str(ended), lost=True, gone=ended.gone)
        except (MessageError, PartyError) as refusal:
            if first is None:
                raise
            done = replace(done, ended=str(refusal))
        keep(done)
    return done

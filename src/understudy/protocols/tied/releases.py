"""The server's side of the joint moments: it aligns, deals masks, relays, adds up, and asks with what it found.

Of a block of two holders it sees only uniform numbers; what it can put together is the sum with the noise of both.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame
from understudy.data.encoding.triangles import unpacked
from understudy.ground.errors import BudgetExceeded, MessageError, PartyError
from understudy.models.moments.fit import Centres, centres
from understudy.models.moments.released import CELLS
from understudy.models.tied.fit import Classwise, Joint, Tied
from understudy.privacy.noise import DiscreteGaussianNoise
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.tied import one_for
from understudy.protocols.core import Parties, public_values
from understudy.protocols.core.agreeing import greetings_of, keys_of, most_of, same_number
from understudy.protocols.core.alignment import align_people
from understudy.protocols.core.products import Dealing, Swap, relayed
from understudy.protocols.moments.stages import First
from understudy.protocols.tied.layout import CLASSES, JOINT, MEANS, Layout, Noise
from understudy.protocols.tied.messages import Agree, Begin, Means, Measure, Share, what_is_measured
from understudy.protocols.tied.norms import pulled_to, split

NAMES = ("means", "joint", "classes")
Found = dict[str, dict[str, Tensor]]  # by block or party


@dataclass(frozen=True)
class Released:
    """What was released so far, by name: sums as whole numbers, and what the release was asked with. All of it is
    public, or paid for.

    `ended`: why the last release did not take place, if one was due; `lost` that holders were asked for it, and may
    have paid.
    """

    begun: dict[str, dict[str, Any]]
    people: int
    multipliers: list[float]
    found: dict[str, Found] = field(default_factory=dict)
    ended: str = ""
    lost: bool = False

    @property
    def made(self) -> int:
        return len(self.found)


@dataclass(frozen=True)
class Server:
    """What the server knows before anything was released. `tie` fits the joint release; classes are asked by that."""

    parties: Parties
    layout: Layout
    directions: int
    most: int  # people in a message
    secret: bytes
    tie: Callable[[Joint], Tied]

    def begin(self, begin: Begin) -> Released:
        """Align, and agree."""
        people = align_people(self.parties)
        begun = public_values(self.parties.ask(begin))
        same_number(begun, {self.parties.names: people})
        most = most_of(begun, "multipliers")
        done = Released(begun, people, most)
        bits = self._ring(done).bits
        agreed = self.parties.ask(Agree(keys=keys_of(begun), multipliers=most, bits=bits, chunk=self.most))
        replies = self.parties.ask({name: Means(inbox=box) for name, box in greetings_of(agreed).items()})
        sums = {
            name: {"sums": _whole(name, replies[name].sums.value, (self._lengths + First(frame, 1).size,))}
            for name, frame in self.layout.frames.items()
        }
        return replace(done, found={NAMES[MEANS]: sums})

    def next(self, done: Released) -> Released:
        """The release after these."""
        release = done.made
        asked = self._asked(done)
        blocks = self._products(done, release, asked)
        told = {
            name: {key: value for key, value in one.items() if isinstance(value, Tensor)}
            | {"radius": torch.tensor(one["radius"])}
            for name, one in asked.items()
            if name in self.layout.frames
        }
        return replace(done, found=done.found | {NAMES[release]: told | blocks})

    def _asked(self, done: Released) -> dict[str, dict[str, Any]]:
        """What each holder's vectors are to be."""
        nothing: dict[str, Any] = {"centre": None, "radius": 1, "basis": None}
        asked = dict.fromkeys(self.layout.names, nothing)
        middles = self.centres(done)
        if done.made == JOINT:
            return asked | {
                name: {"centre": one.whole_means[0], "radius": one.radius, "basis": None}
                for name, one in middles.items()
            }
        tied = self.tie(self.joint(done))
        for name, one in middles.items():
            basis = tied.leading(name, self.directions)
            asked[name] = {
                "centre": one.whole_means[0],
                "radius": tied.radius(name, basis),
                "basis": (basis * 4096).round().long(),
            }
        return asked

    def _products(self, done: Released, release: int, asked: Mapping[str, Any]) -> Found:
        """Have all vectors made, relay what their holders send each other, and add their parts up."""
        layout, ring = self.layout, self._ring(done)
        pairs, names = layout.pairs(release), layout.names
        widths = {name: layout.width(name) for name in names}
        if release == CLASSES and layout.label is not None:
            sides = {name: one["basis"].shape[1] for name, one in asked.items() if one["basis"] is not None}
            widths |= {name: k * (k + 1) // 2 for name, k in sides.items()}
            widths[layout.label.holder] = layout.label.classes
        # Masks of their own for every release: a holder refuses a seed that it has had.
        secret = hmac.digest(self.secret, f"release {release}".encode(), "sha256")
        about = {name: what_is_measured(release, **asked[name]) for name in names}
        dealing = Dealing(ring, widths, pairs, keys=keys_of(done.begun), secret=secret, about=about)
        self.parties.ask(
            {
                name: Measure(
                    **asked[name],
                    seeds=dealing.seeds(name),
                    widths={peer: widths[peer] for peer in layout.peers(name, release)},
                )
                for name in names
            }
        )
        inbox: dict[str, dict[str, Tensor]] = {name: {} for name in names}
        active = [name for name in names if layout.peers(name, release)]
        step = layout.chunk(release, self.most, self.directions, ring)
        for number, start in enumerate(range(0, done.people, step)):
            replies = self.parties.ask({name: Swap(chunk=number, inbox=inbox[name]) for name in active})
            for name in active:
                inbox[name] = {}
            for a, b in pairs:
                both = relayed({a: replies[a].outbox, b: replies[b].outbox}, (a, b))
                inbox[a] |= both[a]
                inbox[b] |= both[b]
                dealing.deal(min(step, done.people - start), (a, b))
        shares = self.parties.ask(
            {name: Share(inbox=inbox[name], corrections=dealing.corrections(name)) for name in names}
        )
        return self._added(
            {name: reply.blocks.value for name, reply in shares.items()}, release, widths, ring
        )

    def _added(self, parts: Mapping[str, Any], release: int, widths: Mapping[str, int], ring: Ring) -> Found:
        layout, found = self.layout, {}
        for place, (a, b) in enumerate(layout.blocks):
            if a == b and release == JOINT:
                shape: tuple[int, ...] = (widths[a] * (widths[a] + 1) // 2,)
            elif (a, b) in layout.pairs(release):
                shape = (widths[a], widths[b])
            else:
                continue
            total = np.zeros(shape, dtype=ring.dtype)
            for name in {a, b}:
                sent = parts[name].get(str(place)) if isinstance(parts[name], dict) else None
                total = total + ring.words(_whole(name, sent, shape))
            found[str(place)] = {"sums": ring.signed(total)}
        return found

    # What the releases say

    def centres(self, done: Released) -> dict[str, Centres]:
        """The mean of each array, and how far people are from it. How many they are is known."""
        found = {}
        for name in self.layout.frames:
            first = self.first(done, name) | {
                "people": torch.tensor([float(done.people)], dtype=torch.float64)
            }
            found[name] = centres(first, self.framed(done, name))
        return found

    def first(self, done: Released, name: str) -> dict[str, Tensor]:
        """The first release of an array, read."""
        _, sums = split(done.found["means"][name]["sums"], bool(self.layout.norms))
        stage, sigma = First(self.framed(done, name), 1), self._noise(done, MEANS).sigmas[name, name]
        return stage.read_sums(sums, _deviation(sigma, 1))

    def framed(self, done: Released, name: str) -> Frame:
        """The frame of an array, with the norm that its holder bought, if it did."""
        frame, loud = self.layout.frames[name], self.layout.norms_noise(done.multipliers)
        if not loud:
            return frame
        lengths, _ = split(done.found["means"][name]["sums"], True)
        return pulled_to(frame, lengths, loud[name], self._noise(done, MEANS).sigmas[name, name])

    @property
    def _lengths(self) -> int:
        """How many counts of lengths come with the means."""
        return CELLS if self.layout.norms else 0

    def joint(self, done: Released) -> Joint:
        """The second release, in steps of the frames and in people."""
        layout, noise, found = self.layout, self._noise(done, JOINT), done.found["joint"]
        units = {name: int(found[name]["radius"]) / noise.scale for name in layout.frames}
        units |= {name: 1 / one_for(noise.scale, len(sizes)) for name, sizes in layout.sizes.items()}
        sums: dict[tuple[str, str], tuple[Tensor, float]] = {}
        for place, (a, b) in enumerate(layout.blocks):
            whole = found[str(place)]["sums"].double()
            whole = unpacked(whole, layout.width(a)) if a == b else whole
            unit = units[a] * units[b]
            sums[a, b] = whole * unit, _deviation(noise.sigmas[a, b], 1 if a == b else 2) * unit
        tables, loud = self._tables(sums)
        ties = {}
        for name in layout.frames:
            parts = [(sums[t, name] if (t, name) in sums else _turned(sums[name, t])) for t in layout.sizes]
            empty = torch.zeros(0, layout.width(name), dtype=torch.float64)
            by_level = [torch.full((len(part),), own, dtype=torch.float64) for part, own in parts]
            ties[name] = (
                torch.cat([empty, *(part for part, _ in parts)]),
                torch.cat([torch.zeros(0, dtype=torch.float64), *by_level]),
            )
        return Joint(
            people=done.people,
            sizes=tuple(size for sizes in layout.sizes.values() for size in sizes),
            tables=tables,
            tables_noise=loud,
            frames=layout.frames,
            centres=self.centres(done),
            second={name: sums[name, name] for name in layout.frames},
            ties=ties,
            across={(a, b): one for (a, b), one in sums.items() if a != b and {a, b} <= {*layout.frames}},
        )

    def _tables(self, sums: Mapping[tuple[str, str], tuple[Tensor, float]]) -> tuple[Tensor, Tensor]:
        """All tables' pairs as one matrix, and the noise of its cells."""
        names = list(self.layout.sizes)
        rows, loud = [], []
        for a in names:
            own = [sums[a, b] if (a, b) in sums else _turned(sums[b, a]) for b in names]
            rows.append(torch.cat([part for part, _ in own], 1))
            loud.append(torch.cat([torch.full_like(part, sigma) for part, sigma in own], 1))
        if not rows:
            return torch.zeros(0, 0), torch.zeros(0, 0)
        noise = torch.cat(loud)
        return torch.cat(rows), noise + (2**0.5 - 1) * noise.diagonal().diag()

    def classwise(self, done: Released) -> dict[str, Classwise]:
        """The third release, if it took place: of each array, in squared steps."""
        layout, found = self.layout, done.found.get("classes")
        if found is None:
            return {}
        noise, read = self._noise(done, CLASSES), {}
        for a, b in layout.pairs(CLASSES):
            name = a if a in layout.frames else b
            sums = found[str(layout.blocks.index((a, b)))]["sums"].double()
            sums = sums.T if a == name else sums  # (classes, triangle)
            basis = found[name]["basis"].double() / 4096
            unit = (int(found[name]["radius"]) / noise.scale) ** 2
            moments = unpacked(sums, basis.shape[1]) * unit
            read[name] = Classwise(moments, _deviation(noise.sigmas[a, b], 2) * unit, basis)
        return read

    def _noise(self, done: Released, release: int) -> Noise:
        return self.layout.noise(release, done.multipliers[release])

    def _ring(self, done: Released) -> Ring:
        return self.layout.ring(
            done.people, {release: self._noise(done, release) for release in range(self.layout.releases)}
        )


def release(
    server: Server,
    begin: Begin,
    *,
    first: Released | None = None,
    keep: Callable[[Released], None] = lambda done: None,
) -> Released:
    """All releases. `keep` gets what there is after each, before anything else is asked; `first` is what was kept.

    Edges: a party that goes away, or has too little left, before the joint release ends the run: who has released by
    then has paid. After it, what was released stays, and says so (`ended`); so it does with parties that have begun
    anew since, of a run that is resumed.
    """
    done = first
    if done is None:
        done = server.begin(begin)
        keep(done)
    while done.made < server.layout.releases and not done.ended:
        try:
            done = server.next(done)
        except BudgetExceeded as refusal:
            if done.made <= JOINT:
                raise
            done = replace(done, ended=str(refusal), lost=True)
        except PartyError as gone:
            if done.made <= JOINT:
                raise
            done = replace(done, ended=str(gone), lost=True)
        except MessageError as refusal:
            if first is None or done.made <= JOINT:
                raise
            done = replace(done, ended=str(refusal))
        keep(done)
    return done


def _deviation(sigma: float, holders: int) -> float:
    """The standard deviation of the noise that so many holders add, each of this scale."""
    return (holders * DiscreteGaussianNoise(Fraction(sigma)).variance) ** 0.5 if sigma else 0.0


def _turned(one: tuple[Tensor, float]) -> tuple[Tensor, float]:
    return one[0].T, one[1]


def _whole(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != shape:
        raise MessageError(f"{name}: a part is not {shape} whole numbers. It was discarded.")
    return value

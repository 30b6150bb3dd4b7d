"""Walks along a chain of events of which each lies in one of two sets, and, if wanted,
one at least in the first.

Rules say what every event of a person is like, a condition what one of them is like. So
each event is a *hit* (it keeps the rules and meets the condition) or a *miss* (it keeps
them and does not meet it); of a person wanted for an event one at least is a hit. With
h(s) and m(s) the probabilities of both in state s, those of the r events that follow
are

    all(0, s)  = 1
    all(r, s)  = Σ_t P(t | s) (h(t) + m(t)) all(r − 1, t)
    need(0, s) = 0, or 1 where no hit is wanted
    need(r, s) = Σ_t P(t | s) (h(t) all(r − 1, t) + m(t) need(r − 1, t))

where every state is given the rules on events alone, as it was fitted
(`MixtureOfChains.tables`). So what these rules forbid changes no chain. A walk is drawn
forward, each state with what it is by its part of these: no draw is thrown away,
however rare.

A kind of people is a product of columns (`kinds_of`), but for the time of a first event
and the number of events, which go together: it is two products, of those who have
events and of those who have none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.answers.products import Products, Uniforms, drawn_in, pick
from understudy.answers.question import Box
from understudy.data.encoding.values import Codes, Pieced
from understudy.models.tables.mixture import invert
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.together import ChainsTogether

# a divisor in place of 0: what the rules leave nothing, or people who never have events
_TINY = 1e-300
_AT_ONCE = 1 << 22  # numbers held beside a walk

Network = MixtureOfChains | ChainsTogether


@dataclass(frozen=True, eq=False)
class EventSet:
    """Events of boxes that do not overlap: of each state what lies in them, and draws
    of that.
    """

    products: Products  # a state each, in `pieces`
    boxes: Sequence[Box]
    pieces: Pieced

    @classmethod
    def from_boxes(
        cls, network: MixtureOfChains, boxes: Sequence[Box], pieces: Pieced
    ) -> "EventSet":
        return cls(
            Products.of_rows(network.event_odds(), network.events).cut(pieces),
            boxes,
            pieces,
        )

    def chances(self) -> Tensor:
        """The logarithm of each box's probability in each state: (states of all chains,
        boxes).
        """
        found = [self.products.inside(box) for box in self.boxes]
        return (
            torch.stack(found, 1)
            if found
            else torch.zeros(len(self.products.weight), 0)
        )

    def draw(self, state: Tensor, uniform: Uniforms) -> Codes:
        """An event of the set for each of these states, in pieces: (events,
        columns).
        """
        if not len(state):
            return np.zeros((0, len(self.products.odds)), dtype=np.int32)
        chances = self.chances()
        widest = max(own.shape[1] for own in self.products.odds)
        found = []
        for some in torch.split(
            state, max(1, _AT_ONCE // max(widest, len(self.boxes)))
        ):
            box = pick(chances[some], uniform(len(some))[:, None])[:, 0]
            found.append(
                drawn_in(
                    self.boxes, box, [own[some] for own in self.products.odds], uniform
                )
            )
        return np.concatenate(found)


class Walks:
    """Walks of a network's chains in two sets, both in `kept`; `wanted`: one event at
    least is of the first.
    """

    def __init__(
        self,
        network: MixtureOfChains,
        hit: EventSet,
        miss: EventSet,
        kept: EventSet,
        wanted: bool,
    ) -> None:
        self.first, onward = (part.detach().cpu().double() for part in network.chain())
        self.onward = onward
        self.states = network.states
        self.wanted = wanted
        shape = (network.chains, network.states)
        left = kept.chances().exp().sum(1).clamp(min=_TINY)
        self.hit, self.miss = (
            (own.chances().exp().sum(1) / left).view(shape) for own in (hit, miss)
        )
        every = [torch.ones(shape).double()]
        need = [torch.full(shape, float(not wanted)).double()]
        for _ in range(1, network.longest):
            here = self.hit * every[-1]
            later = self.miss * need[-1]
            need.append((onward @ (here + later)[:, :, None])[:, :, 0])
            every.append(
                (onward @ ((self.hit + self.miss) * every[-1])[:, :, None])[:, :, 0]
            )
        # (longest, chains, states)
        self.every = torch.stack(every)
        self.need = torch.stack(need)

    def numbers(self) -> Tensor:
        """How likely so many events are as wanted: (longest + 1, chains)."""
        some = (self.first * (self.hit * self.every + self.miss * self.need)).sum(2)
        return torch.cat(
            (torch.full((1, len(self.first)), float(not self.wanted)).double(), some)
        )

    def draw(
        self, chain: Tensor, number: Tensor, uniform: Uniforms
    ) -> tuple[Tensor, Tensor]:
        """The state of every event, chain · states + state, and whether it is a hit;
        person by person, in order.
        """
        begin = number.cumsum(0) - number
        states, hits = (
            torch.empty(int(number.sum()), dtype=kind)
            for kind in (torch.int64, torch.bool)
        )
        going = torch.arange(len(chain))
        odds = self.first[chain]
        met = torch.full((len(chain),), not self.wanted)
        for step in range(int(number.max()) if len(number) else 0):
            stays = number[going] > step
            going = going[stays]
            odds = odds[stays]
            own = chain[going]
            left = number[going] - step - 1
            later = torch.where(
                met[going, None], self.every[left, own], self.need[left, own]
            )
            both = torch.cat(
                (
                    odds * self.hit[own] * self.every[left, own],
                    odds * self.miss[own] * later,
                ),
                1,
            )
            drawn = invert(both, uniform(len(going)))
            state = drawn % self.states
            hit = drawn < self.states
            met[going] |= hit
            states[begin[going] + step], hits[begin[going] + step] = (
                own * self.states + state,
                hit,
            )
            odds = self.onward[own, state]
        return states, hits


def kinds_of(network: Network) -> Products:
    """Kinds of people as weighted products of their columns, and of one more column
    that says which kind it is.
    """
    which = torch.eye(network.kinds, dtype=torch.float64)
    found = Products(
        torch.full((network.kinds,), 1 / network.kinds, dtype=torch.float64), (which,)
    )
    for member in network.each:
        found = _with_columns(found, member)
    return Products(found.weight, (*found.odds[1:], found.odds[0]))


def each_given(
    products: Products, boxes: Sequence[Box], pieces: Pieced, kinds: int
) -> Products:
    """Every kind of people given the rules on people: kinds keep their shares, but for
    those left with nothing.
    """
    cut = products.cut(pieces)
    inside = torch.zeros(len(products.weight)).double()
    for box in boxes:
        inside += cut.inside(box).exp()
    left = (products.weight * inside).view(-1, kinds).sum(0) * kinds  # (kinds,)
    weight = products.weight.view(-1, kinds) / left.clamp(min=_TINY)
    return Products(weight.flatten(), products.odds)


def _with_columns(kinds: Products, member: MixtureOfChains) -> Products:
    """The same with one member's columns, two products in place of one where its events
    have an order.
    """
    own, number = (part.detach().cpu().double() for part in member.person_odds())
    times = len(kinds.weight) // len(own)  # products of each kind so far
    own = own.repeat(times, 1)
    number = number.repeat(times, 1)
    blocks = torch.split(own, list(member.people[:-1]), 1)
    if not member.ordered:
        return Products(kinds.weight, (*kinds.odds, *blocks, number))
    none = number[:, :1]
    some = functional.pad(number[:, 1:], (1, 0))
    missing = functional.one_hot(
        torch.tensor(member.people[-2] - 1), member.people[-2]
    ).double()
    nothing = functional.one_hot(torch.tensor(0), member.people[-1]).double()
    weight = torch.cat((kinds.weight * (1 - none[:, 0]), kinds.weight * none[:, 0]))
    odds = [torch.cat((block, block)) for block in (*kinds.odds, *blocks[:-1])]
    odds.append(torch.cat((blocks[-1], missing.expand(len(own), -1))))
    odds.append(
        torch.cat(
            (
                some / some.sum(1, keepdim=True).clamp(min=_TINY),
                nothing.expand(len(own), -1),
            )
        )
    )
    return Products(weight, tuple(odds))

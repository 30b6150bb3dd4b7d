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
            Products.from_rows(network.event_odds(), network.events).cut(pieces),
            boxes,
            pieces,
        )

    def chances(self) -> Tensor:
        """The logarithm of each box's probability in each state: (states of all chains,
        boxes).
        """
        if not self.boxes:
            return torch.zeros(len(self.products.weight), 0)
        return torch.stack([self.products.inside(box) for box in self.boxes], 1)

    def draw(self, state: Tensor, uniform: Uniforms) -> Codes:
        """An event of the set for each of these states, in pieces: (events,
        columns).
        """
        blocks = self.products.probabilities
        if not len(state):
            return np.zeros((0, len(blocks)), dtype=np.int32)
        chances = self.chances()
        widest = max(block.shape[1] for block in blocks)
        chunk_size = max(1, _AT_ONCE // max(widest, len(self.boxes)))
        parts = []
        for chunk in torch.split(state, chunk_size):
            box = pick(chances[chunk], uniform(len(chunk))[:, None])[:, 0]
            rows = [block[chunk] for block in blocks]
            parts.append(drawn_in(self.boxes, box, rows, uniform))
        return np.concatenate(parts)


class Walks:
    """Walks of a network's chains in two sets, both as the `rules` leave them;
    `wanted`: one event at least is of the first.
    """

    def __init__(
        self,
        network: MixtureOfChains,
        hit: EventSet,
        miss: EventSet,
        rules: EventSet,
        wanted: bool,
    ) -> None:
        first, onward = network.chain()
        self.first = first.detach().cpu().double()
        self.onward = onward.detach().cpu().double()
        self.states = network.states
        self.wanted = wanted
        shape = (network.chains, network.states)
        rules_chance = rules.chances().exp().sum(1).clamp(min=_TINY)
        self.hit = (hit.chances().exp().sum(1) / rules_chance).view(shape)
        self.miss = (miss.chances().exp().sum(1) / rules_chance).view(shape)
        every = [torch.ones(shape).double()]
        need = [torch.full(shape, float(not wanted)).double()]
        for _ in range(1, network.longest):
            through_hit = self.hit * every[-1]
            through_miss = self.miss * need[-1]
            need.append(self._step_back(through_hit + through_miss))
            every.append(self._step_back((self.hit + self.miss) * every[-1]))
        # (longest, chains, states)
        self.every = torch.stack(every)
        self.need = torch.stack(need)

    def _step_back(self, chance: Tensor) -> Tensor:
        """The chance of what follows, one event earlier: (chains, states)."""
        return (self.onward @ chance[:, :, None])[:, :, 0]

    def numbers(self) -> Tensor:
        """How likely so many events are as wanted: (longest + 1, chains)."""
        some = (self.first * (self.hit * self.every + self.miss * self.need)).sum(2)
        none = torch.full((1, len(self.first)), float(not self.wanted)).double()
        return torch.cat((none, some))

    def draw(
        self, chain: Tensor, number: Tensor, uniform: Uniforms
    ) -> tuple[Tensor, Tensor]:
        """The state of every event, chain · states + state, and whether it is a hit;
        person by person, in order.
        """
        starts = number.cumsum(0) - number
        n_events = int(number.sum())
        states = torch.empty(n_events, dtype=torch.int64)
        hits = torch.empty(n_events, dtype=torch.bool)
        active = torch.arange(len(chain))
        state_weights = self.first[chain]
        met = torch.full((len(chain),), not self.wanted)
        for step in range(int(number.max()) if len(number) else 0):
            stays = number[active] > step
            active = active[stays]
            state_weights = state_weights[stays]
            chains = chain[active]
            remaining = number[active] - step - 1
            every = self.every[remaining, chains]
            need = self.need[remaining, chains]
            later = torch.where(met[active, None], every, need)
            hit_weights = state_weights * self.hit[chains] * every
            miss_weights = state_weights * self.miss[chains] * later
            joint = torch.cat((hit_weights, miss_weights), 1)
            outcome = invert(joint, uniform(len(active)))
            state = outcome % self.states
            hit = outcome < self.states
            met[active] |= hit
            states[starts[active] + step] = chains * self.states + state
            hits[starts[active] + step] = hit
            state_weights = self.onward[chains, state]
        return states, hits


def kinds_of(network: Network) -> Products:
    """Kinds of people as weighted products of their columns, and of one more column
    that says which kind it is.
    """
    number = torch.eye(network.kinds, dtype=torch.float64)
    weight = torch.full((network.kinds,), 1 / network.kinds, dtype=torch.float64)
    kinds = Products(weight, (number,))
    for member in network.each:
        kinds = _with_columns(kinds, member)
    number, *columns = kinds.probabilities
    return Products(kinds.weight, (*columns, number))


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
    kind_chance = (products.weight * inside).view(-1, kinds).sum(0) * kinds  # (kinds,)
    weight = products.weight.view(-1, kinds) / kind_chance.clamp(min=_TINY)
    return Products(weight.flatten(), products.probabilities)


def _with_columns(kinds: Products, member: MixtureOfChains) -> Products:
    """The same with one member's columns, two products in place of one where its events
    have an order.
    """
    columns, number = (part.detach().cpu().double() for part in member.person_odds())
    repeats = len(kinds.weight) // len(columns)  # products of each kind so far
    columns = columns.repeat(repeats, 1)
    number = number.repeat(repeats, 1)
    blocks = torch.split(columns, list(member.people[:-1]), 1)
    if not member.ordered:
        return Products(kinds.weight, (*kinds.probabilities, *blocks, number))
    n = len(columns)
    # people with events, and people without: the last columns tell them apart
    none = number[:, 0]
    some = functional.pad(number[:, 1:], (1, 0))
    some = some / some.sum(1, keepdim=True).clamp(min=_TINY)
    missing = _one_hot(member.people[-2] - 1, member.people[-2]).expand(n, -1)
    nothing = _one_hot(0, member.people[-1]).expand(n, -1)
    shared = [*kinds.probabilities, *blocks[:-1]]
    return Products(
        torch.cat((kinds.weight * (1 - none), kinds.weight * none)),
        (
            *(torch.cat((block, block)) for block in shared),
            torch.cat((blocks[-1], missing)),
            torch.cat((some, nothing)),
        ),
    )


def _one_hot(level: int, size: int) -> Tensor:
    return functional.one_hot(torch.tensor(level), size).double()

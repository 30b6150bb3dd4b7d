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
        cls,
        network: MixtureOfChains,
        boxes: Sequence[Box],
        pieces: Pieced,
    ) -> "EventSet":
        states = Products.from_rows(network.event_odds(), network.events)
        return cls(states.cut(pieces), boxes, pieces)

    def chances(self) -> Tensor:
        """The logarithm of each box's probability in each state: (states of all chains,
        boxes).
        """
        states = len(self.products.weight)
        if not self.boxes:
            return torch.zeros(states, 0)
        log_chances = [self.products.inside(box) for box in self.boxes]
        return torch.stack(log_chances, 1)

    def chance(self) -> Tensor:
        """The probability of the set in each state: (states of all chains,)."""
        return self.chances().exp().sum(1)

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
            uniforms = uniform(len(chunk))
            boxes = pick(chances[chunk], uniforms[:, None])
            box = boxes[:, 0]
            rows = [block[chunk] for block in blocks]
            codes = drawn_in(
                self.boxes,
                box,
                rows,
                uniform,
            )
            parts.append(codes)
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
        self.first = _plain(first)
        self.onward = _plain(onward)
        self.states = network.states
        self.wanted = wanted
        shape = (network.chains, network.states)
        rules_chance = rules.chance().clamp(min=_TINY)
        hit_chance = hit.chance() / rules_chance
        miss_chance = miss.chance() / rules_chance
        self.hit = hit_chance.view(shape)
        self.miss = miss_chance.view(shape)
        self._look_ahead(network.longest)

    def _look_ahead(self, longest: int) -> None:
        """all(r, s) and need(r, s) of the module's docstring: (longest, chains,
        states).
        """
        either = self.hit + self.miss
        at_the_end = torch.full(either.shape, float(not self.wanted))
        every = [torch.ones(either.shape).double()]
        need = [at_the_end.double()]
        for _ in range(1, longest):
            through_hit = self.hit * every[-1]
            through_miss = self.miss * need[-1]
            through_either = either * every[-1]
            need.append(self._step_back(through_hit + through_miss))
            every.append(self._step_back(through_either))
        self.every = torch.stack(every)
        self.need = torch.stack(need)

    def _step_back(self, chance: Tensor) -> Tensor:
        """The chance of what follows, one event earlier: (chains, states)."""
        before = self.onward @ chance[:, :, None]
        return before[:, :, 0]

    def numbers(self) -> Tensor:
        """How likely so many events are as wanted: (longest + 1, chains)."""
        through_hit = self.hit * self.every
        through_miss = self.miss * self.need
        by_state = through_hit + through_miss
        some = (self.first * by_state).sum(2)
        without_events = float(not self.wanted)
        none = torch.full((1, len(self.first)), without_events)
        return torch.cat((none.double(), some))

    def draw(
        self,
        chain: Tensor,
        number: Tensor,
        uniform: Uniforms,
    ) -> tuple[Tensor, Tensor]:
        """The state of every event, chain · states + state, and whether it is a hit;
        person by person, in order.
        """
        n_people = len(chain)
        n_events = int(number.sum())
        starts = number.cumsum(0) - number
        states = torch.empty(n_events, dtype=torch.int64)
        hits = torch.empty(n_events, dtype=torch.bool)
        active = torch.arange(n_people)
        met = torch.full((n_people,), not self.wanted)
        state_weights = self.first[chain]
        longest = int(number.max()) if n_people else 0
        for step in range(longest):
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
            event = starts[active] + step
            states[event] = chains * self.states + state
            hits[event] = hit
            state_weights = self.onward[chains, state]
        return states, hits


def kinds_of(network: Network) -> Products:
    """Kinds of people as weighted products of their columns, and of one more column
    that says which kind it is.
    """
    number = torch.eye(network.kinds, dtype=torch.float64)
    even = 1 / network.kinds
    weight = torch.full((network.kinds,), even, dtype=torch.float64)
    kinds = Products(weight, (number,))
    for member in network.mixtures:
        kinds = _with_columns(kinds, member)
    number, *columns = kinds.probabilities
    return Products(kinds.weight, (*columns, number))


def each_given(
    products: Products,
    boxes: Sequence[Box],
    pieces: Pieced,
    kinds: int,
) -> Products:
    """Every kind of people given the rules on people: kinds keep their shares, but for
    those left with nothing.
    """
    cut = products.cut(pieces)
    inside = torch.zeros(len(products.weight)).double()
    for box in boxes:
        inside += cut.inside(box).exp()
    joint = products.weight * inside
    joint = joint.view(-1, kinds)
    kind_chance = joint.sum(0) * kinds  # (kinds,)
    by_kind = products.weight.view(-1, kinds)
    weight = by_kind / kind_chance.clamp(min=_TINY)
    return Products(weight.flatten(), products.probabilities)


def _with_columns(kinds: Products, member: MixtureOfChains) -> Products:
    """The same with one member's columns, two products in place of one where its events
    have an order.
    """
    columns, number = map(_plain, member.person_odds())
    repeats = len(kinds.weight) // len(columns)  # products of each kind so far
    columns = columns.repeat(repeats, 1)
    number = number.repeat(repeats, 1)
    *column_sizes, number_size = member.people
    blocks = torch.split(columns, column_sizes, 1)
    if not member.ordered:
        probabilities = (*kinds.probabilities, *blocks, number)
        return Products(kinds.weight, probabilities)
    *other_blocks, first_time = blocks
    shared = [*kinds.probabilities, *other_blocks]
    # people with events, and people without: the last columns tell them apart
    none = number[:, 0]
    with_events = kinds.weight * (1 - none)
    without_events = kinds.weight * none
    weight = torch.cat((with_events, without_events))
    some = functional.pad(number[:, 1:], (1, 0))
    total = some.sum(1, keepdim=True)
    number_of_some = some / total.clamp(min=_TINY)
    time_size = column_sizes[-1]
    no_time = _one_hot(time_size - 1, time_size)
    no_event = _one_hot(0, number_size)
    last_columns = [(first_time, no_time), (number_of_some, no_event)]
    twice = [torch.cat((block, block)) for block in shared]
    for of_some, level in last_columns:
        of_others = level.expand(len(columns), -1)
        twice.append(torch.cat((of_some, of_others)))
    return Products(weight, tuple(twice))


def _plain(tensor: Tensor) -> Tensor:
    """Without a gradient, and in double precision."""
    return tensor.detach().cpu().double()


def _one_hot(level: int, size: int) -> Tensor:
    one_hot = functional.one_hot(torch.tensor(level), size)
    return one_hot.double()

"""A mixture of chains: K kinds of people, with odds for a person's columns, and chains
of events, one each or fewer.

A person is drawn by picking a kind at random, then each of the person's columns, the
number of events among them, by itself from the kind's odds. Events follow a hidden
Markov chain (Baum, Petrie, Ann. Math. Statist. 1966), the kind's own or one that kinds
share in turn: S kinds of events (states), each with odds for every column of an event;
odds for the first; odds for the next given the last. The expected tables are sums over
kinds of products of odds (`tables`). With one state and one event it is a mixture of
products (`models.tables.mixture`).

Exact: every table, for every number of events. The chain need not be stationary: the
mean over a person's first n events is taken step by step. Where events are ordered, the
time of the first is missing for those who have none, and the time since the last one is
missing in a person's first event, and nowhere else, for sure: half of the states are
those of first events. Where they have no order, events are independent given the chain.
Approximate: given the kind of person the number of events is independent of what they
are like, and events two steps apart depend on each other through the chain and the one
between them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.data.visits import VisitCodes
from understudy.data.visits.counts import AHEAD
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.network import (
    MOST_WEIGHTS,
    BlockSoftmax,
    Network,
    each_whole,
    shapes_only,
)
from understudy.models.tables.given_rules import Ruled, Rules, put
from understudy.models.tables.mixture import latin

# the least and the largest number of events that each level stands for
Numbers = Sequence[Sequence[int]]
Parts = Sequence[tuple[Tensor, Tensor]]
MOST_EVENTS = 10_000  # a person, in a chain that is walked step by step


def checked_numbers(numbers: Numbers, levels: int) -> tuple[tuple[int, int], ...]:
    """As they are, if they rise from 0 without gaps. ConfigError if they do not."""
    next_number = 0
    ranges = []
    for pair in numbers:
        if not _is_range(pair) or pair[0] != next_number:
            raise ConfigError(
                "the numbers of events rise level by level from 0 without gaps, not "
                f"{numbers!r}."
            )
        low, high = pair
        next_number = high + 1
        ranges.append((low, high))
    if len(ranges) != levels or len(ranges) < 2 or ranges[0] != (0, 0):
        raise ConfigError(
            f"{levels} levels of the number of events, the first of them 0, are not "
            f"{numbers!r}."
        )
    _, largest = ranges[-1]
    whole(most_events=largest)
    if largest > MOST_EVENTS:
        raise ConfigError(
            f"{largest:,} events of a person are more than {MOST_EVENTS:,}."
        )
    return tuple(ranges)


def _is_range(pair: object) -> bool:
    """Whether it is two whole numbers, the second no less than the first."""
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    low, high = pair
    return type(low) is int and type(high) is int and low <= high


def step_weights(numbers: Numbers, less: int) -> Tensor:
    """What each place weighs, where the first n − `less` of n weigh 1 together:
    (levels, longest).
    """
    weights = torch.zeros(len(numbers), numbers[-1][1])
    if not shapes_only():
        for level, (low, high) in enumerate(numbers):
            for weighed in range(max(low - less, 1), high - less + 1):
                weights[level, :weighed] += 1 / weighed / (high - low + 1)
    return weights


def along(weights: Tensor, place: Tensor) -> Tensor:
    """Sums over places (chains, longest, states), of weights (levels, longest):
    (chains, levels, states).
    """
    chains, longest, states = place.shape
    by_place = place.transpose(0, 1).reshape(longest, -1)
    sums = weights @ by_place
    return sums.view(-1, chains, states).transpose(0, 1)


def by_kind(
    kind: Tensor,
    odds: Sequence[Tensor],
    uniform: Callable[[int], Tensor],
) -> Tensor:
    """Levels of rows of these kinds, in any order, by a Latin hypercube for each: int32
    (n, columns).
    """
    n = len(kind)
    order = torch.argsort(kind + uniform(n))
    levels = torch.empty(n, len(odds), dtype=torch.int32)
    levels[order] = latin(kind[order], odds, uniform)
    return levels


@dataclass(frozen=True)
class ChainTables:
    """Expected tables of a person drawn at random, whose events weigh 1 together, and
    whose pairs of events do.

    Only cells of different columns have a meaning in `people` and `events`. Those
    `ahead` have an event's levels in rows, and those of the next one, or of one further
    on, in columns. `known` and `mean` (kinds, …) are what each kind's people and their
    events are like: averages over kinds are the one-way tables.
    """

    people: Tensor
    across: Tensor
    events: Tensor
    ahead: Mapping[str, Tensor]
    known: Tensor
    mean: Tensor


class MixtureOfChains(Network):
    """`kinds` equally likely kinds of people, who have `chains` of `states` kinds of
    events in turn.

    `people` are the levels of a person's columns, the last of which is the number of
    events, and, where events are `ordered`, the one before it the time of the first.
    `numbers` has the least and the largest number that each level of the former stands
    for (all between are equally likely), the first of them 0 alone. `events` are the
    levels of an event's columns, where they are ordered the time since the one before
    last. A time's last level is "missing".
    """

    kind = "chains"
    keys = ("people", "events", "numbers", "ordered", "kinds", "chains", "states")
    latent = 1
    # 0, and −∞ for levels that a state cannot have: (states, events' width)
    closed: Tensor
    mine: Tensor  # 1 where a kind of people has a chain: (kinds, chains)
    spent: Tensor  # what events weigh, and those that others follow: (levels, longest)

    def __init__(
        self,
        people: Sequence[int],
        events: Sequence[int],
        numbers: Numbers,
        *,
        ordered: bool,
        kinds: int,
        chains: int,
        states: int,
    ) -> None:
        super().__init__()
        whole(
            kinds=kinds,
            chains=chains,
            states=states,
            columns=len(people),
            event_columns=len(events),
        )
        each_whole(sizes=(*people, *events))
        self.people = tuple(people)
        self.events = tuple(events)
        self.kinds = kinds
        self.chains = min(chains, kinds)
        self.states = states
        self.numbers = checked_numbers(numbers, self.people[-1])
        self.ordered = bool(ordered)
        self.firsts = states // 2 if ordered else states
        if ordered and (
            states < 2 or len(people) < 2 or min(people[-2], events[-1]) < 2
        ):
            raise ConfigError(
                "events in an order need two states, and two levels of each time."
            )
        self.longest = self.numbers[-1][1]
        all_states = self.chains * states
        people_width = sum(people)
        event_width = sum(events)
        steps = states + self.longest + self.people[-1]
        of_people = kinds * (people_width + all_states)
        of_events = all_states * (event_width + steps)
        if of_people + of_events > MOST_WEIGHTS:
            raise ConfigError(
                f"a mixture of {kinds:,} kinds of people, {self.chains:,} chains of "
                f"{states:,} states, up to {self.longest:,} events a person, is larger "
                f"than {MOST_WEIGHTS:,}."
            )
        later = states - self.firsts
        self.person_logits = nn.Parameter(torch.zeros(kinds, people_width))
        self.event_logits = nn.Parameter(torch.zeros(all_states, event_width))
        self.first_logits = nn.Parameter(torch.zeros(self.chains, self.firsts))
        self.next_logits = nn.Parameter(torch.zeros(self.chains, states, later))
        self.person_softmax = BlockSoftmax(self.people)
        self.event_softmax = BlockSoftmax(self.events)
        self._register_constants()

    def _register_constants(self) -> None:
        """`closed`, `mine`, and what events weigh, for all of them and for those that
        others follow.
        """
        closed = torch.zeros(self.states, sum(self.events))
        mine = torch.zeros(self.kinds, self.chains)
        if not shapes_only():
            kind = torch.arange(self.kinds)
            mine[kind, kind % self.chains] = 1
            if self.ordered:
                closed[: self.firsts, -self.events[-1] : -1] = -torch.inf
                closed[self.firsts :, -1] = -torch.inf
        self.register_buffer("closed", closed, persistent=False)
        self.register_buffer("mine", mine, persistent=False)
        for name, less in ({"spent": 0} | AHEAD).items():
            weights = step_weights(self.numbers, less)
            self.register_buffer(name, weights, persistent=False)

    @property
    def mixtures(self) -> "tuple[MixtureOfChains, ...]":
        return (self,)

    def person_odds(self) -> tuple[Tensor, Tensor]:
        """Of each kind's columns but the number of events, and of that one; all have a
        first time here.
        """
        logits: Tensor = self.person_logits
        n_numbers = self.people[-1]
        if self.ordered:
            without_missing = torch.zeros(logits.shape[1], device=logits.device)
            without_missing[-n_numbers - 1] = -torch.inf
            logits = logits + without_missing
        odds: Tensor = self.person_softmax(logits)
        return odds[:, :-n_numbers], odds[:, -n_numbers:]

    def event_odds(self) -> Tensor:
        """Of the columns of each state: (chains · states, events' width)."""
        closed = self.closed.repeat(self.chains, 1)
        odds: Tensor = self.event_softmax(self.event_logits + closed)
        return odds

    def chain(self) -> tuple[Tensor, Tensor]:
        """The odds of the first state (chains, states), and of the next given the last
        (chains, states, states).
        """
        first = self.first_logits.softmax(1)
        if not self.ordered:
            return first, first[:, None].expand(-1, self.states, -1)
        later = self.states - self.firsts
        onward = self.next_logits.softmax(2)
        first = functional.pad(first, (0, later))
        onward = functional.pad(onward, (self.firsts, 0))
        return first, onward

    def tables(
        self,
        people: Rules | None = None,
        events: Rules | None = None,
    ) -> ChainTables:
        """What is expected of a person drawn at random; every kind, and every state, is
        given the rules by itself.
        """
        own, number = self.person_odds()
        event = self.event_odds()
        kept = None if people is None else Ruled(own, people)
        ruled = None if events is None else Ruled(event, events)
        own = own if kept is None else kept.own
        event = event if ruled is None else ruled.own
        first, onward = self.chain()
        place = self._places(first, onward)  # (chains, longest, states)
        spent = along(self.spent, place)  # (chains, levels, states)
        together = self.mine.T @ number  # (chains, levels)
        # (kinds, chains · states): how much of a person's events is in each state
        level_spent = spent.transpose(0, 1).flatten(1)
        by_number = number @ level_spent
        by_chain = by_number.view(self.kinds, self.chains, -1)
        held = by_chain * self.mine[:, :, None]
        mean = held.flatten(1) @ event  # (kinds, events' width)
        spent_by_level = together[:, :, None] * spent
        by_state = spent_by_level.transpose(1, 2).flatten(0, 1)
        numbered = by_state.T @ event  # (levels, events' width)

        def ahead(kind: str, far: int) -> Tensor:
            """Of events, and what so many steps lead to: (events' width, events'
            width).
            """
            weights = along(self.get_buffer(kind), place)
            weighted: Tensor = together[:, :, None] * weights
            before = weighted.sum(1)  # (chains, states)
            transitions = torch.linalg.matrix_power(onward, far)
            steps: Tensor = before[:, :, None] * transitions
            events_of_chain = event.view(self.chains, self.states, -1)
            following: Tensor = steps @ events_of_chain
            return event.T @ following.flatten(0, 1) / self.kinds

        known = self._people_odds(own, number)
        pairs = self._people(known, own, number)
        state_weights = held.sum(0).flatten()
        within = event.T @ (state_weights[:, None] * event) / self.kinds
        if kept is not None:
            _put_tied(pairs, kept, own.new_ones(len(own)))
        if ruled is not None:
            _put_tied(within, ruled, state_weights * len(event) / self.kinds)
        return ChainTables(
            people=pairs,
            across=torch.cat((own.T @ mean, numbered)) / self.kinds,
            events=within,
            ahead={kind: ahead(kind, far) for kind, far in AHEAD.items()},
            known=known,
            mean=mean,
        )

    def rows(self, z: Tensor) -> Tensor:
        uniforms = torch.special.ndtr(z[:, 0].double())
        kind = uniforms.mul(self.kinds).long()
        known = self._people_odds(*self.person_odds())
        return known[kind.clamp(max=self.kinds - 1)]

    def _people_odds(self, own: Tensor, number: Tensor) -> Tensor:
        """The odds of people's columns, side by side: a person without events has no
        first time.
        """
        if not self.ordered:
            return torch.cat((own, number), 1)
        size = self.people[-2]
        others = own[:, :-size]
        first_time = own[:, -size:-1]
        none = number[:, :1]
        with_time = first_time * (1 - none)
        return torch.cat((others, with_time, none, number), 1)

    def _people(
        self,
        known: Tensor,
        own: Tensor,
        number: Tensor,
    ) -> Tensor:
        """Two-way tables of people's columns."""
        people = known.T @ known / self.kinds
        if self.ordered:
            end = own.shape[1]
            begin = end - self.people[-2]
            first_time = own[:, begin:]
            # who has none has no first
            some = functional.pad(number[:, 1:], (1, 0))
            pair = first_time.T @ some / self.kinds
            pair[-1, 0] = number[:, 0].mean()
            people[begin:end, end:] = pair
            people[end:, begin:end] = pair.T
        return people

    def _places(self, first: Tensor, onward: Tensor) -> Tensor:
        """How likely each state is at each place in the order: (chains, longest,
        states).
        """
        places = [first]
        for _ in range(1, self.longest):
            steps = places[-1][:, :, None] * onward
            places.append(steps.sum(1))
        return torch.stack(places, 1)

    def draw(self, n: int, uniform: Callable[[int], Tensor]) -> VisitCodes:
        """`n` people and their events, in order, by Latin hypercubes over all that
        share a kind.
        """
        return self.draw_of(some_kinds(n, self.kinds, uniform), uniform)

    def draw_of(self, kind: Tensor, uniform: Callable[[int], Tensor]) -> VisitCodes:
        odds = torch.cat(self.person_odds(), 1)
        columns = _split(odds, self.people)
        people = by_kind(kind, columns, uniform)
        level = people[:, -1].long()
        if self.ordered:
            missing = self.people[-2] - 1
            people[level == 0, -2] = missing
        bounds = torch.tensor(self.numbers)
        low, high = bounds.T[:, level]
        more = uniform(len(kind)) * (high - low + 1)
        number = low + more.long()
        ends = number.cumsum(0)
        starts = functional.pad(ends, (1, 0))
        events = self.events_of(kind, number, uniform)
        return VisitCodes(people.numpy(), events.numpy(), starts.numpy())

    def events_of(
        self,
        kind: Tensor,
        number: Tensor,
        uniform: Callable[[int], Tensor],
    ) -> Tensor:
        """The events of people of these kinds, so many of each, person by person and in
        order: (events, columns).
        """
        states = self._walk(kind % self.chains, number, uniform)
        return by_kind(states, _split(self.event_odds(), self.events), uniform)

    @torch.no_grad()
    def parted(
        self,
        people: Parts,
        events: Parts,
        numbers: Numbers | None = None,
    ) -> "MixtureOfChains":
        """The same law on finer levels: of every column the level that each is a part
        of, and the logarithm of its share of that. `numbers` are those of the finer
        levels.
        """
        full = MixtureOfChains(
            [len(level) for level, _ in people],
            [len(level) for level, _ in events],
            self.numbers if numbers is None else numbers,
            ordered=self.ordered,
            kinds=self.kinds,
            chains=self.chains,
            states=self.states,
        )
        full.person_logits.copy_(_refined(self.person_logits, self.people, people))
        full.event_logits.copy_(_refined(self.event_logits, self.events, events))
        full.first_logits.copy_(self.first_logits)
        full.next_logits.copy_(self.next_logits)
        return full

    def _walk(
        self,
        chain: Tensor,
        number: Tensor,
        uniform: Callable[[int], Tensor],
    ) -> Tensor:
        """The state of every event, chain · states + state, person by person and in
        order.
        """
        table, onward = (part.detach().cpu().double() for part in self.chain())
        begin = number.cumsum(0) - number
        states = torch.empty(int(number.sum()), dtype=torch.int64)
        walking = torch.arange(len(chain))
        current = chain
        n_steps = int(number.max()) if len(number) else 0
        for step in range(n_steps):
            goes_on = number[walking] > step
            walking = walking[goes_on]
            next_states = by_kind(current[goes_on], [table], uniform)[:, 0]
            current = chain[walking] * self.states + next_states
            states[begin[walking] + step] = current
            table = onward.flatten(0, 1)
        return states

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        given = super().arguments(description)
        if not isinstance(given["numbers"], list | tuple) or not isinstance(
            given["ordered"],
            bool,
        ):
            raise TypeError("numbers, or whether events are ordered")
        return given


def some_kinds(
    n: int,
    kinds: int,
    uniform: Callable[[int], Tensor],
) -> Tensor:
    """The kinds of `n` people, each as often as the others, in any order."""
    order = torch.argsort(uniform(kinds))
    in_turn = order[torch.arange(n) % kinds]
    return in_turn[torch.argsort(uniform(n))]


def _refined(
    logits: Tensor,
    sizes: Sequence[int],
    columns: Parts,
) -> Tensor:
    """Logits of columns with these sizes, on the finer levels of each."""
    finer = []
    blocks = torch.split(logits, list(sizes), 1)
    for block, (level, log_share) in zip(blocks, columns, strict=True):
        finer.append(block[:, level] + log_share)
    return torch.cat(finer, 1)


def _put_tied(
    gram: Tensor,
    ruled: Ruled,
    share: Tensor,
) -> None:
    """The pairs of columns that rules tie, which are not independent in a component, in
    place.
    """
    tables = ruled.tied(share)
    for (a, b, cells), table in zip(ruled.rules.tied, tables, strict=True):
        put(
            gram,
            a,
            b,
            cells,
            table,
        )


def _split(odds: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    plain = odds.detach().cpu().double()
    return torch.split(plain, list(sizes), 1)

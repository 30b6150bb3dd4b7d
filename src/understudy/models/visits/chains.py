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
    after = 0
    found = []
    for pair in numbers:
        low, high = (
            pair if isinstance(pair, list | tuple) and len(pair) == 2 else (None, None)
        )
        if type(low) is not int or type(high) is not int or low != after or high < low:
            raise ConfigError(
                "the numbers of events rise level by level from 0 without gaps, not "
                f"{numbers!r}."
            )
        after = high + 1
        found.append((low, high))
    if len(found) != levels or len(found) < 2 or found[0] != (0, 0):
        raise ConfigError(
            f"{levels} levels of the number of events, the first of them 0, are not "
            f"{numbers!r}."
        )
    whole(most_events=found[-1][1])
    if found[-1][1] > MOST_EVENTS:
        raise ConfigError(
            f"{found[-1][1]:,} events of a person are more than {MOST_EVENTS:,}."
        )
    return tuple(found)


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
    return (
        (weights @ place.transpose(0, 1).reshape(longest, -1))
        .view(-1, chains, states)
        .transpose(0, 1)
    )


def by_kind(
    kind: Tensor, odds: Sequence[Tensor], uniform: Callable[[int], Tensor]
) -> Tensor:
    """Levels of rows of these kinds, in any order, by a Latin hypercube for each: int32
    (n, columns).
    """
    order = torch.argsort(kind + uniform(len(kind)))
    drawn = torch.empty(len(kind), len(odds), dtype=torch.int32)
    drawn[order] = latin(kind[order], odds, uniform)
    return drawn


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
        each = self.chains * states
        steps = states + self.longest + self.people[-1]
        if kinds * (sum(people) + each) + each * (sum(events) + steps) > MOST_WEIGHTS:
            said = (
                f"{kinds:,} kinds of people, {self.chains:,} chains of {states:,} "
                f"states, up to {self.longest:,} events"
            )
            raise ConfigError(
                f"a mixture of {said} a person, is larger than {MOST_WEIGHTS:,}."
            )
        self.person_logits = nn.Parameter(torch.zeros(kinds, sum(people)))
        self.event_logits = nn.Parameter(torch.zeros(self.chains * states, sum(events)))
        self.first_logits = nn.Parameter(torch.zeros(self.chains, self.firsts))
        self.next_logits = nn.Parameter(
            torch.zeros(self.chains, states, states - self.firsts)
        )
        self.person_softmax, self.event_softmax = (
            BlockSoftmax(self.people),
            BlockSoftmax(self.events),
        )
        closed = torch.zeros(states, sum(events))
        mine = torch.zeros(kinds, self.chains)
        if not shapes_only():
            mine[torch.arange(kinds), torch.arange(kinds) % self.chains] = 1
            if ordered:
                closed[: self.firsts, -self.events[-1] : -1] = -torch.inf
                closed[self.firsts :, -1] = -torch.inf
        weights = {
            name: step_weights(self.numbers, less)
            for name, less in ({"spent": 0} | AHEAD).items()
        }
        for name, value in {"closed": closed, "mine": mine, **weights}.items():
            self.register_buffer(name, value, persistent=False)

    @property
    def each(self) -> "tuple[MixtureOfChains, ...]":
        return (self,)

    def person_odds(self) -> tuple[Tensor, Tensor]:
        """Of each kind's columns but the number of events, and of that one; all have a
        first time here.
        """
        logits: Tensor = self.person_logits
        if self.ordered:
            gone = torch.zeros(logits.shape[1], device=logits.device)
            gone[-self.people[-1] - 1] = -torch.inf
            logits = logits + gone
        odds: Tensor = self.person_softmax(logits)
        return odds[:, : -self.people[-1]], odds[:, -self.people[-1] :]

    def event_odds(self) -> Tensor:
        """Of the columns of each state: (chains · states, events' width)."""
        odds: Tensor = self.event_softmax(
            self.event_logits + self.closed.repeat(self.chains, 1)
        )
        return odds

    def chain(self) -> tuple[Tensor, Tensor]:
        """The odds of the first state (chains, states), and of the next given the last
        (chains, states, states).
        """
        first = self.first_logits.softmax(1)
        if not self.ordered:
            return first, first[:, None].expand(-1, self.states, -1)
        first = functional.pad(first, (0, self.states - self.firsts))
        return first, functional.pad(self.next_logits.softmax(2), (self.firsts, 0))

    def tables(
        self, people: Rules | None = None, events: Rules | None = None
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
        held = (number @ spent.transpose(0, 1).flatten(1)).view(
            self.kinds, self.chains, -1
        ) * self.mine[:, :, None]
        mean = held.flatten(1) @ event  # (kinds, events' width)
        # (levels, events' width)
        numbered = (together[:, :, None] * spent).transpose(1, 2).flatten(
            0, 1
        ).T @ event

        def ahead(kind: str, far: int) -> Tensor:
            """Of events, and what so many steps lead to: (events' width, events'
            width).
            """
            # (chains, states)
            before = (together[:, :, None] * along(self.get_buffer(kind), place)).sum(1)
            steps: Tensor = before[:, :, None] * torch.linalg.matrix_power(onward, far)
            following: Tensor = steps @ event.view(self.chains, self.states, -1)
            return event.T @ following.flatten(0, 1) / self.kinds

        known = self._known(own, number)
        pairs = self._people(known, own, number)
        within = event.T @ (held.sum(0).reshape(-1, 1) * event) / self.kinds
        if kept is not None:
            _put_tied(pairs, kept, own.new_ones(len(own)))
        if ruled is not None:
            _put_tied(within, ruled, held.sum(0).flatten() * len(event) / self.kinds)
        return ChainTables(
            people=pairs,
            across=torch.cat((own.T @ mean, numbered)) / self.kinds,
            events=within,
            ahead={kind: ahead(kind, far) for kind, far in AHEAD.items()},
            known=known,
            mean=mean,
        )

    def rows(self, z: Tensor) -> Tensor:
        pick = torch.special.ndtr(z[:, 0].double()).mul(self.kinds).long()
        return self._known(*self.person_odds())[pick.clamp(max=self.kinds - 1)]

    def _known(self, own: Tensor, number: Tensor) -> Tensor:
        """The odds of people's columns, side by side: a person without events has no
        first time.
        """
        if not self.ordered:
            return torch.cat((own, number), 1)
        size = self.people[-2]
        none = number[:, :1]
        return torch.cat(
            (own[:, :-size], own[:, -size:-1] * (1 - none), none, number), 1
        )

    def _people(self, known: Tensor, own: Tensor, number: Tensor) -> Tensor:
        """Two-way tables of people's columns."""
        people = known.T @ known / self.kinds
        if self.ordered:
            end = own.shape[1]
            begin = end - self.people[-2]
            # who has none has no first
            pair = own[:, begin:].T @ functional.pad(number[:, 1:], (1, 0)) / self.kinds
            pair[-1, 0] = number[:, 0].mean()
            people[begin:end, end:], people[end:, begin:end] = pair, pair.T
        return people

    def _places(self, first: Tensor, onward: Tensor) -> Tensor:
        """How likely each state is at each place in the order: (chains, longest,
        states).
        """
        places = [first]
        for _ in range(1, self.longest):
            places.append((places[-1][:, :, None] * onward).sum(1))
        return torch.stack(places, 1)

    def draw(self, n: int, uniform: Callable[[int], Tensor]) -> VisitCodes:
        """`n` people and their events, in order, by Latin hypercubes over all that
        share a kind.
        """
        return self.draw_of(some_kinds(n, self.kinds, uniform), uniform)

    def draw_of(self, kind: Tensor, uniform: Callable[[int], Tensor]) -> VisitCodes:
        odds = torch.cat(self.person_odds(), 1)
        people = by_kind(kind, _split(odds, self.people), uniform)
        level = people[:, -1].long()
        if self.ordered:
            people[level == 0, -2] = self.people[-2] - 1
        low, high = torch.tensor(self.numbers).T[:, level]
        number = low + (uniform(len(kind)) * (high - low + 1)).long()
        starts = functional.pad(number.cumsum(0), (1, 0))
        return VisitCodes(
            people.numpy(),
            self.events_of(kind, number, uniform).numpy(),
            starts.numpy(),
        )

    def events_of(
        self, kind: Tensor, number: Tensor, uniform: Callable[[int], Tensor]
    ) -> Tensor:
        """The events of people of these kinds, so many of each, person by person and in
        order: (events, columns).
        """
        states = self._walk(kind % self.chains, number, uniform)
        return by_kind(states, _split(self.event_odds(), self.events), uniform)

    @torch.no_grad()
    def parted(self, people: Parts, events: Parts) -> "MixtureOfChains":
        """The same law on finer levels: of every column the level that each is a part
        of, and the logarithm of its share of that.
        """
        own, theirs = (
            [len(level) for level, _ in columns] for columns in (people, events)
        )
        full = MixtureOfChains(
            own,
            theirs,
            self.numbers,
            ordered=self.ordered,
            kinds=self.kinds,
            chains=self.chains,
            states=self.states,
        )
        for name, sizes, columns in (
            ("person_logits", self.people, people),
            ("event_logits", self.events, events),
        ):
            blocks = zip(
                torch.split(getattr(self, name), [*sizes], 1), columns, strict=True
            )
            getattr(full, name).copy_(
                torch.cat(
                    [block[:, level] + share for block, (level, share) in blocks], 1
                )
            )
        full.first_logits.copy_(self.first_logits)
        full.next_logits.copy_(self.next_logits)
        return full

    def _walk(
        self, chain: Tensor, number: Tensor, uniform: Callable[[int], Tensor]
    ) -> Tensor:
        """The state of every event, chain · states + state, person by person and in
        order.
        """
        table, onward = (part.detach().cpu().double() for part in self.chain())
        begin = number.cumsum(0) - number
        states = torch.empty(int(number.sum()), dtype=torch.int64)
        going = torch.arange(len(chain))
        source = chain
        for step in range(int(number.max()) if len(number) else 0):
            stays = number[going] > step
            going = going[stays]
            source = source[stays]
            source = (
                chain[going] * self.states + by_kind(source, [table], uniform)[:, 0]
            )
            states[begin[going] + step] = source
            table = onward.flatten(0, 1)
        return states

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        given = super().arguments(description)
        if not isinstance(given["numbers"], list | tuple) or not isinstance(
            given["ordered"], bool
        ):
            raise TypeError("numbers, or whether events are ordered")
        return given


def some_kinds(n: int, kinds: int, uniform: Callable[[int], Tensor]) -> Tensor:
    """The kinds of `n` people, each as often as the others, in any order."""
    order = torch.argsort(uniform(kinds))
    return order[torch.arange(n) % kinds][torch.argsort(uniform(n))]


def _put_tied(gram: Tensor, ruled: Ruled, share: Tensor) -> None:
    """The pairs of columns that rules tie, which are not independent in a component, in
    place.
    """
    for (a, b, cells), table in zip(ruled.rules.tied, ruled.tied(share), strict=True):
        put(gram, a, b, cells, table)


def _split(odds: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    return torch.split(odds.detach().cpu().double(), list(sizes), 1)

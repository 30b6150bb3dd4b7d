"""Fit a mixture of chains to noisy tables of people and their events: released tables in, a generator of both out.

1. *Totals, one- and two-way tables* as `fit_gram` reads them (`noisy_tables`), in four Gram matrices: of people's
   columns, over all people; of people's and events' columns side by side, over people who have an event; of an event's
   columns and the next one's, over people who have two; of its columns and those two events later, over people who
   have three. Each has a total, one-way tables and priors of its own.
2. *The mixture* by gradient descent on all of it at once, measurement over noise variance and prior over its own, from
   jittered one-way tables. It makes all tables those of one law of people with their events. Many laws have the same
   pairs of consecutive events, in some of which people differ for good, and in others the last event tells more of the
   next: pairs of events two apart tell these laws apart.
3. *Stop* as `fit_gram`, but later: no residual, neither of all cells nor of one table, is more than noise could leave,
   and the strongest pairs, which come last, have had half as long again to come nearer; priors keep the others.

Guarantee: reads released tables alone, so the mixture has the privacy of the release.
Edges: of events without an order nothing is read of those that follow.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.visits import SeveralLayout, VisitLayout
from understudy.ground.check import positive, whole
from understudy.ground.errors import ConfigError
from understudy.models.kernels.optimisers import Adam
from understudy.models.tables.empty_cells import SURE
from understudy.models.tables.fit_gram import Watch
from understudy.models.tables.given_rules import Rules, Tie
from understudy.models.tables.noisy_tables import Tables, forbidden, read_tables
from understudy.models.visits.chains import MixtureOfChains, Numbers
from understudy.models.visits.tables import VisitTables, VisitTies
from understudy.models.visits.together import ChainsTogether, TogetherTables

_RAREST = 1e-6  # least initial probability of a level
_WAIT = 0.1  # of the steps, at most, for cells to become empty
_STRAY = 0.015  # of a pair's people, in cells that should be empty
_LONGER = 1.5  # times as long as until no residual is more than noise
_EVERY = 5  # steps, whether to stop is asked
_JITTER = 1.5  # of the initial logits: enough for the kinds, and for the kinds of their events, to part

_Matrix = tuple[Tensor, Tensor]  # a Gram matrix in people, and the deviation of its cells' noise
_Of = Callable[[TogetherTables], Tensor]
_Given = Sequence[tuple[Rules | None, Rules | None]]  # on people's columns, and on events', of each member
NO_TIES = VisitTies()
Fitted = TypeVar("Fitted", MixtureOfChains, ChainsTogether)


def fit_visits(
    tables: VisitTables,
    numbers: Numbers,
    *,
    kinds: int = 256,
    chains: int = 256,
    states: int = 6,
    steps: int = 1200,
    rate: float = 0.2,
    ties: VisitTies = NO_TIES,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> MixtureOfChains:
    """The mixture of chains whose tables match noisy ones.

    `ties` are what public rules leave: what they forbid is known to be 0, whatever was measured there. The mixture is
    fitted as it is drawn, every kind of people given the rules on people, and every state those on events.
    `numbers`: the least and the largest number of events that each level of the last person column stands for.
    `watch(step, residual)`, of the mean square in units of the noise, is called before every fifth step and at the end,
    which comes at `steps`, or a while after no residual is more than noise. The same seed gives the same
    mixture on one device.
    """
    whole(steps=steps)
    positive(rate=rate)
    layout = tables.layout
    if not isinstance(layout, VisitLayout):
        raise ConfigError("these are tables of several kinds of events: see fit_together.")
    mixture = MixtureOfChains(
        layout.people,
        layout.events,
        numbers,
        ordered=layout.ordered,
        kinds=kinds,
        chains=chains,
        states=states,
    )
    return _fitted(mixture, tables, steps, rate, seed, device, watch, (ties,))


def fit_together(
    tables: VisitTables,
    numbers: Sequence[Numbers],
    *,
    kinds: int = 256,
    chains: int = 256,
    states: int = 6,
    steps: int = 1200,
    rate: float = 0.2,
    ties: Sequence[VisitTies] | None = None,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> ChainsTogether:
    """The same of several kinds of events, with the `numbers` and the `ties` of each, those of people in the first."""
    whole(steps=steps)
    positive(rate=rate)
    layout = tables.layout
    if not isinstance(layout, SeveralLayout):
        raise ConfigError("these are tables of one kind of events: see fit_visits.")
    members = [
        MixtureOfChains(
            member.people,
            member.events,
            own,
            ordered=member.ordered,
            kinds=kinds,
            chains=chains,
            states=states,
        )
        for member, own in zip(layout.members, numbers, strict=True)
    ]
    return _fitted(ChainsTogether(members), tables, steps, rate, seed, device, watch, ties)


def _fitted(
    mixture: Fitted,
    tables: VisitTables,
    steps: int,
    rate: float,
    seed: int | None,
    device: torch.device | str,
    watch: Watch | None,
    ties: Sequence[VisitTies] | None,
) -> Fitted:
    """Read what the tables say, begin with one-way tables, jittered, and descend."""
    members, ties = mixture.each, ties or [NO_TIES] * len(mixture.each)
    parts, ways = _read(tables, torch.device(device), [own.both for own in ties])
    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    own, at = parts[0].tables.ways, 0
    with torch.no_grad():
        for member, events in zip(members, ways, strict=True):
            starts = {
                member.person_logits: own[at : at + sum(member.people)],
                member.event_logits: events,
                member.first_logits: torch.ones(()),
                member.next_logits: torch.ones(()),
            }
            for logits, begin in starts.items():
                jitter = torch.randn(logits.shape, generator=generator) * _JITTER
                logits.copy_(begin.clamp(min=_RAREST).log().cpu() + jitter)
            at += sum(member.people)
    rules = [
        (_rules(member.people[:-1], own.people, device), _rules(member.events, own.events, device))
        for member, own in zip(members, ties, strict=True)
    ]
    return _descend(mixture.to(device), parts, rules, steps, rate, watch)


def _rules(sizes: Sequence[int], ties: Sequence[Tie], device: torch.device | str) -> Rules | None:
    """Ties that the fit takes in, if there are any."""
    own = tuple(tie.to(torch.device(device), torch.float32) for tie in ties)
    return Rules(tuple(sizes), own) if own else None


def _read(
    tables: VisitTables, device: torch.device, ties: Sequence[Sequence[Tie]]
) -> "tuple[list[_Part], list[Tensor]]":
    """What the tables say, and the one-way tables of each kind of events.

    Of all people; of those with an event, with one that is followed by another, by two others, for each kind of events;
    of those with events of two kinds.
    """
    layout = tables.layout
    members, titles = (
        (layout.members, layout.titles) if isinstance(layout, SeveralLayout) else ((layout,), ("",))
    )
    people, width = layout.people, sum(layout.people)
    own = _laid_out(tables, "person", (people, people), device)
    given = [[tie.to(device, torch.float64) for tie in own] for own in ties]
    alone = [tie for tie in given[0] if max(tie.columns) < len(people)]
    everyone = read_tables(own[0], people, noise=own[1], ties=alone)
    never = forbidden(people, alone, device)
    parts, ways = [_Part(everyone, 1.0, lambda chain: chain.people, never=never)], []
    unread = torch.full((width, width), torch.inf, dtype=torch.float64, device=device)

    def two_sided(kind: str, sides: tuple[Sequence[int], Sequence[int]], of: _Of) -> None:
        cells, noise = _laid_out(tables, kind, sides, device)
        if torch.isfinite(noise).any():
            two = _two_sided(cells, noise, sides)
            first = (sides[0][0], sides[1][0])
            parts.append(_Part(two, two.people / everyone.people, _one_and_other(of, first)))

    for place, member in enumerate(members):
        end = f" {titles[place]}".rstrip()
        across = _laid_out(tables, f"across{end}", (people, member.events), device)
        events = _laid_out(tables, f"event{end}", (member.events, member.events), device)
        counts, noise = (
            torch.cat((torch.cat((first, a), 1), torch.cat((a.T, e), 1)))
            for first, a, e in zip((own[0], unread), across, events, strict=True)
        )
        sizes = (*people, *member.events)
        some = read_tables(counts, sizes, noise=noise, ties=given[place])
        ways.append(some.ways[width:])
        of, never = partial(_people_and_events, place=place), forbidden(sizes, given[place], device)
        parts.append(_Part(some, some.people / everyone.people, of, skip=width, never=never))
        both = (member.events, member.events)
        two_sided(f"next{end}", both, partial(_after, place=place))
        two_sided(f"later{end}", both, partial(_later, place=place))
    for one, other in combinations(range(len(members)), 2):
        sides = (members[one].events, members[other].events)
        two_sided(f"between {titles[one]} {titles[other]}", sides, partial(_between, one=one, other=other))
    return parts, ways


def _after(chain: TogetherTables, place: int) -> Tensor:
    return chain.members[place].after


def _later(chain: TogetherTables, place: int) -> Tensor:
    return chain.members[place].later


def _between(chain: TogetherTables, one: int, other: int) -> Tensor:
    return chain.between(one, other)


def _two_sided(cells: Tensor, noise: Tensor, sides: tuple[Sequence[int], Sequence[int]]) -> Tables:
    """Tables of an event's columns and of another event's."""
    high, wide = cells.shape

    def whole_gram(own: Tensor, none: float) -> Tensor:
        gram = torch.full((high + wide, high + wide), none, dtype=own.dtype, device=own.device)
        gram[:high, high:] = own
        return gram

    return read_tables(whole_gram(cells, 0.0), (*sides[0], *sides[1]), noise=whole_gram(noise, torch.inf))


def _laid_out(
    tables: VisitTables, kind: str, sides: tuple[Sequence[int], Sequence[int]], device: torch.device
) -> _Matrix:
    """All tables of one kind, as one matrix, one-way tables on the diagonal, and the deviation of the noise."""
    rows, columns = sides
    counts = torch.zeros(sum(rows), sum(columns), dtype=torch.float64)
    noise = torch.full_like(counts, torch.inf)
    for (one, a, b), table in tables.tables.items():
        if one == kind:
            at = (slice(sum(rows[:a]), sum(rows[: a + 1])), slice(sum(columns[:b]), sum(columns[: b + 1])))
            counts[at] = table.diag() if table.ndim == 1 else table
            noise[at] = tables.noise[one, a, b]
    return counts.to(device), noise.to(device)


def _people_and_events(chain: TogetherTables, place: int) -> tuple[Tensor, Tensor]:
    (people, ways), across, own = chain.people, chain.across(place), chain.members[place]
    gram = torch.cat((torch.cat((people, across), 1), torch.cat((across.T, own.events), 1)))
    return gram, torch.cat((ways, own.event_ways))


def _one_and_other(which: _Of, first: tuple[int, int]) -> Callable[[TogetherTables], tuple[Tensor, Tensor]]:
    """One-way tables are sums over the `first` levels of the other side, which are those of its first column."""

    def of(chain: TogetherTables) -> tuple[Tensor, Tensor]:
        table = which(chain)
        high, wide = table.shape
        gram = functional.pad(table, (high, 0, 0, wide))
        return gram + gram.T, torch.cat((table[:, : first[1]].sum(1), table[: first[0]].sum(0)))

    return of


class _Part:
    """One Gram matrix: what was read of it, as shares of all people, and which part of the mixture's tables it is.

    `share` of all people are in it; `of` gives the mixture's own matrix and one-way tables, the first `skip` of which
    are those of all people and not of these. `never`: cells that rules forbid.
    """

    def __init__(
        self,
        tables: Tables,
        share: float,
        of: Callable[[TogetherTables], tuple[Tensor, Tensor]],
        *,
        skip: int = 0,
        never: Tensor | None = None,
    ) -> None:
        self.tables, self.of = tables, of
        self.basis, self.columns = tables.basis.float(), tables.columns.float()
        known = (tables.ways, tables.target, tables.measured)
        self.ways, self.target, self.measured = ((cells * share).float() for cells in known)
        single = tables.ways_precision.clone()
        single[:skip] = 0
        empty = tables.empty
        if never is not None:  # what rules forbid is surely empty
            empty = torch.where(never, torch.maximum(empty, 2 * SURE * tables.weight.sqrt()), empty)
        inverse = (single, tables.precision, tables.weight)
        self.ways_precision, self.precision, self.weight = ((cells / share**2).float() for cells in inverse)
        self.empty, self.sure = (empty / share).float(), (empty > SURE * tables.weight.sqrt()).float()

    def loss(self, gram: Tensor, ways: Tensor) -> Tensor:
        """Half the squares over their variances, and what people in empty cells cost, each pair of levels once."""
        pairs = (self._turned(gram) - self.target).square() * self.precision
        single = (ways - self.ways).square() * self.ways_precision
        return pairs.sum() / 4 + ((gram * self.empty).sum() + single.sum()) / 2

    def left(self, gram: Tensor) -> tuple[float, bool, float]:
        """The squared residuals over the noise's; whether no table has more than noise; people in empty cells."""
        left = (self._turned(gram) - self.measured).square() * self.weight
        noise = bool((self.columns.T @ left @ self.columns <= self.tables.most).all())
        return float(left.sum()), noise, float((self.columns.T @ (gram * self.sure) @ self.columns).max())

    def _turned(self, gram: Tensor) -> Tensor:
        return self.basis.T @ gram @ self.basis


def _descend(
    mixture: Fitted, parts: Sequence[_Part], rules: _Given, steps: int, rate: float, watch: Watch | None
) -> Fitted:
    """Adam on the logits, at a rate that falls to zero as √(1 − t/steps)."""
    # Gradients near 1, far above Adam's epsilon.
    scale = mixture.kinds * float(parts[0].ways_precision.mean().rsqrt())
    weights = [own for own in mixture.parameters() if own.numel()]  # without an order there is no next
    adam = Adam(weights, lr=rate, betas=(0.9, 0.99))
    cells = max(sum(int(torch.count_nonzero(part.weight)) for part in parts), 1)
    least = 1 - 6 / cells**0.5  # each cell counts twice: three deviations of the mean of cells / 2 squares
    end = steps
    for step in range(steps + 1):
        chain = _together(mixture, rules)
        grams = [part.of(chain) for part in parts]
        if step == end or step % _EVERY == 0:
            with torch.no_grad():
                left = [part.left(gram) for part, (gram, _) in zip(parts, grams, strict=True)]
            residual = sum(squares for squares, _, _ in left) / cells
            if watch is not None:
                watch(step, residual)
            noise = residual <= least and all(within for _, within, _ in left)
            waited = step >= _WAIT * steps or all(stray <= _STRAY for _, _, stray in left)
            if noise and waited:
                end = min(end, round(_LONGER * step))
            if step >= end:
                break
        loss = torch.stack([part.loss(*own) for part, own in zip(parts, grams, strict=True)]).sum()
        adam.lr = rate * (1 - step / steps) ** 0.5
        adam.step(torch.autograd.grad(loss * scale, weights))
    return mixture.requires_grad_(False)


def _together(mixture: MixtureOfChains | ChainsTogether, rules: _Given) -> TogetherTables:
    """The expected tables; one kind of events is the only member."""
    if isinstance(mixture, ChainsTogether):
        return mixture.tables(rules)
    return TogetherTables((mixture.tables(*rules[0]),))

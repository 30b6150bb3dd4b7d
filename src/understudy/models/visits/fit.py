"""Fit a mixture of chains to noisy tables of people and their events: released tables
in, a generator of both out.

1. *Totals, one- and two-way tables* as `fit_gram` reads them (`noisy_tables`), in four
   Gram matrices: of people's columns, over all people; of people's and events' columns
   side by side, over people who have an event; of an event's columns and the next
   one's, over people who have two; of its columns and those two events later, over
   people who have three. Each has a total, one-way tables and priors of its own.
2. *The mixture* by gradient descent on all of it at once, measurement over noise
   variance and prior over its own, from jittered one-way tables. It makes all tables
   those of one law of people with their events. Many laws have the same pairs of
   consecutive events, in some of which people differ for good, and in others the last
   event tells more of the next: pairs of events two apart tell these laws apart.
3. *Stop* as `fit_gram`, but later: no residual, neither of all cells nor of one table,
   is more than noise could leave, and the strongest pairs, which come last, have had
   half as long again to come nearer; priors keep the others.

Which tables there are, and what a cell of them means, stands in
`data/visits/counts.py`.

Guarantee: reads released tables alone, so the mixture has the privacy of the release.
Edges: of events without an order nothing is read of those that follow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.data.visits import SeveralLayout, VisitCodes, VisitLayout, count_visits
from understudy.data.visits.counts import AHEAD, Block
from understudy.ground.check import positive, whole
from understudy.models.kernels.clients import Adam
from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.fit_gram import Watch
from understudy.models.tables.given_rules import Rules, Tie
from understudy.models.tables.noisy_tables import NoisyMarginals, forbidden, read_tables
from understudy.models.timing import UNIT, unit_seconds
from understudy.models.visits.chains import MixtureOfChains, Numbers
from understudy.models.visits.together import ChainsTogether, TogetherTables

_RAREST = 1e-6  # least initial probability of a level
_WAIT = 0.1  # of the steps, at most, for cells to become empty
_STRAY = 0.015  # of a pair's people, in cells that should be empty
_LONGER = 1.5  # times as long as until no residual is more than noise
_EVERY = 5  # steps, whether to stop is asked
# of the initial logits: enough for the kinds, and for the kinds of their events, to
# part
_JITTER = 1.5
_STAY = 3.0  # added to the logit of an event of the same kind as the last
_NUMBERS = 0.2  # of the jitter, in what tells numbers of events
_FINE = 27_720  # divisible by every number up to 12
# seconds of a step, and for each place in the order besides
_STEP = 0.012
_PLACE = 1.5e-4
# of its steps a descent takes about so many with declared levels, and with bought ones:
# .2 to 1, and all of them (benchmarks/visits/unbinned.py and memory.py, 8,000 people)
_STOPS = {False: 0.45, True: 1.0}
_WIDTH = 40.0  # products of matrices for a step, at a width of UNIT; grows as the cube

# a Gram matrix of the mixture, and its one-way tables
_Of = Callable[[TogetherTables], tuple[Tensor, Tensor]]
# on people's columns, and on events', of each member
_Given = Sequence[tuple[Rules | None, Rules | None]]


@dataclass(frozen=True, eq=False)
class VisitTies:
    """What all rules leave of people's and events' columns, and what those on `people`,
    or `events`, alone do.
    """

    both: tuple[Tie, ...] = ()
    people: tuple[Tie, ...] = ()
    events: tuple[Tie, ...] = ()


@dataclass(frozen=True)
class VisitTables:
    """Every block of the layout as a table of float64, in people, and the deviation of
    the noise in its cells.
    """

    layout: VisitLayout | SeveralLayout
    tables: Mapping[Block, Tensor]
    noise: Mapping[Block, float]

    @classmethod
    def exact(cls, codes: VisitCodes, layout: VisitLayout) -> "VisitTables":
        """Of rows, without noise: for tests, and for holders who compare. It must not
        leave a holder.
        """
        split = layout.split(count_visits(codes, layout, _FINE))
        units = layout.units(_FINE).items()
        tables = {
            block: torch.from_numpy(np.asarray(split[block], dtype=np.float64)) / own
            for block, own in units
        }
        return cls(layout, tables, dict.fromkeys(tables, 0.0))

    @property
    def people(self) -> float:
        """How many people there are, by the tables of single person columns."""
        columns = range(len(self.layout.people))
        totals = [self.tables["person", a, a].sum() for a in columns]
        return float(torch.stack(totals).mean())


def fit_visits(
    tables: VisitTables,
    numbers: Sequence[Numbers],
    *,
    kinds: int = 256,
    chains: int = 16,
    states: int = 24,
    steps: int = 1200,
    rate: float = 0.2,
    ties: Sequence[VisitTies] = (),
    seed: int | None = None,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> MixtureOfChains | ChainsTogether:
    """The mixture of chains whose tables match noisy ones; of several kinds of events
    one for each, of the same people.

    `numbers`, for each kind of events: the least and the largest number of them that
    each level of the last person column stands for. `ties`, for each likewise, are what
    public rules leave, those of people in the first: what they forbid is known to be 0,
    whatever was measured there. The mixture is fitted as it is drawn, every kind of
    people given the rules on people, and every state those on events. `watch(step,
    residual)`, of the mean square in units of the noise, is called before every fifth
    step and at the end, which comes at `steps`, or a while after no residual is more
    than noise. The same seed gives the same mixture on one device.
    """
    whole(steps=steps)
    positive(rate=rate)
    there = torch.device(device)
    members = [
        MixtureOfChains(
            own.people,
            own.events,
            known,
            ordered=own.ordered,
            kinds=kinds,
            chains=chains,
            states=states,
        )
        for own, known in zip(tables.layout.members, numbers, strict=True)
    ]
    ties = ties or [VisitTies()] * len(members)
    parts, ways = _read(tables, there, [own.both for own in ties])
    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    widths = [sum(member.people) for member in members]
    people = torch.split(parts[0].tables.ways, widths)
    rules: list[tuple[Rules | None, Rules | None]] = []
    for member, own_people, events, own in zip(
        members,
        people,
        ways,
        ties,
        strict=True,
    ):
        _initialize(
            member,
            own_people,
            events,
            generator,
        )
        person_rules = _rules(member.people[:-1], own.people, there)
        event_rules = _rules(member.events, own.events, there)
        rules.append((person_rules, event_rules))
    if len(members) > 1:
        mixture: MixtureOfChains | ChainsTogether = ChainsTogether(members)
    else:
        (mixture,) = members
    mixture = mixture.to(there)
    _descend(
        mixture,
        parts,
        rules,
        steps,
        rate,
        watch,
    )
    return mixture.requires_grad_(False)


@torch.no_grad()
def _initialize(
    member: MixtureOfChains,
    people: Tensor,
    events: Tensor,
    generator: torch.Generator,
) -> None:
    """Logits of the one-way tables of people and of events, with jitter that parts the
    kinds.
    """
    even = torch.ones(())
    starts = {
        member.person_logits: people,
        member.event_logits: events,
        member.first_logits: even,
        member.next_logits: even,
    }
    for logits, probabilities in starts.items():
        jitter = torch.randn(logits.shape, generator=generator) * _JITTER
        start = probabilities.clamp(min=_RAREST).log().cpu()
        logits.copy_(start + jitter)
    _begin(member)


def seconds_of(
    width: int,
    longest: int,
    steps: int,
    *,
    bought: bool,
) -> float:
    """About how long a fit takes, by the levels of all columns and the most events of a
    person. `bought`: they are chosen by what was released.
    """
    of_products = unit_seconds() * _WIDTH * (width / UNIT) ** 3
    of_step = _STEP + _PLACE * longest + of_products
    return _STOPS[bought] * steps * of_step


def _begin(member: MixtureOfChains) -> None:
    """Where a descent begins, in place: a person's first event is of a kind that later
    ones may be of, and the next one mostly of the same; how many events there are
    depends little on the kind of person. What lasts from event to event is then found
    in the chain, where it can fade, before people are told apart by it for good.
    """
    number = member.person_logits[:, -member.people[-1] :]
    number.copy_(torch.lerp(number.mean(0), number, _NUMBERS))
    if member.ordered:
        firsts = member.firsts
        states = member.event_logits.view(member.chains, member.states, -1)
        states[:, :firsts] = states[:, firsts : 2 * firsts]
        state = torch.arange(member.states)
        kind = torch.where(state < firsts, state, state - firsts)
        same_kind = kind[:, None] == state[: member.states - firsts]
        member.next_logits.add_(_STAY * same_kind)


def _rules(
    sizes: Sequence[int],
    ties: Sequence[Tie],
    device: torch.device,
) -> Rules | None:
    """Ties that the fit takes in, if there are any."""
    if not ties:
        return None
    on_device = [tie.to(device, torch.float32) for tie in ties]
    return Rules(tuple(sizes), tuple(on_device))


def _read(
    tables: VisitTables,
    device: torch.device,
    ties: Sequence[Sequence[Tie]],
) -> "tuple[list[_MeasuredGram], list[Tensor]]":
    """What the tables say of all people, of those with events of a kind, or of two, and
    the kinds' one-way tables.
    """
    layout = tables.layout
    members = tables.layout.members
    titles = tables.layout.titles
    people = layout.people
    width = sum(layout.people)
    own, noise = _laid_out(tables, "person", device)
    given = [[tie.to(device, torch.float64) for tie in some] for some in ties]
    alone = [tie for tie in given[0] if max(tie.columns) < len(people)]
    everyone = read_tables(
        own,
        people,
        noise=noise,
        ties=alone,
    )
    parts = [
        _MeasuredGram(
            everyone,
            1.0,
            lambda chain: chain.people,
            never=forbidden(people, alone, device),
        )
    ]
    unread = torch.full(
        (width, width),
        torch.inf,
        dtype=torch.float64,
        device=device,
    )
    ways = []

    def two_sided(kind: str, of: Callable[[TogetherTables], Tensor]) -> None:
        """Of an event's columns and of another event's: two sides of one Gram
        matrix.
        """
        rows, columns = layout.sides(kind)
        cells, noise = _laid_out(tables, kind, device)
        if not torch.isfinite(noise).any():
            return
        high, wide = cells.shape
        around = (high, 0, 0, wide)
        gram = functional.pad(cells, around)
        spread = functional.pad(noise, around, value=torch.inf)
        two = read_tables(gram, (*rows, *columns), noise=spread)

        def both(chain: TogetherTables) -> tuple[Tensor, Tensor]:
            """One-way tables are sums over the levels of the other side's first
            column.
            """
            table = of(chain)
            upper = functional.pad(table, around)
            gram = upper + upper.T
            row_sums = table[:, : columns[0]].sum(1)
            column_sums = table[: rows[0]].sum(0)
            return gram, torch.cat((row_sums, column_sums))

        parts.append(_MeasuredGram(two, two.people / everyone.people, both))

    for place, member in enumerate(members):
        end = f" {titles[place]}".rstrip()
        across = _laid_out(tables, f"across{end}", device)
        events = _laid_out(tables, f"event{end}", device)
        counts = _side_by_side(own, across[0], events[0])
        noise = _side_by_side(unread, across[1], events[1])
        sizes = (*people, *member.events)
        some = read_tables(
            counts,
            sizes,
            noise=noise,
            ties=given[place],
        )
        ways.append(some.ways[width:])

        def side_by_side(
            chain: TogetherTables,
            at: int = place,
        ) -> tuple[Tensor, Tensor]:
            people, ways = chain.people
            own = chain.members[at]
            gram = _side_by_side(people, chain.across(at), own.events)
            return gram, torch.cat((ways, own.mean.mean(0)))

        never = forbidden(sizes, given[place], device)
        parts.append(
            _MeasuredGram(
                some,
                some.people / everyone.people,
                side_by_side,
                skip=width,
                never=never,
            )
        )
        for kind in AHEAD:
            of = lambda chain, at=place, kind=kind: chain.members[at].ahead[kind]  # noqa: E731
            two_sided(f"{kind}{end}", of)
    for one, other in combinations(range(len(members)), 2):
        of = lambda chain, a=one, b=other: chain.between(a, b)  # noqa: E731
        two_sided(f"between {titles[one]} {titles[other]}", of)
    return parts, ways


def _side_by_side(
    people: Tensor,
    across: Tensor,
    events: Tensor,
) -> Tensor:
    """One Gram matrix of people's columns and of an event's."""
    upper = torch.cat((people, across), 1)
    lower = torch.cat((across.T, events), 1)
    return torch.cat((upper, lower))


def _laid_out(
    tables: VisitTables,
    kind: str,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """All tables of one kind, as one matrix, one-way tables on the diagonal, and the
    deviation of the noise.
    """
    rows, columns = tables.layout.sides(kind)
    counts = torch.zeros(sum(rows), sum(columns), dtype=torch.float64)
    noise = torch.full_like(counts, torch.inf)
    row_slices = _slices(rows)
    column_slices = _slices(columns)
    for block, table in tables.tables.items():
        block_kind, a, b = block
        if block_kind == kind:
            cells = row_slices[a], column_slices[b]
            counts[cells] = table.diag() if table.ndim == 1 else table
            noise[cells] = tables.noise[block]
    return counts.to(device), noise.to(device)


def _slices(sizes: Sequence[int]) -> list[slice]:
    """Where each column's levels are among those of all."""
    bounds = accumulate(sizes, initial=0)
    return [slice(start, end) for start, end in pairwise(bounds)]


class _MeasuredGram:
    """One Gram matrix: what was read of it, as shares of all people, of whom it has a
    `share`. `of` gives the mixture's own matrix and one-way tables, the first `skip` of
    which are of all people; rules forbid the cells `never`.
    """

    def __init__(
        self,
        tables: NoisyMarginals,
        share: float,
        of: _Of,
        *,
        skip: int = 0,
        never: Tensor | None = None,
    ) -> None:
        self.tables = tables
        self.of = of
        self.basis = tables.basis.float()
        self.columns = tables.columns.float()
        self.ways = (tables.ways * share).float()
        self.target = (tables.target * share).float()
        self.measured = (tables.measured * share).float()
        ways_precision = tables.ways_precision.clone()
        ways_precision[:skip] = 0
        self.ways_precision = (ways_precision / share**2).float()
        self.precision = (tables.precision / share**2).float()
        self.weight = (tables.weight / share**2).float()
        threshold = CLEAR * tables.weight.sqrt()
        empty = tables.empty
        if never is not None:  # what rules forbid is surely empty
            surely_empty = torch.maximum(empty, 2 * threshold)
            empty = torch.where(never, surely_empty, empty)
        self.empty = (empty / share).float()
        self.sure = (empty > threshold).float()

    def loss(self, gram: Tensor, ways: Tensor) -> Tensor:
        """Half the squares over their variances, and what people in empty cells cost,
        each pair of levels once.
        """
        missed = self._turned(gram) - self.target
        pairs = missed.square() * self.precision
        single = (ways - self.ways).square() * self.ways_precision
        in_empty_cells = (gram * self.empty).sum()
        return pairs.sum() / 4 + (in_empty_cells + single.sum()) / 2

    def residual(self, gram: Tensor) -> tuple[float, bool, float]:
        """The squared residuals over the noise's; whether no table has more than noise;
        people in empty cells.
        """
        residuals = self._turned(gram) - self.measured
        squares = residuals.square() * self.weight
        by_table = self.columns.T @ squares @ self.columns
        within_noise = bool((by_table <= self.tables.most).all())
        strays = self.columns.T @ (gram * self.sure) @ self.columns
        return float(squares.sum()), within_noise, float(strays.max())

    def _turned(self, gram: Tensor) -> Tensor:
        return self.basis.T @ gram @ self.basis


def _descend(
    mixture: MixtureOfChains | ChainsTogether,
    parts: Sequence[_MeasuredGram],
    rules: _Given,
    steps: int,
    rate: float,
    watch: Watch | None,
) -> None:
    """Adam on the logits, at a rate that falls to zero as √(1 − t/steps)."""
    # Gradients near 1, far above Adam's epsilon.
    deviation = float(parts[0].ways_precision.mean().rsqrt())
    scale = mixture.kinds * deviation
    # without an order there is no next
    weights = [own for own in mixture.parameters() if own.numel()]
    adam = Adam(weights, lr=rate, betas=(0.9, 0.99))
    weighted = [int(torch.count_nonzero(part.weight)) for part in parts]
    cells = max(sum(weighted), 1)
    # each cell counts twice: three deviations of the mean of cells / 2 squares
    least = 1 - 6 / cells**0.5
    end = steps
    for step in range(steps + 1):
        chain = TogetherTables(
            tuple(
                member.tables(*own)
                for member, own in zip(mixture.mixtures, rules, strict=True)
            )
        )
        grams = [part.of(chain) for part in parts]
        if step == end or step % _EVERY == 0:
            with torch.no_grad():
                left = [
                    part.residual(gram)
                    for part, (gram, _) in zip(parts, grams, strict=True)
                ]
            residual = sum(squares for squares, _, _ in left) / cells
            if watch is not None:
                watch(step, residual)
            noise = residual <= least and all(within for _, within, _ in left)
            waited = step >= _WAIT * steps or all(
                stray <= _STRAY for _, _, stray in left
            )
            if noise and waited:
                end = min(end, round(_LONGER * step))
            if step >= end:
                break
        losses = [part.loss(*own) for part, own in zip(parts, grams, strict=True)]
        loss = torch.stack(losses).sum()
        adam.lr = rate * (1 - step / steps) ** 0.5
        adam.step(torch.autograd.grad(loss * scale, weights))

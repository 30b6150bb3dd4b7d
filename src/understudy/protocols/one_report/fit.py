"""From one report each to a distribution: a mixture of products, fitted to the
likelihood of the reports.

A report Z about columns S is 1 + (e^ε − 1)·P(x_S ∈ Z) times as likely under a law P as
a report that names nobody's cells, whatever its size. So −Σ log(1 + (e^ε − 1) P(x_S ∈
Z)) is minimised directly; no table is estimated on the way, and sets of columns that
overlap, levels in groups and cells that share a number need no care of their own.

Few noisy reports would be followed into dependence that is not there. A penalty λ ·
mean_k Σ_l (P_kl − w_l)²/w_l holds the K components together, w being their mean: it is
the trace of the normalised covariance of the levels, hence its nuclear norm, and
dependence that no noise would show is kept, at a discount (Koltchinskii, Lounici,
Tsybakov, Annals of Statistics 2011). Near independence the likelihood is ½ mean_k u_kᵀ
G u_k in u = (P_k − w)/√w, so that λ is half the largest eigenvalue of −G for reports
that are drawn from independent columns: the least at which noise alone is not worth a
component.

Liars. If a share η of reports is made up, a report's law is (1 − η) of the honest one
and η of an even one, which is the same likelihood with a smaller lift: a report against
all others then weighs at most so much (`assumed_lift`).

Guarantee: reads reports alone, so the mixture has the privacy of the reports.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, combinations, pairwise

import numpy as np
import torch
from torch import Tensor

from understudy.models.kernels.clients import Adam
from understudy.models.tables.mixture import MixtureOfProducts, one_hot
from understudy.privacy.local.naming import SubsetSelection
from understudy.privacy.noise import FastRng
from understudy.protocols.one_report.party import ColumnSet

_RAREST = 1e-6  # least initial probability of a level
_JITTER = 0.5  # of the initial logits: enough for the components to part
_SOFT = 1e-5  # added to a level's share where the penalty divides by it
_TINY = 1e-12
# of expectation and maximisation for a one-way table, over ε: then noise begins to be
# followed
_TURNS = 50
# Σ p² of a table over that of an even one, by which it has these; others in proportion
_UNEVEN = 1.7
# of them
_LEAST = 0.6
_MOST = 1.5
_DRAWS = 8  # of reports of independent columns
# steps at the end: the one-way tables are then those that were given, to a few digits
_ANCHORS = 20


@dataclass(frozen=True, eq=False)
class Heard:
    """All reports about one set, equal ones together: `named` (different, size), and
    how many are such a report.
    """

    about: ColumnSet
    mechanism: SubsetSelection
    named: Tensor
    times: Tensor

    @classmethod
    def from_reports(
        cls,
        about: ColumnSet,
        mechanism: SubsetSelection,
        named: Tensor,
    ) -> "Heard":
        if not len(named):
            return cls(
                about,
                mechanism,
                named,
                torch.zeros(0),
            )
        different, times = np.unique(named.numpy(), axis=0, return_counts=True)
        return cls(
            about,
            mechanism,
            torch.from_numpy(different),
            torch.from_numpy(times).float(),
        )

    @property
    def reports(self) -> int:
        return int(self.times.sum())

    def assumed_lift(self, liars: float) -> float:
        """e^ε − 1, or less where some reports are taken to be made up."""
        lift = self.mechanism.lift
        honest = 1 - liars
        even = 1 + lift * self.mechanism.size / self.mechanism.cells
        return honest * lift / (honest + liars * even)


def one_ways(all_heard: Sequence[Heard], levels: Sequence[int]) -> list[Tensor]:
    """The likeliest one-way table of each column if columns were independent, nearly:
    (levels,), float64. Dempster, Laird, Rubin (JRSS B 1977): a person's level given the
    report, and its mean over people, in turns, from even tables. They end early: what
    comes late is what noise says of rare levels.
    Edges: a column that nobody was asked about is even.
    """
    heard = [one for one in all_heard if one.reports]
    ways = torch.cat([torch.full((size,), 1 / size) for size in levels])
    if not heard:
        return list(torch.split(ways.double(), list(levels)))
    sizes = torch.tensor(list(levels))
    column = torch.repeat_interleave(sizes)

    def by_column(values: Tensor) -> Tensor:
        """The sum over each column's levels."""
        return torch.zeros(len(levels)).index_add_(0, column, values)

    people = torch.zeros(len(levels))
    for one in heard:
        people[list(one.about.columns)] += one.reports
    people = people.clamp(min=1)[column]
    terms = [Term(one, levels, one.mechanism.lift) for one in heard]
    usual = min(max(_TURNS / heard[0].mechanism.epsilon, 10), 1000)
    for turn in range(math.ceil(_MOST * usual)):
        uneven = sizes * by_column(ways.square())  # 1 for an even table
        last_turn = usual * (uneven / _UNEVEN).clamp(_LEAST, _MOST)
        going = turn < last_turn
        if not bool(going.any()):
            break
        # By level Σ L·P(Z | level)/(1 + L·P(Z)); its mean over a column's levels is Σ 1
        # − 1/(1 + L·P(Z)).
        slope = _likelihood_slope(terms, ways)
        expected = by_column(ways * slope)[column]
        moved = ways * (people - expected + slope) / people
        moved = moved / by_column(moved)[column]
        ways = torch.where(going[column], moved, ways)
    return list(torch.split(ways.double(), list(levels)))


def _likelihood_slope(terms: Sequence["Term"], ways: Tensor) -> Tensor:
    """How all reports' log-likelihood rises with each level's probability."""
    point = ways[None].requires_grad_()
    log_likelihoods = [term.log_likelihood(point) for term in terms]
    torch.stack(log_likelihoods).sum().backward()  # type: ignore[no-untyped-call]
    if point.grad is None:
        return torch.zeros_like(ways)
    return point.grad[0]


def fit_reports(
    all_heard: Sequence[Heard],
    levels: Sequence[int],
    ways: Sequence[Tensor],
    *,
    strength: float,
    anchored: bool,
    components: int,
    steps: int,
    rate: float,
    batch: int,
    liars: float = 0.0,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> MixtureOfProducts:
    """The mixture that reports are likeliest under; `strength`: of λ; `ways`: to begin
    from, `anchored`: to keep.
    """
    mixture = MixtureOfProducts(levels, components)
    generator = torch.Generator().manual_seed(seed)
    start = torch.cat(list(ways)).clamp(min=_RAREST).log().float()
    with torch.no_grad():
        mixture.logits.copy_(
            start
            + _JITTER * torch.randn(components, mixture.width, generator=generator)
        )
    heard = [one for one in all_heard if one.reports]
    # nothing to learn but what `ways` say
    if not any(len(one.about.columns) > 1 for one in heard):
        with torch.no_grad():
            mixture.logits.copy_(start.expand_as(mixture.logits))
        return mixture.requires_grad_(False)
    people = sum(one.reports for one in heard)
    penalty = (
        strength
        * noise_edge(
            heard,
            levels,
            ways,
            liars=liars,
            seed=seed,
        )
        / people
    )
    terms = [
        Term(
            one,
            levels,
            one.assumed_lift(liars),
            device,
        )
        for one in heard
    ]
    mixture = mixture.to(device)
    start = start.to(device)
    adam = Adam([mixture.logits], lr=rate, betas=(0.9, 0.99))
    for chosen, step in zip(
        _batches(len(terms), batch, generator), range(steps), strict=False
    ):
        if anchored:
            _anchor(mixture, start)
        odds = mixture.odds()
        mean = odds.mean(0)
        loss = penalty * ((odds - mean).square() / (mean + _SOFT)).sum(1).mean()
        scale = len(terms) / len(chosen) / people
        for number in chosen:
            loss = loss - scale * terms[number].log_likelihood(odds)
        adam.lr = rate * (1 - step / steps) ** 0.5
        adam.step(torch.autograd.grad(loss, mixture.logits))
    for _ in range(_ANCHORS if anchored else 0):
        _anchor(mixture, start)
    return mixture.requires_grad_(False).cpu()


@torch.no_grad()
def _anchor(mixture: MixtureOfProducts, logs: Tensor) -> None:
    """A step towards one-way tables with these logarithms, of all components alike:
    their dependence stays.
    """
    mixture.logits.add_(logs - mixture.odds().mean(0).clamp(min=_RAREST).log())


def _batches(
    terms: int,
    batch: int,
    generator: torch.Generator,
) -> Iterator[list[int]]:
    """So many numbers below `terms` at a time, without end; each comes once before one
    comes again.
    """
    while True:
        order = torch.randperm(terms, generator=generator).tolist()
        size = min(batch, terms)
        for start in range(0, terms - size + 1, size):
            yield order[start : start + size]


class Term:
    """The likelihood of the reports about one set, for components' odds (components,
    width).
    """

    def __init__(
        self,
        heard: Heard,
        levels: Sequence[int],
        lift: float,
        device: torch.device | str = "cpu",
    ) -> None:
        bounds = list(accumulate(levels, initial=0))
        about = heard.about
        self.lift = lift
        self.sizes = about.sizes
        self.blocks = [
            slice(bounds[column], bounds[column + 1]) for column in about.columns
        ]
        self.named = heard.named.to(device)
        self.times = heard.times.to(device)
        self.groups: list[Tensor | None] = []
        for group, size in zip(about.groups, about.sizes, strict=True):
            whole = torch.equal(group, torch.arange(len(group)))
            self.groups.append(
                None
                if whole
                else torch.nn.functional.one_hot(group, size).float().to(device)
            )
        # of each listed cell the groups that it is made of: (all groups, cells)
        self.listed = None
        if about.listed is not None:
            self.listed = one_hot(about.listed, about.sizes).T.contiguous().to(device)

    def odds(self, odds: Tensor) -> list[Tensor]:
        """Each column's odds by groups."""
        each = zip(self.blocks, self.groups, strict=True)
        return [
            odds[:, block] if group is None else odds[:, block] @ group
            for block, group in each
        ]

    def table(self, odds: Tensor) -> Tensor:
        """The probability of each cell: (cells,)."""
        parts = self.odds(odds)
        if self.listed is not None:
            log_odds = torch.cat(parts, 1).clamp(min=_TINY).log()
            listed = (log_odds @ self.listed).exp().mean(0)
            others = (1 - listed.sum()).clamp(min=_TINY)
            return torch.cat([listed, others[None]])
        if len(parts) == 1:
            return parts[0].mean(0)
        # two halves, as even as can be, so that the sum over components is one product
        # of matrices
        sizes = self.sizes

        def larger_half(at: int) -> int:
            return max(math.prod(sizes[:at]), math.prod(sizes[at:]))

        cut = min(range(1, len(sizes)), key=larger_half)
        first = reduce(_outer, parts[:cut])
        second = reduce(_outer, parts[cut:])
        cells = first.T @ second
        return cells.flatten() / len(odds)

    def log_likelihood(self, odds: Tensor) -> Tensor:
        return (
            self.times * torch.log1p(self.lift * self.table(odds)[self.named].sum(1))
        ).sum()

    def slope(self, ways: Tensor, named: Tensor) -> Tensor:
        """How the likelihood of such reports rises with each cell's probability, at
        independent columns: (cells,).
        """
        table = self.table(ways)
        each = self.lift / (1 + self.lift * table[named].sum(1))
        return torch.zeros_like(table).index_add_(
            0, named.flatten(), each[:, None].expand(named.shape).flatten()
        )

    def pairs(self, ways: Tensor, slope: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """How it rises with each two-way cell of two of the set's columns, the others
        being independent of them.
        """
        parts = [part[0] for part in self.odds(ways)]
        bounds = list(pairwise(accumulate(self.sizes, initial=0)))
        if self.listed is not None:
            flat = torch.cat(parts).clamp(min=_TINY)
            probability = (flat.log() @ self.listed).exp()
            weight = probability * (slope[:-1] - slope[-1])
            over = self.listed / flat[:, None]
            both = (over * weight) @ over.T
        for i, j in combinations(range(len(parts)), 2):
            if self.listed is not None:
                slopes = both[slice(*bounds[i]), slice(*bounds[j])]
            else:
                slopes = slope.view(self.sizes)
                for other in reversed(range(len(parts))):
                    if other in (i, j):
                        continue
                    slopes = torch.tensordot(slopes, parts[other], dims=([other], [0]))
            by_first = self._levels(slopes, i).T
            yield i, j, self._levels(by_first, j).T

    def _levels(self, table: Tensor, column: int) -> Tensor:
        group = self.groups[column]
        return table if group is None else group @ table


def noise_edge(
    heard: Sequence[Heard],
    levels: Sequence[int],
    ways: Sequence[Tensor],
    *,
    liars: float = 0.0,
    seed: int = 0,
) -> float:
    """λ: half the largest eigenvalue that reports of independent columns show, in the
    mean over a few draws.
    """
    rng = FastRng(seed)
    flat = torch.cat(list(ways)).clamp(min=_RAREST).float()
    bounds = list(accumulate(levels, initial=0))
    rises = torch.zeros(_DRAWS, len(flat), len(flat))
    for one in heard:
        term = Term(one, levels, one.assumed_lift(liars))
        table = term.table(flat[None]).double()
        cumulative = table.cumsum(0) / table.sum()
        for rise in rises:
            cells = torch.searchsorted(cumulative, rng.uniform(one.reports)).clamp(
                max=len(cumulative) - 1
            )
            slope = term.slope(flat[None], one.mechanism(cells, rng))
            for i, j, slopes in term.pairs(flat[None], slope):
                a, b = (slice(*bounds[one.about.columns[k] :][:2]) for k in (i, j))
                rise[a, b] += slopes
                rise[b, a] += slopes.T
    root = flat.sqrt()
    # Odds sum to 1 in every column, so that nothing moves along √w.
    column = torch.repeat_interleave(torch.tensor(list(levels)))
    along = root[:, None] * torch.nn.functional.one_hot(column)
    free = torch.eye(len(flat)) - along @ along.T
    edges = (
        torch.linalg.eigvalsh(
            (free @ (rises * torch.outer(root, root)) @ free).double()
        )[:, -1]
        / 2
    )
    return max(0.0, float(edges.mean()))


def _outer(one: Tensor, other: Tensor) -> Tensor:
    return (one[:, :, None] * other[:, None, :]).flatten(1)

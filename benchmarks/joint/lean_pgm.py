"""dpmm's MST and AIM with the same arithmetic and less of Python, so that they end on wide tables.

dpmm 0.1.9 spends nearly all of its time on the objects around arrays of a few cells: half a millisecond a message where
the numbers take ten microseconds. `install` replaces the following by functions that compute the same:

    FactoredInference.mirror_descent    one vector for all cliques; sums by prepared places
    GraphicalModel.project              pairs across cliques from one column to all others along the tree, kept
    GraphicalModel.synthetic_data       groups by sorting, not by one data frame each
    hypothetical_model_size             the same greedy triangulation on sets of bits
    AIM.worst_approximated              draws first and asks afterwards whether a candidate's model would be too large:
                                        the distribution of a draw among those that are not
    compile_workload, datavector        counted at once

    central/bin/python benchmarks/joint/lean_pgm.py     # holds each of them against dpmm's own on generated tables
"""

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from dpmm.models import aim
from dpmm.models.base.mbi import CliqueVector, Dataset, Factor, FactoredInference, GraphicalModel
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

Floats = NDArray[np.float64]
Clique = tuple[str, ...]
Places = NDArray[np.intp]
Message = tuple[int, int, Places, Places, int]
_FIRST = 1000  # iterations of AIM's first estimate, at least
_DRAWS = 500  # of the check
_LEAST = 1e-280  # far above where doubles lose digits


class Tree:
    """A model's junction tree, laid out for belief propagation over one vector of all cliques' cells.

    Sums over some of a clique's columns, and what comes back, go by each cell's place in the smaller table: many short
    axes are what NumPy's own sums and broadcasts are slow at.
    """

    def __init__(self, model: Any) -> None:
        self.model, domain = model, model.domain
        self.bounds = np.cumsum([0, *(int(domain.size(clique)) for clique in model.cliques)]).tolist()
        self.number = {clique: number for number, clique in enumerate(model.cliques)}
        root = max(model.cliques, key=domain.size)  # the largest one is summed once, towards all others
        down = [(root, near) for near in model.neighbors[root]]
        for i, j in down:  # grows while it is read
            down += [(j, near) for near in model.neighbors[j] if near != i]
        self.down = [self._message(i, j) for i, j in down]
        self.up = [(j, i, at_j, at_i, size) for i, j, at_i, at_j, size in reversed(self.down)]

    def _message(self, i: Clique, j: Clique) -> "Message":
        shared = self.model.domain.canonical(set(i) & set(j))
        size = int(self.model.domain.size(shared))
        return self.number[i], self.number[j], self.places(i, shared), self.places(j, shared), size

    def places(self, clique: Clique, asked: Clique) -> Places:
        """For each cell of a clique its place in the table of some of its columns."""
        domain, shape = self.model.domain, [int(self.model.domain[a]) for a in clique]
        place = np.zeros([1] * len(clique), np.intp)
        for a in asked:
            axis = clique.index(a)
            level = np.arange(shape[axis]).reshape([-1 if n == axis else 1 for n in range(len(shape))])
            place = place * int(domain[a]) + level
        return np.broadcast_to(place, shape).ravel()

    def views(self, cells: Floats) -> list[Floats]:
        """Each clique's part of a vector."""
        return [cells[start:end] for start, end in itertools.pairwise(self.bounds)]

    def vector(self, factors: Any) -> Floats:
        return np.concatenate([factors[clique].values.ravel() for clique in self.model.cliques])

    def factors(self, cells: Floats) -> Any:
        domain, named = self.model.domain, zip(self.model.cliques, self.views(cells), strict=True)
        return CliqueVector({clique: Factor(domain.project(clique), view) for clique, view in named})

    def marginals(self, potentials: Floats) -> Floats:
        """Every clique's table of expected counts."""
        beliefs = potentials.copy()
        views = self.views(beliefs)
        heard: list[Any] = [None] * len(views)  # what each said towards the root
        powers: list[Any] = [None] * len(views)
        for i, j, at_i, at_j, size in self.up:
            heard[i] = _log_sum(_powers(views[i]), at_i, size, views[i])
            views[j] += heard[i][at_j]
        for i, j, at_i, at_j, size in self.down:
            powers[i] = powers[i] or _powers(views[i])
            # What j said is a function of what they share: it is taken away after the sum.
            views[j] += (_log_sum(powers[i], at_i, size, views[i]) - heard[j])[at_j]
        top, power = _powers(views[0])
        beliefs += math.log(self.model.total) - top - math.log(power.sum())
        return np.exp(beliefs, out=beliefs)


def _powers(cells: Floats) -> tuple[float, Floats]:
    top = float(cells.max())
    return top, np.exp(cells - top)


def _log_sum(power: tuple[float, Floats], places: Places, size: int, cells: Floats) -> Floats:
    """The logarithm of sums of e^cells by place; where one is too small beside the largest, from the cells again."""
    top, powers = power
    total: Floats = np.bincount(places, powers, size)
    if total.min() > _LEAST:
        return np.log(total) + top
    tops = np.full(size, -np.inf)
    np.maximum.at(tops, places, cells)
    total = np.bincount(places, np.exp(cells - tops[places]), size)
    return np.log(total) + tops


class Answers:
    """Measurements of a model's marginals, side by side: half their weighted squared distance, and its slope."""

    def __init__(self, tree: Tree, groups: Any) -> None:
        self.tree, self.reads, counts, shares, weights, end = tree, [], [], [], [], 0
        for number, clique in enumerate(tree.model.cliques):
            for query, answer, noise, asked in groups[clique]:
                start, end = end, end + answer.size
                whole = tuple(asked) == clique
                self.reads.append((number, None if whole else tree.places(clique, asked), start, end))
                counts.append(np.asarray(answer).ravel())
                shares.append(query.diagonal() if hasattr(query, "diagonal") else np.ones(answer.size))
                weights.append(np.full(answer.size, 1 / noise))
        self.counts, self.shares = np.concatenate(counts), np.concatenate(shares)
        self.weights, self.found = np.concatenate(weights), np.empty(end)

    def loss(self, marginals: Floats) -> tuple[float, Floats]:
        views = self.tree.views(marginals)
        for number, places, start, end in self.reads:
            cells = views[number]
            self.found[start:end] = cells if places is None else np.bincount(places, cells, end - start)
        off = self.weights * (self.shares * self.found - self.counts)
        loss = 0.5 * float(off @ off)
        off *= self.weights * self.shares
        slope = np.zeros_like(marginals)
        slopes = self.tree.views(slope)
        for number, places, start, end in self.reads:
            slopes[number] += off[start:end] if places is None else off[start:end][places]
        return loss, slope


def mirror_descent(
    self: Any, measurements: Any, total: Any = None, stepsize: Any = None, callback: Any = None
) -> float:
    """dpmm's: steps along the slope in the potentials, twice as long as the last one that was short enough.

    Where AIM's rounds have fewer than dpmm's 1,000 iterations, the first estimate, of columns alone, still has them.
    """
    if self.metric != "L2" or stepsize is not None or callback is not None:
        raise NotImplementedError("squared distance and a line search alone")
    first = self.warm_start and not hasattr(self, "model")  # of AIM's estimates; the others go on from it
    self._setup(measurements, total)
    model = self.model
    tree = Tree(model)
    answers, theta = Answers(tree, self.groups), tree.vector(model.potentials)
    mu = tree.marginals(theta)
    loss, slope = answers.loss(mu)
    alpha = 1 / model.total**2
    for _ in range(max(self.iters, _FIRST * first) if loss else 0):
        before, start, least = theta, mu, loss
        direction = slope
        alpha *= 2
        for _ in range(25):
            theta = before - alpha * direction
            mu = tree.marginals(theta)
            loss, slope = answers.loss(mu)
            if least - loss >= 0.5 * alpha * float(direction @ (start - mu)):
                break
            alpha *= 0.5
    model.potentials, model.marginals = tree.factors(theta), tree.factors(mu)
    return loss


class Pairs:
    """Tables of two columns anywhere in a model, read along its junction tree."""

    def __init__(self, model: Any) -> None:
        self.model, self.marginals = model, model.marginals
        self.kept: dict[str, dict[str, Floats]] = {}
        self.homes: dict[str, list[Clique]] = {a: [] for a in model.domain.attrs}
        for clique in sorted(model.cliques, key=model.domain.size):
            for a in clique:
                self.homes[a].append(clique)
        self.given: dict[tuple[Clique, Clique, Clique], Floats] = {}

    def home(self, attrs: Sequence[str]) -> Clique | None:
        """The smallest clique that has all of them."""
        return next((c for c in self.homes[attrs[0]] if set(attrs) <= set(c)), None)

    def table(self, a: str, b: str) -> Floats:
        if a not in self.kept:
            self.kept[a] = dict(self._reach(a))
        return self.kept[a][b]

    def _reach(self, a: str) -> Iterator[tuple[str, Floats]]:
        """P(a, b) for every other b, each found where b is met first."""
        size, home = int(self.model.domain[a]), self.homes[a][0]
        own = np.diag(self.marginals[home].project((a,)).values)
        waiting: list[tuple[Clique, Clique | None, Clique, Floats]] = [(home, None, (a,), own)]
        met = {a}
        while waiting:
            clique, origin, known, table = waiting.pop()
            for b in clique:
                if b not in met:
                    met.add(b)
                    yield b, self._onward(clique, known, (b,), table, size)
            for after in self.model.neighbors[clique]:
                if after != origin:
                    shared = self.model.domain.canonical(set(clique) & set(after))
                    waiting.append((after, clique, shared, self._onward(clique, known, shared, table, size)))

    def _onward(self, clique: Clique, known: Clique, wanted: Clique, table: Floats, size: int) -> Floats:
        """From P(a, known), (a, known…), to P(a, wanted), both within one clique."""
        domain = self.model.domain
        both = tuple(x for x in known if x in wanted)
        gone, new = (tuple(x for x in xs if x not in both) for xs in (known, wanted))
        given = self.given.get((clique, known, wanted))
        if given is None:
            joint = self.marginals[clique].project((*both, *gone, *new)).values
            joint = joint.reshape(domain.size(both), domain.size(gone), domain.size(new))
            base = joint.sum(2, keepdims=True)
            given = np.divide(joint, base, out=np.zeros(joint.shape), where=base > 0)
            self.given[clique, known, wanted] = given
        axes = [0, *(1 + known.index(x) for x in (*both, *gone))]
        table = table.reshape(size, *(int(domain[x]) for x in known)).transpose(axes)
        table = np.moveaxis(table.reshape(size, domain.size(both), domain.size(gone)), 0, 1)
        made = np.moveaxis(table @ given, 1, 0)  # (a, both, new)
        made = made.reshape(size, *(int(domain[x]) for x in (*both, *new)))
        order = [0, *(1 + (*both, *new).index(x) for x in wanted)]
        return made.transpose(order)


_project = GraphicalModel.project


def project(self: Any, attrs: Any) -> Any:
    """A table of the model: within a clique, or of two columns; anything else as dpmm does."""
    attrs = tuple(attrs)
    if not hasattr(self, "marginals"):
        return _project(self, attrs)
    pairs = self.__dict__.get("_pairs")
    if pairs is None or pairs.marginals is not self.marginals:
        pairs = self._pairs = Pairs(self)
    home = pairs.home(attrs)
    if home is not None:
        return self.marginals[home].project(attrs)
    if len(attrs) != 2:
        return _project(self, attrs)
    return Factor(self.domain.project(attrs), np.ascontiguousarray(pairs.table(*attrs)))


def hypothetical_model_size(domain: Any, cliques: Sequence[Clique]) -> float:
    """Megabytes of the cliques that the greedy elimination leaves."""
    place = {a: n for n, a in enumerate(domain.attrs)}
    sizes = [int(size) for size in domain.shape]
    near = [0] * len(sizes)
    for clique in cliques:
        bits = sum(1 << place[a] for a in clique)
        for a in clique:
            near[place[a]] |= bits
    cost = [_cells(bits, sizes) for bits in near]
    queue = [(cells, a) for a, cells in enumerate(cost)]
    heapq.heapify(queue)
    left, found = set(range(len(sizes))), []
    while left:
        cells, a = heapq.heappop(queue)
        if a not in left or cells != cost[a]:
            continue
        left.remove(a)
        bits = near[a] | 1 << a
        found.append(bits)
        for b in _members(bits & ~(1 << a)):
            joined = (near[b] | bits) & ~(1 << a)
            if joined != near[b]:
                near[b], cost[b] = joined, _cells(joined, sizes)
                heapq.heappush(queue, (cost[b], b))
    # A later clique may lie within an earlier one, and not the other way round: the earlier has its own column more.
    largest = [bits for n, bits in enumerate(found) if not any(bits & ~other == 0 for other in found[:n])]
    return sum(_cells(bits, sizes) for bits in largest) * 8 / 2**20


def _members(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _cells(bits: int, sizes: Sequence[int]) -> int:
    return math.prod(sizes[a] for a in _members(bits))


def compile_workload(workload: Sequence[Clique]) -> dict[Clique, int]:
    """Every part of a wanted table, and how often its columns are wanted."""
    wanted: dict[str, int] = {}
    for a in itertools.chain.from_iterable(workload):
        wanted[a] = wanted.get(a, 0) + 1
    return {clique: sum(wanted[a] for a in clique) for clique in aim.downward_closure(workload)}


class Candidates(dict):  # type: ignore[type-arg]
    """All candidates, with what decides whether a model with one more of them would be too large."""

    def __init__(self, candidates: Any, model: Any, limit: float | None) -> None:
        super().__init__(candidates)
        self.model, self.limit = model, limit

    def allowed(self, clique: Clique) -> bool:
        if self.limit is None or any(set(clique) <= set(own) for own in self.model.cliques):
            return True
        domain, cliques = self.model.domain, [*self.model.cliques, clique]
        return hypothetical_model_size(domain, cliques) <= self.limit


def worst_approximated(
    self: Any, candidates: Any, answers: Any, model: Any, eps: float, sigma: float, public: bool = False
) -> Clique:
    """The exponential mechanism among allowed candidates: drawn among all until an allowed one comes."""
    assert not public
    names = list(candidates)
    bias, weights = math.sqrt(2 / math.pi) * sigma, np.array([candidates[name] for name in names], float)
    heaviest = next(  # of those that are allowed
        weights[n] for n in np.argsort(-weights, kind="stable") if candidates.allowed(names[n])
    )
    off = (np.abs(answers[name] - model.project(name).values.ravel()).sum() for name in names)
    sizes = np.array([model.domain.size(name) for name in names], float)
    errors = weights * (np.fromiter(off, float, len(names)) - bias * sizes)
    scores = 0.5 * eps / heaviest * errors
    while True:
        drawn = int(self.prng.choice(len(names), p=softmax(scores)))
        if candidates.allowed(names[drawn]):
            return names[drawn]  # type: ignore[no-any-return]
        scores[drawn] = -np.inf  # it would be refused again


def datavector(self: Any, flatten: bool = True) -> Floats:
    """How often each combination of levels occurs."""
    assert self.weights is None
    shape = tuple(int(size) for size in self.domain.shape)
    cells = np.ravel_multi_index(tuple(self.df.to_numpy(np.int64).T), shape)
    counts = np.bincount(cells, minlength=math.prod(shape)).astype(float)
    return counts if flatten else counts.reshape(shape)


def synthetic_data(
    self: Any, rows: int | None = None, condition_records: Any = None, method: str = "round"
) -> Any:
    """Rows column by column against the order of elimination; within a group, counts as near as whole numbers allow."""
    assert condition_records is None
    assert method == "round"
    total, domain, rng = rows or int(self.total), self.domain, self.prng
    made: dict[str, NDArray[np.int64]] = {}
    for a in self.elimination_order[::-1]:
        near = set().union(*(clique for clique in self.cliques if a in clique))
        known = domain.canonical(near & set(made))
        marginal = self.project((*known, a)).values.reshape(-1, int(domain[a]))
        group = np.zeros(total, np.int64)
        if known:
            group = np.ravel_multi_index([made[x] for x in known], [int(domain[x]) for x in known])
        order = np.argsort(group, kind="stable")
        present, starts = np.unique(group[order], return_index=True)
        drawn = np.empty(total, np.int64)
        for which, places in zip(present, np.split(order, starts[1:]), strict=True):
            drawn[places] = _rounded(marginal[which], len(places), rng)
        made[a] = drawn
    return Dataset(pd.DataFrame(made)[list(domain.attrs)], domain)


def _rounded(counts: Floats, total: int, rng: Any) -> NDArray[np.int64]:
    all_of_them = counts.sum()
    shares = counts / all_of_them if all_of_them > 0 else np.full(len(counts), 1 / len(counts))
    part, whole = np.modf(shares * total)
    often = whole.astype(np.int64)
    more = total - int(often.sum())
    if more > 0:
        often[rng.choice(len(counts), more, False, part / part.sum())] += 1
    levels = np.repeat(np.arange(len(counts)), often)
    rng.shuffle(levels)
    return levels


def install() -> None:
    """Put all of them in place."""
    FactoredInference.mirror_descent = mirror_descent
    GraphicalModel.project, GraphicalModel.synthetic_data = project, synthetic_data
    Dataset.datavector = datavector
    aim.hypothetical_model_size, aim.compile_workload = hypothetical_model_size, compile_workload
    aim.Identity = sparse.eye  # dpmm's own needs an older SciPy and NumPy
    aim.filter_candidates, aim.AIM.worst_approximated = Candidates, worst_approximated


def check() -> None:
    """Each replacement against dpmm's own, on generated tables."""
    rng = np.random.default_rng(0)
    theirs = {
        "descent": FactoredInference.mirror_descent, "size": aim.hypothetical_model_size,
        "workload": aim.compile_workload, "filter": aim.filter_candidates, "counts": Dataset.datavector,
        "rows": GraphicalModel.synthetic_data,
    }  # fmt: skip
    for trial in range(20):
        sizes = rng.integers(2, 6, 9)
        names = [f"c{n}" for n in range(len(sizes))]
        codes = rng.integers(0, sizes, (500, len(sizes)))
        codes[:, 1:] = np.where(rng.random((500, 8)) < 0.5, codes[:, 1:], codes[:, :1] % sizes[1:])
        data = Dataset(pd.DataFrame(codes, columns=names), aim.Domain(names, sizes.tolist()))
        pairs = list(itertools.combinations(names, 2))
        assert compile_workload(pairs) == theirs["workload"](pairs)
        asked = [(a,) for a in names] + [pairs[n] for n in rng.choice(len(pairs), trial % 9, False)]
        asked = [tuple(rng.permutation(clique)) for clique in asked]
        measured = []
        for clique in asked:
            exact = data.project(list(clique)).datavector()
            assert (exact == theirs["counts"](data.project(list(clique)))).all()
            noisy = exact + rng.normal(0, 5, exact.shape)
            measured.append((sparse.diags(rng.uniform(0.5, 1, exact.size)), noisy, 5.0, clique))
        models = []
        for descent in (theirs["descent"], mirror_descent):
            engine = FactoredInference(data.domain, iters=40)
            descent(engine, measured)
            models.append(engine.model)
        for clique in models[0].cliques:
            _same(models[0].marginals[clique].values, models[1].marginals[clique].values)
        for pair in [*pairs, *((b, a) for a, b in pairs)]:
            _same(_project(models[1], pair).values, project(models[1], pair).values)
        for extra in pairs:
            cliques = [*models[0].cliques, extra]
            assert hypothetical_model_size(data.domain, cliques) == theirs["size"](data.domain, cliques)
        for draw in (theirs["rows"], synthetic_data):
            rows = draw(models[1], 5000)
            for clique in models[1].cliques:
                expected = models[1].marginals[clique].values.ravel()
                found = theirs["counts"](rows.project(list(clique)))
                distance = np.abs(found / 5000 - expected / expected.sum()).sum() / 2
                assert distance < 0.05, (draw, clique, distance)
        if trial == 19:
            _check_draws(models[1], compile_workload(pairs), data, theirs["filter"])
    print("the same as dpmm's own: 20 tables, 40 steps each")


def _check_draws(model: Any, weights: dict[Clique, int], data: Any, filtered: Any) -> None:
    """How often each candidate is drawn, against dpmm's chances among those that it leaves."""
    answers = {clique: data.project(list(clique)).datavector() for clique in weights}
    limit = 1.2 * model.size * 8 / 2**20
    left, chooser = filtered(weights, model, limit), aim.AIM(prng=np.random.RandomState(0), n_jobs=1)
    assert 0 < len(left) < len(weights)
    off = {c: chooser._worst_approximated(c, w, answers[c], model, 5.0)[1] for c, w in left.items()}
    chances = softmax(0.5 * 0.05 / max(left.values()) * np.array(list(off.values())))
    asked = Candidates(weights, model, limit)
    draws = [worst_approximated(chooser, asked, answers, model, 0.05, 5.0) for _ in range(_DRAWS)]
    often = np.array([draws.count(clique) for clique in left])
    assert often.sum() == len(draws), "something was drawn that is too large"
    assert (np.abs(often - _DRAWS * chances) < 4.5 * np.sqrt(_DRAWS * chances) + 1).all()


def _same(a: Floats, b: Floats) -> None:
    assert np.allclose(a, b, rtol=1e-6, atol=1e-6), np.abs(a - b).max()


if __name__ == "__main__":
    check()

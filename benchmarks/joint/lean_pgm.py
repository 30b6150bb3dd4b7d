"""dpmm's MST and AIM with the same arithmetic and less of Python, so that they end on wide tables.

dpmm 0.1.9 spends nearly all of its time on the objects around arrays of a few cells: half a millisecond a message where
the numbers take ten microseconds. `install` replaces the following by functions that compute the same:

    FactoredInference.mirror_descent    one vector for all cliques; messages by prepared axes
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
from scipy.special import softmax

Floats = NDArray[np.float64]
Clique = tuple[str, ...]


class Tree:
    """A model's junction tree, laid out for belief propagation over one vector of all cliques' cells."""

    def __init__(self, model: Any) -> None:
        self.model, domain = model, model.domain
        self.shapes = [tuple(int(domain[a]) for a in clique) for clique in model.cliques]
        self.bounds = np.cumsum([0, *map(math.prod, self.shapes)]).tolist()
        places = {clique: place for place, clique in enumerate(model.cliques)}
        sent: dict[tuple[Clique, Clique], int] = {}
        self.messages = []
        for number, (i, j) in enumerate(model.message_order):
            shared = set(i) & set(j)
            over = tuple(axis for axis, a in enumerate(i) if a not in shared)
            into = tuple(int(domain[a]) if a in shared else 1 for a in j)
            self.messages.append((places[i], places[j], over, into, sent.get((j, i))))
            sent[i, j] = number

    def views(self, cells: Floats) -> list[Floats]:
        """Each clique's part of a vector, in its shape."""
        parts = zip(itertools.pairwise(self.bounds), self.shapes, strict=True)
        return [cells[start:end].reshape(shape) for (start, end), shape in parts]

    def vector(self, factors: Any) -> Floats:
        return np.concatenate([factors[clique].values.ravel() for clique in self.model.cliques])

    def factors(self, cells: Floats) -> Any:
        domain, views = self.model.domain, self.views(cells)
        named = zip(self.model.cliques, views, strict=True)
        return CliqueVector({clique: Factor(domain.project(clique), view) for clique, view in named})

    def marginals(self, potentials: Floats) -> Floats:
        """Every clique's table of expected counts."""
        beliefs = potentials.copy()
        views, sent = self.views(beliefs), []
        for i, j, over, into, back in self.messages:
            said = _log_sum(views[i], over)
            if (
                back is not None
            ):  # what j said is a function of the separator: it leaves after the sum as well
                said = said - sent[back]
            sent.append(said)
            views[j] += said.reshape(into)
        beliefs += math.log(self.model.total) - float(_log_sum(views[0], tuple(range(views[0].ndim))))
        return np.exp(beliefs, out=beliefs)


def _log_sum(cells: Floats, over: tuple[int, ...]) -> Floats:
    if not over:
        return cells.copy()
    top = np.maximum.reduce(cells, axis=over, keepdims=True)
    apart = np.subtract(cells, top)
    np.exp(apart, out=apart)
    total: Floats = np.asarray(np.add.reduce(apart, axis=over))
    return np.log(total) + top.reshape(total.shape)


class Answers:
    """Measurements of a model's marginals, side by side: half their weighted squared distance, and its slope."""

    def __init__(self, tree: Tree, groups: Any) -> None:
        domain, counts, shares, weights = tree.model.domain, [], [], []
        self.tree, self.reads, end = tree, [], 0
        for place, clique in enumerate(tree.model.cliques):
            for query, answer, noise, asked in groups[clique]:
                own = domain.canonical(asked)
                order = [asked.index(a) for a in own]
                shape = tuple(int(domain[a]) for a in asked)
                over = tuple(axis for axis, a in enumerate(clique) if a not in own)
                wide = tuple(int(domain[a]) if a in own else 1 for a in clique)
                start, end = end, end + math.prod(shape)
                self.reads.append((place, over, start, end, wide))
                diagonal = query.diagonal() if hasattr(query, "diagonal") else np.ones(query.shape[0])
                for kept, values in ((counts, np.asarray(answer)), (shares, diagonal)):
                    kept.append(values.reshape(shape).transpose(order).ravel())
                weights.append(np.full(end - start, 1 / noise))
        self.counts, self.shares = np.concatenate(counts), np.concatenate(shares)
        self.weights, self.found = np.concatenate(weights), np.empty(end)

    def loss(self, marginals: Floats) -> tuple[float, Floats]:
        views = self.tree.views(marginals)
        for place, over, start, end, _ in self.reads:
            self.found[start:end] = (
                np.add.reduce(views[place], axis=over).ravel() if over else views[place].ravel()
            )
        off = self.weights * (self.shares * self.found - self.counts)
        loss = 0.5 * float(off @ off)
        off *= self.weights * self.shares
        slope = np.zeros_like(marginals)
        slopes = self.tree.views(slope)
        for place, _, start, end, wide in self.reads:
            slopes[place] += off[start:end].reshape(wide)
        return loss, slope


def mirror_descent(
    self: Any, measurements: Any, total: Any = None, stepsize: Any = None, callback: Any = None
) -> float:
    """dpmm's: steps along the slope in the potentials, twice as long as the last one that was short enough."""
    if self.metric != "L2" or stepsize is not None or callback is not None:
        raise NotImplementedError("squared distance and a line search alone")
    self._setup(measurements, total)
    model = self.model
    tree = Tree(model)
    answers, theta = Answers(tree, self.groups), tree.vector(model.potentials)
    mu = tree.marginals(theta)
    loss, slope = answers.loss(mu)
    alpha = 1 / model.total**2
    for _ in range(self.iters if loss else 0):
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
        self.model, self.kept = model, {}  # type: ignore[var-annotated]
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
        found: Floats = self.kept[a][b]
        return found

    def _reach(self, a: str) -> Iterator[tuple[str, Floats]]:
        """P(a, b) for every other b, each found where b is met first."""
        size, home = int(self.model.domain[a]), self.homes[a][0]
        own = np.diag(self.model.marginals[home].project((a,)).values)
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
            joint = self.model.marginals[clique].project((*both, *gone, *new)).values
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
        pairs.marginals = self.marginals
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
    # A clique found later is never within an earlier one's remainder: it has that one's column no more.
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
    chances = softmax(0.5 * eps / heaviest * (errors - errors.max()))
    while True:
        drawn = int(self.prng.choice(len(names), p=chances))
        if candidates.allowed(names[drawn]):
            return names[drawn]  # type: ignore[no-any-return]
        chances[drawn] = 0  # it would be refused again
        chances /= chances.sum()


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
    aim.filter_candidates, aim.AIM.worst_approximated = Candidates, worst_approximated


def check() -> None:
    """Each replacement against dpmm's own, on generated tables."""
    from scipy import sparse

    rng = np.random.default_rng(0)
    theirs = {
        "descent": FactoredInference.mirror_descent, "size": aim.hypothetical_model_size,
        "workload": aim.compile_workload, "counts": Dataset.datavector, "rows": GraphicalModel.synthetic_data,
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
    print("the same as dpmm's own: 20 tables, 40 steps each")


def _same(a: Floats, b: Floats) -> None:
    assert np.allclose(a, b, rtol=1e-6, atol=1e-6), np.abs(a - b).max()


if __name__ == "__main__":
    check()

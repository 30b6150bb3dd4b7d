"""dpmm's MST and AIM with the same arithmetic and less of Python, so that they end on
wide tables.

dpmm 0.1.9 spends nearly all of its time on the objects around arrays of a few cells:
half a millisecond a message where the numbers take a microsecond. `install` replaces
the following by functions that compute the same:

    JunctionTree._make_tree, .mp_order  the same greedy triangulation on sets of bits; a heaviest spanning tree, shallow
    FactoredInference._setup            a measurement's clique is found by its rarest
                                        column
    FactoredInference.mirror_descent    one vector for all cliques, its loops compiled
    GraphicalModel.project              all pairs of columns at once, up the tree, kept
    GraphicalModel.synthetic_data       groups by sorting, not by one data frame each
    hypothetical_model_size             by the same triangulation
    AIM.worst_approximated              scores all pairs at once; draws first and asks
                                        afterwards whether a candidate's model would be
                                        too large: the distribution of a draw among
                                        those that are not
    compile_workload                    counted at once
    Dataset.project, .datavector        without a data frame

    central/bin/python benchmarks/joint/lean_check.py   # holds each of them against dpmm's own on generated tables
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import lean_tree
import networkx as nx
import numpy as np
import pandas as pd
from dpmm.models import aim
from dpmm.models.base.mbi import (
    CliqueVector,
    Dataset,
    Factor,
    FactoredInference,
    GraphicalModel,
    JunctionTree,
)
from lean_tree import Clique, Floats
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

_FIRST = 1000  # iterations of AIM's first estimate, at least
_project = GraphicalModel.project


def make_tree(self: Any, order: Any = None) -> tuple[Any, list[str]]:
    """A junction tree of the greedily triangulated graph, and the order of
    elimination.
    """
    assert order is None
    attrs = self.domain.attrs
    eliminated, found = lean_tree.triangulated(self.domain, self.cliques)
    named = [tuple(attrs[a] for a in lean_tree.members(bits)) for bits in found]
    tree = nx.Graph()
    tree.add_nodes_from(named)
    tree.add_edges_from((named[i], named[j]) for i, j in lean_tree.spanned(found))
    self.elimination_order = [attrs[a] for a in eliminated]
    return tree, self.elimination_order


def mp_order(self: Any) -> list[tuple[Clique, Clique]]:
    """Messages from the leaves to some clique, and back."""
    down = list(nx.bfs_edges(self.tree, next(iter(self.tree))))
    return [(j, i) for i, j in reversed(down)] + down


def setup(self: Any, measurements: Any, total: Any) -> None:
    """A model that has all measured tables, and each of them at the smallest clique
    that has it.
    """
    assert not self.structural_zeros
    if total is None:  # the mean of what the measurements say, by their variances
        inverse = [1 / lean_tree.diagonal(query) for query, *_ in measurements]
        said = [
            float(share @ answer)
            for share, (_, answer, *_) in zip(inverse, measurements, strict=True)
        ]
        sure = [
            1 / (noise**2 * share @ share)
            for share, (*_, noise, _) in zip(inverse, measurements, strict=True)
        ]
        total = max(1, np.average(said, weights=sure))
    model = GraphicalModel(
        self.domain, [asked for *_, asked in measurements], total, prng=self.prng
    )
    homes = lean_tree.Homes(self.domain, model.cliques)
    model.potentials = CliqueVector.zeros(self.domain, model.cliques)
    if self.warm_start and hasattr(self, "model"):
        for clique, factor in self.model.potentials.items():
            home = homes.find(clique)
            if home:
                model.potentials[home] += factor
    self.model = model
    self.groups = {clique: [] for clique in model.cliques}
    for measurement in measurements:
        self.groups[homes.find(measurement[3])].append(measurement)


def mirror_descent(
    self: Any,
    measurements: Any,
    total: Any = None,
    stepsize: Any = None,
    callback: Any = None,
) -> float:
    """dpmm's: steps along the slope in the potentials, twice as long as the last one
    that was short enough.

    Where AIM's rounds have fewer than dpmm's 1,000 iterations, the first estimate, of
    columns alone, still has them.
    """
    if self.metric != "L2" or stepsize is not None or callback is not None:
        raise NotImplementedError("squared distance and a line search alone")
    # of AIM's estimates; the others go on from it
    first = self.warm_start and not hasattr(self, "model")
    self._setup(measurements, total)
    model = self.model
    tree = lean_tree.Tree(model)
    marginals = lean_tree.Propagation(tree).marginals
    answers = lean_tree.Answers(tree, self.groups)
    theta = tree.vector(model.potentials)
    mu = marginals(theta)
    loss, slope = answers.loss(mu)
    alpha = 1 / model.total**2
    for _ in range(max(self.iters, _FIRST * first) if loss else 0):
        before = theta
        start = mu
        least = loss
        direction = slope
        alpha *= 2
        for _ in range(25):
            theta = before - alpha * direction
            mu = marginals(theta)
            loss, slope = answers.loss(mu)
            if least - loss >= 0.5 * alpha * float(direction @ (start - mu)):
                break
            alpha *= 0.5
    model.potentials, model.marginals = (
        _factors(tree, vector) for vector in (theta, mu)
    )
    return loss


def _factors(tree: lean_tree.Tree, vector: Floats) -> Any:
    named = zip(tree.cliques, tree.views(vector), strict=True)
    return CliqueVector(
        {clique: Factor(tree.domain.project(clique), view) for clique, view in named}
    )


def pairs(model: Any) -> lean_tree.Pairs:
    """A model's tables of two columns, counted again where its marginals are others."""
    kept = model.__dict__.get("_pairs")
    if kept is None or kept.marginals is not model.marginals:
        kept = model._pairs = lean_tree.Pairs(lean_tree.Tree(model), model.marginals)
    return kept  # type: ignore[no-any-return]


def project(self: Any, attrs: Any) -> Any:
    """A table of the model: within a clique, or of two columns; anything else as dpmm
    does.
    """
    attrs = tuple(attrs)
    if not hasattr(self, "marginals"):
        return _project(self, attrs)
    if "_homes" not in self.__dict__:
        self._homes = lean_tree.Homes(self.domain, self.cliques)
    home = self._homes.find(attrs)
    if home:
        return self.marginals[home].project(attrs)
    if len(attrs) != 2:
        return _project(self, attrs)
    return Factor(
        self.domain.project(attrs), np.ascontiguousarray(pairs(self).table(*attrs))
    )


def hypothetical_model_size(domain: Any, cliques: Sequence[Clique]) -> float:
    """Megabytes of the cliques that the greedy elimination leaves."""
    sizes = [int(size) for size in domain.shape]
    _, found = lean_tree.triangulated(domain, cliques)
    return sum(lean_tree.cells(bits, sizes) for bits in found) * 8 / 2**20


def compile_workload(workload: Sequence[Clique]) -> dict[Clique, int]:
    """Every part of a wanted table, and how often its columns are wanted."""
    wanted: dict[str, int] = {}
    for a in itertools.chain.from_iterable(workload):
        wanted[a] = wanted.get(a, 0) + 1
    return {
        clique: sum(wanted[a] for a in clique)
        for clique in aim.downward_closure(workload)
    }


class Candidates(dict):  # type: ignore[type-arg]
    """All candidates, with what decides whether a model with one more of them would be
    too large.
    """

    def __init__(self, candidates: Any, model: Any, limit: float | None) -> None:
        super().__init__(candidates)
        self.model = model
        self.limit = limit

    def allowed(self, clique: Clique) -> bool:
        if self.limit is None or any(
            set(clique) <= set(own) for own in self.model.cliques
        ):
            return True
        domain = self.model.domain
        cliques = [*self.model.cliques, clique]
        return hypothetical_model_size(domain, cliques) <= self.limit


class Asked:
    """The real tables of one and two columns as a matrix like `Pairs`', in the table's
    own order.
    """

    def __init__(self, domain: Any, candidates: Any, answers: Any) -> None:
        sizes = [int(size) for size in domain.shape]
        place = {a: n for n, a in enumerate(domain.attrs)}
        self.starts = np.cumsum([0, *sizes[:-1]])
        self.matrix = np.zeros((sum(sizes), sum(sizes)))
        self.names = list(candidates)
        self.weights = np.array(list(candidates.values()), float)
        ends = [(place[name[0]], place[name[-1]]) for name in self.names]
        assert all(a <= b for a, b in ends)
        self.first, self.second = np.array(ends).T
        for name, (a, b) in zip(self.names, ends, strict=True):
            counts = answers[name]
            table = (
                np.diag(counts)
                if len(name) == 1
                else counts.reshape(sizes[a], sizes[b])
            )
            i = self.starts[a]
            j = self.starts[b]
            self.matrix[i : i + sizes[a], j : j + sizes[b]] = table
        self.sizes = np.array([domain.size(name) for name in self.names], float)
        self.by_weight = np.argsort(-self.weights, kind="stable")

    def distances(self, model: Any) -> Floats:
        """Sums of |real − model| for each candidate."""
        found = pairs(model)
        domain = model.domain
        levels = [np.arange(int(domain[a])) + found.start[a] for a in domain.attrs]
        order = np.concatenate(levels)
        off = np.abs(self.matrix - found.matrix[np.ix_(order, order)])
        off = np.add.reduceat(np.add.reduceat(off, self.starts, 0), self.starts, 1)
        return off[self.first, self.second]  # type: ignore[no-any-return]


def worst_approximated(
    self: Any,
    candidates: Any,
    answers: Any,
    model: Any,
    eps: float,
    sigma: float,
    public: bool = False,
) -> Clique:
    """The exponential mechanism among allowed candidates: drawn among all until an
    allowed one comes.
    """
    assert not public
    kept = self.__dict__.get("_asked")
    if kept is None or kept[0] is not answers:
        kept = self._asked = (answers, Asked(model.domain, candidates, answers))
    asked = kept[1]
    heaviest = next(
        asked.weights[n] for n in asked.by_weight if candidates.allowed(asked.names[n])
    )
    bias = math.sqrt(2 / math.pi) * sigma * asked.sizes
    scores = 0.5 * eps / heaviest * asked.weights * (asked.distances(model) - bias)
    while True:
        drawn = int(self.prng.choice(len(scores), p=softmax(scores)))
        if candidates.allowed(asked.names[drawn]):
            return asked.names[drawn]  # type: ignore[no-any-return]
        scores[drawn] = -np.inf  # it would be refused again


class Columns(Dataset):  # type: ignore[misc]
    """Some columns of a data set, no copies; a data frame only where one is asked
    for.
    """

    def __init__(self, columns: dict[str, NDArray[np.int64]], domain: Any) -> None:
        self.columns = columns
        self.domain = domain
        self.weights = None

    @property
    def df(self) -> pd.DataFrame:
        return pd.DataFrame({a: self.columns[a] for a in self.domain.attrs})


def columns(self: Any, cols: Any) -> Columns:
    """Dataset.project."""
    assert self.weights is None
    if "columns" not in self.__dict__:
        self.columns = {a: self.df[a].to_numpy(np.int64) for a in self.domain.attrs}
    return Columns(
        self.columns,
        self.domain.project([cols] if isinstance(cols, str) else list(cols)),
    )


def datavector(self: Any, flatten: bool = True) -> Floats:
    """How often each combination of levels occurs."""
    kept = columns(self, self.domain.attrs).columns
    shape = [int(size) for size in self.domain.shape]
    cells = np.zeros((), np.int64)
    for a, size in zip(self.domain.attrs, shape, strict=True):
        cells = cells * size + kept[a]
    counts = np.bincount(cells, minlength=math.prod(shape)).astype(float)
    return counts if flatten else counts.reshape(shape)


def synthetic_data(
    self: Any,
    rows: int | None = None,
    condition_records: Any = None,
    method: str = "round",
) -> Any:
    """Rows column by column against the order of elimination; within a group, counts as
    near as whole numbers allow.
    """
    assert condition_records is None
    assert method == "round"
    total = rows or int(self.total)
    domain = self.domain
    rng = self.prng
    made: dict[str, NDArray[np.int64]] = {}
    for a in self.elimination_order[::-1]:
        near = set().union(*(clique for clique in self.cliques if a in clique))
        known = domain.canonical(near & set(made))
        marginal = self.project((*known, a)).values.reshape(-1, int(domain[a]))
        group = np.zeros(total, np.int64)
        if known:
            group = np.ravel_multi_index(
                [made[x] for x in known], [int(domain[x]) for x in known]
            )
        order = np.argsort(group, kind="stable")
        present, starts = np.unique(group[order], return_index=True)
        drawn = np.empty(total, np.int64)
        for which, places in zip(present, np.split(order, starts[1:]), strict=True):
            drawn[places] = _rounded(marginal[which], len(places), rng)
        made[a] = drawn
    return Dataset(pd.DataFrame(made)[list(domain.attrs)], domain)


def _rounded(counts: Floats, total: int, rng: Any) -> NDArray[np.int64]:
    all_of_them = counts.sum()
    shares = (
        counts / all_of_them
        if all_of_them > 0
        else np.full(len(counts), 1 / len(counts))
    )
    part, whole = np.modf(shares * total)
    often = whole.astype(np.int64)
    more = total - int(often.sum())
    if more > 0:
        often[rng.choice(len(counts), more, False, part / part.sum())] += 1
    levels = np.repeat(np.arange(len(counts)), often)
    rng.shuffle(levels)
    return levels


REPLACED = [
    (JunctionTree, "_make_tree", make_tree),
    (JunctionTree, "mp_order", mp_order),
    (FactoredInference, "_setup", setup),
    (FactoredInference, "mirror_descent", mirror_descent),
    (GraphicalModel, "project", project),
    (GraphicalModel, "synthetic_data", synthetic_data),
    (Dataset, "project", columns),
    (Dataset, "datavector", datavector),
    (aim, "hypothetical_model_size", hypothetical_model_size),
    (aim, "compile_workload", compile_workload),
    (aim, "filter_candidates", Candidates),
    (aim.AIM, "worst_approximated", worst_approximated),
    (aim, "Identity", sparse.eye),  # dpmm's own needs an older SciPy and NumPy
]


def install() -> None:
    """Put all of them in place."""
    for place, name, function in REPLACED:
        setattr(place, name, function)

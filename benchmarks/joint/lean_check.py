"""Each of `lean_pgm.py`'s replacements against dpmm's own, on generated tables.

It ends with one line, or with what differs: `central/bin/python
benchmarks/joint/lean_check.py`.
"""

import argparse
import itertools
from typing import Any

import lean_pgm
import numpy as np
import pandas as pd
from dpmm.models import aim
from dpmm.models.base.mbi import Dataset, FactoredInference
from lean_tree import Clique, Floats
from scipy import sparse
from scipy.special import softmax

lean_pgm._FIRST = 0
TABLES = 20
STEPS = 40
ROWS = 5000
DRAWS = 500


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=__doc__)


def main() -> None:
    parser().parse_args()
    rng = np.random.default_rng(0)
    theirs = {
        function: getattr(place, name) for place, name, function in lean_pgm.REPLACED
    }
    for trial in range(TABLES):
        sizes = rng.integers(2, 6, 9)
        names = [f"c{n}" for n in range(len(sizes))]
        codes = rng.integers(0, sizes, (500, len(sizes)))
        codes[:, 1:] = np.where(
            rng.random((500, 8)) < 0.5, codes[:, 1:], codes[:, :1] % sizes[1:]
        )
        data = Dataset(
            pd.DataFrame(codes, columns=names), aim.Domain(names, sizes.tolist())
        )
        pairs = list(itertools.combinations(names, 2))
        assert lean_pgm.compile_workload(pairs) == theirs[lean_pgm.compile_workload](
            pairs
        )
        asked = [(a,) for a in names] + [
            pairs[n] for n in rng.choice(len(pairs), trial, False)
        ]
        measured = _measured(
            data, [tuple(rng.permutation(clique)) for clique in asked], rng
        )
        _restore(theirs)
        some = measured[: len(names) + trial // 2]
        engine = FactoredInference(data.domain, iters=STEPS, warm_start=True)
        before = engine.estimate(some), engine.estimate(measured)
        lean_pgm.install()
        engine = FactoredInference(data.domain, iters=STEPS, warm_start=True)
        after = engine.estimate(some), engine.estimate(measured)
        for model, ours in zip(before, after, strict=True):
            assert {frozenset(c) for c in model.cliques} == {
                frozenset(c) for c in ours.cliques
            }
            assert model.elimination_order == ours.elimination_order
            assert abs(model.total - ours.total) < 1e-6 * ours.total
            for pair in [*pairs, *((b, a) for a, b in pairs), *((a,) for a in names)]:
                _same(
                    theirs[lean_pgm.project](model, pair).values,
                    ours.project(pair).values,
                )
            for clique in model.cliques:
                _same(model.marginals[clique].values, ours.project(clique).values)
            for pair in pairs:
                cliques = [*model.cliques, pair]
                size = lean_pgm.hypothetical_model_size(data.domain, cliques)
                _restore(theirs)
                assert size == aim.hypothetical_model_size(data.domain, cliques)
                lean_pgm.install()
        for draw in (theirs[lean_pgm.synthetic_data], lean_pgm.synthetic_data):
            rows = draw(after[1], ROWS)
            for clique in after[1].cliques:
                expected = after[1].marginals[clique].values.ravel()
                found = rows.project(list(clique)).datavector()
                distance = np.abs(found / ROWS - expected / expected.sum()).sum() / 2
                assert distance < 0.05, (draw, clique, distance)
        if trial == TABLES // 2:
            _check_draws(after[1], lean_pgm.compile_workload(pairs), data, theirs)
    print(
        f"the same as dpmm's own: {TABLES} tables, {STEPS} steps each, and as many "
        "from there"
    )


def _measured(data: Any, asked: list[Clique], rng: Any) -> list[Any]:
    measured = []
    for clique in asked:
        table = data.project(list(clique))
        exact = lean_pgm.datavector(table)
        assert (exact == table.datavector()).all()
        sigma = float(rng.uniform(2, 8))
        shares = rng.uniform(0.5, 1, exact.size)
        noisy = shares * exact + rng.normal(0, sigma, exact.shape)
        measured.append((sparse.diags(shares), noisy, sigma, clique))
    return measured


def _check_draws(
    model: Any, weights: dict[Clique, int], data: Any, theirs: Any
) -> None:
    """How often each candidate is drawn, against dpmm's chances among those that it
    leaves.
    """
    answers = {clique: data.project(list(clique)).datavector() for clique in weights}
    limit = 1.2 * model.size * 8 / 2**20
    left = theirs[lean_pgm.Candidates](weights, model, limit)
    chooser = aim.AIM(prng=np.random.RandomState(0), n_jobs=1)
    assert 0 < len(left) < len(weights)
    off = {
        c: chooser._worst_approximated(c, w, answers[c], model, 5.0)[1]
        for c, w in left.items()
    }
    chances = softmax(0.5 * 0.05 / max(left.values()) * np.array(list(off.values())))
    candidates = lean_pgm.Candidates(weights, model, limit)
    draws = [
        chooser.worst_approximated(candidates, answers, model, 0.05, 5.0)
        for _ in range(DRAWS)
    ]
    often = np.array([draws.count(clique) for clique in left])
    assert often.sum() == len(draws), "something was drawn that is too large"
    assert (np.abs(often - DRAWS * chances) < 4.5 * np.sqrt(DRAWS * chances) + 1).all()


def _restore(theirs: Any) -> None:
    for place, name, function in lean_pgm.REPLACED:
        if function is not sparse.eye:
            setattr(place, name, theirs[function])


def _same(a: Floats, b: Floats) -> None:
    assert a.shape == b.shape
    assert np.allclose(a, b, rtol=1e-6, atol=1e-6), np.abs(a - b).max()


if __name__ == "__main__":
    main()

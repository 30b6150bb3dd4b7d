"""A network of tables draws from the distribution that its tables say, and rebuilds
from its description.
"""

import itertools
import json

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, multivariate_normal, norm

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Categorical, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError
from understudy.models.tables.inversion import BayesNet, GaussianCopula
from understudy.models.tables.mixture import invert

SIZES = (2, 3, 2)
PARENTS = ((1, 2), (), (1,))


@pytest.fixture
def net() -> BayesNet:
    net = BayesNet(SIZES, PARENTS)
    net.odds.copy_(
        torch.rand(len(net.odds), generator=torch.Generator().manual_seed(0))
    )
    return net


def schema_of(sizes: tuple[int, ...]) -> Schema:
    return Schema(
        columns=tuple(
            Categorical(name=f"c{i}", categories=tuple("abcdefgh"[:size]))
            for i, size in enumerate(sizes)
        )
    )


def test_rows_follow_the_product_of_the_tables(net: BayesNet) -> None:
    n = 40_000
    schema = schema_of(SIZES)
    codes = Codec(schema).codes(Generator(net, schema, {}).sample(n, seed=1))
    tables = [
        net.table(node) / net.table(node).sum(1, keepdim=True) for node in range(3)
    ]
    seen = []
    expected = []
    for a, b, c in itertools.product(*map(range, SIZES)):
        seen.append(int((codes == (a, b, c)).all(1).sum()))
        expected.append(
            n * float(tables[0][b * 2 + c, a] * tables[1][0, b] * tables[2][b, c])
        )
    assert chisquare(seen, np.array(expected) * sum(seen) / sum(expected)).pvalue > 1e-4


def test_inversion_cuts_the_unit_interval_by_the_odds() -> None:
    uniform = (torch.arange(1_000, dtype=torch.float64) + 0.5) / 1_000
    picked = invert(torch.tensor([0.2, 0.0, 0.6, 1.2], dtype=torch.float64), uniform)
    assert torch.equal(picked.bincount(minlength=4), torch.tensor([100, 0, 300, 600]))
    ends = invert(
        torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64),
        torch.tensor([0.0, 1.0]).double(),
    )
    # what has no odds is never picked, not even at the ends
    assert ends.tolist() == [1, 1]


def test_a_number_beyond_the_levels_loses_its_highest_digit() -> None:
    net = BayesNet((2, 2, 2), ((), (), ()), [(5, (0, 1, 2))])
    z = torch.tensor(list(itertools.product((-9.0, 9.0), repeat=3)))  # 000, 001, …, 111
    assert net.rows(z).argmax(1).tolist() == [0, 1, 2, 3, 4, 1, 2, 3]


def test_a_column_of_one_level_needs_no_node() -> None:
    rows = BayesNet((2,), ((),), [(1, ()), (2, (0,))]).rows(
        torch.tensor([[-9.0], [9.0]])
    )
    assert rows.tolist() == [[1, 1, 0], [1, 0, 1]]


def test_a_copula_keeps_its_one_way_tables_and_its_normals_correlation() -> None:
    copula = GaussianCopula((2, 3))
    n = 60_000
    rho = 0.7
    copula.odds.copy_(torch.tensor([0.3, 0.7, 0.5, 0.2, 0.3]))
    copula.factor.copy_(
        torch.linalg.cholesky(torch.tensor([[1, rho], [rho, 1]]).double())
    )
    schema = schema_of((2, 3))
    rows = (
        Codec(schema).encode(Generator(copula, schema, {}).sample(n, seed=3)).double()
    )
    np.testing.assert_allclose(rows.mean(0), copula.odds, atol=5 * 0.5 / n**0.5)
    corner = multivariate_normal(cov=[[1, rho], [rho, 1]]).cdf(
        [norm.ppf(0.3), norm.ppf(0.5)]
    )
    assert float((rows[:, 0] * rows[:, 2]).mean()) == pytest.approx(
        corner, abs=5 * 0.5 / n**0.5
    )


@pytest.mark.parametrize(
    "network",
    [
        BayesNet(SIZES, PARENTS),
        BayesNet((2, 2), ((), (0,)), [(3, (0, 1))]),
        GaussianCopula(SIZES),
    ],
)
def test_a_description_rebuilds_the_same_network(
    network: BayesNet | GaussianCopula,
) -> None:
    network.odds.copy_(torch.rand(len(network.odds)))
    again = type(network).from_description(json.loads(json.dumps(network.describe())))
    again.load_state_dict(network.state_dict())
    z = torch.randn(50, network.latent)
    assert torch.equal(again.rows(z), network.rows(z))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "copula"},
        {"sizes": [2, 0, 2]},
        {"sizes": 3},
        {"parents": [[1], [0], []]},
        {"parents": [[], []]},
        {"parents": [[7], [], []]},
        {"parents": [["a"], [], []]},
        {"columns": [[9, [0, 1]]]},
        {"columns": [[1, [0, 1]]]},
        {"columns": [[2]]},
        {"columns": [2]},
        {"sizes": [1 << 14, 1 << 14, 2], "parents": [[1], [], []]},
    ],
)
def test_a_description_of_something_else_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        BayesNet.from_description(BayesNet(SIZES, PARENTS).describe() | change)


def test_a_description_of_no_copula_is_refused() -> None:
    for description in (
        {"kind": "copula"},
        {"kind": "bayes-net", "sizes": [2]},
        {"kind": "copula", "sizes": [0]},
    ):
        with pytest.raises(ConfigError):
            GaussianCopula.from_description(description)

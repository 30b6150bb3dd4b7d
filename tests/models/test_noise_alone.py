"""What noise alone explains is not drawn."""

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.api.train import train
from understudy.data.column import OTHER
from understudy.data.schema import BOUGHT, Categorical, Integer, Schema
from understudy.models.tables.merged_levels import levels_of_none, never_drawn
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.runs.federation import Federation

TEXT = Categorical(name="t", categories=("a", "b", OTHER), nullable=True)
CODE = Integer(name="c", low=0, high=3, nullable=True)
SIGMA = 10.0


def none_of(column: Categorical | Integer, counts: list[float], note: str = BOUGHT) -> list[int]:
    seen = torch.tensor(counts)
    schema = Schema(columns=(column,), note=note)
    return sorted(levels_of_none(schema, [len(counts)], seen, torch.full_like(seen, SIGMA))[0])


@pytest.mark.parametrize(
    ("column", "counts", "none"),
    [
        (TEXT, [500, 400, 15, -3], [2, 3]),
        (TEXT, [500, 400, 25, 21], []),
        (TEXT, [0, 1, 9, 3], []),  # of which nothing was seen: all is left as it is
        (CODE, [300, 200, 18, -5, 40], [2, 3]),
        (CODE, [5, 200, 18, 60, 12], [0, 4]),  # a gap between what was seen stays
        (CODE, [300, 200], []),  # merged levels: neither is the missing one alone, nor a number
    ],
)
def test_levels_are_taken_out_where_the_count_is_consistent_with_nobody(
    column: Categorical | Integer, counts: list[float], none: list[int]
) -> None:
    assert none_of(column, counts) == none


def test_declared_bounds_are_known_and_stay() -> None:
    assert none_of(CODE, [300, 200, 18, -5, 40], note="") == []


def test_a_mixture_draws_none_of_them_nor_of_the_target_s() -> None:
    network = MixtureOfProducts((3, 4), 5, target=1)
    torch.nn.init.normal_(network.logits)
    before = network.odds().detach()
    never_drawn(network, [[2], [1, 3]])
    drawn = network.levels(5_000, lambda n: torch.rand(n, dtype=torch.float64))
    assert set(drawn[:, 0].tolist()) == {0, 1}
    assert set(drawn[:, 1].tolist()) == {0, 2}
    after = network.odds().detach()
    assert torch.allclose(after[:, 0] / after[:, 1], before[:, 0] / before[:, 1])


def test_exact_counts_say_it_exactly() -> None:
    seen = torch.tensor([5.0, 1.0, 0.0, 1.0])
    schema = Schema(columns=(TEXT,))
    assert levels_of_none(schema, [4], seen, torch.zeros(4)) == [[2]]


def test_nobody_is_drawn_without_a_value_or_as_other_where_noise_alone_counted_them() -> None:
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(
        {
            "all": rng.choice(["a", "b"], 2_000),
            "some": np.where(rng.random(2_000) < 0.3, None, "c"),
            "n": rng.integers(0, 99, 2_000),
        }
    )
    columns = [Categorical(name=c, categories=("a", "b", "c", OTHER), nullable=True) for c in ("all", "some")]
    schema = Schema(columns=(*columns, Integer(name="n", low=0, high=99, nullable=True)))
    holders = Federation.rehearsal({"one": frame}, {"one": schema}, budget=2.0, seed=4)
    drawn = train("gram", holders, components=8, steps=10, device="cpu").sample(4_000, seed=1)
    assert not drawn["all"].isna().any()
    assert not drawn["n"].isna().any()
    assert 0.2 < drawn["some"].isna().mean() < 0.4
    assert OTHER not in set(drawn["all"]) | set(drawn["some"])

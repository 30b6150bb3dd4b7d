"""What noise alone explains is not drawn."""

import numpy as np
import pandas as pd
import pytest
import torch

from understudy.api.train import train
from understudy.data.column import OTHER
from understudy.data.schema import BOUGHT, Boolean, Categorical, Integer, Schema
from understudy.models.tables.absent_levels import (
    all_that_was_counted,
    levels_of_none,
    never_drawn,
)
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.runs.federation import Federation

TEXT = Categorical(name="t", categories=("a", "b", OTHER), nullable=True)
YES = Boolean(name="y", labels=("No", "Yes"), nullable=True)
CODE = Integer(name="c", low=0, high=3, nullable=True)
SIGMA = 10.0


def none_of(
    column: Categorical | Integer | Boolean, counts: list[float], note: str = BOUGHT
) -> list[int]:
    seen = torch.tensor(counts)
    schema = Schema(columns=(column,), note=note)
    return sorted(
        levels_of_none(schema, [len(counts)], seen, torch.full_like(seen, SIGMA))[0]
    )


@pytest.mark.parametrize(
    ("column", "counts", "none"),
    [
        (TEXT, [500, 400, 15, -3], [2, 3]),
        (TEXT, [500, 400, 25, 24], []),
        (TEXT, [0, 1, 9, 3], []),  # of which nothing was seen: all is left as it is
        (YES, [900, 22, 24], [1]),  # all say "No"
        (CODE, [300, 200, 18, -5, 40], [2, 3]),
        (CODE, [5, 200, 18, 60, 12], [0, 4]),  # a gap between what was seen stays
        # merged levels: neither is the missing one alone, nor a number
        (CODE, [300, 200], []),
    ],
)
def test_levels_are_taken_out_where_the_count_is_consistent_with_nobody(
    column: Categorical | Integer | Boolean, counts: list[float], none: list[int]
) -> None:
    assert none_of(column, counts) == none


def test_declared_bounds_are_known_and_stay() -> None:
    assert (
        none_of(CODE, [300, 200, 18, -5, 40], note="")
        == none_of(YES, [900, 22, 24], note="")
        == []
    )


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


def test_of_many_columns_rarely_one_is_drawn_without_values_by_noise_alone() -> None:
    rng = np.random.default_rng(2)
    columns = tuple(
        Categorical(name=f"t{j}", categories=("a", "b"), nullable=True)
        for j in range(50)
    )
    schema = Schema(columns=columns)
    sizes = [3] * 50
    drawn = 0
    for _ in range(100):
        seen = torch.tensor([500.0, 400.0, 0.0] * 50) + torch.from_numpy(
            rng.normal(0, SIGMA, 150)
        )
        drawn += (
            levels_of_none(schema, sizes, seen, torch.full((150,), SIGMA)) != [[2]] * 50
        )
    assert drawn <= 7, "one table in fifty, by half of the levels that are looked at"


def test_two_percent_that_lack_are_drawn_in_a_table_in_which_other_columns_lack_many():
    """173 of 9,105 people under a noise of 55: three deviations, beside a dozen columns
    without doubt.
    """
    columns = tuple(
        Categorical(name=f"t{j}", categories=("a", "b"), nullable=True)
        for j in range(36)
    )
    schema = Schema(columns=columns)
    sizes = [3] * 36
    seen = torch.tensor([5_000.0, 4_000.0, 0.0] * 36)
    for place in range(12):
        seen[3 * place + 2] = 2_000.0
    seen[3 * 12 + 2] = 173.0
    none = levels_of_none(schema, sizes, seen, torch.full((108,), 55.0))
    assert none == [[]] * 13 + [[2]] * 23
    seen[2:36:3] = 0.0  # no other column lacks any: then noise is likelier
    assert levels_of_none(schema, sizes, seen, torch.full((108,), 55.0)) == [[2]] * 36


def test_a_level_is_counted_by_all_tables_that_have_it_and_the_noise_is_that_of_their_mean():
    sizes = [2, 3, 2]
    truth = torch.block_diag(
        *(torch.diag(torch.tensor([10.0] * size)) for size in sizes)
    )
    for a, b in (
        (slice(0, 2), slice(2, 5)),
        (slice(0, 2), slice(5, 7)),
        (slice(2, 5), slice(5, 7)),
    ):
        truth[a, b] = 10.0 / (b.stop - b.start)
        truth[b, a] = truth[a, b].T * 1.0
    noise = torch.full((7, 7), 2.0)
    noise[0:2, 5:7] = noise[5:7, 0:2] = torch.inf
    found, deviation = all_that_was_counted(truth, noise, sizes)
    assert found[:2].tolist() == pytest.approx([10, 10])
    # by itself, 4, and by the sum over three levels, 12; the other pair was not
    # measured
    assert deviation[0].item() == pytest.approx((1 / 4 + 1 / 12) ** -0.5)
    exact, none = all_that_was_counted(truth, torch.zeros(7, 7), sizes)
    assert none.max() < 1e-4
    assert exact[0].item() == pytest.approx(10)


def test_nobody_is_drawn_without_a_value_or_as_other_where_noise_alone_counted_them():
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(
        {
            "all": rng.choice(["a", "b"], 2_000),
            "some": np.where(rng.random(2_000) < 0.3, None, "c"),
            "n": rng.integers(0, 99, 2_000),
        }
    )
    columns = [
        Categorical(name=c, categories=("a", "b", "c", OTHER), nullable=True)
        for c in ("all", "some")
    ]
    schema = Schema(
        columns=(*columns, Integer(name="n", low=0, high=99, nullable=True))
    )
    holders = Federation.rehearsal({"one": frame}, {"one": schema}, budget=2.0, seed=4)
    drawn = train("gram", holders, components=8, steps=10, device="cpu").sample(
        4_000, seed=1
    )
    assert not drawn["all"].isna().any()
    assert not drawn["n"].isna().any()
    assert 0.2 < drawn["some"].isna().mean() < 0.4
    assert OTHER not in set(drawn["all"]) | set(drawn["some"])

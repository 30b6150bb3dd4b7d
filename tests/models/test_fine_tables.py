"""One-way tables out of noisy trees: exact without noise, never negative, right in
their sum.
"""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from understudy.models.simplex import to_simplex
from understudy.models.tables import law_ends
from understudy.models.tables.fine_tables import (
    Tree,
    fine_tables,
)
from understudy.models.tables.ordered_counts import layer_sizes, layers_of


def fine_table(layers: Sequence[torch.Tensor], fan: int, **more: Any) -> torch.Tensor:
    return fine_tables([Tree(layers, fan, **more)])[0]


@pytest.mark.parametrize("leaves", [1, 5, 8, 9, 64, 65, 1000])
@pytest.mark.parametrize("fan", [2, 8])
def test_without_noise_the_table_is_exact(leaves: int, fan: int) -> None:
    counts = torch.randint(
        1, 5, (leaves,), generator=torch.Generator().manual_seed(leaves)
    )
    layers = layers_of(counts, fan)
    assert [len(layer) for layer in layers] == layer_sizes(leaves, fan)
    assert {int(layer.sum()) for layer in layers} == {int(counts.sum())}
    assert torch.allclose(fine_table(layers, fan, noise=0.0), counts.double())
    found = fine_table(layers, fan, noise=0.0, missing=torch.tensor(7))
    assert torch.allclose(found, torch.cat([counts, torch.tensor([7])]).double())


def noisy(counts: torch.Tensor, sigma: float, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        layer + (sigma * torch.randn(len(layer), generator=generator)).round()
        for layer in layers_of(counts, 8)
    ]


def test_a_few_values_between_bounds_far_too_wide_are_found() -> None:
    counts = torch.zeros(8**5, dtype=torch.int64)
    counts[100:140] = 500
    found = fine_table(noisy(counts, 60, 0), 8, noise=60.0)
    assert float(found.min()) >= 0
    distance = (
        (found.cumsum(0) / found.sum() - counts.cumsum(0) / counts.sum()).abs().max()
    )
    assert float(distance) < 0.02
    assert float(found[200:].sum()) < 0.01 * float(counts.sum()), "no people far out"


def test_where_the_number_of_people_is_known_the_table_adds_up_to_it() -> None:
    counts = torch.full((100,), 3)
    found = fine_table(
        noisy(counts, 20, 1), 8, noise=20.0, missing=torch.tensor(-4.0), total=300.0
    )
    assert float(found.sum()) == pytest.approx(300)
    assert float(found[-1]) == 0


@pytest.mark.parametrize(
    "layers", [[[-5.0, -3.0]], [[0.0, 0.0]], [[-1e9, 3.0], [-7.0, 2.0, -9.0, -1e9]]]
)
def test_noise_alone_is_a_table_of_one_person(layers: list[list[float]]) -> None:
    found = fine_table([torch.tensor(layer) for layer in layers], 2, noise=5.0)
    assert float(found.min()) >= 0
    assert float(found.sum()) == pytest.approx(1)
    assert bool(found.isfinite().all())


def test_the_projection_is_the_nearest_table_with_that_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 6, generator=generator).double()
    totals = torch.rand(50, generator=generator).double() * 4
    found = to_simplex(rows, totals)
    assert torch.allclose(found.sum(1), totals)
    # Karush–Kuhn–Tucker: all that is positive was moved by the same, and nothing else
    # would come out above 0.
    shift = (rows - found).masked_fill(found == 0, -torch.inf).amax(1, keepdim=True)
    assert torch.allclose(torch.where(found > 0, rows - shift, 0.0), found)
    assert bool((rows[found == 0] <= shift.expand_as(rows)[found == 0] + 1e-12).all())


def test_tails_that_hardly_stand_out_of_the_noise_are_kept() -> None:
    places = torch.arange(8**5, dtype=torch.float64)
    counts = (
        (20_000 / 1_600 * torch.exp(-((places - 12_500) / 1_600).abs() * 2))
        .round()
        .long()
    )
    people = float(counts.sum())
    for seed in range(3):
        found = fine_table(noisy(counts, 65, seed), 8, noise=65.0, total=people)
        assert float((found.cumsum(0) - counts.cumsum(0)).abs().max()) < 0.022 * people


def test_a_node_beside_data_that_is_not_above_the_noise_puts_nobody_far_out() -> None:
    """With bounds a thousand times too wide one such node would be most of the mean."""
    counts = torch.zeros(8**4, dtype=torch.int64)
    counts[: 8**3] = 40  # the first of eight nodes at the top
    for noise in (-60.0, 0.0, 60.0, 110.0):
        layers = [layer.double() for layer in layers_of(counts, 8)]
        layers[0][1] += noise
        found = fine_table(layers, 8, noise=60.0, total=float(counts.sum()))
        assert float(found[8**3 :].sum()) < 0.002 * float(counts.sum())
    layers[0][1] += 4_000
    found = fine_table(layers, 8, noise=60.0, total=float(counts.sum()) + 4_000)
    assert float(found[8**3 : 2 * 8**3].sum()) > 3_000, (
        "what is above the noise is kept"
    )


def test_children_that_differ_by_noise_alone_have_nearly_the_same_and_a_spike_among_them_is_kept():
    even = torch.full((64,), 30)
    found = fine_table(noisy(even, 10, 0), 8, noise=40.0, total=30.0 * 64)
    assert float((found - 30).std()) < 3.5
    spiked = even.clone()
    spiked[20] += 900
    found = fine_table(noisy(spiked, 10, 0), 8, noise=40.0, total=float(spiked.sum()))
    assert float(found[20]) == pytest.approx(930, abs=100)


def test_rare_codes_of_a_long_list_share_what_common_ones_leave() -> None:
    counts = torch.cat([torch.tensor([4_000, 900]), torch.full((998,), 5)])
    people = float(counts.sum())
    layers = [noisy(counts, 20, 0)[-1]]
    found = fine_table(layers, 8, noise=20.0, total=people, listed=True)
    assert float(found.sum()) == pytest.approx(people)
    assert found[:2].tolist() == pytest.approx([4_000, 900], abs=80)
    assert float(found[2:].median()) == pytest.approx(5, abs=1.5)
    projected = fine_table(layers, 8, noise=20.0, total=people, ordered=False)
    assert float((found - counts).abs().sum()) < 0.7 * float(
        (projected - counts).abs().sum()
    )
    exact = fine_table([counts], 8, noise=0.0, total=people, listed=True)
    assert torch.allclose(exact, counts.double())
    small = fine_table(
        [torch.tensor([90.0, -40.0, 80.0])], 8, noise=5.0, total=100.0, listed=True
    )
    assert float(small.sum()) == pytest.approx(100)
    assert float(small.min()) >= 0


def test_a_group_that_hardly_stands_out_is_kept_where_the_others_cannot_be_all_people():
    """Zero for 92 of 100, and the rest on two nodes far from it: together they are more
    than noise explains.
    """
    counts = torch.zeros(8**4, dtype=torch.int64)
    counts[0], counts[2000], counts[2600] = 3_680, 160, 160
    for seed in range(5):
        found = fine_table(noisy(counts, 60, seed), 8, noise=60.0, total=4_000.0)
        assert float(found[1000:3500].sum()) > 150
        assert float(found[3600:].sum()) < 60


@pytest.mark.long
def test_few_people_among_those_who_stand_out_stay_where_they_were_counted() -> None:
    """Payments: none for many, small ones for few, most above; and ages, fewer from
    year to year.
    """
    payments = torch.zeros(8**4, dtype=torch.int64)
    ages = torch.zeros(800, dtype=torch.int64)
    payments[0], payments[1:256], payments[256:1_000] = 4_000, 2, 20
    ages[20:70] = (1_000 - 20 * torch.arange(50)).clamp(min=10)
    below = []
    beyond = []
    for seed in range(4):
        found = fine_table(
            noisy(payments, 70, seed), 8, noise=70.0, total=float(payments.sum())
        )
        below.append(float(found[1:256].sum()))
        found = fine_table(
            noisy(ages, 70, seed), 8, noise=70.0, total=float(ages.sum())
        )
        beyond.append(float((found.cumsum(0) - ages.cumsum(0)).abs().max()))
    assert sum(below) / 4 == pytest.approx(510, abs=120)
    assert max(beyond) < 0.016 * float(ages.sum())


def test_few_people_beyond_those_who_stand_out_stay_on_any_grid() -> None:
    """The same counts on an even grid, and on one whose cells grow: there the next node
    is three times as far out.
    """
    counts = torch.zeros(8**3, dtype=torch.int64)
    counts[:32], counts[32:40] = 100, 20
    layers = [layer.double() for layer in layers_of(counts, 8)]
    even = torch.arange(513.0)
    steep = torch.arange(513.0).div(8).exp()
    near, far = (
        fine_table(layers, 8, noise=40.0, total=float(counts.sum()), edges=edges)[
            32:
        ].sum()
        for edges in (even, steep)
    )
    assert float(near) == pytest.approx(160, abs=20)
    assert float(far) == pytest.approx(160, abs=20)


def test_nobody_is_drawn_past_an_end_of_the_counts() -> None:
    """Ages up to 79, codes from 0 to 7 and rates up to 1, counted exactly, but read as
    if under noise.
    """
    ages, codes, rates = (
        torch.zeros(cells, dtype=torch.int64) for cells in (1_008, 20, 1_024)
    )
    ages[4:64], codes[4:12] = (
        100,
        torch.tensor([1_800, 1_200, 900, 720, 600, 360, 240, 180]),
    )
    rates[:1_001] = (12 * torch.arange(1_001) / 1_000).round().long()
    for counts, first, step, noise, last in (
        (ages, 16, 1, 56, 79),
        (codes, -4, 1, 28, 7),
        (rates, 0, 1e-3, 56, 1),
    ):
        edges = first + step * torch.arange(len(counts) + 1, dtype=torch.float64)
        found = fine_table(
            layers_of(counts, 16),
            16,
            noise=noise,
            total=float(counts.sum()),
            edges=edges,
        )
        seen = edges[:-1][found > 0]
        assert 0.97 * last < float(seen.max()) <= last
        assert float(seen.min()) >= 0
    layers = [codes.double()]
    layers[0][3] += 1.5 * 28  # of −1: so much is consistent with nobody
    found = fine_table(
        layers, 16, noise=28.0, total=6_000.0, edges=torch.arange(-4.0, 17.0)
    )
    assert not found[:4].any()


@pytest.mark.long
@pytest.mark.parametrize("people", [6_000, 20_000])
def test_a_share_ends_at_one_by_counts_under_noise(people: int) -> None:
    """Even, with one in ten on 1 itself, and U-shaped: nobody is drawn above 1,
    whatever noise says beyond it.
    """
    edges = torch.arange(256, dtype=torch.float64) / 100
    places = torch.arange(0, 102).clamp(max=101) - 0.5
    even = torch.ones(101, dtype=torch.float64)
    heaped = even.clone()
    heaped[100] = 11
    bent = (2 / math.pi * (places / 100).clamp(0, 1).sqrt().arcsin()).diff()
    for law in (even, heaped, bent):
        counts = torch.zeros(255, dtype=torch.float64)
        counts[:101] = people * law / law.sum()
        for seed in range(4):
            generator = torch.Generator().manual_seed(seed)
            layers = [
                layer + 50 * torch.randn(len(layer), generator=generator)
                for layer in layers_of(counts, 16)
            ]
            found = fine_table(layers, 16, noise=50.0, total=float(people), edges=edges)
            assert not found[101:].any()
            assert (
                float((found.cumsum(0) - counts.cumsum(0)).abs().max()) < 0.05 * people
            )


@pytest.mark.long
@pytest.mark.parametrize("exponent", [1.5, 3.0])
def test_a_long_tail_has_no_end(
    exponent: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = torch.logspace(2, 6, 4_097, dtype=torch.float64)
    beyond = 6_000 * (edges / 100) ** -exponent
    layers = layers_of(-beyond.diff(), 16)
    found = fine_table(layers, 16, noise=56.0, total=6_000.0, edges=edges)
    far = int(1_024 * 1.5 / exponent)  # of 4 powers of ten: 3.2 % are beyond
    assert float(found[far:].sum()) == pytest.approx(float(beyond[far]), rel=0.2)
    # no end is looked for
    monkeypatch.setattr(law_ends, "_ENDS", law_ends.EndSettings(past=0.0))
    assert torch.equal(
        fine_table(layers, 16, noise=56.0, total=6_000.0, edges=edges), found
    )

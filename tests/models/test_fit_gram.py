from dataclasses import replace
from itertools import accumulate, combinations

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from understudy.ground.errors import ConfigError
from understudy.models.tables.fit_gram import _descend, fit_gram
from understudy.models.tables.given_rules import Ruled, Rules
from understudy.models.tables.loss import Triple, TwoWay
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import (
    _clear_most,
    most_of,
    read_tables,
)

DEFAULTS = TwoWay.__init__.__kwdefaults__
CLEAR = _clear_most.__kwdefaults__
SIZES = (2, 3, 4)
STARTS = (0, 2, 5)


def gram_of(codes: Tensor, sizes: tuple[int, ...] = SIZES) -> Tensor:
    """Σ x xᵀ of the one-hot rows of these codes."""
    starts = torch.tensor([0, *accumulate(sizes)][:-1])
    rows = torch.zeros(len(codes), sum(sizes), dtype=torch.float64).scatter_(
        1, codes + starts, 1.0
    )
    return rows.T @ rows


def related(
    n: int, sizes: tuple[int, ...] = SIZES, *, seed: int = 0, lean: float = 0.6
) -> Tensor:
    """Rows whose columns follow one hidden rank with probability `lean`."""
    rng = torch.Generator().manual_seed(seed)
    rank = torch.rand(n, 1, generator=rng)
    own = torch.rand(n, len(sizes), generator=rng)
    free = torch.rand(n, len(sizes), generator=rng)
    return (torch.where(free < lean, rank, own) * torch.tensor(sizes)).long()


def noisy(gram: Tensor, noise: float, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    upper = (noise * torch.randn(gram.shape, generator=rng, dtype=gram.dtype)).triu()
    return gram + upper + upper.triu(1).T


def pair_distances(a: Tensor, b: Tensor, sizes: tuple[int, ...] = SIZES) -> Tensor:
    """Total variation of every two-way table."""
    gaps = [
        list((a - b).abs().split(sizes, 0)[i].split(sizes, 1))
        for i in range(len(sizes))
    ]
    return torch.stack(
        [gaps[i][j].sum() / 2 for i, j in combinations(range(len(sizes)), 2)]
    )


def test_exact_tables_are_recovered() -> None:
    gram = gram_of(related(5_000))
    fitted = fit_gram(gram, SIZES, noise=0, components=64, seed=0).gram()
    assert pair_distances(fitted, gram / 5_000).max() < 1e-3
    assert (fitted.diagonal() - gram.diagonal() / 5_000).abs().max() < 1e-3


def test_tables_of_rows_that_never_mix_are_recovered() -> None:
    """Each level of a column comes with one level of the others: components must become
    one-hot.
    """
    codes = torch.tensor([0, 1, 2])[torch.arange(3_000) % 3, None].expand(-1, 3)
    gram = gram_of(codes.contiguous(), (3, 3, 3))
    fitted = fit_gram(gram, (3, 3, 3), noise=0, components=30, steps=300, seed=0).gram()
    # independent columns: 0.67
    assert pair_distances(fitted, gram / 3_000, (3, 3, 3)).max() < 5e-3


def test_noise_is_read_out_of_the_tables() -> None:
    """Estimated and fitted tables are nearer to the truth than the noisy ones, and than
    independent columns.
    """
    sizes = (12, 10, 8, 2, 15)
    n = 5_000
    noise = 30.0
    gram = gram_of(related(n, sizes, lean=0.4), sizes)
    tables = read_tables(noisy(gram, noise), sizes, noise=noise)
    fitted = fit_gram(
        noisy(gram, noise), sizes, noise=noise, components=128, steps=200, seed=0
    )
    independent = torch.outer(tables.ways, tables.ways)
    raw, estimated, fit, none = (
        pair_distances(table, gram / n, sizes).mean()
        for table in (
            tables.plain(tables.measured),
            tables.plain(tables.target),
            fitted.gram(),
            independent,
        )
    )
    assert fit < estimated < raw
    assert fit < 0.8 * none


def test_columns_without_dependence_are_drawn_to_independence() -> None:
    sizes = (6, 6, 6)
    n = 5_000
    noise = 20.0
    gram = gram_of(related(n, sizes, lean=0.0), sizes)
    tables = read_tables(noisy(gram, noise), sizes, noise=noise)
    independent = torch.outer(tables.ways, tables.ways)
    drawn, raw = (tables.plain(table) for table in (tables.target, tables.measured))
    moved = pair_distances(drawn, independent, sizes) / pair_distances(
        raw, independent, sizes
    )
    assert moved.mean() < 0.5


def test_one_way_tables_are_as_accurate_as_stated_and_better_than_the_diagonal():
    gram = gram_of(related(20_000))
    noise = 10.0
    reads = [
        read_tables(noisy(gram, noise, seed), SIZES, noise=noise) for seed in range(24)
    ]
    error = torch.stack(
        [(read.ways * read.people - gram.diagonal()).square() for read in reads]
    ).mean(0)
    # One cell on the diagonal, and a sum of `size` cells in each other column.
    known = [
        1 + sum(1 / other for other in SIZES if other != size)
        for size in SIZES
        for _ in range(size)
    ]
    stated = noise**2 / torch.tensor(known, dtype=torch.float64)
    torch.testing.assert_close(reads[0].people ** 2 / reads[0].ways_precision, stated)
    assert (error < 1.6 * stated).all()
    assert (error / stated).mean() < 1.15  # 1.27 by the diagonal alone
    people = torch.tensor([read.people for read in reads])
    assert abs(float(people.mean()) - 20_000) < 5 * float(people.std()) / 24**0.5


def test_unmeasured_cells_are_never_read() -> None:
    gram = gram_of(related(2_000))
    noise = torch.full_like(gram, 5.0)
    noise[:2, 2:5] = torch.inf  # the first pair of columns
    noise[3, 6] = torch.inf  # one cell of the last
    wild = torch.where(noise.isinf(), torch.nan, gram)
    a, b = (
        fit_gram(g, SIZES, noise=noise, components=16, steps=40, seed=0)
        for g in (gram, wild)
    )
    assert torch.equal(a.logits, b.logits)


def test_selected_pairs_alone_are_matched() -> None:
    gram = gram_of(related(5_000))
    noise = torch.zeros_like(gram)
    noise[:2, 2:5] = torch.inf
    fitted = fit_gram(gram, SIZES, noise=noise, components=64, seed=0).gram()
    assert pair_distances(fitted, gram / 5_000)[1:].max() < 1e-3


def test_one_way_tables_come_from_pairs_where_the_diagonal_is_not_measured() -> None:
    gram = gram_of(related(2_000))
    noise = torch.zeros_like(gram).fill_diagonal_(torch.inf)
    tables = read_tables(gram, SIZES, noise=noise)
    assert tables.people == pytest.approx(2_000)
    torch.testing.assert_close(tables.ways, gram.diagonal() / 2_000)


def test_a_level_that_nothing_measures_gets_what_the_others_leave() -> None:
    gram = gram_of(related(2_000))
    noise = torch.zeros_like(gram)
    noise[4, :] = noise[:, 4] = torch.inf
    torch.testing.assert_close(
        read_tables(gram, SIZES, noise=noise).ways, gram.diagonal() / 2_000
    )


def test_the_lower_triangle_is_never_read() -> None:
    gram = gram_of(related(1_000))
    full, upper = (read_tables(g, SIZES, noise=3.0) for g in (gram, gram.triu()))
    assert torch.equal(full.target, upper.target)


def test_a_cell_measured_well_is_followed_more_closely() -> None:
    gram = gram_of(related(5_000, lean=0.3))
    released = noisy(gram, 40.0)
    noise = torch.full_like(gram, 40.0)
    released[0, 5] = gram[0, 5] + 200
    apart = []
    for deviation in (40.0, 1.0):
        noise[0, 5] = deviation
        fitted = fit_gram(
            released, SIZES, noise=noise, components=64, steps=150, seed=0
        ).gram()
        apart.append(abs(float(fitted[0, 5] * 5_000 - released[0, 5])))
    assert apart[1] < 0.5 * apart[0]


def test_the_fit_stops_where_only_noise_is_left() -> None:
    sizes = (20, 20, 20)
    seen: list[tuple[int, float]] = []
    gram = noisy(gram_of(related(20_000, sizes), sizes), 15.0)
    fit_gram(
        gram,
        sizes,
        noise=15.0,
        components=64,
        seed=0,
        watch=lambda *look: seen.append(look),
    )
    steps, residuals = zip(*seen, strict=True)
    least = read_tables(gram, sizes, noise=15.0).least
    assert steps[-1] < 1200
    assert 0.9 * least < residuals[-1] <= least < min(residuals[:-1])
    assert least == pytest.approx(1 - 3 * (2 / 1_200) ** 0.5)


def test_stopping_is_nearer_to_the_truth_than_going_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # all tables weigh alike, at their noise and far from it
    monkeypatch.setitem(DEFAULTS, "stress", (1.0, 1.0))
    sizes = (2,) * 40
    n = 10_000
    noise = 400.0
    gram = gram_of(related(n, sizes), sizes)
    tables = read_tables(noisy(gram, noise), sizes, noise=noise)
    fit = fit_gram(noisy(gram, noise), sizes, noise=noise, components=64, seed=0)
    longer = MixtureOfProducts(sizes, 64)
    longer.load_state_dict(fit.state_dict())
    longer = _descend(longer, replace(tables, least=-1.0), 200, 0.2, None)
    stopped, gone_on = (
        pair_distances(m.gram(), gram / n, sizes).mean() for m in (fit, longer)
    )
    assert stopped < 0.95 * gone_on


@pytest.mark.long
def test_a_strong_table_is_not_outvoted_by_many_without_dependence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(DEFAULTS, "stress", (1.0, 1.0))
    sizes = (20, 20, *(4,) * 20)
    n = 20_000
    noise = 40.0
    generator = torch.Generator().manual_seed(0)
    codes = torch.stack(
        [torch.randint(size, (n,), generator=generator) for size in sizes], 1
    )
    codes[:, 1] = torch.where(
        torch.rand(n, generator=generator) < 0.95, codes[:, 0], codes[:, 1]
    )
    gram = gram_of(codes, sizes)
    tables = read_tables(noisy(gram, noise), sizes, noise=noise)
    fit = fit_gram(noisy(gram, noise), sizes, noise=noise, components=64, seed=0)
    left = (
        ((fit.gram() * tables.people - noisy(gram, noise))[:20, 20:40] / noise)
        .square()
        .sum()
    )
    assert left <= tables.most[0, 1]
    hasty = MixtureOfProducts(sizes, 64)
    start = (
        torch.randn(64, sum(sizes), generator=torch.Generator().manual_seed(0)) * 0.5
    )
    with torch.no_grad():
        hasty.logits.copy_(tables.ways.clamp(min=1e-6).log() + start)
    anything = torch.full_like(tables.most, torch.inf)
    hasty = _descend(
        hasty,
        replace(tables, most=anything, clear_most=anything),
        600,
        0.2,
        None,
    )
    strong, half = (pair_distances(m.gram(), gram / n, sizes)[0] for m in (fit, hasty))
    assert strong < 0.7 * half


def test_tables_that_weigh_as_much_as_they_have_left_need_fewer_steps_and_come_nearer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two copies and many weak pairs: the weak ones are at their noise long before the
    copies.
    """
    monkeypatch.setitem(CLEAR, "clear", torch.inf)
    sizes = (16, 16, *(5,) * 14)
    n = 20_000
    noise = 30.0
    codes = related(n, sizes, lean=0.3)
    codes[:, 1] = torch.where(
        torch.rand(n, generator=torch.Generator().manual_seed(5)) < 0.9, codes[:, 0], 3
    )
    gram = gram_of(codes, sizes)
    ends = []
    for stress in (DEFAULTS["stress"], (1.0, 1.0)):
        monkeypatch.setitem(DEFAULTS, "stress", stress)
        seen: list[int] = []
        fit = fit_gram(
            noisy(gram, noise),
            sizes,
            noise=noise,
            people=n,
            components=64,
            seed=0,
            watch=lambda step, residual, seen=seen: seen.append(step),
        )
        ends.append(
            (seen[-1], float(pair_distances(fit.gram(), gram / n, sizes).mean()))
        )
    assert ends[0][0] < ends[1][0]
    assert ends[0][1] < ends[1][1]


def test_a_pair_clear_of_independence_is_followed_to_its_own_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two columns go together and ten others are independent: V is known exactly."""
    size = 4
    sizes = (size,) * 12
    n = 3_000
    noise = 40.0
    lean = 0.3  # V
    law = torch.full((sum(sizes), sum(sizes)), 1 / size**2, dtype=torch.float64)
    one = torch.eye(size, dtype=torch.float64) / size
    for start in range(0, sum(sizes), size):
        own = slice(start, start + size)
        law[own, own] = one
    both = slice(0, size), slice(size, 2 * size)
    law[both] = lean * one + (1 - lean) * law[both]
    law.T[both] = law[both].T

    def fits() -> tuple[float, float, float]:
        strength, squares, distance = 0.0, 0.0, 0.0
        seeds = range(4)
        for seed in seeds:
            released = noisy(n * law, noise, seed)
            fitted = fit_gram(
                released, sizes, noise=noise, people=n, components=32, seed=seed
            ).gram()
            gap = (fitted - released / n)[both] * n / noise
            squares = max(squares, float(gap.square().sum()))
            departure = fitted[both] - 1 / size**2
            v_squared = departure.square().sum() * size**2 / (size - 1)
            strength += float(v_squared.sqrt()) / len(seeds)
            distance += float(pair_distances(fitted, law, sizes).mean()) / len(seeds)
        return strength, squares, distance

    strength, squares, distance = fits()
    monkeypatch.setitem(CLEAR, "clear", torch.inf)
    weaker, more, farther = fits()
    cells = size**2
    assert squares < cells < more
    assert 0.75 < strength / lean < 1.1
    assert weaker / lean < 0.7
    assert distance < farther


def test_how_far_a_clear_pair_is_followed_has_the_moments_of_chi_square() -> None:
    """Nothing is asked of a pair within five deviations of independence, or of one that
    was not measured.
    """
    cells = torch.tensor([0.0, 16.0, 16.0, 100.0], dtype=torch.float64)
    beyond = torch.tensor([0.0, 5.01, 4.99, 40.0], dtype=torch.float64)
    deviation = torch.tensor([chi2.std(c) if c else 0.0 for c in cells.tolist()])
    followed = _clear_most(cells + beyond * deviation, cells)
    below = torch.tensor([chi2.mean(c) - chi2.std(c) for c in (16, 100)])
    assert followed[[0, 2]].tolist() == [torch.inf, torch.inf]
    torch.testing.assert_close(followed[[1, 3]], below.double())


def test_all_other_tables_are_held_while_a_clear_one_is_followed() -> None:
    """Once only a clear pair is left, no other's gap pulls on the odds."""
    sizes = (3, 3, 3)
    n = 5_000
    noise = 30.0
    gram = noisy(gram_of(related(n, sizes), sizes), noise)
    tables = read_tables(gram, sizes, noise=noise)
    most = torch.full((3, 3), torch.inf, dtype=torch.float64)
    most[0, 1] = most[1, 0] = 0.0
    loss = TwoWay(replace(tables, clear_most=most), sizes, 1.0, Rules(sizes, ()))
    law = Ruled.from_ties(torch.full((4, 9), 1 / 3), sizes, ())
    turned, pairs = loss.pairs(law, [])
    assert loss.is_left(pairs)
    rows = loss.slope(law, turned, pairs).own
    assert rows[:, :6].abs().max() > 0
    assert not rows[:, 6:].any()
    most.fill_(torch.inf)
    done = TwoWay(replace(tables, clear_most=most), sizes, 1.0, Rules(sizes, ()))
    assert not done.is_left(pairs)


@pytest.mark.parametrize("cells", [4, 16, 100, 5_000])
def test_what_noise_may_leave_in_a_table_is_a_quantile_of_chi_square(
    cells: int,
) -> None:
    found = most_of(torch.full((11, 11), float(cells), dtype=torch.float64))
    # of eleven columns, 55 tables
    assert float(found[0, 1]) == pytest.approx(chi2.isf(0.05 / 55, cells), rel=0.02)


def test_a_fit_that_does_not_stop_is_watched_to_its_last_step() -> None:
    seen: list[tuple[int, float]] = []
    gram = gram_of(related(1_000))
    fit_gram(
        gram,
        SIZES,
        noise=0,
        components=4,
        steps=25,
        seed=0,
        watch=lambda *look: seen.append(look),
    )
    assert [step for step, *_ in seen] == list(range(26))


def test_one_component_is_the_product_of_the_one_way_tables() -> None:
    gram = gram_of(related(1_000, lean=0.0))
    odds = fit_gram(gram, SIZES, noise=0, components=1, steps=100, seed=0).odds()
    assert (odds[0] - gram.diagonal() / 1_000).abs().max() < 0.02


@pytest.mark.parametrize("sizes", [(4,), (1,), (1, 3), (3, 1, 1)])
@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_single_and_constant_columns(sizes: tuple[int, ...], noise: float) -> None:
    gram = gram_of(related(2_000, sizes), sizes)
    fitted = fit_gram(
        noisy(gram, noise), sizes, noise=noise, components=8, steps=50, seed=0
    ).gram()
    assert (fitted - gram / 2_000).abs().max() < 0.01


def test_a_level_without_people_stays_rare() -> None:
    codes = related(5_000)
    codes[:, 2].clamp_(max=2)
    fitted = fit_gram(
        noisy(gram_of(codes), 5.0), SIZES, noise=5.0, components=32, steps=100, seed=0
    )
    assert fitted.gram()[8, 8] < 0.002


def test_the_same_seed_gives_the_same_mixture() -> None:
    gram = gram_of(related(1_000))
    a, b, c = (
        fit_gram(gram, SIZES, noise=2.0, components=8, steps=20, seed=seed)
        for seed in (1, 1, 2)
    )
    assert torch.equal(a.logits, b.logits)
    assert not torch.equal(a.logits, c.logits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": (2, 3)}, "width of 5"),
        ({"sizes": (2, 7, 0)}, "sizes"),
        ({"noise": -1.0}, "noise"),
        ({"noise": float("nan")}, "noise"),
        ({"noise": float("inf")}, "no table"),
        ({"gram": torch.full((9, 9), torch.nan)}, "no number"),
        ({"steps": 0}, "steps"),
        ({"rate": 0.0}, "rate"),
        ({"components": 0}, "components"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    change: dict[str, object], message: str
) -> None:
    arguments = {
        "gram": gram_of(related(100)),
        "sizes": SIZES,
        "noise": 1.0,
        "seed": 0,
    } | change
    with pytest.raises(ConfigError, match=message):
        fit_gram(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [None, 100])
def test_noise_that_leaves_nobody_still_ends_in_a_fit(known: int | None) -> None:
    """What was paid for is never lost to an error: one person, or as many as are known,
    and all the rest is noise.
    """
    below = -gram_of(related(100))
    tables = read_tables(below, SIZES, noise=75.0, people=known)
    assert tables.people == (known or 1)
    assert float(tables.ways.min()) >= 0
    assert bool(
        fit_gram(below, SIZES, noise=75.0, people=known, components=8, steps=20, seed=0)
        .gram()
        .isfinite()
        .all()
    )


def test_one_way_tables_alone_give_independent_columns() -> None:
    gram = gram_of(related(1_000))
    noise = torch.full_like(gram, torch.inf).double().fill_diagonal_(1.0)
    fit = fit_gram(gram, SIZES, noise=noise, components=64, steps=100, seed=0)
    assert torch.allclose(
        fit.gram().diagonal() * 1_000, gram.diagonal().float(), atol=15
    )


def test_a_fit_goes_on_while_a_three_way_table_shows_more_than_noise() -> None:
    """The third column is a sum of two others: no pair shows it."""
    sizes = (8, 8, 8)
    n = 20_000
    noise = 20.0
    codes = related(n, sizes, lean=0.0)
    codes[:, 2] = (codes[:, 0] + codes[:, 1]) % 8
    table = torch.zeros(sizes, dtype=torch.float64)
    table.index_put_(
        tuple(codes.T), torch.ones(n, dtype=torch.float64), accumulate=True
    )
    ends = []
    for triples in ([], [Triple((0, 1, 2), table, noise)]):
        seen: list[int] = []
        fit = fit_gram(
            noisy(gram_of(codes, sizes), noise),
            sizes,
            noise=noise,
            triples=triples,
            components=128,
            steps=400,
            seed=0,
            watch=lambda step, residual, seen=seen: seen.append(step),
        )
        a, b, c = fit.odds().split(8, 1)
        left = (
            ((torch.einsum("ka,kb,kc->abc", a, b, c) / 128 * n - table) / noise)
            .square()
            .sum()
        )
        ends.append((seen[-1], float(left)))
    assert ends[0][0] < ends[1][0] < 400
    assert ends[1][1] <= chi2.isf(0.05 / 4, 512) < ends[0][1]

import json
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from understudy.ground.errors import ConfigError
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.fitted_levels import Coarse
from understudy.models.tables.given_rules import Tie
from understudy.models.tables.loss import Triple
from understudy.models.tables.mixture import KEPT, MixtureOfProducts
from understudy.models.tables.noisy_tables import read_tables
from understudy.models.tables.target import with_effects

SIZES = (2, 3, 2, 2)
TARGET = 2
ROWS = torch.tensor(list(product(*map(range, SIZES))))
BLOCKS = [slice(0, 2), slice(2, 5), slice(5, 7), slice(7, 9)]


def uniform(seed: int) -> Callable[[int], Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return lambda n: torch.rand(n, generator=rng, dtype=torch.float64)


@pytest.fixture(scope="module")
def mixture() -> MixtureOfProducts:
    """One whose target three columns tell together, and of which two components say
    nearly nothing else.
    """
    mixture = MixtureOfProducts(SIZES, 6)
    with torch.no_grad():
        mixture.logits.copy_(
            2 * torch.randn(6, 9, generator=torch.Generator().manual_seed(3))
        )
    return mixture.requires_grad_(False)


@pytest.fixture(scope="module")
def told(mixture: MixtureOfProducts) -> MixtureOfProducts:
    return with_effects(mixture, TARGET, [], uniform(1))


def law(mixture: MixtureOfProducts, kept: float = KEPT) -> Tensor:
    """The probability of every row, by enumeration: of its components, and of the
    others and the effects.
    """
    odds = [mixture.odds().double()[:, block] for block in BLOCKS]
    own = (
        torch.stack([part[:, ROWS[:, c]] for c, part in enumerate(odds)])
        .prod(0)
        .mean(0)
        .reshape(SIZES)
    )
    if mixture.effects is None:
        return own
    said = torch.zeros(len(ROWS), SIZES[TARGET], dtype=torch.float64)
    for column in (0, 1, 3):
        said += mixture.effects.double()[BLOCKS[column]][ROWS[:, column]]
    if mixture.together:
        said += mixture.effects.double()[9:][3 * ROWS[:, 0] + ROWS[:, 1]]
    chance = said.softmax(1).gather(1, ROWS[:, [TARGET]]).reshape(SIZES)
    return kept * own + (1 - kept) * own.sum(TARGET, keepdim=True) * chance


def with_target(table: Tensor) -> list[Tensor]:
    """Its two-way tables of the target and one other column each."""
    return [
        table.sum([c for c in range(4) if c not in (column, TARGET)])
        for column in (0, 1, 3)
    ]


def test_pairs_with_the_target_stay_and_it_is_drawn_by_no_two_columns_together(
    mixture: MixtureOfProducts, told: MixtureOfProducts
) -> None:
    before = law(mixture)
    after = law(told, kept=0)
    for own, other in zip(with_target(before), with_target(after), strict=True):
        torch.testing.assert_close(own, other, atol=0.002, rtol=0)
    # (2, 3, 2): a sum of one term for each column
    odds = (after[:, :, 1] / after[:, :, 0]).log()
    for column in range(3):
        torch.testing.assert_close(
            odds.diff(dim=column).diff(dim=(column + 1) % 3).abs().max().item(),
            0.0,
            atol=1e-4,
            rtol=0,
        )
    apart = (before[:, :, 1] / before[:, :, 0]).log()
    assert apart.diff(dim=0).diff(dim=1).abs().max() > 0.5


@pytest.fixture(scope="module")
def stronger(told: MixtureOfProducts) -> Tensor:
    """The Gram matrix, in shares, of rows whose effects are twice as strong, the
    target's shares as they were.
    """
    twice = MixtureOfProducts(SIZES, 6, TARGET)
    twice.load_state_dict(told.state_dict())
    share = law(told, kept=0).sum((0, 1, 3))
    shift = torch.zeros(2)
    assert twice.effects is not None
    assert told.effects is not None
    for _ in range(50):
        with torch.no_grad():
            twice.effects.copy_(2 * told.effects + shift / 3)
        shift += (share / law(twice, kept=0).sum((0, 1, 3))).log().float()
    rows = torch.cat(
        [torch.nn.functional.one_hot(ROWS[:, c], size) for c, size in enumerate(SIZES)],
        1,
    )
    return rows.double().T @ (law(twice).detach().reshape(-1, 1) * rows)


def effects(mixture: MixtureOfProducts) -> Tensor:
    """What levels of the same column differ by in the log-odds of the target."""
    assert mixture.effects is not None
    odds = mixture.effects.double().diff(dim=1)[:, 0]
    return torch.cat(
        [odds[block].diff() for c, block in enumerate(BLOCKS) if c != TARGET]
    )


@pytest.mark.parametrize("unknown", [False, True])
def test_effects_are_as_strong_as_the_released_pairs_with_the_target_say(
    mixture: MixtureOfProducts, told: MixtureOfProducts, stronger: Tensor, unknown: bool
) -> None:
    noise = torch.full((9, 9), 20.0)
    if unknown:
        noise[:2] = noise[:, :2] = torch.inf  # the first column was not measured
    tables = read_tables(stronger * 100_000, SIZES, noise=noise, people=100_000)
    ratio = effects(with_effects(mixture, TARGET, [], uniform(1), tables)) / effects(
        told
    )
    torch.testing.assert_close(
        ratio, torch.full((4,), 2.0, dtype=torch.float64), atol=0.1, rtol=0
    )


def test_pairs_that_show_no_more_than_noise_leave_effects_nearly_as_the_mixture_has_them(
    mixture: MixtureOfProducts, told: MixtureOfProducts, stronger: Tensor
) -> None:
    tables = read_tables(stronger * 100, SIZES, noise=50.0, people=100)
    again = with_effects(mixture, TARGET, [], uniform(1), tables)
    torch.testing.assert_close(effects(again), effects(told), atol=0, rtol=0.02)


def test_a_three_way_table_stays_where_its_columns_have_effects_together(
    mixture: MixtureOfProducts, told: MixtureOfProducts
) -> None:
    both = with_effects(mixture, TARGET, [(0, 1)], uniform(1))
    before, after, without = (law(one, kept=0).sum(3) for one in (mixture, both, told))
    torch.testing.assert_close(before, after, atol=0.0015, rtol=0)
    assert (before - without).abs().max() > 0.005
    n = 20_000
    levels = both.levels(20_000, uniform(2)).long()
    after = law(both).sum(3)
    drawn = torch.zeros(SIZES[:3], dtype=torch.float64).index_put_(
        tuple(levels[:, :3].T),
        torch.tensor(1 / n, dtype=torch.float64),
        accumulate=True,
    )
    assert ((drawn - after).abs() <= 5 * (after * (1 - after) / n).sqrt()).all()


def test_rows_have_the_law_of_the_effects_and_less_than_its_sampling_error(
    told: MixtureOfProducts,
) -> None:
    n = 20_000
    truth = law(told)
    levels = told.levels(n, uniform(2)).long()
    drawn = torch.zeros(SIZES, dtype=torch.float64).index_put_(
        tuple(levels.T), torch.tensor(1 / n, dtype=torch.float64), accumulate=True
    )
    assert ((drawn - truth).abs() <= 5 * (truth * (1 - truth) / n).sqrt()).all()
    for own, other in zip(with_target(drawn), with_target(truth), strict=True):
        assert ((own - other).abs() <= 2 * (other * (1 - other) / n).sqrt()).all()
    share = float(truth.sum((0, 1, 3))[1])
    apart = [
        float(told.levels(500, uniform(seed))[:, TARGET].double().mean()) - share
        for seed in range(20)
    ]
    assert sum(gap**2 for gap in apart) / 20 <= 0.1 * share * (1 - share) / 500


@pytest.mark.parametrize("n", [0, 1, 3])
def test_any_number_of_rows_is_drawn(told: MixtureOfProducts, n: int) -> None:
    levels = told.levels(n, uniform(4))
    assert levels.shape == (n, 4)
    assert ((levels >= 0) & (levels < torch.tensor(SIZES))).all()


def test_a_single_row_has_the_odds_of_its_effects(told: MixtureOfProducts) -> None:
    draws = torch.cat([told.levels(1, uniform(seed)) for seed in range(300)])
    truth = float(law(told).sum((0, 1, 3))[1])
    assert (
        abs(float(draws[:, TARGET].double().mean()) - truth)
        <= 4 * (truth * (1 - truth) / 300) ** 0.5
    )


def test_a_description_rebuilds_the_same_rows(told: MixtureOfProducts) -> None:
    again = MixtureOfProducts.from_description(json.loads(json.dumps(told.describe())))
    again.load_state_dict(told.state_dict())
    assert torch.equal(again.levels(50, uniform(5)), told.levels(50, uniform(5)))


@pytest.mark.parametrize("target", [-1, 4, True, 1.0, "2", [0]])
def test_a_target_that_is_no_column_is_refused(
    told: MixtureOfProducts, target: object
) -> None:
    with pytest.raises(ConfigError, match="of 4 columns none"):
        MixtureOfProducts.from_description(told.describe() | {"target": target})


@pytest.mark.parametrize(
    "together",
    [[[0]], [[0, 0]], [[0, TARGET]], [[0, 9]], [[0, True]], [0, 1], "01", [[0, 1, 3]]],
)
def test_effects_of_what_is_no_two_other_columns_are_refused(
    told: MixtureOfProducts, together: object
) -> None:
    with pytest.raises(ConfigError):
        MixtureOfProducts.from_description(told.describe() | {"together": together})


def test_levels_that_were_fitted_as_one_have_the_same_effect() -> None:
    two = MixtureOfProducts(SIZES, 6, TARGET, [(3, 0)])
    assert two.effects is not None
    with torch.no_grad():
        two.effects.copy_(torch.arange(26.0).view(13, 2))
    group = torch.tensor([0, 1, 2, 2, 3, 4, 5, 6, 7, 8])
    full = Coarse(
        SIZES, (2, 4, 2, 2), group, torch.tensor([1, 1, 0.25, 0.75, 1, 1, 1, 1, 1, 1])
    ).parted(two)
    assert (full.target, full.together) == (TARGET, ((3, 0),))
    assert full.effects is not None
    assert torch.equal(full.effects, torch.cat([two.effects[group], two.effects[9:]]))


def test_a_fit_draws_its_target_by_effects_unless_there_are_rules_or_very_many_levels() -> (
    None
):
    gram = torch.eye(4) * 500 + (1 - torch.eye(4)) * 250
    own: dict[str, object] = {"noise": 1.0, "components": 8, "steps": 5, "seed": 0}
    assert fit_gram(gram, (2, 2), target=1, **own).target == 1  # type: ignore[arg-type]
    assert fit_gram(gram, (2, 2), **own).target is None  # type: ignore[arg-type]
    three = torch.eye(6) * 250 + 250
    released = [
        Triple((2, 0, 1), torch.full((2, 2, 2), 60.0), 3.0),
        Triple((0, 1, 2), torch.full((2, 2, 2), 60.0), 3.0),
    ]
    assert fit_gram(three, (2, 2, 2), target=1, triples=released, **own).together == (
        (2, 0),
        (0, 2),
    )  # type: ignore[arg-type]
    anything = Tie((0, 1), (torch.ones(1, 2), torch.ones(1, 2)))
    assert fit_gram(gram, (2, 2), target=1, ties=[anything], **own).target is None  # type: ignore[arg-type]
    wide = torch.eye(19) * 50 + 50
    assert fit_gram(wide, (2, 17), target=1, **own).target is None  # type: ignore[arg-type]
    assert fit_gram(wide, (19,), target=0, **own).target is None  # type: ignore[arg-type]

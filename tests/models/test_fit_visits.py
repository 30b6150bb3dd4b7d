"""The fit of chains to released tables: exact ones are met, noise is not followed, the
next depends on the last.
"""

import numpy as np
import pytest
import torch

from understudy.data.visits import VisitCodes, VisitLayout
from understudy.models.tables.given_rules import Tie
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.fit import VisitTables, VisitTies, fit_visits
from visit_cases import random_codes

NUMBERS = [(n, n) for n in range(5)]
LAYOUT = VisitLayout((2, 3, 3, 5), (3, 2, 3), ordered=True)


def population(people: int = 4_000, seed: int = 0) -> VisitCodes:
    """Two kinds of people, of whom sick ones have more events; the first column of
    events goes 0 → 1 → 2 → 0 …
    """
    rng = np.random.default_rng(seed)
    sick = rng.random(people) < 0.4
    number = rng.binomial(4, np.where(sick, 0.7, 0.5))
    codes = random_codes(rng, LAYOUT, number)
    codes.people[:, 0] = np.where(rng.random(people) < 0.1, ~sick, sick)
    codes.people[:, 2] = np.where(number == 0, 2, rng.random(people) < 0.5)
    codes.people[:, 3] = number
    place = codes.order
    owner = codes.owner
    start = rng.integers(0, 3, people)
    stray = rng.random(len(owner)) < 0.05
    codes.events[:, 0] = np.where(
        stray, rng.integers(0, 3, len(owner)), (start[owner] + place) % 3
    )
    codes.events[:, 1] = rng.random(len(owner)) < np.where(sick[owner], 0.8, 0.2)
    codes.events[:, 2] = np.where(
        place == 0, 2, codes.events[:, 1] ^ (rng.random(len(owner)) < 0.2)
    )
    return codes


def distances(one: VisitTables, other: VisitTables) -> dict[str, float]:
    """The largest distance of two tables of each kind, both of shares."""
    found: dict[str, float] = {}
    for block, table in one.tables.items():
        apart = table / table.sum() - other.tables[block] / other.tables[block].sum()
        found[block[0]] = max(found.get(block[0], 0.0), float(apart.abs().sum()) / 2)
    return found


def drawn(chains: MixtureOfChains, people: int, seed: int = 1) -> VisitCodes:
    generator = torch.Generator().manual_seed(seed)
    return chains.draw(
        people, lambda k: torch.rand(k, generator=generator, dtype=torch.float64)
    )


def with_noise(exact: VisitTables, deviation: float, seed: int = 0) -> VisitTables:
    generator = torch.Generator().manual_seed(seed)
    noisy = {
        block: table
        + deviation * torch.randn(table.shape, generator=generator, dtype=torch.float64)
        for block, table in exact.tables.items()
    }
    return VisitTables(exact.layout, noisy, dict.fromkeys(noisy, deviation))


@pytest.fixture(scope="module")
def made() -> VisitCodes:
    """Drawn from a fit to exact tables."""
    exact = VisitTables.exact(population(), LAYOUT)
    return drawn(fit_visits(exact, [NUMBERS], kinds=12, steps=100, seed=0), 20_000)


@pytest.mark.long
def test_exact_tables_are_met_and_the_next_event_follows_the_last(
    made: VisitCodes,
) -> None:
    exact = VisitTables.exact(population(), LAYOUT)
    assert max(distances(exact, VisitTables.exact(made, LAYOUT)).values()) < 0.03
    follows = np.flatnonzero(made.order > 0)
    assert (
        made.events[follows, 0] == (made.events[follows - 1, 0] + 1) % 3
    ).mean() > 0.85


def test_a_person_s_first_event_says_something_of_the_third(made: VisitCodes) -> None:
    def first_and_last(codes: VisitCodes) -> float:
        three = codes.starts[:-1][codes.numbers >= 3]
        return float(
            np.corrcoef(codes.events[three, 1], codes.events[three + 2, 1])[0, 1]
        )

    assert first_and_last(made) > first_and_last(population()) / 2 > 0.1


@pytest.mark.long
def test_noise_is_not_followed() -> None:
    exact = VisitTables.exact(population(), LAYOUT)
    noisy = with_noise(exact, 60.0)
    residuals = []
    chains = fit_visits(
        noisy,
        [NUMBERS],
        kinds=12,
        steps=120,
        seed=0,
        watch=lambda _, residual: residuals.append(residual),
    )
    assert 0.6 < residuals[-1] < 1.1, (
        "no nearer to the noisy tables than the true ones are"
    )
    found = distances(exact, VisitTables.exact(drawn(chains, 10_000), LAYOUT))
    raw = distances(exact, noisy)
    assert all(found[kind] < raw[kind] for kind in found), (found, raw)


def test_the_same_seed_gives_the_same_mixture() -> None:
    exact = VisitTables.exact(population(300), LAYOUT)
    first, second = (
        fit_visits(exact, [NUMBERS], kinds=8, states=2, steps=5, seed=3)
        for _ in range(2)
    )
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )


def test_events_alone_and_without_an_order_are_fitted() -> None:
    rng = np.random.default_rng(0)
    layout = VisitLayout((5,), (3,), ordered=False)
    real = random_codes(rng, layout, rng.integers(0, 5, 2_000))
    real.people[:, 0] = real.numbers
    real.events[:, 0] = np.where(real.numbers[real.owner] > 2, 0, real.events[:, 0])
    exact = VisitTables.exact(real, layout)
    chains = fit_visits(exact, [NUMBERS], kinds=8, states=2, steps=80, seed=0)
    assert (
        max(distances(exact, VisitTables.exact(drawn(chains, 20_000), layout)).values())
        < 0.02
    )


def test_what_rules_forbid_is_known_to_be_empty_whatever_the_noise_says() -> None:
    codes = population(1_000)
    codes.events[:, 1] = np.where(
        codes.people[codes.owner, 0] == 1, 1, codes.events[:, 1]
    )
    exact = VisitTables.exact(codes, LAYOUT)
    noisy = with_noise(exact, 40.0)
    noisy.tables["across", 0, 1][1, 0] = 120.0  # nobody is there
    # Who has level 1 in the first column has no event with level 0 in its second: two
    # boxes.
    tie = Tie(
        (0, 5),
        (
            torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
            torch.tensor([[1.0, 1.0], [0.0, 1.0]]),
        ),
    )
    settings = {"kinds": 8, "chains": 8, "states": 2, "steps": 25, "seed": 0}
    left = [
        float(
            fit_visits(noisy, [NUMBERS], ties=[ties], **settings).tables().across[1, 3]
        )  # type: ignore[arg-type]
        for ties in (VisitTies(), VisitTies(both=(tie,)))
    ]
    assert left[0] > 0.03
    assert left[1] < left[0] / 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("fades", "own", "people", "steps"),
    [(0.8, 0.0, 2_000, 300), (0.0, 3.0, 4_000, 150)],
)
def test_memory_that_fades_is_told_from_people_who_differ_for_good(
    fades: float, own: float, people: int, steps: int
) -> None:
    rng = np.random.default_rng(0)
    longest = 6
    lasting = rng.normal(size=(people, longest))
    for step in range(1, longest):
        lasting[:, step] = (
            fades * lasting[:, step - 1] + np.sqrt(1 - fades**2) * lasting[:, step]
        )
    value = np.sqrt(own) * rng.normal(size=(people, 1)) + lasting
    levels = np.searchsorted(np.quantile(value, np.arange(1, 6) / 6), value).ravel()
    first = (np.arange(levels.size) % longest == 0).astype(int)  # whose gap is missing
    real = VisitCodes(
        np.tile(np.array([[0, longest]], dtype=np.int32), (people, 1)),
        np.stack((levels, first), 1).astype(np.int32),
        np.arange(people + 1) * longest,
    )
    exact = VisitTables.exact(real, VisitLayout((2, longest + 1), (6, 2), ordered=True))
    numbers = [(n, n) for n in range(longest + 1)]
    chains = fit_visits(
        with_noise(exact, 10.0),
        [numbers],
        kinds=8,
        chains=4,
        states=12,
        steps=steps,
        seed=0,
    )
    assert isinstance(chains, MixtureOfChains)

    def lag(codes: VisitCodes, far: int) -> float:
        later = np.flatnonzero(codes.order >= far)
        return float(
            np.corrcoef(codes.events[later - far, 0], codes.events[later, 0])[0, 1]
        )

    made = drawn(chains, people)
    for far in (1, 2, 5):
        assert lag(made, far) == pytest.approx(lag(real, far), abs=0.1), far

"""A mixture of chains: its tables against an enumeration of everything that can happen,
and its draws against both.
"""

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.data.visits import VisitLayout
from understudy.data.visits.counts import AHEAD
from understudy.ground.errors import ConfigError
from understudy.models.tables.given_rules import Rules, Tie
from understudy.models.visits.chains import MixtureOfChains, step_weights
from understudy.models.visits.fit import VisitTables

NUMBERS = [(0, 0), (1, 1), (2, 5)]


def random_chains(
    *, ordered: bool = True, kinds: int = 3, seed: int = 0
) -> MixtureOfChains:
    """A column of people, where ordered the time of the first event, their number; two
    columns of events.
    """
    people = (2, 3, 3) if ordered else (2, 3)
    chains = MixtureOfChains(
        people, (2, 3), NUMBERS, ordered=ordered, kinds=kinds, chains=2, states=4
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in chains.parameters():
            weights.copy_(1.5 * torch.randn(weights.shape, generator=generator))
    return chains.requires_grad_(False)


def laid_out(tables: VisitTables, kind: str) -> Tensor:
    """All tables of one kind side by side, as shares of all people."""
    rows = (
        tables.layout.people if kind in ("person", "across") else tables.layout.events
    )
    columns = tables.layout.people if kind == "person" else tables.layout.events
    found = torch.zeros(sum(rows), sum(columns), dtype=torch.float64)
    for (one, a, b), table in tables.tables.items():
        if one == kind:
            own = table.diag() if table.ndim == 1 else table
            at = sum(rows[:a])
            to = sum(columns[:b])
            found[at : at + rows[a], to : to + columns[b]] = own / tables.people
    return found


def enumerated(
    chains: MixtureOfChains, allowed: Tensor | None = None
) -> dict[str, Tensor]:
    """Every kind, number, walk and level, one by one: the tables of people's and
    events' columns.

    `allowed` (levels, levels) of the two columns of an event: every state is given
    these.
    """
    own, number = chains.person_odds()
    turn = torch.arange(chains.kinds) % chains.chains
    event = chains.event_odds().view(chains.chains, chains.states, -1)[turn]
    both = (
        event[:, :, :2, None]
        * event[:, :, None, 2:]
        * (torch.ones(2, 3) if allowed is None else allowed)
    )
    both = both / both.sum((2, 3), keepdim=True)  # (kinds, states, levels, levels)
    event = torch.cat((both.sum(3), both.sum(2)), 2)
    first, onward = (part[turn] for part in chains.chain())
    width = sum(chains.people)
    event_width = sum(chains.events)
    found = {
        "person": np.zeros((width, width)),
        "across": np.zeros((width, event_width)),
        "event": np.zeros((event_width, event_width)),
        **{kind: np.zeros((event_width, event_width)) for kind in AHEAD},
    }
    counts = [
        (level, n, 1 / (high - low + 1))
        for level, (low, high) in enumerate(NUMBERS)
        for n in range(low, high + 1)
    ]
    own, number, event, both, first, onward = (
        part.double().numpy() for part in (own, number, event, both, first, onward)
    )
    for kind, (level, n, share) in product(range(chains.kinds), counts):
        mass = number[kind, level] * share / chains.kinds
        person = np.concatenate((own[kind], np.eye(3)[level]))
        if chains.ordered and n == 0:
            person[2:5] = np.eye(3)[2]
        found["person"] += mass * np.outer(person, person)
        for walk in product(range(chains.states), repeat=n):
            steps = (
                [first[kind, walk[0]], *(onward[kind, a, b] for a, b in pairwise(walk))]
                if n
                else []
            )
            likely = mass * math.prod(steps)
            for state in walk:
                found["across"] += likely / n * np.outer(person, event[kind, state])
                found["event"][:2, 2:] += likely / n * both[kind, state]
                found["event"][2:, :2] += likely / n * both[kind, state].T
            for ahead, far in AHEAD.items():
                for a, b in zip(walk, walk[far:], strict=False):
                    found[ahead] += (
                        likely / (n - far) * np.outer(event[kind, a], event[kind, b])
                    )
    return {kind: torch.from_numpy(table).float() for kind, table in found.items()}


def of_two_columns(sizes: tuple[int, ...]) -> Tensor:
    column = torch.repeat_interleave(torch.tensor(sizes))
    return column[:, None] != column


@pytest.mark.long
@pytest.mark.parametrize("ordered", [True, False])
def test_tables_are_those_of_everything_that_can_happen(ordered: bool) -> None:
    chains = random_chains(ordered=ordered)
    found = enumerated(chains)
    said = chains.tables()
    apart = of_two_columns(chains.people)
    events_apart = of_two_columns(chains.events)
    torch.testing.assert_close(said.people * apart, found["person"] * apart)
    torch.testing.assert_close(said.across, found["across"])
    torch.testing.assert_close(
        said.events * events_apart, found["event"] * events_apart
    )
    for kind, table in said.ahead.items():
        torch.testing.assert_close(table, found[kind])
    torch.testing.assert_close(said.known.mean(0)[:2], found["person"][:2, -3:].sum(1))
    torch.testing.assert_close(said.mean.mean(0), found["across"][:2].sum(0))


@pytest.mark.long
@pytest.mark.parametrize("boxes", [1, 2])
def test_tables_given_rules_are_those_of_everything_that_can_happen_under_them(
    boxes: int,
) -> None:
    allowed = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.5, 1.0]])
    rows, columns = (
        (torch.eye(2), allowed)
        if boxes == 2
        else (torch.tensor([[1.0, 0.0]]), allowed[:1])
    )
    chains = random_chains()
    rules = Rules((2, 3), (Tie((0, 1), (rows, columns)),))
    found = enumerated(chains, rows.T @ columns)
    said = chains.tables(events=rules)
    apart = of_two_columns(chains.events)
    torch.testing.assert_close(said.events * apart, found["event"] * apart)
    torch.testing.assert_close(said.across, found["across"])
    for kind, table in said.ahead.items():
        torch.testing.assert_close(table, found[kind])
    assert float(said.events[1, 2]) == 0


@pytest.mark.parametrize("ordered", [True, False])
def test_drawn_people_and_events_have_the_tables_of_the_mixture(ordered: bool) -> None:
    chains = random_chains(ordered=ordered, kinds=5, seed=1)
    generator = torch.Generator().manual_seed(0)
    codes = chains.draw(
        40_000, lambda k: torch.rand(k, generator=generator, dtype=torch.float64)
    )
    tables = VisitTables.exact(
        codes, VisitLayout(chains.people, chains.events, ordered)
    )
    said = chains.tables()
    apart = of_two_columns(chains.people)
    expected = {
        "person": (said.people * apart + said.known.mean(0).diag()).triu(),
        "across": said.across,
        "event": (
            said.events * of_two_columns(chains.events) + said.mean.mean(0).diag()
        ).triu(),
        "next": said.ahead["next"] * ordered,
    }
    for kind, table in expected.items():
        assert float((laid_out(tables, kind) - table).abs().max()) < 0.006, kind
    numbers = np.array(NUMBERS)[codes.people[:, -1]]
    assert ((codes.numbers >= numbers[:, 0]) & (codes.numbers <= numbers[:, 1])).all()


def test_times_are_missing_where_there_is_nothing_to_measure_and_nowhere_else() -> None:
    chains = random_chains(seed=2)
    codes = chains.draw(500, lambda k: torch.rand(k, dtype=torch.float64))
    assert np.array_equal(codes.people[:, 1] == 2, codes.numbers == 0)
    assert np.array_equal(codes.events[:, 1] == 2, codes.order == 0)
    assert set(codes.numbers) == {0, 1, 2, 3, 4, 5}


def test_without_people_nothing_is_drawn() -> None:
    codes = random_chains().draw(0, lambda k: torch.rand(k, dtype=torch.float64))
    assert codes.people.shape == (0, 3)
    assert codes.events.shape == (0, 2)


def test_first_events_weigh_one_together_whatever_their_number() -> None:
    assert step_weights([(0, 0), (1, 2), (3, 3)], 0).tolist() == [
        pytest.approx([0, 0, 0]),
        pytest.approx([3 / 4, 1 / 4, 0]),
        pytest.approx([1 / 3] * 3),
    ]
    assert step_weights([(0, 0), (1, 2), (3, 3)], 1).tolist() == [
        pytest.approx([0, 0, 0]),
        pytest.approx([1 / 2, 0, 0]),
        pytest.approx([1 / 2, 1 / 2, 0]),
    ]


def test_a_description_rebuilds_the_mixture() -> None:
    chains = random_chains()
    again = MixtureOfChains.from_description(chains.describe())
    again.load_state_dict(chains.state_dict())
    torch.testing.assert_close(again.tables().ahead, chains.tables().ahead)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "mixture"},
        {"kinds": 0},
        {"kinds": 1 << 27},
        {"states": 1},
        {"numbers": [[0, 0], [1, 1]]},
        {"numbers": [[0, 0], [1, 1], [3, 3]]},
        {"numbers": [[0, 0], [1, 1], [2, 10**9]]},
        {"numbers": [[0, 1], [2, 2], [3, 3]]},
        {"numbers": [0, 1, 2]},
        {"numbers": "012"},
        {"people": 3},
        {"people": []},
        {"ordered": 1},
    ],
)
def test_a_description_of_something_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MixtureOfChains.from_description(random_chains().describe() | change)

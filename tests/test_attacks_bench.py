"""The benchmark of attacks: pages where nothing can leak are quiet, and a generator
that copies is caught.
"""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from understudy.data.encoding.codec import Codec


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("attacks")


def test_at_most_one_of_eight_pages_raises_an_alarm_where_nothing_can_leak(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        bench.CASES, "made up", lambda rng: bench.made_up(rng, rows=300)
    )
    # 2 or more: 6 % at a level of 5 %
    assert sum(bench.one_page(("made up", 0.0, seed))[0] for seed in range(8)) <= 1


@pytest.mark.parametrize("copied", [0.05, 0.2])
def test_a_generator_that_copies_rows_is_caught(
    bench: ModuleType, copied: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        bench.CASES, "made up", lambda rng: bench.made_up(rng, rows=400)
    )
    attacks = bench.attacked("made up", copied, 0)
    assert any(attack.leaks for attack in attacks)
    (closer,) = [attack for attack in attacks if attack.name == "closer_to_train"]
    assert closer["copies"].leaks


def test_planted_copies_are_as_many_as_said_and_each_a_training_row(
    bench: ModuleType,
) -> None:
    page = bench.made_up(np.random.default_rng(0), rows=200)
    (group,), synthetic, *_ = page
    made = bench.planted(page, 0.05, np.random.default_rng(1))
    assert len(made) == len(synthetic) == 200
    rows, people = (Codec(group.schema).codes(table) for table in (made, group.inside))
    assert (made[:190].to_numpy() == synthetic[10:].to_numpy()).all()
    assert {tuple(row) for row in rows[190:].tolist()} <= {
        tuple(row) for row in people.tolist()
    }


def test_who_took_part_in_the_demo_is_drawn_anew_among_the_same_people(
    bench: ModuleType,
) -> None:
    (group, *_) = bench.holders().outsiders
    drawn = bench.drawn_anew(group, np.random.default_rng(0))
    assert (len(drawn.inside), len(drawn.outside)) == (
        len(group.inside),
        len(group.outside),
    )
    assert set(drawn.inside.index) | set(drawn.outside.index) == set(
        group.inside.index
    ) | set(group.outside.index)
    assert set(drawn.outside.index) != set(group.outside.index)

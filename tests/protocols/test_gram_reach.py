"""Gram over numbers without bounds: where they are is looked for first, and fine tables
are within what was found.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gram_cases import BUDGET, FRAME, FREE, Plan, Seen, all_parties, asked, release
from test_gram_fine import WIDE, columns, grid, rows
from torch import Tensor

from refusals import raises
from understudy.api.train import train
from understudy.data.column import Boolean, Integer, Real, is_unbounded
from understudy.data.encoding.fine import clipped, reach
from understudy.data.schema import Schema
from understudy.ground.errors import Effect, MessageError, SchemaError
from understudy.privacy.accounts.accounting import DiscreteGaussian, epsilon
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.layout import Layout
from understudy.protocols.joint.messages import Propose
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

ANY = {
    "age": Integer(name="age"),
    "visits": Integer(name="visits", nullable=True),
    "income": Real(name="income", decimals=1, ends=True),
}
OPEN = replace(
    WIDE, columns=tuple(ANY.get(column.name, column) for column in WIDE.columns)
)
PAIRS = 6 * 5 // 2 + 1  # and room for digits of incomes that many share
REACH = 3
# columns as declared; four layers of all others, for which those of the dates are cut;
# ends
MOVED = 2 + 4 * 4 + 1
every_cut = pytest.mark.parametrize("cut", [rows, columns, grid])


def opened(cut: Any) -> tuple[Any, Any]:
    """The same holders, of columns without bounds."""
    tables, schemas = cut()
    return tables, {name: OPEN.select(schema.names) for name, schema in schemas.items()}


def any_runs(seed: int) -> Tensor:
    rng = np.random.default_rng(seed)
    cells = [reach(column).levels for column in OPEN.columns if is_unbounded(column)]
    return torch.tensor([sorted(rng.integers(0, many, 2)) for many in cells])


@every_cut
def test_without_noise_people_are_found_and_fine_tables_and_pairs_are_exact(
    cut: Any,
) -> None:
    tables, schemas = opened(cut)
    parties = all_parties(tables, schemas, budget=FREE)
    done = release(LocalParties(parties), schemas, Plan(private=False, fine=0.2))
    levels = done.levels
    codes = levels.fine.codes(FRAME)
    for place, (column, weights) in enumerate(
        zip(levels.schema.columns, levels.weights, strict=True)
    ):
        assert np.allclose(
            weights, np.bincount(codes[:, place], minlength=len(weights))
        ), column.name
        if column.name in ANY and column.name != "visits":
            assert (
                column.low
                <= FRAME[column.name].min()
                <= FRAME[column.name].max()
                <= column.high
            )
    x = levels.slots.one_hot(levels.codes(FRAME)).double()
    assert torch.allclose(done.gram, x.T @ x, atol=1e-9)


@pytest.mark.long
@every_cut
def test_the_price_is_the_same_wherever_people_are_found(cut: Any) -> None:
    tables, schemas = opened(cut)
    for seed in range(2):
        parties = all_parties(tables, schemas)

        def elsewhere(name: str, message: Any, runs: Tensor = any_runs(seed)) -> Any:  # noqa: B008
            return (
                replace(message, terms={"runs": runs})
                if asked(message, "fine", Propose)
                else message
            )

        with pytest.raises((MessageError, RuntimeError, ValueError, IndexError)):
            # the server itself reads by other runs: what holders pay and send is what
            # counts here
            release(Seen(parties, elsewhere), schemas, Plan(fine=0.2))
        assert {one.ledger.spend().total() for one in parties.values()} <= {
            REACH + MOVED,
            REACH + MOVED + PAIRS,
        }
    parties = all_parties(tables, schemas)
    done = release(LocalParties(parties), schemas, Plan(fine=0.2))
    price = Counter[DiscreteGaussian]()
    for sigma, count in done.releases:
        price[DiscreteGaussian(sigma)] += int(count)
    assert price.total() == REACH + MOVED + PAIRS
    assert 0.98 * BUDGET.epsilon <= epsilon(price, BUDGET.delta) <= BUDGET.epsilon
    assert all(one.ledger.spend() == price for one in parties.values())


@pytest.mark.parametrize("seed", range(6))
def test_a_person_moves_no_more_than_is_paid_for_wherever_a_server_says_people_are(
    seed: int,
) -> None:
    layout = Layout({"a": OPEN}, fine=True)
    (tops,), (paid,) = layout.tops.values(), (trees.moved for trees in layout.trees)
    assert (tops.moved, paid) == (REACH, MOVED)
    (trees,) = layout.on_runs(any_runs(seed)).trees
    assert trees.moved == paid
    for own in (tops, trees):
        cells = own.cells(FRAME)
        every = own.count(cells)
        assert len(every) == own.nodes
        for person in range(0, len(cells), 5):
            moved = every - own.count(np.delete(cells, person, axis=0))
            assert set(moved.tolist()) <= {0, 1}
            assert int(moved.sum()) <= own.moved


def test_what_is_left_of_the_layers_counts_all_of_them_again_and_the_mean_has_less_noise():
    schema = Schema(
        columns=(Integer(name="n"), Integer(name="wide"), Boolean(name="b"))
    )
    layout = Layout({"a": schema}, fine=True)
    zero = int(np.searchsorted(reach(schema.columns[0]).edges, 0))
    (trees,) = layout.on_runs(torch.tensor([[zero, zero + 2], [0, 55]])).trees
    assert trees.times == (4, 1, 1)
    counted = trees.count(
        trees.cells(rows()[0]["host 0"][["age"]].assign(n=3, wide=9, b=True))
    )
    first = trees.split(counted)[0]
    assert first.times == 4
    assert int(first.layers[0].sum()) == 15


WRONG: list[Any] = [
    torch.zeros(3, 2),
    torch.zeros(2, 2, dtype=torch.int64),
    torch.zeros(3, 3, dtype=torch.int64),
    torch.tensor([[0, 1], [3, 2], [0, 1]]),
    torch.tensor([[-1, 1], [0, 2], [0, 1]]),
    torch.tensor([[0, 1], [0, 56], [0, 1]]),
    torch.tensor([[0, 1], [0, 2], [0, 2**40]]),
    [[0, 1], [0, 1], [0, 1]],
    None,
]


def test_runs_that_there_are_not_are_refused_and_nothing_more_is_charged() -> None:
    tables, schemas = opened(rows)
    parties = all_parties(tables, schemas)

    def change(name: str, message: Any) -> Any:
        if not asked(message, "fine", Propose):
            return message
        for runs in WRONG:
            with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
                parties[name].answer(replace(message, terms={"runs": runs}))
        return replace(message, terms={})

    with raises(MessageError, effect=Effect.NOTHING_CHARGED):
        release(Seen(parties, change), schemas, Plan(fine=0.2))
    assert all(one.ledger.spend().total() == REACH for one in parties.values())


@every_cut
def test_other_runs_for_one_holder_are_found_out_before_anything_is_released_on_them(
    cut: Any,
) -> None:
    tables, schemas = opened(cut)
    parties = all_parties(tables, schemas)

    def change(name: str, message: Any) -> Any:
        if name != next(iter(tables)) or not asked(message, "fine", Propose):
            return message
        return replace(message, terms={"runs": any_runs(1)})

    with pytest.raises(MessageError, match="was told other terms"):
        release(Seen(parties, change), schemas, Plan(fine=0.2))
    assert all(one.ledger.spend().total() == REACH for one in parties.values())


def test_numbers_outside_of_what_was_found_count_at_its_ends() -> None:
    column = replace(ANY["age"], low=20, high=60)
    assert clipped(column, FRAME["age"]).between(20, 60).all()
    layout = Layout({"a": OPEN}, fine=True).on_runs(any_runs(2))
    (trees,) = layout.trees
    assert len(trees.cells(FRAME)) == len(FRAME)


def test_without_fine_tables_bounds_are_needed() -> None:
    with pytest.raises(SchemaError, match=r"has no bounds.*fine.*above 0"):
        gram.forecast(gram.Config(fine=0.0), {"a": OPEN}, {"a": BUDGET})


@pytest.mark.parametrize(
    "name", ["dplt", "verti-gan", "central-gan", "vd-gan-dpsgd", "lopub", "one-report"]
)
def test_every_other_protocol_refuses_a_column_without_bounds_in_words(
    name: str,
) -> None:
    held = Federation.rehearsal({"a": FRAME}, {"a": OPEN}, budget=BUDGET, seed=0)
    with raises(
        SchemaError,
        effect=Effect.NOTHING_CHARGED,
        match="has no bounds. Declare low and high",
    ):
        train(name, held)
    assert not held.holders["a"].ledger.spent()

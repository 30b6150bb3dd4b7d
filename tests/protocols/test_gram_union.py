"""Gram over the union of two holders' people: who is counted where, what a person
moves, and what comes out of it, by parties that take part in the whole of it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gram_cases import (
    FRAME,
    FREE,
    OPEN,
    SCHEMA,
    SMALL,
    Parts,
    Plan,
    Released,
    Schemas,
    all_parties,
    by_columns,
    measured,
    release,
)

from refusals import raises
from understudy.data.column import Integer, Real
from understudy.data.encoding.codec import Codec
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import flatten
from understudy.privacy.secure.private_union import Padding
from understudy.protocols.core.union import padding_of
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.protocol import Gram
from understudy.runtime.local import LocalParties
from understudy.runtime.wire import encode

WIDE = Budget(epsilon=100, delta=1e-2)  # few people are made up
UNION = replace(OPEN, alignment="union")
PRODUCTS = ("dealt", "encrypted")


def held(
    first: range = range(20), second: range = range(8, 30)
) -> tuple[Parts, Schemas]:
    """Two holders of columns, each with these people, by their place in the frame."""
    tables, schemas = by_columns(2, FRAME)
    chosen = {}
    for (name, table), some in zip(tables.items(), (first, second), strict=True):
        ids = FRAME["id"].iloc[[*some]]
        chosen[name] = table[table["id"].isin(ids)]
    return chosen, schemas


def open_ended() -> tuple[Parts, Schemas]:
    """The same, whose numbers have no bins: their levels are bought."""
    tables, schemas = held()
    wide = {
        "age": Integer(name="age", low=0, high=99),
        "income": Real(name="income", low=0.0, high=1000.0, decimals=1, ends=True),
        "visits": Integer(name="visits", low=-20, high=100, nullable=True),
    }
    return tables, {
        name: replace(
            schema, columns=tuple(wide.get(one.name, one) for one in schema.columns)
        )
        for name, schema in schemas.items()
    }


def one_hot(tables: Parts, schemas: Schemas) -> list[tuple[pd.Series, np.ndarray]]:
    """Of each holder the ids and the rows."""
    return [
        (tables[name]["id"], Codec(schemas[name]).encode(tables[name]).double().numpy())
        for name in tables
    ]


def truth(tables: Parts, schemas: Schemas) -> tuple[np.ndarray, np.ndarray]:
    """The matrix, within holders of own people and across of those at both; and the
    one-way tables among people at both with their number.
    """
    (ids, x), (others, y) = one_hot(tables, schemas)
    place = {person: row for row, person in enumerate(others)}
    pairs = [(row, place[one]) for row, one in enumerate(ids) if one in place]
    left = x[[row for row, _ in pairs]]
    right = y[[row for _, row in pairs]]
    matrix = np.block([[x.T @ x, left.T @ right], [right.T @ left, y.T @ y]])
    both = np.concatenate([left.sum(0), right.sum(0), [len(pairs)]])
    return matrix, both


CASES = {
    "some": held(),
    "all": held(range(30), range(30)),
    "none": held(range(15), range(15, 30)),
    "one holder has all": held(range(30), range(12)),
    "one each": held(range(1), range(29, 30)),
}


@pytest.mark.parametrize("products", PRODUCTS)
@pytest.mark.parametrize("case", CASES)
def test_without_noise_all_tables_are_those_of_the_people(
    case: str, products: str
) -> None:
    tables, schemas = CASES[case]
    found = measured(tables, schemas, replace(UNION, products=products), chunk=7)
    matrix, both = truth(tables, schemas)
    assert np.array_equal(found.gram.numpy(), matrix)
    assert found.both is not None
    assert np.array_equal(found.both[0].numpy(), both)
    assert found.both[1] == 0


def test_levels_that_are_bought_are_those_of_the_people() -> None:
    tables, schemas = open_ended()
    found = measured(tables, schemas, replace(UNION, fine=0.3))
    assert found.levels is not None
    codes = {}
    start = 0
    for name in tables:
        part = schemas[name]
        own = replace(
            found.levels,
            schema=part,
            groups=found.levels.groups[start : start + len(part.columns)],
            weights=found.levels.weights[start : start + len(part.columns)],
            ends={},
            spikes={},
        )
        codes[name] = own.codes(tables[name])
        start += len(part.columns)
    first, second = (pd.DataFrame(codes[n], index=tables[n]["id"]) for n in tables)
    shared = first.index.intersection(second.index)
    assert found.both is not None
    assert float(found.both[0][-1]) == len(shared)
    sizes = [int(group.max()) + 1 for group in found.levels.groups]
    ways = []
    for number, size in enumerate(sizes):
        table, column = (
            (first, number)
            if number < first.shape[1]
            else (second, number - first.shape[1])
        )
        own = table.loc[shared, column]
        ways.append(np.bincount(own, minlength=size))
    assert np.array_equal(found.both[0][:-1].numpy(), np.concatenate(ways))


def test_a_table_of_three_columns_across_is_of_people_at_both() -> None:
    tables, schemas = held()
    a, c = schemas["holder 0"].names[:2]
    b = schemas["holder 1"].names[0]
    plan = replace(UNION, target=b, target_triples=1)
    names = [*schemas["holder 0"].names, *schemas["holder 1"].names]
    chosen = torch.tensor([sorted((names.index(a), names.index(c)))])
    found = release(
        LocalParties(all_parties(tables, schemas, budget=FREE)),
        schemas,
        plan,
        choose_triples=lambda *_: chosen,
    )
    (ids, x), (others, y) = one_hot(tables, schemas)
    shared = [one for one in ids if one in set(others)]
    first = x[[[*ids].index(one) for one in shared]]
    second = y[[[*others].index(one) for one in shared]]
    one, two = (Codec(schemas[n]).blocks for n in tables)
    cut = (first[:, one[0]], first[:, one[1]], second[:, two[0]])
    expected = np.einsum("na,nb,nc->abc", *cut)
    (triple,) = found.triples
    assert triple["columns"] == [0, 1, names.index(b)]
    assert np.array_equal(triple["table"].numpy(), expected)


def sums_of(tables: Parts, schemas: Schemas) -> dict[str, torch.Tensor]:
    return measured(tables, schemas, UNION).record.sums["pairs"]


@pytest.mark.parametrize("person", [3, 10, 25])
def test_one_person_moves_each_cell_by_one_and_no_more_cells_than_are_paid_for(
    person: int,
) -> None:
    everyone, schemas = held()
    without = {
        name: table[table["id"] != FRAME["id"].iloc[person]]
        for name, table in everyone.items()
    }
    study = Gram(UNION, schemas)
    blocks = study.stage("pairs", {}, 1.0, {}).blocks
    one, other = sums_of(everyone, schemas), sums_of(without, schemas)
    assert one.keys() == other.keys() == blocks.keys()
    at_both = person in range(8, 20)
    for key, block in blocks.items():
        moved = (one[key] - other[key]).double()
        assert float(moved.abs().max()) <= 1
        if not at_both and block.groups == (0, 1):
            assert not moved.any()
        if at_both:
            assert float(moved.norm()) == pytest.approx(block.sensitivity)
    paid = sum(cells for _, cells in study.spreads["pairs"].moved)
    columns = len(SCHEMA.columns)
    assert paid == columns * (columns + 1) // 2 + columns + 1


@pytest.mark.parametrize("products", PRODUCTS)
def test_a_run_with_noise_is_fitted_and_samples_people_of_every_kind(
    products: str,
) -> None:
    tables, schemas = held()
    joint_parties = all_parties(tables, schemas, budget=WIDE)
    config = replace(UNION, private=True, products=products, **SMALL)
    outcome = gram.train(config, LocalParties(joint_parties), schemas)
    made = outcome.trained
    generator = Generator.from_parts(made)
    rows = generator.sample(400, seed=1)
    first, second = schemas.values()
    there = rows["at_holder 0"], rows["at_holder 1"]
    for present, schema in zip(there, (first, second), strict=True):
        nullable = [c.name for c in schema.columns if c.nullable]
        own = rows[[name for name in schema.names if name not in nullable]]
        assert own[present].notna().all(axis=None)
        assert rows.loc[~present, list(schema.names)].isna().all(axis=None)
    assert (there[0] | there[1]).all()
    both = generator.sample(50, where="`at_holder 0` == true and `at_holder 1` == true")
    assert both["at_holder 0"].all()
    assert both["at_holder 1"].all()
    said = made.card["union"]
    assert both.attrs["probability"] == pytest.approx(
        said["both"] / sum(said.values()), abs=0.06
    )
    assert said == pytest.approx(
        {"both": 12, "holder 0 alone": 8, "holder 1 alone": 10}, abs=6
    )
    words = " ".join(outcome.privacy.outside)
    assert "intersection" not in words
    assert "departs from the protocol" in words
    # places are also those of people who were made up
    assert [party.people for party in outcome.privacy.parties] == [None, None]
    terms = [party.price_terms() for party in joint_parties.values()]
    assert [term and term.people for term in terms] == [None, None]


def test_what_is_drawn_is_saved_and_read_again(tmp_path: Any) -> None:
    tables, schemas = open_ended()
    target = schemas["holder 1"].names[0]
    parties = LocalParties(all_parties(tables, schemas, budget=WIDE))
    config = replace(UNION, private=True, fine=0.3, target=target, **SMALL)
    generator = Generator.from_parts(gram.train(config, parties, schemas).trained)
    again = type(generator).load(generator.save(tmp_path / "made"))
    one, other = generator.sample(60, seed=4), again.sample(60, seed=4)
    pd.testing.assert_frame_equal(one, other)
    lacking = ~one["at_holder 1"]
    assert one.loc[lacking, target].isna().all()
    assert one.loc[~lacking, target].notna().all()


def test_the_price_of_presence_and_of_lengths_is_in_every_ledger() -> None:
    tables, schemas = held()
    parties = all_parties(tables, schemas, budget=WIDE)
    found: Released = release(LocalParties(parties), schemas, Plan(alignment="union"))
    study = Gram(Plan(alignment="union"), schemas)
    for one in parties.values():
        spent = one.ledger.spend(run="r")
        paid = study.pricing.spend(0, found.record.noise[0])
        assert all(spent[event] == count for event, count in paid.items())
        lengths = padding_of([WIDE, WIDE]).event
        assert all(spent[event] == count for event, count in flatten(lengths).items())
        assert epsilon(spent, WIDE.delta) <= WIDE.epsilon


def test_the_budget_is_divided_by_how_many_both_have_as_the_lengths_tell() -> None:
    tables, schemas = held()
    parties = all_parties(tables, schemas, budget=WIDE)
    config = Plan(alignment="union", target=schemas["holder 1"].names[0])
    found: Released = release(LocalParties(parties), schemas, config)
    study = Gram(config, schemas)
    (both,) = {one.people_at_both for one in parties.values()}
    assert found.record.noise == study.needed(WIDE, both)
    assert found.record.noise != study.needed(WIDE, 10**6)


def sizes_of(
    second: range, made_up: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str, int, int]]:
    """Of each message of a run its party, kind, and bytes there and back."""
    draws = iter([(3, 3), made_up])
    monkeypatch.setattr(Padding, "draw", lambda *_: next(draws))
    tables, schemas = held(second=second)
    parties = LocalParties(all_parties(tables, schemas, budget=WIDE))
    ask = parties.ask
    seen = []

    def watched(message: Any, **more: Any) -> Any:
        asked = message if isinstance(message, dict) else dict.fromkeys(tables, message)
        replies = ask(message, **more)
        seen.extend(
            (name, type(reply).__name__, len(encode(asked[name])), len(encode(reply)))
            for name, reply in replies.items()
        )
        return replies

    parties.ask = watched  # type: ignore[method-assign]
    release(parties, schemas, replace(UNION, private=True))
    return seen


def test_sizes_of_all_messages_follow_from_padded_lengths_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = sizes_of(range(8, 30), (3, 3), monkeypatch)  # twelve are shared
    more = sizes_of(range(6, 28), (5, 1), monkeypatch)  # fourteen, and two less padding
    assert len(usual) > 10
    assert more == usual
    assert sizes_of(range(8, 30), (4, 3), monkeypatch) != usual, "sizes are seen"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rules": ({"always": "age >= 0"},)}, "takes no rules"),
    ],
)
def test_what_no_union_can_have_is_refused_before_anything_is_charged(
    change: dict[str, Any], why: str
) -> None:
    _, schemas = held()
    with raises(ConfigError, effect=Effect.NOTHING_CHARGED, match=why):
        Gram(replace(UNION, **change), schemas)


def test_a_column_called_as_presence_is_refused() -> None:
    _, schemas = held()
    first = schemas["holder 0"]
    column = replace(first.columns[0], name="at_holder 1")
    odd = schemas | {"holder 0": replace(first, columns=(column, *first.columns[1:]))}
    with pytest.raises(ConfigError, match="rename"):
        Gram(UNION, odd)


def first_lines(**settings: Any) -> str:
    _, schemas = held()
    budgets = dict.fromkeys(schemas, Budget(1.0, 1e-5))
    said = str(gram.forecast(Plan(**settings), schemas, budgets, 20_000))
    return said.split("\n\nPrice")[0]


def test_a_plan_says_in_its_first_lines_what_alignment_and_products_disclose() -> None:
    usual = first_lines()
    assert "each party learns which of its own people all have" in usual
    assert "outside ε" in usual
    assert 'alignment = "union" discloses neither, for 2 % of ε' in usual
    assert "rows to the server together with a party" in usual
    united = first_lines(alignment="union", products="encrypted")
    assert "nobody learns who is shared" in united
    assert "made up" in united
    assert "outside ε" not in united
    assert "not to the server together with a party" in united
    dealt = first_lines(alignment="union")
    assert "who is shared, to the server together with a party" in dealt

"""Gram with levels that are bought: fine tables first, levels by them, pairs on these
levels.
"""

import math
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gram_cases import (
    BUDGET,
    FRAME,
    FREE,
    SCHEMA,
    SMALL,
    Parts,
    Plan,
    Released,
    Schemas,
    Seen,
    all_parties,
    asked,
    due,
    release,
    told,
    upper,
)
from torch import Tensor

from refusals import raises
from understudy.data.column import Boolean, Categorical, Date, Integer, Real
from understudy.data.encoding.codec import Levels
from understudy.data.samples import toy
from understudy.data.schema import Grid, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ArtefactError,
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyAway,
)
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.events import DiscreteGaussian
from understudy.privacy.noise import FastRng
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.layout import Layout
from understudy.protocols.joint.messages import Propose
from understudy.runtime.local import LocalParties

OPENED = {
    "age": Integer(name="age", low=0, high=99),
    "visits": Integer(name="visits", low=-20, high=100, nullable=True),
    "income": Real(name="income", low=0.0, high=1000.0, decimals=1, ends=True),
    "joined": Date(
        name="joined", low=date(2020, 1, 1), high=date(2023, 12, 31), nullable=True
    ),
}
SCHEMA = SCHEMA.drop(["grade", "treated"])
WIDE = replace(
    SCHEMA, columns=tuple(OPENED.get(column.name, column) for column in SCHEMA.columns)
)
# columns as declared; 100 and 121 numbers by sixteens; 1,461 days; 10,001 incomes, and
# ends
MOVED = 2 + 2 + 2 + 3 + 5
PAIRS = 6 * 5 // 2


def rows(parties: int = 2, frame: pd.DataFrame = FRAME) -> tuple[Parts, Schemas]:
    names = [f"host {n}" for n in range(parties)]
    return {
        name: frame.iloc[n::parties] for n, name in enumerate(names)
    }, dict.fromkeys(names, WIDE)


def columns(parties: int = 2) -> tuple[Parts, Schemas]:
    held = {f"holder {n}": WIDE.names[n::parties] for n in range(parties)}
    tables = {
        name: FRAME.sample(frac=1, random_state=3)[["id", *names]]
        for name, names in held.items()
    }
    return tables, {name: WIDE.select(names) for name, names in held.items()}


def grid() -> tuple[Parts, Schemas]:
    held = {"a0": WIDE.names[:3], "a1": WIDE.names[:3], "b": WIDE.names[3:]}
    people = {"a0": FRAME.iloc[::2], "a1": FRAME.iloc[1::2], "b": FRAME}
    return (
        {name: people[name][["id", *names]] for name, names in held.items()},
        {name: WIDE.select(names) for name, names in held.items()},
    )


def pick(found: Released, chosen: Tensor) -> Tensor:
    return torch.tensor([[0, 1], [0, 5], [1, 4]])


every_cut = pytest.mark.parametrize("cut", [rows, columns, grid])


def joint(schemas: Schemas) -> Schema:
    return Grid.from_schemas(schemas).join(schemas)


def found(cut: Any, plan: Plan, **more: Any) -> tuple[Released, Levels]:
    tables, schemas = cut()
    budget = BUDGET if plan.private else FREE
    done = release(
        LocalParties(all_parties(tables, schemas, budget=budget)), schemas, plan, **more
    )
    return done, done.levels


# What is released


@every_cut
def test_without_noise_fine_tables_and_pairs_on_their_levels_are_exact(
    cut: Any,
) -> None:
    done, levels = found(
        cut, Plan(private=False, fine=0.2, target="smoker", first_pass_share=0.5)
    )
    codes = levels.fine.codes(FRAME)
    for place, weights in enumerate(levels.weights):
        counts = np.bincount(codes[:, place], minlength=len(weights))
        assert np.allclose(weights, counts)
    ends = (FRAME["income"] * 10).round().astype(int) % 10
    assert np.allclose(
        levels.ends[levels.schema.names.index("income")],
        np.bincount(ends, minlength=10),
    )
    x = levels.slots.one_hot(levels.codes(FRAME)).double()
    assert torch.allclose(done.gram, x.T @ x, atol=1e-9)  # a mean of two is rounded
    assert not done.noise.any()
    assert max(levels.sizes) > 8, (
        "without noise there are as many levels as people allow"
    )


@pytest.mark.long
@every_cut
def test_all_releases_together_cost_the_budget_once_and_each_its_share(
    cut: Any,
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    plan = Plan(fine=0.2, target="smoker", first_pass_share=0.5)
    done = release(LocalParties(parties), schemas, plan)
    price = Counter[DiscreteGaussian]()
    for sigma, count in done.releases:
        price[DiscreteGaussian(sigma)] += int(count)
    assert price.total() == MOVED + PAIRS + 5
    assert 0.98 * BUDGET.epsilon <= epsilon(price, BUDGET.delta) <= BUDGET.epsilon
    assert all(one.ledger.spend() == price for one in parties.values())
    each = []
    counts = [int(count) for _, count in done.releases]
    for total in (MOVED, PAIRS, 5):
        part = 0.0
        while total:
            total -= counts.pop(0)
            sigma = done.releases[len(done.releases) - len(counts) - 1]
            part += sigma[1] / sigma[0] ** 2
        each.append(part)
    assert [part / sum(each) for part in each] == pytest.approx(
        [0.2, 0.4, 0.4], rel=5e-3
    )


def test_a_person_moves_one_node_in_each_layer_and_no_more_than_is_paid_for() -> None:
    (trees,) = Layout({"a": WIDE}).trees
    assert trees.moved == MOVED
    cells = trees.cells(FRAME)
    every = trees.count(cells)
    for person in range(0, len(cells), 7):
        moved = every - trees.count(np.delete(cells, person, axis=0))
        assert set(moved.tolist()) <= {0, 1}
        for nodes in trees.split(moved):
            here = [int(layer.sum()) for layer in nodes.layers]
            absent = (
                nodes.missing is not None and not any(here) and int(nodes.missing) == 1
            )
            assert absent or here == [1] * len(here)
            assert int(nodes.ends.sum()) == int(len(nodes.ends) > 0)
        assert int(moved.sum()) <= MOVED


@pytest.mark.long
@every_cut
def test_the_noise_that_is_stated_is_the_noise_of_the_pairs(cut: Any) -> None:
    done, levels = found(cut, Plan(fine=0.2))
    x = levels.slots.one_hot(levels.codes(FRAME)).double()
    off = (
        upper(done.gram) & done.measured & ~torch.eye(len(done.gram), dtype=torch.bool)
    )
    errors = ((done.gram - x.T @ x) / done.noise.clamp(min=1e-9))[off]
    assert float(errors.var()) == pytest.approx(1, abs=4 * math.sqrt(2 / len(errors)))


def test_choosing_among_declared_bins_costs_little_where_people_are_known_to_be_enough_for_all_of_them():
    schema = Schema(
        columns=tuple(Integer(name=name, low=0, high=159, bins=16) for name in "abcd")
    )
    pricing = gram.Gram(gram.Config(), {"host 0": schema}).pricing
    for people, share in ((1_000, 0.3), (None, 0.3), (1_000_000, 0.02)):
        assert pricing.shares(BUDGET, people) == pytest.approx([share, 1 - share])
    undeclared = Schema(columns=(*schema.columns, Real(name="x", low=0.0, high=1.0)))
    assert gram.Gram(gram.Config(), {"host 0": undeclared}).pricing.shares(
        BUDGET, 1_000_000
    )[0] == pytest.approx(0.3)


@every_cut
def test_pairs_of_many_declared_bins_are_on_fewer_levels_and_the_bins_are_the_fine_cells(
    cut: Any,
) -> None:
    tables, schemas = cut()
    many = {"age": 50, "visits": 40, "income": 100, "joined": 60}

    def cut_finely(schema: Schema) -> Schema:
        own = (
            replace(
                c, bins=many[c.name], **{"ends": False} if isinstance(c, Real) else {}
            )
            for c in schema.columns
            if c.name in many
        )
        return replace(
            schema, columns=tuple({c.name: c for c in (*schema.columns, *own)}.values())
        )

    schemas = {name: cut_finely(schema) for name, schema in schemas.items()}
    done = release(LocalParties(all_parties(tables, schemas)), schemas, Plan(fine=0.2))
    levels = done.levels
    sizes = [column.size for column in joint(schemas).columns]
    assert [len(weights) for weights in levels.weights] == sizes
    for column, size, own in zip(
        levels.schema.columns, sizes, levels.sizes, strict=True
    ):
        assert own < size / 2 if column.name in many else own == size
    x = levels.slots.one_hot(levels.codes(FRAME)).double()
    off = (
        upper(done.gram) & done.measured & ~torch.eye(len(done.gram), dtype=torch.bool)
    )
    errors = ((done.gram - x.T @ x) / done.noise.clamp(min=1e-9))[off]
    assert float(errors.var()) == pytest.approx(1, abs=5 * math.sqrt(2 / len(errors)))


def test_where_all_levels_are_declared_nothing_is_bought() -> None:
    schemas = dict.fromkeys(rows()[0], SCHEMA)
    parties = all_parties(rows()[0], schemas)
    done = release(LocalParties(parties), schemas, Plan(fine=0.2))
    assert not done.levels
    assert done.n_released == 1
    assert sum(count for _, count in done.releases) == PAIRS + 6


def test_a_table_of_one_column_is_released_finely_and_on_its_levels() -> None:
    one = WIDE.select(["age"])
    tables = {"host 0": FRAME[["id", "age"]]}
    parties = all_parties(tables, {"host 0": one}, budget=FREE)
    done = release(
        LocalParties(parties), {"host 0": one}, Plan(private=False, fine=0.2)
    )
    assert int(done.gram.diagonal().sum()) == len(FRAME)


def test_a_list_of_thousands_of_codes_becomes_few_levels_of_which_all_codes_can_be_drawn():
    names = tuple(f"C{n:04d}" for n in range(3_000))
    schema = Schema(
        columns=(Categorical(name="code", categories=names), Boolean(name="x"))
    )
    rng = np.random.default_rng(0)
    common = rng.random(2_000) < 0.7
    codes = np.where(common, rng.integers(0, 3, 2_000), rng.integers(3, 3_000, 2_000))
    frame = pd.DataFrame(
        {"code": np.array(names, dtype=object)[codes], "x": codes % 2 == 0}
    )
    parties = all_parties({"a": frame}, {"a": schema})
    done = release(LocalParties(parties), {"a": schema}, Plan(fine=0.5))
    levels = done.levels
    assert 4 <= levels.sizes[0] < 30
    assert len({int(level) for level in levels.groups[0][:3]}) == 3, (
        "a common code is a level of its own"
    )
    rest = np.full((2_000, 2), levels.groups[0][2_999])
    rest[:, 1] = 0
    drawn = levels.decode(rest, FastRng(0))["code"]
    assert drawn.nunique() > 1_000
    assert not drawn.isin(names[:3]).any()


# A server that sends whatever it likes


def levels_of(change: Any) -> Any:
    """Change the levels of a column, for all holders or for the first alone."""

    def meddle(name: str, message: Any) -> Any:
        return change(name, message) if asked(message, "pairs", Propose) else message

    return meddle


def on(message: Any, **groups: Tensor) -> Any:
    """The proposal, with these levels of some columns."""
    return replace(message, terms={"groups": message.terms["groups"] | groups})


AGE = str(WIDE.names.index("age"))
WRONG: list[dict[str, Tensor]] = [
    {AGE: torch.zeros(99, dtype=torch.int32)},
    {AGE: torch.ones(100, dtype=torch.int32)},
    {AGE: torch.full((100,), -1, dtype=torch.int32)},
    {AGE: torch.full((100,), 2**31 - 1, dtype=torch.int32)},
    {AGE: torch.arange(0, 200, 2, dtype=torch.int32)},
    {AGE: torch.zeros(100, dtype=torch.float32)},
    {AGE: torch.zeros(100, 1, dtype=torch.int32)},
    {"6": torch.zeros(1)},
    {"1": torch.tensor([0, 0], dtype=torch.int32)},
]


def test_levels_that_do_not_fit_the_columns_are_refused_and_nothing_more_is_charged():
    tables, schemas = rows()
    parties = all_parties(tables, schemas)

    def change(name: str, message: Any) -> Any:
        for groups in WRONG:
            with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
                parties[name].answer(on(message, **groups))
        return replace(message, terms={"groups": {}})

    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        release(Seen(parties, levels_of(change)), schemas, Plan(fine=0.2))
    assert all(one.ledger.spend().total() == MOVED for one in parties.values())


@every_cut
def test_other_levels_for_one_holder_are_found_out_before_anything_is_released_on_them(
    cut: Any,
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    place = str(joint(schemas).names.index("age"))

    def change(name: str, message: Any) -> Any:
        if name != next(iter(tables)):
            return message
        last = (torch.arange(100) > 98).int()  # alone, as by no levels of thirty people
        return on(message, **{place: last})

    with pytest.raises(MessageError, match="was told other terms"):
        release(Seen(parties, levels_of(change)), schemas, Plan(fine=0.2))
    assert all(one.ledger.spend().total() == MOVED for one in parties.values())


def test_too_many_levels_are_refused() -> None:
    schema = Schema(
        person="id", columns=(Integer(name="age", low=0, high=4999), *WIDE.columns[:2])
    )
    tables = {"host 0": FRAME}
    schemas = {"host 0": schema}
    parties = all_parties(tables, schemas)

    def each(name: str, message: Any) -> Any:
        return on(message, **{"0": torch.arange(5000, dtype=torch.int32)})

    with pytest.raises(MessageError, match="5,000 levels are too many"):
        release(Seen(parties, levels_of(each)), schemas, Plan(fine=0.2))


def test_each_ask_of_the_fine_stage_is_answered_once_and_in_turn() -> None:
    tables, schemas = rows()
    parties = all_parties(tables, schemas)
    levels = Propose(stage="pairs", terms={"groups": {}}, inbox={})
    refused: list[str] = []

    def insist(name: str, message: Any) -> Any:
        odd: list[Any] = []
        if asked(message, "fine"):
            odd = [levels, due("pairs"), due("again")]
        elif asked(message, "pairs", Propose) or asked(message, "pairs"):
            odd = [
                due("fine"),
                due("again"),
                *([levels] if asked(message, "pairs") else []),
            ]
        for ask in odd:
            with pytest.raises(MessageError, match="not expected"):
                parties[name].answer(ask)
            refused.append(ask.kind())
        return message

    done = release(Seen(parties, insist), schemas, Plan(fine=0.2))
    assert len(refused) == 2 * 8
    assert done.n_released == 2
    assert all(one.ledger.spend().total() == MOVED + PAIRS for one in parties.values())


@pytest.mark.parametrize("share", [1e-12, 0.99, 1.0, -0.2, math.nan, math.inf])
def test_a_share_that_leaves_nothing_for_one_release_is_refused(share: float) -> None:
    tables, schemas = rows()
    parties = all_parties(tables, schemas)

    def odd(name: str, message: Any) -> Any:
        return told(message, fine=share)

    with pytest.raises(ConfigError, match="fine"):
        release(Seen(parties, odd), schemas, Plan(fine=0.2))
    assert not any(one.ledger.entries()[1:] for one in parties.values())


def test_a_holder_that_agreed_to_another_share_refuses() -> None:
    tables, schemas = rows()
    parties = all_parties(tables, schemas, agreed={"fine": 0.0})
    with pytest.raises(MessageError, match="was agreed to"):
        release(LocalParties(parties), schemas, Plan(fine=0.2))
    assert not any(one.ledger.entries()[1:] for one in parties.values())


# What was paid for is kept


@pytest.mark.long
@pytest.mark.parametrize("cut", [rows, columns])
def test_the_fine_release_is_on_disk_before_levels_are_told_and_a_run_goes_on_from_there(
    cut: Any, tmp_path: Path
) -> None:
    tables, schemas = cut()
    config = gram.Config(products="dealt", remeasured_pairs=3, **SMALL)
    parties = all_parties(tables, schemas)
    ledgers = {name: one.ledger for name, one in parties.items()}

    def killed(name: str, message: Any) -> Any:
        if asked(message, "pairs", Propose):
            assert [file.name for file in tmp_path.glob("*.safetensors")] == [
                "released.safetensors"
            ]
            raise SystemExit
        return message

    with pytest.raises(SystemExit):
        gram.train(config, Seen(parties, killed), schemas, checkpoint=tmp_path)
    assert all(ledger.spend().total() == MOVED for ledger in ledgers.values())
    outcome = gram.train(
        config, LocalParties(parties), schemas, checkpoint=tmp_path, resume=True
    )
    assert outcome.trained.card["ended"] == "after all releases"
    for name, ledger in ledgers.items():
        assert ledger.spend().total() == MOVED + PAIRS + 3
        assert ledger.spent() == pytest.approx(outcome.privacy.epsilon(name))
        assert ledger.spent() <= BUDGET.epsilon


@pytest.mark.long
@pytest.mark.parametrize(
    ("cut", "step", "ended", "paid"),
    [
        (rows, "propose pairs", "1 of 2", MOVED),
        (columns, "release pairs", "1 of 2", MOVED),
        (grid, "release pairs", "1 of 2", MOVED),
        (rows, "release again", "2 of 3", MOVED + PAIRS),
        (columns, "propose again", "2 of 3", MOVED + PAIRS),
    ],
)
def test_a_run_that_loses_a_holder_is_fitted_to_what_was_released(
    cut: Any, step: Any, ended: str, paid: int
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    gone = list(tables)[-1]

    def leave(name: str, message: Any) -> Any:
        if (
            name == gone
            and f"{message.kind()[6:]} {getattr(message, 'stage', '')}" == step
        ):
            raise PartyAway(f"{name} is not connected.")
        return message

    again = 2 if "3" in ended else 0
    config = gram.Config(products="dealt", remeasured_pairs=again, **SMALL)
    outcome = gram.train(config, Seen(parties, leave), schemas)
    assert outcome.trained.card["ended"] == f"after {ended} releases: {gone} went away"
    assert len(Generator.from_parts(outcome.trained).sample(20, seed=0)) == 20
    assert parties[gone].ledger.spend().total() == paid


def test_a_holder_that_cannot_pay_for_the_pairs_leaves_the_fine_tables() -> None:
    tables, schemas = rows()
    parties = all_parties(tables, schemas)

    def poorer(name: str, message: Any) -> Any:
        if asked(message, "pairs"):
            raise BudgetExceeded(f"{name}: this step costs too much.")
        return message

    done = release(Seen(parties, poorer), schemas, Plan(fine=0.2))
    assert "costs too much" in done.ended
    assert torch.equal(done.measured, torch.eye(len(done.gram), dtype=torch.bool))
    assert done.lost


def test_a_party_goes_on_from_its_own_state_between_the_releases() -> None:
    tables, schemas = columns()
    parties = all_parties(tables, schemas)
    plan = Plan(fine=0.2, remeasured_pairs=3, first_pass_share=0.5)
    plain = release(
        LocalParties(all_parties(tables, schemas)), schemas, plan, choose=pick
    )

    def reborn(name: str, message: Any) -> Any:
        if getattr(message, "stage", ""):
            state = parties[name].state_dict()
            other = all_parties(tables, schemas, ledger=parties[name].ledger)[name]
            other.rng = parties[name].rng
            other.load_state_dict(state)
            parties[name] = other
            seen.parties[name] = other  # type: ignore[index]
        return message

    seen = Seen(parties, reborn)
    done = release(seen, schemas, plan, choose=pick)
    assert torch.equal(done.gram, plain.gram)


# The generator


def test_a_generator_keeps_its_levels_on_disk_and_a_strangers_are_checked(
    tmp_path: Path,
) -> None:
    # enough for levels on either side of 40
    tables, schemas = rows(frame=toy(rows=400, seed=3)[0])
    outcome = gram.train(
        gram.Config(**SMALL), LocalParties(all_parties(tables, schemas)), schemas
    )
    made = Generator.from_parts(outcome.trained)
    assert made.card["levels"]["age"] == made.levels.sizes[WIDE.names.index("age")]  # type: ignore[union-attr]
    made.save(tmp_path)
    again = Generator.load(tmp_path)
    for draw in ("sample", "argmax"):
        assert again.sample(40, seed=1, draw=draw).equals(
            made.sample(40, seed=1, draw=draw)
        )
    for where, least, most in (("age < 40", 0, 39), ("age >= 45", 45, 99)):
        asked = again.sample(30, seed=1, where=where)["age"]
        assert asked.between(least, most).all()
    assert again.table("smoker", "age")["share"].sum() == pytest.approx(1)
    WIDE.select(WIDE.names[:3]).save(tmp_path / "schema.toml")
    with pytest.raises(ArtefactError, match="levels are not those of the schema"):
        Generator.load(tmp_path)
    made.save(tmp_path)
    (tmp_path / "levels.safetensors").unlink()
    with pytest.raises(ArtefactError, match="damaged"):
        Generator.load(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("cut", [rows, columns])
def test_people_too_few_for_the_noise_end_in_a_generator_and_not_in_an_error(
    cut: Any,
) -> None:
    tables, schemas = cut()
    tables = {name: table.head(20) for name, table in tables.items()}
    poor = replace(BUDGET, epsilon=0.02)
    outcome = gram.train(
        gram.Config(**SMALL),
        LocalParties(all_parties(tables, schemas, budget=poor)),
        schemas,
    )
    assert len(Generator.from_parts(outcome.trained).sample(5, seed=0)) == 5
    assert "mostly noise" in outcome.trained.card["warning"]


def test_what_a_holder_could_not_pay_for_cannot_be_had_as_a_refinement() -> None:
    tables, schemas = rows()
    parties = all_parties(tables, schemas)
    pairs = torch.tensor([[0, 1], [0, 5], [1, 4]])

    def poorer(name: str, message: Any) -> Any:
        if asked(message, "pairs"):
            one = parties[name]
            one.ledger.set_budget(replace(BUDGET, epsilon=one.ledger.spent() + 1e-9))
            with pytest.raises(BudgetExceeded):
                one.answer(message)
            one.ledger.set_budget(BUDGET)
            for ask in (
                Propose(stage="again", terms={"pairs": pairs}, inbox={}),
                due("again"),
            ):
                with pytest.raises(MessageError, match="not expected"):
                    one.answer(ask)
            raise BudgetExceeded(f"{name}: no.")
        return message

    plan = Plan(fine=0.2, remeasured_pairs=3, first_pass_share=0.5)
    release(Seen(parties, poorer), schemas, plan, choose=pick)
    assert all(one.ledger.spend().total() == MOVED for one in parties.values())


def test_ends_that_were_bought_are_drawn_and_asked_for_kept_in_a_file_and_foretold(
    tmp_path: Path,
) -> None:
    """Prices between wide bounds, half of them with .99: a fine cell at 60 holds a
    dozen cents.
    """
    rng = np.random.default_rng(0)
    whole = np.floor(rng.lognormal(4, 0.5, 600))
    cents = np.where(rng.random(600) < 0.5, 99, 50)
    frame = pd.DataFrame(
        {"price": whole + cents / 100, "member": rng.random(600) < 0.4}
    )
    price = Real(name="price", low=0.0, high=100_000.0, decimals=2, ends=True)
    schema = Schema(columns=(price, Boolean(name="member")))
    parties = all_parties(
        {"shop": frame}, {"shop": schema}, budget=replace(BUDGET, epsilon=30.0)
    )
    made = Generator.from_parts(
        gram.train(
            gram.Config(**SMALL), LocalParties(parties), {"shop": schema}
        ).trained
    )
    made.save(tmp_path / "made")
    again = Generator.load(tmp_path / "made")
    rows = again.sample(2_000, seed=1)
    assert rows.equals(made.sample(2_000, seed=1))
    ends = (rows["price"] * 100).round().astype(int) % 100
    assert [(ends == end).mean() for end in (99, 50)] == pytest.approx(
        [0.5, 0.5], abs=0.08
    )
    assert rows["price"].median() == pytest.approx(frame["price"].median(), rel=0.05)
    assert (
        again.sample(50, where="price >= 60.25 and price < 61", seed=0)["price"]
        .between(60.25, 60.99)
        .all()
    )
    foretold = gram.forecast(gram.Config(), {"shop": schema}, {"shop": BUDGET}, 600)
    assert foretold.stages[0].what == "fine tables of 2 columns, and the ends of price"
    plain = replace(schema, columns=(replace(price, ends=False), schema.columns[1]))
    moved = [
        gram.forecast(gram.Config(), {"s": one}, {"s": BUDGET}).stages[0].moved
        for one in (plain, schema)
    ]
    assert moved[1] == moved[0] + 1

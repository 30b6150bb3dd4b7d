"""Gram with pairs that are measured twice, for a target or by choice, and with
three-way tables.
"""

import math
from dataclasses import replace
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
    PAIRS,
    SCHEMA,
    SMALL,
    TRIPLE,
    Plan,
    Released,
    Seen,
    all_parties,
    all_sizes,
    asked,
    by_columns,
    by_grid,
    by_rows,
    cells,
    due,
    measured,
    party,
    pick,
    release,
    told,
    triple_counts,
    true_gram,
    upper,
)

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Grid, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, MessageError, PartyError
from understudy.privacy.accounts.accounting import DiscreteGaussian, epsilon
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.settings import again_share
from understudy.protocols.joint.messages import Agree, Propose
from understudy.runtime.local import LocalParties

# Pairs measured once more, and three-way tables


@pytest.mark.parametrize("cut", [lambda: by_columns(2), lambda: by_rows(3), by_grid])
def test_refined_pairs_and_triples_are_exact_without_noise(cut: Any) -> None:
    tables, schemas = cut()
    columns = [*Grid.from_schemas(schemas).join(schemas).names]
    one = Grid.from_schemas(schemas).groups[0][0]
    triple = tuple(schemas[one].names[:3])
    found = measured(
        tables,
        schemas,
        Plan(
            private=False, remeasured_pairs=3, first_pass_share=0.5, triples=(triple,)
        ),
        choose=pick,
    )
    assert torch.equal(found.gram.long(), true_gram(SCHEMA.select(columns)))
    table = found.triples[0]["table"]
    assert found.triples[0]["columns"] == [columns.index(name) for name in triple]
    assert int(table.sum()) == len(FRAME)
    if triple == TRIPLE:
        assert torch.equal(table, triple_counts())


@pytest.mark.parametrize("cut", [lambda: by_columns(2), by_grid])
def test_both_releases_together_cost_the_budget_once(cut: Any) -> None:
    tables, schemas = cut()
    plan = Plan(
        remeasured_pairs=3,
        first_pass_share=0.6,
        triples=(tuple(next(iter(schemas.values())).names[:3]),),
    )
    parties = all_parties(tables, schemas)
    found = release(LocalParties(parties), schemas, plan, choose=pick)
    *first, (second, refined) = found.releases
    assert (sum(count for _, count in first), refined) == (cells(), 4)
    price = {DiscreteGaussian(sigma): int(count) for sigma, count in found.releases}
    assert 0.98 * BUDGET.epsilon <= epsilon(price, BUDGET.delta) <= BUDGET.epsilon
    assert sum(n / sigma**2 for sigma, n in first) / (4 / second**2) == pytest.approx(
        1.5, rel=5e-3
    )
    assert all(one.ledger.spend() == price for one in parties.values())


def test_a_refined_pair_is_the_weighted_mean_of_two_measurements() -> None:
    tables, schemas = by_columns(2)
    plan = Plan(remeasured_pairs=3, first_pass_share=0.3)
    true = true_gram(Grid.from_schemas(schemas).join(schemas))
    errors = []
    for seed in range(4):
        found = measured(tables, schemas, plan, choose=pick, seed=seed)
        errors.append(
            ((found.gram - true) / found.noise.clamp(min=1e-9))[
                found.measured & upper(found.gram)
            ]
        )
    values = torch.cat(errors)
    assert float(values.var()) == pytest.approx(1, abs=6 * math.sqrt(2 / len(values)))
    first = max(found.releases)[0]
    second = found.releases[-1][0]
    levels = torch.tensor(sorted(set(found.noise[found.measured].tolist())))
    assert float(levels.min()) == pytest.approx(
        (1 / first**2 + 1 / second**2) ** -0.5, rel=1e-3
    )
    assert len(levels) == 4  # one party or two, once or twice


def test_the_second_release_shows_the_chosen_pairs_alone() -> None:
    tables, schemas = by_rows(2)
    seen = Seen(all_parties(tables, schemas, budget=FREE))
    release(
        seen,
        schemas,
        Plan(private=False, remeasured_pairs=3, first_pass_share=0.5),
        choose=pick,
    )
    a, b = (reply for _, ask, reply in seen.log if asked(ask, "again"))
    total = a.parts.value["0×0"] + b.parts.value["0×0"]
    column = torch.repeat_interleave(torch.tensor(all_sizes()))
    chosen = torch.zeros(len(SCHEMA.columns), len(SCHEMA.columns), dtype=torch.bool)
    chosen[PAIRS[:, 0], PAIRS[:, 1]] = True
    assert torch.equal(total, true_gram(SCHEMA)[chosen[column[:, None], column]])


def test_other_pairs_than_were_announced_are_refused_and_not_charged() -> None:
    """Fewer, one twice, turned, too high, too low, no numbers, another shape."""
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)
    tried = []

    def odd(name: str, message: Any) -> Any:
        if isinstance(message, Propose):
            for pairs in (
                PAIRS[:2],
                PAIRS[[0, 0, 1]],
                PAIRS.flip(1),
                PAIRS + 6,
                PAIRS - 1,
                PAIRS.double(),
                PAIRS.flatten(),
            ):
                with pytest.raises(MessageError, match="pairs of columns were due"):
                    parties[name].answer(
                        replace(message, terms=message.terms | {"pairs": pairs})
                    )
                tried.append(name)
            assert parties[name].ledger.spend().total() == cells(), (
                "the first release alone"
            )
        return message

    release(
        Seen(parties, odd),
        schemas,
        Plan(remeasured_pairs=3, first_pass_share=0.5),
        choose=pick,
    )
    assert len(tried) == 2 * 7


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        *(
            ({"first_pass_share": share}, "first_pass_share must lie")
            for share in (0.0, 1e-12, 1 - 1e-12, 1.0, math.nan)
        ),
        *(
            ({"remeasured_pairs": pairs}, "28 pairs of columns")
            for pairs in (29, 10**18, 10**400)
        ),
    ],
)
def test_a_second_release_that_cannot_be_made_is_refused_before_the_first_is_priced(
    settings: dict[str, Any], why: str
) -> None:
    """A share near 0 or 1, or pairs without end, would need noise that no machine can
    price.
    """
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)

    def endless(name: str, message: Any) -> Any:
        return told(message, **settings)

    with pytest.raises(ConfigError, match=why):
        release(
            Seen(parties, endless),
            schemas,
            Plan(remeasured_pairs=3, first_pass_share=0.5),
            choose=pick,
        )
    if "remeasured_pairs" in settings:
        with pytest.raises(ConfigError, match=why):
            release(
                LocalParties(parties),
                schemas,
                Plan(first_pass_share=0.5, **settings),
                choose=pick,
            )
    assert not any(one.ledger.entries()[1:] for one in parties.values())


def test_after_a_first_release_neither_it_nor_the_second_is_made_again() -> None:
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)
    before: dict[str, Any] = {}

    def again(name: str, message: Any) -> Any:
        if isinstance(message, Agree) or asked(message, "pairs"):
            before[type(message).__name__] = message
        if asked(message, "again"):
            for old in before.values():
                with pytest.raises(MessageError, match="not expected"):
                    parties[name].answer(old)
            parties[name].answer(message)
        return message

    with pytest.raises(MessageError, match=r"joint\.release was not expected"):
        release(
            Seen(parties, again),
            schemas,
            Plan(remeasured_pairs=3, first_pass_share=0.5),
            choose=pick,
        )
    assert parties["host 0"].ledger.spend().total() == cells() + 3


def test_one_who_goes_between_the_releases_has_paid_for_the_first_alone() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)

    def leave(name: str, message: Any) -> Any:
        if name == "holder 1" and asked(message, "again"):
            raise PartyError(f"{name} went away.")
        return message

    with pytest.raises(PartyError, match="went away"):
        release(
            Seen(parties, leave),
            schemas,
            Plan(remeasured_pairs=3, first_pass_share=0.5),
            choose=pick,
        )
    assert [one.ledger.spend().total() for one in parties.values()] == [
        cells(),
        cells(),
    ]


# What the server chooses, it chooses for all

APART = [
    (
        "a part of the sum alone, under its own noise",
        lambda: by_rows(5),
        [[0, 1]],
        [[0, 3]],
    ),
    (
        "pairs of each holder's own",
        lambda: by_columns(2),
        [[0, 1], [0, 2], [1, 2]],
        [[4, 5], [4, 6], [5, 6]],
    ),
    ("a share without its counterpart", lambda: by_columns(2), [[0, 4]], [[4, 5]]),
    ("a grid", by_grid, [[0, 1]], [[0, 2]]),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("why", "cut", "one", "other"), APART, ids=[why for why, *_ in APART]
)
@pytest.mark.parametrize(
    "target", [None, SCHEMA.names[7]], ids=["pairs", "with a target"]
)
def test_a_server_that_asks_holders_for_other_pairs_than_each_other_gets_none(
    why: str, cut: Any, one: Any, other: Any, target: str | None
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    first = next(iter(parties))

    def apart(name: str, message: Any) -> Any:
        if isinstance(message, Propose) and name != first:
            pairs = message.terms["pairs"].clone()
            pairs[-len(other) :] = torch.tensor(other)
            return replace(message, terms=message.terms | {"pairs": pairs})
        return message

    plan = Plan(target=target, remeasured_pairs=len(one), first_pass_share=0.5)
    seen = Seen(parties, apart)
    with pytest.raises(MessageError, match="told other terms"):
        release(seen, schemas, plan, choose=lambda found, chosen: torch.tensor(one))
    assert not any(asked(ask, "again") for _, ask, _ in seen.log), (
        "nothing came out of the second release"
    )


@pytest.mark.parametrize("cut", [lambda: by_rows(3), lambda: by_columns(2)])
def test_chosen_pairs_are_proposed_once_and_not_released_without(cut: Any) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)

    def hasty(name: str, message: Any) -> Any:
        if isinstance(message, Propose):
            with pytest.raises(MessageError, match="terms of pairs, tables were due"):
                parties[name].answer(due("again"))
            parties[name].answer(message)  # the server's own is then the second
        return message

    with pytest.raises(MessageError, match=r"joint\.propose was not expected"):
        release(
            Seen(parties, hasty),
            schemas,
            Plan(remeasured_pairs=3, first_pass_share=0.5),
            choose=pick,
        )
    assert all(one.ledger.spend().total() == cells() for one in parties.values())


def test_a_release_is_not_resumed_with_settings_that_it_was_not_made_by(
    tmp_path: Path,
) -> None:
    tables, schemas = by_rows(2)
    parties = {
        name: party(name, tables, schemas, folder=tmp_path / name) for name in tables
    }
    saved = {"checkpoint": tmp_path / "saved"}
    gram.train(gram.Config(**SMALL), LocalParties(parties), schemas, **saved)
    with pytest.raises(ConfigError, match="not what these settings ask for"):
        gram.train(
            gram.Config(target=TARGET, **SMALL),
            LocalParties(parties),
            schemas,
            resume=True,
            **saved,
        )
    gram.train(
        gram.Config(**SMALL), LocalParties(parties), schemas, resume=True, **saved
    )


# A target: all pairs with one column, once more

TARGET = SCHEMA.names[2]
WITH_TARGET = torch.tensor(
    [[0, 2], [1, 2], *([2, n] for n in range(3, len(SCHEMA.columns)))]
)


@pytest.mark.parametrize("cut", [lambda: by_columns(2), lambda: by_rows(3), by_grid])
def test_pairs_with_the_target_are_exact_without_noise(cut: Any) -> None:
    tables, schemas = cut()
    found = measured(
        tables, schemas, Plan(private=False, target=TARGET, first_pass_share=0.5)
    )
    assert torch.equal(
        found.gram.long(), true_gram(Grid.from_schemas(schemas).join(schemas))
    )


@pytest.mark.parametrize("cut", [lambda: by_columns(2), lambda: by_rows(3), by_grid])
def test_pairs_with_the_target_have_less_noise_at_the_price_of_the_others(
    cut: Any,
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    found = release(
        LocalParties(parties), schemas, Plan(target=TARGET, first_pass_share=0.6)
    )
    plain = measured(tables, schemas, Plan())
    joint = Grid.from_schemas(schemas).join(schemas)
    column = torch.repeat_interleave(torch.tensor(Codec(joint).sizes))
    place = joint.names.index(TARGET)
    with_it = ((column == place)[:, None] ^ (column == place)[None, :]) & found.measured
    others = ~with_it & found.measured
    assert bool((found.noise[with_it] < plain.noise[with_it]).all())
    assert bool((found.noise[others] > plain.noise[others]).all())
    *first, (second, again) = found.releases
    assert (sum(count for _, count in first), again) == (
        cells(),
        len(SCHEMA.columns) - 1,
    )
    assert sum(n / sigma**2 for sigma, n in first) / (
        again / second**2
    ) == pytest.approx(1.5, rel=5e-3)
    price = {DiscreteGaussian(sigma): int(count) for sigma, count in found.releases}
    assert 0.98 * BUDGET.epsilon <= epsilon(price, BUDGET.delta) <= BUDGET.epsilon
    assert all(one.ledger.spend() == price for one in parties.values())


def again_of(found: Released) -> float:
    """The second release's part of what both spend."""
    *first, (second, again) = found.releases
    both = sum(n / sigma**2 for sigma, n in first), again / second**2
    return both[1] / sum(both)


def test_a_targets_pairs_have_more_of_the_budget_where_people_are_few() -> None:
    shares = [
        again_share(people, 30.0) for people in (10, 100, 1_000, 4_000, 20_000, 10**400)
    ]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (0.9, 0.2)
    assert 0.2 < shares[3] < shares[2] < 0.9


@pytest.mark.parametrize(
    ("cut", "people"),
    [(lambda: by_columns(2), None), (lambda: by_rows(2), 1_000), (by_grid, 1_000)],
)
def test_the_share_follows_from_how_many_people_are_known(
    cut: Any, people: int | None
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    found = release(
        LocalParties(parties),
        schemas,
        Plan(target=TARGET, first_pass_share=None, public_people=people),
    )
    share = again_of(found)
    assert 0.2 < share < 0.9
    first = found.sigmas[0] * math.sqrt(1 - share)  # with all of the budget
    assert share == pytest.approx(again_share(people or len(FRAME), first), rel=5e-3)
    price = {DiscreteGaussian(sigma): int(count) for sigma, count in found.releases}
    assert epsilon(price, BUDGET.delta) <= BUDGET.epsilon
    assert all(one.ledger.spend() == price for one in parties.values())


@pytest.mark.parametrize("columns", [9, 10])
def test_of_ten_columns_or_more_the_strongest_pairs_are_measured_once_more(
    columns: int,
) -> None:
    rng = np.random.default_rng(0)
    names = [f"c{number}" for number in range(columns)]
    frame = pd.DataFrame({name: rng.random(600) < 0.5 for name in names})
    frame["c7"] = frame["c3"]
    schema = Schema(columns=tuple(Boolean(name=name) for name in names))
    tables = {"one": frame.iloc[::2], "other": frame.iloc[1::2]}
    schemas = dict.fromkeys(tables, schema)
    parties = all_parties(tables, schemas)
    found = release(LocalParties(parties), schemas, Plan())
    price = {DiscreteGaussian(sigma): int(count) for sigma, count in found.releases}
    assert 0.98 * BUDGET.epsilon <= epsilon(price, BUDGET.delta) <= BUDGET.epsilon
    assert all(one.ledger.spend() == price for one in parties.values())
    assert len(found.releases) == 1 + (columns >= 10)
    if columns >= 10:
        (first, every), (second, again) = found.releases
        assert (every, again) == (cells(columns), columns)
        shares = again / second**2 / (every / first**2)
        assert shares == pytest.approx(0.1 / 0.9, rel=2e-2)
        again = found.noise[6:8, 14:16] < found.noise.max()
        assert bool(again.all()), "the copy is among them"


def test_in_a_horizontal_partition_no_share_tells_how_many_there_are() -> None:
    tables, schemas = by_rows(2)
    fewer = {name: frame.iloc[::2] for name, frame in tables.items()}
    for people, share in ((None, 0.2), (1, 0.9), (10**400, 0.2)):
        plan = Plan(target=TARGET, first_pass_share=None, public_people=people)
        both = [
            release(LocalParties(all_parties(held, schemas)), schemas, plan)
            for held in (tables, fewer)
        ]
        assert both[0].sigmas == both[1].sigmas
        assert again_of(both[0]) == pytest.approx(share, rel=5e-3)


@pytest.mark.parametrize("people", [0, -1, 1.5, math.nan, math.inf, True, "many"])
def test_a_number_of_people_that_is_none_is_refused_and_nothing_is_charged(
    people: Any,
) -> None:
    with pytest.raises(ConfigError, match="public_people"):
        gram.Config(target=TARGET, public_people=people)
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)
    with pytest.raises(ConfigError, match="public_people"):
        release(
            LocalParties(parties),
            schemas,
            Plan(target=TARGET, first_pass_share=None, public_people=people),
        )
    assert not any(one.ledger.entries()[1:] for one in parties.values())


def test_a_server_that_leaves_a_pair_with_the_target_for_another_is_refused() -> None:
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)
    other = torch.cat([WITH_TARGET[1:], torch.tensor([[0, 1], [0, 3]])])

    def odd(name: str, message: Any) -> Any:
        changed = isinstance(message, Propose)
        return (
            replace(message, terms=message.terms | {"pairs": other})
            if changed
            else message
        )

    plan = Plan(target=TARGET, remeasured_pairs=1, first_pass_share=0.5)
    with pytest.raises(MessageError, match=f"all pairs with {TARGET} were due"):
        release(
            Seen(parties, odd),
            schemas,
            plan,
            choose=lambda found, chosen: torch.tensor([[0, 1]]),
        )
    assert [one.ledger.spend().total() for one in parties.values()] == [
        cells(),
        cells(),
    ]


@pytest.mark.parametrize("cut", [lambda: by_columns(2), lambda: by_rows(2)])
def test_a_target_that_nobody_has_is_refused_and_nothing_is_charged(cut: Any) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    with pytest.raises(ConfigError, match='nobody has a column "shoes"'):
        release(
            LocalParties(parties), schemas, Plan(target="shoes", first_pass_share=0.5)
        )
    assert not any(one.ledger.entries()[1:] for one in parties.values())


def test_fewer_pairs_than_the_target_has_cannot_be_asked_for() -> None:
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)

    def fewer(name: str, message: Any) -> Any:
        return told(message, remeasured_pairs=-3)

    with pytest.raises(ConfigError, match="remeasured_pairs"):
        release(
            Seen(parties, fewer), schemas, Plan(target=TARGET, first_pass_share=0.5)
        )
    assert not any(one.ledger.entries()[1:] for one in parties.values())


def test_pairs_are_chosen_besides_those_with_the_target() -> None:
    tables, schemas = by_rows(2)
    seen = Seen(all_parties(tables, schemas))
    gram.train(
        gram.Config(target=TARGET, remeasured_pairs=4, searched_triples=0, **SMALL),
        seen,
        schemas,
    )
    (pairs,) = {
        tuple(map(tuple, ask.terms["pairs"].tolist()))
        for _, ask, _ in seen.log
        if isinstance(ask, Propose)
    }
    mine = set(map(tuple, WITH_TARGET.tolist()))
    assert len(pairs) == len(set(pairs)) == len(mine) + 4
    assert mine < set(pairs)


@pytest.mark.parametrize(
    "triple", [("age", "age", "smoker"), (*SCHEMA.names[:2], SCHEMA.names[-1])]
)
def test_a_triple_of_columns_of_two_holders_is_refused(triple: Any) -> None:
    tables, schemas = by_grid()
    with pytest.raises(ConfigError, match="three columns"):
        measured(tables, schemas, Plan(triples=(triple,)))


def test_a_whole_run_with_refined_pairs_and_triples_gives_a_generator() -> None:
    tables, schemas = by_grid()
    parties = all_parties(tables, schemas)
    config = gram.Config(
        remeasured_pairs=9, first_pass_share=0.5, triples=(TRIPLE,), **SMALL
    )
    outcome = gram.train(config, LocalParties(parties), schemas)
    assert len(Generator.from_parts(outcome.trained).sample(5, seed=0)) == 5
    for name, one in parties.items():
        assert one.ledger.spent() == pytest.approx(outcome.privacy.epsilon(name))
        assert one.ledger.spent() <= BUDGET.epsilon
    assert isinstance(outcome.trained.card["releases"], list)

"""Columns and rows split at once: still one true matrix at one price."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch
from gram_cases import (
    BUDGET,
    FRAME,
    OPEN,
    SCHEMA,
    SMALL,
    TRIPLE,
    Plan,
    Seen,
    all_parties,
    all_sizes,
    by_columns,
    by_grid,
    by_rows,
    cells,
    measured,
    party,
    pick,
    release,
    true_gram,
    upper,
)
from scipy.stats import chisquare

from bytes_parties import BytesParties
from understudy.api.train import train
from understudy.data.schema import Grid
from understudy.ground.errors import (
    AlignmentError,
    ConfigError,
    MessageError,
    PartyAway,
    SchemaError,
)
from understudy.privacy.accounts.accounting import DiscreteGaussian, epsilon
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.sums import Channel
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.joint.messages import Agree, Begin, Release, Swap
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

# A grid of holders


class Across(Gram):
    across = True


def test_the_schemas_show_the_grid() -> None:
    _, schemas = by_grid(firsts=2, seconds=3)
    assert Grid.from_schemas(schemas).groups == (
        ("a0", "a1"),
        ("b0", "b1", "b2"),
        ("c0",),
    )
    assert Grid.from_schemas(schemas).partition == "grid"
    assert Grid.from_schemas(by_rows(3)[1]).partition == "horizontal"
    assert Grid.from_schemas(by_columns(3)[1]).partition == "vertical"
    assert Grid.from_schemas(schemas).join(schemas).columns == SCHEMA.columns
    twice = {"a": SCHEMA, "b": SCHEMA.select(SCHEMA.names[:2])}
    with pytest.raises(SchemaError, match="must differ"):
        Grid.from_schemas(twice).join(twice)


@pytest.mark.parametrize(
    ("firsts", "seconds", "chunk"), [(2, 1, 1000), (3, 2, 2), (2, 2, 5)]
)
def test_without_noise_the_matrix_of_a_grid_is_exact(
    firsts: int, seconds: int, chunk: int
) -> None:
    tables, schemas = by_grid(firsts=firsts, seconds=seconds)
    found = measured(tables, schemas, OPEN, chunk=chunk)
    assert (found.partition, found.people) == ("grid", len(FRAME))
    assert torch.equal(found.gram, true_gram(SCHEMA))


def test_only_people_whom_every_group_has_are_counted_in_a_grid() -> None:
    tables, schemas = by_grid()
    tables["a1"] = tables["a1"][tables["a1"]["id"] % 3 > 0]
    held = pd.concat([tables["a0"], tables["a1"]])["id"]
    assert 2 < len(held) < len(FRAME)
    found = measured(tables, schemas, OPEN)
    assert torch.equal(found.gram, true_gram(SCHEMA, FRAME[FRAME["id"].isin(held)]))
    assert found.people == len(held)


def test_a_person_with_two_holders_of_one_group_is_refused_before_anything_is_charged():
    tables, schemas = by_grid()
    tables["a1"] = pd.concat([tables["a1"], tables["a0"].head(1)])
    parties = all_parties(tables, schemas)
    with pytest.raises(AlignmentError, match="counted twice"):
        release(LocalParties(parties), schemas)
    assert not any(one.ledger.spent() for one in parties.values())


def test_a_grid_without_person_ids_is_refused() -> None:
    tables, schemas = by_grid()
    blind = {name: replace(schema, person=None) for name, schema in schemas.items()}
    with pytest.raises(AlignmentError, match="person column"):
        measured(
            {name: table.drop(columns="id") for name, table in tables.items()}, blind
        )


def test_every_block_of_a_grid_keeps_sigma_without_the_shares_of_those_who_collude():
    max_colluding = 2
    tables, schemas = by_grid(firsts=3, seconds=2)
    errors = []
    true = true_gram(SCHEMA)
    for seed in range(2):
        found = measured(tables, schemas, max_colluding=max_colluding, seed=seed)
        errors.append((found.gram - true).double() / found.noise.clamp(min=1e-9))
    sizes = [3, 2, 1]
    sigma = max(sigma for sigma, _ in found.releases)
    group = torch.repeat_interleave(torch.tensor([3, 2, 3]))
    group = torch.repeat_interleave(group, torch.tensor(all_sizes()))
    for g in range(3):
        for h in range(g, 3):
            inside = (group[:, None] == g) & (group == h)
            stated = torch.tensor(
                sorted(set(found.noise[inside & found.measured].tolist()))
            )
            holders = sizes[g] if g == h else sizes[g] + sizes[h]
            honest = max(1, holders - max_colluding)
            assert len(stated) == 1
            left = float(stated) / math.sqrt(holders / honest)
            assert left == pytest.approx(sigma * (honest / holders) ** 0.25, rel=3e-3)
            drawn = torch.cat(
                [error[inside & found.measured & upper(error)] for error in errors]
            )
            assert float(drawn.var()) == pytest.approx(
                1, abs=6 * math.sqrt(2 / len(drawn))
            )
    assert torch.equal(found.gram[~found.measured], true[~found.measured])


@pytest.mark.parametrize(
    ("firsts", "seconds", "max_colluding", "across"),
    [(1, 1, 1, False), (2, 1, 1, False), (3, 2, 2, False), (2, 3, 1, True)],
)
def test_no_other_noise_of_the_blocks_at_this_price_leaves_less_variance(
    firsts: int, seconds: int, max_colluding: int, across: bool
) -> None:
    """Σ n·r·σ² · Σ n/σ² is at least (Σ n·√r)², by Cauchy and Schwarz, and this reaches
    it.
    """
    _, schemas = by_grid(firsts=firsts, seconds=seconds)
    (spread,) = (Across if across else Gram)(
        Plan(max_colluding=max_colluding), schemas
    ).spreads.values()
    holders = [firsts, seconds, 1]
    columns = [3, 2, 3]
    variance = price = least = 0.0
    counted: dict[float, int] = {}
    for g, h in itertools.combinations_with_replacement(range(3), 2):
        if across and g == h:
            continue
        moved = cells(columns[g]) if g == h else columns[g] * columns[h]
        count = holders[g] if g == h else holders[g] + holders[h]
        ratio = count / max(1, count - max_colluding)
        sigma = spread.factors[g, h]
        variance = variance + moved * ratio * sigma**2
        price = price + moved / sigma**2
        least = least + moved * math.sqrt(ratio)
        counted[sigma] = counted.get(sigma, 0) + moved
    assert variance * price == pytest.approx(least**2, rel=1e-12)
    assert dict(spread.moved) == counted
    assert max(counted) == 1


def test_in_a_horizontal_partition_and_for_one_holder_all_cells_have_the_same_noise() -> (
    None
):
    for parties, max_colluding in itertools.product((1, 2, 5), (1, 3)):
        (spread,) = Gram(
            Plan(max_colluding=max_colluding), by_rows(parties)[1]
        ).spreads.values()
        assert spread.moved == ((1.0, cells()),)


def test_pairs_across_holders_are_refused_where_there_are_none() -> None:
    with pytest.raises(ConfigError, match="no pair of columns"):
        Across(Plan(), by_rows(2)[1])


def test_of_a_grid_the_server_gets_uniform_parts_and_their_noisy_sum() -> None:
    tables, schemas = by_grid()
    seen = Seen(all_parties(tables, schemas, seed=None))
    release(seen, schemas)
    for name, reply in seen.replies(Release):
        for place, part in reply.parts.value.items():
            # one holder's own columns
            alone = (name, place) in (("b0", "1×1"), ("c0", "2×2"))
            top = torch.bincount(((part.flatten() >> 29) & 7), minlength=8)
            assert bool((part.abs() < 1 << 16).all()) == alone, (name, place)
            assert alone or chisquare(top.numpy()).pvalue > 1e-7, (name, place)


def test_every_two_who_have_a_part_in_a_block_pad_it_and_no_pad_is_used_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A share of a product is uniform by itself, but not to the server, which dealt the
    masks.
    """
    drawn = Counter[tuple[str, str, int, bytes]]()
    mask = Channel.mask

    def counted(
        line: Channel, ring: Any, stream: int, *shape: int, about: bytes
    ) -> Any:
        drawn[line.name, line.peer, stream, about] += 1
        return mask(line, ring, stream, *shape, about=about)

    monkeypatch.setattr(Channel, "mask", counted)
    tables, schemas = by_grid()
    release(LocalParties(all_parties(tables, schemas)), schemas)
    (about,) = {about for *_, about in drawn}
    grid = Grid.from_schemas(schemas)
    assert drawn == Counter(
        (own, peer, place, about)
        for place, block in enumerate(grid.blocks)
        for own, peer in itertools.permutations(grid.holders(block), 2)
    )


def test_in_a_grid_a_person_pays_one_price_and_every_ledger_holds_it() -> None:
    tables, schemas = by_grid()
    parties = all_parties(tables, schemas)
    outcome = gram.train(
        gram.Config(products="dealt", **SMALL), LocalParties(parties), schemas
    )
    price = {
        DiscreteGaussian(sigma): count
        for sigma, count in outcome.trained.card["releases"]
    }
    assert len(price) == 3, (
        "one holder, or two with their whole noise, or three of whom two are left"
    )
    assert sum(price.values()) == cells()
    assert 0.99 * BUDGET.epsilon <= epsilon(price, BUDGET.delta) <= BUDGET.epsilon
    assert all(one.ledger.spend() == price for one in parties.values())
    assert outcome.privacy.epsilon(None, "server") == pytest.approx(
        parties["a0"].ledger.spent()
    )
    assert outcome.trained.card["owners"][SCHEMA.names[0]] == "a0"
    assert outcome.people == len(FRAME)
    assert "which parties hold a person" in str(outcome.privacy)
    entries = [entry.description for entry in parties["c0"].ledger.entries()]
    assert any("which of them hold a person" in what for what in entries)


def test_a_grid_runs_from_a_federation() -> None:
    tables, schemas = by_grid()
    federation = Federation.rehearsal(tables, schemas, budget=BUDGET, seed=1)
    result = train("gram", federation, **SMALL)
    assert len(result.generator.sample(5, seed=0)) == 5


@pytest.mark.parametrize("step", [Begin, Agree, Swap, Release])
def test_whoever_goes_away_from_a_grid_ends_the_run_and_nothing_is_charged(
    step: Any,
) -> None:
    tables, schemas = by_grid()
    parties = all_parties(tables, schemas)

    def leave(name: str, message: Any) -> Any:
        if name == "a1" and isinstance(message, step):
            raise PartyAway(f"{name} went away.")
        return message

    with pytest.raises(PartyAway, match="went away"):
        release(Seen(parties, leave), schemas, chunk=6, min_holders=1)
    assert not any(one.ledger.spent() for one in parties.values())


@pytest.mark.parametrize(
    "change",
    [
        lambda held: [[people + 1, peers] for people, peers in held],
        lambda held: [[people, peers[:-1]] for people, peers in held],
        lambda held: [[people, ["a0", "a1"]] for people, peers in held],
        lambda held: [],
        lambda held: [[-people, peers] for people, peers in held],
    ],
    ids=["more people", "a group missing", "one group twice", "nobody", "negative"],
)
def test_people_who_do_not_match_the_alignment_are_refused(change: Any) -> None:
    tables, schemas = by_grid()
    parties = all_parties(tables, schemas)

    def odd(name: str, message: Any) -> Any:
        return (
            replace(message, cells=change(message.cells))
            if isinstance(message, Agree)
            else message
        )

    with pytest.raises((MessageError, ConfigError)):
        release(Seen(parties, odd), schemas)
    assert not any(one.ledger.spent() for one in parties.values())


def test_parties_of_a_grid_rebuilt_between_all_messages_measure_alike() -> None:
    tables, schemas = by_grid()
    plan = Plan(remeasured_pairs=3, first_pass_share=0.6, triples=(TRIPLE,))
    plain = measured(tables, schemas, plan, chunk=20, choose=pick)
    ledgers = {name: Ledger.rehearsal(holder=name, budget=BUDGET) for name in tables}
    build = {
        name: partial(party, name, tables, schemas, ledger=ledgers[name])
        for name in tables
    }
    rebuilt = release(BytesParties(build), schemas, plan, chunk=20, choose=pick)
    assert torch.equal(plain.gram, rebuilt.gram)
    assert torch.equal(plain.triples[0]["table"], rebuilt.triples[0]["table"])

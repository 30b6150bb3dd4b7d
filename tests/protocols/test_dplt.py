"""DPLT: sensitivities by listing all small tables, tables that are the true ones plus
paid noise, and exact ledgers.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from odd_servers import Crooked, of_kind, to

from refusals import raises
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Integer, Schema
from understudy.ground.errors import (
    ConfigError,
    Effect,
    MessageError,
    PrivacyError,
    SchemaError,
)
from understudy.privacy.accounts.accounting import PureDp, epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise.discrete import DiscreteLaplaceNoise
from understudy.privacy.secure.sums import KeyPair
from understudy.protocols.core.alignment import align_people
from understudy.protocols.core.base import Ask, Keep
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.messages import (
    Agree,
    Begin,
    Propose,
    Release,
    Released,
    Swap,
)
from understudy.protocols.joint.products import relayed
from understudy.protocols.joint.server import measure
from understudy.protocols.papers.verti_gan import dplt
from understudy.protocols.papers.verti_gan import dplt_tree as trees
from understudy.protocols.papers.verti_gan.dplt import Config, LatentTree
from understudy.protocols.papers.verti_gan.dplt_tree import (
    association,
    build_network,
    choices,
    conditional_counts,
    group,
    index_tree,
    information,
    is_tree,
    spanning_tree,
    split_edges,
    to_bits,
)
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

FREE = Budget(math.inf, 0.0)


def bits_frame(n: int, columns: int, seed: int = 0) -> pd.DataFrame:
    """A chain of bits, each a noisy copy of the one before."""
    rng = np.random.default_rng(seed)
    bits = [rng.random(n) < 0.5]
    for flip in np.linspace(0.1, 0.4, columns - 1):
        bits.append(bits[-1] ^ (rng.random(n) < flip))
    return pd.DataFrame({f"b{i}": bit for i, bit in enumerate(bits)})


def cut(
    frame: pd.DataFrame, parties: int
) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """Its columns dealt out in turn; people are row by row."""
    columns = {f"holder {n}": list(frame.columns[n::parties]) for n in range(parties)}
    tables = {name: frame[own] for name, own in columns.items()}
    schemas = {
        name: Schema(columns=tuple(Boolean(name=c) for c in own))
        for name, own in columns.items()
    }
    return tables, schemas


def federation(
    frame: pd.DataFrame, parties: int = 2, budget: Budget = FREE, seed: int = 1
) -> Federation:
    return Federation.rehearsal(*cut(frame, parties), budget=budget, seed=seed)


class Seen(LocalParties):
    """Parties of which the server remembers every reply."""

    def __init__(self, parties: Mapping[str, Any]) -> None:
        super().__init__(parties)
        self.log: list[dict[str, Any]] = []

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        self.log.append(replies := super().ask(message, min_holders=min_holders))
        return replies

    def tables(self) -> list[dict[str, dict[str, torch.Tensor]]]:
        """What each holder released, step by step: its parts of tables."""
        released = [
            replies
            for replies in self.log
            if isinstance(next(iter(replies.values())), Released)
        ]
        return [
            {name: reply.parts.value for name, reply in replies.items()}
            for replies in released[1:]
        ]


def grown(
    frame: pd.DataFrame, parties: int = 2, budget: Budget = FREE, **settings: Any
) -> tuple[Measurements, Seen]:
    fed = federation(frame, parties, budget)
    seen = Seen(fed.parties("dplt", run="r"))
    config = Config(**{"private": budget.epsilon < math.inf} | settings)
    return measure(LatentTree(config, fed.schemas), seen, chunk=config.chunk), seen


def tree_of(measurements: Measurements) -> dict[tuple[int, int], np.ndarray[Any, Any]]:
    """The tables of the tree, by parent and child."""
    assert isinstance(measurements.study, LatentTree)
    return measurements.study.tables(measurements)


def order(parties: int, columns: int) -> list[str]:
    return [f"b{i}" for n in range(parties) for i in range(n, columns, parties)]


# Sensitivities, by listing


def test_association_moves_by_at_most_one_for_every_small_table_and_every_person():
    most = 0
    for counts in itertools.product(range(5), repeat=4):
        rows = (
            np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], counts, axis=0)
            .astype(bool)
            .reshape(-1, 2)
        )
        before = int(association(rows)[0, 1])
        for person in itertools.product((False, True), repeat=2):
            after = int(association(np.vstack([rows, person]))[0, 1])
            most = max(most, abs(after - before))
    assert most == 1


def test_association_is_the_covariance_times_the_people() -> None:
    rows = np.random.default_rng(0).random((400, 4)) < [0.2, 0.5, 0.7, 0.9]
    rows[:, 1] = rows[:, 0] ^ (np.arange(400) % 5 == 0)
    expected = np.floor(np.abs(np.cov(rows.T, bias=True)) * 400 + 1e-9).astype(int)
    np.fill_diagonal(expected, 0)
    assert association(rows).tolist() == expected.tolist()
    assert association(rows[:0]).tolist() == np.zeros((4, 4)).tolist()


def test_choices_are_made_on_scores_of_the_stated_sensitivity() -> None:
    """Every choice's scores, for a table and for it with one person more."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        rows = rng.random((30, 7)) < 0.5
        seen: list[list[tuple[torch.Tensor, int]]] = []
        for table in (rows, np.vstack([rows, rng.random(7) < 0.5])):
            asked: list[tuple[torch.Tensor, int]] = []
            scores = association(table)

            def choose(
                scores: torch.Tensor, sensitivity: int, asked: Any = asked
            ) -> int:
                asked.append((scores, sensitivity))
                return len(asked) % len(scores)  # the same way through both

            group(scores, 3, choose)
            index_tree(scores, choose)
            seen.append(asked)
        assert len(seen[0]) == choices(7, 3, index=False) + 6
        for (one, stated), (other, again) in zip(*seen, strict=True):
            assert stated == again
            assert int((one - other).abs().max()) <= stated


@pytest.mark.parametrize(
    ("parties", "plus"), [(2, False), (3, False), (2, True), (3, True)]
)
def test_one_person_moves_the_released_tables_by_exactly_what_is_charged(
    parties: int, plus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = bits_frame(40, 6)
    monkeypatch.setattr(
        trees, "spanning_tree", lambda weights: [(i, i + 1) for i in range(5)]
    )
    # The choices are charged apart: here they stay the same.
    monkeypatch.setattr(trees, "_choose", lambda noise, rng, scores, sensitivity: 0)
    totals = []
    for rows in (frame, frame.iloc[:-1]):
        released, seen = grown(rows, parties, group=1, plus=plus)
        tables = torch.from_numpy(np.stack([*tree_of(released).values()])).long()
        totals.append((unmasked(seen.tables()[0]), tables))
    pricing = LatentTree(Config(group=1, plus=plus), cut(frame, parties)[1]).pricing
    assert int((totals[0][0] - totals[1][0]).abs().sum()) == pricing.moved[1]
    assert int((totals[0][1] - totals[1][1]).abs().sum()) == pricing.moved[2] == 5


def unmasked(parts: Mapping[str, Mapping[str, torch.Tensor]]) -> torch.Tensor:
    """All tables of an answer: own ones, and then the sums of two shares."""
    blocks: dict[str, torch.Tensor] = {}
    for sent in parts.values():
        for name, part in sent.items():
            blocks[name] = blocks.get(name, torch.zeros_like(part)) + part
    across = {
        name: (one + 2**31) % 2**32 - 2**31
        for name, one in blocks.items()
        if len({*name.split("×")}) > 1
    }
    return torch.cat(
        [*(one for name, one in blocks.items() if name not in across), *across.values()]
    )


# What is measured


@pytest.mark.parametrize(("parties", "size"), [(2, 1), (2, 3), (3, 2)])
def test_without_noise_the_tables_of_the_tree_are_the_counted_ones(
    parties: int, size: int
) -> None:
    frame = bits_frame(200, 9)
    released, seen = grown(frame, parties, group=size, chunk=64)
    bits = frame[order(parties, 9)].to_numpy()
    assert len(tree_of(released)) == 8
    for (one, other), table in tree_of(released).items():
        counted = [
            [int(((bits[:, one] == a) & (bits[:, other] == b)).sum()) for b in (0, 1)]
            for a in (0, 1)
        ]
        assert table.tolist() == counted
    assert (unmasked(seen.tables()[0]).sum((1, 2)) == 200).all()


def test_each_party_adds_its_own_full_noise_and_a_table_across_has_two() -> None:
    frame = bits_frame(50, 12)
    budget = Budget(4.0, 0.0)
    clear = unmasked(grown(frame, 2, group=1)[1].tables()[0])
    noisy = torch.stack(
        [
            unmasked(
                grown(frame, 2, replace(budget, epsilon=4.0), group=1)[1].tables()[0]
            )
        ]
    )
    scales = LatentTree(Config(group=1), cut(frame, 2)[1]).pricing.needed(budget, None)
    variance = DiscreteLaplaceNoise(Fraction(scales[1])).variance
    noise = (noisy - clear)[0].double()
    own = 2 * math.comb(6, 2)
    assert float(noise[:own].square().mean()) == pytest.approx(variance, rel=0.6)
    assert float(noise[own:].square().mean()) == pytest.approx(2 * variance, rel=0.6)


def test_shares_are_under_another_pad_in_each_step() -> None:
    # one pair, measured twice without noise
    _, seen = grown(bits_frame(30, 2), 2, group=1)
    first, second = (parts["holder 0"]["0×1"] for parts in seen.tables())
    assert first.shape == second.shape == (1, 2, 2)
    assert not (first == second).any()
    assert first.abs().max() > 1_000


def test_without_noise_dplt_plus_measures_less_and_finds_the_same_tree() -> None:
    frame = bits_frame(4_000, 10)
    plain, plus = (
        [*tree_of(grown(frame, 2, group=1, plus=plus)[0])] for plus in (False, True)
    )
    assert {tuple(sorted(edge)) for edge in plain} == {
        tuple(sorted(edge)) for edge in plus
    }
    names = order(2, 10)
    chain = {
        tuple(sorted((names.index(f"b{i}"), names.index(f"b{i + 1}"))))
        for i in range(9)
    }
    assert {tuple(sorted(edge)) for edge in plain} == chain
    pairs = [
        LatentTree(Config(group=1, plus=plus), cut(frame, 2)[1]).pricing.moved[1]
        for plus in (False, True)
    ]
    assert pairs == [45, 8 + 25]


@pytest.mark.parametrize("plus", [False, True])
def test_a_large_table_is_recovered_across_parties_at_a_fair_price(plus: bool) -> None:
    frame = bits_frame(20_000, 6)
    result = train("dplt", federation(frame, 2, Budget(8.0, 0.0)), plus=plus, group=1)
    drawn = result.generator.sample(20_000, seed=1)
    for one, other in itertools.combinations(frame.columns, 2):
        gap = float(
            np.corrcoef(frame[one], frame[other])[0, 1]
            - np.corrcoef(drawn[one], drawn[other])[0, 1]
        )
        assert abs(gap) < 0.04  # every second pair is of two parties
    assert np.abs(drawn.mean() - frame.mean()).max() < 0.03


# What it costs


def events(config: Config, schemas: Mapping[str, Schema], total: float) -> list[Any]:
    """What each step costs within this ε."""
    pricing = LatentTree(config, schemas).pricing
    noise = pricing.needed(Budget(total, 0.0), None)
    return [pricing.event(step, one) for step, one in enumerate(noise)]


@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("split", [(1.0, 1.0, 1.0), (0.1, 3.0, 7.0)])
def test_the_three_steps_add_up_to_epsilon(
    plus: bool, parties: int, split: Any
) -> None:
    schemas = cut(bits_frame(4, 23), parties)[1]
    for total in (0.3, 3.0):
        prices = [
            event.epsilon
            for event in events(Config(plus=plus, split=split), schemas, total)
        ]
        assert 0.995 * total < math.fsum(prices) <= total
        for price, weight in zip(prices, split, strict=True):
            assert price == pytest.approx(total * weight / sum(split), rel=2e-3)


@pytest.mark.parametrize("plus", [False, True])
def test_the_ledger_holds_three_payments_and_a_person_pays_once(plus: bool) -> None:
    fed = federation(bits_frame(60, 8), 3, Budget(3.0, 0.0))
    result = train("dplt", fed, plus=plus)
    due = events(Config(plus=plus), fed.schemas, 3.0)
    for name, holder in fed.holders.items():
        paid = {
            event: count
            for event, count in holder.ledger.spend().items()
            if isinstance(event, PureDp)
        }
        assert paid == Counter(due)
        words = [
            entry.description
            for entry in holder.ledger.entries()
            if entry.description.startswith("step")
        ]
        assert [what.split(",")[0] for what in words] == [
            f"step {n} of 3" for n in (1, 2, 3)
        ]
        assert result.privacy.epsilon(name) == epsilon(Counter(due), 0.0) <= 3.0
    assert result.privacy.epsilon() == result.privacy.epsilon("holder 0") > 2.99
    text = str(result.privacy)
    assert "3 joint releases; the parties' charges are for the same ones" in text
    assert "the server deals the masks" in text


def test_a_party_makes_as_many_choices_as_are_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 0

    def choose(noise: float, rng: Any, scores: torch.Tensor, sensitivity: int) -> int:
        nonlocal count
        count += 1
        assert len(scores) > 1
        return 0

    monkeypatch.setattr(trees, "_choose", choose)
    for plus, size in itertools.product((False, True), (1, 2, 3, 5)):
        count = 0
        frame = bits_frame(20, 11)
        grown(frame, 2, plus=plus, group=size)
        assert (
            count
            == LatentTree(
                Config(plus=plus, group=size), cut(frame, 2)[1]
            ).pricing.moved[0]
        )


def test_the_strictest_budget_rules() -> None:
    tables, schemas = cut(bits_frame(30, 6), 2)
    budgets = {"holder 0": Budget(9.0, 0.0), "holder 1": Budget(2.0, 0.0)}
    fed = Federation.rehearsal(tables, schemas, budget=budgets, seed=1)
    assert train("dplt", fed).privacy.epsilon("holder 0") <= 2.0


# Asks that a party refuses


def parties_at(
    step: str, budget: Budget = FREE, **settings: Any
) -> tuple[dict[str, Any], Any, Any]:
    """Two parties that have answered everything before this step, and what they would
    be asked next.
    """
    fed = federation(bits_frame(30, 4), 2, budget)
    private = budget.epsilon < math.inf
    inside: Any = fed.parties("dplt", run="r")
    parties = LocalParties(inside)
    people = align_people(parties)
    begin = Begin(
        family="dplt",
        config=asdict(Config(**{"private": private} | settings)),
        schemas={name: schema.to_dict() for name, schema in fed.schemas.items()},
    )
    if step == "begin":
        return inside, parties, begin
    begun = parties.ask(begin)
    keys = {name: reply.key.value for name, reply in begun.items()}
    noise = begun["holder 0"].needed.value
    agree = {
        name: Agree(
            keys=keys,
            noise=noise,
            bits=32,
            chunk=64,
            seeds={peer: seed},
            cells=[[people, [peer]]],
        )
        for name, peer, seed in (
            ("holder 0", "holder 1", b"a" * 32),
            ("holder 1", "holder 0", b"b" * 32),
        )
    }
    if step == "agree":
        return inside, parties, agree
    agreed = parties.ask(agree)
    greeted = relayed(agreed)
    groups = {name: due("groups", inbox) for name, inbox in greeted.items()}
    if step == "group":
        return inside, parties, groups
    chosen = {
        name: reply.parts.value["chosen"] for name, reply in parties.ask(groups).items()
    }
    told = parties.ask(Propose(stage="pairs", terms=chosen, inbox={}))
    return inside, parties, relayed(told)


def due(stage: str, inbox: Any = None) -> Release:
    return Release(stage=stage, inbox=inbox or {}, corrections={})


def test_a_price_above_the_budget_is_refused_and_nothing_is_charged() -> None:
    inside, parties, agree = parties_at("agree", Budget(2.0, 0.0))
    for less in (0.9, 0.0):
        with pytest.raises(PrivacyError, match="its budget needs"):
            parties.ask(
                {
                    name: replace(ask, noise=[less * one for one in ask.noise])
                    for name, ask in agree.items()
                }
            )
    with pytest.raises(MessageError, match="seed is missing"):
        parties.ask({"holder 0": replace(agree["holder 0"], seeds={})})
    assert inside["holder 0"].ledger.spent() == 0


def test_asks_out_of_turn_are_refused() -> None:
    inside, _, words = parties_at("swap")
    one = inside["holder 0"]
    for ask in (
        Swap(chunk=1, inbox={}),
        due("pairs"),
        due("tree"),
        Propose(stage="tree", terms={}, inbox={}),
        Keep(round=1),
        parties_at("agree")[2]["holder 0"],
    ):
        with pytest.raises(MessageError, match="not expected"):
            one.answer(ask)
    one.answer(Swap(chunk=0, inbox=words["holder 0"]))
    with pytest.raises(MessageError, match="missing"):
        one.answer(due("pairs"))


GROUPS: dict[str, Any] = {
    "none": lambda own: {},
    "no lists": lambda own: own | {"groups": torch.zeros(2)},
    "one twice": lambda own: own | {"groups": [[0], [0]]},
    "one beyond": lambda own: own | {"groups": [[0], [5]]},
    "too large": lambda own: own | {"groups": [[0, 1]]},
    "an index that is not due": lambda own: own | {"index": [[0, 1]]},
    "words": lambda own: own | {"groups": [["0"], ["1"]]},
}


@pytest.mark.parametrize("odd", GROUPS)
def test_groups_that_are_none_are_refused_and_nothing_is_charged(odd: str) -> None:
    fed = federation(bits_frame(30, 4), 2, Budget(3.0, 0.0))

    def change(name: str, ask: Any) -> Any:
        if not isinstance(ask, Propose) or ask.stage != "pairs":
            return ask
        return replace(
            ask, terms=ask.terms | {"holder 1": GROUPS[odd](ask.terms["holder 1"])}
        )

    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        dplt.train(
            Config(group=1), Crooked(fed.parties("dplt", run="r"), change), fed.schemas
        )
    assert len(fed.holders["holder 0"].ledger.spend()) == 1


def told_edges(edges: Any) -> Any:
    """A change: another tree."""

    def change(name: str, ask: Any) -> Any:
        tree = isinstance(ask, Propose) and ask.stage == "tree"
        own = edges[name] if isinstance(edges, dict) else edges
        return replace(ask, terms=ask.terms | {"edges": own}) if tree else ask

    return change


def narrower(ask: Begin) -> Begin:
    """Holder 0 has one column only, it says."""
    schema = Schema.from_dict(ask.schemas["holder 0"])
    return replace(
        ask,
        schemas=ask.schemas | {"holder 0": schema.select(schema.names[:1]).to_dict()},
    )


def another_key(ask: Agree) -> Agree:
    return replace(ask, keys=ask.keys | {"holder 2": KeyPair(b"k" * 32).public})


LIES = {
    "a party has fewer columns": (Begin, narrower),
    "larger groups are asked for": (
        Begin,
        lambda ask: replace(ask, config=ask.config | {"group": 4}),
    ),
    "the first step takes more": (
        Begin,
        lambda ask: replace(ask, config=ask.config | {"split": (8, 1, 1)}),
    ),
    "the parties are in another order": (
        Begin,
        lambda ask: replace(ask, schemas=dict(reversed(ask.schemas.items()))),
    ),
    "the price is lower": (
        Agree,
        lambda ask: replace(ask, noise=[3 * one for one in ask.noise]),
    ),
    "chunks are smaller": (Agree, lambda ask: replace(ask, chunk=8)),
    "a third party has another key": (Agree, another_key),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_tells_one_party_something_else_is_refused_before_anything_is_charged(
    lie: str,
) -> None:
    fed = federation(bits_frame(30, 12), 3, Budget(3.0, 0.0))
    inside: Any = fed.parties("dplt", run="r")
    kind, change_one = LIES[lie]
    change = of_kind(kind, to("holder 1", change_one))
    with pytest.raises(
        MessageError, match=r"told different things|was told other keys"
    ):
        dplt.train(Config(group=2), Crooked(inside, change), fed.schemas)
    for holder in fed.holders.values():
        assert holder.ledger.spend() == {}


def test_greetings_that_are_missing_repeated_or_sent_back_are_refused_before_anything_is_charged():
    for change in (
        lambda inbox, _: {},
        lambda inbox, other: {"holder 1": other["holder 0"]},  # its own greeting
        lambda inbox, _: {"holder 1": inbox["holder 1"].flip(0)},
    ):
        inside, _, groups = parties_at("group", Budget(3.0, 0.0))
        one = inside["holder 0"]
        asks = [groups[name].inbox for name in ("holder 0", "holder 1")]
        with pytest.raises(MessageError, match=r"handshake|repeated"):
            one.answer(due("groups", change(*asks)))
        assert one.ledger.spend() == {}
        one.answer(groups["holder 0"])  # the right one may still come, and once
        with pytest.raises(MessageError, match="not expected"):
            one.answer(groups["holder 0"])


def test_edges_that_are_no_tree_are_refused_and_nothing_is_charged() -> None:
    fed = federation(bits_frame(30, 4), 2, Budget(3.0, 0.0))

    cyclic = told_edges(torch.tensor([[0, 1], [1, 0], [0, 2]]))
    with pytest.raises(MessageError, match="no tree"):
        dplt.train(
            Config(group=1), Crooked(fed.parties("dplt", run="r"), cyclic), fed.schemas
        )
    assert len(fed.holders["holder 0"].ledger.spend()) == 2


def test_holders_who_are_told_other_trees_part_before_anything_is_charged() -> None:
    """A server that deals the masks could else put together shares of different pairs,
    and test guesses of rows.
    """
    mine = torch.tensor([[0, 3], [0, 1], [1, 2], [3, 4], [4, 5]])
    # the same pair across the two
    other = torch.tensor([[0, 3], [0, 1], [0, 2], [3, 4], [4, 5]])
    fed = federation(bits_frame(40, 6), 2, Budget(3.0, 0.0))
    lie = told_edges({"holder 0": mine, "holder 1": other})
    with pytest.raises(MessageError, match="was told other terms"):
        dplt.train(
            Config(group=1), Crooked(fed.parties("dplt", run="r"), lie), fed.schemas
        )
    assert [len(holder.ledger.spend()) for holder in fed.holders.values()] == [2, 2]


@pytest.mark.parametrize(
    "edges", [torch.zeros(7, dtype=torch.int64), torch.zeros(3, 2), torch.zeros(())]
)
def test_edges_that_are_no_pairs_are_refused_and_nothing_is_charged(
    edges: torch.Tensor,
) -> None:
    fed = federation(bits_frame(30, 4), 2, Budget(3.0, 0.0))

    odd = Crooked(fed.parties("dplt", run="r"), told_edges(edges))
    with pytest.raises(MessageError, match="no tree"):
        dplt.train(Config(group=1), odd, fed.schemas)
    assert len(fed.holders["holder 0"].ledger.spend()) == 2


def test_another_schema_is_refused() -> None:
    inside, _, begin = parties_at("begin")
    strange = begin.schemas | {"holder 0": begin.schemas["holder 1"]}
    with pytest.raises(SchemaError, match="another schema"):
        inside["holder 0"].answer(replace(begin, schemas=strange))


def test_a_budget_without_end_needs_the_word_that_nothing_is_private() -> None:
    with pytest.raises(PrivacyError, match="private=False"):
        train("dplt", federation(bits_frame(10, 4)))


def test_a_party_without_two_levels_is_named_before_anyone_is_asked() -> None:
    tables, schemas = cut(bits_frame(10, 2), 2)
    schemas["holder 1"] = Schema(columns=(Categorical(name="b1", categories=("x",)),))
    tables["holder 1"] = pd.DataFrame({"b1": ["x"] * 10})
    fed = Federation.rehearsal(tables, schemas, budget=Budget(1.0, 0.0))
    with pytest.raises(ConfigError, match="holder 1"):
        train("dplt", fed)
    assert not fed.holders["holder 0"].ledger.entries()[1:]


@pytest.mark.parametrize(
    "bad",
    [
        {"group": 0},
        {"split": (1.0, 1.0)},
        {"split": (1.0, 0.0, 1.0)},
        {"chunk": 0},
        {"seed": -1},
    ],
)
def test_settings_without_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Config(**bad)


# The tree's parts


def test_levels_are_written_in_binary_and_read_back() -> None:
    schema = Schema(
        columns=(
            Integer(name="a", low=0, high=4),
            Boolean(name="b"),
            Categorical(name="c", categories=("x",)),
        )
    )
    codes = np.array([[a, b, 0] for a in range(5) for b in range(2)], dtype=np.int32)
    sizes = Codec(schema).sizes
    bits = to_bits(codes, sizes)
    assert bits.shape == (10, 4)
    assert [
        int("".join("01"[b] for b in row[:3]), 2) for row in bits.astype(int)
    ] == codes[:, 0].tolist()
    network = build_network(
        sizes, {(0, 1): np.eye(2), (0, 2): np.eye(2), (0, 3): np.eye(2)}, 0
    )
    rows = network.rows(torch.where(torch.from_numpy(bits), 9.0, -9.0))
    assert rows.shape == (10, 8)
    assert set(rows[:, :5].argmax(1).tolist()) <= set(range(5))


def test_information_is_the_textbooks_and_takes_no_negative_count() -> None:
    table = np.array([[30.0, 10.0], [20.0, 40.0]])
    share = table / 100
    expected = (share * np.log(share / np.outer(share.sum(1), share.sum(0)))).sum()
    found = information(
        np.stack(
            [
                table,
                np.zeros((2, 2)),
                np.array([[-5.0, 0], [0, 7]]),
                np.full((2, 2), 3.0),
            ]
        )
    )
    np.testing.assert_allclose(found, [expected, 0, 0, 0], atol=1e-12)


def test_the_spanning_tree_is_the_heaviest_of_all() -> None:
    weights = np.random.default_rng(3).random((5, 5))
    weights = weights + weights.T
    weights[0, 3] = weights[3, 0] = -np.inf
    pairs = list(itertools.combinations(range(5), 2))
    best = -np.inf
    for edges in itertools.combinations(pairs, 4):
        reached = {0}
        for _ in edges:
            reached |= {node for edge in edges if reached & set(edge) for node in edge}
        if len(reached) == 5:
            best = max(best, sum(weights[edge] for edge in edges))
    tree = spanning_tree(weights)
    assert is_tree(tree, 5)
    assert sum(weights[edge] for edge in tree) == pytest.approx(best)
    assert not is_tree(tree[:-1], 5)
    assert not is_tree([*tree[:-1], tree[0]], 5)
    assert not is_tree([(0, 9)], 2)


def test_edges_are_split_by_party_with_the_first_party_first() -> None:
    parts = split_edges([(0, 1), (3, 0), (1, 2), (2, 3)], {"x": 2, "y": 2})
    assert parts == {
        ("x", "x"): [(0, 1)],
        ("x", "y"): [(0, 1), (1, 0)],
        ("y", "y"): [(0, 1)],
    }


def test_noisy_rows_without_counts_take_the_odds_of_all_rows() -> None:
    assert conditional_counts(np.array([[-3.0, -1.0], [6.0, 2.0]])).tolist() == [
        [3.0, 1.0],
        [6.0, 2.0],
    ]
    assert conditional_counts(np.array([[-3.0, -1.0], [-6.0, -2.0]])).tolist() == [
        [1.0, 1.0],
        [1.0, 1.0],
    ]


def test_pure_events_are_charged() -> None:
    paid = events(Config(), cut(bits_frame(4, 6), 2)[1], 1.0)
    assert all(isinstance(event, PureDp) for event in paid)

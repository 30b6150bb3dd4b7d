"""Gram with three-way tables of the target that the first release chose."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from gram_cases import (
    BUDGET,
    FRAME,
    FREE,
    SCHEMA,
    SMALL,
    Plan,
    Released,
    Seen,
    all_parties,
    asked,
    by_columns,
    by_grid,
    by_rows,
    cells,
    party,
    release,
    told,
)
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Grid
from understudy.ground.errors import ConfigError, MessageError
from understudy.privacy.accounts.accounting import DiscreteGaussian, epsilon
from understudy.protocols.gram import layout as gram_layout
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.joint.messages import Propose, Release, Swap, Swapped
from understudy.runtime.local import LocalParties

TARGET = SCHEMA.names[2]
PLAN = Plan(target=TARGET, first_pass_share=0.6, target_triples=2)
CUTS = [lambda: by_columns(2), lambda: by_rows(3), by_grid, lambda: by_columns(3)]
ACROSS = [CUTS[0], CUTS[2], CUTS[3]]


def beside(schemas: Any) -> Tensor:
    return Layout(schemas).tables_beside(TARGET)


def first(found: Released, pairs: Tensor, most: int, noise: float) -> Tensor:
    """As many pairs as there may be, the first ones."""
    return pairs[:most]


def mixed(found: Released, pairs: Tensor, most: int, noise: float) -> Tensor:
    """The first, the last, and some between: of one holder, and of two in either
    way.
    """
    return pairs[:: max(1, (len(pairs) - 1) // (most - 1))][:most]


def most(schemas: Any, plan: Plan = PLAN) -> int:
    return Gram(plan, schemas).most_triples


def counts(names: list[str]) -> Tensor:
    codec = Codec(SCHEMA.select(names))
    table = torch.zeros(codec.sizes, dtype=torch.int64)
    for row in codec.codes(FRAME).tolist():
        table[tuple(row)] += 1
    return table


@pytest.mark.parametrize("cut", CUTS)
def test_chosen_tables_are_exact_without_noise(cut: Any) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas, budget=FREE)
    plan = replace(PLAN, private=False, target_triples=6)
    found = release(LocalParties(parties), schemas, plan, choose_triples=mixed, chunk=7)
    names = Grid.from_schemas(schemas).join(schemas).names
    chosen = mixed(found, beside(schemas), 6, 0.0)
    assert len(found.triples) == len(chosen) == 6
    for one, pair in zip(found.triples, chosen.tolist(), strict=True):
        assert one["columns"] == [*pair, names.index(TARGET)]
        assert torch.equal(
            one["table"], counts([names[place] for place in one["columns"]])
        )


@pytest.mark.long
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("used", [True, False], ids=["all of them", "none of them"])
def test_the_price_is_that_of_as_many_as_were_agreed_on(cut: Any, used: bool) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)

    def none(found: Released, pairs: Tensor, most: int, noise: float) -> Tensor:
        return torch.empty(0, 2, dtype=torch.int64)

    found = release(
        LocalParties(parties), schemas, PLAN, choose_triples=mixed if used else none
    )
    *before, (_, again) = found.releases
    assert (sum(count for _, count in before), again) == (
        cells(),
        len(SCHEMA.columns) - 1 + most(schemas),
    )
    price = {DiscreteGaussian(sigma): int(count) for sigma, count in found.releases}
    assert 0.98 * BUDGET.epsilon <= epsilon(price, BUDGET.delta) <= BUDGET.epsilon
    assert all(one.ledger.spend() == price for one in parties.values())
    assert all(one["noise"] > 0 for one in found.triples)


BAD = {
    "more than agreed": torch.tensor([[0, 1], [0, 3], [1, 3]]),
    "one twice": torch.tensor([[0, 1], [0, 1]]),
    "turned": torch.tensor([[1, 0]]),
    "a column with itself": torch.tensor([[1, 1]]),
    "the target itself": torch.tensor([[0, 2]]),
    "no such column": torch.tensor([[0, 8]]),
    "below the first": torch.tensor([[-1, 0]]),
    "no whole numbers": torch.tensor([[0.0, 1.0]]),
    "no pairs": torch.tensor([0, 1]),
    "threes": torch.zeros(1, 3).long(),
}


def test_other_tables_than_were_agreed_on_are_refused_and_not_charged() -> None:
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)
    tried = []

    def odd(name: str, message: Any) -> Any:
        if isinstance(message, Propose):
            for why, tables in BAD.items():
                with pytest.raises(MessageError, match="at most 2 different tables"):
                    parties[name].answer(
                        replace(message, terms=message.terms | {"tables": tables})
                    )
                tried.append(why)
            assert parties[name].ledger.spend().total() == cells(), (
                "the first release alone"
            )
        return message

    release(Seen(parties, odd), schemas, PLAN, choose_triples=first)
    assert len(tried) == 2 * len(BAD)


def test_a_table_of_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram_layout, "MOST_CELLS", 3)
    tables, schemas = by_rows(2)
    with pytest.raises(MessageError, match="of up to 3 cells"):
        release(
            LocalParties(all_parties(tables, schemas)),
            schemas,
            PLAN,
            choose_triples=first,
        )


def test_tables_that_nobody_agreed_on_are_refused() -> None:
    tables, schemas = by_rows(2)

    def odd(name: str, message: Any) -> Any:
        return tables_told(message, [[0, 1]])

    plan = replace(PLAN, target_triples=0, remeasured_pairs=1)
    with pytest.raises(MessageError, match="no three-way table was due"):
        release(
            Seen(all_parties(tables, schemas), odd),
            schemas,
            plan,
            choose=lambda found, besides: torch.tensor([[0, 1]]),
        )


def test_columns_of_three_holders_are_refused() -> None:
    tables, schemas = by_columns(3)
    layout = Layout(schemas)
    every = torch.combinations(
        torch.tensor([n for n in range(8) if layout.joint.names[n] != TARGET])
    )
    odd = next(
        pair
        for pair in every.tolist()
        if pair not in layout.tables_beside(TARGET).tolist()
    )
    with pytest.raises(MessageError, match="in two groups of holders or one"):
        release(
            LocalParties(all_parties(tables, schemas)),
            schemas,
            PLAN,
            choose_triples=lambda *_: torch.tensor([odd]),
        )


def tables_told(message: Any, tables: list[list[int]]) -> Any:
    """The proposal, of these tables."""
    if not isinstance(message, Propose):
        return message
    return replace(message, terms=message.terms | {"tables": torch.tensor(tables)})


def test_a_server_that_asks_holders_for_other_tables_than_each_other_gets_none():
    tables, schemas = by_rows(3)
    parties = all_parties(tables, schemas)

    def apart(name: str, message: Any) -> Any:
        return tables_told(message, [[4, 5], [4, 6]]) if name == "host 1" else message

    seen = Seen(parties, apart)
    with pytest.raises(MessageError, match="told other terms"):
        release(seen, schemas, PLAN, choose_triples=first)
    assert not any(asked(ask, "again") for _, ask, _ in seen.log), (
        "nothing came out of the second release"
    )


def test_without_a_target_or_with_two_columns_beside_nothing_is_chosen() -> None:
    _, schemas = by_rows(2)
    assert most(schemas, Plan(target_triples=5)) == 0
    # two columns are with the target, two with others, and three with others again
    _, schemas = by_grid()
    assert most(schemas, Plan(target=TARGET, target_triples=99)) == 1 + 2 * 5 + 1 + 3


@pytest.mark.parametrize("many", [-1, 1.5, True, "all"])
def test_a_number_of_tables_that_is_none_is_refused_and_nothing_is_charged(
    many: Any,
) -> None:
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)

    def odd(name: str, message: Any) -> Any:
        return told(message, target_triples=many)

    with pytest.raises(ConfigError, match="target_triples"):
        release(Seen(parties, odd), schemas, PLAN, choose_triples=first)
    assert not any(one.ledger.entries()[1:] for one in parties.values())


@pytest.mark.parametrize(
    ("target", "people", "wanted", "due"),
    [
        (TARGET, 10_000, None, 4),
        (TARGET, 9_999, None, 0),
        (TARGET, None, None, 0),
        (None, 10**6, None, 0),
        (TARGET, 10**400, 0, 0),
        (TARGET, 50, 3, 3),
    ],
)
def test_by_default_tables_are_chosen_where_many_people_are_public(
    target: str | None, people: int | None, wanted: int | None, due: int
) -> None:
    assert (
        Plan(target=target, public_people=people, target_triples=wanted).most_triples
        == due
    )


def test_a_server_that_asks_for_more_tables_than_the_settings_say_is_refused() -> None:
    tables, schemas = by_rows(2)
    config = Plan(target=TARGET, target_triples=1)
    parties = all_parties(tables, schemas, **gram.PROTOCOL.agreed(config))
    with pytest.raises(MessageError, match="target_triples=2"):
        release(
            LocalParties(parties),
            schemas,
            replace(config, target_triples=2),
            choose_triples=first,
        )


def test_a_whole_run_chooses_by_what_was_released_and_its_plan_says_so() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(
        tables, schemas, budget=(budget := replace(BUDGET, epsilon=200.0))
    )
    config = gram.Config(target=TARGET, target_triples=2, fine=0, **SMALL)
    outcome = gram.train(config, seen := Seen(parties), schemas)
    stages = [getattr(ask, "stage", type(ask)) for _, ask, _ in seen.log]
    assert Swap in stages[stages.index("again") :], "some lie across holders"
    release_card = outcome.trained.card["release"]
    assert "three-way tables" in str(release_card)
    for name, one in parties.items():
        assert one.ledger.spent() == pytest.approx(outcome.privacy.epsilon(name))
        assert one.ledger.spent() <= budget.epsilon
    said = gram.forecast(config, schemas, dict.fromkeys(schemas, budget), 30)
    assert f"up to 2 three-way tables with {TARGET}" in said.stages[-1].what
    assert said.stages[-1].moved == len(SCHEMA.columns) - 1 + 2


# Tables across holders


def crossing(found: Released, pairs: Tensor, most: int, noise: float) -> Tensor:
    """The last ones, which lie across holders."""
    return pairs[-most:]


@pytest.mark.parametrize("cut", ACROSS)
def test_a_table_across_holders_has_the_noise_of_both_and_what_crosses_is_in_the_ledger(
    cut: Any,
) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    found = release(LocalParties(parties), schemas, PLAN, choose_triples=crossing)
    joint = Grid.from_schemas(schemas).join(schemas).names
    layout = Layout(schemas)
    crossed = set[str]()
    for one in found.triples:
        place = layout.place([joint[column] for column in one["columns"]])
        assert place is not None
        assert place.across
        crossed |= {*layout.grid.holders(place.block)}
        holders = len(layout.grid.holders(place.block))
        assert one["noise"] == pytest.approx(
            found.sigmas[-1] * (holders / (holders - 1)) ** 0.5, rel=0.01
        )
    for name, each in parties.items():
        said = [entry.description for entry in each.ledger.entries()]
        assert sum("masked rows" in what and "once more" in what for what in said) == (
            name in crossed
        )
        assert "some pairs of the joint Gram matrix once more" in said[-1]


def changed(kind: Any, **other: Any) -> Any:
    """A server that tells one holder something else in asks of this kind, about the
    second release.
    """

    def meddle(name: str, message: Any) -> Any:
        if name != "holder 1" or not isinstance(message, kind):
            return message
        if "tables" in other:
            return tables_told(message, other["tables"])
        later = asked(message, "again") or (
            isinstance(message, Swap) and "again" in seen_stages
        )
        return replace(message, **other) if later else message

    seen_stages: set[str] = set()

    def noting(name: str, message: Any) -> Any:
        seen_stages.add(getattr(message, "stage", ""))
        return meddle(name, message)

    return noting


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (changed(Propose, tables=[[0, 2]]), "told other terms"),
        (changed(Swap, inbox={}), "missing or too many"),
        (changed(Release, inbox={}), "missing or too many"),
        (changed(Release, corrections={}), "correction is missing"),
    ],
)
def test_tables_across_holders_are_those_that_all_were_told_of(
    told: Any, said: str
) -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    with pytest.raises(MessageError, match=said):
        release(Seen(parties, told), schemas, PLAN, choose_triples=crossing)
    spent = parties["holder 1"].ledger.spend().total()
    assert spent == cells(), "the first release alone"


def test_masks_are_for_the_tables_that_were_proposed_and_for_no_others() -> None:
    """A party that a server puts back, and asks for other tables, hides them under
    other masks.
    """
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    seeds: list[bytes] = []

    def look(name: str, message: Any) -> Any:
        session = parties[name].agreement
        if isinstance(message, Swapped) and name == "holder 0":
            seeds.append(session.products.factors["holder 1"].seed)  # type: ignore[union-attr]
        return message

    for chosen in (crossing, mixed):
        release(
            Seen(parties, look), schemas, PLAN, choose_triples=chosen, secret=bytes(32)
        )
        parties = all_parties(tables, schemas)  # of the same seed: with the same keys
    assert len(seeds) == 4
    assert len(set(seeds)) == 3, (
        "the first product's, in both runs, and those of two choices of tables"
    )


def test_a_party_that_was_stopped_before_any_of_its_answers_goes_on_from_its_state():
    tables, schemas = by_columns(2)
    plan = replace(PLAN, private=False)

    def released(*, stopped: bool) -> Released:
        parties = all_parties(tables, schemas, budget=FREE)

        def stop(name: str, message: Any) -> Any:
            if stopped and isinstance(message, Propose | Swap | Release):
                state = parties[name].state_dict()
                seen.parties[name] = parties[name] = party(
                    name, tables, schemas, budget=FREE
                )
                parties[name].load_state_dict(state)
            return message

        seen = Seen(parties, stop)
        return release(seen, schemas, plan, choose_triples=crossing, chunk=11)

    for one, other in zip(
        released(stopped=True).triples, released(stopped=False).triples, strict=True
    ):
        assert torch.equal(one["table"], other["table"])


def test_tables_that_were_not_multiplied_are_not_released() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    within = torch.tensor([[0, 2]])

    def odd(name: str, message: Any) -> Any:
        """The server chose a table within a holder, and proposes one across."""
        return tables_told(message, [[0, 5]])

    with pytest.raises(MessageError, match="was not expected"):
        release(Seen(parties, odd), schemas, PLAN, choose_triples=lambda *_: within)
    assert all(one.ledger.spend().total() == cells() for one in parties.values()), (
        "the first release alone"
    )

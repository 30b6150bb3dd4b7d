"""Gram with three-way tables of the target that the first release chose."""

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from gram_cases import (
    BUDGET,
    FRAME,
    FREE,
    SCHEMA,
    SMALL,
    Seen,
    all_parties,
    by_columns,
    by_grid,
    by_rows,
    cells,
    party,
)
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.grid import Grid
from understudy.ground.errors import ConfigError, MessageError
from understudy.privacy.accounts.accounting import DiscreteGaussian, epsilon
from understudy.protocols.core.products import Swap
from understudy.protocols.gram import layout as gram_layout
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.messages import Begin, Propose, Refine, Widen
from understudy.protocols.gram.releases import Plan, Released, release
from understudy.runtime.local import LocalParties

TARGET = SCHEMA.names[2]
PLAN = Plan(target=TARGET, scouting=0.6, chosen_triples=2)
CUTS = [lambda: by_columns(2), lambda: by_rows(3), by_grid, lambda: by_columns(3)]
ACROSS = [CUTS[0], CUTS[2], CUTS[3]]


def beside(schemas: Any) -> Tensor:
    return Layout(schemas).beside(TARGET)


def first(found: Released, pairs: Tensor, most: int, noise: float) -> Tensor:
    """As many pairs as there may be, the first ones."""
    return pairs[:most]


def mixed(found: Released, pairs: Tensor, most: int, noise: float) -> Tensor:
    """The first, the last, and some between: of one holder, and of two in either way."""
    return pairs[:: max(1, (len(pairs) - 1) // (most - 1))][:most]


def most(schemas: Any, plan: Plan = PLAN) -> int:
    return Layout(schemas).choosable(TARGET, plan.chosen_triples)


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
    plan = replace(PLAN, private=False, chosen_triples=6)
    found = release(LocalParties(parties), schemas, plan, choose_triples=mixed, chunk=7)
    names, chosen = Grid.of(schemas).join(schemas).names, mixed(found, beside(schemas), 6, 0.0)
    assert len(found.triples) == len(chosen) == 6
    for one, pair in zip(found.triples, chosen.tolist(), strict=True):
        assert one["columns"] == [*pair, names.index(TARGET)]
        assert torch.equal(one["table"], counts([names[place] for place in one["columns"]]))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("used", [True, False], ids=["all of them", "none of them"])
def test_the_price_is_that_of_as_many_as_were_agreed_on(cut: Any, used: bool) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)

    def none(found: Released, pairs: Tensor, most: int, noise: float) -> Tensor:
        return torch.empty(0, 2, dtype=torch.int64)

    found = release(LocalParties(parties), schemas, PLAN, choose_triples=mixed if used else none)
    *before, (_, again) = found.releases
    assert (sum(count for _, count in before), again) == (cells(), len(SCHEMA.columns) - 1 + most(schemas))
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
        if isinstance(message, Propose | Refine):
            for why, triples in BAD.items():
                with pytest.raises(MessageError, match="at most 2 different pairs"):
                    parties[name].answer(replace(message, triples=triples))
                tried.append((type(message), why))
            assert parties[name].ledger.spend().total() == cells(), "the first release alone"
        return message

    release(Seen(parties, odd), schemas, PLAN, choose_triples=first)
    assert len(tried) == 2 * 2 * len(BAD)


def test_a_table_of_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram_layout, "MOST_CELLS", 3)
    tables, schemas = by_rows(2)
    with pytest.raises(MessageError, match="more than 3 cells"):
        release(LocalParties(all_parties(tables, schemas)), schemas, PLAN, choose_triples=first)


def test_tables_that_nobody_agreed_on_are_refused() -> None:
    tables, schemas = by_rows(2)

    def odd(name: str, message: Any) -> Any:
        return replace(message, triples=torch.tensor([[0, 1]])) if isinstance(message, Refine) else message

    with pytest.raises(MessageError, match="no three-way table was due"):
        release(Seen(all_parties(tables, schemas), odd), schemas, replace(PLAN, chosen_triples=0))


def test_columns_of_three_holders_are_refused() -> None:
    tables, schemas = by_columns(3)
    layout = Layout(schemas)
    every = torch.combinations(torch.tensor([n for n in range(8) if layout.joint.names[n] != TARGET]))
    odd = next(pair for pair in every.tolist() if pair not in layout.beside(TARGET).tolist())
    with pytest.raises(MessageError, match="in two groups of holders or one"):
        release(
            LocalParties(all_parties(tables, schemas)),
            schemas,
            PLAN,
            choose_triples=lambda *_: torch.tensor([odd]),
        )


@pytest.mark.parametrize(
    "told", [(Propose, Refine), (Propose,), (Refine,)], ids=["both", "proposed", "asked"]
)
def test_a_server_that_asks_holders_for_other_tables_than_each_other_gets_none(told: Any) -> None:
    tables, schemas = by_rows(3)
    parties = all_parties(tables, schemas)

    def apart(name: str, message: Any) -> Any:
        if isinstance(message, told) and name == "host 1":
            return replace(message, triples=torch.tensor([[4, 5], [4, 6]]))
        return message

    seen = Seen(parties, apart)
    with pytest.raises(MessageError, match=r"told other pairs|other pairs were proposed"):
        release(seen, schemas, PLAN, choose_triples=first)
    assert not seen.replies(Refine), "nothing came out of the second release"


def test_without_a_target_or_with_two_columns_beside_nothing_is_chosen() -> None:
    _, schemas = by_rows(2)
    assert Layout(schemas).choosable(None, 5) == 0
    _, schemas = by_grid()  # two columns are with the target, two with others, and three with others again
    assert Layout(schemas).choosable(TARGET, 99) == 1 + 2 * 5 + 1 + 3


@pytest.mark.parametrize("many", [-1, 1.5, True, "all"])
def test_a_number_of_tables_that_is_none_is_refused_and_nothing_is_charged(many: Any) -> None:
    tables, schemas = by_rows(2)
    parties = all_parties(tables, schemas)

    def odd(name: str, message: Any) -> Any:
        return replace(message, chosen_triples=many) if isinstance(message, Begin) else message

    with pytest.raises(ConfigError, match="chosen_triples"):
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
    config = gram.Config(target=target, public_people=people, chosen_triples=wanted)
    assert config.plan.chosen_triples == due
    tables, schemas = by_rows(2)
    told = asdict(config)
    release(
        LocalParties(all_parties(tables, schemas)), schemas, config.plan, config=told, choose_triples=first
    )
    other = replace(config.plan, chosen_triples=due + 1)
    with pytest.raises(
        MessageError, match=f"chosen_triples={due + 1} was asked for, and {due} was agreed to"
    ):
        release(LocalParties(all_parties(tables, schemas)), schemas, other, config=told)


def test_a_server_that_asks_for_more_tables_than_the_settings_say_is_refused() -> None:
    tables, schemas = by_rows(2)
    config = gram.Config(target=TARGET, chosen_triples=1)
    parties = all_parties(tables, schemas, **gram.PROTOCOL.agreed(config))
    with pytest.raises(MessageError, match="chosen_triples=2 was asked for, and 1 was agreed to"):
        release(LocalParties(parties), schemas, replace(config.plan, chosen_triples=2), choose_triples=first)


def test_a_whole_run_chooses_by_what_was_released_and_its_plan_says_so() -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas, budget=(budget := replace(BUDGET, epsilon=200.0)))
    config = gram.Config(target=TARGET, chosen_triples=2, fine=0, **SMALL)
    outcome = gram.train(config, seen := Seen(parties), schemas)
    assert seen.replies(Widen), "some lie across holders"
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
def test_a_table_across_holders_has_the_noise_of_both_and_what_crosses_is_in_the_ledger(cut: Any) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)
    found = release(LocalParties(parties), schemas, PLAN, choose_triples=crossing)
    joint, layout = Grid.of(schemas).join(schemas).names, Layout(schemas)
    for one in found.triples:
        place = layout.place([joint[column] for column in one["columns"]])
        assert place is not None
        assert place.across
        holders = len(layout.holders(place.block))
        assert one["noise"] == pytest.approx(found.sigmas[-1] * (holders / (holders - 1)) ** 0.5, rel=0.01)
    for each in parties.values():
        said = [entry.what for entry in each.ledger.entries()]
        assert sum("for three-way tables" in what for what in said) == 1
        assert "some pairs once more" in said[-1]


def apart(kind: Any, **other: Any) -> Any:
    """A server that tells one holder something else in messages of this kind."""

    def meddle(name: str, message: Any) -> Any:
        return replace(message, **other) if isinstance(message, kind) and name == "holder 1" else message

    return meddle


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (apart(Propose, triples=torch.tensor([[0, 2]])), "other pairs"),
        (apart(Widen, triples=torch.tensor([[0, 2]])), "other pairs were proposed"),
        (apart(Widen, inbox={}), "missing or too many"),
        (apart(Refine, triples=torch.tensor([[0, 2]])), "other pairs were proposed"),
        (apart(Refine, inbox={}), "missing or too many"),
        (apart(Refine, corrections={}), "correction is missing"),
    ],
)
def test_tables_across_holders_are_those_that_all_were_told_of(told: Any, said: str) -> None:
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    with pytest.raises(MessageError, match=said):
        release(Seen(parties, told), schemas, PLAN, choose_triples=crossing)
    spent = parties["holder 1"].ledger.spend().total()
    assert spent == cells(), "the first release alone"


def test_masks_are_for_the_tables_that_were_proposed_and_for_no_others() -> None:
    """A party that a server puts back, and asks for other tables, hides them under other masks."""
    tables, schemas = by_columns(2)
    parties = all_parties(tables, schemas)
    seeds: list[bytes] = []

    def look(name: str, message: Any) -> Any:
        agreement = parties[name].agreement
        if isinstance(message, Swap) and name == "holder 0":
            seeds.append(agreement.products.factors["holder 1"].seed)  # type: ignore[union-attr]
        return message

    for chosen in (crossing, mixed):
        release(Seen(parties, look), schemas, PLAN, choose_triples=chosen, secret=bytes(32))
        parties = all_parties(tables, schemas)  # of the same seed: with the same keys
    assert len(seeds) == 4
    assert len(set(seeds)) == 3, "the first product's, in both runs, and those of two choices of tables"


def test_a_party_that_was_stopped_before_any_of_its_answers_goes_on_from_its_state() -> None:
    tables, schemas = by_columns(2)
    plan = replace(PLAN, private=False)

    def released(*, stopped: bool) -> Released:
        parties = all_parties(tables, schemas, budget=FREE)

        def stop(name: str, message: Any) -> Any:
            if stopped and isinstance(message, Widen | Swap | Refine):
                state = parties[name].state_dict()
                seen.parties[name] = parties[name] = party(name, tables, schemas, budget=FREE)
                parties[name].load_state_dict(state)
            return message

        seen = Seen(parties, stop)
        return release(seen, schemas, plan, choose_triples=crossing, chunk=11)

    for one, other in zip(released(stopped=True).triples, released(stopped=False).triples, strict=True):
        assert torch.equal(one["table"], other["table"])


@pytest.mark.parametrize(
    ("cut", "said"), [(CUTS[0], "gram.widen was not expected"), (CUTS[1], "no table lies across")]
)
def test_tables_are_multiplied_once_and_only_where_some_lie_across(cut: Any, said: str) -> None:
    tables, schemas = cut()
    parties = all_parties(tables, schemas)

    def widen(name: str, message: Any) -> Any:
        if isinstance(message, Refine):
            parties[name].answer(Widen(pairs=message.pairs, triples=message.triples, inbox={}))
        return message

    seen = Seen(parties, widen)
    with pytest.raises(MessageError, match=said):
        release(seen, schemas, PLAN, choose_triples=crossing)
    assert not seen.replies(Refine)


def test_tables_that_were_not_multiplied_are_not_released() -> None:
    tables, schemas = by_columns(2)
    parties, within = all_parties(tables, schemas), torch.tensor([[0, 2]])

    def odd(name: str, message: Any) -> Any:
        """The server chose a table within a holder, and proposes one across."""
        asked = isinstance(message, Propose | Refine)
        return replace(message, triples=torch.tensor([[0, 5]])) if asked else message

    with pytest.raises(MessageError, match="were not multiplied"):
        release(Seen(parties, odd), schemas, PLAN, choose_triples=lambda *_: within)
    assert all(one.ledger.spend().total() == cells() for one in parties.values()), "the first release alone"

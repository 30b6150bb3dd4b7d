"""Visits over a grid: holders of the same columns, each with people of its own, beside
holders of other columns.
"""

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any

import pandas as pd
import pytest
import torch

from bytes_parties import BytesParties
from understudy.api.plan import plan
from understudy.api.train import train
from understudy.ground.errors import (
    AlignmentError,
    ConfigError,
    MessageError,
    PartyAway,
    SchemaError,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.sums import Channel
from understudy.protocols.joint import pricing
from understudy.protocols.joint.messages import Agree, Begin, Release, Swap
from understudy.protocols.joint.pricing import Pricing
from understudy.protocols.joint.server import Measurements
from understudy.protocols.visits import protocol as visits
from understudy.protocols.visits.columns import grid_of
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties, addressed
from visit_cases import (
    AMPLE,
    SMALL,
    USUAL,
    beside_visits,
    cells_of,
    clinic,
    frames,
    joined,
    measured,
    split_rows,
    study_of,
    two_kinds,
)

OPEN = visits.Config(**SMALL, private=False)
Cut = tuple[dict[str, Any], dict[str, Any]]


def grid(people: int = 60, **parts: int) -> Cut:
    """By default: visits and smoking at two clinics, income at two banks, and sex at a
    registry of all people.
    """
    return split_rows(*beside_visits(people), **(parts or {"clinic": 2, "bank": 2}))


class Meddling(LocalParties):
    """A server that changes what it asks; it remembers what came back."""

    def __init__(self, parties: Any, change: Any = lambda name, ask: ask) -> None:
        super().__init__(parties)
        self.change = change
        self.seen = list[tuple[str, Any, Any]]()

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        asks = {
            name: self.change(name, ask)
            for name, ask in addressed(message, self.names).items()
        }
        replies = super().ask(asks, min_holders=min_holders)
        self.seen += [(name, asks[name], reply) for name, reply in replies.items()]
        return replies


def released(
    cut: Cut,
    config: visits.Config = OPEN,
    budget: Budget = AMPLE,
    change: Any = lambda name, ask: ask,
) -> tuple[Measurements, Federation, Meddling]:
    fed = Federation.rehearsal(*cut, budget=budget, seed=3)
    server = Meddling(fed.parties("visits", run="r", config=config), change)
    return measured(server, fed.schemas, config), fed, server


@cache
def by_columns() -> Measurements:
    """One holder of each column; people have more events than parts divide by, so that
    rounding would show.
    """
    return released(split_rows(*beside_visits(most_events=4)))[0]


@cache
def with_noise() -> tuple[
    Measurements, Federation, Meddling, Counter[tuple[str, str, int]]
]:
    """A run over the grid, and how often who drew which pads for whom."""
    drawn = Counter[tuple[str, str, int]]()
    mask = Channel.mask

    def counted(
        line: Channel, ring: Any, stream: int, *shape: int, about: bytes
    ) -> Any:
        drawn[line.name, line.peer, stream] += 1
        return mask(line, ring, stream, *shape, about=about)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, "mask", counted)
        return *released(grid(), visits.Config(**SMALL), USUAL), drawn


def same(one: Measurements, *others: Measurements) -> bool:
    """Whether all cells are those of the others added up."""
    sums = map(sum, zip(*map(cells_of, others), strict=True))
    return all(map(torch.equal, cells_of(one), sums))


def charged(fed: Federation) -> list[Any]:
    """What stands in the holders' ledgers at a price."""
    return [
        entry
        for holder in fed.holders.values()
        for entry in holder.ledger.entries()
        if entry.count and "NoOp" not in str(entry.event)
    ]


def test_the_schemas_show_the_grid() -> None:
    _, schemas = grid()
    assert grid_of(schemas).groups == (
        ("registry",),
        ("clinic0", "clinic1"),
        ("bank0", "bank1"),
    )
    assert study_of(schemas).grid.partition == "grid"
    assert study_of(beside_visits()[1]).grid.partition == "vertical"
    assert study_of(dict.fromkeys(("a", "b"), clinic())).grid.partition == "horizontal"
    other = schemas | {
        "clinic1": replace(schemas["clinic1"], person="client", note="of the south")
    }
    assert study_of(other).grid.partition == "grid", (
        "what a holder calls the person is its own"
    )
    assert study_of(schemas).schema == study_of(beside_visits()[1]).schema


@pytest.mark.parametrize(
    "parts", [{"clinic": 2}, {"registry": 2, "clinic": 3, "bank": 2}]
)
def test_without_noise_a_grid_is_to_the_bit_what_one_holder_of_each_column_would_have(
    parts: Any,
) -> None:
    one = by_columns()
    found, _, _ = released(split_rows(*beside_visits(most_events=4), **parts))
    assert found.record.people == one.record.people == 53
    assert found.stage("tables").unit == one.stage("tables").unit  # type: ignore[attr-defined]
    assert same(found, one)
    assert not any(found["tables"].noise.values())


def test_without_noise_a_grid_is_to_the_bit_what_all_rows_in_one_place_are() -> None:
    """At one holder, over rows, with all columns of the people whom every group has."""
    tables, schemas = beside_visits()
    joint = study_of(schemas)
    held = joined(tables)
    place, _, _ = released(
        ({"all": held}, {"all": replace(joint.schema, people=joint.schema.people)})
    )
    found, _, _ = released(grid())
    exact = place["tables"]
    cells = found["tables"]
    assert exact.people == cells.people == 53
    assert exact.tables.keys() == cells.tables.keys()
    for block, table in exact.tables.items():
        assert torch.equal(cells.tables[block], table), block


def test_regions_that_share_nobody_add_up_to_one() -> None:
    """Two regions, each with a clinic, a bank and a registry of its own: what is over
    columns in each, together.
    """
    tables, schemas = beside_visits()
    regions = []
    for parity in (0, 1):
        own = {}
        for name, held in tables.items():
            parts = held if isinstance(held, dict) else {"": held}
            cut = {
                key: rows[rows[schemas[name].person] % 2 == parity]
                for key, rows in parts.items()
            }
            own[name] = cut if isinstance(held, dict) else cut[""]
        regions.append(own)
    both = {f"{name}{n}": own[name] for n, own in enumerate(regions) for name in tables}
    described = {f"{name}{n}": schemas[name] for n in (0, 1) for name in tables}
    found, _, server = released((both, described))
    apart = [released((own, schemas))[0] for own in regions]
    assert same(found, *apart)
    cells = {name: ask.cells for name, ask, _ in server.seen if isinstance(ask, Agree)}
    assert cells["clinic1"] == [[apart[1].record.people, ["registry1", "bank1"]]], (
        "and with no holder elsewhere"
    )


def test_only_people_whom_every_group_has_are_counted() -> None:
    tables, schemas = grid()
    tables["bank1"] = tables["bank1"][tables["bank1"]["client"] % 3 > 0]
    merged, described = beside_visits()
    merged["bank"] = pd.concat([tables["bank0"], tables["bank1"]])
    found = released((tables, schemas))[0]
    one = released((merged, described))[0]
    assert 10 < (found.record.people or 0) < 53
    assert same(found, one)


def test_noise_is_that_of_all_who_have_a_part_in_a_table_and_its_price_is_one() -> None:
    cut = grid(registry=1, clinic=3, bank=2)
    found, fed, _ = released(cut, visits.Config(**SMALL, max_colluding=2), USUAL)
    holders = study_of(cut[1])
    exact = released(cut)[0]
    noisy = found["tables"]
    true = exact["tables"]
    assert holders.split is not None
    (event,) = {
        e
        for h in fed.holders.values()
        for e in h.ledger.spend()
        if hasattr(e, "noise_multiplier")
    }
    sigma = event.noise_multiplier * math.sqrt(len(noisy.layout.blocks))
    owner = dict(
        zip(
            ("sex", "smoker", "income", "first_day", "number"),
            holders.split.owners,
            strict=True,
        )
    )
    assert owner == {"sex": 0, "smoker": 1, "income": 2, "first_day": 1, "number": 1}
    sizes = (1, 3, 2)
    for block, noise in noisy.noise.items():
        kind, a, b = block
        groups = {holders.split.owners[a] if kind in ("person", "across") else 1}
        groups |= {holders.split.owners[b] if kind == "person" else 1}
        count = sum(sizes[group] for group in groups)
        left = noise / math.sqrt(count / max(1, count - 2))
        assert left == pytest.approx(sigma, rel=0.002), block
    apart = torch.cat(
        [
            ((noisy.tables[b] - true.tables[b]) / noisy.noise[b]).flatten()
            for b in noisy.tables
        ]
    )
    assert float(apart.std()) == pytest.approx(1, abs=6 / math.sqrt(2 * len(apart)))
    assert len(charged(fed)) == len(fed.holders), "one entry each"
    assert all(2.9 < holder.ledger.spent() <= 3.0 for holder in fed.holders.values())


def test_a_person_pays_once_and_the_statement_says_what_is_outside() -> None:
    tables, schemas = grid()
    fed = Federation.rehearsal(tables, schemas, budget=USUAL, seed=3)
    result = train("visits", fed, **SMALL)
    assert result.people == 53
    assert result.privacy.one_release
    assert result.privacy.epsilon(None, "server") == pytest.approx(
        fed.holders["bank1"].ledger.spent()
    )
    assert "which parties hold a person" in str(result.privacy)
    assert "how many people each combination of parties has" in str(result.privacy)
    assert "together they could remove them" in str(result.privacy)
    card = result.generator.card
    assert card["partition"] == "grid"
    assert (card["owners"]["income"], card["owners"]["severity"]) == (
        "bank0",
        "clinic0",
    )
    people, events = result.generator.visits(30, seed=1)
    assert set(people.columns) == {"patient", "sex", "smoker", "income"}
    assert set(events["patient"]) <= set(people["patient"])
    entries = [entry.description for entry in fed.holders["registry"].ledger.entries()]
    assert any("which of them hold a person" in what for what in entries)


def test_of_a_grid_the_server_gets_uniform_parts_and_their_noisy_sum() -> None:
    server = with_noise()[2]
    replies = {
        name: reply for name, ask, reply in server.seen if isinstance(ask, Release)
    }
    assert set(replies) == {"registry", "clinic0", "clinic1", "bank0", "bank1"}
    for name, reply in replies.items():
        own = {"registry": "0", "clinic": "1", "bank": "2"}[name.rstrip("01")]
        assert set(reply.parts.value) == {
            block
            for block in ("0×0", "0×1", "0×2", "1×1", "1×2", "2×2")
            if own in block
        }
        for block, part in reply.parts.value.items():
            assert _uniform(part) == (block != "0×0"), (
                "the registry's columns are nobody else's"
            )


def _uniform(part: torch.Tensor) -> bool:
    return float(part.abs().double().log2().median()) > 55


def test_every_two_who_have_a_part_in_a_table_pad_it_and_no_pad_is_used_twice() -> None:
    """A share of a product is uniform by itself, but not to the server, which dealt the
    masks.
    """
    groups = grid_of(grid()[1])
    assert with_noise()[3] == Counter(
        (own, peer, place)
        for place, block in enumerate(groups.blocks)
        for own, peer in permutations(groups.holders(block), 2)
    )


def test_a_person_with_two_holders_of_the_same_columns_is_refused_before_anything_is_charged():
    tables, schemas = grid()
    person = tables["clinic0"]["people"]["patient"].iloc[0]
    twice = {
        key: rows[rows["patient"] == person] for key, rows in tables["clinic0"].items()
    }
    tables["clinic1"] = {
        key: pd.concat([rows, twice[key]]) for key, rows in tables["clinic1"].items()
    }
    fed = Federation.rehearsal(tables, schemas, budget=USUAL, seed=3)
    with pytest.raises(AlignmentError, match="counted twice"):
        train("visits", fed, **SMALL)
    assert not charged(fed)


@pytest.mark.parametrize("step", [Begin, Agree, Swap, Release])
def test_whoever_goes_away_ends_the_run_and_nothing_is_charged(step: Any) -> None:
    def leave(name: str, ask: Any) -> Any:
        if name == "clinic1" and isinstance(ask, step):
            raise PartyAway(f"{name} went away.")
        return ask

    fed = Federation.rehearsal(*grid(), budget=USUAL, seed=3)
    config = visits.Config(**SMALL, min_holders=1)
    server = Meddling(fed.parties("visits", run="r", config=config), leave)
    with pytest.raises(PartyAway, match="went away"):
        measured(server, fed.schemas, config, 7, 1)
    assert not charged(fed)


# A server that does not follow the protocol


def fewer_events(name: str, ask: Any) -> Any:
    """To all but the clinics it says that the clinics' people have fewer columns, and
    so that noise may be less.
    """
    if not isinstance(ask, Begin) or "clinic" in name:
        return ask
    cut = {
        key: value for key, value in ask.schemas["clinic0"].items() if key != "people"
    }
    return replace(ask, schemas=ask.schemas | {"clinic0": cut, "clinic1": cut})


def another_group(name: str, ask: Any) -> Any:
    """It tells the clinics that bank1 has the registry's columns, and is in that
    group.
    """
    if not isinstance(ask, Begin) or "clinic" not in name:
        return ask
    return replace(ask, schemas=ask.schemas | {"bank1": ask.schemas["registry"]})


def another_group_and_its_people(name: str, ask: Any) -> Any:
    """And that bank1 has all who are with the registry: nobody is left for it to
    multiply with there.
    """
    if isinstance(ask, Agree) and "clinic" in name:
        people = sum(people for people, _ in ask.cells)
        return replace(
            ask,
            cells=[[people, ["bank0", "bank1"]]],
            seeds={"bank0": b"0" * 32, "bank1": b"1" * 32},
        )
    return another_group(name, ask)


def other_order(name: str, ask: Any) -> Any:
    """It tells one holder the groups in another order: two would take themselves for
    the first of a product.
    """
    if not isinstance(ask, Begin) or name != "bank0":
        return ask
    return replace(ask, schemas=dict(reversed(ask.schemas.items())))


def left_out(name: str, ask: Any) -> Any:
    """It tells one clinic that it is the only one, so that nobody else pads its
    tables.
    """
    if isinstance(ask, Begin) and name == "clinic0":
        return replace(
            ask,
            schemas={who: own for who, own in ask.schemas.items() if who != "clinic1"},
        )
    if isinstance(ask, Agree) and name == "clinic0":
        return replace(
            ask, keys={who: key for who, key in ask.keys.items() if who != "clinic1"}
        )
    return ask


def louder(name: str, ask: Any) -> Any:
    return (
        replace(ask, noise=[2 * ask.noise[0]])
        if isinstance(ask, Agree) and name == "bank1"
        else ask
    )


def trusting(name: str, ask: Any) -> Any:
    """One holder is told that two may pool what they know, and the others that
    one may.
    """
    if not isinstance(ask, Begin) or name != "clinic0":
        return ask
    return replace(ask, config=ask.config | {"max_colluding": 2})


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (fewer_events, "told different things"),
        (another_group, "one holder of each group"),
        (another_group_and_its_people, "told different things"),
        (other_order, "told different things"),
        (left_out, "clinic0 sent nothing for clinic1"),
        (louder, "told different things"),
        (trusting, "told different things"),
    ],
)
def test_holders_who_were_told_other_groups_part_before_anything_is_charged(
    lie: Any, words: str
) -> None:
    fed = Federation.rehearsal(*grid(), budget=USUAL, seed=3)
    config = visits.Config(**SMALL)
    server = Meddling(fed.parties("visits", run="r"), lie)
    with pytest.raises(MessageError, match=words):
        measured(server, fed.schemas, config, 7)
    assert not charged(fed)
    assert not any(isinstance(ask, Release) for _, ask, _ in server.seen)


ELSEWHERE: dict[str, Any] = {
    "more": lambda cells: [[people + 1, peers] for people, peers in cells],
    "a group missing": lambda cells: [[people, peers[:-1]] for people, peers in cells],
    "one group twice": lambda cells: [
        [people, ["bank0", "bank1"]] for people, peers in cells
    ],
    "fewer": lambda cells: cells[:-1],
    "nobody": lambda cells: [],
    "all with one": lambda cells: [
        [people, [peer.replace("bank0", "bank1") for peer in peers]]
        for people, peers in cells
    ],
}


def test_people_told_to_be_with_other_holders_are_refused() -> None:
    def odd(name: str, ask: Any) -> Any:
        if isinstance(ask, Agree) and name == "clinic0":
            for change in ELSEWHERE.values():
                with pytest.raises((MessageError, ConfigError)):
                    server.parties[name].answer(replace(ask, cells=change(ask.cells)))
            tried.append(name)
            # another order, which the others have to find
            return replace(ask, cells=ask.cells[::-1])
        return ask

    tried: list[str] = []
    fed = Federation.rehearsal(*grid(), budget=USUAL, seed=3)
    server = Meddling(fed.parties("visits", run="r"), odd)
    with pytest.raises(MessageError):
        measured(server, fed.schemas, visits.Config(**SMALL), 7)
    assert tried == ["clinic0"]
    assert not charged(fed)


@pytest.mark.long
def test_parties_rebuilt_between_all_messages_count_alike() -> None:
    """Where events are drawn, the same ones count in the products and in the clinics'
    own tables.
    """
    cut = split_rows(*beside_visits(30, cut="draw"), clinic=2, bank=2)
    config = visits.Config(**SMALL)
    plain = released(cut, config, USUAL)[0]
    fed = Federation.rehearsal(*cut, budget=USUAL, seed=3)

    def build(name: str) -> Any:
        return lambda: fed.parties("visits", run="r", config=config)[name]

    again = BytesParties({name: build(name) for name in fed.holders})
    assert same(plain, measured(again, fed.schemas, config, 13))


# Settings, plans, other kinds of grids


def test_a_plan_says_the_least_and_the_largest_noise_of_each_kind_of_tables() -> None:
    tables, schemas = grid(registry=2, clinic=3, bank=2)
    config = {**SMALL, "max_colluding": 3}
    said = plan("visits", schemas, budget=USUAL, people=53, **config)
    found = released((tables, schemas), visits.Config(**config), USUAL)[0]["tables"]
    kinds: dict[str, list[float]] = {}
    for (kind, _, _), noise in found.noise.items():
        kinds.setdefault(kind, []).append(noise)
    assert [(error.least, error.largest) for error in said.errors] == [
        pytest.approx((min(noises), max(noises))) for noises in kinds.values()
    ]
    assert said.errors[1].least == said.errors[1].largest, (
        "events are with the clinics alone"
    )
    assert "some columns of some of the people each" in str(said)
    assert "pays this once, for all holders together" in str(said)


def test_noise_over_a_grid_is_for_as_many_holders_of_every_column_as_is_said() -> None:
    """A server that departs from alignment can count a person as often. What is said of
    the noise is true, too.
    """
    cut = split_rows(*beside_visits(24), registry=2, clinic=2, bank=2)
    loudest = []
    true = released(cut)[0]["tables"].tables
    for most in (1, 2):
        found = released(
            cut, visits.Config(**SMALL, max_holders_per_person=most), USUAL
        )[0]["tables"]
        errors = [
            (found.tables[block] - true[block]) / found.noise[block] for block in true
        ]
        assert float(
            torch.cat([one.flatten() for one in errors]).std()
        ) == pytest.approx(1, abs=0.15)
        loudest.append(max(found.noise.values()))
    assert loudest[1] == pytest.approx(2 * loudest[0], rel=0.02)


def with_copies(cut: Cut, copies: int) -> Cut:
    """The same with one person more, who is with so many holders of every column, under
    an id of its own at each: what a server that departs from alignment can make of a
    person who is with several.
    """
    tables = dict(cut[0])
    schemas = cut[1]
    events = tables["clinic0"]["events"]
    longest = events["patient"].value_counts().idxmax()
    for copy in range(copies):
        new = 1000 + copy
        for name, rows in (("registry", {"sex": "f"}), ("bank", {"income": 3})):
            place = f"{name}{copy}"
            person = schemas[place].person
            tables[place] = pd.concat(
                [tables[place], pd.DataFrame([{person: new} | rows])], ignore_index=True
            )
        held = tables[f"clinic{copy}"]
        own = pd.DataFrame([{"patient": new, "smoker": True}])
        visits_of = events[events["patient"] == longest].assign(patient=new)
        tables[f"clinic{copy}"] = {
            "people": pd.concat([held["people"], own], ignore_index=True),
            "events": pd.concat([held["events"], visits_of], ignore_index=True),
        }
    return tables, schemas


def sums_and_shares(
    cut: Cut, config: visits.Config
) -> tuple[Any, dict[Any, list[float]]]:
    """The sums of a run whose noise is 0, and the scale of the noise that each holder
    was to add, by block.
    """
    shares: dict[Any, list[float]] = {}
    draw = Pricing.noise
    block = list[Any]()

    def noise(self: Pricing, spec: Any, *more: Any) -> Any:
        block[:] = [spec.groups]
        return draw(self, spec, *more)

    def scale_of(cells: torch.Tensor, scale: Any, rng: Any) -> torch.Tensor:
        if cells.any():
            shares.setdefault(block[0], []).append(float(scale))
        return torch.zeros(cells.shape, dtype=torch.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pricing, "noise", noise)
        patch.setattr(pricing, "noise_on", scale_of)
        found, fed, _ = released(cut, config, USUAL)
    (event,) = {
        e
        for h in fed.holders.values()
        for e in h.ledger.spend()
        if hasattr(e, "noise_multiplier")
    }
    return (found, event.noise_multiplier), shares


@pytest.mark.parametrize(
    ("most", "max_colluding"), [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
)
def test_over_a_grid_what_a_person_moves_is_paid_for_by_the_noise_that_honest_holders_leave(
    most: int, max_colluding: int
) -> None:
    """Exact: the sums before noise are whole numbers, and the paid price is that of one
    Gaussian of this multiplier, so Σ (moved / left)² over all cells of all blocks is at
    most 1 / multiplier². `allowed` is that sum for what blocks state as the largest
    move.
    """
    cut = split_rows(*beside_visits(24), registry=2, clinic=3, bank=2)
    config = visits.Config(
        **SMALL, max_holders_per_person=most, max_colluding=max_colluding
    )
    (before, multiplier), _ = sums_and_shares(cut, config)
    (after, again), shares = sums_and_shares(with_copies(cut, most), config)
    assert again == multiplier
    assert after.record.people == before.record.people + most
    blocks = after.stage("tables").blocks
    lost = allowed = 0.0
    for name, block in blocks.items():
        difference = (
            after.record.sums["tables"][name] - before.record.sums["tables"][name]
        )
        moved = math.sqrt(float((difference.double() ** 2).sum()))
        assert 0 < moved <= most * block.sensitivity * (1 + 1e-12), name
        own = shares[block.groups]
        assert len(own) == sum((2, 3, 2)[group] for group in {*block.groups}), (
            "every holder of the block adds a share"
        )
        honest = max(1, len(own) - max_colluding)
        left = sum(sorted(share**2 for share in own)[:honest])
        lost += moved**2 / left
        allowed += (most * block.sensitivity) ** 2 / left
    assert 0.6 < lost * multiplier**2 < allowed * multiplier**2
    assert 0.99 < allowed * multiplier**2 <= 1 + 1e-9, (
        "and no holder adds more noise than that needs"
    )


def test_what_is_no_grid_is_refused_before_anything_is_charged() -> None:
    tables, schemas = grid()
    other = schemas | {"clinic1": replace(schemas["clinic1"], most_events=2)}
    with pytest.raises(SchemaError, match="clinic0 and clinic1"):
        study_of(other)
    nameless = schemas | {"bank1": replace(schemas["bank1"], person=None)}
    with pytest.raises(ConfigError, match="bank1"):
        study_of(nameless)
    fed = Federation.rehearsal(tables, schemas, budget=USUAL, seed=1)
    with pytest.raises(ConfigError, match="a person is with one holder of each column"):
        train("visits", fed, **SMALL, max_holders_per_person=2)
    with pytest.raises(ConfigError, match="max_colluding"):
        train("visits", fed, **SMALL, max_colluding=5)
    assert not charged(fed)


def test_rules_of_holders_of_the_same_columns_are_all_kept() -> None:
    tables, schemas = grid()
    schemas["bank1"] = replace(schemas["bank1"], rules=({"always": "income != 3"},))
    fed = Federation.rehearsal(tables, schemas, budget=USUAL, seed=3)
    people, _ = train("visits", fed, **SMALL).generator.visits(300, seed=1)
    assert (people["income"] != 3).all()


@pytest.mark.long
def test_events_of_two_kinds_over_a_grid_are_to_the_bit_what_they_are_over_a_vertical_partition():
    """Visits at two clinics, claims at two insurers, and a registry."""
    cut = split_rows(*two_kinds(), clinic=2, insurer=2)
    found, fed, _ = released(cut)
    one, _, _ = released(two_kinds())
    assert same(found, one)
    assert study_of(fed.schemas).layout.titles == ("events", "claims")
    result = train("visits", Federation.rehearsal(*cut, budget=USUAL, seed=3), **SMALL)
    drawn = result.generator.tables(20, seed=1)
    assert set(drawn) == {"people", "events", "claims"}


@pytest.mark.filterwarnings("ignore:.*people without an event")
def test_two_holders_of_events_alone_and_one_table_of_all_people_are_a_grid() -> None:
    _, events = frames()
    registry, described = (part["registry"] for part in beside_visits())
    schemas = {"clinic": replace(clinic(), people=None), "registry": described}
    tables = {"clinic": {"events": events}, "registry": registry}
    found = released(split_rows(tables, schemas, clinic=2))[0]
    assert same(found, released((tables, schemas))[0])

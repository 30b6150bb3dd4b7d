"""A number that many people share comes out as that number, and costs what was agreed
on whatever a server chose.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from refusals import raises
from understudy.data.column import Integer, Real
from understudy.data.encoding.codec import MOST_SPIKES, Levels
from understudy.data.encoding.fine import may_spike
from understudy.data.schema import Schema
from understudy.ground.errors import Effect, MessageError, SchemaError
from understudy.models.tables.spikes import BASE, Spikes, chosen_spikes, named_spikes
from understudy.models.tables.trees import TreesRead
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.counts import scaled
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.protocol import Config, Gram

COLUMNS = (
    Real(name="written", low=0, high=20, decimals=6, nullable=True),
    Real(name="float", low=0, high=4),
    Real(name="few", low=0, high=9, decimals=1),
    Integer(name="age", low=0, high=99),
)
SCHEMA = Schema(columns=COLUMNS)
TREES = Layout({"one": SCHEMA}, fine=True).trees
RNG = np.random.default_rng(5)
ROWS = 600
FRAME = pd.DataFrame(
    {
        "written": np.where(
            RNG.random(ROWS) < 0.6, 3.258096, np.round(RNG.uniform(0, 20, ROWS), 6)
        ),
        "float": np.where(RNG.random(ROWS) < 0.5, math.log(3), RNG.uniform(0, 4, ROWS)),
        "few": np.round(RNG.uniform(0, 9, ROWS), 1),
        "age": RNG.integers(0, 99, ROWS),
    }
)
FRAME.loc[:9, "written"] = np.nan


def cell_of(place: int, number: float) -> int:
    edges = TREES[0].fine.columns[place].edges  # type: ignore[attr-defined]
    return int(np.searchsorted(edges, number, side="right")) - 1


TOLD = torch.tensor(
    sorted([(0, cell_of(0, 3.258096)), (0, 5), (1, cell_of(1, math.log(3))), (1, 8000)])
)


def read_of(frame: pd.DataFrame, noise: float = 0.0) -> TreesRead:
    (trees,) = TREES
    return TreesRead.from_sums(
        TREES, [trees.count(trees.cells(frame)).double()], [noise], len(frame)
    )


def test_only_columns_with_more_numbers_than_cells_have_digits() -> None:
    assert [may_spike(column) for column in COLUMNS] == [True, True, False, False]
    assert may_spike(Integer(name="code", low=0, high=99_999))
    assert Gram(
        Config(), {"one": Schema(columns=(Integer(name="unbounded"), COLUMNS[3]))}
    ).spiky
    assert not may_spike(replace(COLUMNS[0], bins=7))
    assert Gram(Config(), {"one": SCHEMA}).spiky
    others = (Config(), SCHEMA.select(["few", "age"])), (Config(fine=0.0), SCHEMA)
    assert not any(Gram(config, {"one": schema}).spiky for config, schema in others)


def test_a_code_fits_into_64_bits_however_wide_a_cell_is() -> None:
    wide = Real(name="wide", low=0, high=9e15, decimals=0, bins=(0.0, 1.0, 9e15))
    own = Spikes(0, 0, wide, np.arange(2, dtype=np.int32))
    assert own.shape[0] == 6
    assert 32 * 7 * BASE**6 < 2**63
    counted = own.count(own.codes(pd.DataFrame({"wide": [0.0, 0.0, 9e15, 4e15]})))
    assert counted.sum((1, 2)).tolist() == [4] * 6


def test_digits_are_counted_as_person_by_person_and_each_person_moves_one_count_of_each_table():
    for own in named_spikes(TREES, TOLD):
        counted = own.count(own.codes(FRAME))
        digits = own.shape[0]
        expected = np.zeros((*own.shape[:2], 7, BASE), dtype=np.int64)
        edges = own.column.edges
        for number in FRAME[own.column.name].dropna():
            cell = int(np.searchsorted(edges, number, side="right")) - 1
            if cell in own.cells:
                place = int(
                    (number - edges[cell])
                    / (edges[cell + 1] - edges[cell])
                    * BASE**digits
                )
                for digit in range(digits):
                    value = place // BASE ** (digits - 1 - digit) % BASE
                    expected[
                        digit, own.cells.tolist().index(cell), place % 7, value
                    ] += 1
        assert np.array_equal(counted.numpy(), expected.reshape(own.shape))
        assert expected.sum() > 200 * digits
        for person in (0, 17, 300, 599):
            moved = counted - own.count(own.codes(FRAME.drop(index=person)))
            assert moved.min() >= 0
            assert moved.sum((1, 2)).max() <= 1
        parts = own.count(own.codes(FRAME[:250])) + own.count(own.codes(FRAME[250:]))
        assert parts.equal(counted)


def test_shared_numbers_are_read_to_their_last_digit_and_noise_alone_says_nothing():
    read = read_of(FRAME)
    noise = torch.distributions.Normal(0.0, 20.0)
    written, real = named_spikes(TREES, TOLD)
    shared = {
        row[1]: row[2]
        for own in (written, real)
        for row in own.numbers(own.count(own.codes(FRAME)), 0.1, read)
    }
    assert shared[3.258096] > 0.95
    assert shared[math.log(3)] > 0.95
    torch.manual_seed(1)
    assert not any(
        len(own.numbers(noise.sample(own.shape), 20.0, read)) for own in (written, real)
    )


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("deviations", "least", "most"), [(0, 0.0, 0.0), (5, 0.75, 1.0), (7, 0.9, 1.0)]
)
def test_a_number_is_read_whose_people_stand_out_of_the_noise_of_its_digits(
    place: int, deviations: int, least: float, most: float
) -> None:
    rng = np.random.default_rng(7)
    noise = 100.0
    column = TREES[0].fine.columns[place]
    shared = set()
    found = set()
    for _ in range(30):
        wide = np.arange(column.levels * 3 // 4, column.levels)
        cells = np.sort(rng.choice(wide, 4, replace=False))
        lower = column.edges[cells]  # type: ignore[attr-defined]
        width = column.edges[cells + 1] - lower  # type: ignore[attr-defined]
        atoms = np.round(lower + width * rng.uniform(0.1, 0.9, 4), 6)
        others = np.round(lower + width * rng.uniform(0.1, 0.9, (200, 4)), 6)
        people = int(deviations * noise)
        numbers = np.concatenate([np.repeat(atoms, people), others.ravel()])
        frame = pd.DataFrame({column.name: numbers})
        told = torch.tensor([(place, int(cell)) for cell in cells])
        (own,) = named_spikes(TREES, told)
        counts = own.count(own.codes(frame)).double()
        counts += noise * torch.from_numpy(rng.normal(size=own.shape))
        held = torch.zeros(column.levels, dtype=torch.float64)
        held[torch.from_numpy(cells)] = float(people + 200)
        read = TreesRead(1.0, [held] * 2, [noise] * 2, {}, [])
        found |= set(own.numbers(counts, noise, read)[:, 1].tolist())
        shared |= set(atoms.tolist() if deviations else [])
    assert len(found - shared) <= 1, "a number that nobody has, of 120 cells"
    assert least * 120 <= len(found & shared) <= most * 120


def test_the_upper_bound_is_read_where_many_people_are_on_it() -> None:
    frame = FRAME.assign(float=np.where(np.arange(ROWS) % 2, 4.0, FRAME["float"]))
    last = TREES[0].fine.columns[1].levels - 1
    (own,) = named_spikes(TREES, torch.tensor([[1, last]]))
    found = own.numbers(own.count(own.codes(frame)), 0.1, read_of(frame))
    assert found[:, 1].tolist() == [4.0]


def test_several_numbers_of_one_cell_are_read_and_drawn_as_often_as_they_are() -> None:
    low, high = TREES[0].fine.columns[1].edges[7000:7002]  # type: ignore[attr-defined]
    three = [round(low + (high - low) * part, 9) for part in (0.2, 0.5, 0.9)]
    frame = FRAME.assign(float=np.repeat(three, 200))
    (own,) = named_spikes(TREES, torch.tensor([[1, 7000]]))
    found = own.numbers(
        own.count(own.codes(frame)).double() + 1e-3, 1.0, read_of(frame)
    )
    assert set(found[:, 1]) <= {*three}, "never a number that nobody has"
    spikes = np.array([[7000, number, (at + 1) / 3] for at, number in enumerate(three)])
    levels = replace(read_of(frame).levels(SCHEMA, 5.0), spikes={1: spikes})
    drawn = levels.decode(levels.codes(frame), _Rng())["float"]
    assert all(abs((drawn == number).mean() - 1 / 3) < 0.1 for number in three)


def test_cells_that_stand_out_are_chosen_while_the_noise_of_all_digits_allows_it():
    read = read_of(FRAME)
    assert {tuple(row) for row in chosen_spikes(TREES, read, 10.0).tolist()} == {
        (0, cell_of(0, 3.258096)),
        (1, cell_of(1, math.log(3))),
    }
    assert chosen_spikes(TREES, read, 30.0).tolist() == [[0, cell_of(0, 3.258096)]]
    assert chosen_spikes(TREES, read, 60.0).shape == (0, 2)


BAD: dict[str, Any] = {
    "no tensor": [[0, 5]],
    "nothing": None,
    "whole numbers of another size": TOLD.int(),
    "reals": TOLD.double(),
    "a row": torch.tensor([0, 5]),
    "three": torch.tensor([[0, 5, 6]]),
    "one twice": torch.tensor([[0, 5], [0, 5]]),
    "falling": TOLD.flip(0),
    "below": torch.tensor([[0, -1]]),
    "beyond": torch.tensor([[1, 1 << 40]]),
    "a column of few": torch.tensor([[2, 5]]),
    "whole": torch.tensor([[3, 5]]),
    "no column": torch.tensor([[9, 5]]),
    "too many": torch.stack([torch.zeros(33, dtype=torch.int64), torch.arange(33)], 1),
    "many more": torch.zeros(1 << 20, 2, dtype=torch.int64),
}


@pytest.mark.parametrize("why", BAD)
def test_other_cells_than_may_be_named_are_refused(why: str) -> None:
    with raises(MessageError, effect=Effect.NOTHING_CHARGED_OR_SENT):
        named_spikes(TREES, BAD[why])


def all_of(trees: Any) -> Tensor:
    return torch.tensor([(column, cell) for column in (0, 1) for cell in range(32)])


@pytest.mark.parametrize(
    "told", [torch.empty(0, 2, dtype=torch.int64), TOLD[:1], TOLD, all_of(TREES)]
)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
def test_whatever_is_chosen_costs_no_more_than_what_was_agreed_on(
    told: Tensor, epsilon: float
) -> None:
    study = Gram(Config(), {"one": SCHEMA})
    noise = study.pricing.needed(Budget(epsilon, 1e-6), None)
    fine = study.stage("fine", {}, noise[0], {})
    sizes = [len(table) for table in read_of(FRAME).tables]
    groups = {
        str(j): torch.arange(n, dtype=torch.int32) * min(n, 9) // n
        for j, n in enumerate(sizes)
    }
    groups["2"], groups["3"] = (
        torch.arange(n, dtype=torch.int32) * 9 // n for n in sizes[2:]
    )
    pairs: Any = study.stage(
        "pairs", {"groups": groups, "spikes": told}, noise[1], {"fine": fine}
    )
    sigmas = study.pricing.sigmas(1, pairs.blocks, noise[1])
    room, cells = study.spreads["pairs"].moved[-1]
    own = math.fsum(one.shape[0] / sigmas[str(one.number)] ** 2 for one in pairs.spikes)
    assert own <= cells / scaled(noise[1], room) ** 2
    assert set(pairs.blocks) - {"0×0"} == {str(one.number) for one in pairs.spikes}


def test_levels_keep_their_numbers_and_draw_them() -> None:
    read = read_of(FRAME)
    levels = read.levels(SCHEMA, 5.0)
    spikes = {
        own.number: own.numbers(own.count(own.codes(FRAME)), 0.1, read)
        for own in named_spikes(TREES, TOLD)
    }
    full = Levels.from_tensors(SCHEMA, replace(levels, spikes=spikes).tensors())
    assert all(np.array_equal(full.spikes[j], spikes[j]) for j in (0, 1))
    codes = levels.codes(FRAME.fillna({"written": 1.0}))
    drawn = full.decode(codes, _Rng())
    assert abs((drawn["written"] == 3.258096).mean() - 0.6) < 0.05
    assert abs((drawn["float"] == math.log(3)).mean() - 0.5) < 0.05
    assert np.array_equal(full.codes(drawn), codes)
    for wrong in (
        [[5, 19.0, 0.5]],
        [[5, math.nan, 0.5]],
        [[5.5, 0.01, 0.5]],
        [[8, 0.0, 2.0]],
        [[1e9, 0.0, 0.5]],
    ):
        with pytest.raises(SchemaError):
            replace(levels, spikes={0: np.array(wrong)})
    for shape in ((), (0, 3), (MOST_SPIKES + 1, 3), (1, 2)):
        with pytest.raises(SchemaError):
            Levels.from_tensors(
                SCHEMA,
                levels.tensors() | {"spike.0": torch.zeros(shape, dtype=torch.float64)},
            )


@pytest.mark.long
@pytest.mark.parametrize(
    ("low", "high"), [(4_096, 262_143), (-(4**12), 4**13 - 1), (0, 2**53)]
)
def test_whole_numbers_that_many_share_are_read_and_drawn(low: int, high: int) -> None:
    """Codes of five digits and more, as of towns, between bounds that are found for
    them.
    """
    rng = np.random.default_rng(high)
    sigma = 20.0
    people = 6_000
    schema = Schema(
        columns=tuple(Integer(name=f"code_{j}", low=low, high=high) for j in range(6))
    )
    codes = rng.integers(max(low, 20_000), min(high, 10**9), (6, 5))
    shares = [0.4, 0.3, 0.2, 0.06, 0.04]
    chosen = [rng.choice(own, people, p=shares) for own in codes]
    frame = pd.DataFrame(dict(zip(schema.names, chosen, strict=True)))
    (trees,) = Layout({"one": schema}, fine=True).trees
    nodes = trees.count(trees.cells(frame)).double()
    read = TreesRead.from_sums(
        [trees],
        [nodes + torch.from_numpy(rng.normal(0, sigma, nodes.shape)).round()],
        [sigma],
        people,
    )
    told = chosen_spikes([trees], read, sigma / 2)
    spikes = {}
    for own in named_spikes([trees], told):
        counts = own.count(own.codes(frame)).double()
        spikes[own.number] = own.numbers(
            counts + sigma * torch.from_numpy(rng.normal(size=own.shape)), sigma, read
        )
    levels = replace(read.levels(schema, 5.0), spikes=spikes)
    drawn = levels.decode(levels.codes(frame), _Rng())
    assert drawn.dtypes.equals(frame.dtypes)
    for name in schema.names:
        for code in frame[name].unique():
            share = float((frame[name] == code).mean())
            assert abs((drawn[name] == code).mean() - share) < 5 * sigma / people, (
                name,
                code,
            )


class _Rng:
    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(
            *shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64
        )

"""Levels that were bought, as declared bins: the same levels for methods that buy
none.
"""

from datetime import date, datetime
from pathlib import Path

import numpy as np
import torch

from test_cli import Run
from understudy.data.encoding.codec import Codec, Levels, bought_bins
from understudy.data.encoding.fine import fine_schema, is_tree
from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Datetime,
    Integer,
    Real,
    Schema,
)
from understudy.generators.generator import Generator
from understudy.models.tables.merged_levels import merged_neighbours
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.privacy.accounts.budget import rehearsed
from understudy.privacy.noise import FastRng

SCHEMA = Schema(
    columns=(
        Integer(name="pay", low=-500, high=90_000, nullable=True),
        Integer(name="hours", low=0, high=99),
        Real(name="price", low=0.0, high=70_000.0, decimals=2, ends=True),
        Real(name="dose", low=-1.0, high=4.0),
        Date(name="seen", low=date(1960, 1, 1), high=date(2020, 12, 31)),
        Datetime(
            name="at",
            low=datetime(2024, 1, 1),
            high=datetime(2024, 3, 1),
            resolution="hour",
            nullable=True,
        ),
        Integer(name="grade", low=0, high=90, bins=3),
        Categorical(name="code", categories=tuple(f"c{n}" for n in range(70))),
        Boolean(name="ill"),
    )
)


def levels() -> Levels:
    """Some levels of every number, a spike at zero, and the upper bound of `hours`
    alone.
    """
    groups = []
    for own, size in zip(SCHEMA.columns, Codec(fine_schema(SCHEMA)).sizes, strict=True):
        cells = size - own.nullable
        group = np.arange(size, dtype=np.int32)
        if is_tree(own):
            table = torch.rand(
                cells, generator=torch.Generator().manual_seed(cells)
            ).double()
            table[cells // 3] = cells
            table[-1] = cells if own.name == "hours" else 0
            group = merged_neighbours(table, 6)
            group = (
                np.append(group, group.max() + 1).astype(np.int32)
                if own.nullable
                else group
            )
        groups.append(group)
    return Levels(
        SCHEMA, groups, [np.ones(len(group)) for group in groups], {2: np.ones(100)}
    )


def test_declared_bins_have_the_bought_levels_and_a_bound_alone_joins_its_neighbour(
    understudy: Run, tmp_path: Path
) -> None:
    found = levels()
    network = MixtureOfProducts(found.sizes, 4).eval()
    owners = dict.fromkeys(SCHEMA.names, "clinic") | {
        "seen": "insurer",
        "dose": "insurer",
    }
    Generator(network, SCHEMA, {"protocol": "gram", "owners": owners}, found).save(
        tmp_path / "made"
    )
    assert (
        understudy(
            "schema", "levels", tmp_path / "made", "--out", tmp_path / "all.toml"
        )[0]
        == 0
    )
    declared = Schema.load(tmp_path / "all.toml")
    assert declared.columns == bought_bins(found).columns
    assert declared.origin == "public"
    drawn = network.levels(3_000, FastRng(0).uniform)
    frame = found.decode(drawn.numpy(), FastRng(1))
    ours = found.codes(frame)
    theirs = Codec(declared).codes(frame)
    hours = SCHEMA.names.index("hours")
    ours[:, hours] = ours[:, hours].clip(max=found.sizes[hours] - 2)
    assert np.array_equal(ours, theirs)
    assert found.sizes[hours] == Codec(declared).sizes[hours] + 1
    words = (
        "schema",
        "levels",
        tmp_path / "made",
        "--out",
        tmp_path / "own.toml",
        "--holder",
    )
    assert understudy(*words, "insurer")[0] == 0
    assert Schema.load(tmp_path / "own.toml").names == ("dose", "seen")
    code, _, errors = understudy(*words, "nobody")
    assert code == 1
    assert "they are of clinic, insurer" in errors


def test_levels_of_a_rehearsal_do_not_become_public_bins(
    understudy: Run, tmp_path: Path
) -> None:
    """Their noise can be taken off, or nobody has paid for it."""
    found = levels()
    said = rehearsed({"clinic": ("seed",)})
    card = {"protocol": "gram", "privacy": {"rehearsal": said}}
    Generator(MixtureOfProducts(found.sizes, 4).eval(), SCHEMA, card, found).save(
        tmp_path / "made"
    )
    code, _, errors = understudy(
        "schema", "levels", tmp_path / "made", "--out", tmp_path / "all.toml"
    )
    assert code == 1
    assert "noise was drawn from a seed" in " ".join(errors.split())
    assert not (tmp_path / "all.toml").exists()

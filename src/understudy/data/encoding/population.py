"""Many people with a few rows each, ready to be trained on as one batch: a phone is a
population of one person, a simulation of 50,000 phones one of 50,000.

Guarantee: what a person contributes depends on the person's own rows and the public
rule (`features`) alone.
Edges: a person may have no rows; a population may not. A label outside the declared
classes → SchemaError.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from understudy.data.array_folder import rows_in
from understudy.data.encoding.codec import Uniform
from understudy.data.encoding.features import (
    ArrayFeatures,
    Features,
    Label,
    TableFeatures,
    rule_of,
    tensor,
)
from understudy.data.encoding.values import starts_of
from understudy.data.images import ImageSchema
from understudy.data.kinds import TABLE, Rows
from understudy.data.table import Table
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError, Effect, SchemaError


@dataclass(frozen=True, eq=False)
class Population:
    """People, in a fixed order, and the rows of each. Its repr shows no rows."""

    features: Features = field(repr=False)
    ids: NDArray[Any] = field(repr=False)  # whole numbers or text, one for each person
    # in the compact form of `features`, person after person
    rows: Tensor = field(repr=False)
    codes: Tensor = field(repr=False)  # (rows,): the class of each row
    # (people + 1,): person i has the rows starts[i] to starts[i + 1]
    starts: Tensor = field(repr=False)

    def __post_init__(self) -> None:
        if not len(self.rows):
            raise SchemaError(
                "nobody in this population has a row.",
                effect=Effect.NOTHING_CHARGED,
            )

    @property
    def people(self) -> int:
        return len(self.ids)

    @classmethod
    def from_table(cls, table: Table, target: str) -> Self:
        """The people of a table, in the order in which they first come; without a
        person column, its rows.
        """
        features = TableFeatures(table.schema, target)
        # first: a long table's have to be the same ones at every reading that follows
        people = table.people
        return cls.grouped(
            features,
            features.rows(table),
            features.codes(table),
            people,
        )

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        *,
        classes: int | Sequence[Label],
        people: ArrayLike | None = None,
        rows_per_person: int | Sequence[int] | None = None,
    ) -> Self:
        """People from rows x (rows, …) and labels y (rows,); `classes` are public: how
        many, or the labels. `people` names the person of each row. `rows_per_person`
        instead deals the rows out in their order, so many to each (fewer to the last),
        or as many as a list says; a 0 there is a person without rows. With neither,
        each row is a person.
        """
        rows = tensor(x)
        labels = tuple(range(classes)) if isinstance(classes, int) else tuple(classes)
        features = ArrayFeatures(tuple(rows.shape[1:]), labels)
        rows = features.rows(rows)
        codes = features.codes(y)
        if len(codes) != len(rows):
            raise SchemaError(
                f"{len(rows):,} rows have {len(codes):,} labels.",
                effect=Effect.NOTHING_READ,
            )
        if people is None:
            sizes = _sizes(1 if rows_per_person is None else rows_per_person, len(rows))
            return cls(
                features,
                np.arange(len(sizes)),
                rows,
                codes,
                torch.from_numpy(starts_of(sizes)),
            )
        if rows_per_person is not None or np.shape(people) != (len(rows),):
            raise ConfigError(
                f"people must name the person of each of {len(rows):,} rows, and needs "
                "no rows_per_person.",
                effect=Effect.NOTHING_READ,
            )
        return cls.grouped(features, rows, codes, np.asarray(people))

    @classmethod
    def grouped(
        cls,
        features: Features,
        rows: Tensor,
        codes: Tensor,
        people: NDArray[Any],
    ) -> Self:
        """Bring each person's rows together; where they are already, nothing is
        copied.
        """
        owner, ids = pd.factorize(people)
        ids = ids.astype(object) if ids.dtype.kind == "T" else ids
        missing = owner < 0
        if missing.any():
            raise SchemaError(
                f"row {int(missing.argmax()) + 1:,} belongs to no person.",
                effect=Effect.NOTHING_READ_FURTHER,
            )
        if (np.diff(owner) < 0).any():
            order = torch.from_numpy(np.argsort(owner, kind="stable"))
            rows = rows[order]
            codes = codes[order]
        starts = starts_of(np.bincount(owner, minlength=len(ids)))
        return cls(features, np.asarray(ids), rows, codes, torch.from_numpy(starts))

    def one_row_each(self, people: Tensor, rng: Uniform) -> tuple[Tensor, Tensor]:
        """The place of one row of each of these people, drawn evenly among their own,
        and who has one: (people,) both.
        Edges: the place of a person without rows is 0, and means nothing.
        """
        sizes = self.starts.diff()[people]
        offset = (rng.uniform(len(people)) * sizes).long().minimum(sizes - 1)
        return torch.where(sizes > 0, self.starts[people] + offset, 0), sizes > 0

    def apart(
        self,
        people: Tensor,
        *,
        max_rows: int | None = None,
        rng: Uniform | None = None,
    ) -> Iterator[tuple[Tensor, tuple[Tensor, Tensor, Tensor]]]:
        """The rows of these people in batches of which nobody else's rows change the
        shape: who is in, and `gather`'s. Each is a batch of all `people`, in their
        order, of a length from `rungs`. A person is in the shortest that their own rows
        fit into, and empty in the others. What is computed of a person's part is then
        the same to the last bit whoever else is there, where the length of a common
        padding would show in its rounding. Edges: the time tells which lengths there
        are.
        """
        sizes = self.starts[people + 1] - self.starts[people]
        lengths = rungs(sizes, max_rows)
        for length in sorted(set(lengths.tolist())):
            in_length = lengths == length
            x, y, mask = self.gather(people, length=length, max_rows=max_rows, rng=rng)
            yield in_length, (x, y, mask & in_length[:, None])

    def gather(
        self,
        people: Tensor,
        *,
        length: int | None = None,
        max_rows: int | None = None,
        rng: Uniform | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of these people, padded to the longest, or all to a `length`: x
        (people, rows, …), y and mask (people, rows). `mask` is true where a row is the
        person's own; what stands elsewhere means nothing. Of a person with more than
        `max_rows` rows so many are drawn, with replacement, by `rng`.
        """
        start = self.starts[people]
        size = self.starts[people + 1] - self.starts[people]
        if length is None:
            longest = max([1, *size.tolist()])
            length = longest if max_rows is None else min(longest, max_rows)
        step = torch.arange(length).expand(len(people), -1)
        if max_rows is not None and rng is not None and length >= max_rows:
            sampled = (rng.uniform(len(people), length) * size[:, None]).long()
            step = torch.where(size[:, None] > max_rows, sampled, step)
        mask = step < size[:, None]
        row_index = torch.where(mask, start[:, None] + step, 0)  # (people, rows)
        x = self.features.expand(self.rows[row_index.flatten()])
        return x.view(*row_index.shape, *x.shape[1:]), self.codes[row_index], mask


def population_of(rows: Rows | Population) -> Population:
    """People, whose rows have no class; those who are people already as they are."""
    if isinstance(rows, Population):
        return rows
    rule: Any = rule_of(rows.schema)
    if TABLE.holds(rows):
        people = rows.people  # first: see `Population.from_table`
        return Population.grouped(rule, rule.rows(rows), rule.codes(rows), people)
    return Population(
        rule,
        rows.ids,
        rule.rows(rows),
        rule.codes(rows),
        torch.from_numpy(rows.starts),
    )


def rungs(sizes: Tensor, limit: int | None = None) -> Tensor:
    """For each size the least of 2, 10, 20, 50, 100, 200, 500, … that holds it; `limit`
    where that is less. Few steps below 10, where a person's training costs by the
    person and hardly by the row.
    """
    if not len(sizes):
        return sizes
    decades = [
        step * 10**power
        for power in range(1, len(str(int(sizes.max()))) + 1)
        for step in (1, 2, 5)
    ]
    steps = torch.tensor(
        sorted({rung if limit is None else min(rung, limit) for rung in (2, *decades)})
    )
    return steps[torch.searchsorted(steps, sizes).clamp(max=len(steps) - 1)]


def _sizes(rows_per_person: int | Sequence[int], rows: int) -> NDArray[np.int64]:
    if isinstance(rows_per_person, int):
        whole(rows_per_person=rows_per_person)
        sizes = np.full(math.ceil(rows / rows_per_person), rows_per_person)
        sizes[-1:] -= sizes.sum() - rows
        return sizes
    sizes = np.asarray(rows_per_person, dtype=np.int64)
    if sizes.ndim != 1 or (sizes < 0).any() or sizes.sum() != rows:
        raise ConfigError(
            f"rows_per_person must list counts that sum up to {rows:,} rows.",
            effect=Effect.NOTHING_READ,
        )
    return sizes


def read_labelled_images(
    path: str | Path,
    schema: ImageSchema,
    *,
    target: str,
    labels: Sequence[Label],
) -> Population:
    """The people of a .npz file, with images by this schema and, in the array `target`,
    the class of each.
    """
    path = Path(path)
    images, other_arrays = rows_in(path, schema, target)
    pixels = schema.scaled(images, path.name)
    try:
        people = other_arrays.get(schema.person or "")
        return Population.from_arrays(
            pixels,
            other_arrays[target],
            classes=labels,
            people=people,
        )
    except SchemaError as error:
        raise error.restated(f"{path.name}: {error.message}") from None

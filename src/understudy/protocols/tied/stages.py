"""The releases of tied: a holder's people as vectors of whole numbers, what is counted
of them in each release, what two holders multiply, and by how much a person moves it.

A person with several images or series counts once: with the average of their vectors
where another holder's are multiplied with it, and with the average of their squares
within a holder.

Guarantee: whatever rows hold, and whatever centre, radius or directions a server tells,
a vector is no longer than `scale`, and depends on that person's rows and these alone;
so a person moves a block by `privacy.secure.moments.sensitivity` at most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.arrays import ArrayTable, Values
from understudy.data.encoding.codec import Codes
from understudy.data.encoding.frame import Frame, on_diagonal, packed
from understudy.data.encoding.values import take_people
from understudy.data.schema import Block as Groups
from understudy.models.moments.released import bins_of
from understudy.privacy.secure import moments
from understudy.privacy.secure.counts import gram_matrix, one_hot
from understudy.privacy.secure.moments import triangle
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import Multiplied, Product, Stage, block_name
from understudy.protocols.moments.stages import ArrayRows, First, Sums, turned


@dataclass(frozen=True)
class Numbers:
    """Whole-number vectors (rows, width), none longer than `scale`, from `starts` on;
    `squared`: triangles of v vᵀ.
    """

    rows: moments.Whole
    scale: int
    starts: moments.Positions
    squared: bool = False

    def words(self, start: int, stop: int) -> NDArray[np.int64]:
        """Those of some people: of several rows the average."""
        starts = self.starts[start : stop + 1]
        rows = self.rows[starts[0] : starts[-1]]
        each = moments.averages(
            moments.squares(rows) if self.squared else rows, starts - starts[0]
        )
        return each.astype(np.int64)

    def triangle(self) -> Tensor:
        """The upper triangle of the sum of v vᵀ over all people; of several rows the
        average of theirs.
        """
        crowd = moments.Crowd.from_starts(self.starts)
        if crowd.single:
            return triangle(self.rows)
        return packed(
            moments.cell_moments(
                self.rows,
                np.zeros(len(self.rows), dtype=np.int64),
                1,
                crowd,
            )[0]
        )


@dataclass(frozen=True)
class ArrayPeople:
    """Images or series: person i has the rows starts[i] … starts[i + 1]."""

    frame: Frame
    values: Values
    coefficients: moments.Whole
    starts: moments.Positions

    @classmethod
    def at_places(
        cls,
        frame: Frame,
        table: ArrayTable[Any],
        places: moments.Positions,
    ) -> "ArrayPeople":
        """The people at these places among those who have rows, in this order."""
        have = np.flatnonzero(np.diff(table.starts))[places]
        starts, at = take_people(table.starts, have)
        values = table.values[at]
        return cls(
            frame,
            values,
            frame.coefficients(values),
            starts,
        )

    def rows(self, *, shaded: bool) -> ArrayRows:
        """As the stages of moments count them, all of one class; `shaded`: with
        histograms of their values.
        """
        nowhere = np.zeros(len(self.values), dtype=np.int64)
        shades = (
            self.frame.histograms(self.values, bins_of(self.frame))
            if shaded
            else np.zeros((len(nowhere), 0))
        )
        return ArrayRows(
            self.coefficients,
            shades,
            nowhere,
            moments.Crowd.from_starts(self.starts),
        )

    def joint(
        self,
        centre: Tensor,
        radius: int,
        scale: int,
    ) -> Numbers:
        return Numbers(
            moments.bounded(self._about(centre), float(radius), scale),
            scale,
            self.starts,
        )

    def turned(
        self,
        centre: Tensor,
        basis: Tensor,
        radius: int,
        scale: int,
    ) -> Numbers:
        """In a subspace, pulled in there: the triangles of their squares."""
        short = moments.bounded(
            turned(self._about(centre), basis), float(radius), scale
        )
        return Numbers(short, scale, self.starts, squared=True)

    def _about(self, centre: Tensor) -> moments.Whole:
        return np.asarray(self.coefficients - centre.numpy().astype(np.float64))


@dataclass(frozen=True)
class TablePeople:
    """Levels, one-hot where they are needed; each as `one`."""

    codes: Codes
    sizes: Sequence[int]
    one: int = 1

    def joint(self, scale: int) -> "TablePeople":
        """Each level as much as keeps a row no longer than `scale`."""
        return replace(self, one=moments.one_for(scale, len(self.sizes)))

    def classes(self, column: int) -> "TablePeople":
        return TablePeople(self.codes[:, column : column + 1], (self.sizes[column],))

    def words(self, start: int, stop: int) -> NDArray[Any]:
        rows = one_hot(self.codes[start:stop], self.sizes)
        return rows if self.one == 1 else rows * np.int64(self.one)

    def triangle(self) -> Tensor:
        return packed(gram_matrix(self.codes, self.sizes) * self.one**2)


@dataclass
class SharedPeople:
    """A holder's shared people, made when they are first needed, and the vectors of the
    stage that is due.
    """

    group: int
    made: Callable[[], ArrayPeople | TablePeople]
    latest: "tuple[Joint | Classes, Numbers | TablePeople] | None" = None

    def vectors(self, stage: "Joint | Classes") -> Numbers | TablePeople:
        if self.latest is None or self.latest[0] is not stage:
            self.latest = stage, stage.vectors_of(self.group, self.made())
        return self.latest[1]


@dataclass(frozen=True, eq=False)
class Alone(Stage[SharedPeople]):
    """Sums that every holder of images or series releases by itself: one stage of
    moments each, by its group.
    """

    each: Mapping[int, Sums]

    @property
    def blocks(self) -> Mapping[str, BlockSpec]:
        stages = {(group, group): stage for group, stage in self.each.items()}
        return {
            block_name(at): BlockSpec(at, (stage.size,), stage.sensitivity)
            for at, stage in stages.items()
        }

    def count(self, rows: SharedPeople) -> dict[str, Tensor]:
        people = rows.made()
        if isinstance(people, TablePeople):
            return {}
        stage = self.each[rows.group]
        return {
            block_name((rows.group,) * 2): stage.sums(
                people.rows(shaded=isinstance(stage, First))
            )
        }

    def read(
        self, sums: Mapping[str, Tensor], noise: Mapping[str, float]
    ) -> dict[int, dict[str, Tensor]]:
        keys = {group: block_name((group, group)) for group in self.each}
        return {
            group: self.each[group].read_sums(sums[key], noise[key])
            for group, key in keys.items()
        }


@dataclass(frozen=True, eq=False)
class Joint(Multiplied[SharedPeople]):
    """All second moments: triangles within a holder, and every cell of the products of
    two.
    """

    widths: Mapping[int, int]
    weights: Mapping[Groups, float]
    centre: Mapping[int, Tensor]
    radius: Mapping[int, int]
    scale: int

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        blocks = {}
        for (a, b), weight in self.weights.items():
            width = self.widths[a]
            other_width = self.widths[b]
            shape = (width * (width + 1) // 2,) if a == b else (width, other_width)
            moved = moments.sensitivity(self.scale, across=a != b)
            diagonal = on_diagonal(width) if a == b else None
            blocks[block_name((a, b))] = BlockSpec(
                (a, b),
                shape,
                moved,
                weight=weight,
                diagonal=diagonal,
            )
        return blocks

    @property
    def product(self) -> Product:
        return Product.of_all([*self.widths.values()])

    def vectors_of(
        self, group: int, people: ArrayPeople | TablePeople
    ) -> Numbers | TablePeople:
        """None is longer than `scale`, whatever centre and radius are."""
        if isinstance(people, TablePeople):
            return people.joint(self.scale)
        return people.joint(self.centre[group], self.radius[group], self.scale)

    def count(self, rows: SharedPeople) -> dict[str, Tensor]:
        return {block_name((rows.group,) * 2): rows.vectors(self).triangle()}

    def vectors(
        self,
        rows: SharedPeople,
        start: int,
        stop: int,
    ) -> NDArray[Any]:
        return rows.vectors(self).words(start, stop)

    def read(
        self, sums: Mapping[str, Tensor], noise: Mapping[str, float]
    ) -> dict[Groups, tuple[Tensor, float]]:
        """Every block as whole numbers, with the deviation of its noise."""
        return {
            groups: (sums[block_name(groups)].double(), noise[block_name(groups)])
            for groups in self.weights
        }


@dataclass(frozen=True, eq=False)
class Classes(Multiplied[SharedPeople]):
    """Of every array the second moments of every class, in a subspace: products of
    triangles with one-hot classes.
    """

    label: "Label"
    features: Mapping[int, int]
    centre: Mapping[int, Tensor]
    radius: Mapping[int, int]
    basis: Mapping[int, Tensor]  # of the first features at least; the others have none
    scale: int

    def _groups(self, array: int) -> Groups:
        return min(array, self.label.group), max(array, self.label.group)

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        blocks = {}
        for array, basis in self.basis.items():
            first = array < self.label.group
            marked = on_diagonal(int(basis.shape[1]))
            diagonal = marked[:, None].expand(-1, self.label.classes)
            diagonal = diagonal if first else diagonal.T
            groups = self._groups(array)
            moved = moments.sensitivity(self.scale, across=False)
            blocks[block_name(groups)] = BlockSpec(
                groups,
                tuple(diagonal.shape),
                moved,
                diagonal=diagonal,
            )
        return blocks

    @property
    def product(self) -> Product:
        widths = {array: k * (k + 1) // 2 for array, k in self.directions.items()}
        return Product(
            widths | {self.label.group: self.label.classes},
            tuple(map(self._groups, self.basis)),
        )

    @property
    def directions(self) -> dict[int, int]:
        return {array: int(basis.shape[1]) for array, basis in self.basis.items()}

    def vectors_of(
        self, group: int, people: ArrayPeople | TablePeople
    ) -> Numbers | TablePeople:
        if isinstance(people, TablePeople):
            return people.classes(self.label.column)
        basis = torch.zeros(
            self.features[group], self.directions[group], dtype=torch.int64
        )
        basis[: len(self.basis[group])] = self.basis[group]
        return people.turned(
            self.centre[group],
            basis,
            self.radius[group],
            self.scale,
        )

    def count(self, rows: SharedPeople) -> dict[str, Tensor]:
        return {}

    def vectors(
        self,
        rows: SharedPeople,
        start: int,
        stop: int,
    ) -> NDArray[Any]:
        return rows.vectors(self).words(start, stop)

    def read(
        self, sums: Mapping[str, Tensor], noise: Mapping[str, float]
    ) -> dict[int, tuple[Tensor, float]]:
        """Of each array (classes, triangle), with the deviation beside the diagonal."""
        sums_by_group = {}
        for array in self.basis:
            key = block_name(self._groups(array))
            part = sums[key].double()
            sums_by_group[array] = (
                part.T if array < self.label.group else part,
                noise[key],
            )
        return sums_by_group


@dataclass(frozen=True)
class Label:
    """The column whose levels are the classes: whose it is, its place in that table,
    and in all of them.
    """

    group: int
    column: int
    place: int
    classes: int

"""The releases of tied: what a holder counts in each, what two multiply, and by how much a person moves it.

Guarantee: whatever rows hold, and whatever centre, radius or directions a server tells, a vector is no longer than
`scale`, so that a person moves a block by `privacy.secure.tied.sensitivity` at most.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.frame import on_diagonal
from understudy.data.schema import Block as Groups
from understudy.privacy.secure.moments import sensitivity
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import Product, Shares, Stage, block_name
from understudy.protocols.moments.rows import Sums
from understudy.protocols.moments.stages import First
from understudy.protocols.tied.vectors import ArrayPeople, Numbers, TablePeople


@dataclass
class People:
    """A holder's shared people, made when they are first needed, and the vectors of the stage that is due."""

    group: int
    made: Callable[[], ArrayPeople | TablePeople]
    latest: tuple[Any, Any] = field(default=(None, None))

    def vectors(self, stage: "Joint | Classes") -> Any:
        """Of the stage: made once."""
        if self.latest[0] is not stage:
            self.latest = stage, stage.vectors_of(self.group, self.made())
        return self.latest[1]


@dataclass(frozen=True, eq=False)
class Alone(Stage[People]):
    """Sums that every holder of images or series releases by itself: one stage of moments each, by its group."""

    each: Mapping[int, Sums]

    @property
    def blocks(self) -> Mapping[str, BlockSpec]:
        return {
            block_name((group, group)): BlockSpec((group, group), (stage.size,), stage.sensitivity)
            for group, stage in self.each.items()
        }

    def count(self, rows: People) -> dict[str, Tensor]:
        people = rows.made()
        if isinstance(people, TablePeople):
            return {}
        stage = self.each[rows.group]
        return {block_name((rows.group,) * 2): stage.sums(people.rows(shaded=isinstance(stage, First)))}

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> dict[int, dict[str, Tensor]]:
        """What each says, by group."""
        keys = {group: block_name((group, group)) for group in self.each}
        return {group: self.each[group].read_sums(sums[key], noise[key]) for group, key in keys.items()}


@dataclass(frozen=True, eq=False)
class Joint(Stage[People]):
    """All second moments: triangles within a holder, and every cell of the products of two."""

    widths: Mapping[int, int]
    weights: Mapping[Groups, float]
    centre: Mapping[int, Tensor]
    radius: Mapping[int, int]
    scale: int

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        found = {}
        for (a, b), weight in self.weights.items():
            own, other = self.widths[a], self.widths[b]
            shape = (own * (own + 1) // 2,) if a == b else (own, other)
            moved, diagonal = sensitivity(self.scale, across=a != b), on_diagonal(own) if a == b else None
            found[block_name((a, b))] = BlockSpec((a, b), shape, moved, weight=weight, diagonal=diagonal)
        return found

    @property
    def product(self) -> Product:
        return Product.of_all([*self.widths.values()])

    def vectors_of(self, group: int, people: ArrayPeople | TablePeople) -> Numbers:
        """None is longer than `scale`, whatever centre and radius are."""
        if isinstance(people, TablePeople):
            return people.joint(self.scale)
        return people.joint(self.centre[group], self.radius[group], self.scale)

    def count(self, rows: People) -> dict[str, Tensor]:
        return {block_name((rows.group,) * 2): rows.vectors(self).triangle()}

    def vectors(self, rows: People, start: int, stop: int) -> NDArray[Any]:
        words: NDArray[Any] = rows.vectors(self).words(start, stop)
        return words

    def across(self, shares: Shares) -> dict[str, Tensor]:
        return {block_name(groups): part for groups, part in shares.get("joint", {}).items()}

    def read(
        self, sums: Mapping[str, Tensor], noise: Mapping[str, float]
    ) -> dict[Groups, tuple[Tensor, float]]:
        """Every block as whole numbers, with the deviation of its noise."""
        return {
            groups: (sums[block_name(groups)].double(), noise[block_name(groups)]) for groups in self.weights
        }


@dataclass(frozen=True, eq=False)
class Classes(Stage[People]):
    """Of every array the second moments of every class, in a subspace: products of triangles with one-hot classes."""

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
        found = {}
        for array, basis in self.basis.items():
            first, marked = array < self.label.group, on_diagonal(int(basis.shape[1]))
            diagonal = marked[:, None].expand(-1, self.label.classes)
            diagonal = diagonal if first else diagonal.T
            groups, moved = self._groups(array), sensitivity(self.scale, across=False)
            found[block_name(groups)] = BlockSpec(groups, tuple(diagonal.shape), moved, diagonal=diagonal)
        return found

    @property
    def product(self) -> Product:
        widths = {array: k * (k + 1) // 2 for array, k in self.directions.items()}
        return Product(widths | {self.label.group: self.label.classes}, tuple(map(self._groups, self.basis)))

    @property
    def directions(self) -> dict[int, int]:
        """How many each array has."""
        return {array: int(basis.shape[1]) for array, basis in self.basis.items()}

    def vectors_of(self, group: int, people: ArrayPeople | TablePeople) -> Any:
        if isinstance(people, TablePeople):
            return people.classes(self.label.column)
        basis = torch.zeros(self.features[group], self.directions[group], dtype=torch.int64)
        basis[: len(self.basis[group])] = self.basis[group]
        return people.turned(self.centre[group], basis, self.radius[group], self.scale)

    def count(self, rows: People) -> dict[str, Tensor]:
        return {}

    def vectors(self, rows: People, start: int, stop: int) -> NDArray[Any]:
        made = rows.vectors(self)
        words: NDArray[Any] = made.words(start, stop) if isinstance(made, Numbers) else made[start:stop]
        return words

    def across(self, shares: Shares) -> dict[str, Tensor]:
        return {block_name(groups): part for groups, part in shares.get("classes", {}).items()}

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> dict[int, tuple[Tensor, float]]:
        """Of each array (classes, triangle), with the deviation beside the diagonal."""
        found = {}
        for array in self.basis:
            key = block_name(self._groups(array))
            part = sums[key].double()
            found[array] = part.T if array < self.label.group else part, noise[key]
        return found


@dataclass(frozen=True)
class Label:
    """The column whose levels are the classes: whose it is, its place in that table, and in all of them."""

    group: int
    column: int
    place: int
    classes: int

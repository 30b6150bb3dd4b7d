"""Chains of several kinds of events of the same people: a mixture of chains for each,
of one kind of person.

A person is drawn by picking a kind; each member then draws its columns of people and
its events given the kind, by itself. So what one holder's events have to do with
another's lies in the kind of person.

Exact: every table. A person's average event of one member and that of another are
independent given the kind, so that the table of both is a sum over kinds of products of
means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from understudy.data.visits import VisitCodes
from understudy.ground.errors import ConfigError
from understudy.models.network import Network
from understudy.models.visits.chains import ChainTables, MixtureOfChains, some_kinds


@dataclass(frozen=True)
class TogetherTables:
    """The expected tables of each member, and those of two."""

    members: tuple[ChainTables, ...]

    @cached_property
    def people(self) -> tuple[Tensor, Tensor]:
        """Two- and one-way tables of people's columns, of all members one after the
        other.
        """

        def both(own: ChainTables, other: ChainTables) -> Tensor:
            return (
                own.people
                if own is other
                else own.known.T @ other.known / len(own.known)
            )

        rows = [
            torch.cat([both(own, other) for other in self.members], 1)
            for own in self.members
        ]
        means = [own.known.mean(0) for own in self.members]
        return torch.cat(rows), torch.cat(means)

    def across(self, place: int) -> Tensor:
        """Of people's columns of all members, and the columns of one's events."""
        here = self.members[place]
        mean = self.members[place].mean
        return torch.cat(
            [
                own.across if own is here else own.known.T @ mean / len(mean)
                for own in self.members
            ]
        )

    def between(self, one: int, other: int) -> Tensor:
        """Of the columns of two members' events."""
        mean = self.members[one].mean
        return mean.T @ self.members[other].mean / len(mean)


class ChainsTogether(Network):
    """Members with as many kinds of people each, which are the same."""

    kind = "chains-together"
    latent = 1

    def __init__(self, members: Sequence[MixtureOfChains]) -> None:
        super().__init__()
        if len(members) < 2 or len({member.kinds for member in members}) != 1:
            raise ConfigError(
                "several kinds of events need as many kinds of people each."
            )
        self.members = nn.ModuleList(members)

    @property
    def kinds(self) -> int:
        return self.mixtures[0].kinds

    @property
    def mixtures(self) -> tuple[MixtureOfChains, ...]:
        return tuple(
            member for member in self.members if isinstance(member, MixtureOfChains)
        )

    def rows(self, z: Tensor) -> Tensor:
        return torch.cat([member.rows(z) for member in self.mixtures], 1)

    def draw(self, n: int, uniform: Callable[[int], Tensor]) -> tuple[VisitCodes, ...]:
        """`n` people, and their events of every kind."""
        kind = some_kinds(n, self.kinds, uniform)
        return tuple(member.draw_of(kind, uniform) for member in self.mixtures)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "members": [member.describe() for member in self.mixtures],
        }

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "members": [
                MixtureOfChains.from_description(one) for one in description["members"]
            ]
        }

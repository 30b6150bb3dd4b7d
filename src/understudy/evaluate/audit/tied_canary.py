"""A case for the audit of tied: one person whom no other resembles, at all parties, looked for in all releases.

Everybody has the first level in every column of a table and images or series of the middle value; the canary has the
last levels, and rows at the upper bound. The adversary sees what the server puts together and knows everybody else.
What the canary adds to a block follows from what the server asked for; the sums, less what all others add, along that,
each by 1/variance, are the logarithm of the likelihood ratio but for a constant, and so the best test there is (Neyman,
Pearson 1933).

Guarantee: parties, the server's measurement and ledgers are the real ones, and no real row is read.
Edges: across holders the server faces the noise of two of them, and less than the claim is lost to it there. The number
of people, which alignment discloses, differs by one between the worlds. What directions are asked by is fitted in few
steps: it is post-processing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.described import Rows
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.triangles import on_diagonal
from understudy.data.kinds import ARRAYS, kind_of
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD
from understudy.ground.errors import ConfigError
from understudy.models.tied.fit import Joint, Tied
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.tied import squares
from understudy.protocols.core import Parties, Party, Reply
from understudy.protocols.tied import protocol as tied
from understudy.protocols.tied.layout import CLASSES, JOINT, MEANS, Layout
from understudy.protocols.tied.messages import Begin
from understudy.protocols.tied.norms import split
from understudy.protocols.tied.releases import NAMES, Released, Server, release
from understudy.protocols.tied.vectors import ArrayPeople, TablePeople

_STEPS, _COMPONENTS = 4, 8


@dataclass(frozen=True, kw_only=True)
class TiedAudit:
    """Tied over these parties, with so many made-up people."""

    config: tied.Config
    schemas: Mapping[str, Any]
    budgets: Mapping[str, Budget]
    target: str
    people: int

    def case(self) -> Case:
        """One person there or not, searched by whoever sees the released sums."""
        if not self.config.private:
            raise ConfigError("private = false claims no guarantee, so there is nothing to refute.")
        schemas = {name: replace(schema, person=None) for name, schema in self.schemas.items()}
        layout = Layout(schemas, self.config.features, self.config.target, self.config.norms)
        heard: list[tuple[Server, Released]] = []

        def tie(joint: Joint) -> Tied:
            return Tied.of(joint, components=_COMPONENTS, steps=_STEPS, seed=0)

        def train(parties: Parties) -> object:
            server = Server(parties, layout, self.config.directions, self.config.chunk, bytes(32), tie)
            told = {name: schema.to_dict() for name, schema in schemas.items()}
            done = release(server, Begin(config=asdict(self.config), schemas=told))
            heard[:] = [(server, done)]
            return done

        everybody = {name: kind_of(schema).made_up(schema, self.people) for name, schema in schemas.items()}

        def score(party: Any, replies: list[Reply]) -> float:
            return _evidence(*heard[0], _vectors(layout, everybody))

        return Case(
            target=self.target,
            parties=lambda present, trial: {
                name: self._party(name, rows, present, trial * len(everybody) + number)
                for number, (name, rows) in enumerate(everybody.items())
            },
            train=train,
            scores={f"{SERVER}, by what the canary would add": score},
            notes=(f"tied, {self.people} people", UNREAD),
        )

    def _party(self, name: str, rows: Rows, present: bool, seed: int) -> Party:
        return tied.PROTOCOL.build(
            name,
            rows.take(np.arange(0 if present else 1, self.people)),
            Ledger.rehearsal(holder=name, budget=self.budgets[name]),
            run="audit",
            budget=self.budgets[name],
            rng=SecureRng.from_seed(seed),
        )


People = dict[str, ArrayPeople | TablePeople]


def _vectors(layout: Layout, everybody: Mapping[str, Rows]) -> People:
    return {
        name: ArrayPeople.of(layout.frames[name], rows, np.arange(rows.rows))
        if ARRAYS.holds(rows)
        else TablePeople(Codec(rows.schema).codes(rows.frame), Codec(rows.schema).sizes)
        for name, rows in everybody.items()
    }


def _evidence(server: Server, done: Released, people: People) -> float:
    """Of all releases: what they hold beside all others, along what the canary, who is the first, would add."""
    layout, evidence = server.layout, 0.0
    for name in layout.frames:
        one = people[name]
        assert isinstance(one, ArrayPeople)
        two, frame = [_some(one, part) for part in (slice(0, 1), slice(1, None))], server.framed(done, name)
        lengths, sums = split(done.found[NAMES[MEANS]][name]["sums"], bool(layout.norms))
        own, rest = (some.first(frame).double() for some in two)
        sigma = layout.noise(MEANS, done.multipliers[MEANS]).sigmas[name, name]
        evidence += _along(sums, own, rest, sigma**2)
        if loud := layout.norms_noise(done.multipliers):
            own, rest = (some.lengths().double() for some in two)
            evidence += _along(lengths, own, rest, loud[name] ** 2)
    for number in range(JOINT, done.made):
        noise, found = layout.noise(number, done.multipliers[number]), done.found[NAMES[number]]
        rows = {name: _asked(layout, people[name], found.get(name), number, noise.scale) for name in people}
        for place, (a, b) in enumerate(layout.blocks):
            if str(place) not in found:
                continue
            p, q = rows[a], rows[b]
            own, rest = p[:1].T @ q[:1], p[1:].T @ q[1:]
            variance = torch.full_like(own, noise.sigmas[a, b] ** 2)
            if a == b:
                variance = variance * (1 + torch.eye(len(own)))
                at = torch.triu_indices(*own.shape)
                own, rest, variance = (part[at[0], at[1]] for part in (own, rest, variance))
            else:
                variance = 2 * variance * (_squared(p, q, a in layout.frames) if number == CLASSES else 1)
            evidence += _along(found[str(place)]["sums"], own, rest, variance)
    return evidence


def _along(sums: Tensor, own: Tensor, rest: Tensor, variance: Tensor | float) -> float:
    return float(((sums.double() - rest - own / 2) * own / variance).sum())


def _some(people: ArrayPeople, part: slice) -> ArrayPeople:
    """Some of the people, each of whom has one row."""
    values = people.values[part]
    return ArrayPeople(people.frame, values, people.coefficients[part], np.arange(len(values) + 1))


def _asked(layout: Layout, people: ArrayPeople | TablePeople, found: Any, number: int, scale: int) -> Tensor:
    """The vectors that a party was asked for, whole: (people, width)."""
    if isinstance(people, TablePeople):
        if number == JOINT:
            return torch.from_numpy(people.joint(scale).rows)
        assert layout.label is not None
        return torch.from_numpy(people.classes(layout.label.column).rows).double()
    centre, radius = found["centre"], int(found["radius"])
    if number == JOINT:
        return torch.from_numpy(people.joint(centre, radius, scale).rows)
    basis = torch.zeros(people.frame.features, found["basis"].shape[1], dtype=torch.int64)
    basis[: len(found["basis"])] = found["basis"]
    return torch.from_numpy(squares(people.turned(centre, basis, radius, scale).rows))


def _squared(p: Tensor, q: Tensor, first: bool) -> Tensor:
    """By class: 2 for cells on the diagonal of an array's triangle, else 1."""
    width = p.shape[1] if first else q.shape[1]
    marked = 1.0 + on_diagonal((round((8 * width + 1) ** 0.5) - 1) // 2).double()
    return marked[:, None] if first else marked[None, :]

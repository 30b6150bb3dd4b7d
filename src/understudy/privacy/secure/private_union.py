"""Private union: give every person whom either of two holders has one random id, and
tell a holder the ids of its own people and of nobody else.

Buddhavarapu, Knox, Mohassel, Sengupta, Taubeneck, Vlaskin, "Private Matching for
Compute" (IACR ePrint 2020/599), the Private-ID protocol. Group, hash and checks of what
comes in: `set_intersection`.
Paper → code: C, P → the holders 1 and 2; H(x)^k → `UnionMask.mask_ids`; k_i →
`_set_key`; r_i → `_id_key`.
Differs from the paper: a server relays everything. Each set holds made-up people
(`Padding`), so that its length and the size of the overlap are differentially private.
The ids are made under a second key r, so that they tell nothing of the sets that are
compared.

Holder i has the set Xᵢ, H hashes an id to a point, and t_i = k_i·r_i.

    mask_ids   i sends Uᵢ = {H(x)^k_i}, sorted by value
    remask     the other one, j, sends Eᵢ = Uᵢ^k_j, sorted by value, and
               Lᵢ = Uᵢ^t_j, in the order of Uᵢ
    others     both know E₁ and E₂ now; i sends Vᵢ = (Eᵢ \\ E_j)^r_i, sorted by value
    places     Lᵢ^r_i are the ids H(x)^(t₁·t₂) of i's own people, and V_j^r_i those of
               all others; a person's place is that of its id among all, sorted

Why that tells no more. Assume decisional Diffie–Hellman in the group (keys as RFC 7748
clamps them), H a random oracle, and that both holders follow the protocol.
*Holder i, with or without the server,* sees U_j, Eᵢ, Lᵢ and V_j. Write P_x = H(x)^k_j
and Q_x = H(x)^t_j. The exponents k_j and t_j are independent and never leave j, so that
all P_x and Q_x look like independent random points. U_j is the set of P_x over X_j, Eᵢ
that of P_x^k_i over Xᵢ; Lᵢ is Q_x^k_i for each x in Xᵢ, whether j has x or not; V_j is
the set of Q_x^k_i over X_j \\ Xᵢ. A simulator draws all points at random. It needs Xᵢ,
|X_j| and |X₁ ∩ X₂|, and nothing else.
*The server alone* sees all sets. Replace P_x and Q_x as above, and then the powers k_i
and t_i of H(x), P_x and Q_x: all points are independent and random, and a simulator
draws them from |X₁|, |X₂| and |X₁ ∩ X₂|.
Who holds all complete sets cannot tell which of Lᵢ a point of Eᵢ is, since E was sorted
after it was masked. It matters that Vᵢ is made by i: Eᵢ raised by r_j first would be
values of Lᵢ, in which i knows its people.

Guarantee: against the server or the other holder the three numbers have the price of
`Padding.event`; ids and which people are shared are hidden by the assumption.
Not guaranteed against a holder, or a server in its place, that departs from this: under
keys of its choice it can find out which ids of its own choice, as many as it puts into
its set, the other has. That is what an intersection tells it by itself. Two holders who
compare `UnionMask.digest` know whether a server changed, left out, repeated or swapped
anything between them.
"""

import hashlib
import hmac
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    NoOpDpEvent,
    SelfComposedDpEvent,
)

from understudy.ground.check import in_range, positive
from understudy.ground.errors import AlignmentError, ConfigError, Effect
from understudy.privacy.accounts.events import PureDp, Reveals
from understudy.privacy.noise import DiscreteLaplaceNoise, Rng
from understudy.privacy.secure.set_intersection import (
    SALT_BYTES,
    TAG,
    Ids,
    Masked,
    Rows,
    canonical_ids,
    checked_set,
    hash_to_curve,
    in_batches,
    raised,
    tags_of,
)

MOST_MADE_UP = 5_000_000  # at a holder: more take longer than most tables' people
_MADE_UP = "made-up"  # no kind of ids
_DRAWS = 2  # of a person whom both have: the overlap, and those of one holder alone
_MAX_SCALE = 2**20  # `noise.discrete`


@dataclass(frozen=True)
class Padding:
    """How many people are made up: twice a draw from the discrete Laplace of `scale`
    about `reach`, cut at 0 and 2·`reach`.

    There are two public lists of 2·`reach` made-up people. Holder i has all of list i,
    the first `shared` of the other list, and `alone` of its own.

    Guarantee: with n people at holder i alone and m at both, all that others learn of
    holder i's set follows from n + alone and m + shared, and a person moves one of the
    two by 1. A cut Laplace shows the edge with the probability `edge`, and otherwise is
    1/scale-DP: `event` is what two draws cost, for a person whom both holders have
    moves `shared` of one and `alone` of the other.
    Edges: scale 0 makes nobody up and has no price: for rehearsals.
    """

    scale: int
    reach: int

    def __post_init__(self) -> None:
        in_range(0, _MAX_SCALE, scale=self.scale)
        in_range(0, MOST_MADE_UP // 6, reach=self.reach)

    @classmethod
    def within(cls, epsilon: float, delta: float) -> "Padding":
        """The least padding whose price is at most (ε, δ).
        Edges: ε of infinity → nobody; δ of 0, or more people than `MOST_MADE_UP` →
        ConfigError.
        """
        if epsilon == math.inf:
            return cls(0, 0)
        positive(epsilon=epsilon)
        if not 0 < delta < 1:
            raise ConfigError(
                f"To pad lengths takes a δ between 0 and 1, not {delta!r}.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        scale = max(1, math.ceil(_DRAWS / epsilon))
        goal = math.log(delta / _DRAWS)
        # edge ≤ q^reach, so that this reaches it
        reach = min(math.ceil(-goal * scale) + 1, MOST_MADE_UP)
        if scale > _MAX_SCALE or 6 * reach > MOST_MADE_UP:
            raise ConfigError(
                f"ε={epsilon:g} at δ={delta:g} would need {6 * reach:,} made-up people "
                f"at each holder, and {MOST_MADE_UP:,} are the most: give lengths a "
                "larger share of the budget.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        low = 0
        while low < reach:
            middle = (low + reach) // 2
            if cls(scale, middle).edge <= delta / _DRAWS:
                reach = middle
            else:
                low = middle + 1
        return cls(scale, reach)

    @property
    def edge(self) -> float:
        """P(0) = q^s(1 − q)/(1 + q − 2q^(s+1)) with q = e^(−1/scale), s = `reach`;
        rounded up.
        """
        if not self.scale:
            return 1.0
        beyond = math.exp(-(self.reach + 1) / self.scale)
        total = -math.expm1(-1 / self.scale) + 2 * (math.exp(-1 / self.scale) - beyond)
        one = -math.expm1(-1 / self.scale) * math.exp(-self.reach / self.scale)
        return min(1.0, one / total * (1 + 1e-9))

    @property
    def pool(self) -> int:
        """How many people each of the two lists has."""
        return 2 * self.reach

    @property
    def event(self) -> DpEvent:
        if not self.scale:
            return NoOpDpEvent()
        return ComposedDpEvent(
            [
                SelfComposedDpEvent(
                    PureDp(math.nextafter(1 / self.scale, math.inf)),
                    _DRAWS,
                ),
                SelfComposedDpEvent(Reveals(self.edge), _DRAWS),
            ]
        )

    def draw(self, rng: Rng) -> tuple[int, int]:
        """`alone` and `shared`, which nobody but the holder may know."""
        if not self.scale:
            return 0, 0
        noise = DiscreteLaplaceNoise(Fraction(self.scale))
        kept = list[int]()
        while len(kept) < _DRAWS:
            draws = noise.draw(8, rng).tolist()
            kept += [draw for draw in draws if abs(draw) <= self.reach]
        return kept[0] + self.reach, kept[1] + self.reach


class UnionMask:
    """One holder's side: its ids, made-up people and keys, for one alignment of two.

    `number`: 1 or 2, the holder's; `salt` is public, and the same at both; `drawn`: how
    many people are made up, `Padding.draw`. `secret`: 32 bytes, drawn afresh unless
    given; keys follow from it. `watch` is told after each batch how many more points
    were masked; what it raises ends the work, and nothing is returned.

    Guarantee: each set of the other holder is masked once; what comes in is a set of
    canonical points, each once, as many as are due, or everything is refused.
    Edges: as `set_intersection.IdMask`. A step out of turn → AlignmentError.
    """

    def __init__(
        self,
        ids: Ids | Iterable[object],
        *,
        number: int,
        salt: bytes,
        padding: Padding,
        drawn: tuple[int, int],
        secret: bytes | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        if len(salt) != SALT_BYTES:
            raise ConfigError(f"salt must be {SALT_BYTES} bytes, not {len(salt)}.")
        if number not in (1, 2):
            raise ConfigError(f"number must be 1 or 2, not {number!r}.")
        self._ids = ids if isinstance(ids, Ids) else canonical_ids(ids)
        self.number = number
        self.salt = salt
        self.padding = padding
        self.drawn = drawn
        self.secret = os.urandom(32) if secret is None else secret
        self._set_key = self._derive("set")
        self._id_key = self._derive("id")
        self._watch = watch
        # what went over the line, by who sent the set and what it is
        self._sets: dict[str, Masked] = {}

    @property
    def length(self) -> int:
        """How many people this holder's set has, made-up ones included."""
        alone, shared = self.drawn
        return len(self._ids) + self.padding.pool + shared + alone

    def mask_ids(self) -> Masked:
        """U: this holder's people under its key, sorted by value."""
        return self._masked_and_order[0]

    def remask(self, masked: Masked, owner: str = "the other party") -> Masked:
        """E and L of the other's set, side by side: (n, 64).
        Edges: a second set → AlignmentError.
        """
        self._in_turn("U", "E")
        points = checked_set(masked, owner)

        def work(batch: slice) -> list[bytes]:
            complete = raised(self._set_key, [one.tobytes() for one in points[batch]])
            linked = raised(self._id_key, complete)
            return [
                value for pair in zip(complete, linked, strict=True) for value in pair
            ]

        both = in_batches(len(points), work, sets=2, watch=self._watch)
        complete, linked = np.hsplit(both, 2)
        complete = _sorted(complete)
        linked = np.ascontiguousarray(linked)
        self._sets |= {
            self._of_peer("U"): masked,
            self._of_peer("E"): complete,
            self._of_peer("L"): linked,
        }
        return np.hstack([complete, linked])

    def others(self, both: Masked, owner: str = "the other party") -> Masked:
        """V, from this holder's E and L, as `remask` returned them at the other: the
        people of this holder alone, under its second key.
        """
        self._in_turn("E", "V")
        if both.dtype != np.uint8 or both.shape != (self.length, 64):
            raise AlignmentError(
                f"{owner} was to return {self.length:,} points twice. The whole set "
                "was refused.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )
        complete, linked = (checked_set(one, owner) for one in np.hsplit(both, 2))
        self._sets |= {self._own("E"): complete, self._own("L"): linked}
        alone = self._raised(self._alone(self._own("E"), self._of_peer("E")))
        self._sets[self._own("V")] = _sorted(alone)
        return self._sets[self._own("V")]

    def places(
        self,
        others: Masked,
        owner: str = "the other party",
    ) -> tuple[Rows, int]:
        """The place of each of this holder's rows, and how many people the union has,
        made-up ones included.
        """
        self._in_turn("V", "places")
        due = len(self._alone(self._of_peer("E"), self._own("E")))
        if len(others) != due:
            raise AlignmentError(
                f"{owner} was to send {due:,} people of its own, not {len(others):,}. "
                "The whole set was refused.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )
        if due:
            checked_set(others, owner)
        self._sets[self._of_peer("V")] = others
        linked = self._raised(self._sets[self._own("L")])
        ids = tags_of(np.concatenate([linked, self._raised(others)]))
        order = np.argsort(ids)
        if (ids[order][1:] == ids[order][:-1]).any():
            raise AlignmentError(
                f"{owner} named a person twice. The whole set was refused.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )
        ranks = np.empty(len(ids), dtype=np.int64)
        ranks[order] = np.arange(len(ids))
        by_element = np.empty(self.length, dtype=np.int64)
        by_element[self._masked_and_order[1]] = ranks[: self.length]
        return by_element[: len(self._ids)], len(ids)

    @property
    def people_at_both(self) -> int:
        """About how many people both holders have, as everybody may know it: the size
        of the overlap without the people who were made up on average.
        Edges: before `others` → AlignmentError.
        """
        self._in_turn("V", "V")
        common = len(self._sets["E1"]) - len(self._alone("E1", "E2"))
        return max(0, common - 2 * self.padding.reach)

    @property
    def digest(self) -> bytes:
        """Of all that went over the line: 32 bytes.
        Guarantee: two holders have the same only if each received what the other sent,
        so that both put the same person in each place.
        Edges: before `places` → AlignmentError.
        """
        self._in_turn("places", "places")
        state = hashlib.sha256(b"understudy union " + self.salt)
        state.update(b"%d %d " % (self.padding.scale, self.padding.reach))
        for name in sorted(self._sets):
            values = self._sets[name]
            state.update(b"%s %d " % (name.encode(), len(values)))
            state.update(hashlib.sha256(values.tobytes()).digest())
        return state.digest()

    def state_dict(self) -> dict[str, Any]:
        """Where this side stands. It holds the secret."""
        import torch

        return {
            "number": self.number,
            "salt": self.salt,
            "padding": [self.padding.scale, self.padding.reach],
            "drawn": list(self.drawn),
            "secret": self.secret,
            "sets": {
                name: torch.from_numpy(np.array(one))
                for name, one in self._sets.items()
            },
        }

    @classmethod
    def from_state(
        cls,
        ids: Ids,
        state: Mapping[str, Any],
        watch: Callable[[int], None] | None = None,
    ) -> "UnionMask":
        """The side that `state_dict` was of."""
        alone, shared = state["drawn"]
        mask = cls(
            ids,
            number=state["number"],
            salt=state["salt"],
            padding=Padding(*state["padding"]),
            drawn=(alone, shared),
            secret=state["secret"],
            watch=watch,
        )
        mask._sets = {name: one.numpy() for name, one in state["sets"].items()}
        return mask

    def _own(self, kind: str) -> str:
        return f"{kind}{self.number}"

    def _of_peer(self, kind: str) -> str:
        return f"{kind}{3 - self.number}"

    def _in_turn(self, before: str, due: str) -> None:
        """Refuse a step that is not due: `before` is there, and what `due` names is
        not.
        """
        steps = {"U": self._own("U"), "E": self._of_peer("E"), "V": self._own("V")}
        places = self._of_peer("V") in self._sets
        made = {step: name in self._sets for step, name in steps.items()}
        made["places"] = places
        if not made[before] or (due != before and made[due]):
            raise AlignmentError(
                "A set came out of turn. It was refused.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )

    @cached_property
    def _masked_and_order(self) -> tuple[Masked, Rows]:
        people = len(self._ids)
        prefixes = [
            TAG + self.salt + kind.encode() + b":"
            for kind in (self._ids.kind, _MADE_UP)
        ]
        made_up = self._made_up()

        def work(batch: slice) -> list[bytes]:
            own = self._ids[slice(batch.start, min(batch.stop, people))]
            rest = made_up[max(0, batch.start - people) : max(0, batch.stop - people)]
            points = [
                point
                for prefix, names in zip(prefixes, (own, rest), strict=True)
                for point in hash_to_curve(prefix, names)
            ]
            return raised(self._set_key, points)

        masked = in_batches(self.length, work, watch=self._watch)
        order = np.argsort(tags_of(masked))
        self._sets[self._own("U")] = masked[order]
        return masked[order], order

    def _made_up(self) -> list[bytes]:
        """Names that no id has: all of the own list, some of the other, and people that
        nobody else can name.
        """
        alone, shared = self.drawn
        lists = {self.number: self.padding.pool, 3 - self.number: shared}
        names = [
            b"list %d:%d" % (number, index)
            for number, people in lists.items()
            for index in range(people)
        ]
        secret = self._derive("people")
        return names + [b"alone:%d:%s" % (index, secret) for index in range(alone)]

    def _alone(self, owner: str, other: str) -> Masked:
        """The complete points of one holder's set that the other's does not have."""
        complete = self._sets[owner]
        common = np.isin(tags_of(complete), tags_of(self._sets[other]))
        return complete[~common]

    def _raised(self, points: Masked) -> Masked:
        """Points under the second key, in their order."""

        def work(batch: slice) -> list[bytes]:
            return raised(self._id_key, [point.tobytes() for point in points[batch]])

        return in_batches(len(points), work, watch=self._watch)

    def _derive(self, what: str) -> bytes:
        return hmac.digest(self.secret, f"understudy union {what}".encode(), "sha256")


def _sorted(points: Masked) -> Masked:
    return points[np.argsort(tags_of(points))]

"""The interface that a family of joint releases implements: a `Study` and its `Stage`s.

**What is measured.** A stage is one release. It consists of blocks, and a block is a
sum over people: Σ v, or Σ v_g v_hᵀ for two groups g and h of holders, where v is a
vector of whole numbers that a holder computes from one person's rows. `blocks` declares
each block's shape and its sensitivity, the largest L2 distance by which adding or
removing one person moves it. `count` computes a holder's own sums. Where two groups
hold different columns of the same people, `vectors` gives the rows that a secure
product multiplies, and `across` cuts blocks out of a holder's share of that product.

**With which noise.** A stage draws none. The study's `pricing` divides the budget among
the stages and says which σ each block has. Every holder of a block adds a discrete
Gaussian share, so that σ remains against `max_colluding` holders who subtract theirs.

**What happens to it.** `read` converts the noisy sums to the family's own units. From
these measurements, and nothing else, the study chooses the `terms` of the next stage
and at the end fits a model (`fit`). Both are post-processing.

A stage is public, and both sides build the same one from the study's settings and the
terms. Neither class knows of keys, messages or ledgers: the engine compares terms among
holders, charges the ledger, counts, adds noise and masks, in this order (`party`,
`server`).

Guarantee: the price rests on one promise of the stage: a person moves each block by at
most its `sensitivity`, for every row and for all terms that the study accepts.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from dp_accounting import DpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.schema import Block as Groups
from understudy.data.schema import Grid, Schema
from understudy.ground.check import nearest
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.ground.pack import Value
from understudy.privacy.accounts.budget import ADJACENCIES, Budget
from understudy.privacy.accounts.events import Spend, flatten
from understudy.privacy.noise import Rng
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core.settings import INTERSECTION, UNION
from understudy.protocols.joint.pricing import (
    BlockSpec,
    Pricing,
    without_answers,
)

if TYPE_CHECKING:
    from understudy.data.table import Table

# the round parameters that the server chose for a stage: plain values and tensors
Terms = dict[str, Any]
# a holder's shares of secure products: by the stage that made them, and by two groups
Shares = Mapping[str, Mapping[Groups, Tensor]]
R = TypeVar("R")  # the type in which a family keeps a holder's rows


@dataclass(frozen=True)
class Product:
    """A secure product Σ v_g v_hᵀ over the people whom groups of holders share:
    `widths`, the length of each group's vectors, and `pairs`, which groups multiply.
    """

    widths: Mapping[int, int]
    pairs: tuple[Groups, ...]  # the lower group first
    # of vectors that are not 0/1: how long each group's are at most, in L2, and what a
    # person has in a sum of products, whole parts
    lengths: Mapping[int, float] = field(default_factory=dict)
    parts: int = 1

    @classmethod
    def of_all(cls, widths: Sequence[int]) -> "Product":
        """Every group with every other."""
        return cls(dict(enumerate(widths)), tuple(combinations(range(len(widths)), 2)))


class Stage(ABC, Generic[R]):
    """One noisy release of sums over people (see the module)."""

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, BlockSpec]:
        """The blocks that are released, by name, each with its shape and sensitivity.
        The holders in a block's groups add up their parts of it.
        """

    @property
    def product(self) -> Product | None:
        """The secure product that holders compute before this release, if any. Its
        shares are kept, so a later stage can use them without a second product.
        """
        return None

    @abstractmethod
    def count(self, rows: R) -> dict[str, Tensor]:
        """This holder's exact sums, int64, of every block within its own group; noise
        is added afterwards. Counts of parts of the rows must add up to the count of
        all.
        """

    def across(self, shares: Shares) -> dict[str, Tensor]:
        """This holder's parts of the blocks of two groups, from its additive shares of
        Σ v_g v_hᵀ, g < h. The default takes all of the last product, if there was one.
        """
        last = [*shares.values()][-1] if self.product is not None else {}
        return {block_name(groups): part for groups, part in last.items()}

    @abstractmethod
    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> Any:
        """The noisy sums in the family's own units. `noise`: the standard deviation of
        each block's noise (of cells off a block's `diagonal`, which have √2 times it).
        """


class Multiplied(Stage[R]):
    """A stage with blocks across columns of different holders: its `product` is
    computed on shares, so that no holder sees another's vectors.
    """

    @abstractmethod
    def vectors(self, rows: R, start: int, stop: int) -> NDArray[Any]:
        """The vectors of people `start` to `stop` in the common order: whole numbers,
        or 0/1 as booleans, (people, width).
        """


class Choice(Stage[R]):
    """A stage without sums: each holder chooses something by a private mechanism of its
    own (the exponential mechanism, say), which the study's `pricing` pays for.
    """

    blocks: ClassVar[Mapping[str, BlockSpec]] = {}

    def count(self, rows: R) -> dict[str, Tensor]:
        return {}

    @abstractmethod
    def choose(self, rows: R, noise: float, rng: Rng) -> Value:
        """This holder's choice. The ledger is charged before this is called."""

    def read(self, sums: Mapping[str, Any], noise: Mapping[str, float]) -> Any:
        """The choices, by holder."""
        return sums


@dataclass(frozen=True)
class Holding:
    """What the engine gives a family at one holder.

    `aligned`: in a vertical partition the table (or the roster, `data.kinds`) of the
    shared people in the common order; None in a horizontal one. `drawing`: makes the
    generator for sampling among rows while counting. It is fixed for a session, so a
    party that is restored samples the same rows under the same masks. `in_union`: with
    `alignment = "union"` the position of each row's person among all people; `rows` are
    then all that the holder has.
    """

    name: str
    rows: Any
    aligned: "Table | None"
    drawing: Callable[[], Rng]
    in_union: NDArray[Any] | None = None

    @property
    def places(self) -> NDArray[Any]:
        """The positions of a roster's shared people among those who have rows."""
        from understudy.data.kinds import places

        assert self.aligned is not None
        return places(self.aligned)


# What a privacy statement lists as not guarded against. Products between holders come
# without a proof that a holder's input is a vector that rows can have.
_DEPARTING = (
    "rows against a party that departs from the protocol: numbers that no row has let "
    "one person move released counts by more than their noise is for"
)
DEALT = (
    "rows against the server together with a holder: the server deals the masks, "
    "so together they could remove them",
    _DEPARTING,
)
DEALT_OF_UNION = (
    "rows, and which people the parties share, against the server together with a "
    "holder: the server deals the masks, so together they could remove them",
    _DEPARTING,
)
ENCRYPTED = (_DEPARTING,)


class Study(ABC, Generic[R]):
    """One run of a family: its stages in order, their price, and the fit. The server
    and every holder build the same object from the settings and all schemas.

    `least`: how many releases a fit needs; a party that leaves earlier ends the run.
    `lasting`: stages that later ones use (`before`, or shares of their products); a
    holder forgets all others once they are released. `any_kind`: rows may be of any
    kind (`data.kinds`), not tables alone.
    """

    family: ClassVar[str]
    settings: ClassVar[type[Any]]  # the family's Config, checked at both sides
    settled: ClassVar[tuple[str, ...]]  # settings that a holder holds the server to
    least: int = 1
    lasting: ClassVar[tuple[str, ...]] = ()
    any_kind: ClassVar[bool] = False

    def __init__(self, config: Any, schemas: Mapping[str, Any]) -> None:
        """Edges: settings or schemas that cannot be measured → ConfigError or
        SchemaError, before anything is charged.
        """
        self.config = config
        self.schemas = schemas

    @classmethod
    def schema_of(cls, told: dict[str, Any]) -> Any:
        """The schema that a message announces."""
        from understudy.data.kinds import schema_from

        return schema_from(told) if cls.any_kind else Schema.from_dict(told)

    @classmethod
    def roster(cls, rows: Any) -> Any:
        """What alignment matches: a table itself, or the roster of who has rows."""
        from understudy.data.kinds import kind_of

        return kind_of(rows.schema).roster(rows, several=True) if cls.any_kind else rows

    def told_settings(self) -> dict[str, Any]:
        """The settings as they are announced to all holders."""
        return asdict(self.config)

    @property
    def grid(self) -> Grid:
        """Holders grouped by the columns they have: one group in a horizontal
        partition, several in a vertical or hybrid one, whose people are aligned.
        """
        return Grid((tuple(self.schemas),))

    @property
    def union(self) -> bool:
        """Whether people of any holder count, and not only those whom all share."""
        alignment = getattr(self.config, "alignment", INTERSECTION)
        return len(self.grid.groups) > 1 and alignment == UNION

    @property
    def encrypted(self) -> bool:
        """Whether products are computed under encryption (LWE), and not with one-time
        masks from a trusted dealer.
        """
        return len(self.grid.groups) > 1 and (
            getattr(self.config, "products", "dealt") == "encrypted"
        )

    @property
    def max_answers(self) -> int:
        """In how many encrypted answers one person may be, over all stages."""
        return 0

    @property
    def answers(self) -> list[DpEvent]:
        """The privacy events of these, at most."""
        if not self.encrypted:
            return []
        from understudy.privacy.secure.lwe import dearest_answer

        return [dearest_answer()] * self.max_answers

    def check_bits(self, bits: int, noise: Sequence[float]) -> None:
        """Refuse word sizes that products, under this noise, cannot have: dealt masks
        need 32 or 64.
        """
        Ring(bits)
        if not self.encrypted and bits not in (32, 64):
            raise MessageError(
                f"masked rows have 32 or 64 bits, not {bits}.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def needed(self, budget: Budget, people: int | None) -> list[float]:
        """The least noise of every release with which the run stays within this budget,
        after the price of a union's lengths and of encrypted answers.
        """
        if self.union:
            from understudy.protocols.core.union import without_lengths

            budget = without_lengths(budget)
        if self.encrypted:
            budget = without_answers(budget)
        return self.pricing.needed(budget, people)

    def expected_shared(self, people: int | None) -> int | None:
        """How many of so many people a forecast takes all holders to share: all, but a
        quarter of a union, of which nobody knows yet.
        """
        return max(1, people // 4) if self.union and people is not None else people

    def lengths(self, budgets: Iterable[Budget]) -> Spend:
        """The price of disclosing a union's padded lengths, at these budgets."""
        if not self.union or not self.config.private:
            return {}
        from understudy.protocols.core.union import lengths_event

        return flatten(lengths_event([*budgets]))

    def composition(self) -> dict[str, Any]:
        """How prices of several holders compose (`PriceTerms`). In a vertical partition
        holders share their people and make one release together, so a person pays its
        price once. The same holds in a horizontal partition where a person may be with
        several holders, each of whom is charged the whole price.
        """
        from understudy.data.kinds import protected_unit

        split = len(self.grid.groups) > 1
        moves = self.pricing.moves
        unguarded: tuple[str, ...] = DEALT_OF_UNION if self.union else DEALT
        if self.encrypted:
            unguarded = ENCRYPTED
        return {
            "same_people": split,
            "max_holders_per_person": moves,
            "one_release": split or moves > 1,
            "adjacency": ADJACENCIES[protected_unit(self.schemas)],
            "unguarded": unguarded if split else (),
        }

    @property
    @abstractmethod
    def releases(self) -> Mapping[str, str]:
        """The stages in order: unique names, each with words for its ledger entry."""

    @property
    @abstractmethod
    def pricing(self) -> Pricing:
        """What each release costs, and which noise its blocks get."""

    @abstractmethod
    def rows(self, holding: Holding) -> R:
        """A holder's rows, prepared for counting. Edges: rows that cannot be counted
        are refused here, before anything is charged; slow work may wait for `count`.
        """

    @abstractmethod
    def stage(
        self, name: str, terms: Terms, noise: float, before: Mapping[str, Stage[R]]
    ) -> Stage[R]:
        """Build a stage from its name and terms, at the server and at every holder.
        `before`: the stages of `lasting` that were released. A holder trusts no terms:
        the stage checks all that its sensitivity depends on.
        Edges: terms that are not what the stage needs → MessageError or ConfigError,
        and nothing is charged.
        """

    def terms(self, name: str, measurements: Any) -> Terms:
        """What the server chooses for this stage, from earlier releases alone
        (`measurements.Measurements`): post-processing.
        """
        return {}

    def check_fit(self, **more: Any) -> None:
        """Refuse what `fit` would refuse, before anything is charged; `more`: its other
        arguments.
        """

    @abstractmethod
    def fit(
        self, measurements: Any, privacy: Any, look: Callable[..., None], **more: Any
    ) -> tuple[Any, int]:
        """Fit a generator or classifier to the measurements: its parts
        (`generators.parts`) with the family's own entries for the card, and how many
        people there are. `look`: called now and then, so that a run can be stopped.
        """

    def foreseen(self, ahead: Any, said: Any) -> dict[str, Any]:
        """The family's own fields of a forecast; `ahead` are `Measurements` without any
        release yet.
        """
        return {}

    def ring(self, people: int | None, noise: Sequence[float]) -> Ring:
        """The integers modulo 2ᵏ that are wide enough for all sums and their noise."""
        return Ring(64)

    def check_noise(self, noise: Sequence[float], parties: int) -> None:
        """Refuse noise that cannot be sampled, before anything is charged. By default
        this checks the first stage, the only one known by then.
        """
        name = next(iter(self.releases))
        self.pricing.check(
            0, self.stage(name, {}, noise[0], {}).blocks, noise[0], self.grid, parties
        )

    def people_at(self, rows: Any) -> int:
        """How many people a holder has in a horizontal partition; never leaves it."""
        return int(rows.rows)

    def same_rows(self, told: Any, own: Any) -> bool:
        """Whether an announced schema is the holder's own, in all that is public."""
        return type(told) is type(own) and public_part(told) == public_part(own)


def public_part(schema: Any) -> dict[str, Any]:
    """The part of a schema that an announced one must agree with: all but the name of
    the person column and the note. The unit of privacy, people or rows, is included, as
    the statement names it.
    """
    local_keys = ("person", "person_written", "rows_are_people", "note")
    return {
        key: value for key, value in schema.to_dict().items() if key not in local_keys
    } | {"unit": schema.unit}


def settings_of(
    kind: type[Any], told: Mapping[str, Any], settled: Sequence[str] = ()
) -> Any:
    """The Config from announced settings, with the checks that a run file gets. All
    that are `settled` have to be there.
    """
    names = [one.name for one in fields(kind)]
    missing = [key for key in settled if key not in told]
    if missing:
        raise MessageError(f"the settings lack {missing[0]}.")
    odd = [key for key in told if key not in names]
    if odd:
        raise ConfigError(f"there is no setting {odd[0]!r}.{nearest(odd[0], names)}")
    return kind(**told)


def block_name(groups: Groups, table: int | None = None) -> str:
    """The name of a block of these groups, "0×1", or of one of its three-way tables,
    "0×1 table 2".
    """
    return f"{groups[0]}×{groups[1]}" + ("" if table is None else f" table {table}")


def expect(terms: Mapping[str, Any], *names: str) -> None:
    """Require terms of exactly these names. Edges: any other → MessageError."""
    if terms.keys() != set(names):
        due = f"terms of {', '.join(names)}" if names else "no terms"
        raise MessageError(
            f"{due} were due, not {', '.join(map(str, terms)) or 'none'}.",
            effect=Effect.NOTHING_CHARGED,
        )


def digest(release: int, name: str, noise: float, terms: Mapping[str, Any]) -> bytes:
    """A hash of a stage, 32 bytes: holders compare it (so a server cannot tell them
    different terms), and one-time masks are derived for it.
    Guarantee: two stages that may count different sums of the same rows have different
    digests.
    """
    state = hashlib.sha256(b"understudy stage ")

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            state.update(value.contiguous().numpy().tobytes())
            return ["tensor", str(value.dtype), list(value.shape)]
        if isinstance(value, Mapping):
            return {key: plain(value[key]) for key in sorted(value)}
        if isinstance(value, bytes):
            return ["bytes", value.hex()]
        return (
            [plain(item) for item in value]
            if isinstance(value, list | tuple)
            else value
        )

    state.update(json.dumps([release, name, noise, plain(terms)]).encode())
    return state.digest()

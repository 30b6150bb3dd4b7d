"""What a family of joint releases says of itself: a study, and its stages.

A *stage* is one release: blocks of sums over people, Σ v_h v_kᵀ or Σ v, of whole-number
vectors whose norm is bounded whatever the server chose. It is public, and the same
object at the server and at every holder: which blocks there are and by how much a
person moves each (`blocks`), how rows become sums and vectors at a holder (`count`,
`vectors`, `across`), and what noisy sums say (`read`). A *study* says which stages a
run has, what each costs, and what the server chooses for the next one by what was
released (`terms`).

Neither knows of keys, messages, ledgers or noise that is drawn: `party` and `server`
see to that.

Guarantee: that a person moves a block by no more than its `sensitivity` is the stage's
own promise, and all that a price rests on besides. It must hold for every row and for
all terms that the study accepts.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
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

Terms = dict[str, Any]  # what the server chose for a stage: plain values and tensors
# of products: by the stage that made them, and by two groups
Shares = Mapping[str, Mapping[Groups, Tensor]]
R = TypeVar("R")  # a holder's rows, as its family sees them


@dataclass(frozen=True)
class Product:
    """Vectors of the same people that groups of holders multiply: how long each group's
    are, and who with whom.
    """

    widths: Mapping[int, int]
    pairs: tuple[Groups, ...]  # the lower group first

    @classmethod
    def of_all(cls, widths: Sequence[int]) -> "Product":
        """Every group with every other."""
        return cls(dict(enumerate(widths)), tuple(combinations(range(len(widths)), 2)))


class Stage(ABC, Generic[R]):
    """One release. See the module."""

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, BlockSpec]:
        """What is released, by names of the stage's own; whoever is in a block's groups
        has a part in it.
        """

    @property
    def product(self) -> Product | None:
        """What holders multiply before this release, if anything. It is kept: a later
        stage may read it again.
        """
        return None

    @abstractmethod
    def count(self, rows: R) -> dict[str, Tensor]:
        """This holder's sums, int64, of every block that its group is in alone. Sums of
        parts of the rows add up.
        """

    def across(self, shares: Shares) -> dict[str, Tensor]:
        """This holder's parts of the blocks of two groups, from its shares of products:
        Σ v_g v_hᵀ, g below h. By default all of the last product, where there was one.
        """
        last = [*shares.values()][-1] if self.product is not None else {}
        return {block_name(groups): part for groups, part in last.items()}

    @abstractmethod
    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> Any:
        """What was released, in units of its own. `noise`: the deviation in each block,
        beside a diagonal.
        """


class Multiplied(Stage[R]):
    """A stage for which holders of the same people multiply, where its `product` says
    so.
    """

    @abstractmethod
    def vectors(self, rows: R, start: int, stop: int) -> NDArray[Any]:
        """Of these people, in the common order, the vectors of the product: whole
        numbers, or 0/1 as booleans.
        """


class Choice(Stage[R]):
    """A stage without sums: every holder chooses by itself, by a mechanism that is
    priced as the study says.
    """

    blocks: ClassVar[Mapping[str, BlockSpec]] = {}

    def count(self, rows: R) -> dict[str, Tensor]:
        return {}

    @abstractmethod
    def choose(self, rows: R, noise: float, rng: Rng) -> Value:
        """What this holder chooses. It has been paid for."""

    def read(self, sums: Mapping[str, Any], noise: Mapping[str, float]) -> Any:
        """What each holder chose, by its name."""
        return sums


@dataclass(frozen=True)
class Holding:
    """What a holder has: its name and its rows, the shared people where columns are
    split, and a generator. `aligned`: the table (or the roster, `data.kinds`) of the
    shared people in the common order; None in a horizontal partition. `drawing`: of a
    session. What draws among rows draws by it, when it counts: the same ones under the
    same masks, whatever state the party is put back to. `in_union`: of a union, where
    each row's person is among all people; the rows are then all that the holder has.
    """

    name: str
    rows: Any
    aligned: "Table | None"
    drawing: Callable[[], Rng]
    in_union: NDArray[Any] | None = None

    @property
    def places(self) -> NDArray[Any]:
        """Where the shared people of a roster are among those who have rows."""
        from understudy.data.kinds import places

        assert self.aligned is not None
        return places(self.aligned)


# Of products between holders: nothing proves that what a holder puts in is what rows
# may hold.
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
    """One per family, and one object per run on either side: what follows from its
    settings and all schemas. `least`: without so many releases nothing can be fitted,
    so that who goes away before them ends the run. `lasting`: the stages that later
    ones look at, by `before` or by the products that were made for them. Of all others
    a holder keeps nothing once they are released. `any_kind`: rows may be of every kind
    (`data.kinds`), not tables alone.
    """

    family: ClassVar[str]
    settings: ClassVar[type[Any]]  # its Config: the same checks at both sides
    settled: ClassVar[tuple[str, ...]]  # the settings that what is released depends on
    least: int = 1
    lasting: ClassVar[tuple[str, ...]] = ()
    any_kind: ClassVar[bool] = False

    def __init__(self, config: Any, schemas: Mapping[str, Any]) -> None:
        """Edges: what cannot be measured → ConfigError or SchemaError, before anything
        is charged.
        """
        self.config = config
        self.schemas = schemas

    @classmethod
    def schema_of(cls, told: dict[str, Any]) -> Any:
        """A schema as it was told."""
        from understudy.data.kinds import schema_from

        return schema_from(told) if cls.any_kind else Schema.from_dict(told)

    @classmethod
    def roster(cls, rows: Any) -> Any:
        """What of a holder's rows is aligned: a table itself, or who has them."""
        from understudy.data.kinds import kind_of

        return kind_of(rows.schema).roster(rows, several=True) if cls.any_kind else rows

    def told_settings(self) -> dict[str, Any]:
        """The settings, as all holders are told them."""
        return asdict(self.config)

    @property
    def grid(self) -> Grid:
        """Who holds the same columns: one group in a horizontal partition, else
        several, whose people are aligned.
        """
        return Grid((tuple(self.schemas),))

    @property
    def union(self) -> bool:
        """Whether people are those whom any holder has, and not those whom all have."""
        alignment = getattr(self.config, "alignment", INTERSECTION)
        return len(self.grid.groups) > 1 and alignment == UNION

    @property
    def encrypted(self) -> bool:
        """Whether products are made of encrypted rows, and not of masks that are
        dealt.
        """
        return len(self.grid.groups) > 1 and (
            getattr(self.config, "products", "dealt") == "encrypted"
        )

    @property
    def max_answers(self) -> int:
        """In how many answers under encryption a person may be, over all stages."""
        return 0

    @property
    def answers(self) -> list[DpEvent]:
        """What these cost at most."""
        if not self.encrypted:
            return []
        from understudy.privacy.secure.lwe import dearest_answer

        return [dearest_answer()] * self.max_answers

    def check_bits(self, bits: int) -> None:
        """Refuse counts that products cannot be made of: of 32 or 64 bits where masks
        are dealt.
        """
        Ring(bits)
        if not self.encrypted and bits not in (32, 64):
            raise MessageError(
                f"masked rows have 32 or 64 bits, not {bits}.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def needed(self, budget: Budget, people: int | None) -> list[float]:
        """The noise of every release that this budget needs, beside what lengths and
        answers under encryption cost.
        """
        if self.union:
            from understudy.protocols.core.union import without_lengths

            budget = without_lengths(budget)
        if self.encrypted:
            budget = without_answers(budget)
        return self.pricing.needed(budget, people)

    def lengths(self, budgets: Iterable[Budget]) -> Spend:
        """What the lengths of a union cost holders with these budgets."""
        if not self.union or not self.config.private:
            return {}
        from understudy.protocols.core.union import lengths_event

        return flatten(lengths_event([*budgets]))

    def composition(self) -> dict[str, Any]:
        """How the price is to be read (`PriceTerms`): holders of columns share their
        people, and one release is theirs together; so it is in a horizontal partition
        where a person may be with several holders, who are all charged for that.
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
        """The stages in their order, by name, with what a ledger says of each. No two
        are called alike.
        """

    @property
    @abstractmethod
    def pricing(self) -> Pricing:
        """What each release costs, and its noise."""

    @abstractmethod
    def rows(self, holding: Holding) -> R:
        """A holder's rows. Edges: what cannot be counted is refused here; what takes
        long may wait for a count.
        """

    @abstractmethod
    def stage(
        self, name: str, terms: Terms, noise: float, before: Mapping[str, Stage[R]]
    ) -> Stage[R]:
        """The stage of this name and these terms, which were checked. `before`: those
        of `lasting` that were released.
        Edges: terms that are not what the stage needs → MessageError or ConfigError,
        and nothing is charged.
        """

    def terms(self, name: str, measurements: Any) -> Terms:
        """What the server chooses for this stage, by what was released
        (`measurements.Measurements`) and by nothing else.
        """
        return {}

    def check_fit(self, **more: Any) -> None:
        """Refuse, before anything is paid for, what the fit would refuse; `more`: what
        else it takes.
        """

    @abstractmethod
    def fit(
        self, measurements: Any, privacy: Any, look: Callable[..., None], **more: Any
    ) -> tuple[Any, int]:
        """What is fitted to the releases (`generators.parts`), with what its card says
        of it besides what all say; and how many people there are. `look`: called now
        and then.
        """

    def foreseen(self, ahead: Any, said: Any) -> dict[str, Any]:
        """Further fields of a forecast, `ahead` being `Measurements` of which nothing
        was released yet.
        """
        return {}

    def ring(self, people: int | None, noise: Sequence[float]) -> Ring:
        """Numbers that hold all sums and their noise."""
        return Ring(64)

    def check_noise(self, noise: Sequence[float], parties: int) -> None:
        """Refuse noise that cannot be drawn, as far as it is known before anything was
        released: of the first stage.
        """
        name = next(iter(self.releases))
        self.pricing.check(
            0, self.stage(name, {}, noise[0], {}).blocks, noise[0], self.grid, parties
        )

    def people_at(self, rows: Any) -> int:
        """How many people a holder of a horizontal partition has, for its own eyes."""
        return int(rows.rows)

    def same_rows(self, told: Any, own: Any) -> bool:
        """Whether a schema is what the holder knows of its rows."""
        return type(told) is type(own) and public_part(told) == public_part(own)


def public_part(schema: Any) -> dict[str, Any]:
    """What of a schema has to be as a holder knows it: all but what it calls the
    person, and its note. Whether people or rows are protected is among it, as the
    statement says so.
    """
    own = ("person", "person_written", "rows_are_people", "note")
    return {key: value for key, value in schema.to_dict().items() if key not in own} | {
        "unit": schema.unit
    }


def settings_of(
    kind: type[Any], told: Mapping[str, Any], settled: Sequence[str] = ()
) -> Any:
    """The settings that were told, held to the same checks as where they were written;
    those settled are all there.
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
    """What a block of these groups is called: "0×1"; of several such, by the number of
    its table: "0×1 table 2".
    """
    return f"{groups[0]}×{groups[1]}" + ("" if table is None else f" table {table}")


def expect(terms: Mapping[str, Any], *names: str) -> None:
    """Terms of these names, and of no other. Edges: any other → MessageError."""
    if terms.keys() != set(names):
        due = f"terms of {', '.join(names)}" if names else "no terms"
        raise MessageError(
            f"{due} were due, not {', '.join(map(str, terms)) or 'none'}.",
            effect=Effect.NOTHING_CHARGED,
        )


def digest(release: int, name: str, noise: float, terms: Mapping[str, Any]) -> bytes:
    """What holders tell each other of a stage, and what its one-time masks are for: 32
    bytes.
    Guarantee: two stages differ in it wherever what is counted of the same rows may
    differ.
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

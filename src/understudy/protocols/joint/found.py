"""What a run of joint releases knows so far: as it is saved, as it is read, and what it has cost.

All of it is public, or paid for.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.privacy.accounts.statement import OUTSIDE, PartyPrivacy, PrivacyStatement
from understudy.protocols.core import Parties, settled
from understudy.protocols.core.base import VIEWS
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.products import DEALT
from understudy.protocols.joint.stage import Stage, Study, Terms

Begun = dict[str, dict[str, Any]]  # what each party stated
OUTSIDE_ROWS = (
    "the schema: columns, levels, sizes, bounds and classes are public",
    "the size and the timing of messages; the number of people is counted within ε",
)
OUTSIDE_GRID = (
    *OUTSIDE,
    "which parties hold a person: alignment reveals it to the parties that hold this person, and to the server how "
    "many people each combination of parties has",
)


@dataclass(frozen=True)
class Record:
    """What was released so far, as it is saved: plain values, which are public, or paid for.

    `begun`: what each party that takes part stated. `noise`: of each release, as it was agreed on. `cells`: where
    columns are split, [how many people, the holders who share them]. `terms` and `sums`: by stage, what it was asked
    with, and every block as whole numbers; of choices, what each holder chose. `ended`: why a further release did not
    take place, if one was due; `lost` that holders were asked for it, and may have paid; `gone` who went away then.
    """

    begun: Begun
    noise: list[float]
    cells: list[list[Any]] = field(default_factory=list)
    terms: dict[str, Terms] = field(default_factory=dict)
    sums: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: str = ""
    lost: bool = False
    gone: list[str] = field(default_factory=list)

    @property
    def made(self) -> int:
        return len(self.sums)

    @property
    def people(self) -> int | None:
        """How many are shared, where columns are split."""
        return sum(int(people) for people, _ in self.cells) if self.cells else None

    @property
    def shared(self) -> dict[tuple[str, ...], int]:
        """How many people the holders of each cell of the grid share."""
        return {tuple(holders): int(people) for people, holders in self.cells}


class Found(Mapping[str, Any]):
    """What a run has found so far, stage by stage: `found["means"]` is what `Stage.read` makes of that release."""

    def __init__(self, study: Study[Any], record: Record) -> None:
        self.study, self.record = study, record
        self._stages: dict[str, Stage[Any]] = {}
        self._read: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.record.sums)

    def __len__(self) -> int:
        return len(self.record.sums)

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            sums = self.record.sums[name]
            self._read[name] = self.stage(name).read(sums, self.deviations(name))
        return self._read[name]

    def stage(self, name: str) -> Stage[Any]:
        """The stage of a release that was made."""
        if name not in self._stages:
            self._stages[name] = self.next(name, self.record.terms[name])
        return self._stages[name]

    def next(self, name: str, terms: Terms) -> Stage[Any]:
        """The stage of this name and these terms, after those before it."""
        before = {one: self.stage(one) for one in self.study.lasting if one != name and one in self}
        return self.study.stage(name, terms, self.noise(name), before)

    def noise(self, name: str) -> float:
        """The noise of a release, also of one that is still due."""
        return self.record.noise[[*self.study.releases].index(name)]

    def deviations(self, name: str) -> dict[str, float]:
        """The standard deviation of the noise in each block of a release, beside a diagonal."""
        return self.deviations_of(name, self.stage(name).blocks)

    def deviations_of(self, name: str, blocks: Mapping[str, BlockSpec]) -> dict[str, float]:
        """The same of such blocks, also in a release that is still due."""
        study, pricing = self.study, self.study.pricing
        sigmas = pricing.sigmas([*study.releases].index(name), blocks, self.noise(name))
        return {
            key: pricing.deviation(sigmas[key], len(self.holders(block))) for key, block in blocks.items()
        }

    def holders(self, block: BlockSpec) -> list[str]:
        """Who takes part and has a part in the block."""
        return [name for name in self.study.grid.holders(block.groups) if name in self.record.begun]


def statement(found: Found, parties: Parties, *, at_least: int | None = None) -> PrivacyStatement:
    """What the run cost, by the parties' ledgers; of a party that went away, the price of all it was asked for."""
    record, study = found.record, found.study
    there = [name for name in record.begun if name not in record.gone]
    asked = sum(
        (study.pricing.spend(number, record.noise[number]) for number in range(record.made + record.lost)),
        Counter(),
    )
    spends, gone = settled(parties, there, at_least=at_least), dict.fromkeys(VIEWS, asked)
    split, moves = len(study.grid.groups) > 1, study.pricing.moves
    outside = {"rows": OUTSIDE_ROWS, "columns": OUTSIDE, "grid": OUTSIDE_GRID}[study.grid.partition]
    return PrivacyStatement(
        parties=tuple(
            PartyPrivacy.stated(name, info, *(spends.get(name, gone)[view] for view in VIEWS))
            for name, info in record.begun.items()
        ),
        same_people=split,
        most_holders=moves,
        one_release=split or moves > 1,
        outside=outside + _missing(found),
        unguarded=DEALT if split else (),
    )


def ended(found: Found) -> str:
    """How the releases ended, for a card."""
    made, due = found.record.made, len(found.study.releases)
    if found.record.ended:
        return f"after {made} of {due} releases: {found.record.ended}"
    return "after the one release" if due == 1 else "after all releases"


def _missing(found: Found) -> tuple[str, ...]:
    """What a privacy statement says of a further release that did not take place."""
    record = found.record
    if not record.ended:
        return ()
    paid = "a party that had answered by then has paid for it; for a party that is gone, the price here counts it"
    return (
        f"release {record.made + 1} of {len(found.study.releases)}, which did not take place ({record.ended}): "
        + (paid if record.lost else "nobody was asked for it"),
    )

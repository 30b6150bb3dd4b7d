"""What a run of joint releases knows so far, as it is saved, and as it is read. All of
it is public, or paid for.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from understudy.protocols.core.forecast import figure
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import Stage, Study, Terms

Begun = dict[str, dict[str, Any]]  # what each party stated


@dataclass(frozen=True)
class Record:
    """What was released so far, as it is saved: plain values, which are public, or paid
    for. `begun`: what each party that takes part stated. `noise`: of each release, as
    it was agreed on. `cells`: where columns are split, [how many people, the holders
    who share them]. `terms` and `sums`: by stage, what it was asked with, and every
    block as whole numbers; of choices, what each holder chose. `ended`: why a further
    release did not take place, if one was due; `lost` that holders were asked for it,
    and may have paid; `gone` who went away then.
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
    def n_released(self) -> int:
        return len(self.sums)

    @property
    def people(self) -> int | None:
        return sum(int(people) for people, _ in self.cells) if self.cells else None

    @property
    def shared(self) -> dict[tuple[str, ...], int]:
        """How many people the holders of each cell of the grid share."""
        return {tuple(holders): int(people) for people, holders in self.cells}


class Measurements(Mapping[str, Any]):
    """What a run has found so far, stage by stage: `found["means"]` is what
    `Stage.read` makes of that release.
    """

    def __init__(self, study: Study[Any], record: Record) -> None:
        self.study = study
        self.record = record
        self._stages: dict[str, Stage[Any]] = {}
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.record.sums)

    def __len__(self) -> int:
        return len(self.record.sums)

    def __getitem__(self, name: str) -> Any:
        sums = self.record.sums[name]
        return self.once(
            f"release {name}",
            lambda: self.stage(name).read(sums, self.deviations(name)),
        )

    def stage(self, name: str) -> Stage[Any]:
        if name not in self._stages:
            self._stages[name] = self.next(name, self.record.terms[name])
        return self._stages[name]

    def next(self, name: str, terms: Terms) -> Stage[Any]:
        """The stage of this name and these terms, after those before it."""
        earlier = takewhile(lambda one: one != name, self.study.releases)
        before = {one: self.stage(one) for one in earlier if one in self.study.lasting}
        return self.study.stage(name, terms, self.noise(name), before)

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """What is made of releases, and asked for again and again: made once."""
        if what not in self._made:
            self._made[what] = make()
        return self._made[what]

    def noise(self, name: str) -> float:
        """The noise of a release, also of one that is still due."""
        return self.record.noise[[*self.study.releases].index(name)]

    def deviations(self, name: str) -> dict[str, float]:
        """The standard deviation of the noise in each block of a release, beside a
        diagonal.
        """
        return self.deviations_of(name, self.stage(name).blocks)

    def deviations_of(
        self, name: str, blocks: Mapping[Any, BlockSpec]
    ) -> dict[Any, float]:
        """The same of such blocks, also in a release that is still due."""
        study = self.study
        pricing = self.study.pricing
        sigmas = pricing.sigmas([*study.releases].index(name), blocks, self.noise(name))
        return {
            key: pricing.deviation(sigmas[key], len(self.holders(block)))
            for key, block in blocks.items()
        }

    def holders(self, block: BlockSpec) -> list[str]:
        """Who takes part and has a part in the block."""
        return [
            name
            for name in self.study.grid.holders(block.groups)
            if name in self.record.begun
        ]


def noise_facts(ahead: Measurements) -> list[str]:
    """What a forecast says of each release's noise and share, where its price is that
    of one Gaussian mechanism.
    """
    study = ahead.study
    shares = study.pricing.shares  # type: ignore[attr-defined]
    return [
        (
            f"{what}: noise {figure(ahead.noise(name))} times what a person moves, "
            f"{share / sum(shares):.0%} of the budget"
        )
        for (name, what), share in zip(study.releases.items(), shares, strict=True)
    ]

"""The settings of gram: declared once, told to every holder, and checked alike by all of them."""

import math
from dataclasses import dataclass
from typing import Any

from understudy.data.rules import read_rules
from understudy.ground.check import a_seed, in_range, positive, whole
from understudy.ground.errors import ConfigError

# the fine tables' share of the budget: towards 0 and 1 noise grows without end
LEAST_FINE = 0.02
MOST_FINE = 0.9
_CHOSEN, _MANY = 4, 10_000  # three-way tables with the target, where so many people or more are public
AGAIN, _MOST_AGAIN = 0.2, 0.9  # of the pairs' budget, for those that are measured twice
_FEW = 4.0  # that share is so much over the root of how many deviations of the noise the people are


@dataclass(frozen=True, kw_only=True)
class Config:
    """`components`, `steps` and `rate` are the fit's.

    `fine`: where a number has no declared bins, or a list of categories is long, this share of the budget buys fine
    tables of all columns, and by them the levels on which pairs are measured (`data/encoding/fine.py`,
    `tables/bought_levels.py`). Bounds may then be far too wide. 0: levels as the schema has them, which are
    even bins where it declares none.
    `target`: the column to predict from the others, if there is one. All pairs with it are measured a
    second time, so that both together have less noise; `scouting` is the share of the budget that the first release, of
    all pairs, takes then. What a classifier learns gains much by it, most on wide tables, and the distance of other
    pairs hardly suffers (benchmarks/joint). The fit is drawn to tables of three columns with it that have no more than
    the pairs say (`tables/with_target.py`), and rows draw it by their other columns (`tables/target_effects.py`).
    By default `scouting` is .8, and less where people are few beside the noise (`again_share`). How many there
    are is known where columns are split; elsewhere `public_people` says it, if it is public: about so many, or a bound.
    `refined`: so many other pairs, the strongest by the first release (`tables/strongest_pairs.py`), are measured once
    more, too. By default none are, however wide the table: the fit reads wide tables by what their pairs share
    (`tables/low_rank.py`), and of tables with up to 561 columns a choice of pairs gained an eighth on one and lost
    on the others.
    `triples`: three-way tables to measure besides, each of three columns of one holder (or of one group of holders);
    where pairs are measured twice they share the second release's part of the budget.
    `chosen_triples`: with a target, up to so many three-way tables of it and two other columns, the strongest by the
    first release (`tables/strongest_triples.py`), in the second release: of one holder's columns, or of two holders'
    (`gram/stages.py`), for which pairs of levels are multiplied as all levels were before. By default four where
    `public_people` says that there are 10,000 or more, and else none: they make all of that release noisier, by a sixth
    with 13 columns, and where people are few that costs more than it tells.
    `rules`: what every row keeps across holders, besides the rules of their schemas (`data/rules.py`). Nothing is
    measured for it: what is fitted is the law given the rules, and what is drawn keeps them.
    `most_holders`: over rows, how many holders may hold a person. Nobody can check it without an alignment, so the
    holders state it; noise is for a person who moves every count by so much. Over a grid alignment refuses such people,
    and the setting is for holders who fear a server that departs from the protocol.
    ε holds when up to `colluding` of the holders of a block pool what they know. Over rows the run continues without
    parties that go away early as long as `at_least` are left (None: all must stay). `chunk`: people per message.
    """

    components: int = 512
    steps: int = 1200
    rate: float = 0.2
    fine: float = 0.2
    target: str | None = None
    refined: int = 0
    scouting: float | None = None
    public_people: int | None = None
    triples: tuple[tuple[str, str, str], ...] = ()
    chosen_triples: int | None = None
    rules: tuple[dict[str, Any], ...] = ()
    colluding: int = 1
    at_least: int | None = None
    most_holders: int = 1
    chunk: int = 1 << 15
    private: bool = True
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        whole(components=self.components, steps=self.steps, colluding=self.colluding, chunk=self.chunk)
        whole(most_holders=self.most_holders)
        if self.at_least is not None:
            whole(at_least=self.at_least)
        positive(rate=self.rate)
        a_seed(seed=self.seed)
        for name, count in (("refined", self.refined), ("chosen_triples", self.chosen_triples)):
            if count is not None and (type(count) is not int or count):
                whole(**{name: count})
        if type(self.private) is not bool:
            raise ConfigError(f"private is true or false, not {self.private!r}.")
        if self.public_people is not None:
            whole(public_people=self.public_people)
        if self.scouting is not None:
            in_range(0.05, 0.95, scouting=self.scouting)
        if self.fine:
            in_range(LEAST_FINE, MOST_FINE, fine=self.fine)
        triples = tuple(tuple(names) for names in self.triples)
        named = all(isinstance(name, str) for names in triples for name in names)
        if (
            not named
            or any(len({*names}) != 3 or len(names) != 3 for names in triples)
            or len({*triples}) < len(triples)
        ):
            raise ConfigError("triples must be different sets of three columns.")
        object.__setattr__(self, "triples", triples)
        object.__setattr__(self, "rules", tuple(rule.to_dict() for rule in read_rules(self.rules)))

    @property
    def most_triples(self) -> int:
        """How many three-way tables with the target are chosen at most: as is set, and else by public numbers."""
        if self.chosen_triples is not None:
            return self.chosen_triples
        many = self.public_people is not None and self.public_people >= _MANY
        return _CHOSEN if self.target is not None and many else 0


def again_share(people: int, noise: float) -> float:
    """Which part of the pairs' budget goes to the pairs with a target, once more.

    `noise` is that of a cell if all pairs had all of it. A fifth, where people are many. Where they are few beside the
    noise, no pair by itself tells much, and m − 1 of m(m − 1)/2 are cheap: they have up to nine tenths. Public numbers
    alone decide.
    """
    return min(_MOST_AGAIN, max(AGAIN, _FEW * math.sqrt(noise / min(people, 1 << 53))))

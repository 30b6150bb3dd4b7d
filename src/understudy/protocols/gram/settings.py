"""The settings of gram: declared once, announced to every holder, and checked in the
same way by all of them.
"""

import math
from dataclasses import dataclass
from typing import Any

from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError
from understudy.ground.settings import (
    NONE_OR_MORE,
    POSITIVE,
    WHOLE,
    Declared,
    Takes,
    between,
    choice,
    setting,
)
from understudy.protocols.core import settings as usual

# of the budget, for fine tables: towards 0 and 1 noise grows without end
LEAST_FINE = 0.02
MOST_FINE = 0.9
# how many three-way tables with the target are chosen, where at least `_MANY` people
# are public: they make that release noisier, which costs few people more than it tells
_CHOSEN = 4
_MANY = 10_000
SEARCHED = 8  # three-way tables at most, where a search is the default
SEARCH = 0.2  # of the part for pairs once more, for that search
# people for each unit of a search's σ: below, an effect of a tenth is less than four
# deviations, and no search is made
SHOWN = 40.0
# people for each that a three-way table's noise is of: what is left of those places
# goes to tables with the target (joint/NOTES.md, "Budget that buys nothing")
PLENTY = 900.0
SPIKES = 0.04  # of what pairs cost, for the digits of numbers that many share
# of the pairs' budget, for what is measured after all pairs; for the strongest alone
AGAIN = 0.2
STRONGEST = 0.1  # joint/strongest.csv: .15 costs the average of credit 7 %
MANY_COLUMNS = 10  # of which the strongest pairs, as many, are measured twice
_MOST_AGAIN = 0.9
# the second measurement's share is `_FEW` · √(σ / people), between `AGAIN` and
# `_MOST_AGAIN` (`again_share`)
_FEW = 4.0


def _check_triples(triples: Any) -> None:
    if isinstance(triples, tuple | list) and all(
        isinstance(names, tuple | list) for names in triples
    ):
        texts = all(isinstance(name, str) for names in triples for name in names)
        different = (
            len({tuple(names) for names in triples}) == len(triples) if texts else False
        )
        if different and all(len(names) == len({*names}) == 3 for names in triples):
            return
    raise ConfigError("triples must be different sets of three columns.")


TRIPLES = Takes(
    "a list of lists of three columns",
    _check_triples,
    lambda triples: tuple(map(tuple, triples)),
)


def _fine(**settings: Any) -> None:
    for name, share in settings.items():
        if share != 0 or type(share) not in (int, float):
            in_range(LEAST_FINE, MOST_FINE, **{name: share})


FINE = Takes(f"0, or between {LEAST_FINE} and {MOST_FINE}", check_named=_fine)


@dataclass(frozen=True, kw_only=True)
class PairsOfAll(Declared):
    """All pairs are measured, those with a `target` better, and a mixture is fitted to
    them. `first_pass_share` is the share of the budget that all pairs take alike: by
    default .9 where the strongest alone are measured again, else .8, and with a target
    less where people are few beside the noise (`again_share`). How many there are is
    known where columns are split; elsewhere `public_people` says it.
    """

    target: str | None = usual.target()
    first_pass_share: float | None = setting(
        None,
        between(0.05, 0.95),
        "share of the budget for all pairs, where some are measured twice; by "
        "default .9; with a target .8, and less for few people",
    )
    public_people: int | None = setting(
        None,
        WHOLE,
        "about how many people there are, if that is public; for few, a target's "
        "pairs get more budget",
    )
    components: int = setting(512, WHOLE, "products in the mixture that is fitted")
    steps: int = setting(1200, WHOLE, "the most steps of the fit")
    rate: float = setting(0.2, POSITIVE, "learning rate of the fit")
    device: str = usual.device()


@dataclass(frozen=True, kw_only=True)
class Config(PairsOfAll, usual.OverRows, usual.OverColumns):
    """`fine`: where a number has no declared bins, or more than a dozen, or a list of
    categories is long, this share of the budget buys fine tables of all columns, and by
    them the levels on which pairs are measured (`data/encoding/fine.py`,
    `tables/merged_levels.py`). Bounds may then be far too wide. `target`: all pairs
    with it are measured a second time. What a classifier learns gains much by it, most
    on wide tables, and other pairs hardly suffer (benchmarks/joint). The fit is drawn
    to tables of three columns with it that have no more than the pairs say, and rows
    draw it by their other columns (`tables/target.py`). `remeasured_pairs`
    (`tables/strongest.py`): the strongest pairs are what an analyst looks at first, and
    a tenth of the budget measures as many as there are columns two to three times as
    well (benchmarks/joint). With a target, by default none. `triples` share the second
    release's part of the budget, where pairs are measured twice. `target_triples`
    (`tables/strongest.py`): of one holder's columns, or of two holders'
    (`gram/stages.py`). By default four where `public_people` are 10,000 or more, else
    none: they make all of that release noisier, by a sixth with 13 columns, which costs
    few people more than it tells. `searched_triples` (`tables/strongest.py`): effects
    of three columns that no pair shows, found by a 25th of the pairs' budget
    (benchmarks/scale). By default up to eight, where all holders have the same columns,
    a target is named and people are many (`SHOWN`) by what was released; of fewer the
    target's pairs have that part of the budget. Where people are plenty beside the
    noise (`PLENTY`), tables with the target that tell the most take the places of
    those that were not found. `rules`: what is fitted is the law
    given the rules, and what is drawn keeps them; nothing is measured for them.
    `max_holders_per_person`: nobody can check it in a horizontal partition without an
    alignment, so the holders state it; noise is for a person who moves every count by
    so much. Over a grid it is for holders who fear a server that departs from the
    protocol.
    """

    fine: float = setting(
        0.3,
        FINE,
        "share of the budget for fine tables, by which levels are chosen where "
        "none are declared; 0: even bins",
    )
    remeasured_pairs: int | None = setting(
        None,
        NONE_OR_MORE,
        "how many other pairs are measured a second time: the strongest by the "
        "first release; by default as many as columns, where these are ten or more "
        "and no target is named",
    )
    triples: tuple[tuple[str, str, str], ...] = setting(
        (),
        TRIPLES,
        "further three-way tables to measure, each with columns of one holder only",
    )
    target_triples: int | None = setting(
        None,
        NONE_OR_MORE,
        "three-way tables of the target, chosen by the first release; 4 with many "
        "public people",
    )
    searched_triples: int | None = setting(
        None,
        NONE_OR_MORE,
        "three-way tables of any columns, found by a release of all triples in "
        "halves; 8 by default",
    )
    rules: tuple[dict[str, Any], ...] = setting(
        (),
        usual.RULES,
        "what every row keeps across holders, besides the rules of their schemas "
        "(`data/rules.py`)",
    )

    products: str = usual.products("encrypted")

    alignment: str = setting(
        "intersection",
        choice("intersection", "union"),
        "in a vertical partition, whose rows count: people whom all holders have, and "
        "who these "
        "are is disclosed to the holders; or, of two holders, all whom either has, and "
        "nobody learns who is shared if holders follow the protocol (with products = "
        '"dealt", but a server together with a holder)',
    )

    @property
    def most_triples(self) -> int:
        """How many three-way tables with the target are chosen at most: as is set, and
        else by public numbers.
        """
        if self.target_triples is not None:
            return self.target_triples
        enough_people = self.public_people is not None and self.public_people >= _MANY
        return _CHOSEN if self.target is not None and enough_people else 0


def again_share(people: int, noise: float) -> float:
    """Which part of the pairs' budget goes to the pairs with a target, once more.
    `noise` is that of a cell if all pairs had all of it. A fifth, where people are
    many. Where they are few beside the noise, no pair by itself tells much, and m − 1
    of m(m − 1)/2 are cheap: they have up to nine tenths. Public numbers alone decide.
    """
    return min(_MOST_AGAIN, max(AGAIN, _FEW * math.sqrt(noise / min(people, 1 << 53))))

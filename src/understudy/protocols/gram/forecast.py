"""What a plan says of a gram run before it: which stages it has, the noise and the
error of their cells, how many levels to expect, time and memory.

Guarantee: reads no row.
Edges: bought levels depend on what will be released; a plan says how many the rule
gives for so many people.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from understudy.data.column import Column
from understudy.data.encoding.fine import has_many_bins, is_bought, is_tree
from understudy.data.schema import Block, Schema
from understudy.ground.check import pluralize
from understudy.models.tables.fitted_levels import fitted_width
from understudy.models.tables.merged_levels import level_count, most_levels
from understudy.models.tables.target import MOST_LEVELS
from understudy.models.timing import UNIT, unit_seconds
from understudy.privacy.accounts.budget import shown
from understudy.protocols.core.forecast import (
    BASE,
    DRAW,
    MORE,
    READ,
    TREE,
    Error,
    Expectation,
    Forecast,
    Stage,
    alignment_seconds,
    figure,
)
from understudy.protocols.gram.layout import Layout
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.stage import Product

if TYPE_CHECKING:
    from understudy.answers.public_quality import PublicQuality

_CLEAR = 2.0  # deviations of its noise: a count of fewer people tells nothing
# so many deviations: people who are no more than that cannot be told from noise
_FEW = 4.0
# seconds for a person and a cell of a block: of one holder, of two
_COUNT = 3e-11
_PRODUCT = 1e-9
# bytes of memory for a cell of the joint matrix, and for one that is fitted
_CELL = 60
_FITTED_CELL = 210
_UNION = 3  # of the time of an intersection (benchmarks/alignment)
_VALUE = 40  # bytes for a value of a table
# units of a fit's work (`models.timing`): to read the tables, at a width of UNIT; grows
# as its cube
_READ_TABLES = 300.0
# units of a step, at a width of UNIT and so many components; grows as the square
_STEP = 3.6
_LEVEL = 2.2  # the same for each level of a target but one
_STOPS = 0.25  # of its steps a fit takes about so many: it stops where noise begins
_BEGIN = 0.25  # seconds before the first step


def foreseen(study: Any, ahead: Measurements, forecast: Forecast) -> dict[str, Any]:
    """What a forecast of these releases says besides what all say."""
    config = study.config
    layout = study.layout
    people = forecast.people
    noise = [study.deviations(ahead, name) for name in study.releases]
    before = [*study.releases].index("pairs")
    first = noise[max(before - 1, 0)]
    pair = max(noise[before].values())
    public_people = (
        study.expected_shared(people) if forecast.partition == "vertical" else None
    )
    third = math.inf
    searched = None if people is None else study.is_searched(people, ahead)
    # pairs with the target in its place, as many as were agreed on
    if study.searched and searched is False:
        third = study.pricing.deviation(ahead.noise("threes"), len(layout.schemas))
        noise[-2] = dict.fromkeys(noise[-2], third)
    smallest_budget = min(forecast.budgets.values(), key=lambda budget: budget.epsilon)
    expected = None
    if people is not None and pair:
        expected = Expectation(
            people=people,
            epsilon=smallest_budget.epsilon,
            single=max(first.values()),
            pair=pair,
            levels=_levels(layout.joint.columns, layout.buys),
        )
    widths = _widths(layout, people, pair)
    encryption = 0.0
    if study.encrypted and people is not None:
        from understudy.protocols.joint.encrypted import seconds_each

        # levels that will be bought among them
        product = Product.of_all(_group_widths(layout, widths))
        bits = study.ring(people, ahead.record.noise).bits
        encryption = people * seconds_each(product, bits)
    too_fine = _too_fine(layout, people, first, pair)
    takes, memory = _takes(study, widths, people, encryption)
    largest = max(max(each.values()) for each in noise)
    return {
        "stages": _stages(
            study, study.pricing.shares(smallest_budget, public_people), noise, searched
        ),
        "errors": _errors(layout, config, noise[max(before - 1, 0) :], third),
        "levels": _bought(layout, widths, people, pair),
        "too_fine": too_fine,
        "takes": takes,
        "memory": memory,
        "warnings": tuple(
            _warnings(study, people, largest, expected, too_fine, memory)
        ),
        "expected": expected,
    }


def expectation(
    schema: Schema,
    people: int,
    spent: float,
    sigmas: Sequence[float],
    buys: bool,
    quality: "PublicQuality",
) -> dict[str, str]:
    """What a card says of what can be expected of a run with this noise, of fine tables
    and pairs, or of pairs, and a warning where that is poor. The words are those of the
    worst column that was released, not of an average.
    """
    pair = sigmas[min(int(buys), len(sigmas) - 1)]
    if not pair:
        return {}
    levels = _levels(schema.columns, buys)
    expected = Expectation(
        people=people, epsilon=spent, single=sigmas[0], pair=pair, levels=levels
    )
    headline = quality.headline(people, shown(spent), expected.pairs_are_noise)
    return {"expected": headline} | (
        {"warning": f"{headline} {MORE}"} if expected.poor else {}
    )


def _levels(columns: Iterable[Column], buys: bool) -> tuple[float, ...]:
    """How many levels each column has, infinity where they are bought."""
    return tuple(
        math.inf if buys and is_tree(column) else column.size for column in columns
    )


def _stages(
    study: Any,
    shares: Sequence[float],
    noise: Sequence[Mapping[Block, float]],
    searched: bool | None,
) -> tuple[Stage, ...]:
    """What each release is of: its share of the budget, the cells that a person moves,
    and its noise by holders.
    """
    grid = study.grid

    def whose(block: Block) -> str:
        return " × ".join(
            " + ".join(grid.groups[group]) for group in sorted(set(block))
        )

    blocks = {
        "reach": [(g, g) for g in study.layout.tops],
        "fine": [(g, g) for g in range(len(grid.groups))],
    }
    stages = []
    for what, share, name, each in zip(
        _words(study, searched), shares, study.releases, noise, strict=True
    ):
        moved = sum(cells for _, cells in study.spreads[name].moved)
        by_holders = {
            whose(block): each[block] for block in blocks.get(name, grid.blocks)
        }
        stages.append(Stage(what=what, share=share, moved=moved, noise=by_holders))
    return tuple(stages)


def _words(study: Any, searched: bool | None) -> list[str]:
    layout = study.layout
    config = study.config
    pairs = f"{math.comb(layout.columns, 2):,} pairs"
    columns = pluralize(layout.columns, "column")
    words = [f"{columns} and {pairs}"]
    if layout.buys:
        ended = [tree.name for trees in layout.trees for tree in trees.ended.values()]
        words = [
            f"fine tables of {columns}"
            + (f", and the ends of {', '.join(ended)}" if ended else ""),
            f"all {pairs}" if layout.columns > 1 else "the column on its levels",
        ]
        words[-1] += ", and digits of numbers that many share" if study.spiky else ""
    if layout.unbounded:
        words.insert(
            0, f"where {', '.join(column.name for column in layout.unbounded)} lie"
        )
    if study.searched:
        threes = f"{math.comb(layout.columns, 3):,} threes of columns, in halves"
        with_target = f"pairs with {config.target}"
        words.append(
            {
                True: threes,
                False: with_target,
                None: f"{threes}, or of few people {with_target}",
            }[searched]
        )
    twice = (
        [f"{layout.columns - 1:,} with {config.target}"]
        if config.target and layout.columns > 1
        else []
    )
    twice += [f"the {study.remeasured:,} strongest"] if study.remeasured else []
    second = [f"pairs once more: {', '.join(twice)}"] if twice else []
    if study.searched and searched is not False:
        second.append(f"up to {study.searched} three-way tables that go beyond pairs")
    words += [", and ".join(second)] if second else []
    words[-1] += (
        f", and {len(config.triples)} three-way tables" if config.triples else ""
    )
    if study.most_triples:
        chosen = f"{study.most_triples} three-way tables with {config.target}"
        words[-1] += f", and up to {chosen}, the strongest by what was released"
    return words


def _errors(
    layout: Layout, config: Any, noise: Sequence[Mapping[Block, float]], third: float
) -> tuple[Error, ...]:
    """Of counts of one column and of cells of a pair; those with the target are the
    mean of two measurements or three, before tables that are found take a part.
    """
    inside = [
        (g, g) for g, schema in enumerate(layout.groups) if len(schema.columns) > 1
    ]
    across = [block for block in layout.grid.blocks if block[0] != block[1]]
    pairs = noise[int(layout.buys)]
    deviations = {
        "a count of one column": [noise[0][g, g] for g in range(len(layout.groups))]
    }
    deviations[
        f"a cell of a pair{' at one holder' if len(layout.groups) > 1 else ''}"
    ] = [pairs[b] for b in inside]
    deviations["a cell of a pair across holders"] = [pairs[b] for b in across]
    if config.target is not None and layout.columns > 1:
        target_group = next(
            g for g, schema in enumerate(layout.groups) if config.target in schema.names
        )
        with_target = [b for b in (*inside, *across) if target_group in b]
        both = [_mean(pairs[b], noise[-1][b]) for b in with_target]
        deviations[f"a cell of a pair with {config.target}"] = [
            _mean(values, third) for values in both
        ]
    return tuple(
        Error(what=what, least=min(values), largest=max(values))
        for what, values in deviations.items()
        if values
    )


def _mean(one: float, other: float) -> float:
    """The deviation of the mean of two measurements, weighted by 1/variance."""
    return one / math.hypot(1, one / other) if one and other else 0.0


def _widths(layout: Layout, people: int | None, noise: float) -> dict[str, int]:
    """How many levels each column will have, at most."""
    columns = layout.joint.columns
    if not layout.buys:
        return {column.name: column.size for column in columns}
    max_levels = most_levels(columns)
    levels = max_levels if people is None else level_count(people, noise, max_levels)
    n_clear = (
        max_levels
        if people is None or not noise
        else min(max_levels, int(people / (_CLEAR * noise)) + 1)
    )

    def width(column: Column) -> int:
        if not is_bought(column):
            return column.size
        limit = (
            column.levels
            if has_many_bins(column) or not is_tree(column)
            else max_levels
        )
        return min(limit, levels if is_tree(column) else n_clear) + column.nullable

    return {column.name: width(column) for column in columns}


def _bought(
    layout: Layout, widths: Mapping[str, int], people: int | None, noise: float
) -> dict[str, str]:
    """What becomes of the columns whose levels are bought."""
    if not layout.buys:
        return {}
    words = {}
    for column in layout.joint.columns:
        if is_tree(column):
            levels = widths[column.name] - column.nullable
            about = "at most" if people is None else "about"
            words[column.name] = (
                f"finely by itself; in pairs cut into {about} {levels} levels"
            )
        elif is_bought(column):
            rare = (
                f"those of fewer than about {figure(_CLEAR * noise)} people are one "
                "level"
            )
            words[column.name] = f"{column.levels:,} categories; in pairs {rare}"
    return words


def _too_fine(
    layout: Layout, people: int | None, first: Mapping[Block, float], pair: float
) -> dict[str, str]:
    """The columns whose declared levels are so many that an average one, or its cells,
    cannot be told from noise.
    """
    words: dict[str, str] = {}
    if people is None:
        return words
    for group, schema in enumerate(layout.groups):
        noise = first[group, group]
        for column in schema.columns:
            if layout.buys and is_bought(column):
                continue
            each = people / column.size
            reason = ""
            if column.size > 2 and each < _CLEAR * noise:
                reason = (
                    f"an average one has {figure(each)} people, and each count is "
                    f"uncertain by ±{figure(noise)}"
                )
            elif column.size > 2 and each / column.size < pair / _CLEAR:
                average = f"an average cell has {figure(each / column.size)} people"
                reason = (
                    f"with another such column {average}, and each is uncertain by "
                    f"±{figure(pair)}"
                )
            if reason:
                words[column.name] = f"{column.size:,} levels: {reason}"
    return words


def _warnings(
    study: Any,
    people: int | None,
    largest: float,
    expected: Expectation | None,
    too_fine: Mapping[str, str],
    memory: float,
) -> Iterable[str]:
    config = study.config
    if expected is not None and expected.poor:
        yield f"{expected} {MORE}"
    if too_fine and people is not None and people > _FEW * largest:
        yield (
            f"Too fine for so many people: {', '.join(too_fine)}. Declare fewer levels "
            "or bins; a number without `bins` gets levels that fit (fine above 0)."
        )
    if memory > (physical := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        yield (
            f"It takes about {memory / 1e9:.0f} GB, and this machine has "
            f"{physical / 1e9:.0f}."
        )
    stated = (config.first_pass_share, people, config.public_people)
    if (
        config.target is not None
        and stated == (None, None, None)
        and study.grid.partition == "vertical"
    ):
        yield (
            f"With few people the pairs with {config.target} take more of the budget: "
            "say how many there are."
        )


def _group_widths(layout: Layout, widths: Mapping[str, int]) -> list[int]:
    return [sum(widths[name] for name in schema.names) for schema in layout.groups]


def _takes(
    study: Any, widths: Mapping[str, int], people: int | None, encryption: float
) -> tuple[dict[str, float], float]:
    """Seconds by what they go into, and bytes."""
    config = study.config
    layout = study.layout
    groups = _group_widths(layout, widths)
    width = sum(groups)
    holders = len(layout.schemas)
    n_people = people or 0
    nodes = sum(trees.nodes for trees in layout.trees) if layout.buys else 0
    takes = {}
    if layout.grid.partition != "horizontal" and n_people:
        takes["alignment"] = alignment_seconds(people, holders)
        if study.union:
            takes["alignment"] *= _UNION
    across = sum(a * b for a, b in combinations(groups, 2))
    if encryption:
        takes["encryption"] = encryption
    within = sum(g**2 for g in groups)
    takes["counting"] = (
        n_people * (across * _PRODUCT + within * _COUNT)
        + (width**2 / 2 + nodes) * holders * DRAW
    )
    takes["counting"] += (
        TREE * sum(map(is_tree, layout.joint.columns)) * layout.buys
        + READ * n_people * layout.columns
    )
    fitted = fitted_width(list(widths.values()))
    predicted = 1 if config.target is None else widths[config.target]
    takes["the fit"] = fit_seconds(fitted, config.steps, config.components, predicted)
    return (
        takes,
        BASE
        + _CELL * width**2
        + _FITTED_CELL * fitted**2
        + _VALUE * n_people * layout.columns,
    )


def fit_seconds(width: int, steps: int, components: int, levels: int) -> float:
    """About how long a fit takes, by the width that it has; `levels` of a target, else
    1.
    """
    scale = width / UNIT
    n_steps = _STOPS * steps * components / UNIT
    step = _STEP
    if levels <= MOST_LEVELS:
        step += _LEVEL * (levels - 1)
    work = _READ_TABLES * scale**3 + step * n_steps * scale**2
    return _BEGIN + unit_seconds() * work

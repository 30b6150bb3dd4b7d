"""Singling out, linkability and attribute inference: what a synthetic table tells about
single people.

Giomi et al. (PoPETs 2023), §5; the three criteria of the Article 29 Working Party's
opinion on anonymisation (2014).

*Singling out* (§5.1, after Cohen and Nissim, PNAS 2020): can someone write down, from
the synthetic table, a predicate that fits exactly one person? Univariate: values that
one synthetic row has alone, and the ends of ordered columns. Multivariate: a random
synthetic row in `columns` random columns, "at least" above the median of an ordered
column, "at most" up to it, "equal" elsewhere. Predicates that fit one synthetic row are
kept; an attack succeeds where one fits one training row. Control: one held-out row.
Baseline: as many random predicates, on the training rows. Synthetic rows are compared
without repeats, as in the paper, but real rows with repeats, since two equal people are
two. Here attack and control are run on equally many people: of the larger table, a
sample by lot. Many predicates may single out one and the same unusual person, so they
are no independent trials as in the paper: the Wilson intervals count P·Σk/Σk² trials
for P predicates of which k single out each person. Test: other choices of the training
people among both groups; counted is by how many predicates the attack singles out more
people than its control. A predicate that fits more than `CROWD` of them singles out
nobody under nearly every choice (k of 30 people all but one on one side: 3·10⁻⁸), and
takes no part in the test.

*Linkability* (§5.2): an attacker holds a person's columns of one kind here and of
another kind there (two parties' columns) and wants to know that they belong together.
The attack succeeds where the same synthetic row is the nearest to both. *Inference*
(§5.3): an attacker knows all columns but one and guesses the secret of the nearest
synthetic row; a secret is guessed when its level is. Control of both: the same against
held-out people. Baseline: synthetic rows drawn by lot, without looking at what is
known; its success is computed and not drawn. Where several synthetic rows are equally
near, the attacker takes one by lot: the library takes the first, and on coarse columns
then links everybody through row 0. Test: other choices of the training people among all
that were attacked.

Edges: no columns, no rows, no predicates → the reason; fewer people or predicates than
wished for → all of them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from understudy.evaluate.attacks.attack import Attack, Measure
from understudy.evaluate.attacks.rates import (
    Floats,
    Lots,
    Rate,
    effective,
    luck,
    more,
    wilson,
)
from understudy.evaluate.figure import FigureKey
from understudy.evaluate.utility.distance import (
    BLOCK,
    Attacked,
    Distances,
    EncodedRows,
    Space,
)
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError

Ints = NDArray[np.int64]

Predicates = NDArray[np.int64]
"""Conjunctions of tests: (predicates, tests, 4).

A test is column, low, high, and 1 where it is negated.
"""

BATCH = 1000
# batches are drawn until there are enough predicates, or so many times as many were
# tried
TRIES = 20
# people of both groups; a predicate that fits more takes no part in the test
CROWD = 30
# =, ≠, ≥, ≤, >, < in the baseline; the first two alone where there is no order
RANDOM_TESTS = 6


def matches(predicates: Predicates, codes: Codes) -> tuple[Ints, Ints]:
    """How many rows each predicate fits, and the first of them (0 where there is
    none).
    """
    found = np.empty((2, len(predicates)), np.int64)
    for part, fits in _fitting(predicates, codes):
        byte = (fits != 0).argmax(axis=1)
        bit = np.unpackbits(fits[np.arange(len(fits)), byte][:, None], axis=1).argmax(
            axis=1
        )
        found[:, part] = (
            np.bitwise_count(fits).astype(np.int32).sum(axis=1),
            8 * byte + bit,
        )
    return found[0], found[1]


def _fitting(
    predicates: Predicates, codes: Codes
) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
    """A few predicates at a time, and whether each fits each row, eight rows a byte;
    every test is made once.
    """
    flat = predicates.reshape(-1, 4)
    column, low, high, negated = flat.T
    top = int(flat[:, 1:3].max(initial=0)) + 1
    keys = ((column * top + low) * top + high) * 2 + negated
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    place = place.reshape(predicates.shape[:2])
    levels = np.ascontiguousarray(
        codes.T, dtype=np.uint8 if codes.max(initial=0) < 256 else np.int32
    )
    bits = np.empty((len(first), -(-len(codes) // 8)), np.uint8)
    for i, (j, least, most, negate) in enumerate(flat[first].tolist()):
        bits[i] = np.packbits(
            ((levels[j] >= least) & (levels[j] <= most)) ^ bool(negate)
        )
    few = max(1, BLOCK // max(1, len(codes)))
    for begin in range(0, len(predicates), few):
        part = slice(begin, begin + few)
        fits = bits[place[part, 0]]
        for j in range(1, predicates.shape[1]):
            fits &= bits[place[part, j]]
        yield part, fits


def distinct(predicates: Predicates) -> Predicates:
    flat = predicates.reshape(len(predicates), predicates.shape[1] * 4)
    return predicates[np.sort(np.unique(flat, axis=0, return_index=True)[1])]


def singling_out(
    tables: Attacked, *, columns: int = 3, predicates: int = 1000, seed: int = 0
) -> Attack:
    """Attack with up to `predicates` predicates over `columns` columns each; 1 is the
    univariate attack.
    """
    whole(columns=columns, predicates=predicates)
    what = FigureKey(
        "singling_out", part="univariate" if columns == 1 else str(columns)
    )
    train = tables.train
    holdout = tables.holdout
    space = tables.space
    reason = tables.lacking()
    if reason:
        return Attack.absent(what, reason)
    if columns > train.shape[1]:
        return Attack.absent(
            what, f"{columns} columns are needed and the table has {train.shape[1]}."
        )
    rng = np.random.default_rng([seed, 0])
    table = np.unique(tables.synthetic, axis=0)
    if columns == 1:
        guesses = univariate(table, space)
        guesses = guesses[rng.permutation(len(guesses))[:predicates]]
    else:
        guesses = multivariate(table, space, columns, predicates, rng)
    if not len(guesses):
        return Attack.absent(
            what, f"no predicate over {columns} columns fits exactly one synthetic row."
        )
    people = min(len(train), len(holdout))
    inside, outside = _targets(tables, people, rng)
    tried = len(guesses)
    naive = random_predicates(table, space, columns, len(guesses), rng)
    measure = Measure(
        "success",
        _rate(*matches(guesses, inside)),
        _rate(*matches(guesses, outside)),
        _rate(*matches(naive, inside)),
        by_luck(guesses, inside, outside, seed=seed),
    )
    note = (
        f"{tried:,} of {predicates:,} predicates, on {people:,} of {len(train):,} "
        f"training and {people:,} of {len(holdout):,} held-out rows"
    )
    return Attack(what=what, measures=(measure,), note=note, control=people)


def by_luck(
    guesses: Predicates, inside: Codes, outside: Codes, *, seed: int = 0
) -> float:
    """How easily other people in the place of `inside` would be singled out as much
    more than those left.
    """
    people = np.concatenate([inside, outside])
    fitting = []
    crowds = []
    for _, bits in _fitting(guesses, people):
        crowd = np.bitwise_count(bits).astype(np.int32).sum(axis=1)
        some = (crowd > 0) & (crowd <= CROWD)
        fitting.append(
            csr_array(
                np.unpackbits(bits[some], axis=1, count=len(people)).astype(np.int32)
            )
        )
        crowds.append(crowd[some])

    def beyond(lots: Lots) -> Floats:
        sides = np.ascontiguousarray(lots.T, dtype=np.int32)  # (people, draws)
        gain = np.zeros(len(lots))
        for fits, crowd in zip(fitting, crowds, strict=True):
            ours = fits @ sides  # (predicates, draws)
            gain += np.count_nonzero(ours == 1, axis=0) - np.count_nonzero(
                crowd[:, None] - ours == 1, axis=0
            )
        return gain[:, None]

    return luck(beyond, np.arange(len(people)) < len(inside), seed=seed)[0]


def univariate(table: Codes, space: Space) -> Predicates:
    """Every test of one column that fits exactly one row: its only bearer, the lowest,
    the highest.
    """
    tests: list[tuple[int, int, int, int]] = []
    for j, size in enumerate(space.sizes):
        rows = np.bincount(table[:, j], minlength=size)
        present = space.present(j)
        tests += [(j, v, v, 0) for v in np.flatnonzero(rows == 1).tolist()]
        held = np.flatnonzero(rows[:present]).tolist()
        if space.ordered[j] and held:
            ends = ((held[0], 0, held[0]), (held[-1], held[-1], present - 1))
            tests += [(j, low, high, 0) for end, low, high in ends if rows[end] == 1]
    return distinct(np.array(tests, dtype=np.int64).reshape(-1, 1, 4))


def multivariate(
    table: Codes, space: Space, columns: int, wanted: int, rng: np.random.Generator
) -> Predicates:
    """Up to `wanted` distinct predicates that fit exactly one row, each from a random
    row and random columns.
    """
    ordered, present = _order(space)
    present_levels = [
        column[column < most] for column, most in zip(table.T, present, strict=True)
    ]
    middle = np.array(
        [np.median(levels) if len(levels) else 0 for levels in present_levels]
    )
    kept = np.empty((0, columns, 4), dtype=np.int64)
    for _ in range(TRIES * (1 + wanted // BATCH)):
        chosen = _column_sets(table.shape[1], columns, BATCH, rng)
        level = np.take_along_axis(
            table[rng.integers(len(table), size=BATCH)], chosen, axis=1
        )
        order = ordered[chosen] & (level < present[chosen])
        above = level > middle[chosen]
        low = np.where(order & ~above, 0, level)
        high = np.where(order & above, present[chosen] - 1, level)
        drawn = np.stack([chosen, low, high, np.zeros_like(chosen)], axis=2)
        kept = distinct(np.concatenate([kept, drawn[matches(drawn, table)[0] == 1]]))
        if len(kept) >= wanted:
            break
    return kept[:wanted]


def random_predicates(
    table: Codes, space: Space, columns: int, count: int, rng: np.random.Generator
) -> Predicates:
    """Random columns, random tests, random values among those that the table holds."""
    held = [np.unique(column) for column in table.T]
    chosen = _column_sets(table.shape[1], columns, count, rng)
    drawn = np.stack(
        [values[rng.integers(len(values), size=count)] for values in held], axis=1
    )
    level = np.take_along_axis(drawn, chosen, axis=1)
    ordered, present = (part[chosen] for part in _order(space))
    test = rng.integers(np.where(ordered & (level < present), RANDOM_TESTS, 2))
    low = np.select([test == 3, test == 4, test == 5], [0, level + 1, 0], level)
    high = np.select(
        [test == 2, test == 4, test == 5], [present - 1, present - 1, level - 1], level
    )
    # "above the highest": written as 1 ≤ level ≤ 0, so that no end is negative
    empty = low > high
    return np.stack(
        [chosen, np.where(empty, 1, low), np.where(empty, 0, high), test == 1], axis=2
    ).astype(np.int64)


def _rate(found: Ints, first: Ints) -> Rate:
    """The share of predicates that fit one row; as many trials as if each row were
    singled out but once.
    """
    trials = effective(len(found), np.bincount(first[found == 1]))
    return wilson(float(np.mean(found == 1)) * trials, trials)


def _column_sets(
    width: int, columns: int, count: int, rng: np.random.Generator
) -> Ints:
    keys = rng.random((count, width))
    return np.sort(np.argpartition(keys, columns - 1, axis=1)[:, :columns], axis=1)


def _order(space: Space) -> tuple[NDArray[np.bool_], Ints]:
    present = [space.present(j) for j in range(len(space.sizes))]
    return np.array(space.ordered), np.array(present, dtype=np.int64)


def linkability(
    tables: Attacked,
    left: Sequence[int],
    right: Sequence[int],
    *,
    targets: int = 1000,
    seed: int = 0,
) -> Attack:
    """Link people's columns `left` to their columns `right`, say those of two parties,
    by column number.
    """
    whole(targets=targets)
    synthetic = tables.synthetic
    space = tables.space
    _in_table([*left, *right], len(space.sizes))
    reason = tables.lacking() or (
        "" if left and right else "one of the two sides has no columns."
    )
    if reason:
        return Attack.absent(FigureKey("linkability"), reason)
    inside, outside = _targets(tables, targets, np.random.default_rng([seed, 0]))
    people = np.concatenate([inside, outside])
    one, other = (
        _nearest(
            EncodedRows(synthetic[:, side], space.take(side)),
            people[:, side],
            [seed, 1, number],
        )
        for number, side in enumerate((list(left), list(right)))
    )
    linked = (one == other).astype(float)
    measure = _measure(
        linked[: len(inside)],
        linked[len(inside) :],
        Rate.known(1 / len(synthetic)),
        seed,
    )
    note = (
        f"{len(left)} columns to {len(right)}, 1 nearest of {len(synthetic):,} "
        "synthetic rows"
    )
    return Attack(
        what=FigureKey("linkability"),
        measures=(measure,),
        note=note,
        control=len(outside),
    )


def inference(
    tables: Attacked, secret: int, *, targets: int = 1000, seed: int = 0
) -> Attack:
    """Guess people's level in column `secret`, by its number, from all others."""
    whole(targets=targets)
    synthetic = tables.synthetic
    space = tables.space
    _in_table([secret], len(space.sizes))
    known = [j for j in range(len(space.sizes)) if j != secret]
    reason = tables.lacking() or (
        "" if known else "nothing is known except the secret."
    )
    if reason:
        return Attack.absent(FigureKey("inference"), reason)
    rows = EncodedRows(synthetic[:, known], space.take(known))
    answers = synthetic[:, secret]
    shares = np.bincount(answers, minlength=space.sizes[secret]) / len(answers)

    def right(people: Codes) -> Floats:
        truth = people[:, secret]

        def share(distances: Distances, part: slice) -> Floats:
            near = distances == distances.min(axis=1, keepdims=True)
            return np.asarray(
                (near & (answers == truth[part, None])).sum(axis=1) / near.sum(axis=1)
            )

        return np.concatenate([*rows.each(people[:, known], share)])

    inside, outside = _targets(tables, targets, np.random.default_rng([seed, 0]))
    measure = _measure(
        right(inside), right(outside), _mean(shares[inside[:, secret]]), seed
    )
    note = f"1 column from {len(known)}, nearest of {len(synthetic):,} synthetic rows"
    return Attack(
        what=FigureKey("inference"),
        measures=(measure,),
        note=note,
        control=len(outside),
    )


def _targets(tables: Attacked, most: int, rng: np.random.Generator) -> list[Codes]:
    """Training people and held-out ones, so many of each by lot."""
    return [
        table[rng.permutation(len(table))[:most]]
        for table in (tables.train, tables.holdout)
    ]


def _nearest(rows: EncodedRows, people: Codes, seed: list[int]) -> Ints:
    """The nearest row of each person, equally near ones by lot."""

    def work(distances: Distances, part: slice) -> Ints:
        lots = np.random.default_rng([*seed, part.start]).random(
            distances.shape, dtype=np.float32
        )
        lots[distances > distances.min(axis=1, keepdims=True)] = 2
        return np.asarray(lots.argmin(axis=1))

    return np.concatenate([*rows.each(people, work)])


def _measure(inside: Floats, outside: Floats, baseline: Rate, seed: int) -> Measure:
    return Measure(
        "success",
        _mean(inside),
        _mean(outside),
        baseline,
        more(inside, outside, seed=seed),
    )


def _mean(chances: Floats) -> Rate:
    """The mean chance of success; a chance varies less than its coin, so the interval
    is wide enough.
    """
    # a sum of thirds may pass by a rounding
    return wilson(min(float(chances.sum()), len(chances)), len(chances))


def _in_table(columns: Sequence[int], width: int) -> None:
    wrong = [j for j in columns if not 0 <= j < width]
    if wrong:
        raise ConfigError(
            f"there is no column {wrong[0]}: the table has {width}. Nothing was "
            "attacked."
        )

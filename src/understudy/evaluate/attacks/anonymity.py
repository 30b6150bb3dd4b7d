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
    Assignments,
    Floats,
    Rate,
    effective_trials,
    mean_p_value,
    permutation_p_values,
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
from understudy.ground.errors import ConfigError, Effect

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


def count_matches(predicates: Predicates, codes: Codes) -> tuple[Ints, Ints]:
    """How many rows each predicate fits, and the first of them (0 where there is
    none).
    """
    counts = np.empty(len(predicates), np.int64)
    first_rows = np.empty(len(predicates), np.int64)
    for part, fits in _match_bits(predicates, codes):
        first_byte = (fits != 0).argmax(axis=1)
        bytes_of_first = fits[np.arange(len(fits)), first_byte]
        bits = np.unpackbits(bytes_of_first[:, None], axis=1)
        counts[part] = _count_bits(fits)
        first_rows[part] = 8 * first_byte + bits.argmax(axis=1)
    return counts, first_rows


def _count_bits(fits: NDArray[np.uint8]) -> NDArray[np.int32]:
    """How many rows each predicate fits."""
    counts: NDArray[np.int32] = np.bitwise_count(fits).astype(np.int32).sum(axis=1)
    return counts


def _match_bits(
    predicates: Predicates,
    codes: Codes,
) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
    """A few predicates at a time, and whether each fits each row, eight rows a byte;
    every test is made once.
    """
    tests, test_index = _distinct_tests(predicates)
    small = codes.max(initial=0) < 256
    levels = np.ascontiguousarray(codes.T, dtype=np.uint8 if small else np.int32)
    bits = np.empty((len(tests), -(-len(codes) // 8)), np.uint8)
    for i, (column, low, high, negated) in enumerate(tests.tolist()):
        within = (levels[column] >= low) & (levels[column] <= high)
        bits[i] = np.packbits(within ^ bool(negated))
    at_once = max(1, BLOCK // max(1, len(codes)))
    for begin in range(0, len(predicates), at_once):
        part = slice(begin, begin + at_once)
        fits = bits[test_index[part, 0]]
        for j in range(1, predicates.shape[1]):
            fits &= bits[test_index[part, j]]
        yield part, fits


def _distinct_tests(predicates: Predicates) -> tuple[Ints, Ints]:
    """Every test once, (tests, 4), and which test stands where in the predicates."""
    tests = predicates.reshape(-1, 4)
    column, low, high, negated = tests.T
    top = int(tests[:, 1:3].max(initial=0)) + 1
    keys = ((column * top + low) * top + high) * 2 + negated
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    return tests[first], index.reshape(predicates.shape[:2])


def distinct_predicates(predicates: Predicates) -> Predicates:
    flat = predicates.reshape(len(predicates), predicates.shape[1] * 4)
    _, first = np.unique(flat, axis=0, return_index=True)
    return predicates[np.sort(first)]


def singling_out(
    tables: Attacked,
    *,
    columns: int = 3,
    predicates: int = 1000,
    seed: int = 0,
) -> Attack:
    """Attack with up to `predicates` predicates over `columns` columns each; 1 is the
    univariate attack.
    """
    whole(columns=columns, predicates=predicates)
    key = FigureKey("singling_out", part="univariate" if columns == 1 else str(columns))
    train = tables.train
    holdout = tables.holdout
    space = tables.space
    reason = tables.missing_reason()
    if reason:
        return Attack.absent(key, reason)
    if columns > train.shape[1]:
        return Attack.absent(
            key,
            f"{columns} columns are needed and the table has {train.shape[1]}.",
        )
    rng = np.random.default_rng([seed, 0])
    table = np.unique(tables.synthetic, axis=0)
    if columns == 1:
        guesses = univariate_predicates(table, space)
        guesses = guesses[rng.permutation(len(guesses))[:predicates]]
    else:
        guesses = multivariate_predicates(
            table,
            space,
            columns,
            predicates,
            rng,
        )
    if not len(guesses):
        return Attack.absent(
            key,
            f"no predicate over {columns} columns fits exactly one synthetic row.",
        )
    people = min(len(train), len(holdout))
    inside, outside = _sample_targets(tables, people, rng)
    tried = len(guesses)
    naive = random_predicates(
        table,
        space,
        columns,
        len(guesses),
        rng,
    )
    measure = Measure(
        "success",
        _singling_out_rate(*count_matches(guesses, inside)),
        _singling_out_rate(*count_matches(guesses, outside)),
        _singling_out_rate(*count_matches(naive, inside)),
        singling_out_p_value(
            guesses,
            inside,
            outside,
            seed=seed,
        ),
    )
    note = (
        f"{tried:,} of {predicates:,} predicates, on {people:,} of {len(train):,} "
        f"training and {people:,} of {len(holdout):,} held-out rows"
    )
    return Attack(
        key=key,
        measures=(measure,),
        note=note,
        control=people,
    )


def singling_out_p_value(
    guesses: Predicates,
    inside: Codes,
    outside: Codes,
    *,
    seed: int = 0,
) -> float:
    """How easily other people in the place of `inside` would be singled out as much
    more than those left.
    """
    people = np.concatenate([inside, outside])
    fitting = []
    crowds = []
    for _, bits in _match_bits(guesses, people):
        crowd = np.bitwise_count(bits).astype(np.int32).sum(axis=1)
        in_test = (crowd > 0) & (crowd <= CROWD)
        fitting.append(
            csr_array(
                np.unpackbits(bits[in_test], axis=1, count=len(people)).astype(np.int32)
            )
        )
        crowds.append(crowd[in_test])

    def excess(assignments: Assignments) -> Floats:
        sides = np.ascontiguousarray(assignments.T, dtype=np.int32)  # (people, draws)
        gain = np.zeros(len(assignments))
        for fits, crowd in zip(fitting, crowds, strict=True):
            inside_matches = fits @ sides  # (predicates, draws)
            gain += np.count_nonzero(inside_matches == 1, axis=0) - np.count_nonzero(
                crowd[:, None] - inside_matches == 1,
                axis=0,
            )
        return gain[:, None]

    return permutation_p_values(
        excess,
        np.arange(len(people)) < len(inside),
        seed=seed,
    )[0]


def univariate_predicates(table: Codes, space: Space) -> Predicates:
    """Every test of one column that fits exactly one row: its only bearer, the lowest,
    the highest.
    """
    tests: list[tuple[int, int, int, int]] = []
    for j, size in enumerate(space.sizes):
        rows = np.bincount(table[:, j], minlength=size)
        tests += [(j, level, level, 0) for level in np.flatnonzero(rows == 1).tolist()]
        present = space.present(j)
        occupied = np.flatnonzero(rows[:present]).tolist()
        if not space.ordered[j] or not occupied:
            continue
        lowest, highest = occupied[0], occupied[-1]
        if rows[lowest] == 1:
            tests.append((j, 0, lowest, 0))
        if rows[highest] == 1:
            tests.append((j, highest, present - 1, 0))
    predicates = np.array(tests, dtype=np.int64).reshape(-1, 1, 4)
    return distinct_predicates(predicates)


def multivariate_predicates(
    table: Codes,
    space: Space,
    columns: int,
    wanted: int,
    rng: np.random.Generator,
) -> Predicates:
    """Up to `wanted` distinct predicates that fit exactly one row, each from a random
    row and random columns.
    """
    ordered, present = _column_order(space)
    present_levels = [
        column[column < n_present]
        for column, n_present in zip(table.T, present, strict=True)
    ]
    middle = np.array(
        [np.median(levels) if len(levels) else 0 for levels in present_levels]
    )
    accepted = np.empty((0, columns, 4), dtype=np.int64)
    for _ in range(TRIES * (1 + wanted // BATCH)):
        chosen = _column_sets(table.shape[1], columns, BATCH, rng)
        rows = table[rng.integers(len(table), size=BATCH)]
        level = np.take_along_axis(rows, chosen, axis=1)
        is_ordered = ordered[chosen] & (level < present[chosen])
        above = level > middle[chosen]
        low = np.where(is_ordered & ~above, 0, level)
        high = np.where(is_ordered & above, present[chosen] - 1, level)
        candidates = np.stack([chosen, low, high, np.zeros_like(chosen)], axis=2)
        counts, _ = count_matches(candidates, table)
        accepted = np.concatenate([accepted, candidates[counts == 1]])
        accepted = distinct_predicates(accepted)
        if len(accepted) >= wanted:
            break
    return accepted[:wanted]


def random_predicates(
    table: Codes,
    space: Space,
    columns: int,
    count: int,
    rng: np.random.Generator,
) -> Predicates:
    """Random columns, random tests, random values among those that the table holds."""
    occurring = [np.unique(column) for column in table.T]
    chosen = _column_sets(table.shape[1], columns, count, rng)
    sampled = [values[rng.integers(len(values), size=count)] for values in occurring]
    level = np.take_along_axis(np.stack(sampled, axis=1), chosen, axis=1)
    ordered, present = (part[chosen] for part in _column_order(space))
    test = rng.integers(np.where(ordered & (level < present), RANDOM_TESTS, 2))
    equal_or_more, equal_or_less, more, less = (test == kind for kind in range(2, 6))
    top = present - 1
    low = np.select([equal_or_less, more, less], [0, level + 1, 0], level)
    high = np.select([equal_or_more, more, less], [top, top, level - 1], level)
    # "above the highest": written as 1 ≤ level ≤ 0, so that no end is negative
    empty = low > high
    low = np.where(empty, 1, low)
    high = np.where(empty, 0, high)
    negated = test == 1
    return np.stack([chosen, low, high, negated], axis=2).astype(np.int64)


def _singling_out_rate(n_matches: Ints, first: Ints) -> Rate:
    """The share of predicates that fit one row; as many trials as if each row were
    singled out but once.
    """
    succeeds = n_matches == 1
    trials = effective_trials(len(succeeds), np.bincount(first[succeeds]))
    return wilson(float(np.mean(succeeds)) * trials, trials)


def _column_sets(
    width: int,
    columns: int,
    count: int,
    rng: np.random.Generator,
) -> Ints:
    keys = rng.random((count, width))
    return np.sort(np.argpartition(keys, columns - 1, axis=1)[:, :columns], axis=1)


def _column_order(space: Space) -> tuple[NDArray[np.bool_], Ints]:
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
    _require_columns([*left, *right], len(space.sizes))
    reason = tables.missing_reason() or (
        "" if left and right else "one of the two sides has no columns."
    )
    if reason:
        return Attack.absent(FigureKey("linkability"), reason)
    inside, outside = _sample_targets(tables, targets, np.random.default_rng([seed, 0]))
    people = np.concatenate([inside, outside])
    left_nearest, right_nearest = (
        _nearest_rows(
            EncodedRows(synthetic[:, side], space.take(side)),
            people[:, side],
            [seed, 1, number],
        )
        for number, side in enumerate((list(left), list(right)))
    )
    linked = (left_nearest == right_nearest).astype(float)
    measure = _measure(
        linked[: len(inside)],
        linked[len(inside) :],
        Rate.from_exact(1 / len(synthetic)),
        seed,
    )
    note = (
        f"{len(left)} columns to {len(right)}, 1 nearest of {len(synthetic):,} "
        "synthetic rows"
    )
    return Attack(
        key=FigureKey("linkability"),
        measures=(measure,),
        note=note,
        control=len(outside),
    )


def inference(
    tables: Attacked,
    secret: int,
    *,
    targets: int = 1000,
    seed: int = 0,
) -> Attack:
    """Guess people's level in column `secret`, by its number, from all others."""
    whole(targets=targets)
    synthetic = tables.synthetic
    space = tables.space
    _require_columns([secret], len(space.sizes))
    known_columns = [j for j in range(len(space.sizes)) if j != secret]
    reason = tables.missing_reason() or (
        "" if known_columns else "nothing is known except the secret."
    )
    if reason:
        return Attack.absent(FigureKey("inference"), reason)
    rows = EncodedRows(synthetic[:, known_columns], space.take(known_columns))
    answers = synthetic[:, secret]
    shares = np.bincount(answers, minlength=space.sizes[secret]) / len(answers)

    def right(people: Codes) -> Floats:
        truth = people[:, secret]

        def share(distances: Distances, part: slice) -> Floats:
            is_nearest = distances == distances.min(axis=1, keepdims=True)
            return np.asarray(
                (is_nearest & (answers == truth[part, None])).sum(axis=1)
                / is_nearest.sum(axis=1)
            )

        return np.concatenate([*rows.map_distances(people[:, known_columns], share)])

    inside, outside = _sample_targets(tables, targets, np.random.default_rng([seed, 0]))
    measure = _measure(
        right(inside),
        right(outside),
        _mean_rate(shares[inside[:, secret]]),
        seed,
    )
    note = (
        f"1 column from {len(known_columns)}, nearest of {len(synthetic):,} "
        "synthetic rows"
    )
    return Attack(
        key=FigureKey("inference"),
        measures=(measure,),
        note=note,
        control=len(outside),
    )


def _sample_targets(
    tables: Attacked,
    max_people: int,
    rng: np.random.Generator,
) -> list[Codes]:
    """Training people and held-out ones, so many of each by lot."""
    return [
        table[rng.permutation(len(table))[:max_people]]
        for table in (tables.train, tables.holdout)
    ]


def _nearest_rows(
    rows: EncodedRows,
    people: Codes,
    seed: list[int],
) -> Ints:
    """The nearest row of each person, equally near ones by lot."""

    def work(distances: Distances, part: slice) -> Ints:
        priorities = np.random.default_rng([*seed, part.start]).random(
            distances.shape,
            dtype=np.float32,
        )
        priorities[distances > distances.min(axis=1, keepdims=True)] = 2
        return np.asarray(priorities.argmin(axis=1))

    return np.concatenate([*rows.map_distances(people, work)])


def _measure(
    inside: Floats,
    outside: Floats,
    baseline: Rate,
    seed: int,
) -> Measure:
    return Measure(
        "success",
        _mean_rate(inside),
        _mean_rate(outside),
        baseline,
        mean_p_value(inside, outside, seed=seed),
    )


def _mean_rate(chances: Floats) -> Rate:
    """The mean chance of success; a chance varies less than its coin, so the interval
    is wide enough.
    """
    # a sum of thirds may pass by a rounding
    return wilson(min(float(chances.sum()), len(chances)), len(chances))


def _require_columns(columns: Sequence[int], width: int) -> None:
    wrong = [j for j in columns if not 0 <= j < width]
    if wrong:
        raise ConfigError(
            f"there is no column {wrong[0]}: the table has {width}.",
            effect=Effect.NOTHING_COMPUTED,
        )

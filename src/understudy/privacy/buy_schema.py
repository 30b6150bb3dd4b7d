"""Buy a schema: categories and bounds from noisy counts, charged to the ledger before a
row is read.

The categories and bounds of a draft are as private as the rows, and so are its guesses
at kinds. Free is only what the holder declares to be public knowledge: the name and the
kind of each column, or all of a column.

    kind                   bought        from
    categorical            categories    the noisy count of each value that occurs:
                                         those of enough people show
    integer, real, date    low, high     the noisy counts of public cells of all numbers
                                         (`data.encoding.fine`): the run of them in
                                         which all people are, and within it once more,
                                         in even parts
    boolean, time of day   nothing

For a run of `gram` bounds need not be bought: it looks for them itself, within its own
budget (`without_bounds`).

Source: Korolova, Kenthapadi, Mishra, Ntoulas, "Releasing search queries and clicks
privately" (WWW 2009), for values of an unknown domain. Differs from it: whole-number
noise, Laplace or Gaussian, whichever takes fewer people to show.

Guarantee: (ε, δ)-DP for add/remove one person, over all columns together: a person has
one row (of several with one id the first counts, and rows without an id do not) and so
lies in one cell of every count; without an id column it is for one row. A value that
only one person has shows with a probability within δ.
Edges: a column in which nothing shows is left out, and the note names it; if none is
left → SchemaError, and the price stays charged. A cell that is not of the kind is not
counted, and changes nothing about any other. A number of 2^53 or more in a column of
floats is no category and no id, as there is no telling which whole number it was: keep
such codes as whole numbers or text. The types of a DataFrame and of a file's columns
are taken as they are, though a program may have chosen them by all rows. Bought columns
are nullable: whether values are missing is not bought. An order of texts cannot be
bought: declare the column.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from typing import Any

import numpy as np
import pandas as pd
import torch
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from numpy.typing import NDArray

from understudy.data.column import DEFAULT_BINS, OTHER, Binned
from understudy.data.encoding.fine import bounded, reach
from understudy.data.encoding.support import likely_run
from understudy.data.reading.cells import MISSING_WORDS, days, distinct, floats, texts
from understudy.data.reading.files import (
    PLAIN_NUMBERS,
    Source,
    as_they_came,
    batches_of,
    is_long,
    open_source,
)
from understudy.data.reading.forms import ISO_DAY
from understudy.data.reading.written import Raw
from understudy.data.schema import (
    BOUGHT,
    Boolean,
    Categorical,
    Column,
    Date,
    Datetime,
    Real,
    Schema,
)
from understudy.ground.check import in_range, nearest, positive
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    DpEvent,
    Reveals,
    calibrate,
    flatten,
)
from understudy.privacy.accounts.accounting import epsilon as epsilon_of
from understudy.privacy.accounts.budget import shown
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.kinds import Kinds, RequestedKind
from understudy.privacy.noise import (
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    Rng,
    rounded_up,
)
from understudy.privacy.noise.discrete import CountNoise

Values = NDArray[Any]

# times counted
_LOOKS = {
    "boolean": 0,
    "categorical": 1,
    "integer": 2,
    "real": 2,
    "date": 2,
    "datetime": 2,
}
_LISTED = "categorical"
_MISLED = 1e-4  # the probability that noise alone shows in one of a column's cells
_CLOSER = 128  # parts of the closer look

_NOISES: dict[type[CountNoise], Callable[[float], DpEvent]] = {
    DiscreteLaplaceNoise: lambda scale: DiscreteLaplaceDpEvent(1 / scale, 1),
    DiscreteGaussianNoise: DiscreteGaussian,
}


@dataclass(frozen=True, kw_only=True)
class Quote:
    """What a purchase costs, and how many people it takes to show. It depends on no
    row.

    `reveals` is the probability, shared by `lists` columns, that a value of a single
    person shows.
    """

    noise: CountNoise
    event: DpEvent
    reveals: float
    lists: int

    @property
    def category_threshold(self) -> int:
        """The noisy count from which a value shows: a single person reaches it with
        `reveals` / `lists`.
        """
        return 1 + self.noise.threshold(self.reveals / self.lists)

    def cell_threshold(self, cells: int) -> int:
        """The noisy count from which a cell shows: noise alone reaches it in one of
        10,000 columns.
        """
        return self.noise.threshold(_MISLED / cells)

    def __str__(self) -> str:
        listed = (
            f"a category shows from about {self.category_threshold:,} people on, "
            if self.lists
            else ""
        )
        return f"{listed}a bound from about {self.cell_threshold(_CLOSER):,}"


def quote(
    kinds: Kinds,
    *,
    epsilon: float,
    delta: float,
    gaussian: bool = False,
) -> Quote | None:
    """The least noise that (ε, δ) pays for; None where there is nothing to buy.

    `gaussian`: of this kind, which adds the least to the price of other noise of the
    kind.

    Edges: δ=0 buys bounds alone; categories at δ=0 → ConfigError.
    """
    positive(epsilon=epsilon)
    in_range(0, 0.5, delta=delta)
    bought = [
        RequestedKind.from_words(name, kind).kind
        for name, kind in kinds.items()
        if not isinstance(kind, Column)
    ]
    looks = sum(_LOOKS[kind] for kind in bought)
    lists = sum(kind == _LISTED for kind in bought)
    if not looks:
        return None
    if lists and not delta:
        raise ConfigError(
            "categories cannot be bought at delta=0: declare them, or allow a delta."
        )
    reveals = delta / 2 if lists else 0.0  # the other half is the noise's
    revelations = [Reveals(reveals)] if lists else []

    def least_noise(kind: type[CountNoise]) -> Quote:
        scale = calibrate(
            lambda s: {_NOISES[kind](s): looks},
            epsilon=epsilon,
            delta=delta - reveals,
        )
        noise = kind(rounded_up(scale))
        event = ComposedDpEvent([SelfComposedDpEvent(noise.event, looks), *revelations])
        return Quote(noise=noise, event=event, reveals=reveals, lists=lists)

    kinds_of_noise = [
        kind_of_noise
        for kind_of_noise in _NOISES
        if kind_of_noise is DiscreteGaussianNoise or not gaussian
    ]
    quotes = map(least_noise, kinds_of_noise if delta else (DiscreteLaplaceNoise,))
    return min(
        quotes,
        key=lambda q: q.category_threshold if lists else q.cell_threshold(_CLOSER),
    )


def buy_schema(
    source: Source,
    kinds: Kinds,
    ledger: Ledger,
    *,
    epsilon: float,
    delta: float,
    run: str,
    rng: Rng,
    person: str | None = None,
    rows_are_people: bool = False,
    name: str | None = None,
    stated_at: float | None = None,
    gaussian: bool = False,
) -> Schema:
    """A public schema of a file or a DataFrame; what was not declared is bought for (ε,
    δ).

    Its note says the price; as part of a run, at the run's own δ, `stated_at`. `kinds`
    is a declaration by the holder: names and kinds (or columns) that are known without
    the rows.
    Guarantee: as the module's; the ledger holds the price before any cell is read.
    Edges: a header that lacks a column → SchemaError, a price over the budget →
    BudgetExceeded, seeded or insecure noise where the ledger is real → PrivacyError:
    nothing was charged and no row was read.
    """
    if ledger.real:
        rng.require_secret(ledger.holder, effect=Effect.NOTHING_READ_OR_CHARGED)
    declared = {
        c: kind if isinstance(kind, Column) else Boolean(name=c, nullable=True)
        for c, kind in kinds.items()
    }
    named = tuple(replace(column, name=c) for c, column in declared.items())
    note = "Declared; nothing was bought."
    plain = Schema(
        columns=named,
        person=person,
        rows_are_people=rows_are_people,
        note=note,
    )
    names = [column.name for column in plain.expanded().columns]
    title = _check_header(
        open_source(source, {}, name),
        as_they_came(source, names, person),
    )
    offer = quote(kinds, epsilon=epsilon, delta=delta, gaussian=gaussian)
    if offer is None:
        return plain
    every = {
        c: RequestedKind.from_words(c, kind)
        for c, kind in kinds.items()
        if not isinstance(kind, Column)
    }
    bought = {c: request for c, request in every.items() if _LOOKS[request.kind]}
    domains = f"domains of {', '.join(bought)}"
    receipt = ledger.charge(
        offer.event, run=run, description=f"schema of {title}: {domains}"
    )
    numbers = [
        c
        for c, request in bought.items()
        if request.kind in PLAIN_NUMBERS and not request.written
    ]
    cells = _reader(source, as_they_came(source, bought, person, numbers), person, name)
    bought_columns = {
        c: _buy(c, request, _values(request, cells(c)), offer, rng)
        for c, request in bought.items()
    }
    price = (
        epsilon if stated_at is None else epsilon_of(flatten(offer.event), stated_at)
    )
    note = (
        f"{BOUGHT} {datetime.now(UTC):%Y-%m-%d} for ε={shown(price)} at "
        f"δ={stated_at or delta:g}: {domains} (entry {receipt.entry} of the ledger of "
        f"{receipt.holder}). Names and kinds were declared."
    )
    left_out = [c for c, column in bought_columns.items() if column is None]
    if left_out:
        note += f" Left out, as too few people share a value: {', '.join(left_out)}."
    merged = ", ".join(
        c for c, column in bought_columns.items() if isinstance(column, Categorical)
    )
    if merged:
        note += f' Texts that too few people share are "{OTHER}" in: {merged}.'
    columns = tuple(
        column
        for free in plain.columns
        if (column := bought_columns.get(free.name, free)) is not None
    )
    if not columns:
        raise SchemaError(
            f"{title}: too few people share any value for this price, which stays "
            "charged."
        )
    return replace(plain, columns=columns, note=note)


def _check_header(raw: Raw, names: Iterable[str]) -> str:
    for name in names:
        times = raw.header.count(name)
        if times != 1:
            problem = (
                f"appears {times} times in the header."
                if times
                else "is not in the header."
            )
            hint = "" if times else nearest(name, map(str, raw.header))
            raise SchemaError(
                f'{raw.name}: "{name}" {problem}{hint}',
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
    return raw.name


def _reader(
    source: Source,
    want: Mapping[str, bool],
    person: str | None,
    name: str | None,
) -> Callable[[str], "pd.Series[Any]"]:
    """The cells of a column, with one row per person. Of a long table each column is
    read when it is asked for.
    """
    raw = None if is_long(source, len(want)) else open_source(source, want, name)
    first = None
    if person is not None:
        batches = (
            batches_of(source, {person: False}, name, long=True)
            if raw is None
            else [raw]
        )
        first = first_of(batches, person)

    def column(c: str) -> "pd.Series[Any]":
        opened = open_source(source, {c: want[c]}, name) if raw is None else raw
        cells = opened.columns[c]
        if first is None:
            return cells
        if len(cells) != len(first):
            raise SchemaError(
                f"{opened.name}: it changed while it was read. The price stays charged."
            )
        return cells[first].reset_index(drop=True)

    return column


def first_of(parts: Iterable[Raw], person: str) -> NDArray[np.bool_]:
    """Which rows are the first with their id, by 16 bytes of each id under keys of this
    reading.
    """
    keys = [secrets.token_hex(8) for _ in range(2)]
    parts_of_table = list[pd.DataFrame]()
    for raw in parts:
        ids = (
            _ids(raw.columns[person])
            if person in raw.columns
            else pd.Series(dtype=object)
        )
        plain = ids.fillna("").to_numpy(object)
        hashed = {
            key: pd.util.hash_array(plain, hash_key=key, categorize=False)
            for key in keys
        }
        parts_of_table.append(pd.DataFrame(hashed | {"there": ids.notna().to_numpy()}))
    table = pd.concat(parts_of_table, ignore_index=True)
    return np.asarray(table["there"] & ~table.duplicated())


def _ids(cells: "pd.Series[Any]") -> "pd.Series[Any]":
    """Ids as text: 7 and "7" are the same one, and what is no single value is nobody,
    None.
    """
    index, values = distinct(cells, set(MISSING_WORDS))
    return pd.Series(np.append(texts(values), [None])[index])


def _values(request: RequestedKind, cells: "pd.Series[Any]") -> Values:
    """The values that are there and of the kind: text, numbers, or days since 1970.
    Each cell is judged by itself.
    """
    index, cell_values = distinct(cells, set(MISSING_WORDS))
    if request.kind == "categorical":
        words = texts(cell_values)[index[index >= 0]]
        return words[pd.notna(words)]
    dated = request.kind in ("date", "datetime")
    numbers = (
        days(cell_values, request.written or ISO_DAY)
        if dated
        else floats(cell_values, request.written or None)
    )
    numbers = numbers[index[index >= 0]]
    return numbers[np.isfinite(numbers)] + 0.0  # −0 is 0


def _buy(
    name: str,
    request: RequestedKind,
    values: Values,
    offer: Quote,
    rng: Rng,
) -> Column | None:
    """The column with its bought domain, or None where nothing shows."""
    column = request.column(name)
    if column is not None:
        assert isinstance(column, Binned)
        return _bounds(column, values, offer, rng)
    # sorted: an order of appearance would tell
    distinct_values, counts = np.unique(values, return_counts=True)
    shows = offer.noise(torch.from_numpy(counts), rng) >= offer.category_threshold
    listed = distinct_values[shows.numpy()].tolist()
    if not listed:
        return None
    return Categorical(
        name=name,
        categories=(*(v for v in listed if v != OTHER), OTHER),
        nullable=True,
    )


def _bounds(column: Binned, values: Values, offer: Quote, rng: Rng) -> Column | None:
    """The column between the bounds of all people, or None where too few are anywhere.

    They are those of the run of its public cells that is most likely with all people in
    it, as far as one cell beyond those that show. That is looked at more closely, in
    128 parts, and what shows there is widened by half of it on either side, for the
    tails that do not show. Where the parts outside have people by their noisy counts,
    more than one in twenty, parts were too small to show, and the run is taken as it
    is.
    """
    if isinstance(column, Datetime):  # whole days, by its own steps
        days = _bounds(Date(name=column.name), values, offer, rng)
        if not isinstance(days, Date):
            return None
        until = datetime.combine(days.high, time(23, 59, 59))
        step: dict[str, Any] = {
            "minute": {"second": 0},
            "hour": {"second": 0, "minute": 0},
        }.get(column.resolution, {})
        return replace(
            column,
            low=datetime.combine(days.low, time.min),
            high=until.replace(**step),
        )
    looked = _looked(values, reach(column).edges, offer, rng)
    span = _span(looked, offer)
    if span is None:
        return None
    counts = torch.from_numpy(looked)
    total = max(1.0, float(counts.sum()))
    deviation = math.sqrt(offer.noise.variance)
    first, last = likely_run(counts, None, deviation, total)
    wide = bounded(column, (max(first, span.start - 1), min(last, span.stop)))
    low, high = wide.edges[[0, -1]]
    parts = np.linspace(low, high, _CLOSER + 1)
    parts = np.unique(np.floor(parts)) if wide.edges.dtype.kind == "i" else parts
    looked = _looked(values[(low <= values) & (values < high)], parts, offer, rng)
    close = _span(looked, offer)
    if close is None:
        return wide
    margin = math.ceil(len(close) / 2)
    start = max(close.start - margin, 0)
    stop = min(close.stop + margin, len(looked))
    inside = looked[start:stop].sum()
    outside = looked.sum() - inside
    others = len(looked) - (stop - start)
    # Bounds that are too wide do little harm, and narrow ones much: one deviation of
    # the noise is enough.
    if outside - math.sqrt(others) * deviation > 0.05 * max(inside, 0):
        return wide
    bound = (
        max(parts[stop] - 1, parts[start] + 1)
        if wide.edges.dtype.kind == "i"
        else parts[stop]
    )
    if isinstance(wide, Real) and wide.decimals is not None:
        unit = 10.0**wide.decimals
        countable = round((bound - parts[start]) * unit) < 2 * DEFAULT_BINS
        wide = replace(
            wide,
            bins=round((bound - parts[start]) * unit) + 1 if countable else None,
        )
    return replace(wide, low=wide.bound_at(parts[start]), high=wide.bound_at(bound))


def _span(looked: NDArray[np.int64], offer: Quote) -> range | None:
    """From the first cell that shows to the last."""
    high = np.flatnonzero(looked >= offer.cell_threshold(len(looked)))
    return range(high[0], high[-1] + 1) if len(high) else None


def _looked(
    values: Values,
    edges: NDArray[Any],
    offer: Quote,
    rng: Rng,
) -> NDArray[np.int64]:
    """Noisy counts of the cells; what lies beyond the edges is in the outermost
    ones.
    """
    cells = np.searchsorted(edges[1:-1], values, side="right")
    return offer.noise(
        torch.from_numpy(np.bincount(cells, minlength=len(edges) - 1)),
        rng,
    ).numpy()

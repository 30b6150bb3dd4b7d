"""One table of one holder, in one line: `us.synthesize(frame, epsilon=1)` and
`understudy synthesize`.

    result = us.synthesize(frame, epsilon=1)
    result.sample(1_000)
    print(result.privacy)

All of it is within ε. With a public `schema` all of ε goes into the release of `gram`.
Without one, where numbers are and which texts there are is not known to be public, and
nothing may take it from rows for free: `gram` looks for the numbers itself, and
`SCHEMA_SHARE` of ε buys the texts (`privacy/buy_schema.py`), where there are any. The
statement adds both up.

Guarantee: (ε, δ)-DP for one person with all of it, where `person`, `rows_are_people` or
the schema say who that is, else for one row; written into the holder's ledger before it
is used. What is taken without a price are the names and the kinds of columns: a
DataFrame's by their dtypes, a file's by a look at its rows, which is refused unless
someone says that they are public.
Edges: a draft of a schema is refused, as everywhere. A column whose name is that of an
id (`data/id_names.py`) is refused until somebody says whose rows these are, and is left
out unless it is declared. A person has one row. A ledger that is there keeps its
lifetime budget. What was bought before an error stays paid for.
"""

import math
import shlex
import uuid
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from understudy.api.train import train
from understudy.data.arrays import ArrayTable
from understudy.data.column import OTHER
from understudy.data.header import apply_header, require_header
from understudy.data.id_names import id_names, likely_person
from understudy.data.infer import are_spellings
from understudy.data.kinds import (
    TABLE,
    ArraySchema,
    load_schema,
    one_kind_of_row,
    read_rows,
)
from understudy.data.reading.decoded import require_decoded
from understudy.data.reading.files import (
    Source,
    batches_of,
    described_source,
    is_long,
    is_of_engine,
    open_source,
)
from understudy.data.reading.held_out import (
    USUAL,
    hold_out,
    holds_out_unasked,
    removed_if_refused,
)
from understudy.data.reading.sources import (
    EngineFrame,
    TableSource,
    source_at,
    with_encoding,
    with_missing,
)
from understudy.data.reading.writing import coarsen, coarsen_long
from understudy.data.reading.written import quiet_frame
from understudy.data.schema import (
    BOUGHT,
    Boolean,
    Categorical,
    Column,
    Schema,
    was_bought,
)
from understudy.data.table import Table, open_table, read_table
from understudy.ground import errors
from understudy.ground.check import nearest, plain_name
from understudy.ground.durable import own_folder, replace_json
from understudy.ground.durable import replace as write
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    SchemaError,
    UtilityWarning,
)
from understudy.privacy.accounts.accounting import DiscreteGaussian, DpEvent, flatten
from understudy.privacy.accounts.accounting import epsilon as epsilon_of
from understudy.privacy.accounts.budget import USUAL_DELTA, Budget, shown
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.buy_schema import Quote, buy_schema, first_of, quote
from understudy.privacy.kinds import (
    Kinds,
    hint_at_groups,
    kinds_of,
    require_kinds,
    with_one_of,
    without_bounds,
    without_times,
)
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.counts import needed_noise, spend_of
from understudy.protocols.core import Watcher
from understudy.protocols.core.forecast import MORE
from understudy.protocols.gram import protocol as gram
from understudy.runs.federation import Federation, Holder, open_lifetime_ledger
from understudy.runs.registry import of_rows, protocol_named
from understudy.runs.result import Result
from understudy.runs.runfile import PartySection, RunFile

# of ε, and half of δ, where categories are bought: a sixth of what noise allows, as
# squares add up
SCHEMA_SHARE = 0.4
# of what is left: noise is rounded up, release by release
_SHARES = (0.99, 0.97, 0.95, 0.92, 0.9)
_CELLS = (1, 3, 60, 300)  # sizes of releases


def synthesize(
    source: Source,
    *,
    epsilon: float,
    delta: float = USUAL_DELTA,
    schema: Schema | ArraySchema | str | Path | None = None,
    kinds: Kinds | None = None,
    names_and_kinds_are_public: bool = False,
    one_of: Sequence[str | Sequence[str]] | None = None,
    person: str | None = None,
    rows_are_people: bool = False,
    header: bool | None = None,
    name: str | None = None,
    ledgers: str | Path = "ledgers",
    lifetime_epsilon: float | None = None,
    folder: str | Path | None = None,
    rows: int | None = None,
    holdout: float | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    without: Sequence[str] = (),
    watch: Watcher | None = None,
    **settings: Any,
) -> Result:
    """A generator of rows like those of one table, for ε in all. `settings` are those
    of `gram`, as `target`.

    `kinds` declares columns that are publicly known: a kind whose values are looked for
    within ε, or a whole column. `one_of` declares groups of columns of which exactly
    one is 1 in every row, as `["soil_*"]` or `[["a", "b"]]`: each is drawn as one
    column, and comes back as it was. `person` names the column that says whose each row
    is; `rows_are_people` says that every row is another person. Without either, each
    row is protected, and not each person. `header` says whether the first line of a
    file is one. Without, names that look like cells are refused; False names columns
    column_1, column_2, and so on. `name` is the holder's, and its ledger's:
    `ledgers/NAME.ledger`. A new ledger allows `lifetime_epsilon` for all that is ever
    done with these people, by default this run alone. With a `folder` all artefacts are
    written there, `rows` synthetic rows among them. A file's text is of the `encoding`,
    `missing` words in it mean that there is no value. Without a schema, columns of the
    names `without` are left out. With a schema of images or series the settings are
    those of `moments`.

    `holdout` is the chance with which each person is held out of the run, by a secret
    coin of its own: the page then attacks the rows with people who took no part. It
    costs nothing, and counts are scaled to all people. It is 5 % by default where there
    is a `folder`, and so a page, of a DataFrame, a .csv, .tsv or .parquet file; 0 holds
    nobody out. Of a database it has to be asked for, as rows are copied beside the
    ledger. Of images and series nobody is held out.
    """
    declares = load_schema(schema) if isinstance(schema, str | Path) else schema
    protocol = "gram" if declares is None else of_rows("gram", {"one": declares})
    if protocol != "gram":
        settings = {key: value for key, value in settings.items() if value is not None}
    config = protocol_named(protocol).configured(settings)
    if is_of_engine(source):
        if declares is None:
            raise ConfigError(
                "of an engine's frame a schema is needed. Nothing was read or charged."
            )
        source = described_source(source)
    elif hasattr(source, "__arrow_c_stream__") and not isinstance(source, pd.DataFrame):
        source = pa.table(source).to_pandas()
    if isinstance(source, pd.DataFrame):
        source = quiet_frame(source)
    source = _as_written(source, encoding, missing)
    unnamed = name is None and isinstance(source, pd.DataFrame | EngineFrame)
    name = name or _name(source)
    plain_name(holder=name, nothing="Nothing was read or charged.")
    if declares is None or TABLE.describes(declares):
        source = apply_header(source, header)
    elif header is not None:
        raise ConfigError(
            "images and series have no header: leave it out. Nothing was read or "
            "charged."
        )
    home = None if folder is None else Path(folder)
    if home is not None and (home / "run.toml").exists():
        raise ArtefactError(
            f"{home} already has a run in it: choose another folder. Nothing was read "
            "or charged."
        )
    whole = Budget(epsilon, delta)
    run = f"{protocol}-{uuid.uuid4().hex[:8]}"
    ledger = own_folder(Path(ledgers)) / f"{name}.ledger"
    if unnamed:
        _require_unspent(ledger, name)
    if declares is None:
        _require_unit(require_header(source, header), person, rows_are_people)
    if holdout is None:
        holdout = USUAL if home is not None and holds_out_unasked(source) else 0.0
    away: Path | None = None
    offer: Quote | None = None
    table: Table | ArrayTable[Any]
    if declares is not None:
        if (
            person is not None
            or rows_are_people
            or kinds is not None
            or one_of is not None
            or without
        ):
            raise ConfigError(
                "a schema says who and what: leave person, rows_are_people, kinds, "
                "one_of and without out. Nothing was read or charged."
            )
        public = one_kind_of_row(declares)
        public.require_public(f"the schema of {name}")
        public.require_unit(f"the schema of {name}")
        if not TABLE.describes(public):
            # a coin for each row would tear a person's images or series apart
            holdout = 0.0
        with removed_if_refused(ledger.parent, f"{name}-{run}"):
            if holdout:
                source, away = hold_out(
                    source, holdout, SecureRng(), ledger.parent, f"{name}-{run}"
                )
            table = read_rows(
                source, public, name if isinstance(source, pd.DataFrame) else None
            )
            if TABLE.describes(public) and not table.long:
                require_people(config, public, whole, table.rows)
            book = _book(ledger, name, whole, lifetime_epsilon)
        rest = whole
        told = TABLE.describes(public) and _say_expected(config, public, whole)
    else:
        _require_named(source, without, {*(kinds or {}), person})
        people = require_decoded(source)
        declared = kinds_of(
            source,
            kinds,
            person=person,
            confirmed=names_and_kinds_are_public,
            header=header,
            without=without,
            price=f"ε = {shown(epsilon)} at δ = {delta:g}",
        )
        source = without_times(source, declared, kinds)
        if one_of is None:
            hint_at_groups(declared)
        declared = with_one_of(declared, one_of or ())
        _require(source, declared, person, config)
        declared = without_bounds(declared)
        offer = quote(
            declared, epsilon=epsilon * SCHEMA_SHARE, delta=delta / 2, gaussian=True
        )
        rest = whole if offer is None else what_is_left(whole, offer)
        require_people(config, columns_of(declared), rest, people)
        with removed_if_refused(ledger.parent, f"{name}-{run}"):
            if holdout:
                source, away = hold_out(
                    source, holdout, SecureRng(), ledger.parent, f"{name}-{run}"
                )
            book = _book(ledger, name, whole, lifetime_epsilon)
        told = _say_expected(config, columns_of(declared), rest)
        if home is not None:
            _make(home)
        table = _bought(
            source,
            declared,
            book,
            whole,
            run=run,
            person=person,
            rows_are_people=rows_are_people,
            name=name,
        )
        _require_target(config.target, table.schema)
        _say_lost("left out", [c for c in declared if c not in table.schema.names])
        _say_spellings(table.schema)
    holder = Holder(
        name, table, book, rest, total=whole, came=source if declares is None else None
    )
    if home is not None:
        _make(home)
        _note(home, holder, table, source, settings, run, protocol, away)
    result = train(
        protocol,
        Federation.from_holders([holder]),
        folder=home,
        watch=watch,
        run=run,
        **settings,
    )
    if declares is None:
        result = _with_purchase(result, whole)
    if holdout:
        result = _with_held_out(result, holdout)
    if declares is None:
        drawn = result.generator.sample(1_000, seed=0).astype(object)
        _say_lost(
            f'mostly "{OTHER}"',
            [str(c) for c in drawn if (drawn[c] == OTHER).mean() > 0.5],
        )
    if not told and (said := result.artefact.card.get("warning")):
        warnings.warn(said, UtilityWarning, stacklevel=2)
    if home is not None:
        result.save(home, rows=rows)
    return result


def _require_target(target: str | None, bought: Schema) -> None:
    """SchemaError where nothing of the target could be bought: its texts are paid by
    then.
    """
    if target is not None and target not in bought.names:
        raise SchemaError(
            f'target "{target}": no text of it is common enough to stand out of the '
            "noise. The texts of the table are charged, and nothing else was measured; "
            "declare the categories of the target, or name another."
        )


def columns_of(declared: Kinds) -> Schema:
    """Columns of these names and kinds; what is released of texts hardly depends on how
    many there are.
    """
    columns = (
        kind if isinstance(kind, Column) else Boolean(name=name)
        for name, kind in declared.items()
    )
    return Schema(columns=tuple(columns))


def _say_expected(config: gram.Config, schema: Schema, budget: Budget) -> bool:
    """Whether so few people were warned of before anything is paid for, which can be
    where their number is public.
    """
    if config.public_people is None:
        return False
    expected = gram.forecast(
        config, {"one": schema}, {"one": budget}, config.public_people
    ).expected
    if expected is None or not expected.poor:
        return False
    warnings.warn(
        f"{expected} {MORE} Nothing was charged so far.", UtilityWarning, stacklevel=3
    )
    return True


def require_people(
    config: gram.Config, schema: Schema, budget: Budget, people: int
) -> None:
    """ConfigError where so few people are in the rows that nothing can come of it,
    unless their number is public.

    Guarantee: none. It follows from the number of rows, and is said to their holder
    alone, before anything is paid.
    """
    if config.public_people is not None or not config.private:
        return
    expected = gram.forecast(config, {"one": schema}, {"one": budget}, people).expected
    if expected is None or not expected.hopeless:
        return
    raise ConfigError(
        f"nothing can come of so few people. {expected} {MORE} To go on nevertheless, "
        "say about how many there are, where that is publicly known: public_people=N "
        "(--people N). This follows from the rows: keep it to yourself. Nothing was "
        "charged."
    )


def _say_lost(what: str, columns: Sequence[str]) -> None:
    """A UtilityWarning that names columns of which nothing, or little, could be bought,
    where there are any.
    """
    said = (
        f"{what}, as too few people share a value of them: {', '.join(columns)}. More "
        "people or a larger ε would"
    )
    if columns:
        warnings.warn(
            f"{said} keep them, or a schema that declares them.",
            UtilityWarning,
            stacklevel=3,
        )


def _say_spellings(schema: Schema) -> None:
    """A UtilityWarning where a bought list of texts is yes and no in several spellings.
    It reads the schema alone.
    """
    for column in schema.columns:
        if isinstance(column, Categorical) and are_spellings(
            {text for text in column.labels if text != OTHER}
        ):
            warnings.warn(
                f'"{column.name}" has yes and no in several spellings '
                f"({', '.join(column.labels)}): "
                f'kinds={{"{column.name}": "boolean"}} reads them as one.',
                UtilityWarning,
                stacklevel=3,
            )


def _book(path: Path, name: str, whole: Budget, lifetime: float | None) -> Ledger:
    """The holder's ledger. BudgetExceeded where what is begun could not be paid any
    more.
    """
    book = open_lifetime_ledger(
        path, name, whole, lifetime, "lifetime_epsilon", "epsilon"
    )
    if book.budget.delta < whole.delta or book.remaining() < whole.epsilon * (1 - 1e-9):
        raise errors.BudgetExceeded(
            f"{book.holder}: this costs {whole} in all. {book.summary()} Are these "
            "other people than those of that "
            'ledger? Then name="…" (--name) gives them one of their own. If they are '
            "the same and the holder agrees, "
            f'`understudy ledger budget {book.path} --epsilon E --reason "…"` allows '
            "more. Nothing was charged."
        )
    return book


def _name(source: Source) -> str:
    if isinstance(source, pd.DataFrame | EngineFrame):
        return "table"
    named = source_at(source)  # which refuses what is no table
    return (named.name if isinstance(source, TableSource) else Path(source).name).split(
        "."
    )[0]


def _as_written(source: Source, encoding: str | None, missing: Sequence[str]) -> Source:
    """The same source, read as its holder says that it is written."""
    if encoding is None and not missing:
        return source
    if not isinstance(source, str | Path | TableSource):
        raise ConfigError(
            "encoding and missing say how a file is read, and this is none. Nothing "
            "was read or charged."
        )
    if encoding is not None:
        source = with_encoding(source, encoding)
    return with_missing(source, missing)


def _require_named(
    source: Source, without: Sequence[str], used: Collection[str | None]
) -> None:
    """Refuse by the header alone: to go on without a column that is not there, or that
    is asked for.
    """
    header = (
        [str(column) for column in open_source(source, {}).header] if without else []
    )
    for column in without:
        if column not in header:
            raise ConfigError(
                f'there is no column "{column}" to go on '
                f"without.{nearest(column, header)} Nothing was read or charged."
            )
        if column in used:
            raise ConfigError(
                f'"{column}" is declared, and left out: say one of them. Nothing was '
                "read or charged."
            )


def _require_unit(
    header: Sequence[object], person: str | None, rows_are_people: bool
) -> None:
    """Refuse by the header alone: two answers to who a person is, or none where a
    column is named like an id.
    """
    if person is not None and rows_are_people:
        raise ConfigError(
            f'person="{person}" says whose each row is, and rows_are_people that '
            "every row is another person: say "
            "one of them. Nothing was read or charged."
        )
    ids = id_names(header)
    if ids and person is None and not rows_are_people:
        named = " and ".join(f'"{column}"' for column in ids) + (
            " is named like an id" if len(ids) == 1 else " are ids"
        )
        likely = likely_person(ids)
        raise ConfigError(
            f"is a row a person? {named}, and one person may have several rows. If a "
            "column says whose each row is: "
            f'person="{likely}" (--person {shlex.quote(likely)}). If every row is '
            "another person: "
            "rows_are_people=True (--rows-are-people). Nothing was charged."
        )


def _require(
    source: Source, declared: Kinds, person: str | None, config: gram.Config
) -> None:
    """Refuse before anything is bought what can be: settings by columns of these names,
    people with several rows.
    """
    if not config.private:
        raise ConfigError(
            "private = false is for rehearsals on public rows. Nothing was charged."
        )
    require_kinds(source, declared)
    gram.forecast(
        config, {"one": columns_of(declared)}, {"one": Budget(1.0, USUAL_DELTA)}
    )
    if person is None:
        return
    if open_source(source, {}).header.count(person) != 1:
        raise SchemaError(f'there is no id column "{person}". Nothing was charged.')
    long = is_long(source, len(declared))
    own = first_of(batches_of(source, {person: False}, long=long), person)
    if not own.all():
        raise SchemaError(
            f'"{person}": a person has one row here, and {int((~own).sum()):,} rows '
            "have no id of their own. People "
            "with several rows are people with events, and a run of `visits` protects "
            "each with all of them "
            "(docs/visits.md). This follows from the rows: keep it to yourself. "
            "Nothing was charged."
        )


def _require_unspent(path: Path, name: str) -> None:
    """Refuse a frame without a name where another one, or an earlier run of it, has
    paid already.
    """
    if not path.exists():
        return
    with Ledger(path, holder=name) as book:
        if not book.spent():
            return
        raise errors.LedgerError(
            f"{path} holds what a frame without a name has paid. Say whose rows these "
            f'are: name="{name}" if they are '
            "of the same people, whose prices add up there, or another name for "
            f"other people. {book.summary()} "
            "Nothing was read or charged."
        )


def _bought(
    source: Source,
    declared: Kinds,
    book: Ledger,
    whole: Budget,
    *,
    run: str,
    person: str | None,
    rows_are_people: bool,
    name: str,
) -> Table:
    """The table with the categories that were bought for it, charged to the ledger
    first.
    """
    title = name if isinstance(source, pd.DataFrame) else None
    public = buy_schema(
        source,
        declared,
        book,
        epsilon=whole.epsilon * SCHEMA_SHARE,
        delta=whole.delta / 2,
        stated_at=whole.delta,
        run=run,
        rng=SecureRng(),
        person=person,
        rows_are_people=rows_are_people,
        name=title,
        gaussian=True,
    )
    if not was_bought(public):
        bought = (
            f"{BOUGHT} {datetime.now(UTC):%Y-%m-%d} by the run itself: where numbers "
            "are."
        )
        public = replace(public, note=f"{bought} Names and kinds were declared.")
    if not is_long(source, len(declared)):
        return read_table(coarsen(source, public, title), public, name)
    assert book.path is not None, "it was opened from a file"
    return open_table(
        coarsen_long(source, public, book.path.with_name(f"{name}-fitted.parquet")),
        public,
    )


def what_is_left(whole: Budget, offer: Quote) -> Budget:
    """A budget for the release at the δ of the whole one, so that it and the purchase
    are within that together.

    Gaussian releases spend about Σ 1/σ², whatever they are of: what the purchase leaves
    of that is the price of many cells with so much noise. The loss of a few whole
    numbers takes few values and may cost more or less than that, so less is tried until
    the accountant finds releases of any size within the whole. Beside other noise the
    release has the noise of what is left of ε at half of δ, since then ε and δ add up.
    """
    spend = flatten(offer.event)
    paid = math.fsum(
        n / event.sigma**2
        for event, n in spend.items()
        if isinstance(event, DiscreteGaussian)
    )
    if paid:
        most = _CELLS[-1]
        left = (
            most
            * needed_noise(most, Budget(whole.epsilon, whole.delta - offer.reveals))
            ** -2
            - paid
        )
        for share in _SHARES:
            each = DiscreteGaussian((share * left / most) ** -0.5)
            rest = Budget(
                min(whole.epsilon, epsilon_of({each: most}, whole.delta)), whole.delta
            )
            if all(
                epsilon_of(_release(cells, rest) + spend, whole.delta) <= whole.epsilon
                for cells in _CELLS
            ):
                return rest
    rest = Budget(whole.epsilon * (1 - SCHEMA_SHARE), whole.delta / 2)
    if not whole.delta:
        return rest
    return Budget(
        min(epsilon_of(_release(cells, rest), whole.delta) for cells in _CELLS),
        whole.delta,
    )


def _release(cells: int, budget: Budget) -> Counter[DpEvent]:
    """The price of so many counts with the noise that this budget asks for."""
    return spend_of([(needed_noise(cells, budget), cells)])


def _with_purchase(result: Result, whole: Budget) -> Result:
    """The same result, whose statement says what was allowed in all. What was paid
    under the run's name is in it.
    """
    (party,) = result.privacy.parties
    outside = (
        "the names and the kinds of columns; where numbers are, and which texts "
        "there are, was bought, within ε",
        *(text for text in result.privacy.outside if not text.startswith("the schema")),
    )
    privacy = replace(
        result.privacy, parties=(replace(party, budget=whole),), outside=outside
    )
    made = result.generator
    card = dict(made.card) | {"privacy": privacy.to_dict()}
    return replace(result, privacy=privacy, artefact=replace(made, card=card))


def _with_held_out(result: Result, share: float) -> Result:
    """The same result, whose statement says that people were held out of it, and whose
    counts are of all of them.
    """
    said = (
        f"each person was held out of the run with a chance of {100 * share:g} %, by a "
        "secret coin, so that attacks have a control. Nothing was released of those. "
        f"Counts are divided by {100 * (1 - share):g} %, so that they are of "
        "everybody, and their intervals include the coins"
    )
    privacy = replace(result.privacy, outside=(*result.privacy.outside, said))
    made = result.generator
    card = dict(made.card) | {"privacy": privacy.to_dict(), "held_out": share}
    release = made.release
    if release is not None:
        release = replace(release, about={**release.about, "held_out": share})
    people = round(result.people / (1 - share))
    return replace(
        result,
        privacy=privacy,
        people=people,
        artefact=replace(made, card=card, release=release),
    )


def _make(folder: Path) -> None:
    """The folder for the artefacts: made before anything is paid for."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtefactError(
            f"{folder} cannot be made ({error.strerror}). Nothing was charged."
        ) from None


def _place(source: Source) -> dict[str, Any]:
    """Where a source lies and how it is read, for a run file; a frame is nowhere."""
    if isinstance(source, TableSource):
        return asdict(source.within(Path.cwd()))
    return {
        "table": ""
        if isinstance(source, pd.DataFrame | EngineFrame)
        else str(Path(source).resolve())
    }


def _note(
    home: Path,
    holder: Holder,
    table: Table | ArrayTable[Any],
    source: Source,
    settings: Mapping[str, Any],
    run: str,
    protocol: str,
    away: Path | None = None,
) -> None:
    """What was done, as a run file, beside the artefacts: `understudy report` finds
    table and ledger by it.

    The rows are named as they came. Those of a frame whose schema was bought are
    written beside the holder's ledger.
    """
    assert holder.ledger.path is not None, "it was opened from a file"
    ledger = holder.ledger.path.resolve()
    table.schema.save(home / "schema.toml")
    if holder.came is not None and isinstance(source, pd.DataFrame):
        source = write(
            ledger.with_name(f"{holder.name}-rows.csv"),
            source.to_csv(index=False).encode(),
        )
    price = holder.budget
    section = PartySection(
        **_place(source),
        schema="schema.toml",
        epsilon=price.epsilon,
        delta=price.delta,
        ledger=str(ledger),
    )
    given = {key: value for key, value in settings.items() if value is not None}
    file = RunFile(
        protocol=protocol,
        parties={holder.name: section},
        settings=given,
        out=".",
        folder=home,
    )
    write(home / "run.toml", file.to_toml().encode())
    told = {} if away is None else {"held_out": str(away.resolve())}
    replace_json(home / "run.json", {"run": run, "rehearsal": False} | told)

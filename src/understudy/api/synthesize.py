"""One table of one holder, in one line: `us.synthesize(frame, epsilon=1)` and
`understudy synthesize`.

    result = us.synthesize(frame, epsilon=1)
    result.sample(1_000)
    print(result.privacy)

All of it is within ε. With a public `schema` (`_read_declared`) all of ε goes into the
release of `gram`. Without one (`_read_and_buy`), where numbers are and which texts
there are is not known to be public, and nothing may take it from rows for free: `gram`
looks for the numbers itself, and a share of ε (`privacy/schema_share.py`) buys the
texts (`privacy/buy_schema.py`), where there are any. From then on (`_release`) both are
the same run, and the statement adds up what was paid.

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

import uuid
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from understudy.api.table_checks import (
    open_solvent_ledger,
    require_known_columns,
    require_people,
    require_purchase,
    require_target,
    require_unit,
    require_unspent,
    unbought_schema,
    warn_of_others,
    warn_of_purchase,
    warns_of_few_people,
)
from understudy.api.table_record import (
    make_folder,
    with_held_out,
    with_purchase,
    write_run_file,
)
from understudy.api.train import train
from understudy.data.arrays import ArrayTable
from understudy.data.header import apply_header, require_header
from understudy.data.kinds import (
    TABLE,
    ArraySchema,
    PublicSchema,
    load_schema,
    one_kind_of_row,
    read_rows,
)
from understudy.data.reading.decoded import require_decoded
from understudy.data.reading.files import (
    Source,
    described_source,
    is_long,
    is_of_engine,
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
from understudy.data.schema import BOUGHT, Schema, was_bought
from understudy.data.table import Table, open_table, read_table
from understudy.ground.check import plain_name
from understudy.ground.durable import own_folder
from understudy.ground.errors import ArtefactError, ConfigError, Effect, UtilityWarning
from understudy.privacy.accounts.budget import USUAL_DELTA, Budget, shown
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.buy_schema import buy_schema, quote
from understudy.privacy.kinds import (
    Kinds,
    hint_at_groups,
    kinds_of,
    with_one_of,
    without_bounds,
    without_times,
)
from understudy.privacy.noise import SecureRng
from understudy.privacy.schema_share import remaining_budget, schema_budget
from understudy.protocols.core import Watcher
from understudy.runs.federation import Federation, Holder
from understudy.runs.registry import protocol_named, resolve_protocol
from understudy.runs.result import Result


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
    is a `folder`, and so a page, of a DataFrame, a .csv, .tsv, .xlsx or .parquet file;
    0 holds nobody out. Of a database it has to be asked for, as rows are copied beside
    the ledger. Of images and series nobody is held out.
    """
    declared = load_schema(schema) if isinstance(schema, str | Path) else schema
    protocol = (
        "gram" if declared is None else resolve_protocol("gram", {"one": declared})
    )
    if protocol != "gram":
        settings = {key: value for key, value in settings.items() if value is not None}
    config = protocol_named(protocol).configured(settings)
    if declared is None and is_of_engine(source):
        raise ConfigError(
            "of an engine's frame a schema is needed.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    source = _as_written(in_pandas(source), encoding, missing)
    unnamed = name is None and isinstance(source, pd.DataFrame | EngineFrame)
    name = name or _name(source)
    plain_name(holder=name, effect=Effect.NOTHING_READ_OR_CHARGED)
    if declared is None or TABLE.describes(declared):
        source = apply_header(source, header)
    elif header is not None:
        raise ConfigError(
            "images and series have no header: leave it out.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    home = None if folder is None else Path(folder)
    if home is not None and (home / "run.toml").exists():
        raise ArtefactError(
            f"{home} already has a run in it: choose another folder.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    budget = Budget(epsilon, delta)
    ledger = own_folder(Path(ledgers)) / f"{name}.ledger"
    if unnamed:
        require_unspent(ledger, name)
    if declared is None:
        require_unit(require_header(source, header), person, rows_are_people)
    if holdout is None:
        holdout = USUAL if home is not None and holds_out_unasked(source) else 0.0
    run = _Synthesis(
        name=f"{protocol}-{uuid.uuid4().hex[:8]}",
        protocol=protocol,
        config=config,
        settings=settings,
        holder=name,
        budget=budget,
        ledger=ledger,
        lifetime_epsilon=lifetime_epsilon,
        holdout=holdout,
        folder=home,
    )
    if declared is not None:
        if (
            person is not None
            or rows_are_people
            or kinds is not None
            or one_of is not None
            or without
        ):
            raise ConfigError(
                "a schema says who and what: leave person, rows_are_people, kinds, "
                "one_of and without out.",
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
        prepared = _read_declared(run, source, declared)
    else:
        prepared = _read_and_buy(
            run,
            source,
            kinds,
            names_and_kinds_are_public=names_and_kinds_are_public,
            one_of=one_of,
            person=person,
            rows_are_people=rows_are_people,
            header=header,
            without=without,
        )
    result = _release(run, prepared, watch)
    if home is not None:
        result.save(home, rows=rows)
    return result


@dataclass(frozen=True, kw_only=True)
class _Synthesis:
    """One call: whose rows, what all of it may cost, and where it is written."""

    name: str
    protocol: str
    config: Any
    settings: Mapping[str, Any]
    holder: str
    budget: Budget
    ledger: Path
    lifetime_epsilon: float | None
    holdout: float
    folder: Path | None

    def hold_out(self, source: Source) -> tuple[Source, Path | None]:
        """The rows that stay, and the file of those that are held out, if any are."""
        if not self.holdout:
            return source, None
        home = self.ledger.parent
        return hold_out(source, self.holdout, SecureRng(), home, self._files)

    def removed_if_refused(self) -> AbstractContextManager[None]:
        return removed_if_refused(self.ledger.parent, self._files)

    @property
    def _files(self) -> str:
        return f"{self.holder}-{self.name}"

    def open_ledger(self) -> Ledger:
        return open_solvent_ledger(
            self.ledger, self.holder, self.budget, self.lifetime_epsilon
        )


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Rows that fit a public schema, and what their release may cost. `bought`: that
    part of the schema was bought. `warned`: that people were said to be few.
    """

    source: Source
    table: Table | ArrayTable[Any]
    ledger: Ledger
    budget: Budget
    held_out: Path | None
    bought: bool
    warned: bool


def _read_declared(
    run: _Synthesis, source: Source, declared: PublicSchema
) -> _Prepared:
    """Read rows by a public schema: all of the budget is for the release."""
    schema = one_kind_of_row(declared)
    schema.require_public(f"the schema of {run.holder}")
    schema.require_unit(f"the schema of {run.holder}")
    title = run.holder if isinstance(source, pd.DataFrame) else None
    held_out = None
    with run.removed_if_refused():
        # a coin for each row would tear a person's images or series apart
        if TABLE.describes(schema):
            source, held_out = run.hold_out(source)
        table = read_rows(source, schema, title)
        if TABLE.describes(schema) and not table.long:
            require_people(run.config, schema, run.budget, table.rows)
        ledger = run.open_ledger()
    warned = TABLE.describes(schema) and warns_of_few_people(
        run.config, schema, run.budget
    )
    return _Prepared(
        source=source,
        table=table,
        ledger=ledger,
        budget=run.budget,
        held_out=held_out,
        bought=False,
        warned=warned,
    )


def _read_and_buy(
    run: _Synthesis,
    source: Source,
    kinds: Kinds | None,
    *,
    names_and_kinds_are_public: bool,
    one_of: Sequence[str | Sequence[str]] | None,
    person: str | None,
    rows_are_people: bool,
    header: bool | None,
    without: Sequence[str],
) -> _Prepared:
    """Read rows whose texts are bought, and whose numbers the release looks for."""
    require_known_columns(source, without, {*(kinds or {}), person})
    people = require_decoded(source)
    declared = kinds_of(
        source,
        kinds,
        person=person,
        confirmed=names_and_kinds_are_public,
        header=header,
        without=without,
        price=f"ε = {shown(run.budget.epsilon)} at δ = {run.budget.delta:g}",
    )
    source = without_times(source, declared, kinds)
    if one_of is None:
        hint_at_groups(declared)
    declared = with_one_of(declared, one_of or ())
    require_purchase(source, declared, person, run.config)
    declared = without_bounds(declared)
    purchase = schema_budget(run.budget)
    offer = quote(
        declared, epsilon=purchase.epsilon, delta=purchase.delta, gaussian=True
    )
    budget = run.budget if offer is None else remaining_budget(run.budget, offer)
    unbought = unbought_schema(declared)
    require_people(run.config, unbought, budget, people)
    with run.removed_if_refused():
        source, held_out = run.hold_out(source)
        ledger = run.open_ledger()
    warned = warns_of_few_people(run.config, unbought, budget)
    if run.folder is not None:
        make_folder(run.folder)
    table = _buy(run, source, declared, ledger, person, rows_are_people)
    require_target(run.config.target, table.schema)
    warn_of_purchase(declared, table.schema)
    return _Prepared(
        source=source,
        table=table,
        ledger=ledger,
        budget=budget,
        held_out=held_out,
        bought=True,
        warned=warned,
    )


def _buy(
    run: _Synthesis,
    source: Source,
    declared: Kinds,
    ledger: Ledger,
    person: str | None,
    rows_are_people: bool,
) -> Table:
    """The table with the categories that were bought for it, charged to the ledger
    first.
    """
    title = run.holder if isinstance(source, pd.DataFrame) else None
    purchase = schema_budget(run.budget)
    schema = buy_schema(
        source,
        declared,
        ledger,
        epsilon=purchase.epsilon,
        delta=purchase.delta,
        stated_at=run.budget.delta,
        run=run.name,
        rng=SecureRng(),
        person=person,
        rows_are_people=rows_are_people,
        name=title,
        gaussian=True,
    )
    if not was_bought(schema):
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        note = f"{BOUGHT} {today} by the run itself: where numbers are."
        schema = replace(schema, note=f"{note} Names and kinds were declared.")
    if not is_long(source, len(declared)):
        return read_table(coarsen(source, schema, title), schema, run.holder)
    fitted = run.ledger.with_name(f"{run.holder}-fitted.parquet")
    return open_table(coarsen_long(source, schema, fitted), schema)


def _release(run: _Synthesis, prepared: _Prepared, watch: Watcher | None) -> Result:
    """Release a generator of the prepared rows, and state what all of it cost."""
    holder = Holder(
        run.holder,
        prepared.table,
        prepared.ledger,
        prepared.budget,
        total=run.budget,
        came=prepared.source if prepared.bought else None,
    )
    if run.folder is not None:
        make_folder(run.folder)
        write_run_file(
            run.folder,
            holder,
            prepared.source,
            schema=prepared.table.schema,
            protocol=run.protocol,
            settings=run.settings,
            run=run.name,
            held_out=prepared.held_out,
        )
    result = train(
        run.protocol,
        Federation.from_holders([holder]),
        folder=run.folder,
        watch=watch,
        run=run.name,
        **run.settings,
    )
    if prepared.bought:
        result = with_purchase(result, run.budget)
    if prepared.held_out is not None:
        result = with_held_out(result, run.holdout)
    if prepared.bought:
        warn_of_others(result.generator.sample(1_000, seed=0))
    if not prepared.warned and (warning := result.artefact.card.get("warning")):
        warnings.warn(warning, UtilityWarning, stacklevel=3)
    return result


def in_pandas(source: Any) -> Any:
    """A frame of another library as one of pandas, that of an engine as a source; all
    else as it is.
    """
    if is_of_engine(source):
        return described_source(source)
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, pd.DataFrame):
        source = pa.table(source).to_pandas()
    return quiet_frame(source) if isinstance(source, pd.DataFrame) else source


def _name(source: Source) -> str:
    if isinstance(source, pd.DataFrame | EngineFrame):
        return "table"
    described = source_at(source)  # which refuses what is no table
    file = described if isinstance(source, TableSource) else Path(source)
    return file.name.split(".")[0]


def _as_written(source: Source, encoding: str | None, missing: Sequence[str]) -> Source:
    """The same source, read as its holder says that it is written."""
    if encoding is None and not missing:
        return source
    if not isinstance(source, str | Path | TableSource):
        raise ConfigError(
            "encoding and missing say how a file is read, and this is none.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    if encoding is not None:
        source = with_encoding(source, encoding)
    return with_missing(source, missing)

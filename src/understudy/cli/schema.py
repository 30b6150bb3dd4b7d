"""`understudy schema`: draft the public description of rows, buy it, check rows against
it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli import terminal
from understudy.cli.terminal import (
    FileArg,
    RowsArePeople,
    RowsArg,
    argument,
    err,
    option,
    out,
    plain,
    print_table,
)
from understudy.data.reading.sources import (
    TableSource,
    with_encoding,
    with_header,
    with_missing,
)
from understudy.ground import durable
from understudy.ground.errors import ConfigError, Effect, PrivacyError
from understudy.privacy.accounts.budget import Budget, rehearsal_of

if TYPE_CHECKING:
    from understudy.data.infer import Draft
    from understudy.privacy.accounts.ledger import Ledger

MissingOption = Annotated[
    list[str] | None,
    option(
        "A cell that holds no value, such as '?' or -99; may be repeated. Empty cells "
        "hold none anyway."
    ),
]
PUBLIC = (
    "What stands above was read from rows. If it goes into a run, everybody learns it: "
    "the age of the oldest, the one rare diagnosis. It may be called public only if it "
    "is known without the rows, from a codebook, a form or the law; where it is "
    "narrower than what is known there, say no, and widen it in {file}."
)

HOLDER = "the holder"  # who answers for a schema, where nobody is named

app = typer.Typer(
    no_args_is_help=True,
    help="The public description of a table: draft it, check rows against it.",
)


@app.command("check")
def schema_check(
    table: RowsArg, schema: Annotated[Path, argument("The schema (TOML or JSON).")]
) -> None:
    """List every place where a table does not fit its schema: file, column, row,
    value.
    """
    from understudy.answers.rules import check_rules
    from understudy.data.kinds import kind_of, load_schema

    public = load_schema(schema)
    kind = kind_of(public)
    rules = getattr(public, "rules", ())
    if rules:
        check_rules(public)  # type: ignore[arg-type]
    violations, remarks = kind.check(table, public)
    for violation in violations:
        plain.print(str(violation))
    n_errors = sum(violation.error for violation in violations)
    if n_errors:
        err.print(f"{n_errors:,} violations.")
        raise typer.Exit(1)
    out.print(f"{table.name} fits {schema.name}.")
    for line in remarks:
        out.print(line)
    if rules:
        broken_by = _broken_by_people if kind.name == "visits" else _broken_by_rows
        counts, rows, units = broken_by(table, public)
        for rule, count in zip(rules, counts, strict=True):
            broken = f"{count:,} of {rows:,} {units} break it; what is drawn will not"
            plain.print(f"Rule {rule}: {broken if count else f'all {units} keep it'}.")


def _broken_by_rows(source: Path, schema: Any) -> tuple[Iterable[int], int, str]:
    """How many rows break each rule, and of how many."""
    from understudy.data.kinds import TABLE
    from understudy.data.rules import broken

    rows = TABLE.read(source, schema)
    breaks = [broken(schema.rules, batch, schema.columns) for batch in rows.batches()]
    return map(sum, zip(*breaks, strict=True)), rows.rows, "rows"


def _broken_by_people(source: Path, schema: Any) -> tuple[Iterable[int], int, str]:
    from understudy.answers.drawn_people import as_drawn, broken
    from understudy.evaluate.utility.visits import visit_tables

    people = as_drawn(visit_tables(source, schema), schema)
    return broken(people, schema), len(people.people), "people"


@app.command("infer")
def schema_infer(
    tables: Annotated[
        list[Path],
        argument(
            "A table; a folder with people and events, or both files, people first."
        ),
    ],
    to: Annotated[Path, option("Where to write the draft.", "--out")],
    person: Annotated[str | None, option("The column that identifies people.")] = None,
    rows_are_people: RowsArePeople = False,
    missing: MissingOption = None,
    header: terminal.Header = None,
) -> None:
    """Write a draft schema read from rows. A run refuses it until it is marked public
    or paid for.
    """
    from understudy.data.infer import draft, draft_visits, write_draft
    from understudy.data.visits.reading import file_of

    if len(tables) > 2:
        raise ConfigError(
            "a draft is of one table, or of people and events. No draft was made."
        )
    people, events = (
        (file_of(tables[0], part) for part in ("people", "events"))
        if tables[0].is_dir()
        else (tables[0], tables[1] if len(tables) > 1 else None)
    )

    def read(file: Path) -> TableSource:
        return with_missing(with_header(file, header), missing or ())

    if tables[0].is_dir() and events is None and people is not None:
        raise ConfigError(
            f"{tables[0]}: there is no file of events in it. No draft was made."
        )
    if events is not None and rows_are_people:
        raise ConfigError(
            "--rows-are-people is for one table: a person has several events. No "
            "draft was made."
        )
    if events is not None:
        schema, drafts = draft_visits(
            None if people is None else read(people), read(events), person
        )
        write_draft(schema, to)
        for part, draft_of_part in drafts.items():
            plain.print(part)
            show_draft(draft_of_part)
        order = f"Events are ordered by {schema.time}." if schema.time else schema.note
        plain.print(
            f"{order} most_events = {schema.most_events} is the most that a person "
            "has here."
        )
    else:
        draft_of_part = draft(
            read(tables[0]), person=person, rows_are_people=rows_are_people, groups=True
        )
        write_draft(draft_of_part.schema, to)
        show_draft(draft_of_part)
    out.print(
        f"Draft written to {to}. It was read from rows and is private: read its "
        "header before you continue."
    )


def show_draft(draft: "Draft") -> None:
    """A line for every column of the table: what it is taken for, or why it is left
    out, and what to decide.
    """
    rows: list[tuple[str, ...]] = [
        (
            c.name,
            c.kind,
            c.domain,
            "yes" if c.nullable else "",
            draft.remarks.get(c.name, ""),
        )
        for c in draft.schema.columns
    ]
    person = draft.schema.person
    if person is not None:
        rows.insert(
            0,
            (
                person,
                "the person",
                "",
                "",
                draft.remarks.get(person, "never learned, never sampled"),
            ),
        )
    rows += [(name, "left out", "", "", why) for name, why in draft.left_out.items()]
    print_table(("column", "kind", "values", "missing", "to decide"), rows)


@app.command("declare")
def schema_declare(
    drafts: Annotated[
        list[Path], argument("Drafts, with what is publicly known put in.")
    ],
    because: Annotated[
        str | None,
        option("Where it is known from ('the form of 2021'); kept in the schema."),
    ] = None,
    by: Annotated[str, option("Who answers for it; kept in the schema.")] = HOLDER,
) -> None:
    """Declare drafts to be public: each is shown, and you say where it is known from
    without the rows.

    The schema keeps that it was drafted from rows, when, and how many of its columns
    were edited since.
    """
    from dataclasses import replace

    from understudy.data.drafted import declaration
    from understudy.data.kinds import VISITS, load_schema

    for file in drafts:
        draft: Any = load_schema(file)
        plain.print(str(draft))
        if draft.origin == "public":
            plain.print(f"{file} is public already.")
            continue
        plain.print(PUBLIC.format(file=file))
        source = (
            terminal.ask("Where is all of it known from (or nothing)")
            if because is None
            else because
        )
        if not source.strip():
            raise ConfigError(
                f"{file} stays a draft: nobody said where it is publicly known from."
            )
        if VISITS.describes(draft):
            note = declaration(
                draft.tables, by=by, because=source, most_events=draft.most_events
            )
            public: dict[str, Any] = {"origin": "public", "note": "", "drafted": None}
            tables: dict[str, Any] = {
                key: replace(table_schema, **public)
                for key, table_schema in draft.tables.items()
            }
            replace(draft, note=note, **tables).save(file)
        else:
            note = declaration({"": draft}, by=by, because=source)
            replace(draft, origin="public", note=note, drafted=None).save(file)
        plain.print(f"{file} is declared to be public. It says: {note}")


@app.command("buy")
def schema_buy(
    table: RowsArg,
    draft: Annotated[Path, argument("A schema with the right column names and kinds.")],
    ledger: Annotated[
        Path, option("The holder's ledger; a new one is made, with --lifetime-epsilon.")
    ],
    to: Annotated[Path, option("Where to write the bought schema.", "--out")],
    cleaned: Annotated[Path, option("Where to write the table fitted to it (CSV).")],
    epsilon: Annotated[float, option("The ε to spend.")] = 0.5,
    delta: Annotated[float, option("The δ of the price.")] = 1e-6,
    lifetime: terminal.Lifetime = None,
    holder: Annotated[
        str | None, option("The holder's name, if the ledger is new.")
    ] = None,
    confirm: terminal.NamesArePublic = False,
    header: terminal.Header = None,
    encoding: Annotated[
        str | None,
        option("The encoding of the file's text, such as cp1252; default: UTF-8."),
    ] = None,
    missing: MissingOption = None,
    people: Annotated[
        int | None, option("About how many people, if that is public.", min=1)
    ] = None,
) -> None:
    """Buy bounds and category lists with noise, charged to the ledger before a row is
    read.

    Only column names and kinds are taken from the draft; everything else is measured
    privately. Values that did not show (rare categories, outliers) become "(other)" or
    are clipped in the cleaned table. A table that looks misread, or has too few people,
    is refused before anything is charged, as by `understudy synthesize`.
    """
    from understudy.api.table_checks import require_people, unbought_schema
    from understudy.data.header import require_header
    from understudy.data.reading.decoded import require_decoded
    from understudy.data.reading.writing import coarsen
    from understudy.data.schema import Schema
    from understudy.privacy.buy_schema import buy_schema, quote
    from understudy.privacy.kinds import (
        as_bought,
        in_words,
        require_kinds,
        without_bounds,
    )
    from understudy.privacy.noise import SecureRng
    from understudy.protocols.gram.protocol import Config

    columns = Schema.load(draft)
    columns.require_unit(str(draft))
    kinds = {column.name: as_bought(column) for column in columns.columns}
    if not confirm:
        shown = ", ".join(f"{name} ({in_words(kind)})" for name, kind in kinds.items())
        raise ConfigError(
            "a purchase takes column names and kinds from the draft for free: "
            f"{shown}. If they are publicly known, say so with "
            "--names-and-kinds-are-public.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    source = with_missing(with_header(table, header), missing or ())
    source = source if encoding is None else with_encoding(source, encoding)
    require_header(source, header)
    rows = require_decoded(source)
    require_kinds(source, kinds)
    require_people(
        Config(public_people=people),
        unbought_schema(without_bounds(kinds)),
        Budget(epsilon, delta),
        rows,
    )
    new = not ledger.exists()
    book = _book(ledger, holder or ledger.stem, epsilon, delta, lifetime)
    plain.print(str(quote(kinds, epsilon=epsilon, delta=delta) or "nothing to buy"))
    bought = buy_schema(
        source,
        kinds,
        book,
        epsilon=epsilon,
        delta=delta,
        run="schema",
        rng=SecureRng(),
        person=columns.person,
        rows_are_people=columns.rows_are_people,
    )
    bought.save(to)
    durable.replace(cleaned, coarsen(source, bought).to_csv(index=False).encode())
    plain.print(
        f"Schema written to {to}, the table fitted to it to "
        f"{cleaned}.\n{book.summary()}"
    )
    if new and lifetime is None:
        out.print(
            "The ledger is new, and its lifetime budget is this purchase: a run needs "
            "more. "
            f"When the holder has decided how much: understudy ledger budget {ledger} "
            '--epsilon E --reason "…"',
            markup=False,
        )


def _book(
    path: Path, holder: str, epsilon: float, delta: float, lifetime: float | None
) -> "Ledger":
    from understudy.runs.federation import open_lifetime_ledger

    words = ("--lifetime-epsilon", "--epsilon")
    return open_lifetime_ledger(path, holder, Budget(epsilon, delta), lifetime, *words)


@app.command("buy-events")
def schema_buy_events(
    table: Annotated[
        Path, argument("The folder with people and events, or the table of events.")
    ],
    schema: Annotated[
        Path, argument("The schema; its most_events is the most that can be chosen.")
    ],
    ledger: Annotated[Path, option("The holder's ledger; a new one is made.")],
    to: Annotated[Path, option("Where to write the schema with the bound.", "--out")],
    epsilon: Annotated[float, option("The ε to spend.")] = 0.1,
    percent: Annotated[
        int, option("About this percentage of the people have no more events.")
    ] = 95,
    delta: Annotated[float, option("The δ of a new ledger.")] = 1e-6,
    lifetime: terminal.Lifetime = None,
) -> None:
    """Buy how many events of a person count (most_events), where no bound is publicly
    known.
    """
    from understudy.data.visits import VisitSchema, read_visits
    from understudy.privacy.buy_most_events import buy_most_events
    from understudy.privacy.noise import SecureRng

    declared = VisitSchema.load(schema)
    declared.require_public(str(schema))
    rows = read_visits(table, declared)
    book = _book(ledger, ledger.stem, epsilon, delta, lifetime)
    bought = buy_most_events(
        rows, book, epsilon=epsilon, percent=percent, run="schema", rng=SecureRng()
    )
    bought.save(to)
    plain.print(
        f"most_events = {bought.most_events}. Schema written to {to}.\n{book.summary()}"
    )


@app.command("levels")
def schema_levels(
    folder: terminal.RunFolderArg,
    to: Annotated[Path, option("Where to write the schema.", "--out")],
    holder: Annotated[str | None, option("Only this holder's columns.")] = None,
) -> None:
    """Write a schema whose bins are the levels that a run bought, for methods that take
    them as declared.
    """
    from dataclasses import replace

    from understudy.data.encoding.codec import bought_bins
    from understudy.generators.generator import Generator

    generator = Generator.load(folder)
    if generator.levels is None:
        raise ConfigError(
            f"{folder} has the levels that its schema declares: none were bought."
        )
    rehearsal = rehearsal_of(generator.card)
    if rehearsal:
        raise PrivacyError(
            f"{folder}: its levels are no public bins. {rehearsal}",
            effect=Effect.NOTHING_WRITTEN,
        )
    binned = bought_bins(generator.levels)
    owners = generator.card.get("owners", {})
    if holder is not None:
        names = [name for name in binned.names if owners.get(name) == holder]
        if not names:
            holders = ", ".join(sorted(set(owners.values()))) or "nobody in particular"
            raise ConfigError(f"no column is {holder}'s: they are of {holders}.")
        binned = binned.select(names)
    replace(
        binned,
        note=f"Bins are levels that {generator.card.get('protocol', 'a run')} bought.",
    ).save(to)
    plain.print(
        f"Schema written to {to}: its bins were released and paid for in that run."
    )


@app.command("show")
def schema_show(schema: FileArg) -> None:
    """Print a schema as a table."""
    from understudy.data.kinds import load_schema

    plain.print(str(load_schema(schema)))

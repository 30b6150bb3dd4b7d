"""`understudy init`: from tables to schemas and a run file, by questions.

What was read from rows stays a draft unless somebody says that it is publicly known:
`--yes` never says so.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import tomli_w
import typer

from understudy.cli.schema import HOLDER, PUBLIC, MissingOption, show_draft
from understudy.cli.terminal import Header, RowsArePeople, argument, option, out, plain
from understudy.cli.terminal import ask as ask_for
from understudy.data.id_names import id_names, likely_person
from understudy.data.reading.sources import (
    SUFFIX,
    TableSource,
    is_url,
    require_no_secret,
    with_header,
    with_missing,
)
from understudy.ground.check import nearest, plain_names
from understudy.ground.errors import ConfigError, Effect

if TYPE_CHECKING:
    from understudy.data.infer import Draft
    from understudy.data.schema import Schema

PRICE = (
    "What may the run cost each person? ε bounds what anybody can learn about one of "
    "them, for all time: 1 is called strong, 10 is the most that is called reasonable. "
    "Less ε is more noise: `understudy plan` says how much."
)


def init(
    tables: Annotated[
        list[str] | None,
        argument("CSV, Excel, Parquet or a database's URL, one a holder."),
    ] = None,
    folder: Annotated[
        Path, option("Where to write run file and schemas.", "--folder")
    ] = Path(),
    query: Annotated[
        list[str] | None,
        option("The rows of a database, or a table's name: one for each URL."),
    ] = None,
    person: Annotated[str | None, option("The column that identifies people.")] = None,
    rows_are_people: RowsArePeople = False,
    target: Annotated[
        str | None, option("A column to predict from the others.")
    ] = None,
    epsilon: Annotated[
        float | None, option("What the run may cost each person.")
    ] = None,
    people: Annotated[
        int | None, option("About how many people, if that is public.", min=1)
    ] = None,
    missing: MissingOption = None,
    header: Header = None,
    yes: Annotated[
        bool, option("Ask nothing; what was read from rows stays a draft.", "--yes")
    ] = False,
) -> None:
    """Begin with your own tables: a schema for each of them, and a run file, by
    questions. Nothing is spent.
    """
    from understudy.data.drafted import declaration
    from understudy.data.infer import write_draft

    named_tables = tables or ([] if yes else _ask_tables())
    if not named_tables:
        raise ConfigError(
            "there is no table to begin with.", effect=Effect.NOTHING_WRITTEN
        )
    bases = _databases(
        [name for name in named_tables if is_url(name)],
        query or [],
        folder,
        ask=not yes,
    )
    named = [*map(Path, (name for name in named_tables if not is_url(name))), *bases]
    holders = {path.name.split(".")[0]: path for path in named}
    if len(holders) < len(named):
        raise ConfigError(
            "two tables have the same name: each holder needs one of its own.",
            effect=Effect.NOTHING_WRITTEN,
        )
    plain_names(holders, "holder")
    files = {name: folder / f"{name}.toml" for name in holders}
    run = folder / "run.toml"
    existing = [file for file in (*files.values(), *bases, run) if file.exists()]
    if existing:
        raise ConfigError(
            f"{existing[0]} is there already. Choose another --folder.",
            effect=Effect.NOTHING_WRITTEN,
        )
    folder.mkdir(parents=True, exist_ok=True)
    schemas: dict[str, Schema] = {}
    with _kept_if_all_goes_well(bases):
        for name, path in holders.items():
            source = with_missing(with_header(path, header), missing or [])
            draft = _drafted(path.name, source, person, rows_are_people, ask=not yes)
            schemas[name] = draft.schema
            if yes:
                continue
            plain.print(PUBLIC.format(file=files[name]))
            if typer.confirm(
                f"Is all of it publicly known, for {len(draft.schema.columns)} columns",
                default=False,
            ):
                note = declaration(
                    {"": draft.schema}, by=HOLDER, because="said when it was drafted"
                )
                schemas[name] = replace(
                    draft.schema, origin="public", note=note, drafted=None
                )
        target, epsilon = _purpose(schemas, target, epsilon, ask=not yes)
    for name, schema in schemas.items():
        schema.save(files[name]) if schema.origin == "public" else write_draft(
            schema, files[name]
        )
    run.write_text(
        run_text(
            holders,
            files,
            folder,
            epsilon or 1.0,
            target or None,
            people,
            missing or [],
            header,
        )
    )
    _next(run, files)


@contextmanager
def _kept_if_all_goes_well(sources: dict[Path, TableSource]) -> Iterator[None]:
    """How databases are read, on the disk while their rows are looked at: nothing is
    left there after an error.
    """
    for file, source in sources.items():
        reading = {
            key: value
            for key in ("table", "query", "password")
            if (value := getattr(source, key))
        }
        file.write_text(
            "# How the rows are read; stays with their holder.\n"
            + tomli_w.dumps(reading)
        )
    try:
        yield
    except BaseException:
        for file in sources:
            file.unlink(missing_ok=True)
        raise


def _purpose(
    schemas: "dict[str, Schema]",
    target: str | None,
    epsilon: float | None,
    *,
    ask: bool,
) -> tuple[str | None, float | None]:
    columns = [column for schema in schemas.values() for column in schema.names]
    if ask:
        target = target or ask_for("A column to predict from the others (or nothing)")
        out.print(PRICE)
        epsilon = epsilon or typer.prompt("ε", default=1.0, type=float)
    if target and target not in columns:
        raise ConfigError(
            f'there is no column "{target}".{nearest(target, columns)}',
            effect=Effect.NOTHING_WRITTEN,
        )
    return target, epsilon


def _ask_tables() -> list[str]:
    out.print(
        "The tables, one of each holder: different columns of the same people, or the "
        "same columns of different people."
    )
    paths: list[str] = []
    while path := ask_for(f"Table {len(paths) + 1} (nothing when all are named)"):
        paths.append(path)
    return paths


def _databases(
    urls: list[str], queries: list[str], folder: Path, *, ask: bool
) -> dict[Path, TableSource]:
    """How the rows of each database are read, by the file that will say so."""
    if len(queries) > len(urls) or (len(queries) < len(urls) and not ask):
        raise ConfigError(
            f"{len(urls)} databases and {len(queries)} queries were named: each "
            "database needs one, in turn.",
            effect=Effect.NOTHING_WRITTEN,
        )
    sources: dict[Path, TableSource] = {}
    for number, url in enumerate(urls):
        require_no_secret(url)
        query = (
            queries[number]
            if number < len(queries)
            else typer.prompt(f"{url}: a table's name, or a query")
        )
        if re.fullmatch(r"[\w.]+", query):
            query = f"select * from {query}"
        password = ""
        if ask and urlsplit(url).hostname:
            password = ask_for(
                "Where is its password: env:NAME or file:PATH (nothing where the "
                "driver finds it)"
            )
        source = TableSource(table=url, query=query, password=password or None).within(
            Path.cwd()
        )
        name = re.sub(r"\W+", "-", Path(urlsplit(url).path).stem).strip("-")
        if not name:
            raise ConfigError(
                f"{source.name}: the URL names no database.",
                effect=Effect.NOTHING_WRITTEN,
            )
        sources[folder / f"{name}{SUFFIX}"] = source
    return sources


def _drafted(
    name: str,
    source: TableSource,
    person: str | None,
    rows_are_people: bool,
    *,
    ask: bool,
) -> "Draft":
    """A draft of the table's schema, shown, once it is known who the people are."""
    from understudy.data.header import require_header
    from understudy.data.infer import draft

    names = require_header(source)
    if person is None and not rows_are_people and ask:
        ids = id_names(names)
        question = f"{name}: which column says who a row is about (- for none)"
        answer = typer.prompt(question, default=likely_person(ids) if ids else "-")
        person = None if answer == "-" else answer
        if person is None:
            rows_are_people = typer.confirm(
                f"{name}: is every row another person", default=False
            )
    draft_schema = draft(source, person, rows_are_people=rows_are_people, groups=True)
    plain.print(f"\n{name}")
    show_draft(draft_schema)
    return draft_schema


def run_text(
    tables: dict[str, Path],
    schemas: dict[str, Path],
    folder: Path,
    epsilon: float,
    target: str | None,
    people: int | None,
    missing: list[str],
    header: bool | None = None,
) -> str:
    """A run file with a word to every key. Paths are relative to it where they lie
    beneath it.
    """

    def relative_path(path: Path) -> str:
        full = path.resolve()
        home = folder.resolve()
        return str(full.relative_to(home) if full.is_relative_to(home) else full)

    def line(key: str, value: object, word: str) -> str:
        return f"{tomli_w.dumps({key: value}).strip():<36}# {word}"

    lines = [
        line("protocol", "gram", "`understudy protocols` lists the others"),
        line("out", "runs/" + "-".join(tables), "where everything is written"),
        line("people", people, "about how many, for the plan alone")
        if people
        else (
            "# people = 5000                     # about how many, if that is "
            "public: for `understudy plan` alone"
        ),
        "",
        "[settings]                          # `understudy protocols gram` lists them",
        line("target", target, "measured twice, so that it can be predicted well")
        if target
        else (
            '# target = "…"                      # a column to predict from the others'
        ),
    ]
    if len(tables) == 2:
        lines += [
            '# alignment = "union"               # of other columns: nobody learns who '
            "is shared",
            '# products = "dealt"                # of other columns: faster, but a '
            "server with a holder can read rows",
        ]
    for name, table in tables.items():
        key = tomli_w.dumps({name: 1}).rpartition(" = ")[0]
        lines += [
            "",
            f"[parties.{key}]",
            line("table", relative_path(table), "stays with its holder"),
        ]
        if header is not None:
            lines += [line("header", header, "whether the first line holds names")]
        if missing:
            lines += [
                line(
                    "missing",
                    list(with_missing(table, missing).missing),
                    "cells that hold no value",
                )
            ]
        lines += [
            line(
                "schema",
                relative_path(schemas[name]),
                "public: bounds, categories, kinds",
            )
        ]
        lines += [line("epsilon", epsilon, "what this run may cost a person here")]
        lines += [line("delta", 1e-6, "well below one over the number of people")]
        lines += [
            line(
                "ledger",
                f"ledgers/{name}.ledger",
                "made if it is not there; outlives every run",
            )
        ]
    return "\n".join(lines) + "\n"


def _next(run: Path, files: dict[str, Path]) -> None:
    from understudy.data.schema import Schema

    plain.print(f"\nWritten: {', '.join(map(str, [*files.values(), run]))}.")
    open_drafts = [
        file for file in files.values() if Schema.load(file).origin != "public"
    ]
    for file in open_drafts:
        plain.print(
            f"{file} is a draft, and a run refuses it: put in what is publicly known, "
            f"then run understudy schema declare {file}"
        )
    plain.print(
        f"Then: understudy plan {run}"
        if open_drafts
        else f"Next: understudy plan {run}, understudy run {run}"
    )

"""The `understudy` command: each imports what it works with when it is called, so that
help is answered at once.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

import understudy
from understudy.cli import asking, exchange_silo, hub, ledger, schema, terminal
from understudy.cli.init import init
from understudy.cli.party import (
    Parts,
    aggregate,
    approve,
    collect,
    count,
    counted_in,
    join,
)
from understudy.cli.schema import MissingOption
from understudy.cli.status import console, status
from understudy.cli.terminal import (
    FileArg,
    NamesArePublic,
    QuoteFormulas,
    RowsArePeople,
    RowsArg,
    argument,
    option,
    out,
    plain,
)
from understudy.evidence import need_libraries
from understudy.ground.durable import free_folder
from understudy.ground.errors import (
    ConfigError,
    Effect,
    PrivacyWarning,
    SchemaError,
    UnderstudyError,
    UtilityWarning,
)
from understudy.runs.runfile import RunFile

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Private synthetic rows and models from data that must not leave its "
    "holders.\n\n"
    "Several holders obtain **one synthetic table** from rows that never leave them, "
    "at a privacy price that is "
    "written into each holder's ledger before anything is sent.\n\n"
    "Start with `understudy demo`. For one table of your own: `understudy "
    "synthesize`. For several holders: "
    "`understudy init` drafts schemas and a run file, `plan` says what it will cost, "
    "`run` carries it out, then "
    "`sample`, `report` and `ledger show`.",
)
for name, group in {
    "schema": schema,
    "ledger": ledger,
    "federation": hub,
    "exchange": exchange_silo,
}.items():
    app.add_typer(group.app, name=name)
questions = (asking.sample, asking.predict, asking.tables)
for command in (
    init,
    *questions,
    hub.serve,
    join,
    aggregate,
    collect,
    approve,
    count,
    status,
    console,
):
    app.command()(command)

FolderArg = Annotated[
    Path, argument("A folder of evidence.", exists=True, file_okay=False)
]


def main() -> None:
    """Run a command; an error of ours is one line in words, not a traceback."""
    with warnings.catch_warnings():
        for kind in (PrivacyWarning, UtilityWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_, **__: terminal.note(str(message))
        try:
            app()
        except UnderstudyError as error:
            terminal.print_error(error)
            sys.exit(1)


@app.command()
def demo(
    to: Annotated[
        Path | None,
        option("Where to write; default: the next free runs/demo.", "--out"),
    ] = None,
    protocol: Annotated[str, option("gram, or verti-gan.")] = "gram",
    epsilon: Annotated[float, option("What the run may cost each holder.")] = 2.0,
    visits: Annotated[
        bool,
        option("People with many rows: two insurers, all years of each.", "--visits"),
    ] = False,
) -> None:
    """Two holders publish one joint synthetic table, from real data.

    A clinic and an insurer hold different facts about partly the same people (RAND
    Health Insurance Experiment). They find the shared people without showing ids,
    obtain one generator without showing rows, and write down what it cost. The page at
    the end shows how good it is. With --visits two insurers have people of their own
    with several years each, and publish two tables.
    """
    from understudy.api.demo import run_demo

    if visits and protocol != "gram":
        raise ConfigError(
            "--visits is a protocol of its own.", effect=Effect.NOTHING_READ_OR_CHARGED
        )
    with terminal.training() as watch:
        run_demo(
            to,
            protocol="visits" if visits else protocol,
            epsilon=epsilon,
            say=plain.print,
            watch=watch,
        )


@app.command()
def synthesize(
    table: RowsArg,
    epsilon: Annotated[float, option("What all of it may cost a person.")],
    delta: Annotated[float, option("The δ of the price.")] = 1e-6,
    schema: Annotated[
        Path | None, option("The public schema; without one 0.4 of ε buys its texts.")
    ] = None,
    one_of: Annotated[
        list[str] | None,
        option('Columns of which exactly one is 1 in every row: "soil_*".'),
    ] = None,
    person: Annotated[
        str | None,
        option("The column that identifies people, where the schema is bought."),
    ] = None,
    rows_are_people: RowsArePeople = False,
    header: terminal.Header = None,
    target: Annotated[
        str | None, option("A column to predict from the others.")
    ] = None,
    to: Annotated[
        Path | None,
        option("Where to write; default: the next free runs/NAME.", "--out"),
    ] = None,
    name: Annotated[
        str | None,
        option("Whose rows these are, and the ledger's name; default: the file's."),
    ] = None,
    ledgers: Annotated[Path, option("The folder of the holder's ledgers.")] = Path(
        "ledgers"
    ),
    lifetime: terminal.Lifetime = None,
    rows: Annotated[
        int | None,
        option("Synthetic rows; default: about one a person, up to a million.", min=1),
    ] = None,
    confirm: NamesArePublic = False,
    encoding: Annotated[
        str | None,
        option("The encoding of the file's text, such as cp1252; default: UTF-8."),
    ] = None,
    missing: MissingOption = None,
    without: Annotated[
        list[str] | None, option("A column to go on without; may be repeated.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        option(
            'NAME=KIND: a column of this kind, as "age=integer", "seen=date '
            'DD.MM.YYYY"; may be repeated.'
        ),
    ] = None,
    people: Annotated[
        int | None, option("About how many people, if that is public.", min=1)
    ] = None,
    parts: Parts = None,
    quote_formulas: QuoteFormulas = False,
    holdout: Annotated[
        float | None,
        option(
            "The chance to hold a person out, for attacks; default: 0.05 of a file, "
            "0: nobody."
        ),
    ] = None,
) -> None:
    """Make a synthetic table from one table, with a price that is in the ledger first,
    and a page that judges it.

    Without --schema the bounds and categories of columns are bought from ε, as
    `understudy schema buy` does. Better is a schema: `understudy schema infer` drafts
    one, and you mark it public when it holds only what is publicly known.
    """
    import pandas as pd

    from understudy.api.synthesize import synthesize as carry_out
    from understudy.data.reading.files import separator_of
    from understudy.data.reading.sources import with_encoding
    from understudy.data.reading.writing import write_table
    from understudy.report.page import write_report

    if schema is not None and (
        person is not None or rows_are_people or confirm or kind
    ):
        raise ConfigError(
            "a schema says who and what: leave --person, --rows-are-people, --kind and "
            "--names-and-kinds-are-public out."
        )
    folder = to or free_folder(Path("runs") / table.name.split(".")[0])
    if holdout is None and parts is not None:
        holdout = 0.0  # so long a table is not copied
    with terminal.training() as watch, counted_in(parts):
        result = carry_out(
            table,
            epsilon=epsilon,
            delta=delta,
            schema=schema,
            one_of=one_of or None,
            person=person,
            rows_are_people=rows_are_people,
            names_and_kinds_are_public=confirm,
            name=name,
            ledgers=ledgers,
            lifetime_epsilon=lifetime,
            folder=folder,
            rows=rows,
            encoding=encoding,
            missing=missing or [],
            without=without or [],
            kinds=_kinds(kind or []),
            watch=watch,
            target=target,
            public_people=people,
            holdout=holdout,
            header=header,
        )
    drawn = pd.read_parquet(folder / "synthetic.parquet")
    separator = separator_of(
        table if encoding is None else with_encoding(table, encoding)
    )
    write_table(
        drawn,
        folder / "synthetic.csv",
        result.generator.schema,
        separator=separator,
        quoted=quote_formulas,
    )
    write_report(folder)
    terminal.summary(result, folder)


def _kinds(declared: list[str]) -> dict[str, str] | None:
    """What is said of columns as NAME=KIND; a name may hold an equals sign, and a kind
    holds none.
    """
    kinds: dict[str, str] = {}
    for text in declared:
        name, equals, kind = text.rpartition("=")
        if not equals or not name or not kind or name in kinds:
            raise ConfigError(
                f"--kind is NAME=KIND, each name once, not {text!r}.",
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
        kinds[name] = kind
    return kinds or None


@app.command()
def run(
    file: Annotated[Path | None, argument("The run file (TOML).")] = None,
    resume: Annotated[bool, option("Resume the run in the output folder.")] = False,
    example: Annotated[
        bool, option("Print a run file to start from.", "--example")
    ] = False,
    seed: Annotated[
        int | None,
        option("Rehearse: repeatable noise, no real ledger, no privacy. Public rows."),
    ] = None,
    quiet: Annotated[bool, option("Do not print the plan first.", "--quiet")] = False,
    parts: Parts = None,
) -> None:
    """Carry out a run file: align people, train, save the generator, synthetic rows and
    a privacy statement.

    Its first screen is the plan: what will be released, how uncertain it will be, and
    what it will take.
    """
    if example:
        plain.print(
            Path(__file__).with_name("example_run.toml").read_text(encoding="utf-8"),
            end="",
        )
        return
    if file is None:
        raise typer.BadParameter(
            "Which run file? `understudy run --example` prints one to start from."
        )
    body = RunFile.load(file)
    if not quiet and not resume:
        from understudy.api.plan import plan_file

        plain.print(f"{plan_file(body)}\n")
    from understudy.api.train import run_file

    with terminal.training() as watch, counted_in(parts):
        result, folder = run_file(body, resume=resume, watch=watch, seed=seed)
    terminal.summary(result, folder)


@app.command("plan")
def plan_run(
    file: FileArg,
    people: Annotated[
        int | None,
        option("About how many people, if public; default: the file's.", min=1),
    ] = None,
) -> None:
    """Say what a run file will release, with which noise and error, and what it will
    take. No row is read for it.
    """
    from understudy.api.plan import plan_file

    plain.print(str(plan_file(RunFile.load(file, elsewhere=None), people=people)))


@app.command()
def report(
    folder: Annotated[Path, argument("A run's folder.")],
    publish: Annotated[
        bool, option("Leave out every figure that was computed on real rows.")
    ] = False,
    to: Annotated[
        Path | None, option("Where to write; default: into the folder.", "--out")
    ] = None,
    party: Annotated[
        list[str] | None, option("Only what these holders can see.")
    ] = None,
    target: Annotated[
        str | None,
        option("A column to predict, from synthetic rows; default: the run's."),
    ] = None,
    holdout: Annotated[
        Path | None, option("Real rows that no training has seen (CSV or Parquet).")
    ] = None,
    with_evidence: Annotated[
        bool, option("With --publish: the folder of evidence, too.", "--evidence")
    ] = False,
) -> None:
    """Write the report that helps a holder decide whether to publish."""
    from understudy.report.page import write_report

    if with_evidence and not publish:
        raise ConfigError(
            "--evidence goes with --publish: evidence holds nothing but what is "
            "published."
        )

    page = write_report(
        folder,
        out=to,
        publish=publish,
        parties=party or None,
        target=target,
        holdout=holdout,
    )
    rest = (
        ""
        if publish
        else " Only for the holder; --publish writes one that may be published."
    )
    out.print(f"Written to {page}.{rest}")
    if with_evidence:
        evidence(folder)


@app.command()
def evidence(
    run: Annotated[
        Path, argument("The folder of a finished run.", exists=True, file_okay=False)
    ],
    to: Annotated[
        Path | None, option("Where to: by default RUN/evidence.", "--out")
    ] = None,
    about: Annotated[
        Path | None,
        option("A TOML file with what only people can say of it.", exists=True),
    ] = None,
) -> None:
    """Write what a data protection officer files: registry entry, catalogue records,
    checklists, published page.
    """
    need_libraries()
    from understudy.evidence.facts import ReleaseDescription
    from understudy.evidence.folder import write_evidence

    place = write_evidence(
        run,
        to or run / "evidence",
        about=None if about is None else ReleaseDescription.load(about),
    )
    out.print(
        f"Written to {place}; its README.md says what people still have to fill in.",
        soft_wrap=True,
    )
    out.print(
        f"Each holder signs it: understudy sign {place} --key KEY --ledger LEDGER",
        soft_wrap=True,
    )


@app.command()
def sign(
    folder: FolderArg,
    key: Annotated[
        Path, option("The private key to sign with (PEM; Ed25519 or P-256).")
    ],
    ledger: Annotated[
        Path | None,
        option("The holder's ledger; without one the hub signs.", exists=True),
    ] = None,
    new: Annotated[
        bool, option("Make the key first, and its public half beside it.", "--new")
    ] = False,
) -> None:
    """Sign a folder of evidence, as the holder of a ledger or as the hub."""
    need_libraries()
    from understudy.evidence.signing import new_key, sign_folder, statement_to_sign

    if new:
        # a folder that cannot be signed needs no key
        statement_to_sign(folder, ledger=ledger)
        out.print(
            f"A new key: {key}. Hand out {new_key(key)}, and keep the key.",
            soft_wrap=True,
        )
    out.print(f"Signed: {sign_folder(folder, key, ledger=ledger)}", soft_wrap=True)


@app.command()
def verify(
    folder: FolderArg,
    trusted: Annotated[
        Path,
        option(
            "Public keys (NAME.pub), certificates (NAME.pem).",
            exists=True,
            file_okay=False,
        ),
    ],
) -> None:
    """Check a folder of evidence: every file, every signature, every holder's receipts.
    No network is needed.
    """
    need_libraries()
    from understudy.evidence.signing import verify_folder

    verified = verify_folder(folder, trusted)
    out.print(
        f"Run {verified.run}: {verified.files} files are as "
        f"{', '.join(verified.signers)} "
        "signed them, and the holders' receipts pay for all that is stated.",
        soft_wrap=True,
    )


@app.command()
def evaluate(
    real: Annotated[
        Path, option("The real rows (CSV or Parquet; of people with events a folder).")
    ],
    synthetic: Annotated[Path, option("The synthetic rows, from any generator.")],
    schema: Annotated[Path, option("The public schema of both.")],
    holdout: Annotated[
        Path | None, option("Real rows that the generator has not seen.")
    ] = None,
    target: Annotated[str | None, option("A column to predict.")] = None,
    another: Annotated[
        bool, option("Also show figures of the library sdmetrics.", "--second-opinion")
    ] = False,
    to: Annotated[Path | None, option("Also write a report (HTML).", "--out")] = None,
) -> None:
    """Compare synthetic rows with the real ones, for their holder: a table, people with
    events, images or series.
    """
    from understudy.report.measure import evaluate_files
    from understudy.report.page import write_evaluation_page

    lines, found = evaluate_files(
        real,
        synthetic,
        schema,
        holdout=holdout,
        target=target,
        another=another,
        page=to is not None,
    )
    for line in lines:
        plain.print(line)
    if to is not None and found is not None:
        out.print(f"Written to {write_evaluation_page(found, to)}.")


@app.command()
def audit(
    file: FileArg,
    party: Annotated[
        str | None, option("The party to audit; default: the one with the smallest ε.")
    ] = None,
    trials: Annotated[
        int, option("How many runs with the person, and how many without.", min=50)
    ] = 1000,
    seconds: Annotated[
        float, option("Stop after this time, and use the trials done so far.")
    ] = 120.0,
) -> None:
    """Try to catch the code breaking its promise: an empirical lower bound on ε.

    Many small runs with and without one worst-case person, on made-up rows that fit the
    schemas; no row of yours is read. It fails (exit 1) if the measured ε is above the
    claimed ε, and exits with 2 if nothing could be audited. If the run was carried out,
    the result is saved in its folder, and `understudy report` shows it.
    """
    from understudy.evaluate.audit.audit_file import audit_run_file
    from understudy.runs.registry import protocol_named, resolve_run_file

    body = resolve_run_file(RunFile.load(file))
    config = protocol_named(body.protocol).configured(body.settings)
    try:
        if body.tune:
            raise ConfigError(
                'a run with "tune" is audited candidate by candidate: put the values '
                'of one in "settings".',
                effect=Effect.NOTHING_COMPUTED,
            )
        result = audit_run_file(
            body,
            protocol_named(body.protocol),
            config,
            party=party,
            trials=trials,
            seconds=seconds,
        )
    except (ConfigError, SchemaError) as error:
        terminal.print_error(error)
        raise typer.Exit(2) from None
    plain.print(str(result))
    folder = body.path(body.out)
    if folder.is_dir():
        (folder / "audit.json").write_text(
            json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n"
        )
    if not result.passed:
        raise typer.Exit(1)


@app.command()
def protocols(
    protocol: Annotated[
        str | None, argument("One of them: shows its settings.")
    ] = None,
) -> None:
    """The protocols that a run file can name, each with its source; or every setting of
    one.
    """
    from understudy.runs.registry import PROTOCOLS, protocol_named

    if protocol is not None:
        from understudy.runs.registry import settings_of

        plain.print(protocol_named(protocol).title)
        terminal.print_table(
            ("setting", "default", "values", "meaning"),
            (
                (one.name, one.default, one.values, one.meaning)
                for one in settings_of(protocol)
            ),
        )
        return
    for name, record in PROTOCOLS.items():
        out.print(f"[bold]{name}[/]  {terminal.escape(record.title)}")


@app.command()
def version() -> None:
    """Print the version."""
    out.print(understudy.__version__)

"""The `understudy` command."""

import dataclasses
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

import understudy
from understudy.cli import exchange, network
from understudy.data.infer import infer_schema, write_draft
from understudy.data.schema import Schema
from understudy.data.table import check_table, read_table
from understudy.demo import run_demo
from understudy.errors import ConfigError, PrivacyWarning, UnderstudyError
from understudy.evaluate.audit_file import audit_run_file
from understudy.evaluate.comparison import compare
from understudy.federation import open_ledger
from understudy.generator import Generator
from understudy.privacy.budget import Budget
from understudy.privacy.buy_schema import buy_schema, coarsen, quote
from understudy.privacy.ledger import Ledger
from understudy.privacy.rng import SecureRng
from understudy.protocols.base import Progress as Rounds
from understudy.registry import PROTOCOLS, config_for, protocol_named
from understudy.report.page import write_evaluation_page, write_report
from understudy.run import Result, run_file
from understudy.runfile import RunFile

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Private stand-ins for data that cannot leave home.\n\n"
    "Several holders obtain **one synthetic table** from rows that never leave them, at a privacy price that is "
    "written into each holder's ledger before anything is sent.\n\n"
    "Start with `understudy demo`. For your own data: `schema infer`, edit the draft, `schema check`, "
    "write a run file (`understudy run --example`), `run`, then `sample` and `ledger show`.",
)
schema_app = typer.Typer(
    no_args_is_help=True, help="The public description of a table: draft it, check rows against it."
)
ledger_app = typer.Typer(no_args_is_help=True, help="What a holder has spent: when, on what, in which run.")
app.add_typer(schema_app, name="schema")
app.add_typer(ledger_app, name="ledger")
network.mount(app)
exchange.mount(app)

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
FileArg = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)]


def main() -> None:
    """Run a command; an error of ours is one line in words, not a traceback."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PrivacyWarning)
        warnings.showwarning = _warn
        try:
            app()
        except UnderstudyError as error:
            err.print(f"[red]{type(error).__name__}:[/] {_escape(str(error))}")
            sys.exit(1)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    err.print(f"[yellow]Note:[/] {_escape(str(message))}")


@app.command()
def demo(
    to: Annotated[
        Path | None, typer.Option("--out", help="Where to write; default: the next free runs/demo.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="gram, or verti-gan.")] = "gram",
    epsilon: Annotated[float, typer.Option(help="What the run may cost each holder.")] = 2.0,
) -> None:
    """Two holders publish one joint synthetic table, from real data.

    A clinic and an insurer hold different facts about partly the same people (RAND Health Insurance
    Experiment). They find the shared people without showing ids, obtain one generator without showing
    rows, and write down what it cost. The page at the end shows how good it is.
    """
    with _training() as watch:
        run_demo(to, protocol=protocol, epsilon=epsilon, say=_say, watch=watch)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="The run file (TOML).")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the run in the output folder.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a run file to start from.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Rehearse: repeatable noise, no real ledger, no privacy. Public rows only."),
    ] = None,
) -> None:
    """Carry out a run file: align people, train, save generator, synthetic rows and privacy statement."""
    if example:
        out.print(_EXAMPLE, markup=False)
        return
    if file is None:
        raise typer.BadParameter("Which run file? `understudy run --example` prints one to start from.")
    with _training() as watch:
        result, folder = run_file(RunFile.load(file), resume=resume, watch=watch, seed=seed)
    _summary(result, folder)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    publish: Annotated[
        bool, typer.Option(help="Leave out every figure that was computed on real rows.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--out", help="Where to write; default: into the folder.")
    ] = None,
    party: Annotated[list[str] | None, typer.Option(help="Only what these holders can see.")] = None,
    target: Annotated[
        str | None, typer.Option(help="A column to predict: train on synthetic, test on real.")
    ] = None,
    holdout: Annotated[
        Path | None, typer.Option(help="Real rows that no training has seen (CSV or Parquet).")
    ] = None,
) -> None:
    """Write the page by which a holder decides whether to publish."""
    page = write_report(
        folder, out=to, publish=publish, parties=party or None, target=target, holdout=holdout
    )
    rest = "" if publish else " For the holder alone; --publish writes one that may go out."
    out.print(f"Written to {page}.{rest}")


@app.command()
def evaluate(
    real: Annotated[Path, typer.Option(help="The real rows (CSV or Parquet).")],
    synthetic: Annotated[Path, typer.Option(help="The synthetic rows, from any generator.")],
    schema: Annotated[Path, typer.Option(help="The public schema of both.")],
    holdout: Annotated[Path | None, typer.Option(help="Real rows that the generator has not seen.")] = None,
    target: Annotated[str | None, typer.Option(help="A column to predict.")] = None,
    another: Annotated[
        bool, typer.Option("--second-opinion", help="Figures of the library sdmetrics, too.")
    ] = False,
    to: Annotated[Path | None, typer.Option("--out", help="Write a page, too (HTML).")] = None,
) -> None:
    """Compare a synthetic table with the real one, for the holder of the real rows."""
    public = dataclasses.replace(Schema.load(schema), person=None)
    held_out = None if holdout is None else read_table(holdout, public).frame
    comparison = compare(
        read_table(real, public).frame,
        read_table(synthetic, public).frame,
        public,
        holdout=held_out,
        target=target,
        another=another,
    )
    out.print(str(comparison.evaluation), markup=False)
    if to is not None:
        out.print(f"Written to {write_evaluation_page(comparison, to)}.")


@app.command()
def audit(
    file: FileArg,
    party: Annotated[str | None, typer.Option(help="Whose promise; default: the smallest ε.")] = None,
    trials: Annotated[int, typer.Option(min=50, help="Runs with the person, and as many without.")] = 1000,
    seconds: Annotated[float, typer.Option(help="Stop after so long, with what there is.")] = 120.0,
) -> None:
    """Try to catch the code breaking its promise: an empirical lower bound on ε.

    Many small runs with and without one worst-case person, on made-up rows that fit the schemas; no row of yours is
    read. It fails (exit 1) when more is observed than is claimed. Where the run was carried out, the result is saved
    beside it, and `understudy report` shows it.
    """
    body = RunFile.load(file)
    config = config_for(body.protocol, body.settings)
    result = audit_run_file(
        body, protocol_named(body.protocol), config, party=party, trials=trials, seconds=seconds
    )
    out.print(str(result), markup=False)
    if (folder := body.path(body.out)).is_dir():
        (folder / "audit.json").write_text(json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")
    if not result.passed:
        raise typer.Exit(1)


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="A run's folder or its generator/ folder.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many.")] = 1000,
    to: Annotated[
        Path | None, typer.Option("--out", help="CSV or Parquet; default: CSV to the terminal.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the same rows again.")] = None,
) -> None:
    """Draw synthetic rows from a saved generator. Drawing costs no privacy, however many."""
    frame = Generator.load(folder).sample(rows, seed=seed)
    if to is None:
        sys.stdout.write(frame.to_csv(index=False))
    elif to.suffix == ".parquet":
        frame.to_parquet(to, index=False)
    else:
        frame.to_csv(to, index=False)
    if to is not None:
        out.print(f"{rows:,} rows written to {to}")


@schema_app.command("check")
def schema_check(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet.")],
    schema: Annotated[Path, typer.Argument(help="The schema (TOML or JSON).")],
) -> None:
    """List every place where a table does not fit its schema: file, column, row, value."""
    found = check_table(table, Schema.load(schema))
    for violation in found:
        out.print(str(violation), markup=False)
    wrong = [violation for violation in found if violation.error]
    if wrong:
        err.print(f"{len(wrong):,} violations.")
        raise typer.Exit(1)
    out.print(f"{table.name} fits {schema.name}.")


@schema_app.command("infer")
def schema_infer(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet.")],
    to: Annotated[Path, typer.Option("--out", help="Where to write the draft.")],
    person: Annotated[str | None, typer.Option(help="The column that identifies people.")] = None,
) -> None:
    """Write a draft schema read from rows. A run refuses it until it is marked public or paid for."""
    write_draft(infer_schema(table, person=person), to)
    out.print(
        f"Draft written to {to}. It was read from rows and is private: read its header before you go on."
    )


@schema_app.command("buy")
def schema_buy(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet.")],
    draft: Annotated[Path, typer.Argument(help="A schema whose column names and kinds are right.")],
    ledger: Annotated[
        Path, typer.Option(help="The holder's ledger; a new one gets this purchase as its budget.")
    ],
    to: Annotated[Path, typer.Option("--out", help="Where to write the bought schema.")],
    cleaned: Annotated[Path, typer.Option(help="Where to write the table fitted to it (CSV).")],
    epsilon: Annotated[float, typer.Option(help="What to spend.")] = 0.5,
    delta: Annotated[float, typer.Option(help="At which δ.")] = 1e-6,
    holder: Annotated[str | None, typer.Option(help="Whose ledger it is, when it is new.")] = None,
    confirm: Annotated[
        bool,
        typer.Option("--names-and-kinds-are-public", help="State that names and kinds are publicly known."),
    ] = False,
) -> None:
    """Buy bounds and category lists with noise, charged to the ledger before a row is read.

    Only column names and kinds are taken from the draft; everything else is measured privately. Values that did
    not show (rare categories, outliers) become "(other)" or are clipped in the cleaned table.
    """
    columns = Schema.load(draft)
    if not confirm:
        raise ConfigError(
            "a purchase takes column names and kinds from the draft for free: "
            f"{', '.join(f'{c.name} ({c.kind})' for c in columns.columns)}. "
            "If they are publicly known, say so with --names-and-kinds-are-public. Nothing was read or charged."
        )
    kinds = {column.name: column.kind for column in columns.columns}
    book = open_ledger(ledger, holder or ledger.stem, Budget(epsilon, delta))
    out.print(str(quote(kinds, epsilon=epsilon, delta=delta) or "nothing to buy"), markup=False)
    bought = buy_schema(
        table, kinds, book, epsilon=epsilon, delta=delta, run="schema", rng=SecureRng(), person=columns.person
    )
    bought.save(to)
    coarsen(table, bought).to_csv(cleaned, index=False)
    out.print(f"Schema written to {to}, the table fitted to it to {cleaned}.\n{book.summary()}", markup=False)


@schema_app.command("show")
def schema_show(schema: FileArg) -> None:
    """Print a schema as a table."""
    out.print(str(Schema.load(schema)), markup=False)


@ledger_app.command("show")
def ledger_show(
    ledger: FileArg,
    last: Annotated[int, typer.Option(help="Only the last so many entries; 0 for all.")] = 20,
) -> None:
    """When, what, which run, price, total."""
    with Ledger(ledger) as book:
        entries = book.entries(merged=True)
        grid = Grid(title=f"Ledger of {book.holder}", box=SIMPLE_HEAD, title_justify="left", padding=(0, 0))
        grid.add_column("when (UTC)", no_wrap=True)
        grid.add_column("run", overflow="fold", min_width=8)
        grid.add_column("what", overflow="fold", min_width=12)
        for name in ("uses", "who", "ε alone", "ε in all"):
            grid.add_column(name, justify="right", no_wrap=True)
        for entry in entries[-last:] if last else entries:
            when, *rest = entry.cells()
            grid.add_row(when[:16].replace("T", " "), *map(_escape, rest))
        out.print(grid, soft_wrap=False)
        if last and len(entries) > last:
            out.print(f"{len(entries) - last:,} earlier entries; --last 0 shows all.")
        out.print(book.summary(), markup=False)


def _summary(result: Result, folder: Path) -> None:
    out.print(str(result.privacy), markup=False)
    out.print(f"\nWritten to {folder}:")
    for name, what in _ARTEFACTS.items():
        if (folder / name).exists():
            out.print(f"  {name:<20} {what}")


@contextmanager
def _training() -> Iterator[Callable[[Rounds], None] | None]:
    """A bar while it trains; Ctrl-C ends in words."""
    try:
        with _bar() as watch:
            yield watch
    except KeyboardInterrupt:
        err.print(
            "Stopped. What was finished is saved, and the ledger holds all that was spent. Go on with --resume."
        )
        raise typer.Exit(130) from None


@contextmanager
def _bar() -> Iterator[Callable[[Rounds], None] | None]:
    """A bar of rounds, ε so far and time left. Nothing of any row is shown; quiet when not in a terminal."""
    if not err.is_terminal:
        yield None
        return
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[spent]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task: Any = None

        def watch(rounds: Rounds) -> None:
            nonlocal task
            if task is None:
                task = bar.add_task("training", total=rounds.rounds, spent="")
            every = max(1, rounds.rounds // 50)
            if rounds.done % every == 0 or rounds.done == rounds.rounds:
                spent = " ".join(f"{name} ε={value:.2f}" for name, value in rounds.epsilon().items())
                bar.update(task, spent=spent)
            bar.update(task, completed=rounds.done)

        yield watch


def _say(text: str) -> None:
    out.print(text, markup=False)


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


_ARTEFACTS = {
    "generator": "weights, schema and card: draw more rows with `understudy sample`",
    "model": "weights, schema and card of the classifier",
    "synthetic.parquet": "the joint synthetic table",
    "privacy.json": "what was spent, per party and per person, against whom",
    "transcript.json": "what crossed the line: messages, bytes, paid values",
    "run.toml": "the run as it was carried out",
}

_EXAMPLE = """\
protocol = "gram"
out = "runs/joint"

[parties.clinic]
table = "clinic.csv"
schema = "clinic.toml"
epsilon = 2.0
delta = 1e-6

[parties.insurer]
table = "insurer.parquet"
schema = "insurer.toml"
epsilon = 2.0
delta = 1e-6"""


@app.command()
def protocols() -> None:
    """The protocols that a run file can name, each with its source."""
    for name, module in PROTOCOLS.items():
        out.print(f"[bold]{name}[/]  {_escape((module.__doc__ or '').splitlines()[0])}")


@app.command()
def version() -> None:
    """Print the version."""
    out.print(understudy.__version__)
